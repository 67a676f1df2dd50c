//! What happens to data nodes, and to what they say.

use annulus_membership::{Birth, Greeting, Hello, due::REPLAN_AFTER_MS, greet};
use annulus_ring::{Endpoint, Incarnation, NodeId, Weight, Zone};
use fastrand::Rng;

use super::{SILENCE, any_name, any_node, transition};
use crate::{
    coverage::Failure,
    verb::{Verb, Words, one_of, plain},
    world::{ON_ITS_WAY, World},
};

/// Most nodes that do not run at one time.
const MAX_DEAD: usize = 3;

pub const VERBS: &[Verb] = &[
    // A node adopts, does what it is asked, and its report arrives.
    Verb {
        name: "acts",
        weight: 24,
        draw: any_name,
        act: |world, words| {
            if let Some(id) = words.node(0) {
                world.acts_and_reports(&id);
            }
        },
    },
    Verb {
        name: "everybody",
        weight: 16,
        draw: plain,
        act: |world, _| world.everybody_acts(),
    },
    // The same as `acts`, but the report is on its way.
    Verb {
        name: "says",
        weight: 24,
        draw: |world, chance| any_name(world, chance).filter(|_| world.mail.len() < ON_ITS_WAY),
        act: |world, words| {
            let letter = words.node(0).and_then(|id| world.node_acts(&id));
            world.mail.extend(letter);
        },
    },
    // delivers LETTER: whichever comes, late and out of order
    Verb {
        name: "delivers",
        weight: 16,
        draw: any_letter,
        act: |world, words| {
            if let Some(at) = letter(world, words) {
                let letter = world.mail.remove(at);
                world.failure(Failure::LateReport);
                world.deliver(letter);
            }
        },
    },
    Verb {
        name: "repeats",
        weight: 10,
        draw: any_letter,
        act: |world, words| {
            if let Some(at) = letter(world, words) {
                let letter = world.mail[at].clone();
                world.failure(Failure::RepeatedReport);
                world.deliver(letter);
            }
        },
    },
    Verb {
        name: "loses",
        weight: 10,
        draw: any_letter,
        act: |world, words| {
            if let Some(at) = letter(world, words) {
                world.mail.remove(at);
                world.failure(Failure::LostReport);
            }
        },
    },
    // Clients write to whatever a node takes for its own.
    Verb {
        name: "writes",
        weight: 20,
        draw: any_name,
        act: |world, words| {
            let node = words.node(0).and_then(|id| world.nodes.get_mut(&id));
            if let Some(node) = node.filter(|node| node.runs) {
                node.write();
            }
        },
    },
    // The next copy to this node drops a record.
    Verb {
        name: "drops",
        weight: 4,
        draw: any_name,
        act: |world, words| {
            let node = words.node(0).and_then(|id| world.nodes.get_mut(&id));
            if let Some(node) = node {
                node.drops_a_record = true;
            }
        },
    },
    Verb {
        name: "dies",
        weight: 19,
        draw: |world, chance| {
            let dead = world.nodes.values().filter(|node| !node.runs).count();
            (dead < MAX_DEAD).then(|| victim(world, chance))?
        },
        act: dies,
    },
    // A joiner dies, and stays away for so long that the others go on without it.
    Verb {
        name: "outlasts",
        weight: 7,
        draw: |world, chance| {
            let joining: Vec<&NodeId> = transition(world)?.1.joining.iter().collect();
            one_of(&joining, chance).map(ToString::to_string)
        },
        act: |world, words| {
            dies(world, words);
            for _ in 0..SILENCE {
                world.now_ms += 1_000;
                world.everybody_acts();
            }
            world.leader_acts();
            world.now_ms += REPLAN_AFTER_MS;
            world.everybody_acts();
            world.leader_acts();
        },
    },
    Verb {
        name: "returns",
        weight: 80,
        draw: |world, chance| {
            let dead: Vec<&NodeId> = world
                .nodes
                .iter()
                .filter(|(_, node)| !node.runs)
                .map(|(id, _)| id)
                .collect();
            one_of(&dead, chance).map(ToString::to_string)
        },
        act: |world, words| {
            let Some(id) = words.node(0) else { return };
            let Some(node) = world.nodes.get_mut(&id) else {
                return;
            };
            if !node.runs {
                node.runs = true;
                world.failure(Failure::Returns);
                world.link(&id);
            }
        },
    },
    Verb {
        name: "link",
        weight: 12,
        draw: |world, chance| {
            let apart: Vec<&NodeId> = world
                .nodes
                .iter()
                .filter(|(_, node)| node.runs && !node.linked)
                .map(|(id, _)| id)
                .collect();
            match one_of(&apart, chance) {
                Some(id) => Some(id.to_string()),
                None => any_name(world, chance),
            }
        },
        act: |world, words| {
            if let Some(id) = words.node(0) {
                world.link(&id);
            }
        },
    },
    Verb {
        name: "unlink",
        weight: 6,
        draw: any_name,
        act: |world, words| {
            let node = words.node(0).and_then(|id| world.nodes.get_mut(&id));
            if let Some(node) = node.filter(|node| node.linked) {
                node.linked = false;
                let id = node.id().clone();
                world.reports.unlink(&id);
                world.failure(Failure::LinkLost);
            }
        },
    },
    // The disk is emptied: the agent draws a new birth.
    Verb {
        name: "empties",
        weight: 6,
        draw: any_name,
        act: |world, words| {
            let Some(id) = words.node(0) else { return };
            let birth = Birth(world.fresh_id());
            let living = living(world, &id);
            if let Some(node) = world.nodes.get_mut(&id) {
                node.empty_disk(birth, living);
                world.reports.unlink(&id);
                world.failure(Failure::DiskEmptied);
                world.link(&id);
            }
        },
    },
    // Whose life is over starts with an empty directory.
    Verb {
        name: "renews",
        weight: 60,
        draw: |world, chance| {
            let ring = world.ring_state()?;
            let is_over = |(id, node): &(&NodeId, &crate::node::Node)| {
                node.runs && !node.linked && ring.registered(id).is_none()
            };
            let over: Vec<_> = world.nodes.iter().filter(is_over).collect();
            one_of(&over, chance).map(|(id, _)| id.to_string())
        },
        act: |world, words| {
            let Some(id) = words.node(0) else { return };
            let birth = Birth(world.fresh_id());
            if living(world, &id).is_some() {
                return;
            }
            if let Some(node) = world.nodes.get_mut(&id) {
                node.aside = None;
                node.start_anew(birth);
                world.reports.unlink(&id);
                world.link(&id);
            }
        },
    },
    // The old disk is put back.
    Verb {
        name: "restores",
        weight: 10,
        draw: |world, chance| {
            let aside: Vec<&NodeId> = world
                .nodes
                .iter()
                .filter(|(_, node)| node.aside.is_some())
                .map(|(id, _)| id)
                .collect();
            one_of(&aside, chance).map(ToString::to_string)
        },
        act: |world, words| {
            let Some(id) = words.node(0) else { return };
            if let Some(node) = world.nodes.get_mut(&id) {
                node.restore();
                world.reports.unlink(&id);
                world.link(&id);
            }
        },
    },
    // A second process with a copy of the directory says Hello from elsewhere.
    Verb {
        name: "doubles",
        weight: 8,
        draw: any_name,
        act: |world, words| {
            let Some(id) = words.node(0) else { return };
            let Some(node) = world.nodes.get(&id) else {
                return;
            };
            let mut hello = node.hello();
            hello.registration.endpoint = Endpoint::new(format!("{id}-b:1")).unwrap();
            world.failure(Failure::SecondProcess);
            greets(world, &hello);
        },
    },
    // listens NODE HOST: the agent starts again elsewhere
    Verb {
        name: "listens",
        weight: 4,
        draw: |world, chance| {
            let (node, other) = (any_node(world, chance)?, any_node(world, chance)?);
            let host = [format!("{node}-c"), other.to_string()];
            Some(format!("{node} {}", host[chance.usize(..2)]))
        },
        act: |world, words| {
            let (Some(id), Some(host)) = (words.node(0), words.get(1)) else {
                return;
            };
            let Ok(endpoint) = Endpoint::new(format!("{host}:1")) else {
                return;
            };
            if let Some(node) = world.nodes.get_mut(&id) {
                node.registration.endpoint = endpoint;
                node.linked = false;
                world.reports.unlink(&id);
                world.link(&id);
            }
        },
    },
    // mistaken NODE zone|weight|foreign|life: an agent that was started wrongly
    Verb {
        name: "mistaken",
        weight: 4,
        draw: |world, chance| {
            let what = ["zone", "weight", "foreign", "life"][chance.usize(..4)];
            Some(format!("{} {what}", any_name(world, chance)?))
        },
        act: mistaken,
    },
];

