//! What leaders do: the present one, the deposed ones, and what of theirs is still on its way.

use annulus_membership::{ChangeId, ChangeRecord, Outcome, RingCommand, due};
use annulus_ring::{Availability, Endpoint, NodeId};

use crate::{
    coverage::Failure,
    node::Node,
    verb::{Verb, plain},
    world::{ON_ITS_WAY, World},
};

/// How often everybody acts before a world that was left alone must be at rest.
const REST: u32 = 3_000;
/// And how often the operator looks meanwhile, in rounds.
const ASKED_EVERY: u32 = 100;

pub const VERBS: &[Verb] = &[
    Verb {
        name: "leads",
        weight: 40,
        draw: plain,
        act: |world, _| {
            world.leader_acts();
        },
    },
    // A good moment: everybody acts and is heard, then the leader acts.
    Verb {
        name: "goes",
        weight: 360,
        draw: plain,
        act: |world, _| {
            world.everybody_acts();
            world.leader_acts();
        },
    },
    // The leader proposes, and the entry is committed later, or never.
    Verb {
        name: "proposes",
        weight: 20,
        draw: |world, _| (world.parked.len() < ON_ITS_WAY).then(String::new),
        act: |world, _| {
            let command = world.due();
            world.parked.extend(command);
        },
    },
    Verb {
        name: "commits",
        weight: 30,
        draw: |world, chance| {
            let count = world.parked.len();
            (count > 0).then(|| chance.usize(..count).to_string())
        },
        act: |world, words| {
            let Some(at) = words.number(0).filter(|_| !world.parked.is_empty()) else {
                return;
            };
            let at = at as usize % world.parked.len();
            let command = world.parked.remove(at);
            world.failure(Failure::LateCommand);
            world.propose(command);
        },
    },
    Verb {
        name: "deposes",
        weight: 6,
        draw: |_, chance| {
            Some(["linked", "linked", "linked", "alone"][chance.usize(..4)].to_owned())
        },
        act: |world, words| {
            world.failure(Failure::LeaderChanges);
            world.new_leader(words.get(0) == Some("linked"));
        },
    },
    // A deposed leader goes by what it has heard, and its entry is committed.
    Verb {
        name: "deposed",
        weight: 10,
        draw: |world, _| world.deposed.as_ref().map(|_| String::new()),
        act: |world, _| {
            if let Some(command) = world.due_to_the_deposed() {
                world.failure(Failure::DeposedSpeaks);
                world.propose(command);
            }
        },
    },
    // clock MS
    Verb {
        name: "clock",
        weight: 8,
        draw: |_, chance| Some([300, 1_000, 2_500, 6_000][chance.usize(..4)].to_string()),
        act: |world, words| world.now_ms += words.number(0).unwrap_or_default(),
    },
    // tick MS
    Verb {
        name: "tick",
        weight: 170,
        draw: |_, chance| Some(chance.u64(1..600).to_string()),
        act: |world, words| world.tick(words.number(0).unwrap_or_default()),
    },
    // again REQUEST: the answer was lost, the same request comes again
    Verb {
        name: "again",
        weight: 10,
        draw: |world, chance| {
            let count = world.said.len();
            (count > 0).then(|| chance.usize(..count).to_string())
        },
        act: |world, words| {
            let Some(at) = words.number(0).filter(|_| !world.said.is_empty()) else {
                return;
            };
            let said = world.said[at as usize % world.said.len()].clone();
            let again: Outcome = world.apply(Some(said.id), said.command);
            if again != said.outcome {
                let what = format!("{again:?} instead of {:?}", said.outcome);
                world.fail("EXACTLY-ONCE", what);
            }
        },
    },
    Verb {
        name: "restarts",
        weight: 2,
        draw: plain,
        act: |world, _| world.restart_twin(),
    },
    // Everything is mended and left alone: it must come to rest.
    Verb {
        name: "rests",
        weight: 0,
        draw: plain,
        act: |world, _| rests(world),
    },
];

