//! The clockwise walk, for all tokens at once.
//!
//! Walking anew from every token costs a whole round where a zone has few nodes. Going backwards
//! instead, each token changes little: its node comes to the front, of its zone and of the list.
//! `tests/it/tokens.rs` compares this with the walk as it is told.

use smallvec::SmallVec;

use crate::{Token, slots::MAX_RF, zones::Zones};

/// A list by node index.
pub(super) type Row = SmallVec<[u16; MAX_RF as usize]>;

/// The list of every distinct token, by token. `points` are sorted by (token, node); `zone_of` by
/// node.
pub(super) fn lists(
    points: &[(Token, u16)],
    zone_of: &[usize],
    zones: &Zones,
) -> Vec<(Token, Row)> {
    if zones.sizes.len() >= zones.rf {
        let mut front = Row::new();
        backwards(points, |_, node| {
            one_per_zone(&mut front, node, zone_of, zones.rf);
            front.clone()
        })
    } else {
        let mut fronts = vec![Front::new(); zones.sizes.len()];
        backwards(points, |at, node| {
            let front = &mut fronts[zone_of[usize::from(node)]];
            front.retain(|known| known.node != node);
            front.truncate(zones.rf - 1);
            front.insert(0, Seen { at, node });
            merge(&fronts, zones)
        })
    }
}

/// Calls `step` for every point twice round, last to first, and keeps what it gave at the first
/// point of each token in the second round, when every node has been seen.
fn backwards(
    points: &[(Token, u16)],
    mut step: impl FnMut(usize, u16) -> Row,
) -> Vec<(Token, Row)> {
    let count = points.len();
    for (at, (_, node)) in points.iter().enumerate().rev() {
        step(at + count, *node);
    }
    let mut lists: Vec<(Token, Row)> = Vec::with_capacity(count);
    for (at, (token, node)) in points.iter().enumerate().rev() {
        let row = step(at, *node);
        match lists.last_mut() {
            // Equal tokens: the range belongs to the first of them, and the others hold none.
            Some(last) if last.0 == *token => last.1 = row,
            _ => lists.push((*token, row)),
        }
    }
    lists.reverse();
    lists
}

/// At least as many zones as replicas, so one round at a cap of one fills the list: the first
/// node of each of the first rf zones. A node that comes to the front takes its zone's place, or
/// the last one.
fn one_per_zone(front: &mut Row, node: u16, zone_of: &[usize], rf: usize) {
    let zone = |node: u16| zone_of[usize::from(node)];
    match front.iter().position(|known| zone(*known) == zone(node)) {
        Some(same_zone) => drop(front.remove(same_zone)),
        None => front.truncate(rf - 1),
    }
    front.insert(0, node);
}

/// A node where the walk first meets it; `at` counts points, over two rounds.
#[derive(Clone, Copy)]
struct Seen {
    at: usize,
    node: u16,
}

/// The first rf nodes of one zone from where the walk stands, nearest first.
type Front = SmallVec<[Seen; MAX_RF as usize]>;

/// The walk over what it meets first in each zone, at most 6 x 7 nodes, round by round.
fn merge(fronts: &[Front], zones: &Zones) -> Row {
    let mut row = Row::new();
    let mut taken = [0_usize; MAX_RF as usize];
    let mut cap = zones.first_cap();
    while row.len() < zones.rf {
        let next = |zone: &usize| {
            let seen = fronts[*zone]
                .get(taken[*zone])
                .filter(|_| taken[*zone] < cap)?;
            Some((seen.at, *zone, seen.node))
        };
        match (0..fronts.len()).filter_map(|zone| next(&zone)).min() {
            Some((_, zone, node)) => {
                taken[zone] += 1;
                row.push(node);
            }
            None if cap < zones.rf => cap += 1,
            None => break,
        }
    }
    row
}
