//! Checks a target that the proposer computed. It is never recomputed here, so that servers of
//! different assigner versions agree.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Candidate, Handle, Member, SlotChange, Zone};

use crate::{Rejection, RingState, TargetFault, bait};

/// Members as candidates.
pub(super) fn of(members: &[Member]) -> Vec<Candidate> {
    members
        .iter()
        .map(|member| Candidate {
            handle: member.handle,
            zone: member.zone.clone(),
            weight: member.weight,
        })
        .collect()
}

/// Every slot must end up with a list that is distinct, eligible, as long and as spread as the
/// candidates allow, with the owner rule of design section 5 kept.
pub(super) fn check(
    ring: &RingState,
    candidates: &[Candidate],
    target: &[SlotChange],
) -> Result<(), Rejection> {
    let eligible: BTreeMap<Handle, &Zone> = candidates
        .iter()
        .filter(|candidate| candidate.weight.get() > 0)
        .map(|candidate| (candidate.handle, &candidate.zone))
        .collect();
    let zones: BTreeSet<&Zone> = eligible.values().copied().collect();
    let rf = usize::from(ring.config.replication.rf);
    let length = rf.min(eligible.len());
    let spread = rf.min(zones.len());

    let mut changes = target.iter().peekable();
    for slot in ring.slots.slots() {
        let old = ring.slots.list(slot);
        let fault = |reason| Err(Rejection::BadTarget { slot, reason });
        let Some(change) = changes.next_if(|change| change.slot == slot) else {
            // By a member that leaves, or will have no weight.
            if let Some(held) = old.iter().find(|handle| !eligible.contains_key(handle)) {
                return fault(TargetFault::StillHeld(held.0));
            }
            if old.len() < length {
                return fault(TargetFault::Length {
                    found: old.len(),
                    expected: length,
                });
            }
            continue;
        };
        let new = &change.to;
        if new.as_slice() == old {
            return fault(TargetFault::Unchanged);
        }
        let mut seen = BTreeSet::new();
        let mut spread_over = BTreeSet::new();
        for handle in new {
            if !seen.insert(*handle) {
                return fault(TargetFault::Twice(handle.0));
            }
            match eligible.get(handle) {
                Some(zone) => spread_over.insert(*zone),
                None => return fault(TargetFault::NotEligible(handle.0)),
            };
        }
        if new.len() != length {
            return fault(TargetFault::Length {
                found: new.len(),
                expected: length,
            });
        }
        if spread_over.len() < spread {
            return fault(TargetFault::Spread {
                found: spread_over.len(),
                expected: spread,
            });
        }
        let owner_rule = match old.first() {
            None => true,
            Some(owner) if new.contains(owner) => new[0] == *owner,
            Some(_) => old.contains(&new[0]),
        };
        if !owner_rule && !bait::on("target-led-by-anyone") {
            return fault(TargetFault::Owner);
        }
    }
    match changes.next() {
        Some(change) => Err(Rejection::BadTarget {
            slot: change.slot,
            reason: TargetFault::Order,
        }),
        None => Ok(()),
    }
}