fn rests(world: &mut World) {
    if !world.ring_state().is_some_and(|ring| ring.founded) {
        return;
    }
    mend(world);
    for round in 1..=REST {
        if world.violation.is_some() {
            return;
        }
        if round % ASKED_EVERY == 0 {
            does_as_it_is_told(world);
        }
        if at_rest(world) {
            world.compare_twins();
            return;
        }
        let acted = world.leader_acts();
        says_hello(world);
        world.everybody_acts();
        // While only time is waited for, it may pass faster.
        world.now_ms += if acted { 100 } else { 500 };
    }
    let ring = world.ring_state().expect("it is founded");
    let waits = annulus_membership::waiting_for(&world.state, ring, &world.reports, world.now_ms);
    let (running, wave, kept) = (&ring.transition, &ring.wave, &ring.retained);
    let mut open: Vec<_> = ring.changes.values().collect();
    open.retain(|record| !record.phase.ended());
    let members: Vec<_> = ring.members.values().collect();
    let lists: Vec<_> = ring
        .slots
        .slots()
        .map(|slot| ring.slots.list(slot))
        .collect();
    let due = due(
        &world.state,
        &world.ring,
        &mut world.reports.clone(),
        world.now_ms + 4_000,
    );
    let what = format!(
        "waiting for {waits:?}; changes {open:?}; transition {running:?}; wave {wave:?}; kept \
         {kept:?}; due {due:?}; members {members:?}; lists {lists:?}"
    );
    world.fail("NEVER-STUCK", what);
}

/// The operator reads what a change waits for: a removal that cannot go on is withdrawn.
fn does_as_it_is_told(world: &mut World) {
    let Some(ring) = world.ring_state() else {
        return;
    };
    let waits = annulus_membership::waiting_for(&world.state, ring, &world.reports, world.now_ms);
    let told = |node: &NodeId| {
        let names = |wait: &String| wait.starts_with(&format!("{node} is taken for dead, but"));
        waits.iter().any(names)
    };
    let of_the_told = |(id, record): (&ChangeId, &ChangeRecord)| {
        let (dead, _) = record.change.buries()?;
        (!record.phase.ended() && told(dead)).then_some(*id)
    };
    let changes: Vec<ChangeId> = ring.changes.iter().filter_map(of_the_told).collect();
    for change in changes {
        world.request(RingCommand::Abort { change });
    }
}

/// Who was refused asks again, as agents do: what took it for dead may have been withdrawn.
fn says_hello(world: &mut World) {
    let alone = |(id, node): (&NodeId, &Node)| (node.runs && !node.linked).then(|| id.clone());
    let alone: Vec<NodeId> = world.nodes.iter().filter_map(alone).collect();
    for id in alone {
        world.link(&id);
    }
}

/// Everybody is back with the directory of its living registration, and nothing stands still.
fn mend(world: &mut World) {
    use RingCommand::{Hold, Pause};
    let ids: Vec<_> = world.nodes.keys().cloned().collect();
    for id in &ids {
        let registered = world.ring_state().and_then(|ring| ring.registered(id));
        let living = registered.map(|living| living.birth);
        let facts = registered.map(|living| (living.zone.clone(), living.weight));
        let (number, node) = (world.fresh_id(), world.nodes.get_mut(id));
        let Some(node) = node else { continue };
        node.runs = true;
        let aside = node.aside.as_ref().map(|aside| aside.registration.birth);
        if living.is_some() && aside == living {
            node.restore();
        }
        // Its operator edits the agent's file too.
        if let Some((zone, weight)) = facts {
            node.registration.zone = zone;
            node.registration.weight = weight;
        }
        // Whoever was started with another's address is started with one of its own.
        node.registration.endpoint = Endpoint::new(format!("{id}-{number}:1")).unwrap();
    }
    world.new_leader(true);
    let ring = world.ring_state();
    let (paused, held) = ring.map_or((false, false), |ring| {
        (ring.paused.is_some(), ring.held.is_some())
    });
    if paused {
        world.request(Pause { reason: None });
    }
    if held {
        world.request(Hold { reason: None });
    }
}

fn at_rest(world: &World) -> bool {
    let Some(ring) = world.ring_state() else {
        return true;
    };
    let mut reports = world.reports.clone();
    ring.transition.is_none()
        && ring.wave.is_none()
        && ring.retained.is_empty()
        && ring.changes.values().all(|record| record.phase.ended())
        && ring
            .members
            .values()
            .all(|member| member.availability == Availability::Up)
        // Later than every pause, and before anybody is taken for down.
        && due(&world.state, &world.ring, &mut reports, world.now_ms + 4_000)
            .is_none()
}
