//! C11: a drain that can never finish is refused at once, by name, and possible after a join.

use std::time::Duration;

use annulus_tests::cluster::{Cluster, RingPlan};

/// A refusal needs no waiting.
const PROMPTLY: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_a_drain_that_shortens_lists_is_refused_until_another_node_has_joined() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    cluster.founded_ring(RingPlan::small("three"), &nodes).await;
    refused_without_a_trace(&cluster, "three", "n3", &["n3", "rf is 3"]).await;

    cluster.add_nodes("three", &[("n4", "z3")]).await;
    cluster.change_to_its_end("join", "three", "n4").await;
    cluster.change_to_its_end("drain", "three", "n3").await;
    no_list_names(&cluster, "three", "n3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c11_a_drain_that_empties_a_zone_is_refused_until_the_zone_has_another_node() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let nodes = [
        ("a", "z1"),
        ("b", "z1"),
        ("c", "z1"),
        ("d", "z2"),
        ("e", "z2"),
        ("f", "z3"),
    ];
    cluster.founded_ring(RingPlan::small("six"), &nodes).await;
    refused_without_a_trace(
        &cluster,
        "six",
        "f",
        &["f", "nobody in zone z3", "join a node in z3"],
    )
    .await;

    cluster.add_nodes("six", &[("g", "z3")]).await;
    cluster.change_to_its_end("join", "six", "g").await;
    cluster.change_to_its_end("drain", "six", "f").await;
    no_list_names(&cluster, "six", "f").await;
}

async fn refused_without_a_trace(cluster: &Cluster, ring: &str, node: &str, words: &[&str]) {
    let before = cluster.show(ring).await;
    let ran = cluster.annulus(&["node", "drain", ring, node]).await;
    ran.refused(words).within(PROMPTLY);
    let after = cluster.show(ring).await;
    assert_eq!(before["layout_epoch"], after["layout_epoch"]);
    assert_eq!(
        before["changes"], after["changes"],
        "no change may be left waiting"
    );
    assert_eq!(
        cluster.state_of(ring, node).await.as_deref(),
        Some("active")
    );
}

async fn no_list_names(cluster: &Cluster, ring: &str, node: &str) {
    let dump = cluster
        .annulus(&["ring", "dump", ring, "-o", "json"])
        .await
        .json();
    for range in dump["ranges"].as_array().expect("ranges") {
        let replicas = range["replicas"].as_array().expect("a list");
        assert_eq!(replicas.len(), 3, "{range}");
        assert!(replicas.iter().all(|replica| replica != node), "{range}");
    }
}
