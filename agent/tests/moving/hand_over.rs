//! The owner of a range changes; no data moves.

use std::sync::Arc;

use annulus_agent::{Copy, Intent, RangeStore, ReplicaStamp};
use annulus_proto::v1;
use annulus_ring::{Epoch, Generation, Position};

use crate::{
    SLOT,
    leader::position,
    node::{Node, Nodes, live},
    ring::{Ring, eventually, stamp},
};

/// A word that may not wait is said, also where nobody else turns the clock: everything runs on one
/// thread here, and another one looks whether it stands still.
#[test]
fn an_urgent_word_waits_for_no_timer() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let ring = Ring::founded(&["a", "b"]).await;
            let wave = v1::Wave {
                id: 1,
                owner: "a".into(),
                successor: "b".into(),
                slots: vec![0],
                ..Default::default()
            };
            let directive = v1::Directive {
                wave: Some(wave),
                ..Default::default()
            };
            ring.leader.direct("a", directive);
            let sealed = |one: &crate::leader::Reported| one.sealed.is_some();
            ring.leader.until("a", "sealed", sealed).await;
        });
        done.send(()).unwrap();
    });
    let limit = std::time::Duration::from_secs(60);
    ended.recv_timeout(limit).expect("the link stands still");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_seals_drains_confirms_and_begins_a_reign() {
    let ring = Ring::founded(&["a", "b"]).await;
    ring.nodes.write("a", SLOT, "k0", Some("x")).await.unwrap();
    let (owner, successor) = (ring.node("a"), ring.node("b"));
    let reign = owner.guard.view().reign(SLOT);

    // A write is in flight that the successor has not got.
    let held = owner
        .guard
        .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
        .await
        .unwrap();
    let version = owner.store.assign(SLOT, "k1".into(), Some("y".into()));
    let wave = |sealed: Vec<v1::Position>| v1::Directive {
        wave: Some(v1::Wave {
            id: 1,
            owner: "a".into(),
            successor: "b".into(),
            slots: vec![0],
            sealed,
            ..Default::default()
        }),
        ..Default::default()
    };
    ring.leader.direct("a", wave(vec![]));
    eventually("the owner seals", || {
        owner.guard.view().seals.contains_key(&SLOT)
    })
    .await;
    let refused = owner
        .guard
        .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "sealed");
    let before = ring.leader.reported("a").renewals;
    let waited = ring
        .leader
        .until("a", "renewals", |one| one.renewals > before + 2)
        .await;
    assert_eq!(waited.sealed, None, "not drained: F is not known");
    drop(held); // The client gave up; the write stays, unacknowledged.
    let sealed = ring
        .leader
        .until("a", "sealed", |one| one.sealed.is_some())
        .await
        .sealed
        .unwrap();
    assert_eq!(
        (sealed.wave, position(sealed.positions.first().copied())),
        (1, version)
    );

    ring.leader.direct("b", wave(sealed.positions.clone()));
    let confirmed = ring
        .leader
        .until("b", "confirmed", |one| one.confirmed.is_some())
        .await
        .confirmed
        .unwrap();
    assert_eq!(confirmed, sealed);
    assert!(
        live(successor, SLOT).contains_key(b"k1".as_slice()),
        "F is held, not just claimed"
    );

    // "Over" of an epoch that is not adopted yet lifts nothing: it may have been committed.
    let next = ring.leader.script().epoch + 1;
    ring.leader.direct(
        "a",
        v1::Directive {
            epoch: next,
            waves_over: 1,
            ..Default::default()
        },
    );
    let before = ring.leader.reported("a").renewals;
    ring.leader
        .until("a", "renewals", |one| one.renewals > before + 2)
        .await;
    let refused = owner
        .guard
        .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "sealed");

    let committed = ring.leader.publish(|script| {
        script.lists[0] = vec!["b", "a"];
        script.reigns[0] = script.epoch;
        script.last_changes[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b"], committed).await;
    let refused = owner
        .guard
        .admit(crate::placed(SLOT), stamp(owner), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "not_owner");
    let old = ReplicaStamp {
        generation: Generation(1),
        epoch: Epoch(committed),
        reign,
        session: None,
    };
    assert_eq!(
        successor
            .guard
            .admit_replica(SLOT, old)
            .await
            .unwrap_err()
            .kind(),
        "deposed"
    );
    let version = ring.nodes.write("b", SLOT, "k2", None).await.unwrap();
    assert_eq!(version, Position::new(Epoch(committed), 1));
    // The old owner holds the base of the new reign and what came after.
    eventually("the old owner follows", || {
        let mark = owner.store.watermark(SLOT, Copy::Live).unwrap();
        mark.held == Some(version) && !mark.pending
    })
    .await;
    assert_eq!(live(owner, SLOT), live(successor, SLOT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seal_survives_a_restart_and_is_lifted_by_a_committed_abort_only() {
    let ring = Ring::founded(&["a", "b"]).await;
    let seal = v1::Directive {
        wave: Some(v1::Wave {
            id: 4,
            owner: "a".into(),
            successor: "b".into(),
            slots: vec![0],
            ..Default::default()
        }),
        waves_over: 3,
        ..Default::default()
    };
    ring.leader.direct("a", seal);
    ring.leader
        .until("a", "sealed", |one| one.sealed.is_some())
        .await;

    let Ring {
        leader,
        control,
        nodes: Nodes(mut nodes),
        task,
    } = ring;
    let first = nodes.remove(0);
    let (dir, store) = Arc::into_inner(first).unwrap().stop().await;
    // The endpoint is another one after the restart; the leader publishes it.
    let again = Node::start_on("a", &leader, &control, dir, store, None).await;
    let moved = leader.publish(|_| {});
    leader.adopted(&["a"], moved).await;
    let refused = again
        .guard
        .admit(crate::placed(SLOT), stamp(&again), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "sealed");
    leader.direct(
        "a",
        v1::Directive {
            waves_over: 4,
            ..Default::default()
        },
    );
    eventually("the seal is lifted", || again.guard.view().seals.is_empty()).await;
    assert!(
        again
            .guard
            .admit(crate::placed(SLOT), stamp(&again), Intent::Write)
            .await
            .is_ok()
    );
    task.abort();
}
