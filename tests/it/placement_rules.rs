//! Cases of placement as an operator meets them, through the command line: C03, C06 and C10. The
//! geometry itself is tested where it lives, in `ring`.

use std::collections::BTreeSet;

use annulus_proto::v1::{self, admin_client::AdminClient};
use annulus_tests::cluster::{Cluster, NodePlan, RingPlan};
use serde_json::Value;

/// Zones by node, of the nodes of a dump.
fn zones(dump: &Value) -> Vec<(String, String)> {
    let members = dump["members"].as_array().expect("members").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    members
        .map(|member| (text(&member["node"]), text(&member["zone"])))
        .collect()
}

/// For each range the zones of its list.
fn spread(dump: &Value) -> Vec<Vec<String>> {
    let zones = zones(dump);
    let zone = |node: &Value| {
        let found = zones.iter().find(|(name, _)| node == name);
        found.map(|(_, zone)| zone.clone()).expect("a known member")
    };
    let ranges = dump["ranges"].as_array().expect("ranges").iter();
    ranges
        .map(|range| {
            range["replicas"]
                .as_array()
                .expect("a list")
                .iter()
                .map(zone)
                .collect()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c03_weight_zero_owns_nothing_and_other_bad_weights_are_refused_by_name() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.create_ring(RingPlan::small("weights")).await;
    for (name, zone) in [("zero-1", "z1"), ("zero-2", "z2"), ("zero-3", "z3")] {
        cluster.add_node(&NodePlan {
            ring: "weights",
            name,
            zone,
            weight: Some(0),
            ..NodePlan::default()
        });
    }
    cluster
        .registered("weights", &["zero-1", "zero-2", "zero-3"])
        .await;
    // All weights 0: nobody could own anything.
    let all_zero = [
        "ring", "found", "weights", "zero-1", "zero-2", "zero-3", "--accept",
    ];
    cluster
        .annulus(&all_zero)
        .await
        .refused(&["every weight is 0"]);
    // What is no weight does not even start.
    for bad in ["-1", "NaN", "inf", "1000001", "4294967296"] {
        let weight = format!("--weight={bad}");
        let args = [
            "kv",
            "serve",
            "--ring",
            "weights",
            "--node",
            "bad",
            "--zone",
            "z1",
            "--listen",
            "127.0.0.1:1",
            "--data-dir",
            "unused",
            &weight,
        ];
        cluster.annulus(&args).await.ended_with(2, &["weight"]);
    }

    cluster
        .add_nodes("weights", &[("n1", "z1"), ("n2", "z2"), ("n3", "z3")])
        .await;
    let _ = cluster
        .annulus(&["ring", "found", "weights", "n1", "n2", "n3", "zero-1"])
        .await
        .done();
    cluster.adopted("weights").await;
    let epoch = cluster.epoch("weights").await;
    let huge = ["node", "join", "weights", "zero-2", "--weight", "1000001"];
    let huge = cluster.annulus(&huge).await;
    assert!(
        matches!(huge.code, 2 | 3) && huge.stderr.contains("weight"),
        "{huge:#?}"
    );
    let other = ["node", "join", "weights", "zero-2", "--weight", "7"];
    cluster
        .annulus(&other)
        .await
        .refused(&["zero-2 said weight 0", "7"]);
    // Past the command line, which checks too.
    let at = format!("http://{}", cluster.endpoints[0]);
    let mut admin = AdminClient::connect(at).await.expect("a server listens");
    let request = v1::JoinNodeRequest {
        request_id: fastrand::u128(..).to_be_bytes().to_vec().into(),
        ring: "weights".to_owned(),
        node: "zero-2".to_owned(),
        weight: Some(u32::MAX),
        ..v1::JoinNodeRequest::default()
    };
    let refused = admin.join_node(request).await.expect_err("no such weight");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("weight"), "{refused:?}");
    assert_eq!(
        cluster.epoch("weights").await,
        epoch,
        "a refusal makes no epoch"
    );

    cluster.change_to_its_end("join", "weights", "zero-2").await;
    let show = cluster.show("weights").await;
    for node in show["nodes"].as_array().expect("nodes") {
        let zero = node["weight"] == 0;
        assert_eq!(zero, node["replica_ranges"] == 0, "{node}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c06_uneven_zones_hold_one_replica_each_and_status_says_who_carries_all() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.create_ring(RingPlan::small("uneven")).await;
    let nodes = [
        ("a", "z1", 100),
        ("b", "z2", 100),
        ("c", "z3", 1000),
        ("d", "z3", 1000),
        ("e", "z3", 1000),
        ("f", "z3", 1000),
    ];
    for (name, zone, weight) in nodes {
        cluster.add_node(&NodePlan {
            ring: "uneven",
            name,
            zone,
            weight: Some(weight),
            ..NodePlan::default()
        });
    }
    let names = nodes.map(|(name, _, _)| name);
    cluster.registered("uneven", &names).await;
    let mut found = vec!["ring", "found", "uneven"];
    found.extend(names);
    let _ = cluster.annulus(&found).await.done();
    let dump = cluster
        .annulus(&["ring", "dump", "uneven", "-o", "json"])
        .await
        .json();
    for list in spread(&dump) {
        let zones: BTreeSet<&String> = list.iter().collect();
        assert_eq!((list.len(), zones.len()), (3, 3), "{list:?}");
    }
    let status = cluster.annulus(&["status"]).await.done().stdout;
    assert!(status.contains("a, b carry 100 %"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c06_one_zone_only_works_when_accepted_and_status_says_that_the_spread_is_not_met() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.create_ring(RingPlan::small("flat")).await;
    cluster
        .add_nodes("flat", &[("a", "z1"), ("b", "z1"), ("c", "z1")])
        .await;
    let found = ["ring", "found", "flat", "a", "b", "c"];
    cluster
        .annulus(&found)
        .await
        .refused(&["1 zone(s)", "--accept"]);
    let _ = cluster
        .annulus(&[&found[..], &["--accept"]].concat())
        .await
        .done();
    let looked_up = cluster
        .annulus(&["lookup", "flat", "any key", "-o", "json"])
        .await
        .json();
    assert_eq!(
        looked_up["replicas"].as_array().map(Vec::len),
        Some(3),
        "{looked_up}"
    );
    let status = cluster.annulus(&["status"]).await.done().stdout;
    assert!(status.contains("zone spread is not met"), "{status}");

    // Zone names are compared byte by byte, and an empty one is none.
    cluster.add_nodes("flat", &[("d", "Z1")]).await;
    let wrong = ["node", "join", "flat", "d", "--zone", "z1"];
    cluster
        .annulus(&wrong)
        .await
        .refused(&["said zone Z1", "says z1"]);
    let empty = [
        "kv",
        "serve",
        "--ring",
        "flat",
        "--node",
        "e",
        "--zone",
        "",
        "--listen",
        "127.0.0.1:1",
        "--data-dir",
        "unused",
    ];
    cluster
        .annulus(&empty)
        .await
        .ended_with(2, &["zone", "empty"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_a_dump_survives_a_reader_that_knows_only_doubles() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let seed = u64::MAX.to_string();
    let create = [
        "ring",
        "create",
        "doubles",
        "--slot-bits",
        "5",
        "--seed",
        &seed,
        "--soak",
        "200ms",
    ];
    let _ = cluster.annulus(&create).await.done();
    cluster
        .add_nodes("doubles", &[("a", "z1"), ("b", "z2"), ("c", "z3")])
        .await;
    let _ = cluster
        .annulus(&["ring", "found", "doubles", "a", "b", "c"])
        .await
        .done();
    let commands: [&[&str]; 6] = [
        &["ring", "dump", "doubles"],
        &["ring", "epochs", "doubles"],
        &["ring", "show", "doubles"],
        &["node", "list", "doubles"],
        &["status"],
        &["lookup", "doubles", "a key"],
    ];
    for command in commands {
        let printed = cluster
            .annulus(&[command, &["-o", "json"]].concat())
            .await
            .json();
        assert_eq!(through_doubles(&printed), printed, "{command:?}");
    }
    let dump = cluster
        .annulus(&["ring", "dump", "doubles", "-o", "json"])
        .await
        .json();
    assert_eq!(dump["seed"], seed, "the largest seed comes back whole");
    let last = &dump["ranges"][31]["end"];
    assert_eq!(
        *last, "ffffffffffffffff",
        "the last range ends at the largest hash"
    );
}

/// What is left of a value after a reader that keeps every number as a double.
fn through_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let double = number.as_f64().expect("a JSON number is a double there");
            assert!(
                double.abs() < 9_007_199_254_740_992.0,
                "{number} is not below 2^53"
            );
            #[allow(clippy::cast_possible_truncation, reason = "checked to be below 2^53")]
            Value::from(double as i64)
        }
        Value::Array(items) => items.iter().map(through_doubles).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), through_doubles(field)))
            .collect(),
        other => other.clone(),
    }
}
