//! How acknowledged writes got lost, or everything stood still, in a model of earlier rules: one
//! test per story (F3, F6 and F7 are decisions: `membership/tests/lifecycle/stories.rs`).
//!
//! O = [a, b, c], N = [a, b, g], w = 2, r = 2: a owns, g gains, c leaves. Somebody is *frozen* when
//! no epoch and no directive reaches it, *deaf* when replicated writes do not. A write is lost when
//! it was acknowledged and two members that a client may read do not show it.

use std::sync::{Arc, atomic::Ordering};

use annulus_agent::{Copy, Intent, RangeStore, Record, Refusal, ReplicaStamp, SourceStamp, Stamp};
use annulus_ring::{Epoch, Generation, Incarnation, NodeId, Position, SessionId, Step};
use tokio::task::JoinHandle;

use crate::{
    SLOT,
    leader::{Reported, position},
    node::{Node, live},
    ring::{Ring, eventually, stamp},
};

pub const SESSION: SessionId = SessionId(1);

/// A ring of three whose transition to g has come to this step.
pub async fn moving(step: Step) -> Ring {
    let ring = Ring::of_three().await;
    ring.nodes.write("a", SLOT, "old", Some("1")).await.unwrap();
    ring.walk(1, "g", step).await;
    ring
}

/// The next writes do not reach these.
fn deafen(ring: &Ring, nodes: &[&str]) {
    let deaf = |node: &&Arc<Node>| nodes.contains(&node.name);
    let hearing = |node: &Arc<Node>| node.deaf.store(deaf(&node), Ordering::SeqCst);
    ring.nodes.0.iter().for_each(hearing);
}

type Write = JoinHandle<Result<Position, Refusal>>;

/// A write that is under way.
fn begin(ring: &Ring, owner: &'static str, key: &'static str) -> Write {
    let nodes = ring.nodes.clone();
    tokio::spawn(async move { nodes.write(owner, SLOT, key, Some("1")).await })
}

/// Whether the write is acknowledged; not, when `member` refused it twice more: once was not enough.
async fn acknowledged(write: &Write, member: &Node) -> bool {
    let before = member.refused.load(Ordering::SeqCst);
    let again = || member.refused.load(Ordering::SeqCst) > before + 2;
    eventually("the end of the write, or two refusals", || {
        write.is_finished() || again()
    })
    .await;
    write.is_finished()
}

/// What a client at `epoch` finds that asks these members: the newest of what they have.
async fn found(ring: &Ring, members: [&str; 2], epoch: u64, key: &str) -> Option<Record> {
    let stamp = Stamp {
        generation: Generation(1),
        epoch: Epoch(epoch),
    };
    let mut newest: Option<Record> = None;
    for member in members {
        let node = ring.node(member);
        let admitted = node
            .guard
            .admit(crate::placed(SLOT), stamp, Intent::ReadAny)
            .await;
        admitted.unwrap_or_else(|refusal| panic!("{member}: {refusal}"));
        let record = node.store.find(SLOT, key.as_bytes()).unwrap();
        let is_newer = |one: &Record| newest.as_ref().is_none_or(|it| one.version > it.version);
        if record.as_ref().is_some_and(is_newer) {
            newest = record;
        }
    }
    newest
}

fn now(ring: &Ring) -> u64 {
    ring.leader.script().epoch
}

async fn may_read(node: &Node) -> Result<(), Refusal> {
    let read = node
        .guard
        .admit(crate::placed(SLOT), stamp(node), Intent::ReadAny)
        .await;
    read.map(drop)
}

/// The owner hears epochs and not that others were told to refuse it; it stamps with the newest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f01_a_seal_by_refusals_seals() {
    let ring = moving(Step::Verified).await;
    ring.intend().await;
    ring.refuse(1, "b", &["b", "c"]).await;
    ring.take_tails(1, "b", &["c"]).await;
    // Of O only c could take it.
    deafen(&ring, &["b", "g"]);
    let late = begin(&ring, "a", "late");
    assert!(
        !acknowledged(&late, ring.node("c")).await,
        "by one who refuses"
    );
    deafen(&ring, &[]);
    ring.take_over("b").await;
    assert!(late.await.unwrap().is_err());
    ring.walk_on(1, "g").await;
    assert!(found(&ring, ["b", "g"], now(&ring), "old").await.is_some());
    assert_eq!(found(&ring, ["b", "g"], now(&ring), "late").await, None);
}

