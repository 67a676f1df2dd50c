//! What other quorums ask of members that gain nothing: proof before the switch, and an ear on the
//! way back.

use super::support::World;
use annulus_membership::{Change, ChangeId, RingCommand, due, waiting_for};
use annulus_ring::{NodeId, Replication, SessionId, Step};

fn world(rf: u8) -> World {
    let mut world = World::new(World::config(2, rf));
    let nodes = ["a", "b", "c", "d", "e"];
    for (at, id) in nodes.into_iter().enumerate() {
        world.agent(id, ["z1", "z2", "z3"][at % 3], 100);
    }
    world.found(&nodes, true).unwrap();
    world.run_to_rest();
    world
}

fn replication(world: &mut World, rf: u8, w: u8, r: u8) -> ChangeId {
    let to = Replication { rf, w, r };
    let accept = false;
    world.change(Change::Replication { to, accept }).unwrap()
}

fn at(world: &World, step: Step) -> bool {
    let running = world.ring_state().transition.as_ref();
    running.is_some_and(|transition| transition.step == step)
}

/// Everybody adopts; of what they report, `said` is told.
fn report(world: &mut World, told: impl Fn(&NodeId) -> bool, live: bool) {
    let ids: Vec<NodeId> = world.nodes.keys().cloned().collect();
    for id in ids.iter().filter(|id| told(id)) {
        world.node_adopts(id);
        let mut report = world.node_report(id);
        report
            .slots
            .retain(|slot| live || slot.session != SessionId(0));
        world.reports.take(id, report, world.now_ms);
    }
}

fn next(world: &mut World) -> Option<RingCommand> {
    let ring = world.ring.clone();
    due(
        &world.state,
        &ring,
        &mut world.reports.clone(),
        world.now_ms,
    )
}

/// Five copies become three: a write that a and two that leave hold is acknowledged, and would be
/// missed by a read of the two that stay beside a.
#[test]
fn members_that_stay_prove_what_they_hold_before_fewer_copies_are_read() {
    for (rf, to) in [(5, (3, 2, 2)), (3, (3, 3, 1))] {
        let mut world = world(rf);
        replication(&mut world, to.0, to.1, to.2);
        world.run_until("joint", |world| at(world, Step::Joint));
        report(&mut world, |_| true, false);
        assert_eq!(next(&mut world), None, "nobody proved anything");
        let waits = waiting_for(
            &world.state,
            world.ring_state(),
            &world.reports,
            world.now_ms,
        );
        let told = waits
            .iter()
            .any(|line| line.contains("merge the last writes of"));
        assert!(told, "{waits:?}");
        report(&mut world, |_| true, true);
        let advance = next(&mut world).expect("proven");
        let RingCommand::Advance { evidence, .. } = &advance else {
            panic!("{advance:?}");
        };
        // What the leader leaves out, `decide` misses.
        let mut less = evidence.clone();
        less.pairs.pop();
        let transition = world.ring_state().transition.as_ref().unwrap().id;
        let from_step = Step::Joint;
        let refused = world
            .ring_command(RingCommand::Advance {
                transition,
                from_step,
                evidence: less,
            })
            .unwrap_err();
        assert_eq!(refused.name(), "Evidence");
        world.ring_command(advance).unwrap();
        assert!(at(&world, Step::Switched));
    }
}

/// Gainers bring as much as losers take: nothing more is asked.
#[test]
fn members_that_stay_prove_nothing_where_the_new_lists_hold_enough_anyway() {
    let mut world = world(3);
    replication(&mut world, 5, 3, 3);
    world.run_until("joint", |world| at(world, Step::Joint));
    report(&mut world, |_| true, false);
    assert!(matches!(
        next(&mut world),
        Some(RingCommand::Advance { .. })
    ));
}

/// A member that answered a read by the new r must not do so after the old w counts again.
#[test]
fn the_way_back_waits_for_everybody_who_may_have_read_by_the_new_quorums() {
    let mut world = world(3);
    let change = replication(&mut world, 3, 3, 1);
    world.run_until("switched", |world| at(world, Step::Switched));
    report(&mut world, |_| true, true);
    world.ring_command(RingCommand::Abort { change }).unwrap();
    let list = world.ring_state().slots.list(annulus_ring::Slot(0));
    let silent = world
        .ring_state()
        .by_handle(list[2])
        .unwrap()
        .node_id
        .clone();
    report(&mut world, |id| *id != silent, true);
    assert_eq!(next(&mut world), None, "{silent} has not heard of it");
    report(&mut world, |_| true, true);
    assert!(matches!(
        next(&mut world),
        Some(RingCommand::Advance { .. })
    ));
    world.run_to_rest();
    assert_eq!(world.ring_state().config.replication.w, 2);
}
