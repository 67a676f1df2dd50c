//! What slows things down and moves nothing: pause, hold, and who is tried last.

use annulus_ring::{Availability, Incarnation, NodeId};

use super::Decision;
use crate::{Event, MAX_REASON, MIN_AUTO_REMOVE_MS, Rejection, RingState};

/// Refuses what moves data or ownership while the ring is paused.
pub(super) fn moves(ring: &RingState) -> Result<(), Rejection> {
    match &ring.paused {
        None => Ok(()),
        Some(brake) => Err(Rejection::Paused {
            reason: brake.reason.clone(),
        }),
    }
}

/// Refuses what deletes while the ring is held.
pub(super) fn deletes(ring: &RingState) -> Result<(), Rejection> {
    match &ring.held {
        None => Ok(()),
        Some(brake) => Err(Rejection::Held {
            reason: brake.reason.clone(),
        }),
    }
}

pub(super) fn pause(ring: &RingState, reason: Option<&String>) -> Result<Decision, Rejection> {
    checked(reason)?;
    if reason.is_none() && ring.paused.is_none() {
        return Err(Rejection::NotPaused);
    }
    let reason = reason.cloned();
    Ok(vec![Event::PauseSet { reason }].into())
}

pub(super) fn hold(ring: &RingState, reason: Option<&String>) -> Result<Decision, Rejection> {
    checked(reason)?;
    if reason.is_none() && ring.held.is_none() {
        return Err(Rejection::NotHeld);
    }
    let reason = reason.cloned();
    Ok(vec![Event::HoldSet { reason }].into())
}

pub(super) fn auto_remove(ring: &RingState, after_ms: Option<u64>) -> Result<Decision, Rejection> {
    if let Some(found) = after_ms.filter(|after| *after < MIN_AUTO_REMOVE_MS) {
        return Err(Rejection::AutoRemoveTooSoon {
            found,
            limit: MIN_AUTO_REMOVE_MS,
        });
    }
    if after_ms == ring.auto_remove_ms {
        return Ok(Decision::default());
    }
    Ok(vec![Event::AutoRemoveSet { after_ms }].into())
}

fn checked(reason: Option<&String>) -> Result<(), Rejection> {
    reason.map_or(Ok(()), |text| checked_reason(text))
}

/// Refuses words that say nothing, or too much.
pub(crate) fn checked_reason(text: &str) -> Result<(), Rejection> {
    let garbled = text.chars().any(char::is_control);
    if text.trim().is_empty() || text.len() > MAX_REASON || garbled {
        return Err(Rejection::BadReason { limit: MAX_REASON });
    }
    Ok(())
}

pub(super) fn availability(
    ring: &RingState,
    node: &NodeId,
    incarnation: Incarnation,
    availability: Availability,
) -> Result<Decision, Rejection> {
    match ring.members.get(node) {
        Some(member) if member.incarnation == incarnation => {
            // Said already by another leader: nothing a client could notice.
            if member.availability == availability {
                return Ok(Decision::default());
            }
            let node = node.clone();
            Ok(vec![Event::AvailabilityChanged { node, availability }].into())
        }
        _ => Err(Rejection::NotMember { node: node.clone() }),
    }
}
