//! Folding waiting changes into one transition with one target.

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
    let all = fold::fold(ring);
    let fold = match changes {
        [] => None,
        some if all.accepted == some => Some(all.clone()),
        some => Some(fold::fold_only(ring, some)),
    };
    // Nothing to start is said where there is nothing, or where the rest waits for who is refused.
    let starts = match &fold {
        None => all.accepted.is_empty() || !all.refused.is_empty(),
        Some(fold) => {
            let may_go_on = |id: &ChangeId| all.accepted.contains(id);
            fold.accepted == changes && changes.iter().all(may_go_on)
        }
    };
    if base_layout_epoch != ring.layout_epoch || !starts {
        return Err(Rejection::StaleTarget);
    }
    let mut events: Vec<Event> = all
        .refused
        .into_iter()
        .map(|(id, rejection)| Event::ChangeRefused { id, rejection })
        .collect();
    if let Some(fold) = fold {
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
    may_be(ring, &fold, lists)?;
    let requorum = fold.requorum(ring);
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

/// Whether these lists may carry out `fold`.
pub(crate) fn may_be(ring: &RingState, fold: &Fold, lists: &[SlotChange]) -> Result<(), Rejection> {
    let all_change = fold.requorum(ring).is_some();
    let rules = fold.rules(ring);
    target::check(ring, &fold.candidates, &rules, all_change, lists)
}