/// The birth of the directory that is registered now.
fn living(world: &World, id: &NodeId) -> Option<Birth> {
    let registered = world.ring_state()?.registered(id)?;
    Some(registered.birth)
}

fn any_letter(world: &World, chance: &mut Rng) -> Option<String> {
    let count = world.mail.len();
    (count > 0).then(|| chance.usize(..count).to_string())
}

fn letter(world: &World, words: Words<'_>) -> Option<usize> {
    let at = usize::try_from(words.number(0)?).ok()?;
    (!world.mail.is_empty()).then(|| at % world.mail.len())
}

/// A node by its part in the transition, so that every part dies often enough.
fn victim(world: &World, chance: &mut Rng) -> Option<String> {
    let Some((ring, one)) = transition(world) else {
        return any_name(world, chance);
    };
    let part = chance.u8(..4);
    let slots: Vec<_> = one.target.keys().collect();
    let sets = ring.sets(**one_of(&slots, chance)?);
    let handle = match part {
        0 => sets.gainers().next(),
        1 => sets.old.first().copied(),
        2 => sets.losers().next(),
        _ => {
            let apart = |id: &&NodeId| parts(world, id) == [Failure::BystanderDies];
            let apart: Vec<&NodeId> = world.nodes.keys().filter(apart).collect();
            return one_of(&apart, chance).map(ToString::to_string);
        }
    };
    Some(ring.by_handle(handle?)?.node_id.to_string())
}

