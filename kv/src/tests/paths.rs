//! The ways of writes and reads, with every member up and with some down.

use std::time::{Duration, Instant};

use annulus_agent::store::{Copy, Holding, RangeStore, Record};
use annulus_ring::{Epoch, Handle, Position, SessionId, Step};
use bytes::Bytes;
use tonic::Request;

use super::cluster::{Cluster, until};
use crate::{
    BatchItem, Error, WriteOptions,
    limits::{LimitError, MAX_KEY_BYTES},
    load::{Load, LoadConfig},
    node::Settings,
    pb::{self, replica_server::Replica},
    replica::ReplicaService,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_read_until_it_is_deleted() {
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    assert_eq!(client.get(b"k").await.unwrap().version, None);
    let first = client.put(b"k", "one").await.unwrap();
    let found = client.get(b"k").await.unwrap();
    assert_eq!(found.value, Some(Bytes::from("one")));
    assert_eq!(found.version, Some(first.version));
    let second = client.put(b"k", "").await.unwrap();
    assert!(second.version > first.version);
    assert_eq!(
        client.get(b"k").await.unwrap().value,
        Some(Bytes::new()),
        "empty is a value"
    );
    let third = client.delete(b"k").await.unwrap();
    let found = client.get(b"k").await.unwrap();
    assert_eq!((found.value, found.version), (None, Some(third.version)));
    // Every member has it in the end, the one that was not waited for as well.
    let slot = cluster.slot(b"k");
    until("all members hold the tombstone", || {
        (0..3).all(|handle| {
            let record = cluster.node(handle).node.store.get(slot, b"k").unwrap();
            record.is_some_and(|record| record.version == third.version)
        })
    })
    .await;
    let any = client.get_any(b"k").await.unwrap();
    assert_eq!(
        (any.version, any.watermark),
        (Some(third.version), Some(third.version))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_answers_for_each_write_by_itself() {
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    let mut items: Vec<_> = (0..2_500)
        .map(|index| BatchItem {
            key: Bytes::from(format!("key-{index}")),
            value: Some(Bytes::from(format!("value-{index}"))),
        })
        .collect();
    items[7].key = Bytes::from(vec![b'x'; MAX_KEY_BYTES + 1]);
    items[8].value = None;
    let results = client.batch(&items, WriteOptions::default()).await;
    for (index, result) in results.iter().enumerate() {
        match result {
            Err(Error::Limit(LimitError::KeyTooLong { .. })) => assert_eq!(index, 7),
            result => assert!(result.is_ok(), "{index}: {result:?}"),
        }
    }
    for index in [0, 1_000, 2_499] {
        let found = client.get(format!("key-{index}").as_bytes()).await.unwrap();
        assert_eq!(found.value, Some(Bytes::from(format!("value-{index}"))));
    }
    assert_eq!(client.get(b"key-8").await.unwrap().value, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_gets_a_named_error_and_changes_nothing() {
    use crate::pb::{self, kv_client::KvClient as Stub, refused::Cause};
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    assert!(matches!(
        client.put(b"", "v").await,
        Err(Error::Limit(LimitError::KeyEmpty))
    ));
    let long = client.put(b"k", vec![0; (1 << 20) + 1]).await;
    assert!(matches!(
        long,
        Err(Error::Limit(LimitError::ValueTooLong { .. }))
    ));
    // Past the client's own checks.
    let endpoint = &cluster.snapshot.members[0].endpoint;
    let mut stub = Stub::connect(format!("http://{endpoint}")).await.unwrap();
    let stamp = |ring: &str, hops| {
        Some(pb::Stamp {
            ring: ring.to_owned(),
            generation: 1,
            epoch: 1,
            hops,
        })
    };
    let cases = [
        (None, "k", "NoStamp"),
        (stamp("other", 1), "k", "WrongRing"),
        (stamp("test", 3), "k", "TooManyHops"),
        (stamp("test", 1), "", "KeyEmpty"),
    ];
    for (stamp, key, expected) in cases {
        let request = pb::PutRequest {
            stamp,
            key: key.into(),
            value: "v".into(),
            timeout_ms: 0,
        };
        let response = stub.put(request).await.unwrap().into_inner();
        let result = response.result.unwrap().result.unwrap();
        let pb::write_result::Result::Refused(refused) = result else {
            panic!("{expected}")
        };
        let Some(Cause::Invalid(invalid)) = refused.cause else {
            panic!("{expected}")
        };
        assert_eq!(invalid.name, expected);
    }
    assert_eq!(client.get(b"k").await.unwrap().version, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_member_down_writes_go_on_and_it_catches_up() {
    let mut cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    client.put(&key, "before").await.unwrap();
    cluster.kill(2).await;
    for round in 0..20 {
        client.put(&key, format!("during {round}")).await.unwrap();
    }
    assert_eq!(
        client.get(&key).await.unwrap().value,
        Some(Bytes::from("during 19"))
    );
    cluster.restart(2).await;
    cluster.adopt(2);
    until("the member got what it missed", || {
        cluster.has(2, &key, b"during 19")
    })
    .await;
    let slot = cluster.slot(&key);
    let watermark = cluster
        .node(2)
        .node
        .store
        .watermark(slot, Copy::Live)
        .unwrap();
    assert!(!watermark.pending, "{watermark:?}: nothing was left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nothing_is_acknowledged_and_the_outcome_is_unknown() {
    let mut cluster = Cluster::start(3, 3).await;
    let patient = cluster.client().await;
    let hasty = cluster.client_with(Duration::from_millis(300)).await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    patient.put(&key, "old").await.unwrap();
    until("all have the old value", || {
        (0..3).all(|node| cluster.has(node, &key, b"old"))
    })
    .await;
    cluster.kill(1).await;
    cluster.kill(2).await;
    let unknown = hasty.put(&key, "new").await.unwrap_err();
    assert!(unknown.is_unknown(), "{unknown}");
    // The owner alone can neither confirm its reign nor show what is not acknowledged.
    let refused = hasty.get(&key).await.unwrap_err();
    assert!(!refused.is_unknown(), "{refused}");
    assert_eq!(
        hasty.get_any(&key).await.unwrap().value,
        Some(Bytes::from("new"))
    );
    // One member back is a quorum: the write is acknowledged after all, and then seen by all.
    cluster.restart(1).await;
    cluster.adopt(1);
    assert_eq!(
        patient.get(&key).await.unwrap().value,
        Some(Bytes::from("new"))
    );
    until("the member got it", || cluster.has(1, &key, b"new")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_owner_shows_no_record_that_it_alone_holds() {
    let mut cluster = Cluster::start(3, 3).await;
    let patient = cluster.client().await;
    let hasty = cluster.client_with(Duration::from_millis(300)).await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    patient.put(&key, "old").await.unwrap();
    cluster.kill(1).await;
    cluster.kill(2).await;
    let last = hasty.put(&key, "new").await.unwrap_err();
    assert!(last.is_unknown(), "{last}");
    cluster.kill(0).await;
    cluster.restart(0).await;
    cluster.restart(1).await;
    cluster.adopt(0);
    cluster.adopt(1);
    // The first read after the start sees it only once another member has it.
    assert_eq!(
        patient.get(&key).await.unwrap().value,
        Some(Bytes::from("new"))
    );
    assert!(cluster.has(1, &key, b"new"), "shown before it was safe");
    // Positions go on where they ended: none is given twice in a reign.
    let written = patient.put(&key, "next").await.unwrap();
    assert_eq!(written.version, Position::new(Epoch(1), 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_member_is_not_waited_for() {
    let delay = Duration::from_millis(400);
    let cluster = Cluster::start_with(3, 3, |handle| {
        let replicate_delay = if handle == 2 { delay } else { Duration::ZERO };
        Settings {
            replicate_delay,
            ..Settings::default()
        }
    })
    .await;
    let client = cluster.client().await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let begun = Instant::now();
    client.put(&key, "v").await.unwrap();
    assert!(begun.elapsed() < delay, "{:?}", begun.elapsed());
}

/// Two members that give one address: one of them must not answer for the other, or one copy would
/// count as two.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_answers_in_the_place_of_another_member() {
    let cluster = Cluster::start(3, 3).await;
    let service = ReplicaService(cluster.node(1).node.clone());
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    let item = pb::ReplicateItem {
        slot: slot.0,
        epoch: 1,
        reign: 1,
        version: Some(pb::Version { reign: 1, seq: 1 }),
        key: key.clone().into(),
        value: Some("v".into()),
        ..pb::ReplicateItem::default()
    };
    let owner = &cluster
        .snapshot
        .member_by_handle(Handle(0))
        .unwrap()
        .endpoint;
    let replicate = |receiver: &str| pb::ReplicateRequest {
        ring: cluster.snapshot.ring.to_string(),
        generation: 1,
        sender: "n0".to_owned(),
        items: vec![item.clone()],
        receiver: receiver.to_owned(),
        sender_endpoint: owner.to_string(),
    };
    let astray = service.replicate(Request::new(replicate("n2"))).await;
    let refused = astray.unwrap().into_inner().results.remove(0).refused;
    let said = format!("{refused:?}");
    assert!(said.contains("WrongNode") && said.contains("n1"), "{said}");
    assert!(!cluster.has(1, &key, b"v"), "it was stored all the same");

    let confirm = |receiver: &str| pb::ConfirmReignRequest {
        ring: cluster.snapshot.ring.to_string(),
        generation: 1,
        sender: "n0".to_owned(),
        items: vec![pb::ConfirmItem {
            slot: slot.0,
            reign: 1,
            epoch: 1,
        }],
        receiver: receiver.to_owned(),
        sender_endpoint: owner.to_string(),
    };
    let astray = service.confirm_reign(Request::new(confirm("n2"))).await;
    assert!(astray.unwrap().into_inner().results[0].refused.is_some());

    // Nor does anybody take writes from who is not the owner, or is another process of its name.
    for (sender, sender_endpoint) in [("n2", owner.as_str()), ("n0", "127.0.0.1:1")] {
        let stray = pb::ReplicateRequest {
            sender: sender.to_owned(),
            sender_endpoint: sender_endpoint.to_owned(),
            ..replicate("n1")
        };
        let answer = service.replicate(Request::new(stray)).await.unwrap();
        let said = format!("{:?}", answer.into_inner().results[0].refused);
        assert!(said.contains("WrongSender"), "{sender}: {said}");
        let stray = pb::ConfirmReignRequest {
            sender: sender.to_owned(),
            sender_endpoint: sender_endpoint.to_owned(),
            ..confirm("n1")
        };
        let answer = service.confirm_reign(Request::new(stray)).await.unwrap();
        let said = format!("{:?}", answer.into_inner().results[0].refused);
        assert!(said.contains("WrongSender"), "{sender}: {said}");
    }
    assert!(!cluster.has(1, &key, b"v"), "it was stored all the same");

    let taken = service.replicate(Request::new(replicate("n1"))).await;
    assert_eq!(taken.unwrap().into_inner().results[0].refused, None);
    let confirmed = service.confirm_reign(Request::new(confirm("n1"))).await;
    assert_eq!(confirmed.unwrap().into_inner().results[0].refused, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_client_is_served_by_the_owner_and_forwarded_by_others() {
    let mut cluster = Cluster::start(3, 3).await;
    let stale = cluster.client().await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    stale.put(&key, "one").await.unwrap();
    until("all have it", || {
        (0..3).all(|node| cluster.has(node, &key, b"one"))
    })
    .await;
    // The next epoch changes nothing of this slot's: served where it is.
    cluster.next_epoch(&[], false);
    (0..3).for_each(|node| cluster.adopt(node));
    let written = stale.put(&key, "two").await.unwrap();
    assert_eq!(written.epoch, Epoch(2), "the answer says the node's epoch");
    until("all have it", || {
        (0..3).all(|node| cluster.has(node, &key, b"two"))
    })
    .await;
    // The one after hands the slot to n1; watchers are not told. n0 passes the write on.
    cluster.hand_over(slot, &[1, 0, 2]);
    let reign = [(slot, cluster.snapshot.epoch)];
    for node in 0..3 {
        cluster.node(node).node.store.begin_reign(&reign).unwrap();
        cluster.adopt(node);
    }
    let written = stale.put(&key, "three").await.unwrap();
    assert_eq!(written.version, Position::new(Epoch(3), 1));
    assert_eq!(
        stale.get(&key).await.unwrap().value,
        Some(Bytes::from("three"))
    );
    assert_eq!(
        stale.ring().held().unwrap().epoch,
        Epoch(1),
        "it has not heard of it yet"
    );
    let text = {
        let metrics = &cluster.node(0).node.metrics.requests;
        let forwarded = crate::metrics::Request {
            op: "put",
            result: "forwarded",
        };
        metrics.get_or_create(&forwarded).get()
    };
    assert_eq!(text, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_ahead_of_its_node_is_served_when_the_node_catches_up() {
    let mut cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    cluster.next_epoch(&[slot], false);
    cluster.publish_to_clients();
    client
        .ring()
        .wait_newer_than(Epoch(1), Duration::from_secs(10))
        .await
        .unwrap();
    let writing = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.put(&key, "v").await }
    });
    // It waits at n0, or comes again: either way it is not lost and not refused.
    (0..3).for_each(|node| cluster.adopt(node));
    let written = writing.await.unwrap().unwrap();
    assert_eq!(written.epoch, Epoch(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gainer_is_fed_but_not_counted_before_the_joint_step() {
    let mut cluster = Cluster::start(4, 3).await;
    let client = cluster.client().await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    let session = SessionId(1);
    cluster
        .node(3)
        .node
        .store
        .open_staging(session, 1, &[slot])
        .unwrap();
    cluster.transit(slot, &[0, 1, 3], Some(Step::Writing));
    cluster.publish();
    client.put(&key, "dual").await.unwrap();
    let staged = || {
        let digest = cluster
            .node(3)
            .node
            .store
            .watermark(slot, Copy::Staging(session));
        digest.is_ok_and(|watermark| watermark.pending)
    };
    until("the gainer got the write into staging", staged).await;
    let live = cluster.node(3).node.store.get(slot, &key);
    assert!(live.is_err(), "staging is not live: {live:?}");
    // With n1 and n2 away the gainer's copy does not make a quorum.
    cluster.kill(1).await;
    cluster.kill(2).await;
    let hasty = cluster.client_with(Duration::from_millis(400)).await;
    let unknown = hasty.put(&key, "not yet").await.unwrap_err();
    assert!(unknown.is_unknown(), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_flight_is_stamped_anew_and_needs_both_lists() {
    let mut cluster = Cluster::start(4, 3).await;
    let client = cluster.client_with(Duration::from_secs(20)).await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    cluster
        .node(3)
        .node
        .store
        .open_staging(SessionId(1), 1, &[slot])
        .unwrap();
    cluster.transit(slot, &[0, 3, 2], Some(Step::Writing));
    cluster.publish();
    client.put(&key, "first").await.unwrap();
    until("n1 has it", || cluster.has(1, &key, b"first")).await;
    // No quorum in O: the write hangs.
    cluster.kill(1).await;
    cluster.kill(2).await;
    let writing = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.put(&key, "second").await }
    });
    until("the owner has committed it", || {
        cluster.has(0, &key, b"second")
    })
    .await;
    let seq = {
        cluster.transit(slot, &[0, 3, 2], Some(Step::Joint));
        cluster.publish();
        cluster.node(0).guard.view().seq
    };
    // O = {0, 1, 2}, N = {0, 3, 2}: of N two hold it, of O one; not acknowledged.
    let staged = |cluster: &Cluster| {
        let cut = cluster
            .node(3)
            .node
            .store
            .watermark(slot, Copy::Staging(SessionId(1)));
        cut.is_ok_and(|watermark| watermark.pending)
    };
    until("the gainer has it", || staged(&cluster)).await;
    assert!(!writing.is_finished());
    // The pending write holds no older epoch up: it was stamped anew.
    let drained = cluster.node(0).guard.drained(vec![slot], seq);
    tokio::time::timeout(Duration::from_secs(10), drained)
        .await
        .unwrap();
    cluster.restart(1).await;
    cluster.adopt(1);
    let written = writing.await.unwrap().unwrap();
    assert_eq!(
        written.version,
        Position::new(Epoch(1), 2),
        "the same position"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_owner_acknowledges_nothing() {
    let mut cluster = Cluster::start(3, 3).await;
    let client = cluster.client_with(Duration::from_millis(1_500)).await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    client.put(&key, "old").await.unwrap();
    until("all have it", || {
        (0..3).all(|node| cluster.has(node, &key, b"old"))
    })
    .await;
    // n1 and n2 know the new reign, n0 does not, and the client asks n0.
    cluster.hand_over(slot, &[1, 0, 2]);
    let reign = [(slot, cluster.snapshot.epoch)];
    for node in 1..3 {
        cluster.node(node).node.store.begin_reign(&reign).unwrap();
        cluster.adopt(node);
    }
    let refused = client.get(&key).await.unwrap_err();
    assert!(!refused.is_unknown(), "{refused}");
    let unknown = client.put(&key, "stray").await.unwrap_err();
    assert!(unknown.is_unknown(), "{unknown}");
    assert!(!cluster.has(1, &key, b"stray") && !cluster.has(2, &key, b"stray"));
    // Told of it, n0 fails the write, and so drains.
    let store = &cluster.node(0).node.store;
    store.begin_reign(&reign).unwrap();
    cluster.adopt(0);
    let seq = cluster.node(0).guard.view().seq;
    let drained = cluster.node(0).guard.drained(vec![slot], seq);
    tokio::time::timeout(Duration::from_secs(10), drained)
        .await
        .unwrap();
    cluster.publish_to_clients();
    client
        .ring()
        .wait_newer_than(Epoch(1), Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(
        client.get(&key).await.unwrap().value,
        Some(Bytes::from("old"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_missed_writes_notices_the_hole_and_asks_for_repair() {
    let (holes, mut told) = tokio::sync::mpsc::unbounded_channel();
    let cluster = Cluster::start_with(3, 3, |handle| {
        let holes = (handle == 2).then(|| holes.clone());
        let repair = holes.map(|holes| {
            let repair: Box<dyn Fn(annulus_ring::Slot) + Send + Sync> =
                Box::new(move |slot| holes.send(slot).unwrap());
            repair
        });
        Settings {
            repair,
            ..Settings::default()
        }
    })
    .await;
    let client = cluster.client().await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    // A write that n2 never gets: its owner committed it under another process's life.
    let missed = Record {
        key: Bytes::from_static(b"missed"),
        version: Position::new(Epoch(1), 1),
        value: Some(Bytes::from_static(b"v")),
    };
    for handle in 0..2 {
        let store = &cluster.node(handle).node.store;
        store
            .merge(slot, Copy::Live, vec![missed.clone()], None)
            .unwrap();
    }
    // The owner's lane is open already and would give position 1 again: hand it over and back.
    let mut cluster = cluster;
    cluster.hand_over(slot, &[0, 1, 2]);
    let reign = [(slot, cluster.snapshot.epoch)];
    for handle in 0..2 {
        cluster.node(handle).node.store.begin_reign(&reign).unwrap();
    }
    cluster.publish();
    client.put(&key, "v").await.unwrap();
    let hole = tokio::time::timeout(Duration::from_secs(10), told.recv())
        .await
        .unwrap();
    assert_eq!(hole, Some(slot));
    let store = &cluster.node(2).node.store;
    let holding: Vec<Holding> = store.holdings().unwrap();
    let holding = holding
        .into_iter()
        .find(|holding| holding.slot == slot)
        .unwrap();
    assert_eq!(
        holding.watermark,
        Some(Position::new(Epoch(1), 0)),
        "the base is not held"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_with_a_member_that_comes_and_goes_loses_nothing() {
    let mut cluster = Cluster::start(3, 3).await;
    // Short, for what the absent member owns is refused until it is back.
    let client = cluster.client_with(Duration::from_millis(300)).await;
    let mut config = LoadConfig::new(LoadConfig::synthetic_keys(500));
    config.writers = 16;
    let mut load = Load::new(client, config).unwrap();
    let filled = load.fill(Duration::from_secs(20)).await.unwrap();
    assert_eq!(filled.keys, 500);
    let running = load.start();
    let writes = |count| {
        let running = &running;
        async move { until("more writes", || running.counts().acknowledged() >= count).await }
    };
    writes(200).await;
    cluster.kill(2).await;
    writes(running.counts().acknowledged() + 50).await;
    cluster.restart(2).await;
    cluster.adopt(2);
    writes(running.counts().acknowledged() + 200).await;
    let report = running.stop().await.check(Duration::from_secs(20)).await;
    assert!(report.is_clean(), "{report:?}");
    assert!(
        report.counts.deletes > 0 && report.counts.reads > 0,
        "{report:?}"
    );
}
