//! How a world begins: a ring, agents, founders.

use annulus_membership::{
    Birth, Command, Outcome, Registration, RingCommand, RingConfig, found_command,
};
use annulus_ring::{ClusterId, Endpoint, NodeId, Replication, Weight, Zone};

use super::any_node;
use crate::{
    verb::{Verb, Words},
    world::World,
};

/// Most agents of an ordinary world.
const MAX_AGENTS: usize = 9;

pub const VERBS: &[Verb] = &[
    // Before the cluster has a name.
    Verb {
        name: "early",
        weight: 0,
        draw: |_, _| None,
        act: |world, words| {
            let config = config(words);
            world.propose(RingCommand::Create {
                config,
                accept: true,
            });
        },
    },
    Verb {
        name: "ring",
        weight: 0,
        draw: |_, _| None,
        act: |world, words| {
            let cluster_id = ClusterId(7);
            world.apply(None, Command::Init { cluster_id });
            let config = config(words);
            world.request(RingCommand::Create {
                config,
                accept: true,
            });
        },
    },
    // agent NODE ZONE WEIGHT [at=HOST]
    Verb {
        name: "agent",
        weight: 8,
        draw: |world, chance| {
            let (at, zone) = (world.nodes.len(), chance.u8(1..4));
            let weight = [100, 100, 100, 50, 200, 0][chance.usize(..6)];
            let host = match any_node(world, chance) {
                Some(other) if chance.u8(..4) == 0 => format!(" at={other}"),
                _ => String::new(),
            };
            (at < MAX_AGENTS).then(|| format!("n{at} z{zone} {weight}{host}"))
        },
        act: agent,
    },
    // found strict|accept [NODE..]
    Verb {
        name: "found",
        weight: 3,
        draw: |world, chance| {
            let ring = world.ring_state()?;
            if ring.founded && chance.u8(..8) > 0 {
                return None;
            }
            let how = ["strict", "accept"][chance.usize(..2)];
            let some: Vec<&str> = world
                .nodes
                .keys()
                .filter(|_| chance.u8(..5) > 0)
                .map(NodeId::as_str)
                .collect();
            let named = if chance.bool() {
                some.join(" ")
            } else {
                String::new()
            };
            Some(format!("{how} {named}"))
        },
        act: found,
    },
];

pub fn config(words: Words<'_>) -> RingConfig {
    let number = |name: &str, or: u64| {
        let word = words.option(name).and_then(|word| word.parse().ok());
        word.unwrap_or(or)
    };
    let rf = number("rf", 3) as u8;
    RingConfig {
        slot_bits: number("bits", 2) as u8,
        replication: Replication {
            rf,
            w: number("w", u64::from(rf / 2 + 1)) as u8,
            r: number("r", u64::from(rf / 2 + 1)) as u8,
        },
        soak_ms: number("soak", 1_000),
        grace_ms: number("grace", 2_000),
        ..RingConfig::default()
    }
}

fn agent(world: &mut World, words: Words<'_>) {
    let (Some(node), Some(zone), Some(weight)) = (words.node(0), words.zone(1), words.weight(2))
    else {
        return;
    };
    if world.nodes.contains_key(&node) {
        return;
    }
    let host = words.option("at").unwrap_or(node.as_str()).to_owned();
    world.start_agent(registration(node, zone, weight, &host));
}

pub fn registration(node: NodeId, zone: Zone, weight: Weight, host: &str) -> Registration {
    Registration {
        node,
        birth: Birth(0),
        endpoint: Endpoint::new(format!("{host}:1")).unwrap(),
        zone,
        weight,
    }
}

fn found(world: &mut World, words: Words<'_>) {
    let mut names = words.all().split_whitespace();
    let accept = names.next() == Some("accept");
    let nodes: Vec<NodeId> = names.filter_map(|name| NodeId::new(name).ok()).collect();
    let (ring, now_ms) = (world.ring.clone(), world.now_ms);
    let command = found_command(&world.state, &ring, &nodes, &world.reports, accept, now_ms);
    match command {
        Ok(command) => {
            let _: Outcome = world.request(command);
        }
        Err(rejection) => {
            world.refuse(&rejection);
        }
    }
}
