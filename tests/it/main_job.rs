//! The main job, on real processes: a join and a drain under load, the leader killed in the middle
//! of copying, and no acknowledged write lost on the way.
//!
//! Copying is throttled, and the servers publish at most one epoch in two seconds, so
//! that each step lasts long enough for many writes to fall into it.

mod prober;
mod switch;

use std::{collections::BTreeMap, time::Duration};

use annulus_ring::{Slot, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan, SOON},
    history::{Shelf, servers_agree},
    load::{Load, Plan, newest},
    probe::{self, Probe},
    timeline::{Meaning, Stage, Timeline, moves},
    wait::until,
};
use prober::Prober;

const RING: &str = "main";
/// Acknowledged writes on moving ranges that each step must see.
const WRITES_PER_STEP: usize = 200;
/// Least time between two epochs.
const EPOCH_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes a second that a gainer copies: so slowly that copying takes seconds.
const THROTTLE: u64 = 16_000;
/// Acknowledged writes that are looked for in every member's own copy after a switch.
const PROBED_AT_SWITCH: usize = 400;
/// The same at the end.
const PROBED_AT_END: usize = 1_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_and_a_drain_under_load_lose_nothing_though_the_leader_is_killed_while_copying() {
    let _alone = super::heavy().await;
    let mut story = Story::begin().await;
    let join = story.cluster.change("join", RING, "n7").await;
    story.walks("n7", Kill::Leader).await;
    story.ends(join).await;
    let drain = story.cluster.change("drain", RING, "n1").await;
    story.walks("n4", Kill::Nobody).await;
    story.ends(drain).await;
    story.is_gone("n1").await;
    story.judge().await;
}

enum Kill {
    Leader,
    Nobody,
}

struct Story {
    cluster: Cluster,
    timeline: Timeline,
    load: Load,
    probers: Vec<Prober>,
}

impl Story {
    /// Six nodes in three zones, one more that waits, and a load that has written every key.
    async fn begin() -> Self {
        let mut cluster = Cluster::start_paced(super::BINARY, EPOCH_INTERVAL).await;
        cluster
            .create_ring(RingPlan {
                name: RING,
                slot_bits: 9,
                soak: "4s",
                grace: "2s",
            })
            .await;
        let nodes = [
            ("n1", "z1"),
            ("n2", "z2"),
            ("n3", "z3"),
            ("n4", "z1"),
            ("n5", "z2"),
            ("n6", "z3"),
            ("n7", "z1"),
        ];
        for (name, zone) in nodes {
            let throttle = Some(THROTTLE);
            cluster.add_node(&NodePlan {
                ring: RING,
                name,
                zone,
                throttle,
                ..NodePlan::default()
            });
        }
        let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
        cluster.registered(RING, &names).await;
        let mut found = vec!["ring", "found", RING];
        found.extend(&names[..6]);
        let _ = cluster.annulus(&found).await.done();
        cluster.adopted(RING).await;

        let timeline = Timeline::watch(&cluster, RING, 4).await;
        let plan = Plan {
            keys: 40,
            ..Plan::default()
        };
        let load = Load::start(cluster.client(RING).await, plan);
        let keys = plan.writers * plan.keys;
        load.acknowledges(CHANGE, keys, "before anything moves", |_| true)
            .await;
        Self {
            cluster,
            timeline,
            load,
            probers: Vec::new(),
        }
    }

    /// The running change from step 2 to step 7; `gainer` must serve nothing before the switch.
    async fn walks(&mut self, gainer: &str, kill: Kill) {
        self.timeline.at_step(CHANGE, Step::Writing).await;
        self.probers
            .push(Prober::start(gainer, &self.timeline, &self.load));
        let copying = self.timeline.at_step(CHANGE, Step::Copying).await;
        self.writes("while copying", &copying).await;
        if matches!(kill, Kill::Leader) {
            self.kills_the_leader_in_the_middle_of_copying().await;
        }

        let acks_before = self.load.ack_count();
        let switched = self.timeline.at_step(CHANGE, Step::Switched).await;
        // Everything that was acknowledged up to now, the youngest first: that is where a switch
        // that came too early would show.
        let mut acks = self.load.acks_from(0);
        acks.retain(|ack| moves(&switched, ack.slot));
        let mut acks = newest(&acks);
        acks.reverse();
        acks.truncate(PROBED_AT_SWITCH);
        let probed = acks.len();
        let short = Probe::of(&switched).short_of_quorum(&switched, acks).await;
        assert!(
            short.is_empty(),
            "NO-LOST-WRITE right after the switch: {}",
            probe::show(&short)
        );
        println!("{probed} acknowledged writes held by w of N right after the switch");
        assert!(self.load.ack_count() > acks_before, "writes went on");
        self.writes("after the switch", &switched).await;
    }

