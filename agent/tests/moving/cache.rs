//! Cache rings: gainers are switched on with what they have, and nodes that nobody leads obey the
//! ring's word on that.

use annulus_agent::{Copy, Intent, Refusal};
use annulus_proto::v1;
use annulus_ring::{Epoch, SessionId, Step};

use crate::{
    SLOT,
    leader::Leader,
    node::{Node, live},
    ring::{Ring, stamp},
};

fn terms(copies: bool, serves_when_isolated: bool) -> v1::RingTerms {
    v1::RingTerms {
        kind: "cache".to_owned(),
        copies,
        serves_when_isolated,
    }
}

/// Slot 0 goes from a and b to g alone, which never had it: without copies, or with them.
async fn switched(copies: bool) -> Ring {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    for n in 0..100 {
        let key = format!("k{n}");
        ring.nodes.write("a", SLOT, &key, Some("x")).await.unwrap();
    }
    ring.leader.publish(|script| {
        script.members = vec!["a", "b", "g"];
        script.terms = Some(terms(copies, true));
    });
    for step in [Step::Prepared, Step::Writing, Step::Copying] {
        let epoch = ring.leader.step(1, step, &["g"]);
        ring.leader.adopted(&["a", "b", "g"], epoch).await;
    }
    if copies {
        let copied = |one: &crate::leader::Reported| {
            one.slots.get(&(1, 0)).is_some_and(|at| at.copied.is_some())
        };
        ring.leader.until("g", "copied", copied).await;
    }
    for step in [Step::CatchingUp, Step::Verified, Step::Joint] {
        let epoch = ring.leader.step(1, step, &["g"]);
        ring.leader.adopted(&["a", "b", "g"], epoch).await;
    }
    let epoch = ring.leader.publish(|script| {
        script.transition = Some((1, Step::Switched, vec!["g"]));
        script.last_changes[0] = script.epoch;
        script.reigns[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "g"], epoch).await;
    ring
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_gainer_of_a_cache_owns_at_the_switch_without_copy_digest_or_j() {
    let ring = switched(false).await;
    let gainer = ring.node("g");
    let admitted = gainer
        .guard
        .admit(crate::placed(SLOT), stamp(gainer), Intent::ReadExact)
        .await;
    assert_eq!(admitted.unwrap().reign, gainer.guard.view().epoch());
    assert!(live(gainer, SLOT).is_empty(), "no warm-up, nothing copied");
    let reported = ring.leader.reported("g").slots[&(1, 0)].clone();
    assert!(reported.staged && reported.copied.is_none() && reported.digest.is_none());
    let owner = ring.leader.reported("a");
    assert!(owner.slots.get(&(1, 0)).is_none_or(|at| at.joint.is_none()));
    // The old owner is none any more.
    let old = ring.node("a");
    let refused = old
        .guard
        .admit(crate::placed(SLOT), stamp(old), Intent::ReadExact)
        .await;
    assert!(
        matches!(refused, Err(Refusal::NotOwner { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warmed_up_gainer_of_a_cache_has_the_entries_and_flips_back_with_them() {
    let ring = switched(true).await;
    let gainer = ring.node("g");
    assert_eq!(live(gainer, SLOT).len(), 100);
    let epoch = ring.leader.publish(|script| {
        script.transition = Some((1, Step::FlippingBack, vec!["g"]));
        script.last_changes[0] = script.epoch;
        script.reigns[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "g"], epoch).await;
    assert_eq!(gainer.store.copies(), [(SLOT, Copy::Staging(SessionId(1)))]);
    let old = ring.node("a");
    let admitted = old
        .guard
        .admit(crate::placed(SLOT), stamp(old), Intent::ReadExact)
        .await;
    assert_eq!(admitted.unwrap().reign, Epoch(epoch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hears_nothing_serves_nobody_where_the_ring_says_so() {
    let (leader, control, task) = Leader::start().await;
    leader.script().short_silence = true;
    let node = Node::start("a", &leader, &control).await;
    let greeted = |one: &crate::leader::Reported| !one.hellos.is_empty();
    leader.until("a", "hello", greeted).await;
    let epoch = leader.publish(|script| {
        script.members = vec!["a"];
        script.lists = vec![vec!["a"], vec!["a"]];
        script.reigns = vec![1; 2];
        script.terms = Some(terms(true, false));
    });
    leader.adopted(&["a"], epoch).await;
    let admit = || {
        node.guard
            .admit(crate::placed(SLOT), stamp(&node), Intent::ReadAny)
    };
    assert!(admit().await.is_ok(), "linked, it serves");
    leader.lead(false);
    until("it is isolated", async || {
        matches!(admit().await, Err(Refusal::Isolated { .. }))
    })
    .await;
    leader.lead(true);
    until("it serves again", async || admit().await.is_ok()).await;
    task.abort();
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let looks = async {
        while !holds().await {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let limit = std::time::Duration::from_secs(20);
    let done = tokio::time::timeout(limit, looks).await;
    done.unwrap_or_else(|_| panic!("waited for: {what}"));
}
