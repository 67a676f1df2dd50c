//! Members that are taken for dead: what may be said of them, and what is lost with them.

use std::collections::BTreeSet;

use annulus_ring::{Availability, Handle, Member, NodeId, Slot};

use crate::{
    Burial, Rejection, RingState, Spans, decide::checked_reason, expected::Expected, fold,
};

/// The node is a member, committed as down, and what is said of it is true: the ranges in doubt
/// are among those that the operator quotes.
pub(crate) fn lies(
    ring: &RingState,
    expected: &Expected,
    node: &NodeId,
    burial: &Burial,
) -> Result<(), Rejection> {
    let Some(member) = ring
        .members
        .get(node)
        .filter(|_| expected.members.contains_key(node))
    else {
        return fold::stands(ring, expected, node);
    };
    if member.availability != Availability::Down {
        return Err(Rejection::NodeUp { node: node.clone() });
    }
    if let Some(word) = &burial.stopped {
        checked_reason(word)?;
    }
    if ring.config.is_cache() {
        // What is gone is a miss.
        return Ok(());
    }
    let doubt = Doubt::about(ring, member);
    if !doubt.nobody.is_empty() {
        return Err(Rejection::NoSurvivor {
            node: node.clone(),
            slots: Spans::of(doubt.nobody),
        });
    }
    let ranges = doubt.too_few.len();
    let too_few = Spans::of(doubt.too_few);
    // Fewer than were quoted are well: others came back since, or lists changed.
    if !too_few.slots().all(|slot| burial.lost.contains(slot)) {
        return Err(Rejection::MayLose {
            node: node.clone(),
            ranges,
            slots: too_few,
        });
    }
    let unfenced = unfenced(ring, member);
    if burial.stopped.is_none() && !unfenced.is_empty() {
        return Err(Rejection::NotStopped {
            node: node.clone(),
            slots: Spans::of(unfenced),
        });
    }
    Ok(())
}

/// Ranges of a dead member of which too few others are left to refuse reads of before in its place:
/// n - r + 1 must (story F7). O(slots x rf).
fn unfenced(ring: &RingState, dead: &Member) -> Vec<Slot> {
    let gone: BTreeSet<Handle> = ring
        .burials()
        .filter_map(|(node, _)| Some(ring.members.get(node)?.handle))
        .chain([dead.handle])
        .collect();
    let r = usize::from(ring.replication().r);
    let short = |slot: &Slot| {
        let list = ring.slots.list(*slot);
        let left = list.iter().filter(|handle| !gone.contains(handle)).count();
        list.contains(&dead.handle) && left + r <= list.len()
    };
    ring.slots.slots().filter(short).collect()
}

/// Ranges of a dead member whose acknowledged writes nobody can vouch for: with fewer than n - w + 1
/// other members up, a write may have been acknowledged by those alone that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// Some other member is up, but too few.
    pub too_few: Vec<Slot>,
    /// No other member is up.
    pub nobody: Vec<Slot>,
}

impl Doubt {
    /// What is in doubt once `dead` is gone. O(slots x rf).
    #[must_use]
    pub fn about(ring: &RingState, dead: &Member) -> Self {
        let up: BTreeSet<Handle> = ring
            .members
            .values()
            .filter(|member| member.availability == Availability::Up)
            .map(|member| member.handle)
            .collect();
        let mut doubt = Self::default();
        for slot in ring.slots.slots() {
            let list = ring.slots.list(slot);
            if !list.contains(&dead.handle) {
                continue;
            }
            match list.iter().filter(|handle| up.contains(handle)).count() {
                0 => doubt.nobody.push(slot),
                some if some < quorum(ring, slot) => doubt.too_few.push(slot),
                _ => {}
            }
        }
        doubt
    }
}

/// n - w + 1 of a list: nobody can gather w acknowledgements without one of so many, and every
/// acknowledged write is at one of them. The list is O until step 8 and N from there: a set of
/// which every acknowledgement needs w (story F5).
pub(crate) fn quorum(ring: &RingState, slot: Slot) -> usize {
    if ring.config.is_cache() {
        return 1;
    }
    let listed = ring.slots.list(slot).len();
    let w = usize::from(ring.replication().w);
    (listed + 1).saturating_sub(w).max(1)
}
