//! Streams: resume, order, silence, byes, refreshes.

use std::time::Duration;

use annulus_client::{Dial, DialSettings, Source};
use annulus_proto::v1;
use annulus_ring::{ClusterId, Epoch, Generation, Snapshot};

use crate::{
    rings::{bytes, chained, ring, seal},
    stub::{Event, Stub, at_epoch, black_hole, builder, nobody, until, within},
};

fn progress(epoch: u64) -> Event {
    Event::Progress(v1::Progress {
        generation: 0,
        epoch,
        behind_ms: 0,
    })
}

fn bye(reason: v1::bye::Reason, try_endpoints: Vec<String>) -> Event {
    Event::Bye(v1::Bye {
        reason: reason.into(),
        try_endpoints,
    })
}

#[tokio::test]
async fn a_reader_resumes_from_what_it_has() {
    let stub = Stub::start(|request, _| match &request.have {
        None => vec![Event::Full(bytes(1))],
        Some(_) => vec![Event::Full(bytes(2))],
    })
    .await;
    let client = builder([&*stub.endpoint()])
        .name("resumer")
        .connect_lazy()
        .unwrap();
    at_epoch(&client, 1).await;
    assert_eq!(
        client.status().source,
        Source::Stream(stub.endpoint().parse().unwrap())
    );
    stub.hang_up();
    at_epoch(&client, 2).await;

    let requests = stub.requests();
    assert_eq!(requests[0].have, None);
    assert_eq!(requests[0].watcher, "resumer");
    let have = requests[1].have.clone().unwrap();
    assert_eq!(
        (have.generation, have.epoch, have.checksum),
        (0, 1, bytes(1).checksum)
    );
    until("both epochs are reported", || {
        stub.reported() == [1, 2] || stub.reported() == [1, 1, 2]
    })
    .await;
}

#[tokio::test]
async fn newest_wins_and_epochs_only_rise() {
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(3))]).await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 3).await;
    // Older, the same, then a newer one over a gap: only the last is taken, on one stream.
    for epoch in [2, 3, 1, 7] {
        stub.send(Event::Full(bytes(epoch)));
    }
    at_epoch(&client, 7).await;
    let status = client.status();
    assert_eq!(
        (
            status.accepted_count,
            status.ignored_count,
            status.refused_count
        ),
        (2, 3, 0)
    );
    assert_eq!(stub.requests().len(), 1);
    // A restored backup: a newer generation may count from a lower epoch.
    let restored = Snapshot {
        generation: Generation(1),
        ..ring(2)
    };
    stub.send(Event::Full(seal(&restored)));
    at_epoch(&client, 2).await;
    assert_eq!(client.status().generation, Some(Generation(1)));
    stub.send(Event::Full(bytes(8)));
    until("the old generation is passed over", || {
        client.status().ignored_count == 4
    })
    .await;
    assert_eq!(client.held().unwrap().generation, Generation(1));
}

#[tokio::test]
async fn a_half_open_stream_is_noticed_within_the_silence_deadline() {
    // The first server greets and then says nothing; its connection stays up.
    let silent = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*silent.endpoint()])
        .silence(Duration::from_millis(300))
        .connect_lazy()
        .unwrap();
    at_epoch(&client, 1).await;
    until("silence is noticed", || client.status().silent_count >= 1).await;
    until("the reader asks again", || silent.requests().len() >= 2).await;
    assert!(client.lookup(b"key").is_ok());
    assert!(
        client
            .status()
            .last_error
            .unwrap()
            .contains("silent for 300ms")
    );
}

#[tokio::test]
async fn any_event_counts_as_life() {
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*stub.endpoint()])
        .silence(Duration::from_secs(2))
        .connect_lazy()
        .unwrap();
    at_epoch(&client, 1).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    // Longer than the silence deadline, with progress only.
    for _ in 0..30 {
        ticks.tick().await;
        stub.send(progress(1));
    }
    assert_eq!(client.status().silent_count, 0);
    assert_eq!(stub.requests().len(), 1);
    assert!(client.status().age.unwrap() < Duration::from_secs(2));
}

/// C47, steps 2 and 3.
#[tokio::test]
async fn c47_dead_endpoints_cost_no_more_than_the_connect_timeout() {
    let (_keep, hole) = black_hole().await;
    let dead = nobody();
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    for seed in 0..6 {
        let settings = DialSettings {
            connect_timeout: Duration::from_millis(200),
            ..DialSettings::default()
        };
        let client = builder([&*hole, dead.endpoint(), &*stub.endpoint()])
            .dial(Dial::tcp(settings))
            .seed(seed)
            .connect_lazy()
            .unwrap();
        client.ready(Duration::from_secs(10)).await.unwrap();
    }
}

