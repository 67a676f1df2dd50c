//! C46, step 1: damaged snapshots from a stream.

use std::time::{Duration, Instant};

use annulus_ring::{Epoch, Snapshot};

use crate::{
    rings::{bytes, chained, damaged, ring, seal},
    stub::{Event, Stub, at_epoch, builder, until},
};

#[tokio::test]
async fn c46_every_damage_is_refused_counted_and_asked_for_again() {
    for (name, damage, word) in damaged(2) {
        // Good, then damaged; whoever asks again gets the good one.
        let stub = Stub::start(move |_, count| match count {
            0 => vec![Event::Full(bytes(1)), Event::Full(damage.clone())],
            _ => vec![],
        })
        .await;
        let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
        until(name, || client.status().refused_count == 1).await;
        let status = client.status();
        let error = status.last_error.unwrap();
        assert!(error.contains(word), "{name}: {error}");
        assert!(error.contains(&stub.endpoint()), "{name}: {error}");
        assert_eq!(status.epoch, Some(Epoch(1)), "{name}");
        let kept = client.lookup(b"key").unwrap();
        assert!(
            kept.members().all(|member| member.zone.as_str() == "z1"),
            "{name}"
        );

        until("asked again", || stub.requests().len() == 2).await;
        let have = stub.requests()[1].have.clone().unwrap();
        assert_eq!(
            (have.epoch, have.checksum),
            (1, bytes(1).checksum),
            "{name}"
        );
        until("the stream is there", || client.status().connect_count == 2).await;
        stub.send(Event::Full(bytes(2)));
        at_epoch(&client, 2).await;
    }
}

#[tokio::test]
async fn c46_a_server_that_sends_only_damage_is_asked_ever_more_slowly() {
    let (_, damage, _) = damaged(1).remove(0);
    let stub = Stub::start(move |_, _| vec![Event::Full(damage.clone())]).await;
    let begun = Instant::now();
    let client = builder([&*stub.endpoint()])
        .backoff(Duration::from_millis(20), Duration::from_secs(60))
        .seed(3)
        .connect_lazy()
        .unwrap();
    until("eight refusals", || client.status().refused_count == 8).await;
    // The seed draws pauses of this length at least; without growth it would be 8 x 20 ms at
    // most.
    assert!(
        begun.elapsed() > Duration::from_millis(400),
        "{:?}",
        begun.elapsed()
    );
    assert!(client.lookup(b"key").is_err());
}

#[tokio::test]
async fn c46_an_empty_ring_replaces_a_full_one_only_if_valid_and_newer() {
    let empty = |epoch: u64| {
        let mut snapshot = chained(epoch);
        snapshot.members.clear();
        for slot in snapshot.layout.slots.slots() {
            snapshot.layout.slots.set(slot, &[]);
        }
        snapshot
    };
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(2))]).await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 2).await;
    stub.send(Event::Full(seal(&empty(1))));
    until("an older empty ring is passed over", || {
        client.status().ignored_count == 1
    })
    .await;
    assert!(client.lookup(b"key").is_ok());
    stub.send(Event::Full(seal(&empty(3))));
    at_epoch(&client, 3).await;
    let error = client.lookup(b"key").unwrap_err();
    assert!(
        error.to_string().starts_with("epoch 3: no node owns slot"),
        "{error}"
    );
    let next: Snapshot = Snapshot {
        previous_checksum: client.held().unwrap().checksum,
        ..ring(4)
    };
    stub.send(Event::Full(seal(&next)));
    at_epoch(&client, 4).await;
    assert!(client.lookup(b"key").is_ok());
}
