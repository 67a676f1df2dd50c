//! Worlds at their limits: 10,000 members, 1,000 waiting changes, 256 rings, 10,000 pins; and lists
//! that are too short.

use std::collections::BTreeSet;

use annulus_membership::{
    Birth, Change, Command, KnownBirth, MAX_MEMBERS, MAX_QUEUE, MAX_RINGS, Outcome, PinKind,
    Registered, RingCommand, RingConfig, RosterEntry, Spans,
};
use annulus_ring::{
    Availability, Endpoint, Handle, Incarnation, List, Member, MemberState, NodeId, RingName,
    Weight, Zone,
};

use crate::{verb::Verb, world::World};

pub const VERBS: &[Verb] = &[
    Verb {
        name: "crowds-members",
        weight: 0,
        draw: |_, _| None,
        act: |world, _| members(world),
    },
    Verb {
        name: "crowds-queue",
        weight: 0,
        draw: |_, _| None,
        act: |world, _| queue(world),
    },
    Verb {
        name: "crowds-rings",
        weight: 0,
        draw: |_, _| None,
        act: |world, _| {
            (0..MAX_RINGS).for_each(|at| another_ring(world, at as u64));
        },
    },
    // Lists of ranges of which somebody keeps a copy lose their last member, as a log may hold them.
    Verb {
        name: "thins",
        weight: 0,
        draw: |_, _| None,
        act: |world, _| thins(world),
    },
    // pins-all NODE: in one change
    Verb {
        name: "pins-all",
        weight: 0,
        draw: |_, _| None,
        act: |world, words| {
            let (Some(node), Some(ring)) = (words.node(0), world.ring_state()) else {
                return;
            };
            let change = Change::Pin {
                node,
                slots: Spans::of(ring.slots.slots()),
                kind: PinKind::Member,
            };
            world.request(RingCommand::Change {
                change,
                expected_layout_epoch: None,
            });
        },
    },
    // another-ring NUMBER
    Verb {
        name: "another-ring",
        weight: 0,
        draw: |_, chance| Some(chance.u16(..).to_string()),
        act: |world, words| another_ring(world, words.number(0).unwrap_or_default()),
    },
];

/// Members without weight, put there at once: ten thousand joins would take too long.
fn members(world: &mut World) {
    let Some(ring) = world.ring_state().filter(|ring| ring.founded) else {
        return;
    };
    let (taken, name) = (ring.members.len(), world.ring.clone());
    world.prepare(|state| {
        let ring = state.rings.get_mut(&name).expect("it is founded");
        for at in taken..MAX_MEMBERS {
            let node = NodeId::new(format!("m{at}")).unwrap();
            let member = Member {
                node_id: node.clone(),
                incarnation: Incarnation(1),
                handle: Handle(at as u16 + 100),
                zone: Zone::new("z1").unwrap(),
                weight: Weight::ZERO,
                endpoint: Endpoint::new(format!("m{at}:1")).unwrap(),
                state: MemberState::Active,
                availability: Availability::Up,
            };
            let birth = Birth(u128::MAX / 2 + at as u128);
            let entry = RosterEntry {
                incarnation: member.incarnation,
                births: vec![KnownBirth {
                    birth,
                    incarnation: member.incarnation,
                    aborted: false,
                }],
                registered: Some(Registered {
                    birth,
                    incarnation: member.incarnation,
                    endpoint: member.endpoint.clone(),
                    zone: member.zone.clone(),
                    weight: member.weight,
                    former_zones: Vec::new(),
                    former_weights: Vec::new(),
                }),
            };
            ring.roster.insert(node.clone(), entry);
            ring.members.insert(node, member);
        }
    });
}

fn thins(world: &mut World) {
    let name = world.ring.clone();
    world.prepare(|state| {
        let Some(ring) = state.rings.get_mut(&name) else {
            return;
        };
        let kept = ring.retained.iter().flat_map(|copies| copies.kept.clone());
        for slot in kept.collect::<BTreeSet<_>>() {
            let mut list = List::from_slice(ring.slots.list(slot));
            list.pop();
            ring.slots.set(slot, &list);
        }
    });
}

/// Changes that wait while movement is paused, until no more are taken.
fn queue(world: &mut World) {
    let reason = Some("a look".to_owned());
    world.request(RingCommand::Pause { reason });
    let Some(node) = world
        .ring_state()
        .and_then(|ring| ring.members.keys().next().cloned())
    else {
        return;
    };
    for at in 0..=MAX_QUEUE as u32 {
        let weight = Weight::new(101 + at % 2).unwrap();
        let change = Change::Weight {
            node: node.clone(),
            weight,
        };
        let said = world.request(RingCommand::Change {
            change,
            expected_layout_epoch: None,
        });
        if matches!(said, Outcome::Rejected(_)) || world.violation.is_some() {
            return;
        }
    }
}

fn another_ring(world: &mut World, number: u64) {
    let config = RingConfig {
        slot_bits: 1,
        ..RingConfig::default()
    };
    let ring = RingName::new(format!("r{number}")).unwrap();
    let command = RingCommand::Create {
        config,
        accept: false,
    };
    world.apply(None, Command::Ring { ring, command });
}
