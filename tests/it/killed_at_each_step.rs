//! Every party of a change is killed, and frozen for longer than it takes to be down, at every step,
//! under load: nothing acknowledged is lost, nothing deleted comes back, and whatever waits says for
//! whom.

use std::time::Duration;

use annulus_ring::{Handle, Snapshot, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    history::servers_agree,
    load::{Load, Plan},
    timeline::Timeline,
    wait::{by_night, until},
};

const RING: &str = "killed";
const GUEST: &str = "n5";
const EPOCH_INTERVAL: Duration = Duration::from_millis(400);
/// Longer than suspect, down and every budget.
const FROZEN: Duration = Duration::from_secs(30);
/// A frozen node is failed over, heard again and waited for.
const RECOVERED: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Gainer,
    Owner,
    Loser,
    Leader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Kill,
    Freeze,
}

struct Scene {
    cluster: Cluster,
    timeline: Timeline,
    load: Load,
    is_member: bool,
}

impl Scene {
    async fn start() -> Self {
        let mut cluster = Cluster::start_paced(crate::BINARY, EPOCH_INTERVAL).await;
        let plan = RingPlan {
            soak: "200ms",
            grace: "1s",
            ..RingPlan::small(RING)
        };
        let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];
        cluster.founded_ring(plan, &nodes).await;
        cluster.add_node(&NodePlan {
            ring: RING,
            name: GUEST,
            zone: "z1",
            ..NodePlan::default()
        });
        cluster.registered(RING, &[GUEST]).await;
        let timeline = Timeline::watch(&cluster, RING, 2).await;
        let plan = Plan {
            writers: 8,
            keys: 40,
            writes_per_s: 200,
            ..Plan::default()
        };
        let load = Load::start(cluster.client(RING).await, plan);
        load.acknowledges(CHANGE, 100, "before anything moves", |_| true)
            .await;
        Self {
            cluster,
            timeline,
            load,
            is_member: false,
        }
    }

    /// A change of the other kind each time; at `step` the party comes to harm.
    async fn round(&mut self, step: Step, party: Party, harm: Harm) {
        let kind = if self.is_member { "drain" } else { "join" };
        println!("{kind}, step {step}: {harm:?} {party:?}");
        let change = self.cluster.change(kind, RING, GUEST).await;
        let snapshot = self.timeline.at_step(CHANGE, step).await;
        let name = match party {
            Party::Leader => None,
            Party::Gainer | Party::Owner | Party::Loser => Some(party_of(&snapshot, party)),
        };
        match name {
            Some(name) => self.harm_node(&name, harm).await,
            None => self.harm_leader(harm).await,
        }
        self.ends(change).await;
        self.is_member = !self.is_member;
        if kind == "drain" {
            // Gone for good; the next round's guest begins with an empty directory.
            self.guest_anew().await;
        }
    }

    async fn harm_node(&mut self, name: &str, harm: Harm) {
        let process = &mut self
            .cluster
            .nodes
            .get_mut(name)
            .expect("it was added")
            .process;
        match harm {
            Harm::Kill => {
                process.kill().await;
                self.load
                    .acknowledges(CHANGE, 20, "in other ranges", |_| true)
                    .await;
                let process = &mut self
                    .cluster
                    .nodes
                    .get_mut(name)
                    .expect("it was added")
                    .process;
                process.start();
            }
            Harm::Freeze => {
                process.pause();
                self.goes_on_or_names(name).await;
                self.cluster.nodes[name].process.resume();
            }
        }
    }

    async fn harm_leader(&mut self, harm: Harm) {
        let leader = self.cluster.leader().await;
        match harm {
            Harm::Kill => {
                self.cluster.servers[leader].kill().await;
                self.load
                    .acknowledges(CHANGE, 20, "without that leader", |_| true)
                    .await;
                self.cluster.servers[leader].start();
            }
            Harm::Freeze => {
                self.cluster.servers[leader].pause();
                let until = tokio::time::Instant::now() + FROZEN;
                self.load
                    .acknowledges(CHANGE, 100, "while it is frozen", |_| true)
                    .await;
                tokio::time::sleep_until(until).await;
                self.cluster.servers[leader].resume();
            }
        }
    }

    /// For as long as the node is frozen: what does not go on says that it waits for this node.
    async fn goes_on_or_names(&self, name: &str) {
        let until = tokio::time::Instant::now() + FROZEN;
        let mut last = (self.timeline.snapshot().epoch, tokio::time::Instant::now());
        while tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let snapshot = self.timeline.snapshot();
            if snapshot.epoch != last.0 {
                last = (snapshot.epoch, tokio::time::Instant::now());
            }
            // A step without news for longer than any pause between epochs.
            let stands_still = last.1.elapsed() > Duration::from_secs(8);
            if snapshot.transition.is_some() && stands_still {
                let show = self.cluster.show(RING).await;
                let waits = show["transition"]["waiting_for"].to_string();
                assert!(waits.contains(name), "stuck without naming {name}: {show}");
            }
        }
    }

    async fn ends(&self, change: u64) {
        let id = change.to_string();
        until(RECOVERED, format!("change {change} to be done"), || async {
            let show = self.cluster.show(RING).await;
            let changes = show["changes"].as_array().cloned().unwrap_or_default();
            let found = changes.iter().find(|known| known["id"] == *id);
            match found.and_then(|found| found["state"].as_str()) {
                Some("done") => Ok(()),
                other => Err(format!(
                    "{other:?}; waits for {}",
                    show["transition"]["waiting_for"]
                )),
            }
        })
        .await;
        let epoch = self.timeline.snapshot().epoch;
        self.load
            .acknowledges(CHANGE, 50, "after it", |ack| ack.epoch >= epoch)
            .await;
    }

    async fn guest_anew(&mut self) {
        self.timeline
            .until(CHANGE, "the guest to be gone", |snapshot| {
                let guest = |member: &annulus_ring::Member| member.node_id.as_str() == GUEST;
                !snapshot.members.iter().any(guest)
            })
            .await;
        let node = self.cluster.nodes.get_mut(GUEST).expect("it was added");
        node.process.kill().await;
        std::fs::remove_dir_all(&node.data_dir).expect("its directory");
        node.process.start();
        self.cluster.registered(RING, &[GUEST]).await;
    }

    async fn end(mut self) {
        let outcome = self.load.stop().await;
        println!("load: {}", outcome.figures());
        outcome.read_everything_back().await;
        self.timeline.rose();
        servers_agree(&self.cluster.endpoints, RING).await;
        self.cluster.nobody_panicked();
        self.cluster.kill_servers().await;
    }
}

