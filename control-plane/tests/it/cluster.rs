//! Three servers over loopback: founding, proposing from anywhere, and what failures do.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::servers::{Cluster, PATIENCE, applied, eventually, ring_time, tick};
use annulus_control_plane::raft::{
    Dial, InitError, MemoryStorage, Node, NodeConfig, ProposeError, ReadError, Role, Storage,
    testing,
};
use annulus_membership::{Command, Outcome, Request, RequestId, RingCommand, RingConfig};
use annulus_ring::Epoch;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founded_cluster_decides_wherever_it_is_asked() {
    let mut cluster = Cluster::new(3).await;
    let name = cluster.found().await;
    // Asking again gets the same name; another list is refused.
    assert_eq!(
        cluster
            .node(1)
            .init(cluster.servers(), PATIENCE)
            .await
            .unwrap(),
        name
    );
    assert_eq!(
        cluster
            .node(2)
            .init(cluster.servers(), PATIENCE)
            .await
            .unwrap(),
        name
    );
    let other = BTreeMap::from([(1, cluster.servers()[&1].clone())]);
    let error = cluster.node(1).init(other, PATIENCE).await.unwrap_err();
    assert_eq!(error, InitError::AlreadyInitialised);

    let create = |ring: &str, id| Request {
        request_id: Some(RequestId(id)),
        command: Command::Ring {
            ring: ring.parse().unwrap(),
            command: RingCommand::Create {
                config: RingConfig::default(),
                accept: false,
            },
        },
    };
    for (id, ring) in [(1, "one"), (2, "two"), (3, "three")] {
        let node = cluster.node(id);
        let outcome = node
            .propose(create(ring, u128::from(id)), PATIENCE)
            .await
            .unwrap();
        let Outcome::Applied(at) = &outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(at.epoch, Epoch(1));
        // The same request again: the same answer, and nothing changed.
        let again = node
            .propose(create(ring, u128::from(id)), PATIENCE)
            .await
            .unwrap();
        assert_eq!(again, outcome);
        // Another request for the same ring: refused, without an entry.
        let refused = node.propose(create(ring, 99), PATIENCE).await.unwrap();
        assert!(matches!(refused, Outcome::Rejected(_)), "{refused:?}");
    }
    cluster.all_equal().await;
    for id in 1..=3 {
        let node = cluster.node(id);
        let rings = node.shared().read(|state, shelf| {
            let newest = state
                .rings
                .keys()
                .map(|ring| shelf.newest(ring).unwrap().checksum);
            newest.count()
        });
        assert_eq!(rings, 3);
        assert_eq!(node.applied().borrow().epochs.len(), 3);
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_others_go_on_without_the_leader_and_it_comes_back() {
    let mut cluster = Cluster::new(3).await;
    let name = cluster.found().await;
    for round in 0..3 {
        let leader = cluster.leader().await;
        let outcome = cluster
            .node(leader)
            .propose(tick(round * 10 + 1, 1), PATIENCE)
            .await;
        assert!(applied(&outcome.unwrap()));
        cluster.stop(leader).await;
        let follower = *cluster.running.keys().next().unwrap();
        // Asked at once, while nobody leads: waits for the next leader.
        let outcome = cluster
            .node(follower)
            .propose(tick(round * 10 + 2, 1), PATIENCE)
            .await;
        assert!(applied(&outcome.unwrap()));
        cluster.start(leader).await;
        let back = cluster.node(leader);
        let outcome = back.propose(tick(round * 10 + 3, 1), PATIENCE).await;
        assert!(applied(&outcome.unwrap()));
        cluster.all_equal().await;
        assert_eq!(ring_time(&back), (u64::try_from(round).unwrap() + 1) * 3);
    }
    // Everything, after all were stopped.
    cluster.stop_all().await;
    for id in 1..=3 {
        cluster.start(id).await;
    }
    cluster.all_equal().await;
    for id in 1..=3 {
        assert_eq!(ring_time(&cluster.node(id)), 9);
        let known = cluster.node(id).shared().read(|state, _| state.cluster_id);
        assert_eq!(known, Some(name));
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_beyond_the_purge_gets_the_log_snapshot() {
    let mut cluster = Cluster::new(3).await;
    cluster.snapshot_every = 200;
    cluster.keep_log = 50;
    cluster.found().await;
    let lagging = cluster.follower().await;
    cluster.stop(lagging).await;
    let leader = cluster.node(cluster.leader().await);
    for _ in 0..20 {
        testing::write_ticks(&leader, 50).await.unwrap();
    }
    eventually("a purge", || {
        leader
            .standing()
            .purged_index
            .filter(|purged| *purged > 400)
    })
    .await;
    cluster.start(lagging).await;
    cluster.all_equal().await;
    let node = cluster.node(lagging);
    assert_eq!(ring_time(&node), 1_000);
    let installed = node.standing().snapshot_index.unwrap();
    assert!(installed > 400, "{installed}");
    // And what it installed is on its disk.
    cluster.stop(lagging).await;
    cluster.start(lagging).await;
    cluster.all_equal().await;
    // Only the newest log snapshot is kept, at each.
    for id in 1..=3 {
        let files = std::fs::read_dir(cluster.directory(id).join("snapshots"))
            .unwrap()
            .count();
        assert_eq!(files, 1, "server {id}");
    }
    cluster.stop_all().await;
}

/// C21 at the level of raft: ten rounds of stopping everything at a random moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c21_nothing_acknowledged_is_lost_over_restarts() {
    let rounds: u128 = std::env::var("ANNULUS_C21_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let mut cluster = Cluster::new(3).await;
    cluster.snapshot_every = 100;
    cluster.keep_log = 50;
    cluster.found().await;
    let mut random = fastrand::Rng::with_seed(21);
    let mut acknowledged = 0_u64;
    let mut tried = 0_u64;
    let mut terms: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..rounds {
        let writers = (1..=3).map(|id| {
            let node = cluster.node(id);
            tokio::spawn(async move {
                let mut counts = (0, 0);
                for number in 0..200 {
                    counts.0 += 1;
                    let request = tick(round << 64 | u128::from(id) << 32 | number, 1);
                    match node.propose(request, Duration::from_secs(5)).await {
                        Ok(outcome) => counts.1 += u64::from(applied(&outcome)),
                        Err(_) => return counts,
                    }
                }
                counts
            })
        });
        let writers: Vec<_> = writers.collect();
        let enough = random.u64(20..150);
        let before = ring_time(&cluster.node(1));
        let node = cluster.node(1);
        eventually("writes", || {
            (ring_time(&node) >= before + enough).then_some(())
        })
        .await;
        cluster.stop_all().await;
        for writer in writers {
            let (attempts, answers) = writer.await.unwrap();
            tried += attempts;
            acknowledged += answers;
        }
        for id in 1..=3 {
            cluster.start(id).await;
        }
        cluster.all_equal().await;
        let time = ring_time(&cluster.node(1));
        assert!(
            time >= acknowledged,
            "round {round}: {acknowledged} acknowledged, {time} there"
        );
        assert!(time <= tried, "round {round}: {tried} tried, {time} there");
        for id in 1..=3 {
            let term = cluster.node(id).standing().term;
            let before = terms.insert(id, term).unwrap_or(0);
            assert!(
                term >= before,
                "server {id} went back from term {before} to {term}"
            );
        }
    }
    println!("{acknowledged} acknowledged of {tried} over {rounds} restarts");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_no_cluster_says_so() {
    let mut cluster = Cluster::new(3).await;
    cluster.start(1).await;
    let node = cluster.node(1);
    assert_eq!(node.standing().role, Role::Waiting);
    let error = node.propose(tick(1, 1), PATIENCE).await.unwrap_err();
    assert_eq!(error, ProposeError::NotInitialised);
    assert_eq!(
        node.linearize(PATIENCE).await.unwrap_err(),
        ReadError::NotInitialised
    );
    for (servers, why) in [
        (BTreeMap::new(), "empty"),
        (
            BTreeMap::from([(2, "127.0.0.1:1".to_owned())]),
            "not among them",
        ),
        (
            BTreeMap::from([(0, "127.0.0.1:1".to_owned())]),
            "begin with 1",
        ),
        (
            BTreeMap::from([(1, "127.0.0.1:1".to_owned()), (2, "127.0.0.1:1".to_owned())]),
            "named twice",
        ),
        (
            BTreeMap::from([(1, "no endpoint".to_owned())]),
            "endpoint of server 1",
        ),
    ] {
        let error = node.init(servers, PATIENCE).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_over_the_limit_is_refused_before_it_is_proposed() {
    let mut cluster = Cluster::new(3).await;
    cluster.found().await;
    let request = testing::oversized_request();
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let before = cluster.node(leader).standing().last_log_index;
    for id in [leader, follower] {
        let error = cluster
            .node(id)
            .propose(request.clone(), PATIENCE)
            .await
            .unwrap_err();
        assert!(matches!(error, ProposeError::TooLarge { .. }), "{error}");
    }
    assert_eq!(cluster.node(leader).standing().last_log_index, before);
    // One right at the limit goes through, in many parts and one message.
    testing::write_bytes(&cluster.node(leader), 7 << 20)
        .await
        .unwrap();
    cluster.all_equal().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_can_be_handed_on() {
    let mut cluster = Cluster::new(3).await;
    cluster.found().await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    cluster.all_equal().await;
    cluster
        .node(leader)
        .transfer_leader(follower)
        .await
        .unwrap();
    let node = cluster.node(follower);
    eventually("the other leads", || {
        node.standing().is_leader().then_some(())
    })
    .await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_storage_survives_its_node() {
    let disk = annulus_control_plane::raft::MemoryStorage::default();
    let start = || async {
        let config = NodeConfig::new(1, Storage::Memory(disk.clone()));
        Node::start(config).await.unwrap()
    };
    let node = start().await;
    let servers = BTreeMap::from([(1, "127.0.0.1:1".to_owned())]);
    let name = node.init(servers, PATIENCE).await.unwrap();
    node.propose(tick(1, 7), PATIENCE).await.unwrap();
    node.shutdown().await;
    let node = start().await;
    node.linearize(PATIENCE).await.unwrap();
    assert_eq!(ring_time(&node), 7);
    assert_eq!(node.shared().read(|state, _| state.cluster_id), Some(name));
    node.shutdown().await;
}

/// C60: a peer whose log snapshot never ends, or is larger than it claims, is cut off; so is one
/// that speaks to the wrong server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c60_a_peer_that_lies_about_a_log_snapshot_is_cut_off() {
    use annulus_proto::v1;
    use annulus_proto::v1::raft_client::RaftClient;

    let mut cluster = Cluster::new(1).await;
    cluster.found().await;
    let channel = Dial::tcp().dial(&cluster.servers()[&1]).unwrap();
    let client = RaftClient::new(channel);
    let head = |total_bytes| v1::SnapshotMeta {
        vote: Some(v1::RaftVote {
            term: 1,
            node_id: 1,
            committed: true,
        }),
        meta: bytes::Bytes::from_static(b"{}"),
        total_bytes,
        sha256: bytes::Bytes::from_static(&[0; 32]),
    };
    let chunk = |number: u64, size: usize| v1::SnapshotChunk {
        meta: None,
        offset: number * size as u64,
        data: vec![0; size].into(),
        last: false,
    };
    let send = |to: u64, total: u64, chunks: u64, size: usize| {
        let mut client = client.clone();
        let first = head(total);
        let stream = (0..chunks).map(move |number| v1::SnapshotChunk {
            meta: (number == 0).then(|| first.clone()),
            ..chunk(number, size)
        });
        let mut request = tonic::Request::new(futures::stream::iter(stream));
        request.metadata_mut().insert("annulus-to", to.into());
        async move { client.install_snapshot(request).await.unwrap_err() }
    };
    // Claims 1,000 bytes and goes on for ever, as far as the peer is concerned.
    let cut = send(1, 1_000, u64::MAX, 600).await;
    assert_eq!(cut.code(), tonic::Code::ResourceExhausted, "{cut}");
    // Claims more than any log snapshot may have.
    let cut = send(1, u64::MAX, u64::MAX, 600).await;
    assert_eq!(cut.code(), tonic::Code::ResourceExhausted, "{cut}");
    // Sends nothing, for ever.
    let cut = send(1, 1_000, u64::MAX, 0).await;
    assert_eq!(cut.code(), tonic::Code::InvalidArgument, "{cut}");
    // Ends early.
    let cut = send(1, 1_000, 1, 600).await;
    assert_eq!(cut.code(), tonic::Code::DataLoss, "{cut}");
    // Means another server.
    let cut = send(2, 1_000, 1, 600).await;
    assert_eq!(cut.code(), tonic::Code::FailedPrecondition, "{cut}");
    // The server is none the worse.
    cluster.node(1).propose(tick(1, 1), PATIENCE).await.unwrap();
    cluster.stop_all().await;
}

/// A voter whose directory is lost never returns under its old id: with it and a server that
/// lagged, a majority without an acknowledged entry could be made (DURABLE-ACK).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_directory_neither_votes_nor_acknowledges() {
    let mut cluster = Cluster::new(3).await;
    cluster.found().await;
    let leader = cluster.leader().await;
    let ids: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
    let (lost, behind) = (ids[0], ids[1]);
    cluster.all_equal().await;
    cluster.stop(behind).await;
    cluster
        .node(leader)
        .propose(tick(1, 7), PATIENCE)
        .await
        .unwrap();
    cluster.stop(lost).await;
    std::fs::remove_dir_all(cluster.directory(lost)).unwrap();
    cluster.stop(leader).await;

    // The two that lack the entry find no majority, however long they try.
    cluster.start(lost).await;
    cluster.start(behind).await;
    let node = cluster.node(behind);
    let term = node.standing().term;
    // Several election timeouts: nothing tells that an election will not come.
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!node.standing().is_leader(), "elected with a lost vote");
    }
    assert_eq!(node.standing().term, term, "pre-votes were granted");
    assert!(!cluster.node(lost).standing().initialised());

    // With whoever holds it there is one, and the entry is there.
    cluster.start(leader).await;
    cluster.leader().await;
    for id in [leader, behind] {
        cluster.node(id).linearize(PATIENCE).await.unwrap();
        assert_eq!(ring_time(&cluster.node(id)), 7);
    }
    assert!(
        !cluster.node(lost).standing().initialised(),
        "the empty directory was filled under the old id"
    );
    cluster.stop_all().await;
}

/// Nobody else ever acknowledges anything to it, and nobody has to. That time passes without an
/// acknowledgement is the condition itself; the clock is paused, so it passes at once.
#[tokio::test(start_paused = true)]
async fn a_cluster_of_one_server_leads_on() {
    let config = NodeConfig::new(1, Storage::Memory(MemoryStorage::default()));
    let node = Node::start(config).await.unwrap();
    let servers = BTreeMap::from([(1, "localhost:7001".to_owned())]);
    node.init(servers, Duration::from_secs(5)).await.unwrap();
    for turn in 1..=10 {
        tokio::time::sleep(Duration::from_secs(turn)).await;
        let standing = node.standing();
        assert!(standing.is_leader(), "at turn {turn}: {standing:?}");
        let request = Request {
            request_id: None,
            command: Command::Tick { elapsed_ms: 1 },
        };
        node.propose(request, Duration::from_secs(2)).await.unwrap();
    }
    node.shutdown().await;
}
