//! C17: two processes, one node id. The same disk twice is the sharp form; an empty one is the
//! usual accident.

use std::path::PathBuf;

use annulus_ring::{Incarnation, Member, NodeId, Snapshot};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan, wide},
    files::copy_dir,
    history::servers_agree,
    load::{Load, Plan},
    timeline::{Meaning, Timeline},
    wait::until,
};

const RING: &str = "twice";
const NODES: [(&str, &str); 4] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];
const TWICE: &str = "n4";
const AGAIN: &str = "n4-again";

fn member(snapshot: &Snapshot) -> Option<&Member> {
    snapshot.member(&NodeId::new(TWICE).expect("a name"))
}

/// Waits until the log of a process has so many lines with all of `words`.
async fn says(cluster: &Cluster, node: &str, words: &[&str], times: usize) {
    let process = &cluster.nodes[node].process;
    until(CHANGE, format!("{node} to say {words:?}"), || async {
        let log = process.log();
        let said = |line: &&str| words.iter().all(|word| line.contains(word));
        match log.lines().filter(said).count() {
            count if count >= times => Ok(()),
            count => Err(format!("{count} times; {}", process.tail())),
        }
    })
    .await;
}

/// Starts n4 a second time, at another address and with this directory.
fn start_again(cluster: &mut Cluster, data_dir: PathBuf) {
    let mut second = cluster.plan(&NodePlan {
        ring: RING,
        name: AGAIN,
        zone: "z1",
        ..NodePlan::default()
    });
    let process = &mut second.process;
    process.set_option("--node", TWICE);
    process.set_option("--data-dir", &data_dir.display().to_string());
    process.start();
    second.data_dir = data_dir;
    cluster.nodes.insert(AGAIN.to_owned(), second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c17_a_second_process_is_refused_by_both_addresses_and_an_empty_one_is_not_the_node() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small(RING), &NODES).await;
    // A disk copied while its node stands still, and both started.
    let first = cluster.nodes.get_mut(TWICE).expect("it was added");
    first.process.stop().await;
    let copied = first.data_dir.with_extension("copy");
    copy_dir(&first.data_dir, &copied);
    first.process.start();
    cluster.registered(RING, &[TWICE]).await;
    cluster.adopted(RING).await;
    let timeline = Timeline::watch(&cluster, RING, 1).await;
    let plan = Plan {
        writers: 4,
        keys: 20,
        writes_per_s: 80,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    let before = timeline.snapshot();

    // 1, 2: refused again and again, naming both addresses; nothing flaps, no epoch is made of it.
    start_again(&mut cluster, copied);
    let (here, there) = (cluster.node_endpoint(TWICE), cluster.node_endpoint(AGAIN));
    let words = ["second process", here.as_str(), there.as_str()];
    says(&cluster, AGAIN, &words, 3).await;
    load.acknowledges(CHANGE, 100, "with both running", |_| true)
        .await;
    let meaning = Meaning::read(&cluster.endpoints[0], RING).await;
    for snapshot in meaning.snapshots() {
        if snapshot.epoch > before.epoch {
            let endpoint = member(snapshot).map(|one| one.endpoint.to_string());
            assert_eq!(endpoint.as_ref(), Some(&here), "epoch {}", snapshot.epoch);
            assert_eq!(snapshot.layout.slots, before.layout.slots, "lists changed");
        }
    }
    let process = &mut cluster.nodes.get_mut(AGAIN).expect("added").process;
    process.kill().await;

    // 3, 4: the first is gone, and a fresh install takes its place: it is not believed to hold
    // what the ring thinks that n4 holds.
    let process = &mut cluster.nodes.get_mut(TWICE).expect("added").process;
    process.kill().await;
    let empty = cluster.dir().join("fresh");
    let again = cluster.nodes.remove(AGAIN).expect("it was added");
    drop(again);
    start_again(&mut cluster, empty);
    says(&cluster, AGAIN, &["n4", "emptied disk"], 1).await;
    let now = member(&timeline.snapshot()).map(|one| (one.incarnation, one.endpoint.to_string()));
    assert_eq!(now, Some((Incarnation(1), here)), "it was believed");

    // The way back: the lost life is removed, and the id joins anew with a copy of everything.
    until(CHANGE, "n4 to be down", || async {
        let remove = [
            "node", "remove", RING, TWICE, "--dead", "--detach", "-o", "json",
        ];
        let ran = cluster.annulus(&remove).await;
        if ran.code == 0 {
            return Ok(wide(&ran.json()["change_id"]));
        }
        assert!(ran.stderr.contains("not down"), "{ran:#?}");
        Err(ran.stderr)
    })
    .await;
    timeline
        .until(CHANGE, "n4 to be gone", |snapshot| {
            member(snapshot).is_none()
        })
        .await;
    let process = &mut cluster.nodes.get_mut(AGAIN).expect("added").process;
    process.kill().await;
    process.start();
    cluster.registered(RING, &[TWICE]).await;
    cluster.change_to_its_end("join", RING, TWICE).await;
    let back = timeline
        .until(CHANGE, "n4 to be back", |snapshot| {
            member(snapshot).is_some()
        })
        .await;
    let life = member(&back).map(|one| one.incarnation);
    assert_eq!(life, Some(Incarnation(2)));
    load.acknowledges(CHANGE, 50, "with the new n4", |_| true)
        .await;
    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    outcome.read_everything_back().await;
    timeline.rose();
    servers_agree(&cluster.endpoints, RING).await;
    cluster.nobody_panicked();
    cluster.kill_servers().await;
}
