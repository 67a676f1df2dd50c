//! Plans: kept, dropped, and committed whole or not at all.

use annulus_ring::{Epoch, RingName, SlotChange};

use super::{Decision, start, target};
use crate::{
    Change, ChangeId, Event, Plan, PlanId, Rejection, RingState,
    plan::{holders, nothing_pending, plannable, whole},
};

pub(super) fn store(
    name: &RingName,
    ring: &RingState,
    changes: &[Change],
    base_layout_epoch: Epoch,
    assigner_version: u32,
    lists: &[SlotChange],
) -> Result<Decision, Rejection> {
    plannable(name, ring, changes)?;
    if base_layout_epoch != ring.layout_epoch {
        return Err(Rejection::StaleTarget);
    }
    let fold = whole(ring, changes)?;
    let (rules, all_change) = (fold.rules(ring), fold.requorum(ring).is_some());
    target::check(ring, &fold.candidates, &rules, all_change, lists)?;
    let plan = Plan {
        changes: changes.to_vec(),
        base_layout_epoch,
        assigner_version,
        target: lists.to_vec(),
        holders: holders(ring, &fold),
        // Stamped when it is kept.
        created_at_ms: 0,
        committed: Vec::new(),
    };
    Ok(vec![Event::PlanStored {
        id: PlanId(ring.last_plan.0 + 1),
        plan,
    }]
    .into())
}

fn kept(ring: &RingState, id: PlanId) -> Result<&Plan, Rejection> {
    ring.plans
        .get(&id)
        .ok_or(Rejection::UnknownPlan { plan: id })
}

pub(super) fn commit(name: &RingName, ring: &RingState, id: PlanId) -> Result<Decision, Rejection> {
    let plan = kept(ring, id)?;
    if let Some(first) = plan.committed.first() {
        return Err(Rejection::PlanCommitted {
            plan: id,
            change: *first,
        });
    }
    nothing_pending(ring)?;
    if plan.base_layout_epoch != ring.layout_epoch {
        return Err(Rejection::StalePlan {
            plan: id,
            planned: plan.base_layout_epoch,
            found: ring.layout_epoch,
        });
    }
    start::may_start(name, ring)?;
    // What preflight looks at beside the layout: who is down, and how newcomers registered.
    let fold = whole(ring, &plan.changes)?;
    let found = holders(ring, &fold);
    let other = plan.holders.iter().find(|holder| !found.contains(holder));
    if let Some(other) = other {
        return Err(Rejection::PlanOutdated {
            plan: id,
            node: other.node.clone(),
        });
    }
    let changes: Vec<ChangeId> = fold.accepted.clone();
    let accepted = changes
        .iter()
        .zip(&plan.changes)
        .map(|(id, change)| Event::ChangeAccepted {
            id: *id,
            change: change.clone(),
            after: None,
        });
    let mut events: Vec<Event> = accepted.collect();
    events.push(start::started(ring, fold, &changes, &plan.target)?);
    events.push(Event::PlanCommitted { id, changes });
    Ok(events.into())
}

pub(super) fn drop(ring: &RingState, id: PlanId) -> Result<Decision, Rejection> {
    kept(ring, id)?;
    Ok(vec![Event::PlanDropped { id }].into())
}
