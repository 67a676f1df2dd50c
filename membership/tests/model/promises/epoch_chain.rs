//! EPOCH-CHAIN: one entry makes at most one epoch, epochs are consecutive, each names its
//! predecessor; and nothing that a client or a data node could notice changes without one.

use annulus_membership::RingState;

use super::{Memory, Seen, ensure};

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let published = seen.effect.published.as_ref() == Some(seen.ring);
    let expected = before.epoch.0 + u64::from(published);
    ensure(after.epoch.0 == expected, || {
        format!("epoch {} after {}", after.epoch, before.epoch)
    })?;
    ensure(after.generation == before.generation, || {
        "the generation rose without a restore".to_owned()
    })?;
    if !published {
        return ensure(shows_the_same(before, after), || {
            "something changed without an epoch".to_owned()
        });
    }
    ensure(after.previous_checksum == before.checksum, || {
        format!("epoch {} names another predecessor", after.epoch)
    })?;
    ensure(after.layout_epoch <= after.epoch, || {
        "the layout is younger than the ring".to_owned()
    })?;
    for slot in after.slots.slots() {
        let at = slot.index();
        let now = after.last_changes[at];
        if now == after.epoch {
            continue;
        }
        let (was, is) = (before.sets(slot), after.sets(slot));
        let same = was.read_set() == is.read_set()
            && was.write_set() == is.write_set()
            && was.groups(before.quorums()) == is.groups(after.quorums());
        let then = before.last_changes[at];
        ensure(same && now == then, || {
            format!("slot {slot} changed its sets, and the last epoch that did so is {now}")
        })?;
    }
    let moved = before.slots != after.slots
        || before.members.len() != after.members.len()
        || before.transition.is_some() != after.transition.is_some();
    ensure(!moved || after.layout_epoch == after.epoch, || {
        "the layout changed and its epoch did not".to_owned()
    })?;
    let snapshot = seen.after.snapshot(seen.ring);
    let checked = snapshot.map(|snapshot| snapshot.check());
    ensure(matches!(checked, Some(Ok(_))), || {
        format!("published nonsense: {checked:?}")
    })
}

fn shows_the_same(before: &RingState, after: &RingState) -> bool {
    let shown = |ring: &RingState| {
        let running = ring.transition.as_ref();
        running.map(|one| (one.id, one.step, one.target.clone()))
    };
    before.members == after.members
        && before.slots == after.slots
        && before.reigns == after.reigns
        && before.last_changes == after.last_changes
        && shown(before) == shown(after)
}
