//! A transition that waits for a node that is gone starts again without it.

use annulus_ring::{Availability, NodeId, Step, TransitionId};

use super::Decision;
use crate::{ChangeId, Event, Rejection, RingState};

pub(super) fn decide(
    ring: &RingState,
    id: TransitionId,
    without: &NodeId,
) -> Result<Decision, Rejection> {
    let transition = match &ring.transition {
        Some(transition) if transition.id == id => transition,
        _ => return Err(Rejection::NoTransition { transition: id }),
    };
    // From the switch on there is the flip back, which an operator asks for.
    if transition.step >= Step::Switched {
        return Err(Rejection::TooLateToReplan {
            step: transition.step,
        });
    }
    let member = ring
        .members
        .get(without)
        .ok_or_else(|| Rejection::NotMember {
            node: without.clone(),
        })?;
    if member.availability != Availability::Down {
        return Err(Rejection::NodeUp {
            node: without.clone(),
        });
    }
    // Of a member that stays, the next target would be the same.
    let is_going = transition.joining.contains(without) || ring.buried(without);
    if !is_going || !transition.lists(member.handle) {
        return Err(Rejection::NothingToReplan {
            node: without.clone(),
        });
    }
    let mut events = Vec::new();
    if let Some(wave) = &ring.wave {
        events.push(Event::WaveAborted { wave: wave.id });
    }
    let joins = |change: &&ChangeId| {
        let record = ring.changes.get(change);
        record.is_some_and(|record| record.change.joiner() == Some(without))
    };
    let refused = transition.changes.iter().filter(joins);
    events.extend(refused.map(|change| Event::ChangeRefused {
        id: *change,
        rejection: Rejection::JoinerSilent {
            node: without.clone(),
        },
    }));
    events.push(Event::TransitionAborted { change: None });
    Ok(events.into())
}
