//! Waves that break one rule, and ends of waves that prove too little.

use annulus_membership::{Command, HandOver, NodeEvidence, RingCommand, RingState, Wave, WaveId};
use annulus_ring::{
    Availability, Epoch, Handle, Incarnation, Member, NodeId, Position, SessionId, Slot, Step,
};

use super::{Forgery, founded, pick_of};
use crate::{moves::transition, world::World};

pub const FORGERIES: &[Forgery] = &[
    ("wave-while-another-runs", |world, pick| {
        let ring = founded(world)?;
        ring.wave.as_ref()?;
        let slot = pick_of(ring.slots.slots().filter(|slot| still(ring, *slot)), pick)?;
        let list = ring.slots.list(slot);
        begin(world, ring, *list.first()?, *list.get(1)?, vec![slot])
    }),
    ("wave-of-nothing", |world, _| {
        let ring = founded(world)?;
        let list = ring.slots.list(Slot(0));
        begin(world, ring, *list.first()?, *list.get(1)?, Vec::new())
    }),
    ("wave-of-another-owner", |world, pick| {
        let (ring, slot) = any_slot(world, pick)?;
        let list = ring.slots.list(slot);
        begin(world, ring, *list.get(1)?, *list.first()?, vec![slot])
    }),
    ("wave-to-a-stranger", |world, pick| {
        let (ring, slot) = any_slot(world, pick)?;
        let list = ring.slots.list(slot);
        let outside = ring.members.values().map(|member| member.handle);
        let stranger = pick_of(outside.filter(|handle| !list.contains(handle)), pick)?;
        begin(world, ring, *list.first()?, stranger, vec![slot])
    }),
    ("wave-to-nobody", |world, pick| {
        let (ring, slot) = any_slot(world, pick)?;
        let owner = ring.by_handle(*ring.slots.list(slot).first()?)?;
        let command = RingCommand::HandOver(HandOver::Begin {
            owner: owner.node_id.clone(),
            successor: NodeId::new("nobody").ok()?,
            slots: vec![slot],
        });
        Some(world.on_ring(command))
    }),
    // At step 1 only to whom the target wants first.
    ("wave-past-the-target", |world, pick| {
        let (ring, one) = transition(world)?;
        let bent = |(slot, new): (&Slot, &annulus_ring::List)| {
            let list = ring.slots.list(*slot);
            let other = list
                .iter()
                .skip(1)
                .find(|handle| new.first() != Some(*handle));
            Some((*slot, *list.first()?, *other?))
        };
        let (slot, owner, other) = pick_of(one.target.iter().filter_map(bent), pick)?;
        (one.step == Step::Prepared).then(|| begin(world, ring, owner, other, vec![slot]))?
    }),
    ("wave-of-what-moves", |world, pick| {
        let (ring, one) = transition(world)?;
        let slot = *pick_of(one.target.keys(), pick)?;
        let list = ring.slots.list(slot);
        let wanted = one.target[&slot].first();
        let other = list.iter().skip(1).find(|handle| Some(*handle) != wanted);
        (one.step > Step::Prepared).then(|| {
            let successor = other.or_else(|| list.get(1));
            begin(world, ring, *list.first()?, *successor?, vec![slot])
        })?
    }),
    // A legal one, in another order than the leader's.
    ("wave-out-of-turn", |world, pick| {
        let (ring, slot) = any_slot(world, pick)?;
        let list = ring.slots.list(slot);
        (list.len() > 1 && ring.wave.is_none() && still(ring, slot)).then(|| {
            let successor = list[1 + pick % (list.len() - 1)];
            begin(world, ring, list[0], successor, vec![slot])
        })?
    }),
    ("failover-of-the-living", |world, pick| {
        failover(world, pick, Availability::Up, |_| true)
    }),
    ("failover-to-the-dead", |world, pick| {
        let down = |member: &Member| member.availability == Availability::Down;
        failover(world, pick, Availability::Down, down)
    }),
    // On the successor's refusal alone.
    ("failover-on-too-few", |world, _| {
        let ring = founded(world)?;
        let wave = ring.wave.as_ref()?;
        let intent = wave.intent?;
        let successor = ring.members.get(&wave.successor)?;
        // One of so few that no acknowledgement can do without them is enough.
        let w = usize::from(ring.replication().w);
        let asks_more = wave
            .slots
            .iter()
            .any(|slot| ring.slots.list(*slot).len() > w);
        if ring.burials().next().is_some() || !asks_more {
            return None;
        }
        let fenced = vec![NodeEvidence {
            node: wave.successor.clone(),
            incarnation: successor.incarnation,
            session: SessionId(0),
            acked_epoch: intent,
            hit_permille: None,
        }];
        Some(world.on_ring(RingCommand::HandOver(HandOver::Succeed {
            wave: wave.id,
            fenced,
            read: Vec::new(),
        })))
    }),
    ("wave-end-of-none", |world, _| {
        let ring = founded(world)?;
        let wave = WaveId(ring.last_wave.0 + 1);
        Some(world.on_ring(RingCommand::HandOver(HandOver::Abort { wave })))
    }),
    ("wave-given-up", |world, pick| {
        let wave = founded(world)?.wave.as_ref()?.id;
        let command = RingCommand::HandOver(HandOver::Abort { wave });
        pick.is_multiple_of(4).then(|| world.on_ring(command))
    }),
    ("wave-end-in-another-life", |world, pick| {
        end(world, |_, said| {
            let life = if pick.is_multiple_of(2) {
                &mut said.owner
            } else {
                &mut said.successor
            };
            *life = Incarnation(life.0 + 1);
            Some(())
        })
    }),
    ("wave-end-of-an-older-reign", |world, pick| {
        end(world, |_, said| {
            let at = pick % said.sealed.len();
            let older = Epoch(said.sealed[at].reign.0.checked_sub(1)?);
            said.sealed[at].reign = older;
            said.confirmed[at].reign = older;
            Some(())
        })
    }),
    ("wave-end-that-is-not-held", |world, pick| {
        end(world, |_, said| {
            let at = pick % said.sealed.len();
            said.sealed[at].seq += 1;
            Some(())
        })
    }),
    ("wave-end-of-fewer", |world, _| {
        end(world, |_, said| said.confirmed.pop().map(|_| ()))
    }),
];