/// What the silent owner acknowledged last is with c alone, and F is nowhere written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f02_what_a_silent_owner_acknowledged_is_in_the_tails() {
    let ring = moving(Step::Verified).await;
    deafen(&ring, &["b", "g"]);
    ring.nodes.write("a", SLOT, "far", Some("1")).await.unwrap();
    ring.leader.freeze(&["a"]);
    deafen(&ring, &[]);
    ring.fail_over(1, "b", "c").await;
    assert!(
        live(ring.node("b"), SLOT).contains_key(b"far".as_slice()),
        "stored before it owns"
    );
    ring.walk_on(1, "g").await;
    for readers in [["b", "g"], ["g", "b"]] {
        assert!(found(&ring, readers, now(&ring), "far").await.is_some());
    }
    assert!(
        live(ring.node("g"), SLOT).contains_key(b"far".as_slice()),
        "merged with the base of the reign"
    );
}

/// The switch needs J of the reign that runs: J of the one before is no longer the owner's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f03_a_failover_in_the_joint_step_gives_a_j_of_its_own() {
    let ring = moving(Step::Verified).await;
    ring.join(1, "g").await;
    let joint = |node: &str| position(ring.leader.reported(node).slots[&(1, 0)].joint);
    let before = joint("a");
    // Acknowledged by two of both lists, without b.
    deafen(&ring, &["b"]);
    ring.nodes
        .write("a", SLOT, "last", Some("1"))
        .await
        .unwrap();
    ring.leader.freeze(&["a"]);
    deafen(&ring, &[]);
    let reign = ring.fail_over(1, "b", "c").await;
    ring.join(1, "g").await;
    assert!(before.reign < Epoch(reign) && joint("b").reign == Epoch(reign));
    ring.enter(1, "g", Step::Switched).await;
    assert!(found(&ring, ["b", "g"], now(&ring), "last").await.is_some());
}

/// Between a look at c's tail and its refusal c still takes, and a acknowledges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f04_no_tail_is_given_before_the_refusal() {
    let ring = Ring::of_three().await;
    ring.leader.freeze(&["a", "c"]);
    ring.intend().await;
    ring.refuse(1, "b", &["b"]).await;
    ring.ask_for_tails(1, "b", &["c"]);
    deafen(&ring, &["b"]);
    ring.nodes
        .write("a", SLOT, "late", Some("1"))
        .await
        .unwrap();
    deafen(&ring, &[]);
    // It knows of the intent, and was not told yet to refuse.
    ring.leader.thaw(&["c"]);
    ring.leader.adopted(&["c"], now(&ring)).await;
    ring.some_renewals("b").await;
    ring.some_renewals("b").await;
    assert_eq!(ring.leader.reported("b").succeeded, None);
    ring.refuse(1, "b", &["c"]).await;
    ring.take_tails(1, "b", &["c"]).await;
    ring.take_over("b").await;
    assert!(found(&ring, ["b", "c"], now(&ring), "late").await.is_some());
}

/// From the end on the list is N: c has not heard of the last write, and its word counts nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f05_after_the_end_tails_are_of_the_new_list() {
    let ring = moving(Step::Verified).await;
    ring.walk_on(1, "g").await;
    ring.settle("g").await;
    deafen(&ring, &["b"]);
    ring.nodes.write("a", SLOT, "new", Some("1")).await.unwrap();
    ring.leader.freeze(&["a"]);
    deafen(&ring, &[]);
    ring.fail_over(1, "b", "g").await;
    assert!(found(&ring, ["b", "g"], now(&ring), "new").await.is_some());
    // c keeps what it had at the end, unread; whether it would refuse a is no matter.
    let kept = ring.node("c").store.newest(SLOT, Copy::Retained(SESSION));
    assert!(!kept.is_empty() && !kept.contains_key(b"new".as_slice()));
    let refused = may_read(ring.node("c")).await.unwrap_err();
    assert_eq!(refused.kind(), "not_owner");
}

/// A client of an older epoch reads two members that have not heard of the switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f06_through_the_soak_the_old_list_counts_too() {
    let ring = moving(Step::Verified).await;
    let old = now(&ring);
    ring.leader.freeze(&["b", "c"]);
    ring.walk_on(1, "g").await;
    let write = begin(&ring, "a", "new");
    let is_acknowledged = acknowledged(&write, ring.node("b")).await;
    let seen = found(&ring, ["b", "c"], old, "new").await;
    assert!(!is_acknowledged || seen.is_some(), "lost for an old client");
    ring.leader.thaw(&["b"]);
    write.await.unwrap().unwrap();
    assert!(found(&ring, ["b", "c"], old, "new").await.is_some());
}

