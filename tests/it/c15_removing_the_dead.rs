//! C15: removing a dead node, and the dead waking up.

use annulus_ring::Snapshot;
use annulus_tests::{
    cluster::{CHANGE, Cluster, RingPlan},
    history::servers_agree,
    load::{Load, Plan},
    timeline::Timeline,
    wait::until,
};

const RING: &str = "dead";
const NODES: [(&str, &str); 6] = [
    ("n1", "z1"),
    ("n2", "z2"),
    ("n3", "z3"),
    ("n4", "z1"),
    ("n5", "z2"),
    ("n6", "z3"),
];

async fn is_down(cluster: &Cluster, node: &str) {
    until(CHANGE, format!("{node} to be down"), || async {
        let show = cluster.show(RING).await;
        let nodes = show["nodes"].as_array().cloned().unwrap_or_default();
        let known = nodes.iter().find(|known| known["node"] == node);
        match known.is_some_and(|known| known["down"] == true) {
            true => Ok(()),
            false => Err(format!("{known:?}")),
        }
    })
    .await;
}

async fn die(cluster: &mut Cluster, node: &str) {
    let process = &mut cluster.nodes.get_mut(node).expect("it was added").process;
    process.kill().await;
    is_down(cluster, node).await;
}

fn lists_are_whole(snapshot: &Snapshot, without: &[&str]) {
    for slot in snapshot.layout.slots.slots() {
        let list = snapshot.layout.slots.list(slot);
        assert_eq!(list.len(), 3, "slot {slot}");
        for handle in list {
            let member = snapshot.member_by_handle(*handle).expect("a member");
            assert!(!without.contains(&member.node_id.as_str()), "slot {slot}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c15_a_dead_node_is_removed_and_its_ranges_are_rebuilt_from_the_others() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small(RING), &NODES).await;
    let timeline = Timeline::watch(&cluster, RING, 2).await;
    let plan = Plan {
        writers: 8,
        keys: 40,
        writes_per_s: 200,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    load.acknowledges(CHANGE, 200, "before anybody dies", |_| true)
        .await;

    // 1, 2: a plain drain points to the way for the dead; a living node is not taken for dead.
    let alive = cluster
        .annulus(&["node", "remove", RING, "n3", "--dead", "--detach"])
        .await;
    let _ = alive.refused(&["n3 is not down", "drain"]);
    die(&mut cluster, "n3").await;
    let drain = cluster.annulus(&["node", "drain", RING, "n3"]).await;
    let _ = drain.refused(&["n3 is down", "node remove", "--dead"]);

    // 3, 4: rebuilt from survivors while the dead wakes up, and is not believed.
    let remove = [
        "node", "remove", RING, "n3", "--dead", "--detach", "-o", "json",
    ];
    let removed = cluster.annulus(&remove).await.json();
    let change = annulus_tests::cluster::wide(&removed["change_id"]);
    let process = &mut cluster.nodes.get_mut("n3").expect("it was added").process;
    process.start();
    cluster.change_is(RING, change, "done").await;
    timeline
        .until(CHANGE, "n3 to be gone", |snapshot| {
            let node = |member: &annulus_ring::Member| member.node_id.as_str() == "n3";
            !snapshot.members.iter().any(node)
        })
        .await;
    lists_are_whole(&timeline.snapshot(), &["n3"]);
    let process = &cluster.nodes["n3"].process;
    until(CHANGE, "n3 to be told that its life is over", || async {
        match process.log().contains("this process can be stopped") {
            true => Ok(()),
            false => Err(process.tail()),
        }
    })
    .await;
    let epoch = timeline.snapshot().epoch;
    load.acknowledges(CHANGE, 100, "without it", |ack| ack.epoch >= epoch)
        .await;
    let process = &mut cluster.nodes.get_mut("n3").expect("it was added").process;
    process.kill().await;
    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    outcome.read_everything_back().await;

    // 5: two that share ranges: only with the ranges quoted that may have lost writes.
    for node in ["n1", "n2"] {
        let process = &mut cluster.nodes.get_mut(node).expect("it was added").process;
        process.kill().await;
    }
    is_down(&cluster, "n1").await;
    is_down(&cluster, "n2").await;
    let refused = cluster
        .annulus(&["node", "remove", RING, "n1", "--dead", "--detach"])
        .await
        .refused(&["no acknowledged write is lost", "--lost"]);
    let quote = refused.stderr.split("--lost ").nth(1).expect("a quote");
    let slots: String = quote
        .chars()
        .take_while(|letter| letter.is_ascii_digit() || ",-".contains(*letter))
        .collect();
    let stopped = ["--stopped", "the test killed it", "--detach", "-o", "json"];
    let accepted = ["node", "remove", RING, "n1", "--dead", "--lost", &slots];
    let accepted = [&accepted[..], &stopped].concat();
    let first = cluster.annulus(&accepted).await.json();
    let second = ["node", "remove", RING, "n2", "--dead", "--lost", &slots];
    let second = [&second[..], &stopped].concat();
    let second = cluster.annulus(&second).await;
    // Whether the other's ranges are still in doubt depends on how far the first is.
    let second = if second.code == 0 {
        second.json()
    } else {
        let plain = [
            "node", "remove", RING, "n2", "--dead", "--detach", "-o", "json",
        ];
        cluster.annulus(&plain).await.json()
    };
    for removed in [first, second] {
        let change = annulus_tests::cluster::wide(&removed["change_id"]);
        cluster.change_is(RING, change, "done").await;
    }
    cluster.adopted(RING).await;
    lists_are_whole(&timeline.snapshot(), &["n1", "n2", "n3"]);

    // 6: repair works as before, with the records of the removed in the roster.
    let load = ["kv", "load", RING, "--count", "200", "-o", "json"];
    assert_eq!(cluster.annulus(&load).await.json()["keys"], "200");
    timeline.rose();
    servers_agree(&cluster.endpoints, RING).await;
    cluster.nobody_panicked();
    cluster.kill_servers().await;
}
