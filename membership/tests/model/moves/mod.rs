//! The tables of moves. A new command or a new failure is a line in one of them.

mod agents;
mod changes;
mod crowd;
mod forged;
pub mod forgeries;
mod leaders;
mod operators;
mod setup;

use annulus_membership::{RingState, TransitionState};
use annulus_ring::{MemberState, NodeId};
use fastrand::Rng;

use super::{
    verb::{Verb, one_of},
    world::World,
};

pub const TABLES: &[&[Verb]] = &[
    setup::VERBS,
    operators::VERBS,
    changes::VERBS,
    agents::VERBS,
    leaders::VERBS,
    forged::VERBS,
    crowd::VERBS,
];

/// Rounds of a silence that makes the dead go down.
const SILENCE: u32 = 12;

/// Any node with an agent.
fn any_node(world: &World, chance: &mut Rng) -> Option<NodeId> {
    let count = world.nodes.len();
    let at = (count > 0).then(|| chance.usize(..count))?;
    world.nodes.keys().nth(at).cloned()
}

/// One word: any node with an agent.
fn any_name(world: &World, chance: &mut Rng) -> Option<String> {
    any_node(world, chance).map(|id| id.to_string())
}

/// A member in that state, or any.
fn member(world: &World, chance: &mut Rng, state: Option<MemberState>) -> Option<NodeId> {
    let ring = world.ring_state()?;
    let members = ring.members.values();
    let fitting: Vec<&NodeId> = members
        .filter(|member| state.is_none_or(|state| member.state == state))
        .map(|member| &member.node_id)
        .collect();
    one_of(&fitting, chance).map(|id| (*id).clone())
}

/// Registered, and no member.
fn newcomer(world: &World, chance: &mut Rng) -> Option<NodeId> {
    let ring = world.ring_state()?;
    let outside = |id: &&NodeId| !ring.members.contains_key(*id) && ring.registered(id).is_some();
    let outside: Vec<&NodeId> = world.nodes.keys().filter(outside).collect();
    one_of(&outside, chance).map(|id| (*id).clone())
}

fn transition(world: &World) -> Option<(&RingState, &TransitionState)> {
    let ring = world.ring_state()?;
    Some((ring, ring.transition.as_ref()?))
}
