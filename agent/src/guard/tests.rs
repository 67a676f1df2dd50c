use std::sync::atomic::{AtomicBool, Ordering};

use annulus_ring::{
    Availability, ClusterId, HashName, Layout, Lookup, Member, MemberState, Replication, RingName,
    SlotChange, SlotTable, Snapshot, Step, Transition, TransitionId, Weight, Zone,
};
use futures::FutureExt;

use super::*;

const SLOT: Slot = Slot(0);
const OTHER: Slot = Slot(1);
const SESSION: SessionId = SessionId(7);
const NODES: [&str; 4] = ["a", "b", "c", "g"];

/// The view of one node: lists [a, b, c], on the way to [a, b, g] in slot 0 at the given step.
struct Scene {
    node: &'static str,
    epoch: u64,
    step: Option<Step>,
    settled: bool,
    last_change: u64,
    reign: u64,
}

impl Scene {
    fn of(node: &'static str, epoch: u64) -> Self {
        Self {
            node,
            epoch,
            step: None,
            settled: false,
            last_change: 1,
            reign: 1,
        }
    }

    fn at(node: &'static str, epoch: u64, step: Step, last_change: u64) -> Self {
        Self {
            step: Some(step),
            last_change,
            ..Self::of(node, epoch)
        }
    }

    fn view(&self) -> NodeView {
        let mut slots = SlotTable::empty(1, 3);
        let old = [Handle(0), Handle(1), Handle(2)];
        let new = [Handle(0), Handle(1), Handle(3)];
        slots.set(SLOT, if self.settled { &new } else { &old });
        slots.set(OTHER, &old);
        let members = (0..).zip(NODES).map(|(handle, node)| Member {
            node_id: NodeId::new(node).unwrap(),
            incarnation: Incarnation(1),
            handle: Handle(handle),
            zone: Zone::new(node).unwrap(),
            weight: Weight::new(1).unwrap(),
            endpoint: Endpoint::new(format!("{node}:1")).unwrap(),
            state: MemberState::Active,
            availability: Availability::Up,
        });
        let snapshot = Snapshot {
            format: annulus_ring::snapshot::FORMAT,
            cluster_id: ClusterId(1),
            ring: RingName::new("r").unwrap(),
            generation: Generation(1),
            epoch: Epoch(self.epoch),
            previous_checksum: annulus_ring::Checksum::default(),
            created_at_ms: 0,
            layout: Layout {
                placement_version: 1,
                hash: HashName::Xxh3_64,
                seed: 0,
                replication: Replication { rf: 3, w: 2, r: 2 },
                slots,
            },
            members: members.collect(),
            transition: self.step.map(|step| Transition {
                replication: None,
                id: TransitionId(SESSION.0),
                step,
                target: vec![SlotChange {
                    slot: SLOT,
                    to: new.as_slice().into(),
                }],
            }),
        };
        let own = NODES.iter().position(|node| *node == self.node);
        NodeView {
            incarnation: Some(Incarnation(1)),
            lookup: Some(Arc::new(Lookup::compile(Arc::new(snapshot)).unwrap())),
            reigns: Arc::from([Epoch(self.reign), Epoch(1)]),
            last_changes: Arc::from([Epoch(self.last_change), Epoch(1)]),
            own: own.map(|at| Handle(u16::try_from(at).unwrap())),
            ..NodeView::unknown(RingName::new("r").unwrap(), NodeId::new(self.node).unwrap())
        }
    }

    fn guard(&self) -> EpochGuard {
        EpochGuard::detached(self.view())
    }
}

/// Before any conversion.
fn place(slot: Slot) -> Place {
    let converted = Epoch(0);
    Place { slot, converted }
}

fn stamp(epoch: u64) -> Stamp {
    Stamp {
        generation: Generation(1),
        epoch: Epoch(epoch),
    }
}

fn replica(epoch: u64, reign: u64, session: Option<u64>) -> ReplicaStamp {
    ReplicaStamp {
        generation: Generation(1),
        epoch: Epoch(epoch),
        reign: Epoch(reign),
        session: session.map(SessionId),
    }
}

