//! Three servers over loopback: founding, proposing from anywhere, and what failures do.

mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use annulus_control_plane::raft::{
    InitError, Node, NodeConfig, ProposeError, ReadError, Role, Storage, testing,
};
use annulus_membership::{Command, Outcome, Request, RequestId, RingCommand, RingConfig};
use annulus_ring::Epoch;
use servers::{Cluster, PATIENCE, applied, eventually, ring_time, tick};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founded_cluster_decides_wherever_it_is_asked() {
    let mut cluster = Cluster::new(3).await;
    let name = cluster.found().await;
    // Asking again gets the same name; another list is refused.
    assert_eq!(cluster.node(1).init(cluster.servers(), PATIENCE).await.unwrap(), name);
    assert_eq!(cluster.node(2).init(cluster.servers(), PATIENCE).await.unwrap(), name);
    let other = BTreeMap::from([(1, cluster.servers()[&1].clone())]);
    let error = cluster.node(1).init(other, PATIENCE).await.unwrap_err();
    assert_eq!(error, InitError::AlreadyInitialised);

    let create = |ring: &str, id| Request {
        request_id: Some(RequestId(id)),
        command: Command::Ring {
            ring: ring.parse().unwrap(),
            command: RingCommand::Create { config: RingConfig::default(), accept: false },
        },
    };
    for (id, ring) in [(1, "one"), (2, "two"), (3, "three")] {
        let node = cluster.node(id);
        let outcome = node.propose(create(ring, u128::from(id)), PATIENCE).await.unwrap();
        let Outcome::Applied(at) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(at.epoch, Epoch(1));
        // The same request again: the same answer, and nothing changed.
        let again = node.propose(create(ring, u128::from(id)), PATIENCE).await.unwrap();
        assert_eq!(again, outcome);
        // Another request for the same ring: refused, without an entry.
        let refused = node.propose(create(ring, 99), PATIENCE).await.unwrap();
        assert!(matches!(refused, Outcome::Rejected(_)), "{refused:?}");
    }
    cluster.all_equal().await;
    for id in 1..=3 {
        let node = cluster.node(id);
        let rings = node.shared().read(|state, shelf| {
            let newest = state.rings.keys().map(|ring| shelf.newest(ring).unwrap().checksum);
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
        let outcome = cluster.node(leader).propose(tick(round * 10 + 1, 1), PATIENCE).await;
        assert!(applied(&outcome.unwrap()));
        cluster.stop(leader).await;
        let follower = *cluster.running.keys().next().unwrap();
        // Asked at once, while nobody leads: waits for the next leader.
        let outcome = cluster.node(follower).propose(tick(round * 10 + 2, 1), PATIENCE).await;
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
    eventually("a purge", || leader.standing().purged_index.filter(|purged| *purged > 400)).await;
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
        let files = std::fs::read_dir(cluster.directory(id).join("snapshots")).unwrap().count();
        assert_eq!(files, 1, "server {id}");
    }
    cluster.stop_all().await;
}

/// C25, starting alone: near-idle, says so, fails in bounded time, recovers by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25_a_server_alone_waits_quietly_and_recovers() {
    let mut cluster = Cluster::new(3).await;
    cluster.found().await;
    cluster.node(2).propose(tick(1, 1), PATIENCE).await.unwrap();
    cluster.stop_all().await;

    cluster.start(1).await;
    let alone = cluster.node(1);
    let terms = alone.standing().term;
    let began = Instant::now();
    let busy = cpu_time();
    let alone_for: u64 =
        std::env::var("ANNULUS_C25_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut asked = 0;
    while began.elapsed() < Duration::from_secs(alone_for) {
        let wait = Duration::from_millis(500);
        let error = alone.propose(tick(100 + asked, 1), wait).await.unwrap_err();
        let unavailable =
            matches!(error, ProposeError::NoLeader { .. } | ProposeError::Unavailable { .. });
        assert!(unavailable, "{error}");
        let error = alone.linearize(Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(error, ReadError::NoLeader { .. }), "{error}");
        assert_eq!(alone.standing().leader, None);
        asked += 1;
    }
    let busy = (cpu_time() - busy).as_secs_f64() / began.elapsed().as_secs_f64();
    println!("alone for {alone_for} s: {:.1} % of one core", busy * 100.0);
    assert!(busy < 0.5, "{busy}");
    // Pre-vote: nobody granted, so the term did not rise.
    assert_eq!(alone.standing().term, terms);
    // What was applied before is served, with its age.
    assert_eq!(ring_time(&alone), 1);
    assert_eq!(alone.last_heard(), None);

    let second = Instant::now();
    cluster.start(2).await;
    cluster.leader().await;
    println!("a leader {} ms after the second server", second.elapsed().as_millis());
    cluster.start(3).await;
    cluster.all_equal().await;
    cluster.stop_all().await;
}

fn cpu_time() -> Duration {
    // user and system time of this process, in ticks of 10 ms: fields 14 and 15.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap())
        .collect();
    Duration::from_millis((fields[0] + fields[1]) * 10)
}

/// C21 at the level of raft: ten rounds of stopping everything at a random moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c21_nothing_acknowledged_is_lost_over_restarts() {
    let rounds: u128 =
        std::env::var("ANNULUS_C21_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
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
        eventually("writes", || (ring_time(&node) >= before + enough).then_some(())).await;
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
        assert!(time >= acknowledged, "round {round}: {acknowledged} acknowledged, {time} there");
        assert!(time <= tried, "round {round}: {tried} tried, {time} there");
        for id in 1..=3 {
            let term = cluster.node(id).standing().term;
            let before = terms.insert(id, term).unwrap_or(0);
            assert!(term >= before, "server {id} went back from term {before} to {term}");
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
    assert_eq!(node.linearize(PATIENCE).await.unwrap_err(), ReadError::NotInitialised);
    for (servers, why) in [
        (BTreeMap::new(), "empty"),
        (BTreeMap::from([(2, "127.0.0.1:1".to_owned())]), "not among them"),
        (BTreeMap::from([(0, "127.0.0.1:1".to_owned())]), "begin with 1"),
        (
            BTreeMap::from([(1, "127.0.0.1:1".to_owned()), (2, "127.0.0.1:1".to_owned())]),
            "named twice",
        ),
        (BTreeMap::from([(1, "no endpoint".to_owned())]), "endpoint of server 1"),
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
        let error = cluster.node(id).propose(request.clone(), PATIENCE).await.unwrap_err();
        assert!(matches!(error, ProposeError::TooLarge { .. }), "{error}");
    }
    assert_eq!(cluster.node(leader).standing().last_log_index, before);
    // One right at the limit goes through, in many parts and one message.
    testing::write_bytes(&cluster.node(leader), 7 << 20).await.unwrap();
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
    cluster.node(leader).transfer_leader(follower).await.unwrap();
    let node = cluster.node(follower);
    eventually("the other leads", || node.standing().is_leader().then_some(())).await;
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
