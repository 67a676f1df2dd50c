//! Nodes in the order in which they are to be given ranges.

use std::collections::BTreeSet;

use super::{filled, scatter, work::Node};

/// When a node is to get its next range, as a share of all; then the node. Smallest first.
pub(super) type Key = (u64, u16);

/// Per zone and over all zones: who is to get a range next.
///
/// A node of quota q gets its ranges at one scattered moment in each of q equal intervals, so
/// that it shares them with many others and not always with the same two.
pub(super) struct Order {
    keys: Vec<Key>,
    by_zone: Vec<BTreeSet<Key>>,
    /// First key of each zone that has one.
    zones: BTreeSet<(Key, usize)>,
}

impl Order {
    pub fn new(nodes: &[Node], quota: &[u32], count: &[u32], zones: usize) -> Self {
        let keys: Vec<_> = (0..nodes.len())
            .map(|at| key(nodes, quota, count, at))
            .collect();
        let mut by_zone = vec![BTreeSet::new(); zones];
        for (node, key) in nodes.iter().zip(&keys) {
            by_zone[node.zone].insert(*key);
        }
        let firsts = by_zone.iter().enumerate();
        let zones = firsts
            .filter_map(|(zone, keys)| Some((*keys.first()?, zone)))
            .collect();
        Self {
            keys,
            by_zone,
            zones,
        }
    }

    /// Puts a node where its changed count belongs.
    pub fn update(&mut self, nodes: &[Node], quota: &[u32], count: &[u32], at: usize) {
        let zone = nodes[at].zone;
        let keys = &mut self.by_zone[zone];
        let before = keys.first().copied();
        keys.remove(&self.keys[at]);
        self.keys[at] = key(nodes, quota, count, at);
        keys.insert(self.keys[at]);
        let after = keys.first().copied();
        if before != after {
            if let Some(before) = before {
                self.zones.remove(&(before, zone));
            }
            if let Some(after) = after {
                self.zones.insert((after, zone));
            }
        }
    }

    /// The node that is next of those not in `row`, of zones with `room`.
    /// With `under`, only nodes that have less than their quota.
    pub fn first(&self, row: &[u16], under: bool, room: impl Fn(usize) -> bool) -> Option<u16> {
        let mut best: Option<Key> = None;
        for (first, zone) in &self.zones {
            if best.is_some_and(|best| best < *first) || (under && first.0 >= super::FULL) {
                break;
            }
            if !room(*zone) {
                continue;
            }
            // At most rf nodes are passed over.
            let found = self.by_zone[*zone].iter().find(|key| !row.contains(&key.1));
            if let Some(found) = found.filter(|found| !under || found.0 < super::FULL)
                && best.is_none_or(|best| *found < best)
            {
                best = Some(*found);
            }
        }
        best.map(|key| key.1)
    }
}

fn key(nodes: &[Node], quota: &[u32], count: &[u32], at: usize) -> Key {
    let moment = scatter(nodes[at].handle.0.into(), count[at]);
    (filled(count[at], quota[at], moment), at as u16)
}
