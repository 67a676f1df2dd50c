//! The owner of ranges is killed, or frozen: another member takes over, every acknowledged write
//! is there, and nothing that the deposed owner left behind comes back.

use std::time::Duration;

use annulus_ring::{Handle, NodeId, Snapshot};
use annulus_tests::{
    cluster::{CHANGE, Cluster, RingPlan},
    history::servers_agree,
    load::{Load, Outcome, Plan},
    probe::{self, Probe},
    timeline::Timeline,
    wait::until,
};

const RING: &str = "failover";
/// Down is said after ten seconds of silence; the rest is for a busy machine.
const FAILED_OVER: Duration = Duration::from_secs(90);

struct Scene {
    cluster: Cluster,
    timeline: Timeline,
    load: Load,
}

fn handle(snapshot: &Snapshot, node: &str) -> Handle {
    let node = NodeId::new(node).expect("a name");
    snapshot.member(&node).expect("a member").handle
}

fn owned(snapshot: &Snapshot, node: &str) -> Vec<annulus_ring::Slot> {
    let own = handle(snapshot, node);
    let slots = snapshot.layout.slots.slots();
    slots
        .into_iter()
        .filter(|slot| snapshot.sets(*slot).owner() == Some(own))
        .collect()
}

impl Scene {
    async fn start() -> Self {
        let mut cluster = Cluster::start(crate::BINARY).await;
        let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];
        cluster.founded_ring(RingPlan::small(RING), &nodes).await;
        let timeline = Timeline::watch(&cluster, RING, 2).await;
        let plan = Plan {
            writers: 16,
            keys: 60,
            writes_per_s: 400,
            ..Plan::default()
        };
        let load = Load::start(cluster.client(RING).await, plan);
        load.acknowledges(CHANGE, 300, "before anybody is silent", |_| true)
            .await;
        Self {
            cluster,
            timeline,
            load,
        }
    }

    /// Until `node` owns nothing; writes go on in what it owned.
    async fn fails_over(&self, node: &str) {
        let before = self.timeline.snapshot();
        let orphans = owned(&before, node);
        assert!(!orphans.is_empty(), "{node} owns nothing to take over");
        self.timeline
            .until(FAILED_OVER, "another owner for everything", |snapshot| {
                owned(snapshot, node).is_empty()
            })
            .await;
        let epoch = self.timeline.snapshot().epoch;
        let moved = |ack: &annulus_tests::ledger::Ack| {
            ack.version.reign > before.epoch && orphans.contains(&ack.slot) && ack.epoch <= epoch
                || ack.epoch > epoch && orphans.contains(&ack.slot)
        };
        self.load
            .acknowledges(CHANGE, 100, "under the new owners", moved)
            .await;
        for slot in before.layout.slots.slots() {
            let now = self.timeline.snapshot();
            let set = |snapshot: &Snapshot| {
                let mut list = snapshot.layout.slots.list(slot).to_vec();
                list.sort_unstable();
                list
            };
            assert_eq!(set(&before), set(&now), "slot {slot}: no data moves");
        }
    }

    /// Every newest acknowledged write is at w members, and at every member once all have caught up.
    async fn end(mut self) -> Outcome {
        let outcome = self.load.stop().await;
        println!("load: {}", outcome.figures());
        outcome.read_everything_back().await;
        self.cluster.adopted(RING).await;
        let snapshot = self.timeline.snapshot();
        let probe = Probe::of(&snapshot);
        let short = probe.short_of_quorum(&snapshot, outcome.newest()).await;
        assert!(short.is_empty(), "too few copies: {}", probe::show(&short));
        self.timeline.rose();
        servers_agree(&self.cluster.endpoints, RING).await;
        self.cluster.nobody_panicked();
        self.cluster.kill_servers().await;
        outcome
    }

    /// Everybody holds every newest acknowledged write.
    async fn everybody_caught_up(&self, acks: usize) {
        let snapshot = self.timeline.snapshot();
        let probe = Probe::of(&snapshot);
        let acks = annulus_tests::load::newest(&self.load.acks_from(acks));
        for ack in acks.iter().take(50) {
            until(
                CHANGE,
                format!("all copies of {:?}", ack.version),
                || async {
                    let holders = probe.holders(&snapshot, ack).await;
                    if holders.len() == snapshot.sets(ack.slot).read_set().len() {
                        Ok(())
                    } else {
                        Err(format!("held by {holders:?}"))
                    }
                },
            )
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_owner_is_followed_by_another_and_comes_back_as_a_member() {
    let _alone = crate::heavy().await;
    let mut scene = Scene::start().await;
    let node = scene.cluster.nodes.get_mut("n2").expect("it was added");
    node.process.kill().await;
    scene.fails_over("n2").await;
    let acks = scene.load.ack_count();
    let node = scene.cluster.nodes.get_mut("n2").expect("it was added");
    node.process.start();
    scene.cluster.adopted(RING).await;
    scene
        .load
        .acknowledges(CHANGE, 200, "with it back", |_| true)
        .await;
    scene.everybody_caught_up(acks).await;
    let outcome = scene.end().await;
    assert!(outcome.acks.len() > 600, "{}", outcome.figures());
}

/// It is frozen with writes in flight, deposed without knowing, and goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_owner_wakes_up_deposed_and_is_believed_by_nobody() {
    let _alone = crate::heavy().await;
    let scene = Scene::start().await;
    scene.cluster.nodes["n3"].process.pause();
    scene.fails_over("n3").await;
    let acks = scene.load.ack_count();
    scene.cluster.nodes["n3"].process.resume();
    scene
        .load
        .acknowledges(CHANGE, 200, "with it awake", |_| true)
        .await;
    scene.cluster.adopted(RING).await;
    scene.everybody_caught_up(acks).await;
    let outcome = scene.end().await;
    assert!(outcome.acks.len() > 600, "{}", outcome.figures());
}
