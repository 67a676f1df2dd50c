//! C25, in a process of its own: what it costs is measured for the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod servers;

use std::time::{Duration, Instant};

use annulus_control_plane::raft::{ProposeError, ReadError};
use servers::{Cluster, PATIENCE, ring_time, tick};

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
    let alone_for: u64 = std::env::var("ANNULUS_C25_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let mut asked = 0;
    while began.elapsed() < Duration::from_secs(alone_for) {
        let wait = Duration::from_millis(500);
        let error = alone.propose(tick(100 + asked, 1), wait).await.unwrap_err();
        let unavailable = matches!(
            error,
            ProposeError::NoLeader { .. } | ProposeError::Unavailable { .. }
        );
        assert!(unavailable, "{error}");
        let error = alone
            .linearize(Duration::from_millis(100))
            .await
            .unwrap_err();
        assert!(matches!(error, ReadError::NoLeader { .. }), "{error}");
        assert_eq!(alone.standing().leader, None);
        asked += 1;
    }
    let busy = (cpu_time() - busy).as_secs_f64() / began.elapsed().as_secs_f64();
    println!("alone for {alone_for} s: {:.1} % of one core", busy * 100.0);
    assert!(busy < 0.25, "{busy}");
    // Pre-vote: nobody granted, so the term did not rise.
    assert_eq!(alone.standing().term, terms);
    // What was applied before is served, with its age.
    assert_eq!(ring_time(&alone), 1);
    assert_eq!(alone.last_heard(), None);

    let second = Instant::now();
    cluster.start(2).await;
    cluster.leader().await;
    println!(
        "a leader {} ms after the second server",
        second.elapsed().as_millis()
    );
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
