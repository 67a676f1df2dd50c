//! Folding all waiting changes into one transition with one target.

use annulus_ring::{Epoch, RingName, SlotChange};

use super::{Decision, target};
use crate::{
    ChangeId, Event, Rejection, RingState,
    fold::{self, Fold},
};

pub(super) fn decide(
    name: &RingName,
    ring: &RingState,
    changes: &[ChangeId],
    base_layout_epoch: Epoch,
    lists: &[SlotChange],
) -> Result<Decision, Rejection> {
    may_start(name, ring)?;
    let fold = fold::fold(ring);
    if base_layout_epoch != ring.layout_epoch || fold.accepted != changes {
        return Err(Rejection::StaleTarget);
    }
    let mut events: Vec<Event> = fold
        .refused
        .iter()
        .cloned()
        .map(|(id, rejection)| Event::ChangeRefused { id, rejection })
        .collect();
    if !changes.is_empty() {
        events.push(started(ring, fold, changes, lists)?);
    }
    Ok(events.into())
}

/// Whether any transition may start now.
pub(super) fn may_start(name: &RingName, ring: &RingState) -> Result<(), Rejection> {
    if !ring.founded {
        return Err(Rejection::NotFounded { ring: name.clone() });
    }
    super::brake::moves(ring)?;
    if let Some(transition) = &ring.transition {
        return Err(Rejection::TransitionRuns {
            transition: transition.id,
        });
    }
    match &ring.wave {
        None => Ok(()),
        Some(wave) => Err(Rejection::WaveRuns { wave: wave.id }),
    }
}

/// The start of the transition that carries out `fold`, if its lists are such as may be.
pub(super) fn started(
    ring: &RingState,
    fold: Fold,
    changes: &[ChangeId],
    lists: &[SlotChange],
) -> Result<Event, Rejection> {
    let requorum = fold.requorum(ring);
    let rules = fold.rules(ring);
    target::check(ring, &fold.candidates, &rules, requorum.is_some(), lists)?;
    Ok(Event::TransitionStarted {
        id: ring.last_transition.next(),
        changes: changes.to_vec(),
        joiners: fold.joiners,
        leavers: fold.leavers,
        weights: fold.weights,
        afterwards: fold.afterwards,
        requorum,
        target: lists.to_vec(),
    })
}
