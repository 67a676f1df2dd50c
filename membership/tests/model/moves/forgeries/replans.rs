//! Transitions that start again without somebody, with and without a reason to.

use annulus_membership::{RingCommand, RingState, TransitionState};
use annulus_ring::{Availability, Member, Step};

use super::{Forgery, pick_of};
use crate::{moves::transition, world::World};

pub const FORGERIES: &[Forgery] = &[
    // Legal before the switch, and earlier than a leader would.
    ("replan-without-a-joiner", |world, pick| {
        without(world, pick, |_, one, member| {
            member.availability == Availability::Down && one.joining.contains(&member.node_id)
        })
    }),
    ("replan-after-the-switch", |world, pick| {
        let switched = |one: &TransitionState| one.step >= Step::Switched;
        without(world, pick, |_, one, _| switched(one))
    }),
    ("replan-for-nothing", |world, pick| {
        without(world, pick, |ring, one, member| {
            let goes = one.joining.contains(&member.node_id) || ring.buried(&member.node_id);
            member.availability == Availability::Down && one.step < Step::Switched && !goes
        })
    }),
];

fn without(
    world: &World,
    pick: usize,
    fits: impl Fn(&RingState, &TransitionState, &Member) -> bool,
) -> Option<annulus_membership::Command> {
    let (ring, one) = transition(world)?;
    let fitting = ring
        .members
        .values()
        .filter(|member| fits(ring, one, member));
    let node = pick_of(fitting, pick)?.node_id.clone();
    Some(world.on_ring(RingCommand::Replan {
        transition: one.id,
        without: node,
    }))
}