/// C47, step 4: whoever comes back is asked again, each of the ten times.
#[tokio::test]
async fn c47_a_server_that_restarts_is_not_shunned_for_good() {
    let greeting = |_: &v1::WatchRequest, _: usize| vec![Event::Full(bytes(1))];
    let mut stubs = Vec::new();
    for _ in 0..3 {
        stubs.push(Stub::start(greeting).await);
    }
    let endpoints: Vec<String> = stubs.iter().map(Stub::endpoint).collect();
    let clients: Vec<_> = (0..4)
        .map(|seed| {
            let endpoints = endpoints.iter().map(String::as_str);
            builder(endpoints).seed(seed).connect_lazy().unwrap()
        })
        .collect();
    for client in &clients {
        at_epoch(client, 1).await;
    }
    for round in 0..10 {
        let place = round % stubs.len();
        stubs[place].stop();
        let listener = loop {
            // The old one closes when its task is gone.
            match tokio::net::TcpListener::bind(&endpoints[place]).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        stubs[place] = Stub::listen(listener, greeting);
        until("the restarted server has a stream", || {
            let others = stubs.iter().enumerate();
            others
                .filter(|(at, _)| *at != place)
                .for_each(|(_, stub)| stub.hang_up());
            !stubs[place].requests().is_empty()
        })
        .await;
    }
    for client in &clients {
        assert!(client.lookup(b"key").is_ok(), "lookups go on throughout");
    }
}

#[tokio::test]
async fn c47_a_client_that_starts_first_finds_the_server_later() {
    let place = nobody();
    let client = builder([place.endpoint()]).connect_lazy().unwrap();
    until("the attempt failed", || {
        client.status().last_error.is_some()
    })
    .await;
    let error = client.ready(Duration::from_millis(10)).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(client.lookup(b"key").is_err());

    let _stub = Stub::listen(place.listen(), |_, _| vec![Event::Full(bytes(1))]);
    at_epoch(&client, 1).await;
}

#[tokio::test]
async fn lookups_go_on_without_a_control_plane() {
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 1).await;
    let before = client.lookup(b"key").unwrap().owner().clone();
    stub.stop();
    until("the loss is noticed", || client.status().endpoint.is_none()).await;
    assert_eq!(*client.lookup(b"key").unwrap().owner(), before);
    assert_eq!(client.reader().lookup(b"key").unwrap().owner(), &before);
    let mut owners = Vec::new();
    let mut reader = client.reader();
    reader
        .lookup_batch(&["key", "key"], |at, route| {
            owners.push((at, route.unwrap().owner()))
        })
        .unwrap();
    assert_eq!(owners, [(0, &before), (1, &before)]);
}

#[tokio::test]
async fn bye_sends_the_reader_elsewhere() {
    let other = Stub::start(|_, _| vec![Event::Full(bytes(2))]).await;
    let place = other.endpoint();
    for reason in [
        v1::bye::Reason::Shutdown,
        v1::bye::Reason::Behind,
        v1::bye::Reason::Ahead,
    ] {
        let place = place.clone();
        let stub = Stub::start(move |_, _| {
            vec![
                Event::Full(bytes(1)),
                bye(reason, vec!["not an endpoint".into(), place.clone()]),
            ]
        })
        .await;
        // The other server is known from the hint alone.
        let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
        at_epoch(&client, 2).await;
        assert_eq!(stub.requests().len(), 1, "{reason:?}");
    }
}

#[tokio::test]
async fn servers_that_hint_at_each_other_keep_nobody() {
    let (left, right) = (nobody(), nobody());
    let ping_pong = |to: &str| {
        let to = to.to_owned();
        move |_: &v1::WatchRequest, _| vec![bye(v1::bye::Reason::Behind, vec![to.clone()])]
    };
    let (to_right, to_left) = (ping_pong(right.endpoint()), ping_pong(left.endpoint()));
    let left = Stub::listen(left.listen(), to_right);
    let _right = Stub::listen(right.listen(), to_left);
    let good = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    for seed in 0..4 {
        let client = builder([&*left.endpoint(), &*good.endpoint()])
            .seed(seed)
            .connect_lazy()
            .unwrap();
        at_epoch(&client, 1).await;
    }
}

#[tokio::test]
async fn an_unknown_ring_is_named_in_status() {
    let stub = Stub::start(|_, _| vec![bye(v1::bye::Reason::UnknownRing, Vec::new())]).await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    until("the bye is told", || client.status().last_error.is_some()).await;
    assert!(
        client
            .status()
            .last_error
            .unwrap()
            .contains("`annulus ring list`")
    );
}

#[tokio::test]
async fn a_delta_is_answered_by_asking_for_everything() {
    let stub = Stub::start(|request, count| match (&request.have, count) {
        (None, 0) => vec![Event::Full(bytes(1)), Event::Delta(v1::Delta::default())],
        (None, _) => vec![Event::Full(bytes(2))],
        (Some(_), _) => vec![Event::Delta(v1::Delta::default())],
    })
    .await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 2).await;
    assert_eq!(stub.requests().len(), 2);
}

