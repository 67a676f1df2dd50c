//! The owner of a range is silent, and another takes over without it.

use std::sync::atomic::Ordering;

use annulus_agent::{Intent, ReplicaStamp};
use annulus_proto::v1;
use annulus_ring::{Epoch, Generation, Position};

use crate::{
    SLOT,
    node::{Node, live},
    ring::{Ring, eventually, stamp},
};

fn wave(tails: Option<&str>) -> v1::Directive {
    v1::Directive {
        wave: Some(v1::Wave {
            id: 1,
            owner: "a".into(),
            successor: "b".into(),
            slots: vec![0],
            silent_owner: true,
            tails: tails.map(|node| v1::Tails {
                of: vec![node.to_owned()],
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Slot 0 is of a, b and g; a is its owner.
async fn three() -> Ring {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    let epoch = ring.leader.publish(|script| {
        script.members = vec!["a", "b", "g"];
        script.replicas = 3;
        script.lists = vec![vec!["a", "b", "g"], vec!["b", "a", "g"]];
        script.last_changes = vec![script.epoch; 2];
    });
    ring.leader.adopted(&["a", "b", "g"], epoch).await;
    ring
}

fn value(node: &Node, key: &str) -> Option<String> {
    let (_, value) = live(node, SLOT).remove(key.as_bytes())?;
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Stories F1, F2, F4, F10: refusal before tails, tails before owning, and nothing left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_holds_every_acknowledged_write_and_strays_are_given_up() {
    let ring = three().await;
    let (owner, successor, third) = (ring.node("a"), ring.node("b"), ring.node("g"));
    let reign = owner.guard.view().reign(SLOT);
    ring.nodes
        .write("a", SLOT, "both", Some("1"))
        .await
        .unwrap();
    ring.nodes
        .write("a", SLOT, "gone", Some("1"))
        .await
        .unwrap();
    // Acknowledged without the successor: only its tail has it.
    successor.deaf.store(true, Ordering::SeqCst);
    ring.nodes.write("a", SLOT, "far", Some("1")).await.unwrap();
    ring.nodes.write("a", SLOT, "gone", None).await.unwrap();
    successor.deaf.store(false, Ordering::SeqCst);
    // Nobody else has these: a new key, and a newer value of an acknowledged one.
    owner.store.assign(SLOT, "stray".into(), Some("1".into()));
    owner.store.assign(SLOT, "both".into(), Some("2".into()));

    let intent = ring
        .leader
        .publish(|script| script.last_changes[0] = script.epoch);
    ring.leader.adopted(&["b", "g"], intent).await;
    // Tails are asked for too early: the third does not refuse yet, and gives none.
    ring.leader.direct("b", wave(Some("g")));
    let fenced = |one: &crate::leader::Reported| one.fenced == Some(1);
    ring.leader.until("b", "refusal", fenced).await;
    ring.some_renewals("b").await;
    assert_eq!(ring.leader.reported("b").succeeded, None);
    ring.leader.direct("g", wave(None));
    ring.leader.until("g", "refusal", fenced).await;
    // The owner lives on and stamps with the newest epoch: its reign is refused all the same.
    let old = ReplicaStamp {
        generation: Generation(1),
        epoch: Epoch(intent),
        reign,
        session: None,
    };
    for member in [successor, third] {
        let refused = member.guard.admit_replica(SLOT, old).await.unwrap_err();
        assert_eq!(refused.kind(), "sealed");
        let confirmed = member.guard.confirm_reign(SLOT, reign, Epoch(intent)).await;
        assert_eq!(confirmed.unwrap_err().kind(), "sealed");
    }
    let stored = |one: &crate::leader::Reported| one.succeeded.is_some();
    let stored = ring.leader.until("b", "tails", stored).await;
    assert_eq!(stored.succeeded.unwrap().read, ["g"]);
    assert_eq!(value(successor, "far").as_deref(), Some("1"));
    assert_eq!(value(successor, "gone"), None);

    let committed = ring.leader.publish(|script| {
        script.lists[0] = vec!["b", "a", "g"];
        script.reigns[0] = script.epoch;
        script.last_changes[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "g"], committed).await;
    let version = ring.nodes.write("b", SLOT, "new", Some("1")).await.unwrap();
    assert_eq!(version, Position::new(Epoch(committed), 1));
    for node in [owner, third] {
        eventually(
            "everybody holds what the new owner holds, and no more",
            || live(node, SLOT) == live(successor, SLOT),
        )
        .await;
        let told = |one: &crate::leader::Reported| one.behind == 0;
        ring.leader
            .until(node.name, "nothing is missing", told)
            .await;
    }
    assert_eq!(value(owner, "both").as_deref(), Some("1"), "not the stray");
    assert_eq!(value(owner, "stray"), None);
    let refused = owner
        .guard
        .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
        .await;
    assert_eq!(refused.unwrap_err().kind(), "not_owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_survives_a_restart_and_is_lifted_by_a_committed_abort_only() {
    let ring = three().await;
    let third = ring.node("g");
    let reign = third.guard.view().reign(SLOT);
    let intent = ring
        .leader
        .publish(|script| script.last_changes[0] = script.epoch);
    ring.leader.adopted(&["g"], intent).await;
    ring.leader.direct("g", wave(None));
    let fenced = |one: &crate::leader::Reported| one.fenced == Some(1);
    ring.leader.until("g", "refusal", fenced).await;
    // What is durable is what a restart begins with.
    let known = std::fs::read(third.dir.path().join("identity")).unwrap();
    let seals = format!("\"seals\":{{\"1\":[[0,{}]]}}", reign.0);
    assert!(String::from_utf8_lossy(&known).contains(&seals), "{seals}");
    let lifted = v1::Directive {
        waves_over: 1,
        ..Default::default()
    };
    ring.leader.direct("g", lifted);
    let free = |one: &crate::leader::Reported| one.fenced.is_none();
    ring.leader.until("g", "the abort", free).await;
    let old = ReplicaStamp {
        generation: Generation(1),
        epoch: Epoch(intent),
        reign,
        session: None,
    };
    assert!(third.guard.admit_replica(SLOT, old).await.is_ok());
}
