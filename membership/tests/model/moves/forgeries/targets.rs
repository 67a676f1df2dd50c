//! Targets that break one rule of a list; and a lazy one, which breaks none.

use annulus_membership::{Command, RingCommand, RingState, fold};
use annulus_ring::{ASSIGNER_VERSION, Handle, List, SlotChange};

use super::{Forgery, founded, pick_of};
use crate::world::World;

type Target = Vec<SlotChange>;

pub const FORGERIES: &[Forgery] = &[
    ("target-out-of-order", |world, _| {
        bent(world, |ring, target| {
            let mut beyond = target.first()?.clone();
            beyond.slot = annulus_ring::Slot(ring.slots.slot_count() as u32);
            target.push(beyond);
            Some(())
        })
    }),
    ("target-with-a-node-twice", |world, pick| {
        bent(world, |_, target| {
            let list = &mut pick_of(target, pick)?.to;
            let first = *list.first()?;
            (list.len() > 1).then(|| list[1] = first)
        })
    }),
    ("target-with-a-stranger", |world, pick| {
        bent(world, |_, target| {
            *pick_of(target, pick)?.to.last_mut()? = Handle(777);
            Some(())
        })
    }),
    ("target-that-is-short", |world, pick| {
        bent(world, |_, target| {
            pick_of(target, pick)?.to.pop().map(|_| ())
        })
    }),
    ("target-led-by-another", |world, pick| {
        bent(world, |_, target| {
            let list = &mut pick_of(target, pick)?.to;
            (list.len() > 1).then(|| list.rotate_left(1))
        })
    }),
    ("target-unchanged", |world, pick| {
        bent(world, |ring, target| {
            let change = pick_of(target, pick)?;
            change.to = List::from_slice(ring.slots.list(change.slot));
            Some(())
        })
    }),
    // Somebody who leaves stays in a list.
    ("target-that-keeps-a-leaver", |world, pick| {
        let ring = founded(world)?;
        let candidates = fold::fold(ring).candidates;
        let stays = |handle: &Handle| {
            let mut all = candidates.iter();
            all.any(|one| one.handle == *handle && one.weight.get() > 0)
        };
        bent(world, |ring, target| {
            let leaves = |at: &usize| !ring.slots.list(target[*at].slot).iter().all(stays);
            let leaving: Vec<usize> = (0..target.len()).filter(leaves).collect();
            target.remove(pick_of(leaving, pick)?);
            Some(())
        })
    }),
    // A pin is passed over: somebody else of its zone is in its place, or the list stays as it is.
    ("target-that-passes-over-a-pin", |world, pick| {
        let ring = founded(world)?;
        let fold = fold::fold(ring);
        let rules = fold.rules(ring);
        let pins: Vec<_> = rules.pins.iter().chain(&rules.owners).collect();
        let zone_of = |handle: &Handle| {
            let mut all = fold.candidates.iter();
            all.find(|one| one.handle == *handle).map(|one| &one.zone)
        };
        let unmet = |slot: annulus_ring::Slot| {
            let list = ring.slots.list(slot);
            pins.iter()
                .any(|pin| pin.slot == slot && !list.contains(&pin.handle))
        };
        bent(world, |_, target| {
            if let Some(at) = target.iter().position(|change| unmet(change.slot)) {
                target.remove(at);
                return Some(());
            }
            let pinned = target.iter().enumerate().filter_map(|(at, change)| {
                let of_slot = pins.iter().filter(|pin| pin.slot == change.slot);
                let place = |handle| change.to.iter().skip(1).position(|one| *one == handle);
                Some((at, of_slot.filter_map(|pin| place(pin.handle)).next()? + 1))
            });
            let (at, place) = pick_of(pinned, pick)?;
            let list = &mut target[at].to;
            let twin = fold.candidates.iter().find(|one| {
                let same_zone = Some(&one.zone) == zone_of(&list[place]);
                one.weight.get() > 0 && same_zone && !list.contains(&one.handle)
            })?;
            list[place] = twin.handle;
            Some(())
        })
    }),
    // All copies in fewer zones than there are.
    ("target-that-is-narrow", |world, pick| {
        let ring = founded(world)?;
        let candidates = fold::fold(ring).candidates;
        let zone_of = |handle: &Handle| {
            let mut all = candidates.iter();
            all.find(|one| one.handle == *handle).map(|one| &one.zone)
        };
        // Somebody else of the owner's zone, in the place of the last.
        let twin = |list: &List| {
            let (owner, rest) = (list.first()?, list.len().checked_sub(1)?);
            let mut all = candidates.iter();
            let twin = all.find(|one| {
                let new = !list[..rest].contains(&one.handle);
                new && one.weight.get() > 0 && Some(&one.zone) == zone_of(owner)
            })?;
            (rest > 0 && zone_of(owner) != zone_of(&list[rest])).then_some(twin.handle)
        };
        bent(world, |_, target| {
            let fits = |at: &usize| twin(&target[*at].to).is_some();
            let at = pick_of((0..target.len()).filter(fits), pick)?;
            let handle = twin(&target[at].to)?;
            *target[at].to.last_mut()? = handle;
            Some(())
        })
    }),
    // Legal where the old list is whole: an assigner may leave as much as it likes as it is.
    ("target-that-is-lazy", |world, pick| {
        bent(world, |ring, target| {
            let rf = usize::from(ring.config.replication.rf);
            let whole = |at: &usize| ring.slots.list(target[*at].slot).len() == rf;
            let whole: Vec<usize> = (0..target.len()).filter(whole).collect();
            target.remove(pick_of(whole, pick)?);
            Some(())
        })
    }),
    ("start-on-another-layout", |world, _| {
        let ring = founded(world)?;
        let fold = fold::fold(ring);
        let target = fold.target(ring).ok()?;
        let command = RingCommand::Start {
            changes: fold.accepted,
            base_layout_epoch: ring.layout_epoch.next(),
            assigner_version: ASSIGNER_VERSION,
            target,
        };
        Some(world.on_ring(command))
    }),
    // Whatever waits, while something runs, the ring stands still or nobody owns anything.
    ("start-while-busy", |world, _| {
        let ring = world.ring_state()?;
        let busy = ring.transition.is_some() || ring.wave.is_some() || ring.paused.is_some();
        (busy || !ring.founded).then(|| start(world, ring))?
    }),
];

fn start(world: &World, ring: &RingState) -> Option<Command> {
    let fold = fold::fold(ring);
    let target = fold.target(ring).unwrap_or_default();
    let command = RingCommand::Start {
        changes: fold.accepted,
        base_layout_epoch: ring.layout_epoch,
        assigner_version: ASSIGNER_VERSION,
        target,
    };
    Some(world.on_ring(command))
}

/// What the leader would start now, with a bent target.
fn bent(
    world: &World,
    bend: impl FnOnce(&RingState, &mut Target) -> Option<()>,
) -> Option<Command> {
    let ring = founded(world).filter(|ring| ring.transition.is_none() && ring.wave.is_none())?;
    let fold = fold::fold(ring);
    if fold.accepted.is_empty() {
        return None;
    }
    let mut target = fold.target(ring).ok()?;
    bend(ring, &mut target)?;
    let command = RingCommand::Start {
        changes: fold.accepted,
        base_layout_epoch: ring.layout_epoch,
        assigner_version: ASSIGNER_VERSION,
        target,
    };
    Some(world.on_ring(command))
}
