//! Hand-over: a change of order inside one list and nothing else; it moves no data.

use annulus_ring::{Handle, Incarnation, List, NodeId, Position, Slot, Step};

use super::{Decision, failover};
use crate::{Event, HandOver, MAX_WAVE, Rejection, RingState, Wave, WaveFault, bait};

pub(super) fn decide(ring: &RingState, hand_over: &HandOver) -> Result<Decision, Rejection> {
    match hand_over {
        HandOver::Begin {
            owner,
            successor,
            slots,
        } => begin(ring, owner, successor, slots),
        HandOver::Commit {
            wave,
            sealed,
            confirmed,
            owner_incarnation,
            successor_incarnation,
        } => {
            let running = running(ring, *wave)?;
            let lives = [
                (&running.owner, *owner_incarnation),
                (&running.successor, *successor_incarnation),
            ];
            commit(ring, running, sealed, confirmed, lives)
        }
        HandOver::Abort { wave } => {
            running(ring, *wave)?;
            Ok(vec![Event::WaveAborted { wave: *wave }].into())
        }
        HandOver::Intend {
            owner,
            successor,
            slots,
        } => failover::intend(ring, owner, successor, slots),
        HandOver::Succeed { wave, fenced, read } => {
            failover::succeed(ring, running(ring, *wave)?, fenced, read)
        }
    }
}

/// Whether a step of a hand-over would be taken.
pub(crate) fn passes(ring: &RingState, hand_over: &HandOver) -> bool {
    decide(ring, hand_over).is_ok()
}

fn running(ring: &RingState, wave: crate::WaveId) -> Result<&Wave, Rejection> {
    match &ring.wave {
        Some(running) if running.id == wave => Ok(running),
        _ => Err(Rejection::NoWave { wave }),
    }
}

fn begin(
    ring: &RingState,
    owner: &NodeId,
    successor: &NodeId,
    slots: &[Slot],
) -> Result<Decision, Rejection> {
    super::brake::moves(ring)?;
    if let Some(wave) = &ring.wave
        && !bait::on("wave-over-a-wave")
    {
        return Err(Rejection::WaveRuns { wave: wave.id });
    }
    let (old, new) = (handle(ring, owner)?, handle(ring, successor)?);
    in_order(ring, slots, MAX_WAVE)?;
    for slot in slots {
        let fault = |reason| {
            Err(Rejection::BadWave {
                slot: *slot,
                reason,
            })
        };
        let sets = ring.sets(*slot);
        if sets.old.first() != Some(&old) {
            return fault(WaveFault::NotOwner);
        }
        if old == new || !sets.old.contains(&new) {
            return fault(WaveFault::NotMember);
        }
        match sets.step {
            None => {}
            Some(Step::Prepared) if sets.new.first() == Some(&new) => {}
            Some(Step::Prepared) => return fault(WaveFault::NotInTarget),
            Some(_) => return fault(WaveFault::Moving),
        }
    }
    let wave = Wave {
        id: crate::WaveId(ring.last_wave.0 + 1),
        owner: owner.clone(),
        successor: successor.clone(),
        slots: slots.to_vec(),
        intent: None,
    };
    Ok(vec![Event::WaveBegun { wave }].into())
}

pub(super) fn handle(ring: &RingState, node: &NodeId) -> Result<Handle, Rejection> {
    match ring.members.get(node) {
        Some(member) => Ok(member.handle),
        None => Err(Rejection::NotMember { node: node.clone() }),
    }
}

/// Sorted, unique, of this ring, and not more than `most`.
pub(super) fn in_order(ring: &RingState, slots: &[Slot], most: usize) -> Result<(), Rejection> {
    let sorted = slots.windows(2).all(|pair| pair[0] < pair[1]);
    let known = slots
        .iter()
        .all(|slot| slot.index() < ring.slots.slot_count());
    if slots.is_empty() || slots.len() > most || !sorted || !known {
        return Err(Rejection::BadWave {
            slot: slots.first().copied().unwrap_or_default(),
            reason: WaveFault::Order,
        });
    }
    Ok(())
}

/// The list of a slot with its new owner first.
pub(super) fn reordered(ring: &RingState, slot: Slot, owner: Handle) -> (Slot, List) {
    let old = ring.slots.list(slot);
    let mut list = List::from_slice(&[owner]);
    list.extend(old.iter().copied().filter(|handle| *handle != owner));
    (slot, list)
}

fn commit(
    ring: &RingState,
    wave: &Wave,
    sealed: &[Position],
    confirmed: &[Position],
    lives: [(&NodeId, Incarnation); 2],
) -> Result<Decision, Rejection> {
    let first = wave.slots[0];
    if wave.intent.is_some() {
        return Err(Rejection::BadWave {
            slot: first,
            reason: WaveFault::OtherKind,
        });
    }
    for (node, incarnation) in lives {
        let member = ring
            .members
            .get(node)
            .ok_or_else(|| Rejection::NotMember { node: node.clone() })?;
        if member.incarnation != incarnation {
            return Err(Rejection::BadWave {
                slot: first,
                reason: WaveFault::Incarnation,
            });
        }
    }
    let successor = ring.members[&wave.successor].handle;
    let reorder = |slot: &Slot| reordered(ring, *slot, successor);
    let lists = wave.slots.iter().map(reorder).collect();
    let done = Ok(vec![Event::WaveCommitted { lists }].into());
    if ring.config.is_cache() {
        // Nothing is sealed, so there is no F: a change of order is all of it.
        return done;
    }
    if sealed.len() != wave.slots.len() || confirmed.len() != wave.slots.len() {
        return Err(Rejection::BadWave {
            slot: first,
            reason: WaveFault::NotHeld,
        });
    }
    for (at, slot) in wave.slots.iter().enumerate() {
        // F belongs to the present reign: a seal of an older one proves nothing (story F3).
        let of_reign =
            sealed[at].reign == ring.reigns[slot.index()] || bait::on("hand-over-of-any-reign");
        let held = sealed[at] == confirmed[at] || bait::on("hand-over-not-held");
        if !of_reign || !held {
            return Err(Rejection::BadWave {
                slot: *slot,
                reason: WaveFault::NotHeld,
            });
        }
    }
    done
}
