//! What a failover asks for, and each reason that refuses it.

use annulus_membership::{
    HandOver, NodeEvidence, Rejection, RingCommand, WaveFault, WaveId, waiting_for,
};
use annulus_ring::{Availability, Epoch, Incarnation, NodeId, SessionId, Slot};

use super::support::World;

fn id(node: &str) -> NodeId {
    NodeId::new(node).unwrap()
}

/// Six nodes in three zones; `a` is committed as down.
fn a_is_down() -> World {
    let mut world = World::new(World::config(3, 3));
    for (node, zone) in [
        ("a", "z1"),
        ("b", "z1"),
        ("c", "z2"),
        ("d", "z2"),
        ("e", "z3"),
        ("f", "z3"),
    ] {
        world.agent(node, zone, 100);
    }
    world.found(&["a", "b", "c", "d", "e", "f"], false).unwrap();
    let ids: Vec<NodeId> = world.nodes.keys().cloned().collect();
    ids.iter().for_each(|id| world.node_acts(id));
    say(&mut world, "a", Availability::Down);
    world
}

fn say(world: &mut World, node: &str, availability: Availability) {
    let incarnation = world.ring_state().members[&id(node)].incarnation;
    let node = id(node);
    let said = RingCommand::Availability {
        node,
        incarnation,
        availability,
    };
    world.ring_command(said).unwrap();
}

/// The slots that `a` owns, and who is second and third in the first of them.
fn owned(world: &World) -> (Vec<Slot>, NodeId, NodeId) {
    let ring = world.ring_state();
    let own = ring.members[&id("a")].handle;
    let slots: Vec<Slot> = ring
        .slots
        .slots()
        .filter(|slot| ring.slots.list(*slot)[0] == own)
        .collect();
    let list = ring.slots.list(slots[0]);
    let name = |at: usize| ring.by_handle(list[at]).unwrap().node_id.clone();
    (slots.clone(), name(1), name(2))
}

fn fault(result: Result<(), Rejection>) -> WaveFault {
    match result {
        Err(Rejection::BadWave { reason, .. }) => reason,
        other => panic!("expected a refused wave, got {other:?}"),
    }
}

fn hand_over(world: &mut World, hand_over: HandOver) -> Result<(), Rejection> {
    world.ring_command(RingCommand::HandOver(hand_over))
}

fn intend(world: &mut World, successor: &NodeId, slots: &[Slot]) -> Result<(), Rejection> {
    let intent = HandOver::Intend {
        owner: id("a"),
        successor: successor.clone(),
        slots: slots.to_vec(),
    };
    hand_over(world, intent)
}

fn fence(world: &World, node: &NodeId) -> NodeEvidence {
    let ring = world.ring_state();
    NodeEvidence {
        node: node.clone(),
        incarnation: ring.members[node].incarnation,
        session: SessionId(0),
        acked_epoch: ring.epoch,

        hit_permille: None,
    }
}

fn succeed(
    world: &mut World,
    fenced: Vec<NodeEvidence>,
    read: &[&NodeId],
) -> Result<(), Rejection> {
    let wave = world.ring_state().last_wave;
    let read = read.iter().map(|node| (*node).clone()).collect();
    hand_over(world, HandOver::Succeed { wave, fenced, read })
}

#[test]
fn an_intent_is_refused_by_name() {
    let mut world = a_is_down();
    let (slots, second, _) = owned(&world);
    let one = &slots[..1];
    say(&mut world, "a", Availability::Up);
    assert_eq!(fault(intend(&mut world, &second, one)), WaveFault::OwnerUp);
    say(&mut world, "a", Availability::Down);
    say(&mut world, second.as_str(), Availability::Down);
    let refused = fault(intend(&mut world, &second, one));
    assert_eq!(refused, WaveFault::SuccessorDown);
    say(&mut world, second.as_str(), Availability::Up);
    assert_eq!(fault(intend(&mut world, &second, &[])), WaveFault::Order);
    let twice = [one[0], one[0]];
    assert_eq!(fault(intend(&mut world, &second, &twice)), WaveFault::Order);
    let beyond = fault(intend(&mut world, &second, &[Slot(8)]));
    assert_eq!(beyond, WaveFault::Order);
    let foreign = world.ring_state().slots.slots();
    let foreign = foreign.into_iter().find(|slot| !slots.contains(slot));
    let refused = fault(intend(&mut world, &second, &[foreign.unwrap()]));
    assert_eq!(refused, WaveFault::NotOwner);
    let itself = fault(intend(&mut world, &id("a"), one));
    assert_eq!(itself, WaveFault::SuccessorDown, "the owner is down");
    let ring = world.ring_state();
    let outside = ring
        .members
        .values()
        .find(|member| !ring.slots.list(one[0]).contains(&member.handle));
    let outside = outside.unwrap().node_id.clone();
    let refused = fault(intend(&mut world, &outside, one));
    assert_eq!(refused, WaveFault::NotMember);
    assert!(matches!(
        intend(&mut world, &id("nobody"), one),
        Err(Rejection::NotMember { .. })
    ));
    intend(&mut world, &second, one).unwrap();
    assert!(matches!(
        intend(&mut world, &second, one),
        Err(Rejection::WaveRuns { .. })
    ));
}

