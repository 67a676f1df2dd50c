//! Ends of conversions that are none, or not yet.

use annulus_membership::{Command, NodeEvidence, RingCommand, RingState};
use annulus_ring::{Epoch, Incarnation, SessionId};

use super::{Forgery, founded, pick_of};
use crate::world::World;

pub const FORGERIES: &[Forgery] = &[
    ("finish-of-no-conversion", |world, _| {
        let ring = founded(world)?;
        let begun = ring.epoch.next();
        let evidence = Vec::new();
        Some(world.on_ring(RingCommand::FinishConversion { begun, evidence }))
    }),
    ("abort-of-no-conversion", |world, _| {
        let ring = founded(world)?;
        let begun = ring.epoch.next();
        Some(world.on_ring(RingCommand::AbortConversion { begun }))
    }),
    ("abort-of-a-conversion", |world, _| {
        let begun = founded(world)?.conversion.as_ref()?.begun;
        Some(world.on_ring(RingCommand::AbortConversion { begun }))
    }),
    ("finish-without-a-member", |world, pick| {
        finish(world, |evidence| {
            let at = pick_of(0..evidence.len(), pick)?;
            evidence.remove(at);
            Some(())
        })
    }),
    ("finish-of-another-life", |world, pick| {
        finish(world, |evidence| {
            let said = pick_of(evidence, pick)?;
            said.incarnation = Incarnation(said.incarnation.0 + 1);
            Some(())
        })
    }),
    ("finish-from-before", |world, pick| {
        finish(world, |evidence| {
            let said = pick_of(evidence, pick)?;
            said.acked_epoch = Epoch(said.acked_epoch.0 - 1);
            Some(())
        })
    }),
];

fn finish(
    world: &World,
    bend: impl FnOnce(&mut Vec<NodeEvidence>) -> Option<()>,
) -> Option<Command> {
    let ring: &RingState = founded(world)?;
    let begun = ring.conversion.as_ref()?.begun;
    let said = ring.members.values().map(|member| NodeEvidence {
        node: member.node_id.clone(),
        incarnation: member.incarnation,
        session: SessionId(0),
        acked_epoch: begun,
        hit_permille: None,
    });
    let mut evidence: Vec<NodeEvidence> = said.collect();
    bend(&mut evidence)?;
    Some(world.on_ring(RingCommand::FinishConversion { begun, evidence }))
}
