//! ONE-TRANSITION: at most one transition and one wave at a time, and one does not take the other's
//! place; a change runs exactly while its transition does.

use annulus_membership::{ChangePhase, HandOver, RingCommand};

use super::{Memory, Seen, ended, ensure};

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let Some(command) = seen.done() else {
        return Ok(());
    };
    let succeeds = matches!(command, RingCommand::HandOver(HandOver::Succeed { .. }));
    if let (Some(was), Some(is)) = (&before.transition, &after.transition) {
        // A failover puts another member first, and nothing else.
        let same = |(slot, list): (&annulus_ring::Slot, &annulus_ring::List)| {
            let then = was.target.get(slot);
            then.is_some_and(|then| {
                then == list || (succeeds && super::as_set(then) == super::as_set(list))
            })
        };
        let kept = was.target.len() == is.target.len() && is.target.iter().all(same);
        ensure(was.id == is.id && kept, || {
            format!("transition {} in the place of {}", is.id, was.id)
        })?;
    }
    if let (Some(was), Some(is)) = (&before.wave, &after.wave) {
        ensure(was == is, || {
            format!("wave {} in the place of {}", is.id, was.id)
        })?;
    }
    let running = after.transition.as_ref();
    for (id, record) in &after.changes {
        let runs = match &record.phase {
            ChangePhase::Running(transition) => Some(*transition),
            ChangePhase::Queued
            | ChangePhase::Done
            | ChangePhase::Aborted
            | ChangePhase::Refused(_) => None,
        };
        let named = running
            .filter(|one| one.changes.contains(id))
            .map(|one| one.id);
        ensure(runs == named, || {
            format!("change {id} runs in {runs:?}, and {named:?} names it")
        })?;
        let was = before.changes.get(id).map(|record| &record.phase);
        let revived = was.is_some_and(|was| was.ended() && *was != record.phase);
        ensure(!revived, || format!("change {id} had ended"))?;
    }
    if let RingCommand::Change { .. } = command {
        let answered = after.changes.len() == before.changes.len() + 1;
        ensure(answered, || {
            "a change was taken without a number".to_owned()
        })?;
    }
    if before.paused.is_some() {
        paused(seen)?;
    }
    if let Some((was, _)) = ended(before, after, Some(command)) {
        let one = was.id;
        let still = |record: &annulus_membership::ChangeRecord| matches!(record.phase, ChangePhase::Running(id) if id == one);
        ensure(!after.changes.values().any(still), || {
            format!("transition {one} ended and its change runs")
        })?;
    }
    Ok(())
}

/// While movement is paused nothing begins and no step is entered, but the way back.
fn paused(seen: &Seen<'_>) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let step = |ring: &annulus_membership::RingState| ring.transition.as_ref().map(|one| one.step);
    let (was, is) = (step(before), step(after));
    let goes_back = is.is_none() || is == Some(annulus_ring::Step::FlippingBack);
    let ended_well = is.is_none() && was == Some(annulus_ring::Step::Switched);
    ensure(was == is || (goes_back && !ended_well), || {
        format!("paused, and yet {was:?} -> {is:?}")
    })?;
    // A failover is no movement.
    let wave = after.wave.as_ref();
    let began = before.wave.is_none() && wave.is_some_and(|wave| wave.intent.is_none());
    ensure(!began, || "paused, and yet a wave began".to_owned())
}