#[tokio::test]
async fn the_same_epoch_with_other_bytes_is_the_alarm() {
    let stub = Stub::start(|_, count| match count {
        0 => vec![Event::Full(bytes(2))],
        _ => vec![progress(2)],
    })
    .await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 2).await;
    let other = Snapshot {
        created_at_ms: 99,
        ..chained(2)
    };
    stub.send(Event::Full(seal(&other)));
    until("FORK", || client.status().fork.is_some()).await;
    let fork = client.status().fork.unwrap();
    assert_eq!(fork.epoch, Epoch(2));
    assert_eq!(fork.held.0[..], bytes(2).checksum[..]);
    assert_eq!(fork.found.unwrap().0[..], seal(&other).checksum[..]);
    assert_eq!(client.held().unwrap().checksum, fork.held);
    assert_eq!(client.status().refused_count, 1);
    // A successor of the other history does not follow from ours.
    until("the reader is back", || stub.requests().len() == 2).await;
    stub.send(Event::Full(seal(&Snapshot {
        previous_checksum: fork.found.unwrap(),
        ..ring(3)
    })));
    until("the chain is checked", || {
        client.status().refused_count == 2
    })
    .await;
    assert_eq!(client.held().unwrap().epoch, Epoch(2));
}

#[tokio::test]
async fn a_fork_that_only_the_server_sees_is_an_alarm_too() {
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    stub.knows_fork();
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    until("FORK", || client.status().fork.is_some()).await;
    assert_eq!(client.status().fork.unwrap().found, None);
    assert!(client.lookup(b"key").is_ok());
}

#[tokio::test]
async fn another_cluster_is_refused_for_the_life_of_the_client() {
    let stranger = seal(&Snapshot {
        cluster_id: ClusterId(8),
        ..ring(9)
    });
    let foreign = Stub::start(move |_, _| vec![Event::Full(stranger.clone())]).await;
    let ours = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*ours.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 1).await;
    drop(client);
    let endpoints = [foreign.endpoint(), ours.endpoint()];
    let client = builder(endpoints.iter().map(String::as_str))
        .cluster_id(ClusterId(7))
        .seed(2)
        .connect_lazy()
        .unwrap();
    at_epoch(&client, 1).await;
    ours.stop();
    until("the foreign one is asked and refused", || {
        client.status().refused_count > 0
    })
    .await;
    assert!(client.status().last_error.unwrap().contains("cluster"));
    assert_eq!(client.held().unwrap().epoch, Epoch(1));
}

/// C41, step 5.
#[tokio::test]
async fn c41_one_refresh_for_however_many_stale_answers() {
    // `late` has epoch 1 only; `good` has 2 as well, and is asked because a node has it.
    let late = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let nobody = nobody();
    let client = builder([&*late.endpoint(), nobody.endpoint()])
        .refresh(Duration::from_millis(20), Duration::from_millis(20))
        .connect_lazy()
        .unwrap();
    at_epoch(&client, 1).await;
    let waits = (0..200).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            client
                .wait_newer_than(Epoch(1), Duration::from_secs(20))
                .await
        })
    });
    let waits: Vec<_> = waits.collect();
    until("the watch changes server once", || {
        late.requests().len() >= 2
    })
    .await;
    assert_eq!(client.status().refresh_count, 1);
    late.send(Event::Full(bytes(2)));
    for wait in waits {
        assert_eq!(
            within(wait).await.unwrap().unwrap().unwrap().epoch,
            Epoch(2)
        );
    }
    assert_eq!(client.status().refresh_count, 1);
    // An epoch that is held already, or nonsense, starts nothing.
    client.refresh(Epoch(1));
    client.refresh(Epoch(u64::MAX));
    assert_eq!(client.status().refresh_count, 1);
}

#[tokio::test]
async fn a_server_that_lags_behind_the_nodes_is_left() {
    let late = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let good = Stub::start(|_, _| vec![Event::Full(bytes(2))]).await;
    for seed in 0..4 {
        let endpoints = [late.endpoint(), good.endpoint()];
        let client = builder(endpoints.iter().map(String::as_str))
            .refresh(Duration::from_millis(20), Duration::from_millis(20))
            .seed(seed)
            .connect_lazy()
            .unwrap();
        client.ready(Duration::from_secs(20)).await.unwrap();
        let held = client
            .wait_newer_than(Epoch(1), Duration::from_secs(20))
            .await
            .unwrap();
        assert_eq!(held.epoch, Epoch(2));
    }
}

#[tokio::test]
async fn the_watch_ends_with_the_last_handle() {
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 1).await;
    let (mut epochs, mut reader) = (client.epochs(), client.reader());
    drop(client);
    assert!(reader.lookup(b"key").is_ok());
    stub.send(Event::Full(bytes(2)));
    let second = epochs.wait_for(|held| held.is_some_and(|held| held.epoch == Epoch(2)));
    within(second).await.unwrap().unwrap();
    drop(reader);
    // The sender of epochs is gone when the task is.
    within(async { while epochs.changed().await.is_ok() {} })
        .await
        .unwrap();
}
