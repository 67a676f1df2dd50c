//! Bad input: rings that cannot be, founders that are others, addresses that are taken.

use annulus_membership::{
    Birth, Command, Founder, MAX_TICK_MS, Registration, RingCommand, RingConfig, WarmUp,
};
use annulus_ring::{
    Availability, ClusterId, Endpoint, Incarnation, NodeId, Replication, RingKind, RingName,
};

use super::{Forgery, pick_of};
use crate::world::World;

pub const FORGERIES: &[Forgery] = &[
    ("cluster-under-another-id", |_, _| {
        let cluster_id = ClusterId(8);
        Some(Command::Init { cluster_id })
    }),
    ("tick-too-long", |_, _| {
        let elapsed_ms = MAX_TICK_MS + 1;
        Some(Command::Tick { elapsed_ms })
    }),
    ("ring-again", |world, _| {
        let config = RingConfig::default();
        Some(world.on_ring(RingCommand::Create {
            config,
            accept: true,
        }))
    }),
    ("ring-of-no-bits", |_, pick| {
        let slot_bits = [0, 19, 255][pick % 3];
        create(RingConfig {
            slot_bits,
            ..RingConfig::default()
        })
    }),
    ("ring-of-bad-quorums", |_, pick| {
        let (rf, w, r) = [(0, 1, 1), (3, 1, 1), (3, 4, 1), (4, 2, 3), (8, 5, 5)][pick % 5];
        create(RingConfig {
            replication: Replication { rf, w, r },
            ..RingConfig::default()
        })
    }),
    ("ring-of-half-a-cache", |_, _| {
        create(RingConfig {
            serve_when_isolated: false,
            ..RingConfig::default()
        })
    }),
    ("ring-that-is-never-warm", |_, pick| {
        create(RingConfig {
            kind: RingKind::Cache,
            warm_up: WarmUp::HitRatio {
                limit_ms: 1_000,
                hit_ratio_permille: [0, 1_001][pick % 2],
            },
            ..RingConfig::default()
        })
    }),
    ("ring-that-is-not", |_, _| {
        let ring = RingName::new("elsewhere").ok()?;
        let command = RingCommand::Settle;
        Some(Command::Ring { ring, command })
    }),
    ("founder-of-another-life", |world, pick| {
        let ring = world.ring_state().filter(|ring| !ring.founded)?;
        let node = pick_of(world.nodes.keys(), pick)?.clone();
        let life = ring.registered(&node)?.incarnation;
        found(world, vec![(node, Incarnation(life.0 + 1))])
    }),
    ("founder-unheard-of", |world, _| {
        world.ring_state().filter(|ring| !ring.founded)?;
        let nobody = NodeId::new("nobody").ok()?;
        found(world, vec![(nobody, Incarnation(1))])
    }),
    ("founded-by-nobody", |world, _| {
        world.ring_state().filter(|ring| !ring.founded)?;
        found(world, Vec::new())
    }),
    ("founded-again", |world, pick| {
        let ring = world.ring_state().filter(|ring| ring.founded)?;
        let member = pick_of(ring.members.values(), pick)?;
        found(world, vec![(member.node_id.clone(), member.incarnation)])
    }),
    ("member-with-a-new-directory", |world, pick| {
        let ring = world.ring_state()?;
        let member = pick_of(ring.members.values(), pick)?;
        let registration = Registration {
            node: member.node_id.clone(),
            birth: Birth(u128::MAX - pick as u128),
            endpoint: member.endpoint.clone(),
            zone: member.zone.clone(),
            weight: member.weight,
        };
        Some(world.on_ring(RingCommand::Register(registration)))
    }),
    ("directory-of-a-life-that-is-over", |world, pick| {
        let ring = world.ring_state()?;
        let over = ring.roster.iter().filter_map(|(node, entry)| {
            let living = entry.registered.as_ref().map(|living| living.birth);
            let mut births = entry.births.iter().rev();
            let old = births.find(|known| Some(known.birth) != living)?;
            Some((node.clone(), old.birth))
        });
        let (node, birth) = pick_of(over, pick)?;
        let agent = &world.nodes.get(&node)?.registration;
        let registration = Registration {
            birth,
            ..agent.clone()
        };
        Some(world.on_ring(RingCommand::Register(registration)))
    }),
    ("address-of-another", |world, pick| {
        let ring = world.ring_state()?;
        let taken = pick_of(ring.members.values(), pick)?.endpoint.clone();
        let outside = ring.roster.iter().filter_map(|(node, entry)| {
            let life = entry.registered.as_ref()?.incarnation;
            (!ring.members.contains_key(node)).then_some((node.clone(), life))
        });
        let (node, incarnation) = pick_of(outside, pick)?;
        let command = RingCommand::SetEndpoint {
            node,
            incarnation,
            endpoint: taken,
        };
        Some(world.on_ring(command))
    }),
    ("address-of-another-life", |world, pick| {
        let ring = world.ring_state()?;
        let node = pick_of(ring.roster.keys(), pick)?.clone();
        let life = ring.registered(&node)?.incarnation;
        let command = RingCommand::SetEndpoint {
            node,
            incarnation: Incarnation(life.0 + 1),
            endpoint: Endpoint::new("elsewhere:1").ok()?,
        };
        Some(world.on_ring(command))
    }),
    ("down-in-another-life", |world, pick| {
        let ring = world.ring_state()?;
        let member = pick_of(ring.members.values(), pick)?;
        let command = RingCommand::Availability {
            node: member.node_id.clone(),
            incarnation: Incarnation(member.incarnation.0 + 1),
            availability: Availability::Down,
        };
        Some(world.on_ring(command))
    }),
];

fn create(config: RingConfig) -> Option<Command> {
    let ring = RingName::new("bent").ok()?;
    // Some break only what an operator may accept.
    let command = RingCommand::Create {
        config,
        accept: false,
    };
    Some(Command::Ring { ring, command })
}

fn found(world: &World, founders: Vec<(NodeId, Incarnation)>) -> Option<Command> {
    let founders = founders
        .into_iter()
        .map(|(node, incarnation)| Founder { node, incarnation })
        .collect();
    let command = RingCommand::Found {
        founders,
        accept: true,
        target: Vec::new(),
    };
    Some(world.on_ring(command))
}
