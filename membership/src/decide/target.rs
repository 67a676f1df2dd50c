//! Checks a target that the proposer computed. It is never recomputed here, so that servers of
//! different assigner versions agree.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Candidate, Handle, Member, Slot, SlotChange, Zone, place::Rules};

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
/// candidates allow, with its pins honoured and the owner rule of design section 5 kept. With
/// `all_change` every slot is in the target, also where its list stays: its quorums do not.
pub(super) fn check(
    ring: &RingState,
    candidates: &[Candidate],
    rules: &Rules,
    all_change: bool,
    target: &[SlotChange],
) -> Result<(), Rejection> {
    let eligible: BTreeMap<Handle, &Zone> = candidates
        .iter()
        .filter(|candidate| candidate.weight.get() > 0)
        .map(|candidate| (candidate.handle, &candidate.zone))
        .collect();
    let zones: BTreeSet<&Zone> = eligible.values().copied().collect();
    let rf = usize::from(rules.rf.unwrap_or(ring.config.replication.rf));
    let length = rf.min(eligible.len());
    let spread = rf.min(zones.len());

    let mut pinned: BTreeMap<Slot, Vec<Handle>> = BTreeMap::new();
    for pin in rules.pins.iter().chain(&rules.owners) {
        pinned.entry(pin.slot).or_default().push(pin.handle);
    }
    let unpinned = |slot: Slot, list: &[Handle]| {
        let mut pins = pinned.get(&slot).into_iter().flatten();
        pins.find(|handle| !list.contains(handle)).copied()
    };

    let mut changes = target.iter().peekable();
    for slot in ring.slots.slots() {
        let old = ring.slots.list(slot);
        let fault = |reason| Err(Rejection::BadTarget { slot, reason });
        let Some(change) = changes.next_if(|change| change.slot == slot) else {
            if all_change {
                return fault(TargetFault::Missing);
            }
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
            // Another zone may leave a list less spread than it was.
            let found = old.iter().filter_map(|handle| eligible.get(handle));
            let found = found.collect::<BTreeSet<_>>().len();
            if found < spread {
                let expected = spread;
                return fault(TargetFault::Spread { found, expected });
            }
            if let Some(missing) = unpinned(slot, old) {
                return fault(TargetFault::Unpinned(missing.0));
            }
            continue;
        };
        let new = &change.to;
        if new.as_slice() == old && !all_change {
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
        if let Some(missing) = unpinned(slot, new) {
            return fault(TargetFault::Unpinned(missing.0));
        }
        let owner_rule = match old.first() {
            None => true,
            Some(owner) if new.contains(owner) => new[0] == *owner,
            // With rf 1 nobody stays: the switch hands a cache's range to who never had it.
            Some(_) if ring.config.is_cache() => {
                old.contains(&new[0]) || !old.iter().any(|held| new.contains(held))
            }
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
