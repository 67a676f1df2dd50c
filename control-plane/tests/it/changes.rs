//! What operators may change on a running ring, by the wire: each call at a follower, what status
//! shows of it, and what is refused by name.

use crate::support::*;
use annulus_proto::v1;
use tonic::{Code, Response, Status};

async fn shown(cluster: &Cluster) -> v1::RingStatus {
    let request = v1::GetRingRequest {
        mode: v1::ReadMode::Linearizable.into(),
        ring: "r".to_owned(),
    };
    let answer = within("show", cluster.admin(2).get_ring(request)).await;
    answer.expect("the ring is shown").into_inner()
}

/// Waits until the change of this answer is done; gives the ring as it is then.
async fn done(
    cluster: &Cluster,
    answer: Result<Response<v1::MutationResponse>, Status>,
) -> v1::RingStatus {
    let change = answer.expect("accepted").into_inner().change_id;
    assert!(change > 0);
    until("the change is done", || async {
        let ring = shown(cluster).await;
        let found = ring.changes.iter().find(|known| known.id == change);
        let state = found.map(v1::ChangeStatus::state);
        assert_ne!(state, Some(v1::ChangeState::Refused), "{found:?}");
        (state == Some(v1::ChangeState::Done)).then_some(ring)
    })
    .await
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, name: &str, code: Code) {
    assert_eq!(cause(&answer.unwrap_err()), (name.to_owned(), code));
}

fn slots(first: u32, last: u32) -> Vec<v1::SlotSpan> {
    vec![v1::SlotSpan { first, last }]
}

fn pin(node: &str, slots: Vec<v1::SlotSpan>, owner: bool) -> v1::PinRequest {
    v1::PinRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: node.to_owned(),
        slots,
        owner,
        expected_layout_epoch: None,
    }
}

