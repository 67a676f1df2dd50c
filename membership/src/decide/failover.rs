//! Failover: a hand-over without the owner. Members refuse its reign first and tell what they hold
//! after (story F4); the successor stores all of it before it owns anything.

use annulus_ring::{Availability, Handle, NodeId, Slot};

use super::{
    Decision,
    hand_over::{handle, in_order, reordered},
};
use crate::{
    Burial, Event, MAX_FAILOVER, NodeEvidence, Rejection, RingState, Wave, WaveFault, WaveId,
    burial,
};

/// How many members of a list must refuse and give their tails: [`burial::quorum`]; of a range that
/// an operator gave up as possibly lost, those that are left.
pub(crate) fn needed(ring: &RingState, slot: Slot) -> usize {
    let given_up = |(_, burial): (&NodeId, &Burial)| burial.lost.contains(slot);
    let quorum = burial::quorum(ring, slot);
    if !ring.burials().any(given_up) {
        return quorum;
    }
    let up = |handle: &&Handle| {
        let member = ring.by_handle(**handle);
        member.is_some_and(|member| member.availability == Availability::Up)
    };
    let left = ring.slots.list(slot).iter().filter(up).count();
    left.clamp(1, quorum)
}

/// Who may take a range over from its silent owner: another member of the old list and, while the
/// range moves, of the new one too.
pub(crate) fn successors(ring: &RingState, slot: Slot) -> impl Iterator<Item = Handle> {
    let sets = ring.sets(slot);
    let stays = move |handle: &Handle| sets.step.is_none() || sets.new.contains(handle);
    sets.old.iter().skip(1).copied().filter(stays)
}

/// A failover is no movement: it goes on while the ring is paused.
pub(super) fn intend(
    ring: &RingState,
    owner: &NodeId,
    successor: &NodeId,
    slots: &[Slot],
) -> Result<Decision, Rejection> {
    if let Some(wave) = &ring.wave {
        return Err(Rejection::WaveRuns { wave: wave.id });
    }
    let (old, new) = (handle(ring, owner)?, handle(ring, successor)?);
    in_order(ring, slots, MAX_FAILOVER)?;
    let fault = |slot: Slot, reason| Err(Rejection::BadWave { slot, reason });
    if ring.members[owner].availability != Availability::Down {
        return fault(slots[0], WaveFault::OwnerUp);
    }
    if ring.members[successor].availability == Availability::Down {
        return fault(slots[0], WaveFault::SuccessorDown);
    }
    for slot in slots {
        let list = ring.slots.list(*slot);
        if list.first() != Some(&old) {
            return fault(*slot, WaveFault::NotOwner);
        }
        if !list[1..].contains(&new) {
            return fault(*slot, WaveFault::NotMember);
        }
        if !successors(ring, *slot).any(|handle| handle == new) {
            return fault(*slot, WaveFault::NotInTarget);
        }
        let needed = needed(ring, *slot);
        if list.len() - 1 < needed {
            return fault(*slot, quorum(list.len() - 1, needed));
        }
    }
    let wave = Wave {
        id: WaveId(ring.last_wave.0 + 1),
        owner: owner.clone(),
        successor: successor.clone(),
        slots: slots.to_vec(),
        intent: None,
    };
    Ok(vec![Event::FailoverBegun { wave }].into())
}

pub(super) fn succeed(
    ring: &RingState,
    wave: &Wave,
    fenced: &[NodeEvidence],
    read: &[NodeId],
) -> Result<Decision, Rejection> {
    let fault = |slot: Slot, reason| Err(Rejection::BadWave { slot, reason });
    let first = wave.slots[0];
    let Some(intent) = wave.intent else {
        return fault(first, WaveFault::OtherKind);
    };
    let successor = handle(ring, &wave.successor)?;
    let old = handle(ring, &wave.owner)?;
    // Whose refusal and tail count: in the member's life, since the intent, and read after it.
    let mut counted = Vec::with_capacity(fenced.len());
    for node in fenced {
        let Some(member) = ring.members.get(&node.node) else {
            return Err(Rejection::NotMember {
                node: node.node.clone(),
            });
        };
        if member.incarnation != node.incarnation {
            return fault(first, WaveFault::Incarnation);
        }
        let told = member.handle == successor || read.contains(&node.node);
        if node.acked_epoch >= intent && told {
            counted.push(member.handle);
        }
    }
    if !counted.contains(&successor) {
        return fault(first, WaveFault::NotHeld);
    }
    let mut lists = Vec::with_capacity(wave.slots.len());
    for slot in &wave.slots {
        let list = ring.slots.list(*slot);
        if list.first() != Some(&old) {
            return fault(*slot, WaveFault::NotOwner);
        }
        if !successors(ring, *slot).any(|handle| handle == successor) {
            return fault(*slot, WaveFault::NotInTarget);
        }
        let found = list
            .iter()
            .filter(|handle| counted.contains(handle))
            .count();
        let needed = needed(ring, *slot);
        if found < needed {
            return fault(*slot, quorum(found, needed));
        }
        lists.push(reordered(ring, *slot, successor));
    }
    Ok(vec![Event::WaveCommitted { lists }].into())
}

fn quorum(found: usize, needed: usize) -> WaveFault {
    let short = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    WaveFault::Quorum {
        found: short(found),
        needed: short(needed),
    }
}
