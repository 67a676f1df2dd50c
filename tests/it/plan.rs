//! A plan from the command line to its end, on real processes: what it foretold is what came.

use annulus_tests::cluster::{CHANGE, Cluster, NodePlan, RingPlan, SOON, wide};
use annulus_tests::wait::until;
use serde_json::Value;

const RING: &str = "planned";
const NODES: [(&str, &str); 3] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];

async fn asked(cluster: &Cluster, words: &[&str]) -> Value {
    let words = [words, &["-o", "json"]].concat();
    cluster.annulus(&words).await.done().json()
}

/// By range, as `ring dump` or an export shows them.
fn lists(document: &Value, ranges: &str, list: &str) -> Vec<(u64, Value)> {
    let ranges = document[ranges].as_array().expect("ranges").iter();
    ranges
        .map(|range| {
            (
                range["slot"].as_u64().expect("a number"),
                range[list].clone(),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_plan_foretold_is_what_came() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let ring = RingPlan {
        name: RING,
        slot_bits: 5,
        soak: "1s",
        grace: "1h",
    };
    cluster.founded_ring(ring, &NODES).await;
    cluster.add_node(&NodePlan {
        ring: RING,
        name: "n4",
        zone: "z1",
        ..NodePlan::default()
    });
    cluster.registered(RING, &["n4"]).await;
    let load = ["kv", "load", RING, "--count", "2000"];
    let _ = cluster.annulus(&load).await.done();

    let make = ["plan", "make", RING, "join", "n4", "--throttle", "1000000"];
    let plan = asked(&cluster, &make).await;
    assert_eq!(
        (&plan["plan"], &plan["state"]),
        (&"1".into(), &"open".into())
    );
    // Nodes tell what they hold now and then.
    let shown = until(SOON, "the plan to know what nodes hold", || async {
        let words = ["plan", "show", RING, "1", "--throttle", "1000000"];
        let plan = asked(&cluster, &words).await;
        let nodes = plan["outlook"]["nodes"].as_array().cloned();
        // Each of the three holds all; any of them may be copied from.
        let holds_all = |node: &Value| node["before"]["held"]["keys"] == "2000";
        let holders = nodes.unwrap_or_default();
        if holders.iter().filter(|node| holds_all(node)).count() == NODES.len() {
            Ok(plan)
        } else {
            Err(plan.to_string())
        }
    })
    .await;
    let copies = shown["outlook"]["copies"].as_u64().expect("a number");
    assert!(copies > 0 && wide(&shown["outlook"]["copy_ms"]) > 0);
    let told = cluster.annulus(&["plan", "show", RING, "1"]).await.done();
    for words in ["join n4", "FROM", "UNDONE AT", "flip back"] {
        assert!(told.stdout.contains(words), "{}", told.stdout);
    }

    let export = cluster.annulus(&["plan", "export", RING, "1"]).await.done();
    let planned = lists(&export.json(), "lists", "after");
    let commit = cluster.annulus(&["plan", "commit", RING, "1"]).await;
    let _ = commit.done().within(CHANGE);
    // Owners may be evened out since; who holds what is as planned.
    let dump = asked(&cluster, &["ring", "dump", RING]).await;
    let came = lists(&dump, "ranges", "replicas");
    let set = |list: &Value| {
        let mut nodes: Vec<String> = list
            .as_array()
            .expect("a list")
            .iter()
            .map(ToString::to_string)
            .collect();
        nodes.sort();
        nodes
    };
    for (slot, list) in planned {
        let (_, found) = came
            .iter()
            .find(|(other, _)| *other == slot)
            .expect("a range");
        assert_eq!(set(found), set(&list), "slot {slot}");
    }

    let twice = cluster.annulus(&["plan", "commit", RING, "1"]).await;
    twice.refused(&["PlanCommitted", "change 1"]);
    let late = cluster.annulus(&["plan", "make", RING, "join", "n9"]).await;
    late.refused(&["NotRegistered", "n9"]);
    let change = asked(&cluster, &["explain", "change", RING, "1"]).await;
    assert_eq!(change["moves"][0]["gained"], copies);
    let key = cluster.annulus(&["explain", "key", RING, "greeting"]).await;
    let key = key.done();
    assert!(
        key.stdout.contains("the ring was founded"),
        "{}",
        key.stdout
    );
    let kept = cluster.annulus(&["why-kept", RING, "n1"]).await.done();
    assert!(kept.stdout.contains("grace"), "{}", kept.stdout);
    cluster.nobody_panicked();
}