#[test]
fn with_w_of_one_no_other_member_can_stand_for_the_owner() {
    let mut config = World::config(2, 3);
    config.replication.w = 1;
    config.replication.r = 3;
    let mut world = World::new(config);
    for (node, zone) in [("a", "z1"), ("b", "z2"), ("c", "z3")] {
        world.agent(node, zone, 100);
    }
    world.found(&["a", "b", "c"], true).unwrap();
    say(&mut world, "a", Availability::Down);
    let (slots, second, _) = owned(&world);
    let refused = fault(intend(&mut world, &second, &slots[..1]));
    let quorum = WaveFault::Quorum {
        found: 2,
        needed: 3,
    };
    assert_eq!(refused, quorum);
}

/// Stories F2, F3, F4: whose refusal counts, and that tails are read after it.
#[test]
fn a_successor_without_the_tails_of_enough_members_is_refused() {
    let mut world = a_is_down();
    let (slots, second, third) = owned(&world);
    let one = &slots[..1];
    intend(&mut world, &second, one).unwrap();
    let (own, other) = (fence(&world, &second), fence(&world, &third));
    let short = WaveFault::Quorum {
        found: 1,
        needed: 2,
    };
    // Its own alone; another's that it did not read.
    assert_eq!(fault(succeed(&mut world, vec![own.clone()], &[])), short);
    let unread = succeed(&mut world, vec![own.clone(), other.clone()], &[]);
    assert_eq!(fault(unread), short);
    // Refused since before the intent, or in another life.
    let early = NodeEvidence {
        acked_epoch: Epoch(other.acked_epoch.0 - 1),
        ..other.clone()
    };
    let refused = succeed(&mut world, vec![own.clone(), early], &[&third]);
    assert_eq!(fault(refused), short);
    let reborn = NodeEvidence {
        incarnation: Incarnation(9),
        ..other.clone()
    };
    let refused = succeed(&mut world, vec![own.clone(), reborn], &[&third]);
    assert_eq!(fault(refused), WaveFault::Incarnation);
    // One node twice is one; the successor refuses too.
    let twice = succeed(&mut world, vec![own.clone(), own.clone()], &[&third]);
    assert_eq!(fault(twice), short);
    let absent = succeed(&mut world, vec![other.clone()], &[&third]);
    assert_eq!(fault(absent), WaveFault::NotHeld);
    // A planned commit does not end it, nor the other way round.
    let wave = world.ring_state().last_wave;
    let planned = HandOver::Commit {
        wave,
        sealed: vec![annulus_ring::Position::default()],
        confirmed: vec![annulus_ring::Position::default()],
        owner_incarnation: Incarnation(1),
        successor_incarnation: Incarnation(1),
    };
    let refused = hand_over(&mut world, planned);
    assert_eq!(fault(refused), WaveFault::OtherKind);
    let refused = hand_over(
        &mut world,
        HandOver::Succeed {
            wave: WaveId(wave.0 + 1),
            fenced: vec![own.clone(), other.clone()],
            read: vec![third.clone()],
        },
    );
    assert!(matches!(refused, Err(Rejection::NoWave { .. })));

    let (before, reign) = {
        let ring = world.ring_state();
        (ring.epoch, ring.reigns[one[0].index()])
    };
    succeed(&mut world, vec![own, other], &[&third]).unwrap();
    let ring = world.ring_state();
    let owner = ring.by_handle(ring.slots.list(one[0])[0]).unwrap();
    assert_eq!(owner.node_id, second);
    assert_eq!(ring.epoch, before.next(), "one epoch");
    assert_eq!(ring.reigns[one[0].index()], ring.epoch, "a reign begins");
    assert!(reign < ring.epoch && ring.wave.is_none());
}

#[test]
fn an_intent_changes_its_ranges_for_writes_and_no_others() {
    let mut world = a_is_down();
    let (slots, second, _) = owned(&world);
    let before = world.ring_state().clone();
    intend(&mut world, &second, &slots[..1]).unwrap();
    let ring = world.ring_state();
    assert_eq!(ring.epoch, before.epoch.next());
    for slot in ring.slots.slots() {
        let changed = ring.last_changes[slot.index()] == ring.epoch;
        assert_eq!(changed, slot == slots[0], "slot {slot}");
        assert_eq!(ring.reigns[slot.index()], before.reigns[slot.index()]);
        assert_eq!(ring.slots.list(slot), before.slots.list(slot));
    }
}

#[test]
fn what_cannot_fail_over_is_named() {
    let mut world = a_is_down();
    let (_, second, _) = owned(&world);
    world.now_ms += 20_000;
    // Only the nodes that share no range of a with `second` speak on.
    let ids: Vec<NodeId> = world.nodes.keys().cloned().collect();
    let speaking = ids
        .iter()
        .filter(|node| **node != id("a") && **node != second);
    speaking.for_each(|node| world.node_acts(node));
    world.reports.unlink(&second);
    world.leader_acts();
    let waits = waiting_for(
        &world.state,
        world.ring_state(),
        &world.reports,
        world.now_ms,
    );
    assert!(
        waits
            .iter()
            .any(|one| one.contains("take no writes") && one.contains("start a")),
        "{waits:?}"
    );
}