fn dies(world: &mut World, words: Words<'_>) {
    let Some(id) = words.node(0) else { return };
    let Some(node) = world.nodes.get_mut(&id).filter(|node| node.runs) else {
        return;
    };
    node.runs = false;
    node.linked = false;
    world.reports.unlink(&id);
    for failure in parts(world, &id) {
        world.failure(failure);
    }
}

/// What a node is in the running transition.
fn parts(world: &World, id: &NodeId) -> Vec<Failure> {
    let mut parts = Vec::new();
    if let Some((ring, one)) = transition(world)
        && let Some(me) = ring.members.get(id).map(|member| member.handle)
    {
        let sets = || one.target.keys().map(|slot| ring.sets(*slot));
        if sets().any(|sets| sets.gainers().any(|gainer| gainer == me)) {
            parts.push(Failure::GainerDies);
        }
        let is_source = |sets: annulus_ring::RangeSets<'_>| {
            sets.old.first() == Some(&me) && sets.gainers().next().is_some()
        };
        if sets().any(is_source) {
            parts.push(Failure::SourceDies);
        }
        if sets().any(|sets| sets.losers().any(|loser| loser == me)) {
            parts.push(Failure::LoserDies);
        }
    }
    if parts.is_empty() {
        parts.push(Failure::BystanderDies);
    }
    parts
}

/// Judges a Hello that opens no link.
fn greets(world: &mut World, hello: &Hello) {
    let Some(ring) = world.ring_state() else {
        return;
    };
    match greet(ring, hello) {
        Greeting::Refuse(rejection) => {
            world.refuse(&rejection);
        }
        Greeting::Propose(command) => {
            world.request(command);
        }
        Greeting::Welcome { .. } => {}
    }
}

fn mistaken(world: &mut World, words: Words<'_>) {
    let Some(node) = words.node(0).and_then(|id| world.nodes.get(&id)) else {
        return;
    };
    let mut hello = node.hello();
    let said = &mut hello.registration;
    match words.get(1) {
        Some("zone") => said.zone = Zone::new("z9").unwrap(),
        Some("weight") => said.weight = Weight::new(said.weight.get() + 1).unwrap(),
        Some("life") => hello.incarnation = Incarnation(hello.incarnation.0 + 7),
        _ => {
            said.birth = Birth(world.fresh_id());
            said.node = NodeId::new("stranger").unwrap();
            hello.empty = false;
        }
    }
    greets(world, &hello);
}
