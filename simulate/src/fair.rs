//! What would be fair: shares by weight and zone, and the least that a change must move.

use std::collections::BTreeMap;

use crate::cluster::Node;

/// Share of all keys that each node should own, by its weight alone; the parts add up to 1.
#[must_use]
pub fn owners(nodes: &[Node]) -> Vec<f64> {
    let total: f64 = nodes.iter().map(weight).sum();
    nodes.iter().map(|node| weight(node) / total).collect()
}

fn weight(node: &Node) -> f64 {
    f64::from(node.weight.get())
}

/// Replicas per key that each node should hold, 0 to 1; the parts add up to min(rf, nodes).
///
/// With `spread`, zones are filled as evenly as their sizes allow and weight decides within:
/// with as many replicas as zones, a node's share is its weight over its zone's weight.
#[must_use]
pub fn replicas(nodes: &[Node], rf: usize, spread: bool) -> Vec<f64> {
    let eligible = nodes.iter().filter(|node| node.weight.get() > 0).count();
    let length = rf.min(eligible);
    let mut zones: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let zone = if spread { node.zone.as_str() } else { "" };
        if node.weight.get() > 0 {
            zones.entry(zone).or_default().push(at);
        }
    }
    let zones: Vec<Vec<usize>> = zones.into_values().collect();
    // The level up to which every zone gives all the nodes it has (as ring's assigner spreads).
    let filled = |level: usize| {
        zones
            .iter()
            .map(|zone| zone.len().min(level))
            .sum::<usize>()
    };
    let level = (0..length)
        .find(|level| filled(*level) >= length)
        .unwrap_or(length);
    let share = |at: usize, level: f64| (weight(&nodes[at]) * level).min(1.0);
    let zone_share = |zone: &[usize], height: f64| {
        let least = zone.len().min(level.saturating_sub(1)) as f64;
        let most = zone.len().min(level) as f64;
        let free: f64 = zone.iter().map(|at| share(*at, height)).sum();
        free.clamp(least, most)
    };
    let height = rise(length as f64, |height| {
        zones.iter().map(|zone| zone_share(zone, height)).sum()
    });
    let mut shares = vec![0.0; nodes.len()];
    for zone in &zones {
        let total = zone_share(zone, height);
        let inner = rise(total, |height| {
            zone.iter().map(|at| share(*at, height)).sum()
        });
        for at in zone {
            shares[*at] = share(*at, inner);
        }
    }
    shares
}

/// The height at which `held` reaches `total`, by halving.
fn rise(total: f64, held: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 2.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if held(middle) < total {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The least that must move for every node to have its fair share afterwards: what those gain
/// who ought to have more. By handle, as nodes come and go.
#[must_use]
pub fn least(before: (&[Node], &[f64]), after: (&[Node], &[f64])) -> f64 {
    let had: BTreeMap<_, f64> = before
        .0
        .iter()
        .map(|node| node.handle)
        .zip(before.1.iter().copied())
        .collect();
    let gained = after.0.iter().zip(after.1).map(|(node, share)| {
        let had = had.get(&node.handle).copied().unwrap_or(0.0);
        (share - had).max(0.0)
    });
    gained.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::regular;

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-9, "{found:?}, expected {expected:?}");
        }
    }

    #[test]
    fn owners_share_by_weight() {
        let nodes = regular(4, 1, &[4, 4, 1, 1]).expect("fine");
        near(&owners(&nodes), &[0.4, 0.4, 0.1, 0.1]);
    }

    #[test]
    fn with_as_many_replicas_as_zones_a_share_is_within_the_zone() {
        // Zones of 2, 1 and 1: z1 has n1 and n4.
        let nodes = regular(4, 3, &[1]).expect("fine");
        near(&replicas(&nodes, 3, true), &[0.5, 1.0, 1.0, 0.5]);
        near(&replicas(&nodes, 3, false), &[0.75; 4]);
    }

    #[test]
    fn nobody_holds_a_key_twice() {
        let nodes = regular(3, 1, &[100, 1, 1]).expect("fine");
        near(&replicas(&nodes, 2, true), &[1.0, 0.5, 0.5]);
        near(&replicas(&nodes, 7, true), &[1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_least_is_what_the_newcomer_gets() {
        let all = regular(4, 1, &[1]).expect("fine");
        let three = &all[..3];
        let least = least((three, &owners(three)), (&all, &owners(&all)));
        assert!((least - 0.25).abs() < 1e-12);
    }
}
