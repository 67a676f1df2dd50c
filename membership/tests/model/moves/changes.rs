//! What operators ask for besides coming and going: the dead, pins, zones, quorums, maintenance, rows
//! and plans.

use annulus_membership::{
    Burial, Change, PinKind, PlanId, RingCommand, Spans, burial::Doubt, plan_command,
};
use annulus_ring::{Availability, HashName, NodeId, Replication, Slot};
use fastrand::Rng;

use super::{SILENCE, any_node, member, newcomer};
use crate::{
    verb::{Verb, Words, one_of},
    world::World,
};

/// Ranges are doubled up to 2^this: more cost time and show nothing new.
const MOST_BITS: u8 = 4;

pub const VERBS: &[Verb] = &[
    // Everybody but the dead goes on speaking, until those are down.
    Verb {
        name: "waits",
        weight: 14,
        draw: |world, _| {
            let dead = world.nodes.values().any(|node| !node.runs);
            dead.then(String::new)
        },
        act: |world, _| {
            for _ in 0..SILENCE {
                world.now_ms += 1_000;
                world.everybody_acts();
            }
            world.leader_acts();
        },
    },
    // remove NODE [lost=SLOT+SLOT..] [stopped=WHO]
    Verb {
        name: "remove",
        weight: 30,
        draw: |world, chance| {
            let node = dead(world, chance)?;
            Some(format!("{node}{}", said_of(world, chance, &node)))
        },
        act: |world, words| {
            if let Some(node) = words.node(0) {
                let burial = burial(words);
                asks(world, Change::Remove { node, burial });
            }
        },
    },
    // replace-dead NODE BY [lost=SLOT+SLOT..] [stopped=WHO]
    Verb {
        name: "replace-dead",
        weight: 20,
        draw: |world, chance| {
            let (node, by) = (dead(world, chance)?, newcomer(world, chance)?);
            Some(format!("{node} {by}{}", said_of(world, chance, &node)))
        },
        act: |world, words| {
            if let (Some(node), Some(by)) = (words.node(0), words.node(1)) {
                let burial = Some(burial(words));
                asks(world, Change::Replace { node, by, burial });
            }
        },
    },
    // auto-remove [MS]: without a time, never
    Verb {
        name: "auto-remove",
        weight: 3,
        draw: |_, chance| Some(["600000", "600000", "1000", ""][chance.usize(..4)].to_owned()),
        act: |world, words| {
            let after_ms = words.number(0);
            world.request(RingCommand::AutoRemove { after_ms });
        },
    },
    // So much time passes that the dead may be removed by themselves; the others speak again.
    Verb {
        name: "ages",
        weight: 6,
        draw: |world, _| {
            let ring = world.ring_state()?;
            let down = |one: &annulus_ring::Member| one.availability == Availability::Down;
            let waits = ring.auto_remove_ms.is_some() && ring.members.values().any(down);
            waits.then(String::new)
        },
        act: |world, _| {
            world.now_ms += annulus_membership::MIN_AUTO_REMOVE_MS;
            world.everybody_acts();
            world.leader_acts();
        },
    },
    // pin NODE member|owner SLOT+SLOT..
    Verb {
        name: "pin",
        weight: 26,
        draw: |world, chance| {
            let kind = ["member", "owner"][chance.usize(..2)];
            Some(format!(
                "{} {kind} {}",
                whom(world, chance)?,
                slots(world, chance)?
            ))
        },
        act: |world, words| {
            let kind = match words.get(1) {
                Some("owner") => PinKind::Owner,
                _ => PinKind::Member,
            };
            if let (Some(node), Some(slots)) = (words.node(0), words.get(2)) {
                let slots = spans(slots);
                asks(world, Change::Pin { node, slots, kind });
            }
        },
    },
    // unpin NODE [SLOT+SLOT..]
    Verb {
        name: "unpin",
        weight: 8,
        draw: |world, chance| {
            let pinned: Vec<NodeId> = world
                .ring_state()?
                .pins
                .iter()
                .map(|one| one.1.clone())
                .collect();
            let node = match one_of(&pinned, chance) {
                Some(node) if chance.u8(..4) > 0 => node.clone(),
                _ => whom(world, chance)?,
            };
            let some = match chance.u8(..3) {
                0 => slots(world, chance)?,
                _ => String::new(),
            };
            Some(format!("{node} {some}"))
        },
        act: |world, words| {
            if let Some(node) = words.node(0) {
                let slots = words.get(1).map(spans);
                asks(world, Change::Unpin { node, slots });
            }
        },
    },
    // zone NODE ZONE [accept]
    Verb {
        name: "zone",
        weight: 8,
        draw: |world, chance| {
            let node = whom(world, chance)?;
            Some(format!("{node} z{}{}", chance.u8(1..5), accepts(chance)))
        },
        act: |world, words| {
            if let (Some(node), Some(zone)) = (words.node(0), words.zone(1)) {
                let accept = words.get(2).is_some();
                asks(world, Change::Zone { node, zone, accept });
            }
        },
    },
    // zone-drain ZONE [accept]
    Verb {
        name: "zone-drain",
        weight: 8,
        draw: |_, chance| Some(format!("z{}{}", chance.u8(1..5), accepts(chance))),
        act: |world, words| {
            if let Some(zone) = words.zone(0) {
                let accept = words.get(1).is_some();
                asks(world, Change::DrainZone { zone, accept });
            }
        },
    },
    // replication RF W R [accept]
    Verb {
        name: "replication",
        weight: 6,
        draw: |_, chance| {
            let said = [
                "2 2 1", "2 1 2", "3 2 2", "3 3 1", "4 3 2", "5 3 3", "3 1 1", "9 0 1",
            ];
            let one = said[chance.usize(..said.len())];
            Some(format!("{one}{}", accepts(chance)))
        },
        act: |world, words| {
            let part = |at| u8::try_from(words.number(at)?).ok();
            if let (Some(rf), Some(w), Some(r)) = (part(0), part(1), part(2)) {
                let (to, accept) = (Replication { rf, w, r }, words.get(3).is_some());
                asks(world, Change::Replication { to, accept });
            }
        },
    },
    // maintain NODE MS|over [accept]
    Verb {
        name: "maintain",
        weight: 8,
        draw: |world, chance| {
            let time = ["1000", "5000", "20000", "over", "0"][chance.usize(..5)];
            Some(format!(
                "{} {time}{}",
                whom(world, chance)?,
                accepts(chance)
            ))
        },
        act: |world, words| {
            if let Some(node) = words.node(0) {
                let (for_ms, accept) = (words.number(1), words.get(2).is_some());
                world.request(RingCommand::Maintain {
                    node,
                    for_ms,
                    accept,
                });
            }
        },
    },
    // row STEPS drain NODE, or row STEPS weight NODE WEIGHT
    Verb {
        name: "row",
        weight: 8,
        draw: |world, chance| {
            let (steps, node) = ([2, 3, 4, 1][chance.usize(..4)], whom(world, chance)?);
            let what = match chance.u8(..8) {
                0..2 => format!("join {}", newcomer(world, chance)?),
                2..5 => format!("drain {node}"),
                _ => format!("weight {node} {}", [0, 50, 200][chance.usize(..3)]),
            };
            Some(format!("{steps} {what}"))
        },
        act: |world, words| {
            let steps = words.number(0).and_then(|steps| u32::try_from(steps).ok());
            let what = words
                .all()
                .split_once(' ')
                .and_then(|(_, what)| planned(what));
            if let (Some(steps), Some(change)) = (steps, what) {
                world.request(RingCommand::ChangeBySteps {
                    change,
                    steps,
                    expected_layout_epoch: None,
                });
            }
        },
    },
    // plans CHANGE [, CHANGE]
    Verb {
        name: "plans",
        weight: 10,
        draw: |world, chance| {
            let one = |chance: &mut Rng| {
                Some(match chance.u8(..4) {
                    0 => format!("join {}", newcomer(world, chance)?),
                    1 => format!("drain {}", whom(world, chance)?),
                    _ => format!(
                        "weight {} {}",
                        whom(world, chance)?,
                        [50, 100, 200][chance.usize(..3)]
                    ),
                })
            };
            let first = one(chance)?;
            Some(match chance.u8(..3) {
                0 => format!("{first}, {}", one(chance)?),
                _ => first,
            })
        },
        act: |world, words| {
            let changes: Vec<Change> = words.all().split(", ").filter_map(planned).collect();
            let Some(ring) = world.ring_state() else {
                return;
            };
            match plan_command(&world.ring, ring, &changes) {
                Ok(command) => {
                    world.request(command);
                }
                Err(rejection) => {
                    world.refuse(&rejection);
                }
            }
        },
    },
    Verb {
        name: "commits-plan",
        weight: 14,
        draw: any_plan,
        act: |world, words| {
            if let Some(plan) = words.number(0).map(PlanId) {
                world.request(RingCommand::CommitPlan { plan });
            }
        },
    },
    Verb {
        name: "drops-plan",
        weight: 4,
        draw: any_plan,
        act: |world, words| {
            if let Some(plan) = words.number(0).map(PlanId) {
                world.request(RingCommand::DropPlan { plan });
            }
        },
    },
    // convert double|hash|layout|nothing
    Verb {
        name: "convert",
        weight: 32,
        draw: |world, chance| {
            let few = world.ring_state()?.slots.bits() < MOST_BITS;
            let words = ["hash", "layout", "nothing", "double", "double", "double"];
            let word = words[chance.usize(..words.len())];
            (few || word != "double").then(|| word.to_owned())
        },
        act: |world, words| {
            world.request(RingCommand::Convert {
                hash: (words.get(0) == Some("hash")).then_some(HashName::SipHash24),
                layout: (words.get(0) == Some("layout")).then(|| "tokens".to_owned()),
                double: words.get(0) == Some("double"),
            });
        },
    },
    // gives-up-converting
    Verb {
        name: "gives-up-converting",
        weight: 300,
        draw: |world, _| {
            let runs = world.ring_state()?.conversion.is_some();
            runs.then(String::new)
        },
        act: |world, _| {
            let ring = world.ring_state();
            if let Some(begun) = ring.and_then(|ring| Some(ring.conversion.as_ref()?.begun)) {
                world.propose(RingCommand::AbortConversion { begun });
            }
        },
    },
];

