//! What is kept of plans, and that a plan's parts agree with what came of it.

use annulus_membership::{
    Change, Lack, PlanId, Rejection,
    plan::{MAX_PLAN_CHANGES, MAX_PLANS},
    why_kept,
};
use annulus_ring::{NodeId, Weight};

use super::support::World;

/// Founded on six nodes in three zones; x is registered.
fn world() -> World {
    let mut world = World::new(World::config(4, 3));
    for (at, id) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        world.agent(id, ["z1", "z2", "z3"][at % 3], 100);
    }
    world.found(&["a", "b", "c", "d", "e", "f"], false).unwrap();
    world.agent("x", "z1", 100);
    world.run_to_rest();
    world
}

fn weight(id: &str, weight: u32) -> Change {
    Change::Weight {
        node: NodeId::new(id).unwrap(),
        weight: Weight::new(weight).unwrap(),
    }
}

#[test]
fn the_oldest_plans_make_room() {
    let mut world = world();
    let made = MAX_PLANS as u32 + 3;
    for heavier in 1..=made {
        world.plan(&[weight("a", 100 + heavier)]).unwrap();
    }
    let kept: Vec<PlanId> = world.ring_state().plans.keys().copied().collect();
    let expected: Vec<PlanId> = (4..=u64::from(made)).map(PlanId).collect();
    assert_eq!(kept, expected);
    let first = PlanId(1);
    assert_eq!(
        world.commit(first),
        Err(Rejection::UnknownPlan { plan: first })
    );
    world.replicas_are_equal();
}

#[test]
fn a_plan_of_too_many_changes_is_refused() {
    let mut world = world();
    let many = vec![weight("a", 50); MAX_PLAN_CHANGES + 1];
    let limit = MAX_PLAN_CHANGES;
    let found = limit + 1;
    assert_eq!(
        world.plan(&many),
        Err(Rejection::TooManyPlanned { found, limit })
    );
}

#[test]
fn what_a_plan_foretold_is_what_came() {
    let mut world = world();
    let join = Change::Join {
        node: NodeId::new("x").unwrap(),
        zone: None,
        weight: None,
    };
    let plan = world.plan(&[join, weight("b", 50)]).unwrap();
    let planned = world.ring_state().plans[&plan].clone();
    let told = world.told_plan(plan, Some(1_000));
    world.commit(plan).unwrap();
    world.run_until("the end", |world| world.ring_state().transition.is_none());
    let ring = world.ring_state();
    for change in &planned.target {
        assert_eq!(ring.slots.list(change.slot), change.to.as_slice());
    }
    for holder in &planned.holders {
        let member = &ring.members[&holder.node];
        let found = (member.handle, member.weight, &member.zone);
        assert_eq!(
            found,
            (holder.handle, holder.weight, &holder.zone),
            "{told}"
        );
    }
}

/// Where nothing is lacking the permit comes, and while something is it does not.
#[test]
fn why_copies_are_kept_agrees_with_their_permits() {
    let mut world = world();
    world.join("x").unwrap();
    world.run_until("the end", |world| world.ring_state().transition.is_none());
    let mut seen_due = false;
    for _ in 0..400 {
        let ring = world.ring_state();
        let told = why_kept(&world.state, ring, &world.reports, None, None);
        let due: u32 = told
            .iter()
            .flat_map(|kept| &kept.waits)
            .filter(|(lack, _)| *lack == Lack::Due)
            .map(|(_, ranges)| ranges)
            .sum();
        let permits = world.promises.permits;
        world.leader_acts();
        if world.promises.permits > permits {
            assert!(due > 0, "a permit that was not foretold: {told:?}");
            seen_due = true;
        }
        let ids: Vec<NodeId> = world.nodes.keys().cloned().collect();
        ids.iter().for_each(|id| world.node_acts(id));
        world.now_ms += 100;
    }
    assert!(seen_due && world.ring_state().retained.is_empty());
    let none = why_kept(&world.state, world.ring_state(), &world.reports, None, None);
    assert_eq!(none, []);
}
