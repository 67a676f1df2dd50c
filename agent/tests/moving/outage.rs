//! What happens when something is away: a leader, a replica's ear, a store's data.

use std::sync::{Arc, atomic::Ordering};

use annulus_agent::{Copy, Intent, RangeStore, Stamp};
use annulus_ring::{Epoch, Generation, Position};

use crate::{
    OTHER, SLOT,
    leader::Leader,
    node::{Node, Nodes, live},
    ring::{Ring, eventually, stamp},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_leader_the_data_path_goes_on_and_a_new_one_is_told_everything() {
    let ring = Ring::founded(&["a", "b"]).await;
    let known = ring.leader.script().epoch;
    let owner = ring.node("a");
    ring.leader.lead(false);
    let linked = |node: &Arc<Node>| node.agent.status().linked_to.is_some();
    eventually("all links end", || !ring.nodes.0.iter().any(linked)).await;
    ring.nodes.write("a", SLOT, "k", Some("y")).await.unwrap();
    assert_eq!(owner.guard.view().epoch(), Epoch(known));
    assert!(
        owner
            .guard
            .admit(crate::placed(SLOT), stamp(owner), Intent::ReadExact)
            .await
            .is_ok()
    );
    // A leader that knows nothing gets a whole report with the new link.
    ring.leader.lead(true);
    ring.leader.adopted(&["a", "b"], known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_follows_the_hint_to_the_leader() {
    let (follower, control, _one) = Leader::start().await;
    let (leader, endpoint, _other) = Leader::start().await;
    follower.script().elsewhere = Some(endpoint.to_string());
    let node = Node::start("a", &leader, &control).await;
    leader.until("a", "renewals", |one| one.renewals > 1).await;
    assert_eq!(node.agent.status().linked_to, Some(endpoint));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_in_a_live_copy_is_repaired_from_the_owner() {
    let ring = Ring::founded(&["a", "b"]).await;
    let (owner, replica) = (ring.node("a"), ring.node("b"));
    replica.deaf.store(true, Ordering::SeqCst);
    let nodes = ring.nodes.clone();
    let lost = tokio::spawn(async move { nodes.write("a", SLOT, "lost", Some("x")).await });
    eventually("the owner has it", || !live(owner, SLOT).is_empty()).await;
    // Given up by its writer, it is still the owner's; the next write leaves a hole before it.
    lost.abort();
    assert!(lost.await.unwrap_err().is_cancelled());
    replica.deaf.store(false, Ordering::SeqCst);
    let version = ring.nodes.write("a", SLOT, "k", Some("y")).await.unwrap();
    assert_eq!(version.seq, 2);
    eventually("the hole is closed", || {
        let mark = replica.store.watermark(SLOT, Copy::Live).unwrap();
        mark.held == Some(version) && !mark.pending
    })
    .await;
    assert_eq!(live(replica, SLOT), live(owner, SLOT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_its_data_is_never_served_as_an_empty_one() {
    let ring = Ring::founded(&["a", "b"]).await;
    ring.nodes.write("a", SLOT, "k", Some("x")).await.unwrap();
    let Ring {
        leader,
        control,
        nodes: Nodes(mut nodes),
        task,
    } = ring;
    let (dir, store) = Arc::into_inner(nodes.remove(1)).unwrap().stop().await;
    store.forget_everything();
    let again = Node::start_on("b", &leader, &control, dir, store, None).await;
    let moved = leader.publish(|_| {});
    leader.adopted(&["b"], moved).await;
    assert!(
        !leader.reported("b").hellos.last().unwrap().empty,
        "it held something once"
    );
    for (slot, intent) in [(SLOT, Intent::ReadAny), (OTHER, Intent::Write)] {
        let refused = again
            .guard
            .admit(crate::placed(slot), stamp(&again), intent)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), "no_copy");
    }
    assert_eq!(again.store.copies(), vec![]);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founding_gives_every_copy_the_base_of_its_reign() {
    let ring = Ring::founded(&["a", "b"]).await;
    let founded = Position::new(Epoch(ring.leader.script().epoch), 0);
    for name in ["a", "b"] {
        for slot in [SLOT, OTHER] {
            let mark = ring.node(name).store.watermark(slot, Copy::Live).unwrap();
            assert_eq!(mark.held, Some(founded), "{name} {slot}");
        }
    }
    // A request of an epoch that nobody has waits a little, then is told.
    let ahead = Stamp {
        generation: Generation(1),
        epoch: Epoch(99),
    };
    let refused = ring
        .node("a")
        .guard
        .admit(crate::placed(SLOT), ahead, Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "behind");
}