fn asks(world: &mut World, change: Change) {
    world.request(RingCommand::Change {
        change,
        expected_layout_epoch: None,
    });
}

/// Mostly some member.
fn whom(world: &World, chance: &mut Rng) -> Option<NodeId> {
    match chance.u8(..8) {
        0 => any_node(world, chance),
        _ => member(world, chance, None),
    }
}

/// Mostly a member that is down.
fn dead(world: &World, chance: &mut Rng) -> Option<NodeId> {
    let members = world.ring_state()?.members.values();
    let down: Vec<&NodeId> = members
        .filter(|one| one.availability == Availability::Down)
        .map(|one| &one.node_id)
        .collect();
    match one_of(&down, chance) {
        Some(node) => Some((*node).clone()),
        None if chance.u8(..16) == 0 => whom(world, chance),
        None => None,
    }
}

/// The operator quotes what is in doubt, or does not; and vouches for the process, or does not.
fn said_of(world: &World, chance: &mut Rng, node: &NodeId) -> String {
    let mut said = String::new();
    let member = world.ring_state().and_then(|ring| {
        let member = ring.members.get(node)?;
        Some(Doubt::about(ring, member).too_few)
    });
    let doubt: Vec<String> = member
        .into_iter()
        .flatten()
        .map(|slot| slot.to_string())
        .collect();
    if !doubt.is_empty() && chance.u8(..3) > 0 {
        said.push_str(&format!(" lost={}", doubt.join("+")));
    }
    if chance.u8(..3) == 0 {
        said.push_str(" stopped=ops");
    }
    said
}