/// b and g still answer reads of the new list; then they have heard of the way back, and g does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_a_flip_back_has_a_soak_of_its_own() {
    let ring = moving(Step::Verified).await;
    ring.walk_on(1, "g").await;
    let switched = now(&ring);
    ring.leader.freeze(&["b", "g"]);
    ring.enter(1, "g", Step::FlippingBack).await;
    let write = begin(&ring, "a", "new");
    let is_acknowledged = acknowledged(&write, ring.node("g")).await;
    let seen = found(&ring, ["b", "g"], switched, "new").await;
    assert!(!is_acknowledged || seen.is_some(), "lost for a client at 7");
    ring.leader.thaw(&["b"]);
    write.await.unwrap().unwrap();
    assert!(found(&ring, ["b", "g"], switched, "new").await.is_some());
    // What ends it: the gainer heard of it, and refuses reads from now on.
    ring.leader.thaw(&["g"]);
    ring.leader.adopted(&["g"], now(&ring)).await;
    let refused = may_read(ring.node("g")).await.unwrap_err();
    assert_eq!(refused.kind(), "not_owner");
    may_read(ring.node("c")).await.unwrap();
}

/// The new reign has no write yet: "everything of it is held" would be cheap to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f09_no_watermark_in_a_reign_without_its_base() {
    let ring = moving(Step::Verified).await;
    deafen(&ring, &["b", "g"]);
    ring.nodes.write("a", SLOT, "far", Some("1")).await.unwrap();
    ring.leader.freeze(&["a"]);
    deafen(&ring, &[]);
    let reign = Position::new(Epoch(ring.fail_over(1, "b", "c").await), 0);
    let joined = |one: &Reported| {
        let standing = one.slots.get(&(1, 0));
        standing.is_some_and(|at| position(at.watermark) >= reign)
    };
    ring.leader
        .until("g", "the base of the reign", joined)
        .await;
    let staged = ring.node("g").store.newest(SLOT, Copy::Staging(SESSION));
    assert!(staged.contains_key(b"far".as_slice()), "said, and not held");
    ring.walk_on(1, "g").await;
    assert!(found(&ring, ["b", "g"], now(&ring), "far").await.is_some());
}

/// The gainer holds the newest write, and lacks one before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f09_no_watermark_over_a_hole() {
    let ring = moving(Step::Verified).await;
    deafen(&ring, &["b", "g"]);
    ring.nodes
        .write("a", SLOT, "missed", Some("1"))
        .await
        .unwrap();
    deafen(&ring, &["b"]);
    ring.nodes.write("a", SLOT, "j", Some("1")).await.unwrap();
    let staged = || ring.node("g").store.newest(SLOT, Copy::Staging(SESSION));
    eventually("g has the newer one", || {
        staged().contains_key(b"j".as_slice())
    })
    .await;
    deafen(&ring, &[]);
    ring.join(1, "g").await;
    assert!(
        staged().contains_key(b"missed".as_slice()),
        "everything up to J"
    );
}

/// A write that the deposed owner gave to the gainer alone: without the rule digests never agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_strays_of_a_deposed_owner_block_nothing() {
    let ring = moving(Step::Copying).await;
    deafen(&ring, &["b", "c"]);
    let stray = begin(&ring, "a", "stray");
    assert!(!acknowledged(&stray, ring.node("c")).await);
    let staged = || ring.node("g").store.newest(SLOT, Copy::Staging(SESSION));
    assert!(staged().contains_key(b"stray".as_slice()));
    ring.leader.freeze(&["a"]);
    stray.abort();
    assert!(stray.await.unwrap_err().is_cancelled());
    deafen(&ring, &[]);
    ring.fail_over(1, "b", "c").await;
    ring.enter(1, "g", Step::CatchingUp).await;
    assert!(!staged().contains_key(b"stray".as_slice()));
    // The deposed owner itself, when it hears of all this.
    ring.leader.thaw(&["a"]);
    eventually("the deposed owner gives it up", || {
        live(ring.node("a"), SLOT) == live(ring.node("b"), SLOT)
    })
    .await;
    ring.enter(1, "g", Step::Verified).await;
    ring.walk_on(1, "g").await;
}

