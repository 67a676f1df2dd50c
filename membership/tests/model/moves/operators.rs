//! What operators ask for.

use annulus_membership::{Change, ChangePhase, RingCommand};
use annulus_ring::{Epoch, MemberState, Step};
use fastrand::Rng;

use super::{any_node, member, newcomer, transition};
use crate::{
    coverage::Failure,
    verb::{Verb, Words, one_of, plain},
    world::World,
};

pub const VERBS: &[Verb] = &[
    // join NODE [zone=Z] [weight=W] [layout=EPOCH]
    Verb {
        name: "join",
        weight: 40,
        draw: |world, chance| {
            let node = match chance.u8(..12) {
                0 => return Some("nobody".to_owned()),
                1 => any_node(world, chance)?,
                _ => newcomer(world, chance)?,
            };
            Some(format!("{node}{}{}", facts(chance), layout(world, chance)))
        },
        act: |world, words| {
            let Some(node) = words.node(0) else { return };
            let zone = words.option("zone");
            let weight = words.option("weight").and_then(|word| word.parse().ok());
            let join = Change::Join {
                node,
                zone: zone.and_then(|zone| annulus_ring::Zone::new(zone).ok()),
                weight: weight.and_then(annulus_ring::Weight::new),
            };
            change(world, words, join);
        },
    },
    Verb {
        name: "drain",
        weight: 26,
        draw: |world, chance| {
            let node = whom(world, chance)?;
            Some(format!("{node}{}", layout(world, chance)))
        },
        act: |world, words| {
            if let Some(node) = words.node(0) {
                change(world, words, Change::Drain { node });
            }
        },
    },
    // weight NODE WEIGHT
    Verb {
        name: "weight",
        weight: 24,
        draw: |world, chance| {
            let (node, weight) = (whom(world, chance)?, [0, 50, 100, 200][chance.usize(..4)]);
            Some(format!("{node} {weight}{}", layout(world, chance)))
        },
        act: |world, words| {
            if let (Some(node), Some(weight)) = (words.node(0), words.weight(1)) {
                change(world, words, Change::Weight { node, weight });
            }
        },
    },
    // replace NODE BY
    Verb {
        name: "replace",
        weight: 30,
        draw: |world, chance| {
            let by = newcomer(world, chance)?;
            let ring = world.ring_state()?;
            let zone = &ring.registered(&by)?.zone;
            // Mostly one of its own zone: others are refused.
            let fits = |id: &&annulus_ring::NodeId| ring.members[*id].zone == *zone;
            let fitting: Vec<_> = ring.members.keys().filter(fits).collect();
            let node = match chance.u8(..4) {
                0 => whom(world, chance)?,
                _ => (*one_of(&fitting, chance)?).clone(),
            };
            Some(format!("{node} {by}{}", layout(world, chance)))
        },
        act: |world, words| {
            if let (Some(node), Some(by)) = (words.node(0), words.node(1)) {
                change(
                    world,
                    words,
                    Change::Replace {
                        node,
                        by,
                        burial: None,
                    },
                );
            }
        },
    },
    // abort CHANGE
    Verb {
        name: "abort",
        weight: 14,
        draw: |world, chance| {
            let ring = world.ring_state()?;
            let step = ring.transition.as_ref().map(|one| one.step);
            let goes_back = matches!(step, Some(Step::Switched | Step::FlippingBack));
            let id = match chance.u8(..10) {
                0 => ring.next_change.0,
                1 => {
                    ring.changes
                        .keys()
                        .nth(chance.usize(..ring.changes.len().max(1)))?
                        .0
                }
                2..=4 if !goes_back => {
                    let waits = |id: &&annulus_membership::ChangeId| {
                        ring.changes[*id].phase == ChangePhase::Queued
                    };
                    let waiting: Vec<_> = ring.changes.keys().filter(waits).collect();
                    one_of(&waiting, chance)?.0
                }
                // A row falls with any of its changes.
                5 if !goes_back => {
                    let mut rows = ring.changes.values().filter(|record| !record.phase.ended());
                    rows.find_map(|record| record.after)?.0
                }
                _ => one_of(&ring.transition.as_ref()?.changes, chance)?.0,
            };
            Some(id.to_string())
        },
        act: |world, words| {
            if let Some(change) = words.change(0) {
                world.request(RingCommand::Abort { change });
            }
        },
    },
    Verb {
        name: "settle",
        weight: 6,
        draw: |world, chance| {
            let is_soaking = transition(world).is_some_and(|(_, one)| one.step == Step::Switched);
            (is_soaking || chance.u8(..4) == 0).then(String::new)
        },
        act: |world, _| {
            world.request(RingCommand::Settle);
        },
    },
    // pause [REASON]: without one it goes on
    Verb {
        name: "pause",
        weight: 9,
        draw: |_, chance| {
            let reasons = ["a look", "a look", "", "\u{7}"];
            Some(reasons[chance.usize(..4)].to_owned())
        },
        act: |world, words| {
            let reason = Some(words.all().to_owned());
            world.request(RingCommand::Pause { reason });
            if world.ring_state().is_some_and(|ring| ring.paused.is_some()) {
                world.failure(Failure::Paused);
            }
        },
    },
    Verb {
        name: "resume",
        weight: 40,
        draw: |world, chance| {
            let is_paused = world.ring_state()?.paused.is_some();
            (is_paused || chance.u8(..8) == 0).then(String::new)
        },
        act: |world, _| {
            world.request(RingCommand::Pause { reason: None });
        },
    },
    Verb {
        name: "hold",
        weight: 4,
        draw: plain,
        act: |world, _| {
            let reason = Some("an audit".to_owned());
            world.request(RingCommand::Hold { reason });
        },
    },
    Verb {
        name: "unhold",
        weight: 20,
        draw: |world, chance| {
            let is_held = world.ring_state()?.held.is_some();
            (is_held || chance.u8(..8) == 0).then(String::new)
        },
        act: |world, _| {
            world.request(RingCommand::Hold { reason: None });
        },
    },
];

/// Mostly an active member.
fn whom(world: &World, chance: &mut Rng) -> Option<annulus_ring::NodeId> {
    match chance.u8(..8) {
        0 => any_node(world, chance),
        1 => member(world, chance, None),
        _ => member(world, chance, Some(MemberState::Active)),
    }
}

fn facts(chance: &mut Rng) -> String {
    match chance.u8(..16) {
        0 => format!(" zone=z{}", chance.u8(1..4)),
        1 => format!(" weight={}", [50, 100][chance.usize(..2)]),
        _ => String::new(),
    }
}

/// Now and then the operator looked at the layout, at an older one too.
fn layout(world: &World, chance: &mut Rng) -> String {
    let Some(ring) = world.ring_state() else {
        return String::new();
    };
    match chance.u8(..16) {
        0 => format!(" layout={}", ring.layout_epoch),
        1 => format!(" layout={}", ring.layout_epoch.0.saturating_sub(1)),
        _ => String::new(),
    }
}

fn change(world: &mut World, words: Words<'_>, change: Change) {
    let layout = words.option("layout").and_then(|word| word.parse().ok());
    world.request(RingCommand::Change {
        change,
        expected_layout_epoch: layout.map(Epoch),
    });
}
