//! Moving replicas from nodes above their quota to nodes below, with as few moves as possible.
//!
//! Rows, zones and nodes form a flow network; a replica that changes hands in one row is the
//! smallest step in it. One step per replica is the least there can be, and in all but tight
//! tables it is enough. What is left goes along a shortest chain of steps: u gives a range to
//! v, v gives another to w (augmenting paths: L. R. Ford, D. R. Fulkerson, "Maximal Flow
//! Through a Network", 1956; shortest first: J. Edmonds, R. M. Karp, 1972).

use super::{
    scatter,
    work::{Keep, Work},
};

/// Most rows looked at while searching chains, over one run.
pub const MAX_STEPS: u64 = 1 << 28;

/// One replica changing hands.
struct Handing {
    slot: usize,
    from: u16,
    to: u16,
}

/// Answers how many rows it looked at in search of chains.
pub(super) fn balance(work: &mut Work<'_>) -> u64 {
    let mut steps = MAX_STEPS;
    // Balance is never worth a list that none of its old members is in: nobody could take it
    // over. With one replica there is no other way, and the gainer is the successor.
    let keep = if work.single && work.spread.rf == 1 {
        Keep::Nothing
    } else {
        Keep::Successor
    };
    // What stripping and filling got wrong is put right for nothing: nothing has moved yet.
    chains(work, Keep::Owner, Budget::Free, &mut steps);
    chains(work, keep, Budget::Free, &mut steps);
    direct(work, Keep::Owner);
    let left: i64 = work.indexes().map(|node| work.surplus(node).max(0)).sum();
    if left == 0 {
        return MAX_STEPS - steps;
    }
    // Leaving owners alone is worth a few moves more, but not a tenth more (MOVE-MINIMAL). In a
    // table so small that a tenth is nothing, two.
    let moved: usize = (0..work.rows.len())
        .map(|slot| {
            work.rows[slot]
                .iter()
                .filter(|node| !work.old[slot].contains(node))
                .count()
        })
        .sum();
    let extra = ((moved as u64 + left as u64) / 20).max(2);
    chains(work, Keep::Owner, Budget::Extra(extra), &mut steps);
    direct(work, keep);
    chains(work, keep, Budget::Extra(u64::MAX), &mut steps);
    MAX_STEPS - steps
}

/// What chains may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Budget {
    /// Not one move.
    Free,
    /// One move per replica, and so many more over all.
    Extra(u64),
}

/// Moves replicas straight from a node above its quota to one below.
fn direct(work: &mut Work<'_>, keep: Keep) {
    for from in work.indexes() {
        if work.surplus(from) <= 0 {
            continue;
        }
        let mut held = work.held(from);
        // Scattered, or gainers would get neighbours on the circle from everybody.
        held.sort_by_cached_key(|slot| scatter(*slot, from.into()));
        for slot in held {
            let slot = slot as usize;
            if work.surplus(from) <= 0 {
                break;
            }
            if !work.may_lose(slot, from, keep) {
                continue;
            }
            if let Some(to) = best_under(work, slot, from) {
                work.replace(slot, from, to);
            }
        }
    }
}

/// The node that lacks most and may take `from`'s place in a row of which it is no member.
fn best_under(work: &Work<'_>, slot: usize, from: u16) -> Option<u16> {
    // `from` is above its quota, so it is never the answer.
    work.best(&work.without(slot, from), true)
        .filter(|to| !work.rows[slot].contains(to))
}

/// Moves replicas along cheapest chains, until there is none within the budget.
fn chains(work: &mut Work<'_>, keep: Keep, mut budget: Budget, steps: &mut u64) {
    while let Some((chain, moves)) = cheapest(work, keep, budget == Budget::Free, steps) {
        if let Budget::Extra(extra) = &mut budget {
            let Some(rest) = extra.checked_sub(moves.saturating_sub(1)) else {
                return;
            };
            *extra = rest;
        }
        // From the end: each step leaves a legal table, and one that the steps behind it made
        // illegal only leaves the lack one node further up, for the next search.
        for Handing { slot, from, to } in chain.into_iter().rev() {
            let zone = work.nodes[usize::from(to)].zone;
            let rest = work.without(slot, from);
            if rest.contains(&to)
                || rest.len() == work.rows[slot].len()
                || !work.spread.room(work.nodes, &rest, zone)
                || !work.may_lose(slot, from, keep)
            {
                *steps = steps.saturating_sub(MAX_STEPS >> 10);
                break;
            }
            work.replace(slot, from, to);
        }
    }
}

