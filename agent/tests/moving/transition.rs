//! A range on its way from one node to another.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annulus_agent::{Copy, Intent, Refusal, ReplicaStamp};
use annulus_proto::v1;
use annulus_ring::{Epoch, Generation, SessionId, Step};

use crate::{
    OTHER, SLOT,
    c50_clean_up::moved as moved_away,
    leader::Reported,
    node::{Node, epoch, live},
    ring::{Ring, eventually, stamp},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_moves_through_all_steps_while_it_is_written() {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    for n in 0..2_500 {
        ring.nodes
            .write("a", SLOT, &format!("old{n}"), Some("x"))
            .await
            .unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (nodes, stop) = (ring.nodes.clone(), stop.clone());
            tokio::spawn(async move {
                let mut acknowledged = BTreeMap::new();
                let mut n = 0;
                let mut pace = tokio::time::interval(Duration::from_millis(4));
                while !stop.load(Ordering::SeqCst) {
                    n += 1;
                    let key = format!("w{writer}k{}", n % 50);
                    let value = (n % 10 != 0).then(|| n.to_string());
                    let version = nodes
                        .write("a", SLOT, &key, value.as_deref())
                        .await
                        .unwrap();
                    acknowledged.insert(key, (version, value));
                    pace.tick().await;
                }
                acknowledged
            })
        })
        .collect();

    ring.leader
        .publish(|script| script.members = vec!["a", "b", "g"]);
    ring.walk(1, "g", Step::Verified).await;
    let gainer = ring.node("g");
    let early = gainer
        .guard
        .admit(crate::placed(SLOT), stamp(gainer), Intent::ReadAny)
        .await;
    assert!(
        matches!(early, Err(Refusal::NotOwner { .. })),
        "a gainer serves no read: {early:?}"
    );
    ring.walk_on(1, "g").await;
    assert!(
        gainer
            .guard
            .admit(crate::placed(SLOT), stamp(gainer), Intent::ReadAny)
            .await
            .is_ok()
    );
    let loser = ring.node("b");
    let refused = loser
        .guard
        .admit(crate::placed(SLOT), stamp(loser), Intent::ReadAny)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "not_owner");
    assert!(
        !live(loser, SLOT).is_empty(),
        "through the soak the loser is written"
    );

    let settled = ring.leader.publish(|script| {
        script.transition = None;
        script.lists[0] = vec!["a", "g"];
        script.last_changes[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "g"], settled).await;
    let loser = ring.leader.reported("b");
    assert_eq!(
        loser.retained,
        BTreeMap::from([(1, vec![0])]),
        "said with the ack"
    );
    stop.store(true, Ordering::SeqCst);

    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let served = live(gainer, SLOT);
    assert!(
        served == live(ring.node("a"), SLOT),
        "owner and gainer differ"
    );
    for (key, (version, value)) in acknowledged {
        let found = &served[key.as_bytes()];
        assert_eq!(found, &(version, value.map(Into::into)), "{key}");
    }
    assert!((0..2_500).all(|n| served.contains_key(format!("old{n}").as_bytes())));

    // The comparison that a permit asks for, and the permit.
    ring.leader.direct(
        "g",
        v1::Directive {
            verify: vec![0],
            ..Default::default()
        },
    );
    let compared = |one: &Reported| one.slots.get(&(0, 0)).is_some_and(|at| at.digest.is_some());
    ring.leader
        .until("g", "comparison of the live copy", compared)
        .await;
    let permits = vec![v1::SlotSet {
        session: 1,
        slots: vec![0],
    }];
    ring.leader.script().permits = false;
    ring.leader.direct(
        "b",
        v1::Directive {
            permits: permits.clone(),
            ..Default::default()
        },
    );
    ring.leader.script().permits = true;
    ring.leader.direct(
        "b",
        v1::Directive {
            permits,
            waves_over: 1,
            ..Default::default()
        },
    );
    ring.leader
        .until("b", "released", |one| one.retained.is_empty())
        .await;
    assert_eq!(ring.node("b").store.copies(), vec![(OTHER, Copy::Live)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_copy_is_closed_at_once_and_wiped_when_everyone_knows() {
    let ring = Ring::founded(&["a", "b", "c"]).await;
    ring.leader
        .publish(|script| script.members = vec!["a", "b", "c"]);
    for n in 0..50 {
        ring.nodes
            .write("a", SLOT, &format!("k{n}"), Some("x"))
            .await
            .unwrap();
    }
    ring.walk(1, "c", Step::CatchingUp).await;
    let gainer = ring.node("c");
    let session = SessionId(1);
    assert_eq!(gainer.store.newest(SLOT, Copy::Staging(session)).len(), 50);
    let late = ReplicaStamp {
        generation: Generation(1),
        epoch: epoch(gainer),
        reign: gainer.guard.view().reign(SLOT),
        session: Some(session),
    };
    assert!(gainer.guard.admit_replica(SLOT, late).await.is_ok());

    let aborted = ring.leader.publish(|script| {
        script.transition = None;
        script.last_changes[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "c"], aborted).await;
    for epoch in [late.epoch, Epoch(aborted)] {
        let refused = gainer
            .guard
            .admit_replica(SLOT, ReplicaStamp { epoch, ..late })
            .await;
        assert_eq!(
            refused.unwrap_err().kind(),
            "session_closed",
            "packets of epoch {epoch}"
        );
    }
    let kept = || {
        gainer
            .store
            .copies()
            .contains(&(SLOT, Copy::Staging(session)))
    };
    let everyone = |everyone_adopted_epoch, waves_over| v1::Directive {
        everyone_adopted_epoch,
        waves_over,
        ..Default::default()
    };
    ring.leader.direct("c", everyone(aborted - 1, 1));
    let before = ring.leader.reported("c").renewals;
    ring.leader
        .until("c", "the directive was taken in", |one| {
            one.renewals > before + 2
        })
        .await;
    assert!(kept(), "somebody may still send to it");
    ring.leader.direct("c", everyone(aborted, 2));
    eventually("staging is wiped", || !kept()).await;

    // The same move again, under a session of its own.
    ring.walk(2, "c", Step::Verified).await;
    ring.walk_on(2, "c").await;
    assert_eq!(live(ring.node("c"), SLOT).len(), 50);
}

/// F8: until every gainer has heard of the way back, writes need w of both lists, and so a gainer
/// goes on storing them; but hidden, and no read is answered from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipping_back_hides_what_was_switched_on_and_loses_nothing() {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    ring.leader
        .publish(|script| script.members = vec!["a", "b", "g"]);
    ring.nodes.write("a", SLOT, "k0", Some("x")).await.unwrap();
    ring.walk(1, "g", Step::Verified).await;
    ring.walk_on(1, "g").await;
    ring.nodes.write("a", SLOT, "k1", Some("x")).await.unwrap();
    let (gainer, session) = (ring.node("g"), SessionId(1));
    assert_eq!(live(gainer, SLOT).len(), 2);

    let back = ring.leader.step(1, Step::FlippingBack, &["a", "g"]);
    ring.leader.adopted(&["a", "b", "g"], back).await;
    assert!(
        live(gainer, SLOT).is_empty(),
        "the live copy is hidden again"
    );
    for intent in [Intent::ReadAny, Intent::ReadExact] {
        let early = gainer
            .guard
            .admit(crate::placed(SLOT), stamp(gainer), intent)
            .await;
        assert_eq!(early.unwrap_err().kind(), "not_owner");
    }
    let loser = ring.node("b");
    // Not kept: an admission in flight holds up the epochs that change its slot.
    let answers = |read: Result<_, Refusal>| read.is_ok();
    let read = loser
        .guard
        .admit(crate::placed(SLOT), stamp(loser), Intent::ReadAny);
    assert!(answers(read.await), "reads are back at the old list");
    ring.nodes.write("a", SLOT, "k2", Some("x")).await.unwrap();
    let hidden = gainer.store.newest(SLOT, Copy::Staging(session));
    assert_eq!(hidden.len(), 3, "writes are stored at the gainer still");
    assert_eq!(live(loser, SLOT).len(), 3);

    let aborted = ring.leader.publish(|script| {
        script.transition = None;
        script.last_changes[0] = script.epoch;
    });
    ring.leader.adopted(&["a", "b", "g"], aborted).await;
    ring.nodes.write("a", SLOT, "k3", Some("x")).await.unwrap();
    let everyone = v1::Directive {
        everyone_adopted_epoch: aborted,
        ..Default::default()
    };
    ring.leader.direct("g", everyone);
    eventually("staging is wiped", || {
        !gainer
            .store
            .copies()
            .contains(&(SLOT, Copy::Staging(session)))
    })
    .await;
    assert!(ring.leader.reported("g").retained.is_empty());
    assert_eq!(live(loser, SLOT).len(), 4);

    // The same move again, under a session of its own.
    ring.walk(2, "g", Step::Verified).await;
    ring.walk_on(2, "g").await;
    assert_eq!(live(gainer, SLOT).len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_ring_copies_nothing_until_it_is_resumed() {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    ring.leader
        .publish(|script| script.members = vec!["a", "b", "g"]);
    ring.nodes.write("a", SLOT, "k", Some("x")).await.unwrap();
    ring.walk(1, "g", Step::Writing).await;
    let paused = |paused| v1::Directive {
        paused,
        ..Default::default()
    };
    ring.leader.direct("g", paused(true));
    let taken = ring.leader.reported("g").renewals;
    ring.leader
        .until("g", "the pause was taken in", |one| {
            one.renewals > taken + 2
        })
        .await;
    let copying = ring.leader.step(1, Step::Copying, &["a", "g"]);
    ring.leader.adopted(&["a", "b", "g"], copying).await;
    let before = ring.leader.reported("g").renewals;
    ring.leader
        .until("g", "time to copy", |one| one.renewals > before + 5)
        .await;
    let reported = ring.leader.reported("g");
    assert!(
        reported
            .slots
            .get(&(1, 0))
            .is_none_or(|at| at.copied.is_none()),
        "copied while paused"
    );
    ring.leader.direct("g", paused(false));
    ring.leader
        .until("g", "copied", |one| {
            one.slots.get(&(1, 0)).is_some_and(|at| at.copied.is_some())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_joiner_sets_its_data_aside_and_is_born_again() {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    ring.leader
        .publish(|script| script.members = vec!["a", "b", "g"]);
    ring.nodes.write("a", SLOT, "k", Some("x")).await.unwrap();
    ring.walk(1, "g", Step::CatchingUp).await;
    let birth = ring.leader.reported("g").hellos[0].birth.clone();
    ring.leader.script().aborted_births.insert(birth.clone());
    ring.leader.publish(|script| {
        script.transition = None;
        script.members = vec!["a", "b"];
        script.last_changes[0] = script.epoch;
    });
    let again = ring
        .leader
        .until("g", "hello of another life", |one| {
            one.hellos.last().is_some_and(|hello| hello.birth != birth)
        })
        .await;
    assert!(again.hellos.last().unwrap().empty);
    assert_eq!(ring.node("g").store.copies(), vec![]);
    let joiner = ring.node("g");
    let refused = joiner
        .guard
        .admit(crate::placed(SLOT), stamp(joiner), Intent::ReadAny)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), "not_member");
}

/// Slot 0 comes back to b, which kept its copy of before: what was written, deleted and added since
/// is fetched, what the owner never had is given up, and the rest is on its disk already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gainer_begins_with_what_it_kept() {
    let ring = moved_away().await;
    let back = ring.node("b");
    let kept = Copy::Retained(SessionId(1));
    assert!(back.store.slip_in(SLOT, kept), "a record of b alone");
    for (key, value) in [("k0", Some("new")), ("k1", None), ("more", Some("x"))] {
        ring.nodes.write("a", SLOT, key, value).await.unwrap();
    }
    let metrics = back.agent.metrics();
    let before = metrics.copied_bytes.get();
    ring.walk(2, "b", Step::CatchingUp).await;
    let staged = back.store.newest(SLOT, Copy::Staging(SessionId(2)));
    assert_eq!(staged, live(ring.node("a"), SLOT));
    assert_eq!((metrics.seeded.get(), metrics.mended.get()), (1, 4));
    let fetched = metrics.copied_bytes.get() - before;
    assert!(fetched <= 12, "{fetched} bytes of k0, k1 and more");
    assert_eq!(
        back.store.newest(SLOT, kept).len(),
        51,
        "kept until a permit"
    );
    assert_eq!(ring.leader.reported("b").slots[&(2, 0)].attempt, 1);
}

/// Where the store cannot say what it kept, or lost it in between, the range is copied like any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gainer_that_cannot_use_what_it_kept_copies() {
    let ring = moved_away().await;
    let back = ring.node("b");
    back.store.list_nothing();
    ring.walk(2, "b", Step::CatchingUp).await;
    let staged = back.store.newest(SLOT, Copy::Staging(SessionId(2)));
    assert_eq!(staged, live(ring.node("a"), SLOT));
    let metrics = back.agent.metrics();
    assert_eq!((metrics.seeded.get(), metrics.mended.get()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gainer_that_restarts_while_copying_goes_on_in_the_same_session() {
    let ring = Ring::founded(&["a", "b"]).await;
    for n in 0..300 {
        ring.nodes
            .write("a", SLOT, &format!("k{n}"), Some(&"x".repeat(100)))
            .await
            .unwrap();
    }
    // About 30 kB at 20 kB/s: the copy is under way when the node stops.
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let slow = Some(20_000);
    let (leader, control) = (&ring.leader, &ring.control);
    let first = Node::start_on("g", leader, control, dir, Arc::default(), slow).await;
    leader
        .until("g", "hello", |one| !one.hellos.is_empty())
        .await;
    leader.publish(|script| script.members = vec!["a", "b", "g"]);
    let prepared = leader.step(1, Step::Prepared, &["a", "g"]);
    leader.adopted(&["g"], prepared).await;
    let writing = leader.step(1, Step::Writing, &["a", "g"]);
    leader.adopted(&["a", "b", "g"], writing).await;
    leader.step(1, Step::Copying, &["a", "g"]);
    eventually("the copy began", || {
        leader.reported("g").adopted > writing && first.agent.status().adopted > Epoch(writing)
    })
    .await;
    let (dir, store) = first.stop().await;
    assert!(
        store
            .copies()
            .contains(&(SLOT, Copy::Staging(SessionId(1))))
    );

    let again = Node::start_on("g", leader, control, dir, store, None).await;
    let moved = leader.publish(|_| {});
    leader.adopted(&["g"], moved).await;
    let copied = |one: &Reported| one.slots.get(&(1, 0)).is_some_and(|at| at.copied.is_some());
    leader.until("g", "copied", copied).await;
    assert_eq!(
        again.store.newest(SLOT, Copy::Staging(SessionId(1))).len(),
        300
    );
}