/// A node that plays this part in some moving range.
fn party_of(snapshot: &Snapshot, party: Party) -> String {
    let running = snapshot.transition.as_ref().expect("a step is seen");
    let plays = |slot| -> Option<Handle> {
        let sets = snapshot.sets(slot);
        match party {
            Party::Gainer => sets.gainers().next(),
            Party::Loser => sets.losers().next(),
            Party::Owner | Party::Leader => sets.owner(),
        }
    };
    let handle = running.target.iter().find_map(|change| plays(change.slot));
    let handle = handle.expect("every change has one");
    let member = snapshot.member_by_handle(handle).expect("a member");
    member.node_id.to_string()
}

const PARTIES: [Party; 4] = [Party::Gainer, Party::Owner, Party::Loser, Party::Leader];

fn steps() -> impl Iterator<Item = Step> {
    Step::ALL
        .into_iter()
        .take_while(|step| *step <= Step::Switched)
}

/// By day every step once and every party in turn; by night all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_at_whichever_step_nothing_is_lost() {
    let _alone = crate::heavy().await;
    let mut scene = Scene::start().await;
    let parties = by_night(1, PARTIES.len());
    for (at, step) in steps().enumerate() {
        for more in 0..parties {
            let party = PARTIES[(at + more) % PARTIES.len()];
            scene.round(step, party, Harm::Kill).await;
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_frozen_at_whichever_step_nothing_is_lost() {
    let _alone = crate::heavy().await;
    let mut scene = Scene::start().await;
    if by_night(false, true) {
        for step in steps() {
            for party in PARTIES {
                scene.round(step, party, Harm::Freeze).await;
            }
        }
    } else {
        scene.round(Step::Joint, Party::Owner, Harm::Freeze).await;
    }
    scene.end().await;
}
