//! How acknowledged writes got lost in a model of earlier rules, where a decision of the leader or of
//! `decide` was at fault; the rest is in `agent/tests/moving/stories.rs`. And what evidence must
//! say, each rule by itself.
//!
//! a, b and c hold everything, g takes the place of c.

use annulus_membership::{
    Burial, Change, Evidence, EvidenceFault, HandOver, NodeEvidence, Rejection, RingCommand,
    SlotReport, WaveFault, due, waiting_for,
};
use annulus_ring::{Availability, NodeId, Position, Replication, SessionId, Slot, Step};

use super::support::World;

fn id(node: &str) -> NodeId {
    NodeId::new(node).unwrap()
}

fn founded(w: u8, r: u8) -> World {
    let mut config = World::config(1, 3);
    config.replication = Replication { rf: 3, w, r };
    let mut world = World::new(config);
    for (node, zone) in [("a", "z1"), ("b", "z2"), ("c", "z3"), ("g", "z3")] {
        world.agent(node, zone, 100);
    }
    world.found(&["a", "b", "c"], false).unwrap();
    acts(&mut world, &["a", "b", "c", "g"]);
    world
}

/// The replacement has come to this step, and nobody has acted on it yet.
fn replacing(step: Step) -> World {
    let mut world = founded(2, 2);
    replace(&mut world);
    world.run_until(step.as_str(), |world| at(world) == Some(step));
    world
}

fn replace(world: &mut World) {
    let (node, by, burial) = (id("c"), id("g"), None);
    world.change(Change::Replace { node, by, burial }).unwrap();
}

fn at(world: &World) -> Option<Step> {
    let transition = world.ring_state().transition.as_ref();
    transition.map(|transition| transition.step)
}

fn acts(world: &mut World, nodes: &[&str]) {
    nodes.iter().for_each(|node| world.node_acts(&id(node)));
}

/// The node acts, and its report says something else of each range.
fn says(world: &mut World, node: &str, change: impl Fn(&mut SlotReport)) {
    world.node_adopts(&id(node));
    let mut report = world.node_report(&id(node));
    report.slots.iter_mut().for_each(change);
    world.reports.take(&id(node), report, world.now_ms);
}

/// Seconds go by, and these nodes are silent.
fn pass(world: &mut World, seconds: u64, silent: &[&str]) {
    for _ in 0..seconds {
        world.now_ms += 1_000;
        let all: Vec<NodeId> = world.nodes.keys().cloned().collect();
        let speaking = all.iter().filter(|node| !silent.contains(&node.as_str()));
        speaking.for_each(|node| world.node_acts(node));
        world.leader_acts();
    }
}

/// The leader's next command as it would be proposed now.
fn proposal(world: &World) -> Option<RingCommand> {
    let mut reports = world.reports.clone();
    due(&world.state, &world.ring, &mut reports, world.now_ms)
}

fn availability(world: &mut World, node: &str, availability: Availability) {
    let incarnation = world.ring_state().members[&id(node)].incarnation;
    let node = id(node);
    let said = RingCommand::Availability {
        node,
        incarnation,
        availability,
    };
    world.ring_command(said).unwrap();
}

fn owned_by(world: &World, node: &str) -> Vec<Slot> {
    let ring = world.ring_state();
    let owner = ring.members[&id(node)].handle;
    let owns = |slot: &Slot| ring.sets(*slot).owner() == Some(owner);
    ring.slots.slots().filter(owns).collect()
}

fn intend(
    world: &mut World,
    owner: &str,
    successor: &str,
    slots: &[Slot],
) -> Result<(), Rejection> {
    world.ring_command(RingCommand::HandOver(HandOver::Intend {
        owner: id(owner),
        successor: id(successor),
        slots: slots.to_vec(),
    }))
}

/// A member's refusal, as of the present epoch.
fn refusal(world: &World, node: &str) -> NodeEvidence {
    let ring = world.ring_state();
    NodeEvidence {
        node: id(node),
        incarnation: ring.members[&id(node)].incarnation,
        session: SessionId(0),
        acked_epoch: ring.epoch,

        hit_permille: None,
    }
}

fn succeed(world: &mut World, fenced: Vec<NodeEvidence>, read: &[&str]) -> Result<(), Rejection> {
    let wave = world.ring_state().last_wave;
    let read = read.iter().map(|node| id(node)).collect();
    world.ring_command(RingCommand::HandOver(HandOver::Succeed {
        wave,
        fenced,
        read,
    }))
}

/// All of it, as of now.
fn fail_over(world: &mut World, owner: &str, successor: &str, other: &str, slots: &[Slot]) {
    availability(world, owner, Availability::Down);
    intend(world, owner, successor, slots).unwrap();
    let fenced = vec![refusal(world, successor), refusal(world, other)];
    succeed(world, fenced, &[other]).unwrap();
    availability(world, owner, Availability::Up);
}

