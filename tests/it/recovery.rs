//! All three servers are killed and started again, round after round, while data nodes and clients
//! go on: OUTAGE-CALM while they are gone, DURABLE-ACK when they are back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use annulus_tests::{
    cluster::{CHANGE, Cluster, RingPlan, SOON},
    history::{Shelf, servers_agree},
    load::{Load, Plan},
    timeline::Timeline,
    wait::{by_night, until},
};

const RING: &str = "outage";
/// Least time between two epochs: after one is adopted everywhere there is time for the kill.
const EPOCH_INTERVAL: Duration = Duration::from_millis(800);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_all_servers_loses_nothing_acknowledged_and_lookups_go_on_throughout() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start_paced(crate::BINARY, EPOCH_INTERVAL).await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];
    cluster
        .founded_ring(RingPlan::small(RING), &nodes[..3])
        .await;
    cluster.add_nodes(RING, &nodes[3..]).await;
    let timeline = Timeline::watch(&cluster, RING, 2).await;
    let lookups = Lookups::start(&cluster).await;
    let plan = Plan {
        writers: 16,
        keys: 50,
        writes_per_s: 500,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    load.acknowledges(CHANGE, 500, "before the first outage", |_| true)
        .await;

    for round in 0..by_night(5, 50) {
        // A change is on its way when they die, in every round another one.
        let kind = if round % 2 == 0 { "join" } else { "drain" };
        let change = cluster.change(kind, RING, "n4").await;
        let begun = |snapshot: &annulus_ring::Snapshot| snapshot.transition.is_some();
        timeline.until(CHANGE, "the change to begin", begun).await;
        cluster.adopted(RING).await;
        let before = Shelf::at(&cluster.endpoints[0], RING)
            .epochs()
            .await
            .expect("it lives");
        cluster.kill_servers().await;

        let (looked_up, acked) = (lookups.count(), load.ack_count());
        load.acknowledges(CHANGE, 200, "without any control plane", |_| true)
            .await;
        assert!(
            lookups.count() > looked_up,
            "lookups stopped in round {round}"
        );
        println!(
            "round {round}: {} writes acknowledged without a control plane",
            load.ack_count() - acked
        );

        cluster.start_servers();
        cluster.leader().await;
        for endpoint in &cluster.endpoints {
            let after = until(SOON, "its epochs to be back", || async {
                let after = Shelf::at(endpoint, RING).epochs().await?;
                if after.len() >= before.len() {
                    Ok(after)
                } else {
                    Err(format!("{} epochs", after.len()))
                }
            })
            .await;
            for (at, checksum) in &before {
                assert_eq!(
                    after.get(at),
                    Some(checksum),
                    "round {round}: epoch {at:?} at {endpoint}"
                );
            }
        }
        cluster.change_is(RING, change, "done").await;
        if kind == "drain" {
            // It may be joined again once its last copy is given up, with an empty directory.
            let gone = |snapshot: &annulus_ring::Snapshot| {
                snapshot
                    .members
                    .iter()
                    .all(|member| member.node_id.as_str() != "n4")
            };
            timeline
                .until(Duration::from_secs(60), "n4 to be removed", gone)
                .await;
            let node = cluster.nodes.get_mut("n4").expect("it was added");
            node.process.kill().await;
            std::fs::remove_dir_all(&node.data_dir).expect("a directory of the test");
            node.process.start();
            cluster.registered(RING, &["n4"]).await;
        }
    }

    let total = lookups.stop().await;
    println!("{total} lookups, none of which failed");
    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    outcome.read_everything_back().await;
    timeline.rose();
    println!(
        "{} epochs equal at all servers",
        servers_agree(&cluster.endpoints, RING).await
    );
    cluster.nobody_panicked();
}

/// A client that looks up without a pause; none may fail.
struct Lookups {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Lookups {
    async fn start(cluster: &Cluster) -> Self {
        let client = cluster.client(RING).await;
        let (stop, count) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            let mut key = 0_u64;
            while !stopped.load(Ordering::Acquire) {
                key += 1;
                let route = client
                    .lookup(&key.to_be_bytes())
                    .expect("a lookup needs no control plane");
                assert_eq!(route.handles().len(), 3);
                drop(route);
                counted.fetch_add(1, Ordering::Release);
                // The machine is small; this is about never failing, not about how fast.
                std::thread::park_timeout(Duration::from_micros(200));
            }
        });
        Self {
            stop,
            count,
            thread,
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("no lookup failed");
        self.count.load(Ordering::Acquire)
    }
}
