//! Steps on evidence that is whole but for one thing.

use annulus_membership::{
    Command, Evidence, NodeEvidence, PairEvidence, RingCommand, RingState, TransitionState,
    evidence::{Proof, barrier, slots_root},
};
use annulus_ring::{Epoch, Incarnation, SessionId, Step};

use super::{Forgery, pick_of};
use crate::{moves::transition, world::World};

pub const FORGERIES: &[Forgery] = &[
    ("step-of-another-life", |world, pick| {
        bent(world, |evidence| {
            let said = pick_of(&mut evidence.nodes, pick)?;
            said.incarnation = Incarnation(said.incarnation.0 + 1);
            Some(())
        })
    }),
    ("step-of-another-session", |world, pick| {
        bent(world, |evidence| {
            let said = pick_of(&mut evidence.nodes, pick)?;
            said.session = SessionId(said.session.0 - 1);
            Some(())
        })
    }),
    ("step-of-an-older-epoch", |world, pick| {
        bent(world, |evidence| {
            let said = pick_of(&mut evidence.nodes, pick)?;
            said.acked_epoch = Epoch(said.acked_epoch.0 - 1);
            Some(())
        })
    }),
    ("step-without-a-node", |world, pick| {
        bent(world, |evidence| {
            let at = pick_of(0..evidence.nodes.len(), pick)?;
            evidence.nodes.remove(at);
            Some(())
        })
    }),
    ("step-without-a-pair", |world, pick| {
        bent(world, |evidence| {
            let at = pick_of(0..evidence.pairs.len(), pick)?;
            evidence.pairs.remove(at);
            Some(())
        })
    }),
    ("step-with-fewer-ranges", |world, pick| {
        bent(world, |evidence| {
            let said = pick_of(&mut evidence.pairs, pick)?;
            said.ranges -= 1;
            Some(())
        })
    }),
    ("step-with-unequal-roots", |world, pick| {
        let (_, one) = transition(world)?;
        bent(world, |evidence| {
            let said = pick_of(&mut evidence.pairs, pick)?;
            match one.step {
                // What both say must be equal; where one speaks alone, it must say what it is.
                Step::Copying => said.source_root = Some(said.gainer_root),
                _ => said.gainer_root.0[0] ^= 1,
            }
            Some(())
        })
    }),
    // Before the soak is over, an owner has handed over, a wave has ended, or movement goes on.
    ("step-too-early", |world, _| {
        let (ring, one) = transition(world)?;
        let leaves = |(slot, new): (&annulus_ring::Slot, &annulus_ring::List)| {
            let owner = ring.slots.list(*slot).first();
            owner.is_some_and(|owner| !new.contains(owner))
        };
        let over_at = one.step_since_ms + ring.config.soak_ms;
        let waits = match one.step {
            Step::Prepared => one.target.iter().any(leaves),
            Step::Switched => !one.settle_now && world.state.ring_time_ms < over_at,
            _ => false,
        };
        let paused = ring.paused.is_some() && one.step != Step::FlippingBack;
        let early = waits || paused || ring.wave.is_some();
        early.then(|| advance(world, one, one.step, whole(ring, one)))
    }),
    ("step-from-another", |world, pick| {
        let (ring, one) = transition(world)?;
        let others = Step::ALL.into_iter().filter(|step| *step != one.step);
        let from = pick_of(others, pick)?;
        Some(advance(world, one, from, whole(ring, one)))
    }),
    ("step-of-no-transition", |world, _| {
        let ring = world.ring_state()?;
        let none = RingCommand::Advance {
            transition: ring.last_transition.next(),
            from_step: Step::Writing,
            evidence: Evidence::default(),
        };
        Some(world.on_ring(none))
    }),
];

/// Everything that `decide` can check, as it should be. A lie: nobody said so.
fn whole(ring: &RingState, transition: &TransitionState) -> Evidence {
    let barrier = barrier(ring, transition);
    let nodes = barrier.nodes.iter().map(|(node, wanted)| NodeEvidence {
        node: node.clone(),
        incarnation: ring.members[node].incarnation,
        session: transition.session(),
        acked_epoch: *wanted,
        hit_permille: None,
    });
    let pairs = barrier.pairs.iter().map(|((source, gainer), slots)| {
        let root = slots_root(slots);
        PairEvidence {
            source: source.clone(),
            gainer: gainer.clone(),
            ranges: slots.len() as u32,
            source_root: barrier.proof.both_sides().then_some(root),
            gainer_root: root,
        }
    });
    Evidence {
        nodes: nodes.collect(),
        pairs: match barrier.proof {
            Proof::Nothing => Vec::new(),
            Proof::Staged | Proof::Copied | Proof::Digests | Proof::Joint => pairs.collect(),
        },
    }
}

fn advance(
    world: &World,
    transition: &TransitionState,
    from_step: Step,
    evidence: Evidence,
) -> Command {
    world.on_ring(RingCommand::Advance {
        transition: transition.id,
        from_step,
        evidence,
    })
}

fn bent(world: &World, bend: impl FnOnce(&mut Evidence) -> Option<()>) -> Option<Command> {
    let (ring, one) = transition(world)?;
    let mut evidence = whole(ring, one);
    bend(&mut evidence)?;
    Some(advance(world, one, one.step, evidence))
}