/// There is no safety window: an owner that hears nothing goes on acknowledging for as long as w
/// members take its writes, and not one moment longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_without_a_safety_window_refusals_end_late_acknowledgements() {
    let ring = Ring::of_three().await;
    ring.leader.freeze(&["a"]);
    ring.nodes.write("a", SLOT, "k", Some("1")).await.unwrap();
    // Admitted in time, on its way until b owns.
    let owner = ring.node("a");
    let admission = owner
        .guard
        .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
        .await;
    let version = owner.store.assign(SLOT, "w".into(), Some("1".into()));
    ring.fail_over(1, "b", "c").await;
    let (nodes, admission) = (ring.nodes.clone(), admission.unwrap());
    let late: Write = tokio::spawn(async move {
        let record = Record {
            key: "w".into(),
            version,
            value: Some("1".into()),
        };
        nodes.push(nodes.get("a"), admission, record).await
    });
    assert!(!acknowledged(&late, ring.node("c")).await);
    assert_eq!(found(&ring, ["b", "c"], now(&ring), "w").await, None);
    assert!(found(&ring, ["b", "c"], now(&ring), "k").await.is_some());
    ring.leader.thaw(&["a"]);
    assert!(late.await.unwrap().is_err());
}

/// Nothing collects tombstones yet, neither by time nor by a move: so none comes back to life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_no_tombstone_is_ever_collected() {
    let ring = Ring::of_three().await;
    ring.nodes.write("a", SLOT, "k", Some("1")).await.unwrap();
    deafen(&ring, &["b"]);
    let deleted = ring.nodes.write("a", SLOT, "k", None).await.unwrap();
    deafen(&ring, &[]);
    // By which b sees that it missed something.
    ring.nodes
        .write("a", SLOT, "next", Some("1"))
        .await
        .unwrap();
    ring.walk(1, "g", Step::Copying).await;
    let tombstone = Some(&(deleted, None));
    let staged = ring.node("g").store.newest(SLOT, Copy::Staging(SESSION));
    assert_eq!(staged.get(b"k".as_slice()), tombstone, "copied");
    ring.enter(1, "g", Step::CatchingUp).await;
    ring.enter(1, "g", Step::Verified).await;
    ring.walk_on(1, "g").await;
    ring.settle("g").await;
    for name in ["a", "b", "g"] {
        let node = ring.node(name);
        eventually("everybody holds the tombstone", || {
            live(node, SLOT).get(b"k".as_slice()) == tombstone
        })
        .await;
    }
    for readers in [["a", "b"], ["b", "g"]] {
        let record = found(&ring, readers, now(&ring), "k").await.unwrap();
        assert_eq!((record.version, record.value), (deleted, None));
    }
}

/// A dual write or a copy of the session arrives once more, after the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f13_a_session_ends_with_success_too() {
    let ring = moving(Step::Verified).await;
    let (gainer, owner) = (ring.node("g"), ring.node("a"));
    let packet = ReplicaStamp {
        generation: Generation(1),
        epoch: Epoch(now(&ring)),
        reign: gainer.guard.view().reign(SLOT),
        session: Some(SESSION),
    };
    assert!(gainer.guard.admit_replica(SLOT, packet).await.is_ok());
    ring.walk_on(1, "g").await;
    let settled = Epoch(ring.settle("g").await);
    ring.nodes.write("a", SLOT, "old", None).await.unwrap();
    for epoch in [packet.epoch, settled] {
        let late = ReplicaStamp { epoch, ..packet };
        let refused = gainer.guard.admit_replica(SLOT, late).await.unwrap_err();
        assert_eq!(refused.kind(), "session_closed", "stamped {epoch}");
        let pull = SourceStamp {
            generation: Generation(1),
            epoch,
            reign: packet.reign,
            session: Some(SESSION),
            node: NodeId::new("g").unwrap(),
            incarnation: Incarnation(1),
            copies: true,
        };
        let refused = owner.guard.admit_source(SLOT, pull).await.unwrap_err();
        assert_eq!(refused.kind(), "session_closed", "asked at {epoch}");
    }
    let record = found(&ring, ["b", "g"], settled.0, "old").await.unwrap();
    assert_eq!(record.value, None, "deleted stays deleted");
}

/// Everybody but the owner knows the joint step, and refuses its write for its age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_a_write_refused_for_its_age_blocks_no_barrier() {
    let ring = moving(Step::Verified).await;
    ring.leader.freeze(&["a"]);
    ring.enter(1, "g", Step::Joint).await;
    let write = begin(&ring, "a", "w");
    assert!(!acknowledged(&write, ring.node("b")).await);
    ring.leader.thaw(&["a"]);
    // Stamped anew it is taken, by two of both lists; and the owner has drained.
    ring.leader.adopted(&["a"], now(&ring)).await;
    write.await.unwrap().unwrap();
    ring.join(1, "g").await;
    assert!(
        ring.node("g")
            .store
            .newest(SLOT, Copy::Staging(SESSION))
            .contains_key(b"w".as_slice())
    );
}
