//! The storm: as many writes as the machine makes, log snapshots all along, and a follower that
//! is stopped again and again until the log it needs is purged (openraft #2116: a panic of the
//! core in such weather). No panic, no loss, equal states in the end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annulus_control_plane::raft::testing;
use annulus_membership::Command;
use servers::{Cluster, eventually, ring_time};

const WRITERS: usize = 32;

/// Seconds from `ANNULUS_STORM_SECONDS`; 30 by default.
fn length() -> Duration {
    let seconds = std::env::var("ANNULUS_STORM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_with_a_follower_beyond_the_purge() {
    let mut cluster = Cluster::new(3).await;
    cluster.snapshot_every = 2_000;
    cluster.keep_log = 500;
    cluster.found().await;

    let tried = Arc::new(AtomicU64::new(0));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    // The lagging one is a follower throughout; the two others lead in turns if they must.
    let lagging = cluster.follower().await;
    let nodes: Vec<_> = (1..=3)
        .filter(|id| *id != lagging)
        .map(|id| cluster.node(id))
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let nodes = nodes.clone();
            let (tried, acknowledged, over) = (tried.clone(), acknowledged.clone(), over.clone());
            tokio::spawn(async move {
                let mut leader = 0;
                while !over.load(Ordering::Relaxed) {
                    let node = &nodes[leader];
                    let tick = Command::Tick { elapsed_ms: 1 };
                    tried.fetch_add(1, Ordering::Relaxed);
                    let written = match testing::write(node, tick).await {
                        Ok(()) => {
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                            testing::write_bytes(node, 1_024).await
                        }
                        Err(error) => Err(error),
                    };
                    if written.is_err() {
                        leader = (leader + 1 + number) % nodes.len();
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            })
        })
        .collect();

    let began = Instant::now();
    let mut lags = 0;
    while began.elapsed() < length() {
        cluster.stop(lagging).await;
        let last = nodes[0].standing().last_log_index.unwrap_or(0);
        eventually("a purge beyond the follower", || {
            let purged = nodes
                .iter()
                .map(|node| node.standing().purged_index.unwrap_or(0))
                .min();
            purged.filter(|purged| *purged > last)
        })
        .await;
        cluster.start(lagging).await;
        let behind = cluster.node(lagging);
        let caught = tokio::time::timeout(servers::PATIENCE, async {
            let mut applied = behind.applied();
            // The node outlives this wait.
            let _ = applied.wait_for(|applied| applied.index > last).await;
        });
        if caught.await.is_err() {
            for running in cluster.running.values() {
                println!("{:?}", running.node.standing());
            }
            panic!("the follower never got the log snapshot beyond {last}");
        }
        lags += 1;
    }
    over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let seconds = began.elapsed().as_secs_f64();
    let (tried, acknowledged) = (
        tried.load(Ordering::Relaxed),
        acknowledged.load(Ordering::Relaxed),
    );
    println!(
        "storm: {:.0} entries/s for {seconds:.0} s, {lags} lags beyond the purge",
        2.0 * acknowledged as f64 / seconds
    );
    cluster.all_equal().await;
    for id in 1..=3 {
        let time = ring_time(&cluster.node(id));
        assert!(
            (acknowledged..=tried).contains(&time),
            "{acknowledged} <= {time} <= {tried}"
        );
    }
    assert!(lags > 0);
    cluster.stop_all().await;

    // It comes back from disk without loss.
    for id in 1..=3 {
        cluster.start(id).await;
    }
    cluster.all_equal().await;
    assert!(ring_time(&cluster.node(1)) >= acknowledged);
    cluster.stop_all().await;
}