/// A chain with the fewest moves from any node above its quota to any below, and its moves.
///
/// Layer by layer: first all nodes that can be reached without a further move, by handing on
/// what was only gained or by giving a range back to a member, then one move further.
fn cheapest(
    work: &Work<'_>,
    keep: Keep,
    only_free: bool,
    steps: &mut u64,
) -> Option<(Vec<Handing>, u64)> {
    let mut search = Search::new(work);
    let mut layer: Vec<u16> = work
        .indexes()
        .filter(|node| work.surplus(*node) > 0)
        .collect();
    let mut moves = 0;
    while !layer.is_empty() {
        let mut at = 0;
        while at < layer.len() {
            if let Some(target) = search.expand(layer[at], keep, true, &mut layer, steps) {
                return Some((search.trace(target), moves));
            }
            at += 1;
        }
        if only_free {
            return None;
        }
        moves += 1;
        let mut next = Vec::new();
        for from in layer {
            if let Some(target) = search.expand(from, keep, false, &mut next, steps) {
                return Some((search.trace(target), moves));
            }
        }
        layer = next;
    }
    None
}

struct Search<'a, 'b> {
    work: &'a Work<'b>,
    /// Per node: from whom it was reached, and in which slot.
    reached: Vec<Option<(u16, u32)>>,
    /// By zone: nodes not reached yet.
    unseen: Vec<(usize, Vec<u16>)>,
}

impl<'a, 'b> Search<'a, 'b> {
    fn new(work: &'a Work<'b>) -> Self {
        let mut unseen: Vec<_> = (0..work.spread.zones.len())
            .map(|zone| (zone, Vec::new()))
            .collect();
        for node in work.indexes().filter(|node| work.surplus(*node) <= 0) {
            unseen[work.nodes[usize::from(node)].zone].1.push(node);
        }
        unseen.retain(|(_, nodes)| !nodes.is_empty());
        Self {
            work,
            reached: vec![None; work.nodes.len()],
            unseen,
        }
    }

    /// Reaches all that `from` can hand a range to, or, with `free`, those to which that is no
    /// further move. The first found that lacks one ends it.
    fn expand(
        &mut self,
        from: u16,
        keep: Keep,
        free: bool,
        found: &mut Vec<u16>,
        steps: &mut u64,
    ) -> Option<u16> {
        let work = self.work;
        for number in work.held(from) {
            let slot = number as usize;
            if *steps == 0 || self.unseen.is_empty() {
                return None;
            }
            *steps -= 1;
            if !work.may_lose(slot, from, keep) {
                continue;
            }
            let old = &work.old[slot];
            let only_back = free && old.contains(&from);
            if only_back && old.iter().all(|member| work.rows[slot].contains(member)) {
                continue;
            }
            let rest = work.without(slot, from);
            let mut target = None;
            for (zone, nodes) in &mut self.unseen {
                if !work.spread.room(work.nodes, &rest, *zone) {
                    continue;
                }
                nodes.retain(|node| {
                    if rest.contains(node) || (only_back && !old.contains(node)) {
                        return true;
                    }
                    self.reached[usize::from(*node)] = Some((from, number));
                    if work.surplus(*node) < 0 {
                        target = target.or(Some(*node));
                    }
                    found.push(*node);
                    false
                });
            }
            if target.is_some() {
                return target;
            }
            self.unseen.retain(|(_, nodes)| !nodes.is_empty());
        }
        None
    }

    fn trace(&self, target: u16) -> Vec<Handing> {
        let mut chain = Vec::new();
        let mut to = target;
        while let Some((from, slot)) = self.reached[usize::from(to)] {
            chain.push(Handing {
                slot: slot as usize,
                from,
                to,
            });
            to = from;
        }
        chain.reverse();
        chain
    }
}