fn fault(refused: Result<(), Rejection>) -> WaveFault {
    match refused {
        Err(Rejection::BadWave { reason, .. }) => reason,
        other => panic!("expected a refused wave, got {other:?}"),
    }
}

const SHORT: WaveFault = WaveFault::Quorum {
    found: 1,
    needed: 2,
};

/// J of the reign before is nobody's J, and evidence of before is refused by every server, also
/// when the same node owns again.
#[test]
fn f03_a_failover_voids_j_and_the_evidence_of_before() {
    let mut world = replacing(Step::Joint);
    acts(&mut world, &["a", "b", "c", "g"]);
    let switch = proposal(&world).expect("everything for the switch was said");
    assert!(matches!(switch, RingCommand::Advance { .. }));
    let slots = owned_by(&world, "a");
    fail_over(&mut world, "a", "b", "c", &slots);
    // The new owner has not told its J, nor has g joined the reign.
    assert_eq!(proposal(&world), None);
    assert!(world.ring_command(switch.clone()).is_err());
    fail_over(&mut world, "b", "a", "c", &slots);
    assert_eq!(proposal(&world), None);
    let refused = world.ring_command(switch).unwrap_err();
    let Rejection::Evidence { reason } = refused else {
        panic!("{refused:?}")
    };
    assert!(matches!(reason, EvidenceFault::Epoch { .. }), "{reason:?}");
    acts(&mut world, &["a", "b", "c", "g"]);
    world.leader_acts();
    assert_eq!(at(&world), Some(Step::Switched));
}

/// c and b refused a; that says nothing of writes of b.
#[test]
fn f03_refusals_of_one_reign_do_not_count_in_the_next() {
    let mut world = replacing(Step::Joint);
    let slots = owned_by(&world, "a");
    availability(&mut world, "a", Availability::Down);
    intend(&mut world, "a", "b", &slots).unwrap();
    let (own, other) = (refusal(&world, "b"), refusal(&world, "c"));
    succeed(&mut world, vec![own, other.clone()], &["c"]).unwrap();
    availability(&mut world, "a", Availability::Up);
    availability(&mut world, "b", Availability::Down);
    intend(&mut world, "b", "a", &slots).unwrap();
    let own = refusal(&world, "a");
    let refused = succeed(&mut world, vec![own.clone(), other], &["c"]);
    assert_eq!(fault(refused), SHORT);
    let anew = refusal(&world, "c");
    succeed(&mut world, vec![own, anew], &["c"]).unwrap();
}

/// Whoever owns while a range moves is of both lists: N can be switched to, O can be gone back to.
#[test]
fn f03_no_failover_leaves_an_owner_of_one_list_alone() {
    for step in [Step::Writing, Step::Joint, Step::Switched] {
        let mut world = replacing(step);
        let slots = owned_by(&world, "a");
        availability(&mut world, "a", Availability::Down);
        let gainer = fault(intend(&mut world, "a", "g", &slots));
        assert_eq!(gainer, WaveFault::NotMember, "{step}");
        let loser = fault(intend(&mut world, "a", "c", &slots));
        assert_eq!(loser, WaveFault::NotInTarget, "{step}");
        intend(&mut world, "a", "b", &slots).unwrap();
    }
    // The same after a way back: it leaves no owner that O does not know.
    let mut world = replacing(Step::Switched);
    let change = *world.ring_state().changes.keys().next().unwrap();
    world.ring_command(RingCommand::Abort { change }).unwrap();
    let slots = owned_by(&world, "a");
    availability(&mut world, "a", Availability::Down);
    let gainer = fault(intend(&mut world, "a", "g", &slots));
    assert_eq!(gainer, WaveFault::NotMember);
}

/// In steps 1 to 7 every acknowledgement has two of O, from the end on two of N.
#[test]
fn f05_whose_refusal_counts_follows_the_list_that_acknowledges() {
    let mut world = replacing(Step::Switched);
    let slots = owned_by(&world, "a");
    availability(&mut world, "a", Availability::Down);
    intend(&mut world, "a", "b", &slots).unwrap();
    let of_n = vec![refusal(&world, "b"), refusal(&world, "g")];
    assert_eq!(fault(succeed(&mut world, of_n, &["g"])), SHORT);
    let of_o = vec![refusal(&world, "b"), refusal(&world, "c")];
    succeed(&mut world, of_o, &["c"]).unwrap();

    let mut world = replacing(Step::Switched);
    world.run_until("the end", |world| at(world).is_none());
    let slots = owned_by(&world, "a");
    availability(&mut world, "a", Availability::Down);
    intend(&mut world, "a", "b", &slots).unwrap();
    // Still a member, with a copy that is retained.
    let of_o = vec![refusal(&world, "b"), refusal(&world, "c")];
    assert_eq!(fault(succeed(&mut world, of_o, &["c"])), SHORT);
    let of_n = vec![refusal(&world, "b"), refusal(&world, "g")];
    succeed(&mut world, of_n, &["g"]).unwrap();
}

