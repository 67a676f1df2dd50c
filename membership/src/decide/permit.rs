//! Deleting: the only leave to delete a copy, and the note that it is gone (LAST-COPY).

use std::collections::BTreeSet;

use annulus_ring::{NodeId, Slot, Zone};

use super::Decision;
use crate::{
    CopySet, Event, PermitFault, Rejection, RetainedCopies, RingState, SlotEvidence, bait,
};

fn kept<'a>(ring: &'a RingState, copies: &CopySet) -> Option<&'a RetainedCopies> {
    ring.retained.iter().find(|known| {
        known.node == copies.node
            && known.incarnation == copies.incarnation
            && known.session == copies.session
    })
}

fn no_such(copies: &CopySet, slot: Slot) -> Rejection {
    Rejection::NoSuchCopy {
        node: copies.node.clone(),
        slot,
    }
}

pub(super) fn permit(
    ring: &RingState,
    now_ms: u64,
    copies: &CopySet,
    evidence: &[SlotEvidence],
) -> Result<Decision, Rejection> {
    super::brake::moves(ring)?;
    super::brake::deletes(ring)?;
    let first = copies.slots.first().copied().unwrap_or_default();
    let known = kept(ring, copies).ok_or_else(|| no_such(copies, first))?;
    let not = |slot, reason| Err(Rejection::NotPermitted { slot, reason });
    let left_ms = (known.since_ms + ring.config.grace_ms).saturating_sub(now_ms);
    if left_ms > 0 && !bait::on("permit-in-grace") {
        return not(first, PermitFault::Grace(left_ms));
    }
    if ring.config.is_cache() {
        // An entry that is deleted is a miss: there is no last copy to look after.
        if let Some(slot) = copies.slots.iter().find(|slot| !known.kept.contains(slot)) {
            return Err(no_such(copies, *slot));
        }
        return Ok(vec![Event::Permitted {
            copies: copies.clone(),
        }]
        .into());
    }
    if !evidence
        .iter()
        .map(|slot| slot.slot)
        .eq(copies.slots.iter().copied())
    {
        return not(first, PermitFault::Unverified);
    }
    for proof in evidence {
        if !known.kept.contains(&proof.slot) {
            return Err(no_such(copies, proof.slot));
        }
        if let Err(reason) = deletable(ring, known, proof) {
            return not(proof.slot, reason);
        }
    }
    Ok(vec![Event::Permitted {
        copies: copies.clone(),
    }]
    .into())
}

fn deletable(
    ring: &RingState,
    known: &RetainedCopies,
    proof: &SlotEvidence,
) -> Result<(), PermitFault> {
    if ring.sets(proof.slot).step.is_some() {
        return Err(PermitFault::Moving);
    }
    let list = ring.slots.list(proof.slot);
    let members: Vec<_> = list
        .iter()
        .filter_map(|handle| ring.by_handle(*handle))
        .collect();
    // A node that gained the range again holds a live copy beside the retained one; they are
    // separate, so deleting the old one takes nothing from the list.
    let listed: BTreeSet<&NodeId> = members.iter().map(|member| &member.node_id).collect();
    if !proof.members.iter().map(|member| &member.node).eq(listed) {
        return Err(PermitFault::Unverified);
    }
    for said in &proof.members {
        let current = ring
            .members
            .get(&said.node)
            .map(|member| member.incarnation);
        let young = said.acked_epoch >= known.since_epoch || bait::on("permit-on-old-proof");
        if current != Some(said.incarnation) || !young {
            return Err(PermitFault::Unverified);
        }
    }
    if is_whole(ring, proof.slot) || bait::on("permit-of-the-last") {
        Ok(())
    } else {
        Err(PermitFault::TooFew)
    }
}

/// Whether a slot's list is as long, and over as many zones, as its members allow.
pub(crate) fn is_whole(ring: &RingState, slot: Slot) -> bool {
    let candidates = ring.candidates();
    let weighty = candidates
        .iter()
        .filter(|candidate| candidate.weight.get() > 0);
    let zones: BTreeSet<&Zone> = weighty.clone().map(|candidate| &candidate.zone).collect();
    let list = ring.slots.list(slot);
    let members: Vec<_> = list
        .iter()
        .filter_map(|handle| ring.by_handle(*handle))
        .collect();
    let spread: BTreeSet<&Zone> = members.iter().map(|member| &member.zone).collect();
    let rf = usize::from(ring.config.replication.rf);
    members.len() >= rf.min(weighty.count()) && spread.len() >= rf.min(zones.len())
}

pub(super) fn released(ring: &RingState, copies: &CopySet) -> Result<Decision, Rejection> {
    let first = copies.slots.first().copied().unwrap_or_default();
    let known = kept(ring, copies).ok_or_else(|| no_such(copies, first))?;
    if let Some(slot) = copies
        .slots
        .iter()
        .find(|slot| !known.permitted.contains(slot))
    {
        return Err(no_such(copies, *slot));
    }
    let mut events = vec![Event::Released {
        copies: copies.clone(),
    }];
    let rest_here = known.kept.len() + known.permitted.len() - copies.slots.len();
    let elsewhere = ring
        .retained
        .iter()
        .any(|other| other.node == copies.node && other.session != copies.session);
    let draining = ring
        .members
        .get(&copies.node)
        .is_some_and(|member| member.state == annulus_ring::MemberState::Draining);
    let in_transition = ring
        .transition
        .as_ref()
        .is_some_and(|transition| transition.draining.contains(&copies.node));
    if rest_here == 0 && !elsewhere && draining && !in_transition {
        events.push(Event::MemberRemoved {
            node: copies.node.clone(),
        });
    }
    Ok(events.into())
}
