//! The tables of forgeries: a name, and what is proposed in the world as it is. `pick` chooses among
//! what fits. To have a new rule tried, add a line that breaks it and nothing else.

mod conversions;
mod copies;
mod plans;
mod replans;
mod steps;
mod targets;
mod waves;
mod words;

use annulus_membership::{Command, RingState};

use crate::world::World;

pub type Forgery = (&'static str, fn(&World, usize) -> Option<Command>);

pub fn all() -> impl Iterator<Item = &'static Forgery> {
    [
        steps::FORGERIES,
        targets::FORGERIES,
        waves::FORGERIES,
        copies::FORGERIES,
        plans::FORGERIES,
        conversions::FORGERIES,
        replans::FORGERIES,
        words::FORGERIES,
    ]
    .into_iter()
    .flatten()
}

/// Those that fit but a few worlds.
pub fn rare() -> impl Iterator<Item = &'static Forgery> {
    [
        targets::FORGERIES,
        waves::FORGERIES,
        copies::FORGERIES,
        replans::FORGERIES,
        conversions::FORGERIES,
    ]
    .into_iter()
    .flatten()
}

/// One of `all`, by `pick`.
fn pick_of<T>(all: impl IntoIterator<Item = T>, pick: usize) -> Option<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    (!all.is_empty()).then(|| all.swap_remove(pick % all.len()))
}

fn founded(world: &World) -> Option<&RingState> {
    world.ring_state().filter(|ring| ring.founded)
}