fn burial(words: Words<'_>) -> Burial {
    Burial {
        lost: words.option("lost").map(spans).unwrap_or_default(),
        stopped: words.option("stopped").map(str::to_owned),
    }
}

fn spans(text: &str) -> Spans {
    let slots = text.split('+').filter_map(|word| word.parse().ok());
    Spans::of(slots.map(Slot))
}

/// A few slots; now and then one that the ring has not.
fn slots(world: &World, chance: &mut Rng) -> Option<String> {
    let count = world.ring_state()?.slots.slot_count() as u32;
    let most = count + u32::from(chance.u8(..8) == 0);
    let some: Vec<String> = (0..chance.u32(1..4))
        .map(|_| chance.u32(..most).to_string())
        .collect();
    Some(some.join("+"))
}

fn accepts(chance: &mut Rng) -> &'static str {
    if chance.bool() { " accept" } else { "" }
}

fn any_plan(world: &World, chance: &mut Rng) -> Option<String> {
    let last = world.ring_state()?.last_plan.0;
    let plan = match chance.u8(..3) {
        0 => chance.u64(1..=last + 1),
        _ => last,
    };
    (last > 0).then(|| plan.to_string())
}

/// `join NODE`, `drain NODE` or `weight NODE WEIGHT`.
fn planned(text: &str) -> Option<Change> {
    let words = Words(text);
    let node = words.node(1)?;
    match words.get(0)? {
        "join" => Some(Change::Join {
            node,
            zone: None,
            weight: None,
        }),
        "drain" => Some(Change::Drain { node }),
        "weight" => Some(Change::Weight {
            node,
            weight: words.weight(2)?,
        }),
        _ => None,
    }
}
