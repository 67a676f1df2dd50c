//! C18: a node restarts with changed facts, as an active member, while joining and while draining.
//! There is no token count on a ring of slots. Who may greet with which zone or weight after an
//! operator's change is a table: `membership/scenarios/zone.txt`.

use std::time::Duration;

use annulus_ring::{Member, NodeId, Snapshot, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    history::servers_agree,
    load::{Load, Plan},
    ports,
    timeline::Timeline,
    wait::until,
};

const RING: &str = "facts";
/// So long a step lasts: it is seen, and a pause comes in time.
const EPOCH_INTERVAL: Duration = Duration::from_millis(600);
const ZONE: &str = "z1";
const WEIGHT: u32 = 100;

fn member<'a>(snapshot: &'a Snapshot, node: &str) -> &'a Member {
    let id = NodeId::new(node).expect("a name");
    snapshot.member(&id).expect("a member")
}

/// Lists without their order, which a hand-over may change.
fn lists(snapshot: &Snapshot) -> Vec<Vec<u16>> {
    let slots = &snapshot.layout.slots;
    let sorted = |slot| {
        let mut list: Vec<u16> = slots.list(slot).iter().map(|handle| handle.0).collect();
        list.sort_unstable();
        list
    };
    slots.slots().map(sorted).collect()
}

async fn restart_with(cluster: &mut Cluster, node: &str, flag: &str, value: &str) {
    let process = &mut cluster.nodes.get_mut(node).expect("it was added").process;
    process.kill().await;
    process.set_option(flag, value);
    process.start();
}

/// Restarts `node` with each fact changed, one at a time.
async fn facts_change(cluster: &mut Cluster, timeline: &Timeline, load: &Load, node: &str) {
    let before = timeline.snapshot();
    let refusals = [("--zone", "z3", ZONE), ("--weight", "7", "100")];
    for (flag, wrong, right) in refusals {
        restart_with(cluster, node, flag, wrong).await;
        let words = [
            format!("registered with {} {right}", &flag[2..]),
            format!("now it says {wrong}"),
        ];
        let process = &cluster.nodes[node].process;
        until(CHANGE, format!("{words:?} to be said"), || async {
            let log = process.log();
            let said = |line: &str| words.iter().all(|word| line.contains(word));
            match log.lines().any(said) {
                true => Ok(()),
                false => Err(process.tail()),
            }
        })
        .await;
        let now = timeline.snapshot();
        let known = (
            member(&now, node).zone.to_string(),
            member(&now, node).weight.to_string(),
        );
        assert_eq!(known, (ZONE.to_owned(), WEIGHT.to_string()), "applied");
        restart_with(cluster, node, flag, right).await;
        cluster.registered(RING, &[node]).await;
    }

    let elsewhere = ports::free_endpoint();
    restart_with(cluster, node, "--listen", &elsewhere).await;
    let known = cluster.nodes.get_mut(node).expect("it was added");
    let old = std::mem::replace(&mut known.endpoint, elsewhere.clone());
    let moved = timeline
        .until(CHANGE, "the new address", |snapshot| {
            member(snapshot, node).endpoint.to_string() == elsewhere
        })
        .await;
    cluster.registered(RING, &[node]).await;
    assert_eq!(
        member(&moved, node).incarnation,
        member(&before, node).incarnation,
        "the same life"
    );
    assert_eq!(lists(&moved), lists(&before), "data moved");
    assert_eq!(moved.members.len(), before.members.len(), "a ghost twin");
    let ghost = |one: &Member| one.endpoint.to_string() == old;
    assert!(!moved.members.iter().any(ghost), "a ghost at {old}");
    let target = |snapshot: &Snapshot| {
        let running = snapshot.transition.as_ref();
        running.map(|running| (running.id, running.target.clone()))
    };
    assert_eq!(target(&moved), target(&before), "another plan");
    load.acknowledges(CHANGE, 50, "at the new address", |ack| {
        ack.epoch >= moved.epoch
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_another_address_is_an_epoch_and_another_zone_or_weight_is_refused() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start_paced(crate::BINARY, EPOCH_INTERVAL).await;
    let nodes = [("n2", "z2"), ("n3", "z3")];
    cluster.create_ring(RingPlan::small(RING)).await;
    cluster.add_nodes(RING, &nodes).await;
    for name in ["n1", "n4"] {
        cluster.add_node(&NodePlan {
            ring: RING,
            name,
            zone: ZONE,
            weight: Some(WEIGHT),
            ..NodePlan::default()
        });
    }
    cluster.registered(RING, &["n1", "n4"]).await;
    let found = ["ring", "found", RING, "n1", "n2", "n3"];
    let _ = cluster.annulus(&found).await.done();
    cluster.adopted(RING).await;
    let timeline = Timeline::watch(&cluster, RING, 1).await;
    let plan = Plan {
        writers: 4,
        keys: 20,
        writes_per_s: 80,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    load.acknowledges(CHANGE, 40, "before anything changes", |_| true)
        .await;
    facts_change(&mut cluster, &timeline, &load, "n1").await;

    for kind in ["join", "drain"] {
        println!("while n4 is asked to {kind}");
        let change = cluster.change(kind, RING, "n4").await;
        timeline.at_step(CHANGE, Step::Writing).await;
        let pause = ["ring", "pause", RING, "--reason", "it restarts"];
        let _ = cluster.annulus(&pause).await.done();
        facts_change(&mut cluster, &timeline, &load, "n4").await;
        let _ = cluster.annulus(&["ring", "resume", RING]).await.done();
        cluster.change_is(RING, change, "done").await;
    }
    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    outcome.read_everything_back().await;
    timeline.rose();
    servers_agree(&cluster.endpoints, RING).await;
    cluster.nobody_panicked();
    cluster.kill_servers().await;
}