/// c is silent, and may answer reads of the old list for ever.
#[test]
fn f06_the_end_waits_for_a_loser_that_is_silent() {
    let mut world = replacing(Step::Switched);
    pass(&mut world, 60, &["c"]);
    assert_eq!(at(&world), Some(Step::Switched));
    let ring = world.ring_state();
    assert_eq!(ring.members[&id("c")].availability, Availability::Down);
    let waits = waiting_for(&world.state, ring, &world.reports, world.now_ms);
    assert!(
        waits.iter().any(|one| one.contains("waiting for c")),
        "{waits:?}"
    );
    // A leader that thinks otherwise is refused.
    let transition = ring.transition.as_ref().unwrap();
    let living = ["a", "b", "g"].map(|node| NodeEvidence {
        session: transition.session(),
        ..refusal(&world, node)
    });
    let advance = RingCommand::Advance {
        transition: transition.id,
        from_step: Step::Switched,
        evidence: Evidence {
            nodes: living.to_vec(),
            pairs: Vec::new(),
        },
    };
    let reason = EvidenceFault::Nodes;
    let refused = world.ring_command(advance);
    assert_eq!(refused, Err(Rejection::Evidence { reason }));
    pass(&mut world, 2, &[]);
    assert_eq!(at(&world), None);
}

/// With r = 1 a client asks one member, and that may be the dead one: nobody else's refusal stands
/// for its own.
#[test]
fn f07_reads_of_the_dead_are_fenced_by_as_many_as_a_read_asks() {
    let asked = |w, r, stopped: Option<&str>| {
        let mut world = founded(w, r);
        pass(&mut world, 12, &["c"]);
        let burial = Some(Burial {
            lost: annulus_membership::Spans::default(),
            stopped: stopped.map(str::to_owned),
        });
        let (node, by) = (id("c"), id("g"));
        let asked = world.change(Change::Replace { node, by, burial });
        (world, asked)
    };
    let ends = |w, r, stopped| {
        let (mut world, asked) = asked(w, r, stopped);
        asked.unwrap();
        pass(&mut world, 60, &["c"]);
        at(&world).is_none()
    };
    assert!(ends(2, 2, None), "a and b refuse: no two are left to read");
    let (_, refused) = asked(3, 1, None);
    let unsaid = matches!(refused, Err(Rejection::NotStopped { .. }));
    assert!(unsaid, "c alone is enough for a read: {refused:?}");
    assert!(ends(3, 1, Some("power is off")), "the operator's word");
}

#[test]
fn copies_begin_when_every_owner_has_drained_what_does_not_go_to_gainers() {
    let mut world = replacing(Step::Writing);
    acts(&mut world, &["c", "g", "a"]);
    assert_eq!(world.leader_acts(), None, "b owns too");
    acts(&mut world, &["b"]);
    world.leader_acts();
    assert_eq!(at(&world), Some(Step::Copying));
}

#[test]
fn a_copy_with_another_digest_is_not_verified() {
    let mut world = replacing(Step::CatchingUp);
    acts(&mut world, &["a", "b", "c"]);
    says(&mut world, "g", |slot| {
        slot.digest = slot
            .digest
            .map(|(cut, _, records)| (cut, [99; 32], records));
    });
    assert_eq!(world.leader_acts(), None);
    acts(&mut world, &["g"]);
    world.leader_acts();
    assert_eq!(at(&world), Some(Step::Verified));
}

/// At an old cut a copy that lost something later looks whole.
#[test]
fn a_digest_older_than_the_copy_proves_nothing() {
    let mut world = replacing(Step::CatchingUp);
    acts(&mut world, &["a", "b", "c"]);
    says(&mut world, "g", |slot| {
        let later = |at: Position| Position::new(at.reign, at.seq + 7);
        slot.copied = slot.copied.map(later);
        slot.watermark = slot.copied;
    });
    assert_eq!(world.leader_acts(), None);
    acts(&mut world, &["g"]);
    world.leader_acts();
    assert_eq!(at(&world), Some(Step::Verified));
}

#[test]
fn the_switch_waits_until_gainers_merged_everything_up_to_j() {
    let mut world = replacing(Step::Joint);
    acts(&mut world, &["b", "c", "g"]);
    let (reign, seq) = {
        let ring = world.ring_state();
        let slot = owned_by(&world, "a")[0];
        (ring.reigns[slot.index()], 9)
    };
    let j = Position::new(reign, seq);
    says(&mut world, "a", |slot| slot.joint = slot.joint.map(|_| j));
    assert_eq!(world.leader_acts(), None);
    says(&mut world, "g", |slot| {
        slot.watermark = slot.watermark.map(|at| Position::new(at.reign, seq));
    });
    world.leader_acts();
    assert_eq!(at(&world), Some(Step::Switched));
}