fn any_slot(world: &World, pick: usize) -> Option<(&RingState, Slot)> {
    let ring = founded(world)?;
    Some((ring, pick_of(ring.slots.slots(), pick)?))
}

fn failover(
    world: &World,
    pick: usize,
    of: Availability,
    to: impl Fn(&Member) -> bool,
) -> Option<Command> {
    let ring = founded(world).filter(|ring| ring.wave.is_none())?;
    let pairs = ring.slots.slots().flat_map(|slot| {
        let list = ring.slots.list(slot);
        let owner = list.first().and_then(|owner| ring.by_handle(*owner));
        let others = list.iter().skip(1).filter_map(|one| ring.by_handle(*one));
        others.filter_map(move |other| Some((slot, owner?, other)))
    });
    let mut fitting = pairs.filter(|(_, owner, other)| owner.availability == of && to(other));
    let (slot, owner, successor) = pick_of(fitting.by_ref(), pick)?;
    Some(world.on_ring(RingCommand::HandOver(HandOver::Intend {
        owner: owner.node_id.clone(),
        successor: successor.node_id.clone(),
        slots: vec![slot],
    })))
}

/// Nothing moves the range.
fn still(ring: &RingState, slot: Slot) -> bool {
    ring.sets(slot).step.is_none()
}

fn begin(
    world: &World,
    ring: &RingState,
    owner: Handle,
    successor: Handle,
    slots: Vec<Slot>,
) -> Option<Command> {
    let id = |handle| Some(ring.by_handle(handle)?.node_id.clone());
    let command = RingCommand::HandOver(HandOver::Begin {
        owner: id(owner)?,
        successor: id(successor)?,
        slots,
    });
    Some(world.on_ring(command))
}

/// What both ends of a wave would have said.
struct Said {
    sealed: Vec<Position>,
    confirmed: Vec<Position>,
    owner: Incarnation,
    successor: Incarnation,
}

/// The end of the running wave, bent: nobody said so.
fn end(world: &World, bend: impl FnOnce(&Wave, &mut Said) -> Option<()>) -> Option<Command> {
    let ring = founded(world)?;
    let wave = ring.wave.as_ref()?;
    let last = |slot: &Slot| Position::new(ring.reigns[slot.index()], 1);
    let sealed: Vec<Position> = wave.slots.iter().map(last).collect();
    let mut said = Said {
        confirmed: sealed.clone(),
        sealed,
        owner: ring.members.get(&wave.owner)?.incarnation,
        successor: ring.members.get(&wave.successor)?.incarnation,
    };
    bend(wave, &mut said)?;
    let command = RingCommand::HandOver(HandOver::Commit {
        wave: wave.id,
        sealed: said.sealed,
        confirmed: said.confirmed,
        owner_incarnation: said.owner,
        successor_incarnation: said.successor,
    });
    Some(world.on_ring(command))
}
