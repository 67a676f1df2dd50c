//! C50: clean-up that deletes too much or too soon. Step 4: a removed node is told that its life is
//! over, and keeps its files for whoever stops it (`tests/it/c15_removing_the_dead.rs`).

use annulus_agent::Copy;
use annulus_proto::v1;
use annulus_ring::{SessionId, Step};

use crate::{
    SLOT,
    node::live,
    ring::{Ring, eventually},
};

/// Slot 0 is at [a, g] since transition 1, and b keeps its copy of then.
pub async fn moved() -> Ring {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    ring.leader
        .publish(|script| script.members = vec!["a", "b", "g"]);
    for n in 0..50 {
        let key = format!("k{n}");
        ring.nodes.write("a", SLOT, &key, Some("x")).await.unwrap();
    }
    ring.walk(1, "g", Step::Verified).await;
    ring.walk_on(1, "g").await;
    settle(&ring, ["a", "g"]).await;
    ring.leader
        .until("b", "its copy is kept", |one| {
            one.retained.get(&1) == Some(&vec![0])
        })
        .await;
    ring
}

async fn settle(ring: &Ring, list: [&'static str; 2]) {
    let settled = ring.leader.publish(|script| {
        script.transition = None;
        script.lists[0] = list.to_vec();
        script.last_changes[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "g"], settled).await;
}

fn permits(sessions: &[u64], epoch: u64) -> v1::Directive {
    let copies = |session: &u64| v1::SlotSet {
        session: *session,
        slots: vec![0],
    };
    v1::Directive {
        permits: sessions.iter().map(copies).collect(),
        epoch,
        ..Default::default()
    }
}

/// The node has heard what was said to it last: its link keeps the order.
async fn has_heard(ring: &Ring, node: &str) {
    let before = ring.leader.reported(node).renewals;
    ring.leader
        .until(node, "what was said", |one| one.renewals > before + 2)
        .await;
}

/// Step 3, and step 1 in small: an instruction of long ago meets a range that is just being
/// received again, and one that is served again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c50_an_old_clean_up_drops_nothing_that_came_back() {
    let ring = moved().await;
    ring.walk(2, "b", Step::CatchingUp).await;
    let back = ring.node("b");
    let staging = Copy::Staging(SessionId(2));
    assert_eq!(back.store.newest(SLOT, staging).len(), 50);
    // Every session that this node may have heard of, and the leader says yes to all.
    ring.leader.direct("b", permits(&[0, 1, 2, 3], 0));
    has_heard(&ring, "b").await;
    assert_eq!(
        back.store.newest(SLOT, staging).len(),
        50,
        "what is received is not dropped"
    );

    ring.verified(2, "b").await;
    ring.walk_on(2, "b").await;
    ring.leader.direct("b", permits(&[0, 1, 2, 3], 0));
    settle(&ring, ["a", "b"]).await;
    has_heard(&ring, "b").await;
    assert_eq!(live(back, SLOT).len(), 50, "what is served is not dropped");
    ring.nodes
        .write("a", SLOT, "more", Some("x"))
        .await
        .unwrap();
    assert_eq!(live(back, SLOT).len(), 51);
}

/// An instruction made under an epoch that the node has not heard of waits for it; and one that
/// the leader does not stand by when it is asked again is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c50_a_clean_up_waits_for_its_epoch_and_for_the_leaders_word() {
    let ring = moved().await;
    let kept = || {
        let copies = ring.node("b").store.copies();
        copies.contains(&(SLOT, Copy::Retained(SessionId(1))))
    };
    let next = ring.leader.script().epoch + 1;
    ring.leader.direct("b", permits(&[1], next));
    has_heard(&ring, "b").await;
    assert!(kept(), "dropped by an epoch that it does not know");

    // The epoch comes, but the permit was taken back meanwhile (step 2).
    ring.leader.script().permits = false;
    let published = ring.leader.publish(|_| {});
    assert_eq!(published, next);
    ring.leader.adopted(&["b"], next).await;
    ring.leader.direct("b", permits(&[1], next));
    has_heard(&ring, "b").await;
    assert!(kept(), "dropped without the leader's word");

    ring.leader.script().permits = true;
    ring.leader.direct(
        "b",
        v1::Directive {
            waves_over: 1,
            ..permits(&[1], next)
        },
    );
    eventually("the copy is released", || !kept()).await;
    assert_eq!(live(ring.node("g"), SLOT).len(), 50);
}
