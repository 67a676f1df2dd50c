//! ONE-OWNER: who is first in a list changes only by a committed hand-over, under a new reign, after
//! the owner sealed; and the successor holds everything that the owner wrote.

use annulus_membership::{HandOver, RingCommand, RingState};
use annulus_ring::{Slot, Step};

use super::{Memory, Seen, as_set, ensure};

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let Some(command) = seen.done() else {
        return Ok(());
    };
    wave(after)?;
    if !before.founded {
        return Ok(());
    }
    for slot in after.slots.slots() {
        let (was, is) = (before.sets(slot).owner(), after.sets(slot).owner());
        let (then, now) = (before.reigns[slot.index()], after.reigns[slot.index()]);
        if was == is && before.slots.list(slot).first() == after.slots.list(slot).first() {
            ensure(then == now, || {
                format!("slot {slot}: a new reign of the same owner")
            })?;
            continue;
        }
        ensure(now == after.epoch, || {
            format!("slot {slot}: a new owner in an old reign")
        })?;
        let by_hand_over = matches!(command, RingCommand::HandOver(HandOver::Commit { .. }));
        ensure(by_hand_over, || {
            format!("slot {slot}: a new owner without a hand-over")
        })?;
        handed_over(seen, before, after, slot)?;
    }
    Ok(())
}

/// A wave is of one owner, to one other member of each list, and nothing that moves.
fn wave(ring: &RingState) -> Result<(), String> {
    let Some(wave) = &ring.wave else {
        return Ok(());
    };
    let handle = |node| ring.members.get(node).map(|member| member.handle);
    let (Some(owner), Some(successor)) = (handle(&wave.owner), handle(&wave.successor)) else {
        return Err(format!("wave {}: its ends are no members", wave.id));
    };
    let sorted = wave.slots.windows(2).all(|pair| pair[0] < pair[1]);
    let bounded = !wave.slots.is_empty() && wave.slots.len() <= annulus_membership::MAX_WAVE;
    ensure(sorted && bounded && owner != successor, || {
        format!("wave {} is bent", wave.id)
    })?;
    for slot in &wave.slots {
        let sets = ring.sets(*slot);
        let led = sets.old.first() == Some(&owner) && sets.old.contains(&successor);
        ensure(led, || {
            format!("wave {}: slot {slot} is not theirs", wave.id)
        })?;
        let still = match sets.step {
            None => true,
            Some(step) => step == Step::Prepared && sets.new.first() == Some(&successor),
        };
        ensure(still, || format!("wave {}: slot {slot} moves", wave.id))?;
    }
    Ok(())
}

fn handed_over(
    seen: &Seen<'_>,
    before: &RingState,
    after: &RingState,
    slot: Slot,
) -> Result<(), String> {
    let Some(wave) = before
        .wave
        .as_ref()
        .filter(|wave| wave.slots.contains(&slot))
    else {
        return Err(format!("slot {slot}: a new owner without a wave"));
    };
    let (was, is) = (before.slots.list(slot), after.slots.list(slot));
    ensure(as_set(was) == as_set(is), || {
        format!("slot {slot}: a hand-over moved data")
    })?;
    let (from, to) = (
        seen.node(before, &wave.owner),
        seen.node(before, &wave.successor),
    );
    let (Some(from), Some(to)) = (from, to) else {
        return Err(format!("slot {slot}: nobody has the life of its ends"));
    };
    let sealed = from.sealed.as_ref().is_some_and(|(id, _)| *id == wave.id);
    ensure(sealed, || {
        format!("slot {slot}: {} has not sealed", wave.owner)
    })?;
    let (last, held) = (from.live.get(&slot), to.live.get(&slot));
    ensure(last.is_some() && held >= last, || {
        format!(
            "slot {slot}: {} wrote {last:?}, {} holds {held:?}",
            wave.owner, wave.successor
        )
    })
}
