//! What people ask about one change: what it moves, and what it waits for.

use annulus_ring::{Handle, List, Slot, SlotTable};

use crate::{ChangeId, ChangePhase, Reports, RingState, State, fold, waiting_for};

/// Ranges of one node that a target touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Copied to it.
    pub gained: u32,
    /// Given up by it.
    pub lost: u32,
    /// Owned by it, and by another afterwards.
    pub handed_over: u32,
    /// Owned by another, and by it afterwards.
    pub taken_over: u32,
}

/// Counts them. O(changed slots x rf).
pub fn moved<'a>(
    slots: &SlotTable,
    target: impl Iterator<Item = (Slot, &'a List)>,
    handle: Handle,
) -> Moved {
    let mut moved = Moved::default();
    for (slot, new) in target {
        let old = slots.list(slot);
        let (held, holds) = (old.contains(&handle), new.contains(&handle));
        let owned = old.first() == Some(&handle);
        let owns = new.first() == Some(&handle);
        moved.gained += u32::from(holds && !held);
        moved.lost += u32::from(held && !holds);
        moved.handed_over += u32::from(owned && !owns);
        moved.taken_over += u32::from(owns && !owned);
    }
    moved
}

/// What a change waits for: one sentence each, with the command that would help where one would.
/// Empty when it has ended, is unknown, or goes on by itself.
#[must_use]
pub fn change_waits(
    state: &State,
    ring: &RingState,
    reports: &Reports,
    id: ChangeId,
    now_ms: u64,
) -> Vec<String> {
    let Some(record) = ring.changes.get(&id) else {
        return Vec::new();
    };
    match record.phase {
        ChangePhase::Done | ChangePhase::Aborted | ChangePhase::Refused(_) => Vec::new(),
        ChangePhase::Running(_) => waiting_for(state, ring, reports, now_ms),
        ChangePhase::Queued => {
            let mut sentences = Vec::new();
            if !ring.founded {
                sentences.push("collected: it waits for `annulus ring found`".to_owned());
                return sentences;
            }
            if let Some(transition) = &ring.transition {
                sentences.push(format!(
                    "transition {} runs, at step {} {}; one runs at a time",
                    transition.id,
                    transition.step.number(),
                    transition.step
                ));
            }
            let fold = fold::fold(ring);
            if let Some((_, rejection)) = fold.refused.iter().find(|(other, _)| *other == id) {
                sentences.push(format!(
                    "it will be refused when its turn comes: {rejection}"
                ));
            } else if !fold.accepted.contains(&id) {
                sentences.push(
                    "it cannot go in one transition with the changes before it, and goes after them"
                        .to_owned(),
                );
            }
            if ring.transition.is_none() {
                sentences.extend(waiting_for(state, ring, reports, now_ms));
            }
            sentences
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gained_lost_and_handed_over_is_counted() {
        let mut slots = SlotTable::empty(2, 2);
        let [a, b, c] = [0, 1, 2].map(Handle);
        for (slot, list) in [(0, [a, b]), (1, [b, a]), (2, [a, b]), (3, [a, b])] {
            slots.set(Slot(slot), &list);
        }
        let target: Vec<(Slot, List)> = [(0, [b, c]), (1, [b, c]), (2, [a, c])]
            .map(|(slot, list)| (Slot(slot), List::from_slice(&list)))
            .to_vec();
        let count = |handle| {
            moved(
                &slots,
                target.iter().map(|(slot, list)| (*slot, list)),
                handle,
            )
        };
        let of = |gained, lost, handed_over, taken_over| Moved {
            gained,
            lost,
            handed_over,
            taken_over,
        };
        assert_eq!(count(a), of(0, 2, 1, 0));
        assert_eq!(count(b), of(0, 1, 0, 1));
        assert_eq!(count(c), of(3, 0, 0, 0));
    }
}