/// Every step, node and intent: one line each, with who is admitted and why not.
#[tokio::test(start_paused = true)]
async fn admission_follows_the_table_of_steps() {
    let steps = [
        (None, 1),
        (Some(Step::Prepared), 1),
        (Some(Step::Writing), 5),
        (Some(Step::CatchingUp), 5),
        (Some(Step::Joint), 8),
        (Some(Step::Switched), 9),
    ];
    for (step, last_change) in steps {
        for node in NODES {
            let guard = Scene {
                step,
                last_change,
                ..Scene::of(node, 9)
            }
            .guard();
            let seen = |done: Result<Admission, Refusal>| match done {
                Ok(_) => "yes",
                Err(refusal) => refusal.kind(),
            };
            let write = seen(guard.admit(place(SLOT), stamp(9), Intent::Write).await);
            let exact = seen(guard.admit(place(SLOT), stamp(9), Intent::ReadExact).await);
            let any = seen(guard.admit(place(SLOT), stamp(9), Intent::ReadAny).await);
            let owner = if node == "a" { "yes" } else { "not_owner" };
            assert_eq!((write, exact), (owner, owner), "{step:?} {node}");
            let switched = step == Some(Step::Switched);
            let reads = match node {
                "a" | "b" => true,
                "c" => !switched,
                _ => switched,
            };
            assert_eq!(
                any,
                if reads { "yes" } else { "not_owner" },
                "{step:?} {node}"
            );

            let session = (node == "g" && !switched).then_some(SESSION.0);
            let copy = guard
                .admit_replica(SLOT, replica(9, 1, session))
                .await
                .map(|one| one.copy);
            let wanted = match (node, step) {
                ("g", None | Some(Step::Prepared)) => None,
                ("g", Some(Step::Switched)) => Some(Copy::Live),
                ("g", Some(_)) => Some(Copy::Staging(SESSION)),
                _ => Some(Copy::Live),
            };
            assert_eq!(copy.ok(), wanted, "{step:?} {node}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_client_is_served_by_the_right_owner_and_refused_by_a_wrong_node() {
    let owner = Scene::at("a", 9, Step::Joint, 9).guard();
    let admission = owner
        .admit(place(SLOT), stamp(2), Intent::Write)
        .await
        .unwrap();
    assert_eq!(admission.epoch, Epoch(9));
    assert_eq!(admission.groups.len(), 2);
    assert_eq!(admission.replicas().count(), 3);

    let wrong = Scene::at("b", 9, Step::Joint, 9).guard();
    let refusal = wrong
        .admit(place(SLOT), stamp(2), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refusal.kind(), "stale");
    assert_eq!(refusal.owner().unwrap().node_id.as_str(), "a");
    // Not changed since: the client is simply at the wrong door.
    let refusal = wrong
        .admit(place(OTHER), stamp(2), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(refusal.kind(), "not_owner");
}

/// While a transition changes w, each list is acknowledged by its own, and the list that is read
/// confirms by its own.
#[tokio::test(start_paused = true)]
async fn each_list_needs_its_own_w() {
    let of = |step| {
        let mut view = Scene::at("a", 9, step, 9).view();
        let mut snapshot = (**view.lookup.as_ref().unwrap().snapshot()).clone();
        let transition = snapshot.transition.as_mut().unwrap();
        let rf = Replication { rf: 3, w: 3, r: 1 };
        transition.replication = Some(rf);
        transition.target.push(SlotChange {
            slot: OTHER,
            to: snapshot.layout.slots.list(OTHER).into(),
        });
        transition.target.sort_by_key(|change| change.slot);
        view.lookup = Some(Arc::new(Lookup::compile(Arc::new(snapshot)).unwrap()));
        EpochGuard::detached(view)
    };
    for (step, needs, confirmations) in [
        (Step::Verified, &[2][..], 2),
        (Step::Joint, &[2, 3][..], 2),
        (Step::Switched, &[2, 3][..], 3),
        (Step::FlippingBack, &[2, 3][..], 2),
    ] {
        let guard = of(step);
        for slot in [SLOT, OTHER] {
            let admission = guard
                .admit(place(slot), stamp(9), Intent::Write)
                .await
                .unwrap();
            let found: Vec<_> = admission.groups.iter().map(|group| group.need).collect();
            assert_eq!(
                (found.as_slice(), admission.confirmations),
                (needs, confirmations)
            );
            // Two of the old list are enough for it alone.
            let two = [Handle(0), Handle(1)];
            assert_eq!(admission.satisfied(&two), needs.len() == 1, "{step}");
            assert!(admission.satisfied(&[Handle(0), Handle(1), Handle(2), Handle(3)]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_judges_epoch_reign_set_and_session() {
    let guard = Scene {
        reign: 4,
        ..Scene::at("c", 9, Step::Writing, 6)
    }
    .guard();
    let kind = |stamp| {
        let guard = guard.clone();
        async move {
            guard
                .admit_replica(SLOT, stamp)
                .await
                .map_or_else(|one| one.kind(), |_| "yes")
        }
    };
    assert_eq!(kind(replica(6, 4, None)).await, "yes", "not changed since");
    assert_eq!(kind(replica(5, 4, None)).await, "stale");
    assert_eq!(kind(replica(10, 4, None)).await, "behind");
    assert_eq!(kind(replica(9, 3, None)).await, "deposed");
    assert_eq!(kind(replica(9, 4, Some(6))).await, "session_closed");

    let gainer = Scene::at("g", 9, Step::Writing, 6).guard();
    let late = gainer
        .admit_replica(SLOT, replica(9, 1, Some(SESSION.0 - 1)))
        .await
        .unwrap_err();
    assert_eq!(
        late.kind(),
        "session_closed",
        "a late packet of an old session"
    );
    let unmarked = gainer
        .admit_replica(SLOT, replica(9, 1, None))
        .await
        .unwrap_err();
    assert_eq!(
        unmarked.kind(),
        "session_closed",
        "a gainer is not a member yet"
    );
    gainer.adopt(
        Scene {
            last_change: 10,
            ..Scene::of("g", 10)
        }
        .view(),
    );
    let aborted = gainer
        .admit_replica(SLOT, replica(10, 1, Some(SESSION.0)))
        .await
        .unwrap_err();
    assert_eq!(aborted.kind(), "session_closed", "aborted");
    let settled = Scene {
        settled: true,
        last_change: 11,
        ..Scene::of("g", 11)
    }
    .view();
    gainer.adopt(settled);
    let after = gainer
        .admit_replica(SLOT, replica(11, 1, Some(SESSION.0)))
        .await
        .unwrap_err();
    assert_eq!(after.kind(), "session_closed", "closed by the end too");
    let member = gainer
        .admit_replica(SLOT, replica(11, 1, None))
        .await
        .unwrap();
    assert_eq!(member.copy, Copy::Live);
}

#[tokio::test(start_paused = true)]
async fn a_loser_and_a_stranger_are_no_members() {
    let settled = |node| Scene {
        settled: true,
        last_change: 9,
        ..Scene::of(node, 9)
    };
    let loser = settled("c").guard();
    assert_eq!(
        loser
            .admit(place(SLOT), stamp(9), Intent::ReadAny)
            .await
            .unwrap_err()
            .kind(),
        "not_owner"
    );
    assert_eq!(
        loser
            .admit(place(SLOT), stamp(8), Intent::ReadAny)
            .await
            .unwrap_err()
            .kind(),
        "stale"
    );
    let refusal = loser
        .admit_replica(SLOT, replica(9, 1, None))
        .await
        .unwrap_err();
    assert_eq!(refusal.kind(), "not_member");

    let mut stranger = Scene::of("x", 9).view();
    stranger.own = None;
    let guard = EpochGuard::detached(stranger);
    for intent in [Intent::Write, Intent::ReadExact, Intent::ReadAny] {
        assert_eq!(
            guard
                .admit(place(SLOT), stamp(9), intent)
                .await
                .unwrap_err()
                .kind(),
            "not_member"
        );
    }
    // The id came back as another life: this one is over.
    let mut over = Scene::of("a", 9).view();
    (over.own, over.incarnation) = (None, Some(Incarnation(0)));
    let guard = EpochGuard::detached(over);
    assert_eq!(
        guard
            .admit(place(SLOT), stamp(9), Intent::Write)
            .await
            .unwrap_err()
            .kind(),
        "removed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_seal_stops_new_writes_and_lets_old_ones_finish() {
    let guard = Scene::of("a", 9).guard();
    let write = guard
        .admit(place(SLOT), stamp(9), Intent::Write)
        .await
        .unwrap();
    let mut sealed = Scene::of("a", 9).view();
    sealed.seals = Arc::new([(SLOT, Epoch(1))].into());
    guard.adopt(sealed);
    for intent in [Intent::Write, Intent::ReadExact] {
        assert_eq!(
            guard
                .admit(place(SLOT), stamp(9), intent)
                .await
                .unwrap_err()
                .kind(),
            "sealed"
        );
    }
    assert!(
        guard
            .admit(place(SLOT), stamp(9), Intent::ReadAny)
            .await
            .is_ok()
    );
    assert!(
        guard
            .admit(place(OTHER), stamp(9), Intent::Write)
            .await
            .is_ok()
    );
    // Re-stamped under the sealed view, it still holds the seal up: F would not be final.
    let again = write.restamp().unwrap();
    drop(write);
    let mut quiet = Box::pin(guard.quiet(vec![SLOT]));
    assert!(quiet.as_mut().now_or_never().is_none());
    drop(again);
    quiet.await;
    // A seal is of one reign.
    let mut next = Scene {
        reign: 10,
        last_change: 10,
        ..Scene::of("a", 10)
    }
    .view();
    next.seals = Arc::new([(SLOT, Epoch(1))].into());
    guard.adopt(next);
    assert!(
        guard
            .admit(place(SLOT), stamp(10), Intent::Write)
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn drained_means_that_nothing_older_is_in_flight_on_what_changed() {
    let guard = Scene::of("a", 5).guard();
    let write = guard
        .admit(place(SLOT), stamp(5), Intent::Write)
        .await
        .unwrap();
    let elsewhere = guard
        .admit(place(OTHER), stamp(5), Intent::Write)
        .await
        .unwrap();
    let view = guard.adopt(Scene::at("a", 6, Step::Writing, 6).view());
    let mut drained = Box::pin(guard.drained(vec![SLOT], view.seq));
    assert!(
        drained.as_mut().now_or_never().is_none(),
        "a write of epoch 5 is in flight"
    );
    // A younger one and one on another range do not count.
    let younger = guard
        .admit(place(SLOT), stamp(6), Intent::Write)
        .await
        .unwrap();
    assert!(write.outdated() && !younger.outdated());
    let restamped = write.restamp().unwrap();
    assert_eq!((restamped.epoch, restamped.write_set.len()), (Epoch(6), 4));
    drop(write);
    drained.await;
    drop((elsewhere, younger, restamped));
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_is_not_restamped_into_another_reign() {
    let guard = Scene::of("a", 5).guard();
    let write = guard
        .admit(place(SLOT), stamp(5), Intent::Write)
        .await
        .unwrap();
    guard.adopt(
        Scene {
            reign: 6,
            last_change: 6,
            ..Scene::of("a", 6)
        }
        .view(),
    );
    assert_eq!(write.restamp().unwrap_err().kind(), "deposed");
}

#[tokio::test]
async fn no_admission_slips_between_swap_and_drain() {
    let guard = Scene::of("a", 1).guard();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (guard, stop) = (guard.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let done = guard
                        .admit(place(SLOT), stamp(1), Intent::Write)
                        .now_or_never();
                    let admission = done.expect("no wait for a known epoch").unwrap();
                    std::hint::black_box(&admission);
                }
            })
        })
        .collect();
    for epoch in 2..200 {
        let view = guard.adopt(
            Scene {
                last_change: epoch,
                ..Scene::of("a", epoch)
            }
            .view(),
        );
        guard.drained(vec![SLOT], view.seq).await;
        // Whatever is counted now was admitted by this view.
        assert!(guard.drained(vec![SLOT], view.seq).now_or_never().is_some());
    }
    stop.store(true, Ordering::Relaxed);
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_newer_epoch_waits_for_it_a_little() {
    let guard = EpochGuard::detached(NodeView::unknown(
        RingName::new("r").unwrap(),
        NodeId::new("a").unwrap(),
    ));
    let early = guard
        .admit(place(SLOT), stamp(3), Intent::Write)
        .await
        .unwrap_err();
    assert_eq!(
        early.kind(),
        "behind",
        "after the wait, and before any view"
    );
    let waiting = tokio::spawn({
        let guard = guard.clone();
        async move {
            guard
                .admit(place(SLOT), stamp(3), Intent::Write)
                .await
                .map(|one| one.epoch)
        }
    });
    tokio::task::yield_now().await;
    guard.adopt(Scene::of("a", 2).view());
    tokio::task::yield_now().await;
    guard.adopt(Scene::of("a", 3).view());
    assert_eq!(waiting.await.unwrap(), Ok(Epoch(3)));
}

#[tokio::test(start_paused = true)]
async fn a_reign_is_confirmed_by_members_that_know_no_newer_one() {
    let member = Scene {
        reign: 4,
        last_change: 6,
        ..Scene::of("b", 9)
    }
    .guard();
    let ask = |reign, epoch| member.confirm_reign(SLOT, Epoch(reign), Epoch(epoch));
    assert_eq!(ask(4, 6).await, Ok(()));
    assert_eq!(ask(3, 9).await.unwrap_err().kind(), "deposed");
    assert_eq!(ask(4, 5).await.unwrap_err().kind(), "stale");
    assert_eq!(ask(4, 10).await.unwrap_err().kind(), "behind");
    let outsider = Scene {
        reign: 4,
        ..Scene::of("g", 9)
    }
    .guard();
    let refusal = outsider
        .confirm_reign(SLOT, Epoch(4), Epoch(9))
        .await
        .unwrap_err();
    assert_eq!(refusal.kind(), "not_member");
}

#[tokio::test(start_paused = true)]
async fn only_the_owner_of_that_reign_gives_records_and_only_to_whom_they_belong() {
    let owner = Scene {
        reign: 4,
        ..Scene::at("a", 9, Step::Copying, 6)
    }
    .guard();
    let asks = |node: &str, reign, session: Option<u64>| SourceStamp {
        generation: Generation(1),
        epoch: Epoch(9),
        reign: Epoch(reign),
        session: session.map(SessionId),
        node: NodeId::new(node).unwrap(),
        incarnation: Incarnation(1),
        copies: session.is_some(),
    };
    let kind = |guard: &EpochGuard, stamp| {
        let guard = guard.clone();
        async move {
            guard
                .admit_source(SLOT, stamp)
                .await
                .map_or_else(|one| one.kind(), |()| "yes")
        }
    };
    assert_eq!(kind(&owner, asks("g", 4, Some(SESSION.0))).await, "yes");
    assert_eq!(kind(&owner, asks("b", 4, None)).await, "yes");
    assert_eq!(kind(&owner, asks("g", 4, Some(3))).await, "session_closed");
    assert_eq!(kind(&owner, asks("g", 3, Some(SESSION.0))).await, "deposed");
    assert_eq!(
        kind(&owner, asks("b", 4, Some(SESSION.0))).await,
        "session_closed"
    );
    assert_eq!(kind(&owner, asks("x", 4, None)).await, "not_member");
    let stranger = SourceStamp {
        incarnation: Incarnation(2),
        ..asks("b", 4, None)
    };
    assert_eq!(kind(&owner, stranger).await, "not_member");
    let replica = Scene {
        reign: 4,
        ..Scene::at("b", 9, Step::Copying, 6)
    }
    .guard();
    assert_eq!(
        kind(&replica, asks("g", 4, Some(SESSION.0))).await,
        "not_owner"
    );
    let early = Scene {
        reign: 4,
        ..Scene::at("a", 9, Step::Writing, 6)
    }
    .guard();
    assert_eq!(
        kind(&early, asks("g", 4, Some(SESSION.0))).await,
        "session_closed",
        "before step 3"
    );
}

#[tokio::test(start_paused = true)]
async fn short_lists_and_missing_copies_are_refused_by_name() {
    let mut view = Scene::of("a", 9).view();
    view.unheld = Arc::new([SLOT].into());
    let guard = EpochGuard::detached(view);
    let refusal = guard
        .admit(place(SLOT), stamp(9), Intent::ReadAny)
        .await
        .unwrap_err();
    assert_eq!(refusal.kind(), "no_copy");

    let admission = Scene::at("a", 9, Step::Joint, 9).guard();
    let admission = admission
        .admit(place(SLOT), stamp(9), Intent::Write)
        .await
        .unwrap();
    let [a, b, c, g] = [0, 1, 2, 3].map(Handle);
    assert!(!admission.satisfied(&[a, c]), "w of O and not w of N");
    assert!(!admission.satisfied(&[a]) && !admission.satisfied(&[a, g]));
    assert!(admission.satisfied(&[a, b]) && admission.satisfied(&[a, c, g]));
}

#[tokio::test]
async fn who_hears_nothing_serves_clients_as_the_ring_says() {
    let guard = Scene::of("a", 9).guard();
    let kinds = async || {
        let mut kinds = Vec::new();
        for intent in [Intent::Write, Intent::ReadExact, Intent::ReadAny] {
            let admitted = guard.admit(place(SLOT), stamp(9), intent).await;
            kinds.push(admitted.map_or_else(|refusal| refusal.kind(), |_| "yes"));
        }
        kinds
    };
    for (serves_when_isolated, isolated, answer) in [
        (true, false, "yes"),
        (true, true, "yes"),
        (false, false, "yes"),
        (false, true, "isolated"),
    ] {
        guard.set_terms(Terms {
            serves_when_isolated,
            ..Terms::default()
        });
        guard.isolate(isolated);
        assert_eq!(
            kinds().await,
            [answer; 3],
            "{serves_when_isolated} {isolated}"
        );
        // What an owner sends is judged by its epoch and reign alone.
        assert!(guard.admit_replica(SLOT, replica(9, 1, None)).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_ring_is_converted_nobody_is_served_and_who_waits_goes_on_after_it() {
    let guard = Scene::of("a", 5).guard();
    let converting = NodeView {
        converting: true,
        ..Scene::of("a", 6).view()
    };
    guard.adopt(converting);
    for intent in [Intent::Write, Intent::ReadExact, Intent::ReadAny] {
        let refused = guard.admit(place(SLOT), stamp(5), intent).await;
        let refused = refused.expect_err("nobody is served");
        assert!(matches!(refused, Refusal::Converting { .. }), "{refused:?}");
    }
    // Given up: as if nothing had been.
    let waits = guard.admit(place(SLOT), stamp(5), Intent::Write);
    tokio::pin!(waits);
    assert!(waits.as_mut().now_or_never().is_none(), "it waits");
    guard.adopt(Scene::of("a", 7).view());
    assert_eq!(waits.await.expect("served").epoch, Epoch(7));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_named_before_a_conversion_is_not_the_one_of_that_number_after_it() {
    let guard = Scene::of("a", 5).guard();
    let before = guard.view().locate(b"k").unwrap();
    let converting = NodeView {
        converting: true,
        ..Scene::of("a", 6).view()
    };
    guard.adopt(converting);
    let waits = guard.admit(before, stamp(5), Intent::Write);
    tokio::pin!(waits);
    assert!(waits.as_mut().now_or_never().is_none(), "it waits");
    let converted = NodeView {
        converted: Epoch(7),
        ..Scene::of("a", 7).view()
    };
    guard.adopt(converted);
    let refused = waits.await.expect_err("another slot has that number");
    assert!(matches!(refused, Refusal::Converted { .. }), "{refused:?}");
    let now = guard.view().locate(b"k").unwrap();
    assert!(guard.admit(now, stamp(7), Intent::Write).await.is_ok());
}