fn replication(rf: u32, w: u32, r: u32) -> v1::SetReplicationRequest {
    v1::SetReplicationRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        rf,
        w,
        r,
        accept: false,
        expected_layout_epoch: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_ring_is_changed_by_operators_and_says_what_it_refuses() {
    let cluster = Cluster::start(3, |config| {
        config.limits.epoch_interval_ms = std::num::NonZeroU32::new(10).expect("not 0");
    })
    .await;
    cluster.init().await;
    let mut agents = cluster.founded().await;
    let newcomer = v1::Hello {
        zone: "zone-a".to_owned(),
        ..hello("d")
    };
    agents.push(Agent::start(&cluster, newcomer).await);
    agents[3].welcomed().await;
    let mut admin = cluster.admin(cluster.follower().await);
    let joined = within("join", admin.join_node(join("d"))).await;
    done(&cluster, joined).await;

    // Pins are shown, honoured, and in the way of whoever would take the node away.
    let pinned = within("pin", admin.pin_ranges(pin("d", slots(0, 3), true))).await;
    let ring = done(&cluster, pinned).await;
    let shown_pins: Vec<_> = ring
        .pins
        .iter()
        .map(|pin| (pin.node.as_str(), pin.owner, pin.slots.clone()))
        .collect();
    assert_eq!(shown_pins, [("d", true, slots(0, 3))]);
    let answer = within("pin", admin.pin_ranges(pin("a", slots(3, 3), false))).await;
    refused(answer, "NoRoomForPin", Code::FailedPrecondition);
    let answer = within("pin", admin.pin_ranges(pin("d", slots(16, 16), false))).await;
    refused(answer, "BadSlots", Code::InvalidArgument);
    let drain = v1::DrainNodeRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: "d".to_owned(),
        steps: Some(2),
        ..v1::DrainNodeRequest::default()
    };
    let answer = within("drain", admin.drain_node(drain.clone())).await;
    refused(answer, "Pinned", Code::FailedPrecondition);
    let unpin = v1::UnpinRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: "d".to_owned(),
        slots: Vec::new(),
        expected_layout_epoch: None,
    };
    let unpinned = within("unpin", admin.unpin_ranges(unpin)).await;
    assert!(done(&cluster, unpinned).await.pins.is_empty());

    // A zone, its drain, and what would lose one.
    let zone = v1::SetZoneRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: "d".to_owned(),
        zone: "zone-b".to_owned(),
        ..v1::SetZoneRequest::default()
    };
    let moved = within("zone", admin.set_zone(zone)).await;
    let ring = done(&cluster, moved).await;
    let zone_of = |ring: &v1::RingStatus, node: &str| {
        let found = ring.nodes.iter().find(|known| known.node_id == node);
        found.map(|node| node.zone.clone())
    };
    assert_eq!(zone_of(&ring, "d").as_deref(), Some("zone-b"));
    let drain_zone = v1::DrainZoneRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        zone: "zone-a".to_owned(),
        ..v1::DrainZoneRequest::default()
    };
    let answer = within("drain zone", admin.drain_zone(drain_zone)).await;
    refused(answer, "ZoneLost", Code::FailedPrecondition);

    // Other quorums over the same lists, and coordinates that stay.
    let answer = within("replication", admin.set_replication(replication(3, 2, 1))).await;
    refused(answer, "Replication", Code::InvalidArgument);
    let changed = within("replication", admin.set_replication(replication(3, 3, 1))).await;
    let ring = done(&cluster, changed).await;
    assert_eq!((ring.rf, ring.w, ring.r), (3, 3, 1));
    let changed = within("replication", admin.set_replication(replication(2, 2, 1))).await;
    let ring = done(&cluster, changed).await;
    assert_eq!((ring.rf, ring.w, ring.short_ranges), (2, 2, 0));
    let convert = v1::ConvertRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        hash: Some("md5-64".to_owned()),
        layout: None,
        double: false,
    };
    let answer = within("convert", admin.convert_ring(convert)).await;
    refused(answer, "OtherCoordinates", Code::FailedPrecondition);

    // By steps: the last change of the row is the drain. A weight of 1 has no part to give up.
    let weight = v1::SetWeightRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: "d".to_owned(),
        weight: 4,
        ..v1::SetWeightRequest::default()
    };
    let heavier = within("weight", admin.set_weight(weight)).await;
    done(&cluster, heavier).await;
    let drain = v1::DrainNodeRequest {
        request_id: fresh_id(),
        ..drain
    };
    let drained = within("drain", admin.drain_node(drain)).await;
    let ring = done(&cluster, drained).await;
    let last = ring.changes.iter().rev().take(2);
    let kinds: Vec<_> = last.map(|change| change.kind.as_str()).collect();
    assert_eq!(kinds, ["drain", "weight"]);
    let weights = ring.changes.iter().filter(|change| change.kind == "weight");
    assert_eq!(weights.count(), 2, "the one asked for, and the row's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_in_maintenance_hands_its_ranges_over_and_is_shown() {
    let cluster = Cluster::three().await;
    let _agents = cluster.founded().await;
    let mut admin = cluster.admin(cluster.follower().await);
    let ask = |nodes: &[&str]| v1::OkToRestartRequest {
        ring: "r".to_owned(),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
    };
    let answer = within("ok", admin.ok_to_restart(ask(&[]))).await;
    let answer = answer.expect("an answer").into_inner();
    let batches: Vec<_> = answer.batches.iter().map(|one| one.nodes.clone()).collect();
    assert_eq!(batches, [["a"], ["b"], ["c"]], "w 2 of 3: one at a time");
    assert!(!answer.together && answer.blocked.is_empty());
    let answer = within("ok", admin.ok_to_restart(ask(&["b"]))).await;
    assert!(answer.expect("an answer").into_inner().together);
    let answer = within("ok", admin.ok_to_restart(ask(&["x"]))).await;
    refused(answer, "NotMember", Code::NotFound);

    let maintain = |node: &str, for_ms| v1::MaintainRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: node.to_owned(),
        for_ms,
        accept: false,
    };
    let answer = within("maintain", admin.maintain_node(maintain("a", None))).await;
    refused(answer, "NotMaintained", Code::FailedPrecondition);
    let answer = within("maintain", admin.maintain_node(maintain("a", Some(60_000)))).await;
    answer.expect("accepted");
    until("a owns nothing", || async {
        let ring = shown(&cluster).await;
        let a = ring.nodes.iter().find(|node| node.node_id == "a")?;
        assert_eq!(a.word.as_deref(), Some("maintenance"));
        (a.owned_ranges == 0 && a.maintenance_left_ms > Some(0)).then_some(())
    })
    .await;
    // Its absence counts.
    let answer = within("maintain", admin.maintain_node(maintain("b", Some(60_000)))).await;
    refused(answer, "TooManyAway", Code::FailedPrecondition);
    let answer = within("ok", admin.ok_to_restart(ask(&["b"]))).await;
    let answer = answer.expect("an answer").into_inner();
    assert_eq!((answer.together, answer.blocked.len()), (false, 1));

    let answer = within("maintain", admin.maintain_node(maintain("a", None))).await;
    answer.expect("ended");
    until("a owns ranges again", || async {
        let ring = shown(&cluster).await;
        let a = ring.nodes.iter().find(|node| node.node_id == "a")?;
        (a.owned_ranges > 0 && a.maintenance_left_ms.is_none()).then_some(())
    })
    .await;
}
