//! Fair shares in whole slots: water-filling by weight under caps, with integers alone.
//!
//! A level rises; each part holds weight x level, but no more than its cap (and a zone no less
//! than its floor). The level at which the parts hold the total is found by halving, in units
//! of 2^-64 slots, then the parts are rounded to whole slots that add up.

use super::{spread::Spread, work::Node};

/// Fraction bits of a share.
const FRACTION: u32 = 64;
/// No level is higher: 2^20 slots over weight 1.
const LEVEL_BITS: u32 = FRACTION + 21;

/// Fair count of replicas per node. `held` breaks what rounding leaves open, so that a
/// balanced table stays as it is. Nobody gets less than its `pinned`.
pub(super) fn replicas(
    nodes: &[Node],
    spread: &Spread,
    slots: u64,
    held: &[u32],
    pinned: &[u32],
) -> Vec<u32> {
    let mut zones = vec![Vec::new(); spread.zones.len()];
    for (at, node) in nodes.iter().enumerate() {
        zones[node.zone].push(at);
    }
    let zone_held: Vec<u64> = zones
        .iter()
        .map(|zone| zone.iter().map(|at| u64::from(held[*at])).sum())
        .collect();
    let share = |at: usize, level: u128| {
        capped(nodes[at].weight, level, slots).max(u128::from(pinned[at]) << FRACTION)
    };
    let totals = divide(
        spread.length as u64 * slots,
        &zone_held,
        |zone| spread.zones[zone].most as u64 * slots,
        |zone, level| {
            let bounds = spread.zones[zone];
            let fixed = |replicas: usize| u128::from(replicas as u64 * slots) << FRACTION;
            let free: u128 = zones[zone].iter().map(|at| share(*at, level)).sum();
            free.clamp(fixed(bounds.least), fixed(bounds.most))
        },
    );

    let mut quotas = vec![0; nodes.len()];
    for (zone, total) in zones.iter().zip(totals) {
        let held: Vec<_> = zone.iter().map(|at| u64::from(held[*at])).collect();
        let parts = divide(
            total,
            &held,
            |_| slots,
            |part, level| share(zone[part], level),
        );
        for (at, part) in zone.iter().zip(parts) {
            quotas[*at] = part as u32;
        }
    }
    quotas
}

/// Fair count of owned ranges per node of a part, of those it has a replica of; 0 for others.
pub(super) fn owners(
    nodes: &[Node],
    part: &[u16],
    total: u64,
    replicas: &[u32],
    held: &[u32],
) -> Vec<u32> {
    let node = |at: usize| usize::from(part[at]);
    let held: Vec<_> = part
        .iter()
        .map(|node| u64::from(held[usize::from(*node)]))
        .collect();
    let cap = |at: usize| u64::from(replicas[node(at)]);
    let parts = divide(total, &held, cap, |at, level| {
        capped(nodes[node(at)].weight, level, cap(at))
    });
    let mut quotas = vec![0; nodes.len()];
    for (at, part) in parts.into_iter().enumerate() {
        quotas[node(at)] = part as u32;
    }
    quotas
}

fn capped(weight: u64, level: u128, cap: u64) -> u128 {
    // weight <= 10^6 < 2^20 and level < 2^86: no overflow, also when 2^14 of them are added.
    (u128::from(weight) * level).min(u128::from(cap) << FRACTION)
}

/// Divides `total`, or all that the caps allow. `part` must not fall as the level rises.
fn divide(
    total: u64,
    held: &[u64],
    cap: impl Fn(usize) -> u64,
    part: impl Fn(usize, u128) -> u128,
) -> Vec<u64> {
    let count = held.len();
    let total = total.min((0..count).map(&cap).sum());
    let wanted = u128::from(total) << FRACTION;
    // The highest level at which the parts do not exceed the total.
    let mut level = 0_u128;
    for bit in (0..LEVEL_BITS).rev() {
        let higher = level | 1 << bit;
        if (0..count).map(|at| part(at, higher)).sum::<u128>() <= wanted {
            level = higher;
        }
    }
    // The true level lies between this one and the next; taking the next keeps exact shares
    // exact, and is too small a step to round anybody else up.
    let exact: Vec<_> = (0..count).map(|at| part(at, level + 1)).collect();
    let mut parts: Vec<_> = exact
        .iter()
        .map(|exact| (exact >> FRACTION) as u64)
        .collect();
    let given: u64 = parts.iter().sum();
    let mut left = total.saturating_sub(given);

    // Whole slots that are left go first to who holds them already, then by fraction.
    let mut order: Vec<_> = (0..count).collect();
    order.sort_by_key(|at| {
        let fraction = exact[*at] as u64;
        (held[*at] <= parts[*at], std::cmp::Reverse(fraction), *at)
    });
    while left > 0 {
        let before = left;
        for at in &order {
            if left > 0 && parts[*at] < cap(*at) {
                parts[*at] += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;

    fn quotas(nodes: &[(usize, u64)], rf: usize, slots: u64) -> Vec<u32> {
        let nodes: Vec<_> = (0..)
            .zip(nodes)
            .map(|(at, (zone, weight))| Node {
                handle: Handle(at),
                zone: *zone,
                weight: *weight,
            })
            .collect();
        replicas(
            &nodes,
            &Spread::of(&nodes, rf),
            slots,
            &vec![0; nodes.len()],
            &vec![0; nodes.len()],
        )
    }

    #[test]
    fn shares_follow_weight() {
        assert_eq!(quotas(&[(0, 1), (0, 1), (0, 2)], 1, 1_024), [256, 256, 512]);
        assert_eq!(
            quotas(&[(0, 4), (0, 4), (0, 1), (0, 1)], 1, 1_000),
            [400, 400, 100, 100]
        );
        assert_eq!(
            quotas(&[(0, 1), (0, 1), (0, 1)], 1, 16).iter().sum::<u32>(),
            16
        );
    }

    #[test]
    fn nobody_holds_a_range_twice() {
        assert_eq!(
            quotas(&[(0, 1_000_000), (0, 1), (0, 1)], 2, 64),
            [64, 32, 32]
        );
        assert_eq!(quotas(&[(0, 5), (0, 1)], 3, 64), [64, 64]);
    }

    #[test]
    fn a_zone_holds_what_its_bounds_say_whatever_its_weight() {
        let nodes = [(0, 1), (1, 1), (2, 10), (2, 10), (2, 10), (2, 10)];
        assert_eq!(quotas(&nodes, 3, 64), [64, 64, 16, 16, 16, 16]);
    }

    #[test]
    fn zones_share_by_weight_where_there_are_more_than_replicas() {
        let nodes = [(0, 1), (1, 1), (2, 1), (3, 3)];
        // The heavy one is capped by the number of slots, the others share the rest.
        assert_eq!(quotas(&nodes, 2, 60), [20, 20, 20, 60]);
    }

    #[test]
    fn rounding_keeps_what_is_held() {
        let nodes: Vec<_> = (0..3)
            .map(|at| Node {
                handle: Handle(at),
                zone: 0,
                weight: 1,
            })
            .collect();
        let spread = Spread::of(&nodes, 1);
        assert_eq!(
            replicas(&nodes, &spread, 16, &[5, 5, 6], &[0; 9]),
            [5, 5, 6]
        );
        assert_eq!(
            replicas(&nodes, &spread, 16, &[5, 6, 5], &[0; 9]),
            [5, 6, 5]
        );
        assert_eq!(
            replicas(&nodes, &spread, 16, &[0, 0, 0], &[0; 9]),
            [6, 5, 5]
        );
    }
}
