//! ONE-OWNER: who is first in a list changes only by a committed hand-over, under a new reign, after
//! the owner sealed; and the successor holds everything that the owner wrote.

use annulus_membership::{HandOver, RingCommand, RingState};
use annulus_ring::{Slot, Step};

use super::{Memory, Seen, as_set, ensure};
use crate::node::Node;

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
    if before.converted != after.converted {
        return converted(seen, before, after);
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
        match command {
            RingCommand::HandOver(HandOver::Commit { .. }) => {
                handed_over(seen, before, after, slot)?;
            }
            RingCommand::HandOver(HandOver::Succeed { .. }) => {
                succeeded(seen, before, after, slot)?;
            }
            _ => return Err(format!("slot {slot}: a new owner without a hand-over")),
        }
    }
    Ok(())
}

/// Nobody serves under the old names any more; each half has the list of the whole, in a new reign.
fn converted(seen: &Seen<'_>, before: &RingState, after: &RingState) -> Result<(), String> {
    let Some(running) = &before.conversion else {
        return Err("converted, and nobody was asked to stop".to_owned());
    };
    let rests = before.transition.is_none() && before.wave.is_none();
    ensure(rests, || "converted while something moves".to_owned())?;
    for member in before.members.values() {
        let node = seen.holder(before, member.handle);
        let stopped = node.is_some_and(|node| node.adopted >= running.begun);
        ensure(stopped, || format!("{} may still serve", member.node_id))?;
    }
    let more = after.slots.bits() - before.slots.bits();
    for slot in after.slots.slots() {
        let whole = Slot(slot.0 >> more);
        let same = after.slots.list(slot) == before.slots.list(whole);
        ensure(same, || format!("slot {slot} has another list"))?;
        let begins = after.reigns[slot.index()] == after.epoch;
        ensure(begins, || format!("slot {slot} goes on in its reign"))?;
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
    let most = match wave.intent {
        None => annulus_membership::MAX_WAVE,
        Some(_) => annulus_membership::MAX_FAILOVER,
    };
    let bounded = !wave.slots.is_empty() && wave.slots.len() <= most;
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
            // A failover waits for nothing that moves; who takes over is of both lists.
            Some(_) if wave.intent.is_some() => sets.new.contains(&successor),
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
    ensure(wave.intent.is_none(), || {
        format!("slot {slot}: handed over in a failover")
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

/// A new owner without the old one's word: after the intent, enough members of its list truly refuse
/// it, and the successor, one of them, holds every write that w of them may have acknowledged.
fn succeeded(
    seen: &Seen<'_>,
    before: &RingState,
    after: &RingState,
    slot: Slot,
) -> Result<(), String> {
    let wave = before.wave.as_ref();
    let Some((wave, intent)) = wave
        .filter(|wave| wave.slots.contains(&slot))
        .and_then(|wave| Some((wave, wave.intent?)))
    else {
        return Err(format!("slot {slot}: a new owner without an intent"));
    };
    let (was, is) = (before.slots.list(slot), after.slots.list(slot));
    ensure(as_set(was) == as_set(is), || {
        format!("slot {slot}: a failover moved data")
    })?;
    let Some(to) = seen.node(before, &wave.successor) else {
        return Err(format!("slot {slot}: nobody has the successor's life"));
    };
    let refuses = |node: &Node| {
        let fenced = node.fenced.as_ref().is_some_and(|(id, _)| *id == wave.id);
        fenced && node.adopted >= intent
    };
    ensure(refuses(to), || {
        format!("slot {slot}: {} does not refuse the owner", wave.successor)
    })?;
    // What an operator gave up as possibly lost may be.
    if before.burials().any(|(_, said)| said.lost.contains(slot)) {
        return Ok(());
    }
    let holders = || was.iter().filter_map(|handle| seen.holder(before, *handle));
    let w = usize::from(before.replication().w);
    let refusing = holders().filter(|node| refuses(node)).count();
    ensure(refusing + w > was.len(), || {
        format!("slot {slot}: {refusing} of {} refuse the owner", was.len())
    })?;
    let mut held: Vec<_> = holders().filter_map(|node| node.live.get(&slot)).collect();
    held.sort_unstable();
    let acknowledged = held.len().checked_sub(w).map(|at| held[at]);
    ensure(to.live.get(&slot) >= acknowledged, || {
        format!(
            "slot {slot}: {acknowledged:?} may be acknowledged, {} holds {:?}",
            wave.successor,
            to.live.get(&slot)
        )
    })
}
