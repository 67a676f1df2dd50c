//! Hand-over: a change of order inside one list and nothing else; it moves no data.

use annulus_ring::{Incarnation, List, NodeId, Position, Slot, Step};

use super::Decision;
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
    }
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
    let member = |node: &NodeId| {
        ring.members
            .get(node)
            .ok_or_else(|| Rejection::NotMember { node: node.clone() })
    };
    let (old, new) = (member(owner)?.handle, member(successor)?.handle);
    let first = slots.first().copied().unwrap_or_default();
    let sorted = slots.windows(2).all(|pair| pair[0] < pair[1]);
    let known = slots
        .iter()
        .all(|slot| slot.index() < ring.slots.slot_count());
    if slots.is_empty() || slots.len() > MAX_WAVE || !sorted || !known {
        return Err(Rejection::BadWave {
            slot: first,
            reason: WaveFault::Order,
        });
    }
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
    };
    Ok(vec![Event::WaveBegun { wave }].into())
}

fn commit(
    ring: &RingState,
    wave: &Wave,
    sealed: &[Position],
    confirmed: &[Position],
    lives: [(&NodeId, Incarnation); 2],
) -> Result<Decision, Rejection> {
    let first = wave.slots[0];
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
    if sealed.len() != wave.slots.len() || confirmed.len() != wave.slots.len() {
        return Err(Rejection::BadWave {
            slot: first,
            reason: WaveFault::NotHeld,
        });
    }
    let mut lists = Vec::with_capacity(wave.slots.len());
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
        let old = ring.slots.list(*slot);
        let mut list = List::from_slice(&[successor]);
        list.extend(old.iter().copied().filter(|handle| *handle != successor));
        lists.push((*slot, list));
    }
    Ok(vec![Event::WaveCommitted { lists }].into())
}
