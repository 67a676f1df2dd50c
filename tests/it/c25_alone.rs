//! C25: one of three servers starts alone, and a leader is killed again and again.

use std::time::{Duration, Instant};

use annulus_tests::{
    cluster::{Cluster, RingPlan, SOON},
    command::Ran,
    wait::{by_night, until},
};

/// How long it stays alone.
const ALONE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(600));
/// Share of one processor that a lonely server may use, in percent.
const IDLE_PERCENT: f64 = 10.0;
/// Lines a minute that it may write.
const LINES_PER_MINUTE: f64 = 60.0;
/// No answer takes longer.
const BOUNDED: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25_a_server_alone_is_idle_and_says_so_and_the_second_one_makes_a_leader() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    cluster.founded_ring(RingPlan::small("alone"), &nodes).await;
    cluster.kill_servers().await;

    cluster.servers[0].start();
    let at = [cluster.endpoints[0].clone()];
    until(SOON, "the lonely server to answer for itself", || async {
        let ran = cluster.annulus_at(&at, &["status", "--local"]).await;
        if ran.code == 0 {
            Ok(())
        } else {
            Err(format!("{ran:?}"))
        }
    })
    .await;

    // 1: near-idle, and quiet. The time alone is what is measured, not waited for.
    let (start, cpu) = (Instant::now(), cluster.servers[0].cpu_time());
    let lines = cluster.servers[0].log().lines().count();
    let alone = by_night(ALONE.0, ALONE.1);
    until(alone * 2, "the time alone to pass", || async {
        let passed = start.elapsed();
        if passed >= alone {
            Ok(())
        } else {
            Err(format!("{passed:?}"))
        }
    })
    .await;
    let seconds = start.elapsed().as_secs_f64();
    let percent = (cluster.servers[0].cpu_time() - cpu).as_secs_f64() / seconds * 100.0;
    let per_minute = (cluster.servers[0].log().lines().count() - lines) as f64 / seconds * 60.0;
    println!(
        "alone for {seconds:.0} s: {percent:.1} % of a processor, {per_minute:.0} lines a minute"
    );
    assert!(percent < IDLE_PERCENT, "{percent:.1} % of a processor");
    assert!(
        per_minute < LINES_PER_MINUTE,
        "{per_minute:.0} lines a minute"
    );

    // 2: what it knows it shows as stale; what it cannot do it says in bounded time.
    let bounded = |ran: Ran| ran.within(BOUNDED);
    let local = bounded(cluster.annulus_at(&at, &["status", "--local"]).await).done();
    assert!(local.stdout.contains("STALE"), "{local:#?}");
    let local = bounded(
        cluster
            .annulus_at(&at, &["ring", "dump", "alone", "--local"])
            .await,
    )
    .done();
    // Which epochs it knows to be committed was not yet on its disk when it was killed, so alone
    // it may show an older one: a local answer says so and promises no more.
    assert!(local.stdout.contains("ring alone  epoch "), "{local:#?}");
    let status = bounded(
        cluster
            .annulus_at(&at, &["status", "--timeout", "3s"])
            .await,
    );
    let status = status.ended_with(4, &["no quorum", "1 of 3"]);
    assert!(status.stdout.contains("STALE"), "{status:#?}");
    let join = cluster
        .annulus_at(&at, &["node", "join", "alone", "n1", "--timeout", "3s"])
        .await;
    assert!(
        matches!(bounded(join).code, 4 | 5),
        "neither unavailable nor unknown"
    );

    // 3: the second one makes a majority.
    cluster.servers[1].start();
    let start = Instant::now();
    cluster.leader().await;
    println!(
        "a leader {:.1} s after the second server started",
        start.elapsed().as_secs_f64()
    );
    cluster.nobody_panicked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25_a_leader_killed_and_started_at_once_recovers_every_time() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.create_ring(RingPlan::small("kept")).await;
    for round in 0..by_night(5, 20) {
        let leader = cluster.leader().await;
        cluster.servers[leader].kill().await;
        cluster.servers[leader].start();
        cluster.leader().await;
        let ring = format!("round-{round}");
        cluster.create_ring(RingPlan::small(&ring)).await;
    }
    cluster.nobody_panicked();
}
