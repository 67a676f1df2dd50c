//! Single rules that no story shows by itself, each as it is written down: a second line of
//! defence, or one that other rules would make up for.

use std::sync::atomic::Ordering;

use annulus_agent::{Copy, Intent, RangeStore, SourceStamp};
use annulus_proto::v1;
use annulus_ring::{Epoch, Generation, Incarnation, NodeId, Slot, Step};

use crate::{
    SLOT,
    leader::{Reported, position},
    memory::MemoryStore,
    node::{Node, live},
    ring::{Ring, eventually, stamp},
    stories::{SESSION, moving},
};

/// As g asks for a whole copy.
fn pull(node: &Node) -> SourceStamp {
    let view = node.guard.view();
    SourceStamp {
        generation: Generation(1),
        epoch: view.epoch(),
        reign: view.reign(SLOT),
        session: Some(SESSION),
        node: NodeId::new("g").unwrap(),
        incarnation: Incarnation(1),
        copies: true,
    }
}

/// A copy that is cut while a write is under way that does not go to the gainer would miss it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_copy_is_cut_before_every_owner_feeds_the_gainers() {
    let ring = moving(Step::Writing).await;
    let owner = ring.node("a");
    let early = owner.guard.admit_source(SLOT, pull(owner)).await;
    assert_eq!(early.unwrap_err().kind(), "session_closed");
    ring.enter(1, "g", Step::Copying).await;
    owner.guard.admit_source(SLOT, pull(owner)).await.unwrap();
}

/// Any other member may lack an acknowledged write, and cannot know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owner_is_a_source_of_copies() {
    let ring = moving(Step::Copying).await;
    for name in ["b", "c"] {
        let member = ring.node(name);
        let refused = member.guard.admit_source(SLOT, pull(member)).await;
        assert_eq!(refused.unwrap_err().kind(), "not_owner", "{name}");
    }
}

/// Joint begins before the switch, or what members that leave acknowledge last would be missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_joint_step_on_two_of_both_lists_are_needed() {
    let ring = moving(Step::Verified).await;
    let groups = || ring.node("a").guard.view().groups(SLOT).len();
    assert_eq!(groups(), 1);
    for step in [Step::Joint, Step::Switched, Step::FlippingBack] {
        ring.enter(1, "g", step).await;
        assert_eq!(groups(), 2, "{step}");
        // Of both lists a is all that is held by.
        let owner = ring.node("a");
        let write = owner
            .guard
            .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
            .await;
        let write = write.unwrap();
        let (a, b) = (owner.handle, ring.node("b").handle);
        let (c, g) = (ring.node("c").handle, ring.node("g").handle);
        assert!(write.satisfied(&[a, b]) && write.satisfied(&[a, c, g]));
        assert!(!write.satisfied(&[a, c]) && !write.satisfied(&[a, g]));
    }
}

fn wave(sealed: Vec<v1::Position>) -> v1::Directive {
    v1::Directive {
        wave: Some(v1::Wave {
            id: 1,
            owner: "a".into(),
            successor: "b".into(),
            slots: vec![0],
            sealed,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Between F and the new reign nothing is admitted, however long that takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seal_holds_until_a_newer_reign() {
    let ring = Ring::of_three().await;
    let owner = ring.node("a");
    ring.nodes.write("a", SLOT, "k", Some("1")).await.unwrap();
    ring.leader.direct("a", wave(vec![]));
    let sealed = |one: &Reported| one.sealed.is_some();
    let sealed = ring.leader.until("a", "F", sealed).await.sealed.unwrap();
    let admitted = || {
        owner
            .guard
            .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
    };
    ring.leader.direct("b", wave(sealed.positions));
    let confirmed = |one: &Reported| one.confirmed.is_some();
    ring.leader.until("b", "F is held", confirmed).await;
    ring.some_renewals("a").await;
    assert_eq!(admitted().await.unwrap_err().kind(), "sealed");
    let reign = ring.take_over("b").await;
    ring.leader.adopted(&["a", "b", "c"], reign).await;
    assert_eq!(admitted().await.unwrap_err().kind(), "not_owner");
    assert_eq!(owner.guard.view().reign(SLOT), Epoch(reign));
    assert_eq!(live(owner, SLOT), live(ring.node("b"), SLOT));
}

/// A permit is granted on it: b was not there for the last write, and nothing shows that to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_compared_with_everything_that_its_owner_holds() {
    let ring = Ring::of_three().await;
    let member = ring.node("b");
    member.deaf.store(true, Ordering::SeqCst);
    let last = ring.nodes.write("a", SLOT, "k", Some("1")).await.unwrap();
    member.deaf.store(false, Ordering::SeqCst);
    let verify = v1::Directive {
        verify: vec![0],
        ..Default::default()
    };
    ring.leader.direct("b", verify);
    let compared = |one: &Reported| one.slots.get(&(0, 0)).is_some_and(|at| at.digest.is_some());
    let reported = ring.leader.until("b", "comparison", compared).await;
    let cut = reported.slots[&(0, 0)].digest.as_ref().unwrap().cut;
    assert!(position(cut) >= last, "equal to what the owner was before");
    assert_eq!(live(member, SLOT), live(ring.node("a"), SLOT));
}

/// Nothing short of a comparison shows it: no hole, and the watermark is the owner's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_lost_altered_or_added_a_record_is_put_right() {
    type Fault = fn(&MemoryStore, Slot, Copy) -> bool;
    for fault in [
        MemoryStore::damage as Fault,
        MemoryStore::alter,
        MemoryStore::slip_in,
    ] {
        let ring = Ring::of_three().await;
        for key in ["k0", "k1", "k2"] {
            ring.nodes.write("a", SLOT, key, Some("x")).await.unwrap();
        }
        let member = ring.node("b");
        assert!(fault(&member.store, SLOT, Copy::Live));
        let verify = v1::Directive {
            verify: vec![0],
            ..Default::default()
        };
        ring.leader.direct("b", verify);
        let compared =
            |one: &Reported| one.slots.get(&(0, 0)).is_some_and(|at| at.digest.is_some());
        ring.leader.until("b", "comparison", compared).await;
        assert_eq!(live(member, SLOT), live(ring.node("a"), SLOT));
        assert_eq!(member.agent.metrics().mended.get(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retained_copy_goes_only_by_a_permit_that_was_read_right_before() {
    let ring = moving(Step::Verified).await;
    ring.walk_on(1, "g").await;
    ring.settle("g").await;
    let loser = ring.node("c");
    let kept = || {
        loser
            .store
            .copies()
            .contains(&(SLOT, Copy::Retained(SESSION)))
    };
    assert!(kept());
    // Told to delete by somebody who does not lead any more: the leader knows of no permit.
    ring.leader.script().permits = false;
    let permits = vec![v1::SlotSet {
        session: SESSION.0,
        slots: vec![0],
    }];
    let directive = |waves_over| v1::Directive {
        permits: permits.clone(),
        waves_over,
        ..Default::default()
    };
    ring.leader.direct("c", directive(0));
    ring.some_renewals("c").await;
    assert!(kept(), "deleted without a permit");
    ring.leader.script().permits = true;
    ring.leader.direct("c", directive(1));
    eventually("deleted under its permit", || !kept()).await;
    assert!(loser.store.watermark(SLOT, Copy::Live).is_err());
}
