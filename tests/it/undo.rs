//! Changing one's mind under load: a join withdrawn at every step and tried again, a drain that
//! flips back, a replacement, weights, and a ring that stands still.

use std::time::Duration;

use annulus_ring::{NodeId, Snapshot, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    history::servers_agree,
    load::{Load, Plan},
    probe::{Probe, Refusal},
    timeline::Timeline,
};

const RING: &str = "undo";
/// How long a step lasts at least: it is seen, and writes fall into it.
const EPOCH_INTERVAL: Duration = Duration::from_millis(400);

struct Scene {
    cluster: Cluster,
    timeline: Timeline,
    load: Load,
}

impl Scene {
    /// Three members and n4, n5 registered; the soak never ends by itself.
    async fn start() -> Self {
        let mut cluster = Cluster::start_paced(crate::BINARY, EPOCH_INTERVAL).await;
        cluster
            .create_ring(RingPlan {
                name: RING,
                slot_bits: 5,
                soak: "1h",
                grace: "1s",
            })
            .await;
        for (name, zone) in [
            ("n1", "z1"),
            ("n2", "z2"),
            ("n3", "z3"),
            ("n4", "z1"),
            ("n5", "z1"),
        ] {
            cluster.add_node(&NodePlan {
                ring: RING,
                name,
                zone,
                ..NodePlan::default()
            });
        }
        cluster
            .registered(RING, &["n1", "n2", "n3", "n4", "n5"])
            .await;
        let found = ["ring", "found", RING, "n1", "n2", "n3"];
        let _ = cluster.annulus(&found).await.done();
        cluster.adopted(RING).await;
        let timeline = Timeline::watch(&cluster, RING, 2).await;
        let plan = Plan {
            writers: 8,
            keys: 40,
            writes_per_s: 200,
            ..Plan::default()
        };
        let load = Load::start(cluster.client(RING).await, plan);
        load.acknowledges(CHANGE, 200, "before anything moves", |_| true)
            .await;
        Self {
            cluster,
            timeline,
            load,
        }
    }

    /// Withdraws a change, and waits for its end and for nothing to move.
    async fn withdraw(&self, change: u64) {
        let id = change.to_string();
        let _ = self
            .cluster
            .annulus(&["node", "abort", RING, &id])
            .await
            .done();
        self.cluster.change_is(RING, change, "aborted").await;
        self.at_rest().await;
    }

    async fn at_rest(&self) {
        self.timeline
            .until(CHANGE, "nothing moves", |snapshot| {
                snapshot.transition.is_none()
            })
            .await;
        self.cluster.adopted(RING).await;
    }

    async fn settle(&self) {
        let _ = self.cluster.annulus(&["node", "settle", RING]).await.done();
        self.at_rest().await;
    }

    /// Writes go on under what the ring is now.
    async fn writes_go_on(&self, when: &str) {
        let epoch = self.timeline.snapshot().epoch;
        self.load
            .acknowledges(CHANGE, 100, when, |ack| ack.epoch >= epoch)
            .await;
    }

    /// The joiner whose join came to nothing has a new life, and may be asked for again.
    async fn registered_anew(&self, node: &str) {
        self.cluster.registered(RING, &[node]).await;
    }

    async fn end(mut self) {
        let outcome = self.load.stop().await;
        println!("load: {}", outcome.figures());
        assert_eq!(outcome.unknown, 0, "no write is left unknown");
        outcome.read_everything_back().await;
        self.timeline.rose();
        servers_agree(&self.cluster.endpoints, RING).await;
        self.cluster.nobody_panicked();
        self.cluster.kill_servers().await;
    }
}

fn lists(snapshot: &Snapshot) -> Vec<Vec<u16>> {
    let slots = &snapshot.layout.slots;
    let sorted = |slot| {
        let mut list: Vec<u16> = slots.list(slot).iter().map(|handle| handle.0).collect();
        list.sort_unstable();
        list
    };
    slots.slots().map(sorted).collect()
}

