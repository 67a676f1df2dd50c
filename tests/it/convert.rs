//! Twice as many ranges under load: everybody stops for a moment, nothing is lost, and whoever slept
//! through it or starts again goes on under the new names.

use std::time::Duration;

use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    history::servers_agree,
    load::{Load, Plan},
    timeline::Timeline,
};

const RING: &str = "convert";
const NODES: [(&str, &str); 4] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_doubled_under_load_and_no_write_is_lost() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start_paced(crate::BINARY, Duration::from_millis(100)).await;
    cluster
        .create_ring(RingPlan {
            name: RING,
            slot_bits: 4,
            soak: "1s",
            grace: "1s",
        })
        .await;
    for (name, zone) in NODES {
        cluster.add_node(&NodePlan {
            ring: RING,
            name,
            zone,
            ..NodePlan::default()
        });
    }
    cluster.registered(RING, &["n1", "n2", "n3", "n4"]).await;
    let found = ["ring", "found", RING, "n1", "n2", "n3"];
    let _ = cluster.annulus(&found).await.done();
    cluster.adopted(RING).await;
    let timeline = Timeline::watch(&cluster, RING, 2).await;
    let plan = Plan {
        writers: 8,
        keys: 60,
        writes_per_s: 200,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    load.acknowledges(CHANGE, 200, "before it", |_| true).await;

    for bits in [5_u64, 6] {
        let done = cluster
            .annulus(&["ring", "convert", RING, "--double"])
            .await;
        let _ = done.done();
        let show = cluster.show(RING).await;
        assert_eq!(show["slot_bits"], bits, "{show}");
        let epoch = timeline
            .until(CHANGE, "the new table", |snapshot| {
                u64::from(snapshot.layout.slots.bits()) == bits
            })
            .await
            .epoch;
        load.acknowledges(CHANGE, 200, "under twice as many ranges", |ack| {
            ack.epoch >= epoch
        })
        .await;
    }

    // The halves move like any range.
    let join = cluster.change("join", RING, "n4").await;
    cluster.change_is(RING, join, "done").await;
    load.acknowledges(CHANGE, 100, "after a join", |_| true)
        .await;

    // A hash is for life where data is kept.
    let refused = cluster
        .annulus(&["ring", "convert", RING, "--hash", "md5-64"])
        .await;
    assert!(
        refused.stderr.contains("create a second ring"),
        "{refused:#?}"
    );

    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    assert_eq!(outcome.unknown, 0, "no write is left unknown");
    outcome.read_everything_back().await;
    timeline.rose();
    servers_agree(&cluster.endpoints, RING).await;
    cluster.nobody_panicked();
    cluster.kill_servers().await;
}
