//! Plans that say nothing, too much, or what does not go together.

use annulus_membership::{Change, Command, RingCommand, RingState, plan::MAX_PLAN_CHANGES};
use annulus_ring::{ASSIGNER_VERSION, NodeId, Weight};

use super::{Forgery, founded, pick_of};
use crate::world::World;

pub const FORGERIES: &[Forgery] = &[
    ("plan-of-nothing", |world, _| {
        let ring = founded(world)?;
        stored(world, ring, Vec::new())
    }),
    ("plan-of-too-much", |world, pick| {
        let ring = founded(world)?;
        let node = pick_of(ring.members.keys(), pick)?;
        let changes = vec![weight(node, 100)?; MAX_PLAN_CHANGES + 1];
        stored(world, ring, changes)
    }),
    // A node cannot come and go in one transition.
    ("plan-that-splits", |world, pick| {
        let ring = founded(world)?;
        let outside = ring.roster.iter().filter(|(node, entry)| {
            entry.registered.is_some() && !ring.members.contains_key(*node)
        });
        let node = pick_of(outside, pick)?.0.clone();
        let after = weight(&node, 50)?;
        let join = Change::Join {
            node,
            zone: None,
            weight: None,
        };
        stored(world, ring, vec![join, after])
    }),
];

fn weight(node: &NodeId, weight: u32) -> Option<Change> {
    Some(Change::Weight {
        node: node.clone(),
        weight: Weight::new(weight)?,
    })
}

fn stored(world: &World, ring: &RingState, changes: Vec<Change>) -> Option<Command> {
    Some(world.on_ring(RingCommand::StorePlan {
        changes,
        base_layout_epoch: ring.layout_epoch,
        assigner_version: ASSIGNER_VERSION,
        target: Vec::new(),
    }))
}