/// ABORT-CLEAN at every step, the switch included (F8), on the same two changes again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_is_withdrawn_at_every_step_and_loses_nothing() {
    let _alone = crate::heavy().await;
    let scene = Scene::start().await;
    let before = lists(&scene.timeline.snapshot());
    for step in [
        Step::Prepared,
        Step::Writing,
        Step::Copying,
        Step::CatchingUp,
        Step::Joint,
        Step::Switched,
    ] {
        let change = scene.cluster.change("join", RING, "n4").await;
        scene.timeline.at_step(CHANGE, step).await;
        if step == Step::Switched {
            scene.writes_go_on("while n4 serves").await;
        }
        scene.withdraw(change).await;
        let after = scene.timeline.snapshot();
        assert_eq!(lists(&after), before, "ABORT-CLEAN after {step}");
        scene.writes_go_on("after a join was withdrawn").await;
        scene.registered_anew("n4").await;
    }

    // Whoever goes on asking the withdrawn node gets no answer from what it held.
    let change = scene.cluster.change("join", RING, "n4").await;
    let switched = scene.timeline.at_step(CHANGE, Step::Switched).await;
    let n4 = NodeId::new("n4").expect("a name");
    let probe = Probe::of(&switched);
    scene.withdraw(change).await;
    let acks = scene.load.acks_from(0);
    let on_n4 = acks.iter().find(|ack| {
        let handle = switched.member(&n4).expect("a member").handle;
        switched.sets(ack.slot).read_set().contains(&handle)
    });
    let ack = on_n4.expect("n4 served some key");
    let mode = annulus_kv::pb::ReadMode::Any;
    match probe.read(&n4, &switched, &ack.key, mode).await {
        Ok(answer) => {
            let refused = answer.found.expect_err("NO-EARLY-READ: n4 answered a read");
            assert!(
                matches!(
                    refused,
                    Refusal::Stale | Refusal::NotMember | Refusal::NotOwner
                ),
                "{refused:?}"
            );
        }
        Err(broken) => println!("n4 did not answer at all: {broken}"),
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_flips_back_a_node_is_replaced_a_weight_changes_and_a_pause_holds() {
    let _alone = crate::heavy().await;
    let scene = Scene::start().await;
    let cluster = &scene.cluster;
    let join = cluster.change("join", RING, "n4").await;
    scene.timeline.at_step(CHANGE, Step::Switched).await;
    scene.settle().await;
    cluster.change_is(RING, join, "done").await;

    // A drain goes as far as it can without its end, and comes back.
    let before = lists(&scene.timeline.snapshot());
    let drain = cluster.change("drain", RING, "n4").await;
    scene.timeline.at_step(CHANGE, Step::Switched).await;
    scene.writes_go_on("while n4 drains").await;
    scene.withdraw(drain).await;
    assert_eq!(lists(&scene.timeline.snapshot()), before, "ABORT-CLEAN");
    let state = cluster.state_of(RING, "n4").await;
    assert_eq!(state.as_deref(), Some("active"), "draining -> active");

    // Paused, it stays where it is, and says why; a change is accepted and waits.
    let _ = cluster
        .annulus(&["ring", "pause", RING, "--reason", "someone looks"])
        .await
        .done();
    let replace = cluster
        .annulus(&[
            "node", "replace", RING, "n4", "n5", "--detach", "-o", "json",
        ])
        .await
        .done();
    let replace = annulus_tests::cluster::wide(&replace.json()["change_id"]);
    scene.writes_go_on("while paused").await;
    let show = cluster.show(RING).await;
    assert_eq!(show["paused"], "someone looks");
    assert!(show["transition"].is_null(), "{show}");
    let status = cluster.annulus(&["status"]).await.done();
    assert!(status.stdout.contains("someone looks"), "{status:#?}");
    let _ = cluster.annulus(&["ring", "resume", RING]).await.done();

    // The replacement takes the very ranges.
    scene.timeline.at_step(CHANGE, Step::Switched).await;
    scene.settle().await;
    cluster.change_is(RING, replace, "done").await;
    let after = scene.timeline.snapshot();
    let holder = |name: &str| {
        after
            .member(&NodeId::new(name).expect("a name"))
            .map(|one| one.handle.0)
    };
    let n5 = holder("n5").expect("n5 is a member");
    let old = before
        .iter()
        .map(|list| {
            list.iter()
                .filter(|handle| ![0, 1, 2].contains(*handle))
                .count()
        })
        .collect::<Vec<_>>();
    let new = lists(&after)
        .iter()
        .map(|list| list.iter().filter(|handle| **handle == n5).count())
        .collect::<Vec<_>>();
    assert_eq!(old, new, "n5 holds just what n4 held");

    // Weight 0: a member that owns nothing.
    let weight = cluster
        .annulus(&["node", "weight", RING, "n5", "0", "--detach", "-o", "json"])
        .await
        .done();
    let weight = annulus_tests::cluster::wide(&weight.json()["change_id"]);
    scene.timeline.at_step(CHANGE, Step::Switched).await;
    scene.settle().await;
    cluster.change_is(RING, weight, "done").await;
    let emptied = scene.timeline.snapshot();
    assert!(
        lists(&emptied).iter().all(|list| !list.contains(&n5)),
        "n5 has weight 0 and holds ranges"
    );
    let refused = cluster.annulus(&["node", "weight", RING, "n1", "0"]).await;
    refused.refused(&["n1", "lists would get shorter"]);
    scene.end().await;
}
