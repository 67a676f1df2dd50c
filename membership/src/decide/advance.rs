//! From one step of a transition to the next, on evidence (EVIDENCE).

use std::collections::BTreeSet;

use annulus_ring::{Handle, NodeId, SessionId, Step, TransitionId};

use super::Decision;
use crate::{
    Event, Evidence, EvidenceFault, Rejection, RingState, TransitionState, bait, cache,
    evidence::{self, Barrier, Proof},
};

pub(super) fn decide(
    ring: &RingState,
    now_ms: u64,
    id: TransitionId,
    from_step: Step,
    evidence: &Evidence,
) -> Result<Decision, Rejection> {
    let transition = match &ring.transition {
        Some(transition) if transition.id == id => transition,
        _ => return Err(Rejection::NoTransition { transition: id }),
    };
    if transition.step != from_step {
        return Err(Rejection::WrongStep {
            expected: from_step,
            found: transition.step,
        });
    }
    // A flip back is no movement but its undoing.
    if from_step != Step::FlippingBack {
        super::brake::moves(ring)?;
    }
    if let Some(wave) = &ring.wave {
        return Err(Rejection::WaveRuns { wave: wave.id });
    }
    if from_step == Step::Prepared {
        let ranges = leaving_owners(ring, transition);
        if ranges > 0 && !bait::on("step-before-hand-over") {
            return Err(Rejection::OwnersLeave { ranges });
        }
    }
    if from_step == Step::Switched {
        let left_ms = soak_left_ms(ring, transition, now_ms);
        if left_ms > 0 && !bait::on("end-before-soak") {
            return Err(Rejection::Soaking { left_ms });
        }
    }
    let hits = |node: &NodeId| {
        let said = evidence.nodes.iter().find(|said| said.node == *node);
        said.and_then(|said| said.hit_permille)
    };
    let barrier = cache::barrier(ring, transition, now_ms, hits);
    check(ring, transition.session(), &barrier, evidence)
        .map_err(|reason| Rejection::Evidence { reason })?;
    let event = match (from_step.next(), transition.withdrawn) {
        (Some(step), _) => Event::StepEntered { step },
        (None, Some(change)) => Event::TransitionAborted {
            change: Some(change),
        },
        (None, None) => Event::Settled,
    };
    let mut events = vec![event];
    if from_step == Step::Switched {
        // Whoever drains and leaves no copy behind is gone in the same epoch.
        let losers: BTreeSet<Handle> = transition
            .target
            .keys()
            .flat_map(|slot| ring.sets(*slot).losers())
            .collect();
        for node in &transition.draining {
            let keeps = ring
                .members
                .get(node)
                .is_some_and(|one| losers.contains(&one.handle))
                || ring.retained.iter().any(|copies| copies.node == *node);
            if !keeps || ring.buried(node) {
                events.push(Event::MemberRemoved { node: node.clone() });
            }
        }
    }
    Ok(events.into())
}

pub(super) fn settle(ring: &RingState) -> Result<Decision, Rejection> {
    match &ring.transition {
        Some(transition) if transition.step == Step::Switched => {
            Ok(vec![Event::SettleAsked].into())
        }
        _ => Err(Rejection::NothingToSettle),
    }
}

/// Ring time until the soak is over.
pub(crate) fn soak_left_ms(ring: &RingState, transition: &TransitionState, now_ms: u64) -> u64 {
    // Where no list changed there is nothing to go back to.
    if transition.settle_now || transition.target.is_empty() {
        return 0;
    }
    (transition.step_since_ms + ring.config.soak_ms).saturating_sub(now_ms)
}

/// Ranges whose owner leaves and has not handed over yet. None of a cache ring, where the switch
/// itself makes the first of the new list owner.
pub(crate) fn leaving_owners(ring: &RingState, transition: &TransitionState) -> u32 {
    if ring.config.is_cache() {
        return 0;
    }
    let leaving = transition.target.iter().filter(|(slot, new)| {
        ring.slots
            .list(**slot)
            .first()
            .is_some_and(|owner| !new.contains(owner))
    });
    u32::try_from(leaving.count()).unwrap_or(u32::MAX)
}

fn check(
    ring: &RingState,
    session: SessionId,
    barrier: &Barrier,
    evidence: &Evidence,
) -> Result<(), EvidenceFault> {
    let named = evidence.nodes.iter().map(|node| &node.node);
    if !named.eq(barrier.nodes.keys()) {
        return Err(EvidenceFault::Nodes);
    }
    for node in &evidence.nodes {
        let current = ring
            .members
            .get(&node.node)
            .map(|member| member.incarnation);
        if current != Some(node.incarnation) && !bait::on("evidence-of-any-life") {
            return Err(EvidenceFault::Incarnation(node.node.clone()));
        }
        if node.session != session && !bait::on("evidence-of-any-session") {
            return Err(EvidenceFault::Session(node.node.clone()));
        }
        let wanted = barrier.nodes[&node.node];
        if node.acked_epoch < wanted && !bait::on("evidence-of-any-epoch") {
            return Err(EvidenceFault::Epoch {
                node: node.node.clone(),
                found: node.acked_epoch,
                wanted,
            });
        }
    }
    if barrier.proof == Proof::Nothing {
        return if evidence.pairs.is_empty() {
            Ok(())
        } else {
            Err(EvidenceFault::Pairs)
        };
    }
    if evidence.pairs.len() != barrier.pairs.len() {
        return Err(EvidenceFault::Pairs);
    }
    for (pair, ((source, gainer), slots)) in evidence.pairs.iter().zip(&barrier.pairs) {
        let counted = usize::try_from(pair.ranges).is_ok_and(|ranges| ranges == slots.len());
        if pair.source != *source || pair.gainer != *gainer || !counted {
            return Err(EvidenceFault::Pairs);
        }
        let agree = match barrier.proof {
            Proof::Nothing => true,
            Proof::Staged => pair.gainer_root == evidence::slots_root(slots),
            Proof::Copied => pair.source_root.is_none(),
            Proof::Digests | Proof::Joint => pair.source_root == Some(pair.gainer_root),
        };
        if !agree && !bait::on("evidence-of-unequal-roots") {
            return Err(EvidenceFault::Roots {
                source_node: source.clone(),
                gainer: gainer.clone(),
            });
        }
    }
    Ok(())
}
