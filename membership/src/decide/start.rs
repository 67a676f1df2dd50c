//! Folding all waiting changes into one transition with one target.

use annulus_ring::{Epoch, RingName, SlotChange};

use super::{Decision, target};
use crate::{ChangeId, Event, Rejection, RingState, fold};

pub(super) fn decide(
    name: &RingName,
    ring: &RingState,
    changes: &[ChangeId],
    base_layout_epoch: Epoch,
    lists: &[SlotChange],
) -> Result<Decision, Rejection> {
    if !ring.founded {
        return Err(Rejection::NotFounded { ring: name.clone() });
    }
    super::brake::moves(ring)?;
    if let Some(transition) = &ring.transition {
        return Err(Rejection::TransitionRuns {
            transition: transition.id,
        });
    }
    if let Some(wave) = &ring.wave {
        return Err(Rejection::WaveRuns { wave: wave.id });
    }
    let fold = fold::fold(ring);
    if base_layout_epoch != ring.layout_epoch || fold.accepted != changes {
        return Err(Rejection::StaleTarget);
    }
    let requorum = fold.requorum(ring);
    let rules = fold.rules(ring);
    let mut events: Vec<Event> = fold
        .refused
        .into_iter()
        .map(|(id, rejection)| Event::ChangeRefused { id, rejection })
        .collect();
    if !changes.is_empty() {
        target::check(ring, &fold.candidates, &rules, requorum.is_some(), lists)?;
        events.push(Event::TransitionStarted {
            id: ring.last_transition.next(),
            changes: changes.to_vec(),
            joiners: fold.joiners,
            leavers: fold.leavers,
            weights: fold.weights,
            afterwards: fold.afterwards,
            requorum,
            target: lists.to_vec(),
        });
    }
    Ok(events.into())
}
