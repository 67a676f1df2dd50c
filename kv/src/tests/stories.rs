//! Stories of the protocol as this data plane lives them (`agent/tests/moving/stories.rs` has the
//! others, and says what they are).

use std::time::Duration;

use annulus_agent::store::RangeStore;
use annulus_ring::{Epoch, Position, SessionId, Step};
use bytes::Bytes;

use super::cluster::{Cluster, until};

/// No window ends an unheard owner's time: that those it needs refuse it does, before another owns.
#[tokio::test(flavor = "multi_thread")]
async fn f11_without_a_safety_window_refusals_end_late_acknowledgements() {
    let mut cluster = Cluster::start(3, 3).await;
    let client = cluster.client_with(Duration::from_millis(1_500)).await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    client.put(&key, "old").await.unwrap();
    // The intent: n1 and n2 refuse the reign, n0 hears nothing.
    cluster.next_epoch(&[slot], false);
    for node in 1..3 {
        cluster.adopt_refusing(node, slot);
    }
    let unknown = client.put(&key, "late").await.unwrap_err();
    assert!(unknown.is_unknown(), "{unknown}");
    assert!(cluster.has(0, &key, b"late"), "n0 admitted it");
    assert!(!cluster.has(1, &key, b"late") && !cluster.has(2, &key, b"late"));
    // Nor is it read as if it counted.
    assert!(client.get(&key).await.is_err());
    cluster.hand_over(slot, &[1, 0, 2]);
    let reign = [(slot, cluster.snapshot.epoch)];
    for node in 0..3 {
        cluster.node(node).node.store.begin_reign(&reign).unwrap();
    }
    cluster.publish();
    client
        .ring()
        .wait_newer_than(Epoch(2), Duration::from_secs(10))
        .await
        .unwrap();
    let found = client.get(&key).await.unwrap();
    assert_eq!(found.value, Some(Bytes::from("old")));
}

/// Everybody but the owner knows the joint step and refuses the write for its age: sent as it is
/// again and again it would hold up the epoch, and the epoch it.
#[tokio::test(flavor = "multi_thread")]
async fn f14_a_write_refused_for_its_age_blocks_no_barrier() {
    let mut cluster = Cluster::start(4, 3).await;
    let client = cluster.client_with(Duration::from_secs(20)).await;
    let key = cluster.key_of(&[0, 1, 2], 0);
    let slot = cluster.slot(&key);
    let gainer = &cluster.node(3).node.store;
    gainer.open_staging(SessionId(1), 1, &[slot]).unwrap();
    cluster.transit(slot, &[0, 3, 2], Some(Step::Writing));
    cluster.publish();
    client.put(&key, "first").await.unwrap();
    until("n1 and n2 have it", || {
        cluster.has(1, &key, b"first") && cluster.has(2, &key, b"first")
    })
    .await;
    cluster.transit(slot, &[0, 3, 2], Some(Step::Joint));
    (1..4).for_each(|node| cluster.adopt(node));
    let writing = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.put(&key, "second").await }
    });
    until("the owner has committed it", || {
        cluster.has(0, &key, b"second")
    })
    .await;
    let refused = |node: usize| !cluster.has(node, &key, b"second");
    assert!(refused(1) && refused(2) && !writing.is_finished());
    cluster.publish();
    let guard = &cluster.node(0).guard;
    let drained = guard.drained(vec![slot], guard.view().seq);
    tokio::time::timeout(Duration::from_secs(10), drained)
        .await
        .expect("the epoch waits for a write that waits for the epoch");
    let written = writing.await.unwrap().unwrap();
    let same = Position::new(Epoch(1), 2);
    assert_eq!(written.version, same, "stamped anew, in its place");
    assert!(cluster.has(1, &key, b"second") || cluster.has(2, &key, b"second"));
}
