//! Commands that no honest leader proposes: one thing in them is stale, missing or bent. Most must be
//! refused; whatever is accepted is judged by the promises as everything is.

use super::forgeries::{self, Forgery};
use crate::{
    coverage::Failure,
    verb::{Verb, Words},
    world::World,
};

/// How many are tried until one fits the world.
const TRIES: usize = 16;

pub const VERBS: &[Verb] = &[
    // forges NAME PICK
    Verb {
        name: "forges",
        weight: 95,
        draw: |world, chance| {
            // Some fit but a few worlds: they come first half of the time.
            let all: Vec<&Forgery> = match chance.bool() {
                true => forgeries::rare().collect(),
                false => forgeries::all().collect(),
            };
            (0..TRIES).find_map(|_| {
                let (name, forge) = all[chance.usize(..all.len())];
                let pick = chance.usize(..1_000);
                forge(world, pick).map(|_| format!("{name} {pick}"))
            })
        },
        act: forges,
    },
];

fn forges(world: &mut World, words: Words<'_>) {
    let (Some(name), Some(pick)) = (words.get(0), words.number(1)) else {
        return;
    };
    let mut all = forgeries::all();
    let Some((_, forge)) = all.find(|(known, _)| *known == name) else {
        return;
    };
    if let Some(command) = forge(world, pick as usize) {
        world.failure(Failure::ForgedCommand);
        world.apply(None, command);
    }
}