    async fn writes(&self, what: &str, snapshot: &annulus_ring::Snapshot) {
        let counts = |slot: Slot| moves(snapshot, slot);
        let what = format!("on moving ranges at epoch {} ({what})", snapshot.epoch);
        self.load
            .acknowledges(CHANGE, WRITES_PER_STEP, &what, |ack| {
                ack.epoch >= snapshot.epoch && counts(ack.slot)
            })
            .await;
    }

    async fn kills_the_leader_in_the_middle_of_copying(&mut self) {
        until(SOON, "some ranges to be copied", || async {
            let transition = self.cluster.show(RING).await["transition"].clone();
            let (copied, copies) = (transition["copied"].as_u64(), transition["copies"].as_u64());
            assert_eq!(
                transition["step_name"], "copying",
                "copying was over too soon: {transition}"
            );
            if copied > Some(0) && copied < copies {
                Ok(())
            } else {
                Err(transition.to_string())
            }
        })
        .await;
        let leader = self.cluster.leader().await;
        self.cluster.servers[leader].kill().await;
        // The survivors' own word, after the leader is dead: the kill fell inside copying.
        let survivor = (leader + 1) % self.cluster.endpoints.len();
        let mut shelf = Shelf::at(&self.cluster.endpoints[survivor], RING);
        let (_, newest) = *shelf
            .epochs()
            .await
            .expect("it lives")
            .keys()
            .last()
            .expect("epochs");
        let snapshot = shelf.snapshot(newest).await.expect("it is kept");
        let step = snapshot.transition.as_ref().map(|running| running.step);
        assert_eq!(
            step,
            Some(Step::Copying),
            "the kill must fall inside copying"
        );
        println!(
            "leader s{} killed at epoch {newest}, while copying",
            leader + 1
        );
        self.writes("without the old leader", &self.timeline.snapshot())
            .await;
        self.cluster.servers[leader].start();
        let next = self.cluster.leader().await;
        println!("leader s{} went on", next + 1);
    }

    async fn ends(&mut self, change: u64) {
        self.cluster.change_is(RING, change, "done").await;
        let ended = self
            .timeline
            .until(SOON, "the end of the transition", |s| {
                s.transition.is_none()
            })
            .await;
        let what = format!("after change {change}");
        self.load
            .acknowledges(CHANGE, 2 * WRITES_PER_STEP, &what, |ack| {
                ack.epoch >= ended.epoch
            })
            .await;
    }

    /// A drained node ends with nothing: its last copy is given up under a permit.
    async fn is_gone(&self, node: &str) {
        until(
            Duration::from_secs(60),
            format!("{node} to be removed"),
            || async {
                let snapshot = self.timeline.snapshot();
                let member = snapshot
                    .members
                    .iter()
                    .find(|member| member.node_id.as_str() == node);
                match member {
                    None => Ok(()),
                    Some(member) => Err(format!(
                        "{}, {}",
                        member.state,
                        self.cluster.show(RING).await
                    )),
                }
            },
        )
        .await;
    }

    async fn judge(mut self) {
        let outcome = self.load.stop().await;
        println!("load: {}", outcome.figures());
        let read = outcome.read_everything_back().await;
        println!("{read} keys read back exactly: 0 lost, 0 deleted keys back");

        let compared = servers_agree(&self.cluster.endpoints, RING).await;
        println!("{compared} kept epochs have equal checksums at all servers");
        let seen = self.timeline.rose();
        println!("4 watchers saw {seen} epochs in sum, only rising");

        let meaning = Meaning::read(&self.cluster.endpoints[0], RING).await;
        let mut stages: BTreeMap<Stage, usize> = BTreeMap::new();
        for ack in &outcome.acks {
            if let Some(stage) = meaning.stage(ack.epoch, ack.slot) {
                *stages.entry(stage).or_default() += 1;
            }
        }
        let mut transitions: Vec<_> = stages.keys().map(|stage| stage.transition).collect();
        transitions.dedup();
        assert_eq!(transitions.len(), 2, "a join and a drain");
        for transition in transitions {
            for step in 2..=8 {
                let count = stages
                    .get(&Stage { transition, step })
                    .copied()
                    .unwrap_or_default();
                println!(
                    "transition {transition} step {step}: {count} acknowledged writes on moving ranges"
                );
                assert!(
                    count >= WRITES_PER_STEP,
                    "transition {transition} step {step}: {count}"
                );
            }
        }
        for prober in self.probers.drain(..) {
            prober.judge(&meaning).await;
        }

        let last = self.timeline.snapshot();
        let mut acks = outcome.newest();
        acks.retain(|ack| meaning.stage(last.epoch, ack.slot).is_some());
        acks.truncate(PROBED_AT_END);
        let probed = acks.len();
        let short = Probe::of(&last).short_of_quorum(&last, acks).await;
        assert!(
            short.is_empty(),
            "NO-LOST-WRITE at the end: {}",
            probe::show(&short)
        );
        println!("{probed} acknowledged writes held by w members at the end");
        self.cluster.nobody_panicked();
    }
}
