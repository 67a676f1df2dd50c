//! What happens in a run: a join with the leader killed in the middle of copying, then a drain.

use std::time::{Duration, Instant};

use annulus_kv::load::Running;
use annulus_ring::{NodeId, RingName};

use super::{
    cluster::{Cluster, node_name},
    display::{Display, Picture},
    plan::{self, Plan},
};
use crate::{
    connect::Accepted,
    exit::{Failure, Result},
    views::{RingView, nodes_by_state},
};

/// How long one change may take: on a busy machine much longer than usual.
const CHANGE_LIMIT: Duration = Duration::from_secs(180);
/// How long after its kill the old leader is started again.
const DOWN_FOR: Duration = Duration::from_secs(1);
/// How often the control plane is asked.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What the story says of itself at the end.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The join.
    pub join: Option<ChangeFigures>,
    /// The drain.
    pub drain: Option<ChangeFigures>,
    /// The kill.
    pub kill: Option<Kill>,
    /// Newest epoch seen.
    pub epoch: u64,
}

/// A change, as seen from outside.
#[derive(Clone, Debug)]
pub struct ChangeFigures {
    /// Which node.
    pub node: String,
    /// From the request to its end.
    pub took: Duration,
    /// Ranges whose list changed.
    pub ranges: u32,
    /// Copies made.
    pub copies: u32,
}

/// The kill of the leader.
#[derive(Clone, Debug)]
pub struct Kill {
    /// Which server.
    pub server: u64,
    /// Copies made at that moment, and to be made.
    pub copied: (u32, u32),
    /// Until another server led.
    pub leaderless: Duration,
}

/// Runs the story under the running load. Gives the figures, and whether both changes are done.
pub async fn run(
    cluster: &mut Cluster,
    load: &Running,
    plan: &Plan,
    display: &mut Display,
) -> (Figures, Result) {
    let mut story = Story {
        name: plan::RING.parse().expect("a plain word is a name"),
        cluster,
        display,
        load,
        rate: Rate::new(),
        figures: Figures::default(),
    };
    let ended = story.tell(plan).await;
    (story.figures, ended)
}

struct Story<'a> {
    name: RingName,
    cluster: &'a mut Cluster,
    display: &'a mut Display,
    load: &'a Running,
    rate: Rate,
    figures: Figures,
}

/// What must happen to the leader during a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leader {
    Lives,
    IsKilledWhileCopying,
}

impl Story<'_> {
    async fn tell(&mut self, plan: &Plan) -> Result {
        let ring = self.name.clone();
        self.calm(plan.calm).await?;

        let joiner = node_name(plan::JOINER);
        let node: NodeId = joiner.parse().expect("a plain word is a name");
        self.display.say(format!(
            "joining {joiner}, a seventh node, in {}",
            plan::zone(plan::JOINER)
        ));
        self.cluster.start_node(plan::JOINER)?;
        let start = Instant::now();
        let accepted = loop {
            // Refused until the node has said hello.
            match self
                .cluster
                .admin
                .join(&ring, &node, None, None, None)
                .await
            {
                Ok(accepted) => break accepted,
                Err(failure) if start.elapsed() > CHANGE_LIMIT => return Err(failure),
                Err(_) => self.look().await?,
            };
        };
        let join = self
            .follow(accepted, "join", &joiner, Leader::IsKilledWhileCopying)
            .await?;
        self.figures.join = Some(join);
        self.calm(plan.calm).await?;

        let leaver = node_name(plan::LEAVER);
        let node: NodeId = leaver.parse().expect("a plain word is a name");
        self.display.say(format!("draining {leaver}"));
        let accepted = self.cluster.admin.drain(&ring, &node, None, None).await?;
        let drain = self
            .follow(accepted, "drain", &leaver, Leader::Lives)
            .await?;
        self.figures.drain = Some(drain);
        self.until_gone(&leaver).await?;
        self.cluster.stop_node(plan::LEAVER).await;
        self.display
            .say(format!("{leaver} is removed, its process stopped"));
        self.calm(plan.calm).await
    }

    /// Lets the load run, and looks on.
    async fn calm(&mut self, how_long: Duration) -> Result {
        let start = Instant::now();
        while start.elapsed() < how_long {
            self.look().await?;
        }
        Ok(())
    }

    /// Waits a moment, then shows what is. No answer is no failure: the leader may be dead.
    async fn look(&mut self) -> Result<()> {
        self.ring().await.map(drop)
    }

    async fn ring(&mut self) -> Result<Option<RingView>> {
        tokio::time::sleep(ASK_EVERY).await;
        self.cluster.check()?;
        let ring = self.cluster.admin.ring_quietly(&self.name).await.ok();
        let counts = self.load.counts();
        let mut picture = Picture {
            ops_per_s: self.rate.per_second(counts.reads + counts.acknowledged()),
            lost: counts.lost,
            wrong: counts.wrong_reads,
            epoch: self.figures.epoch,
            nodes: "no leader answers".to_owned(),
            ..Picture::default()
        };
        if let Some(ring) = &ring {
            self.figures.epoch = self.figures.epoch.max(ring.epoch.0);
            picture.epoch = ring.epoch.0;
            picture.nodes = nodes_by_state(&ring.nodes);
            if let Some(transition) = &ring.transition {
                picture.step = format!("step {} {}", transition.step, transition.step_name);
                picture.copied = (transition.copied.into(), transition.copies.into());
                picture.verified = transition.verified.into();
            }
        }
        self.display.show(picture);
        Ok(ring)
    }

    async fn follow(
        &mut self,
        accepted: Accepted,
        kind: &str,
        node: &str,
        leader: Leader,
    ) -> Result<ChangeFigures> {
        accepted
            .notes
            .iter()
            .for_each(|note| self.display.say(format!("note: {note}")));
        let start = Instant::now();
        let mut seen = ChangeFigures {
            node: node.to_owned(),
            took: Duration::ZERO,
            ranges: 0,
            copies: 0,
        };
        let mut waits_for = String::from("the leader's answer");
        loop {
            if start.elapsed() > CHANGE_LIMIT {
                return Err(Failure::failed(
                    format!(
                        "{kind} of {node} is not done after {CHANGE_LIMIT:?}; it waits for {waits_for}"
                    ),
                    "read the logs",
                ));
            }
            let Some(ring) = self.ring().await? else {
                continue;
            };
            if let Some(transition) = &ring.transition {
                seen.ranges = seen.ranges.max(transition.changed_ranges);
                seen.copies = seen.copies.max(transition.copies);
                waits_for = transition.waiting_for.join("; ");
                let middle = transition.step == 3 && transition.copied * 5 >= transition.copies;
                if leader == Leader::IsKilledWhileCopying && middle && self.figures.kill.is_none() {
                    self.kill_leader((transition.copied, transition.copies))
                        .await?;
                    continue;
                }
            }
            match ring
                .change(accepted.change_id)
                .map(|change| (change.state, &change.reason))
            {
                Some(("queued" | "running", _)) => {}
                Some(("done", _)) => break,
                Some((state, reason)) => {
                    let what = format!("{kind} of {node} ended as {state}: {reason}");
                    return Err(Failure::failed(what, "read the logs"));
                }
                None => {
                    let what = format!("{kind} of {node} is no longer listed");
                    return Err(Failure::failed(what, "read the logs"));
                }
            }
        }
        if leader == Leader::IsKilledWhileCopying && self.figures.kill.is_none() {
            return Err(Failure::failed(
                format!(
                    "{kind} of {node} was done before the leader could be killed while copying"
                ),
                "give more keys with --keys or --key-count",
            ));
        }
        seen.took = start.elapsed();
        self.display.say(format!(
            "{kind} of {node} is done in {:.1} s: {} ranges have a new list, {} copies",
            seen.took.as_secs_f64(),
            seen.ranges,
            seen.copies
        ));
        Ok(seen)
    }

    /// SIGKILL for the leader; another must lead before it is started again.
    async fn kill_leader(&mut self, copied: (u32, u32)) -> Result {
        let Some(server) = self.cluster.admin.leader().await else {
            return Ok(()); // None leads at this moment: the next look tries again.
        };
        self.cluster.kill_server(server).await?;
        let start = Instant::now();
        let (done, all) = copied;
        self.display.say(format!(
            "server {server}, the leader, is killed at {done}/{all} copies"
        ));
        let leaderless = loop {
            if start.elapsed() > CHANGE_LIMIT {
                return Err(Failure::failed(
                    format!("no server leads {CHANGE_LIMIT:?} after server {server} was killed"),
                    "read the logs of the servers",
                ));
            }
            match self.cluster.admin.leader().await {
                Some(id) if id != server => {
                    self.display.say(format!("server {id} leads"));
                    break start.elapsed();
                }
                _ => self.look().await?,
            }
        };
        while start.elapsed() < DOWN_FOR {
            self.look().await?;
        }
        self.cluster.start_server(server)?;
        self.display
            .say(format!("server {server} is started again"));
        self.figures.kill = Some(Kill {
            server,
            copied,
            leaderless,
        });
        Ok(())
    }

    /// Waits until a drained node is no member any more.
    async fn until_gone(&mut self, node: &str) -> Result {
        let start = Instant::now();
        loop {
            let ring = self.ring().await?;
            let member = ring.as_ref().is_none_or(|ring| {
                ring.nodes
                    .iter()
                    .any(|known| known.node == node && known.member)
            });
            if !member {
                return Ok(());
            }
            if start.elapsed() > CHANGE_LIMIT {
                return Err(Failure::failed(
                    format!("{node} is still a member {CHANGE_LIMIT:?} after its drain"),
                    "read the logs: its retained copies are not released",
                ));
            }
        }
    }
}

/// Operations a second over the last second or so.
struct Rate {
    since: Instant,
    count: u64,
    last: u64,
}

impl Rate {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            count: 0,
            last: 0,
        }
    }

    fn per_second(&mut self, count: u64) -> u64 {
        let elapsed = self.since.elapsed();
        if elapsed >= Duration::from_millis(900) {
            self.last = ((count - self.count) as f64 / elapsed.as_secs_f64()) as u64;
            (self.since, self.count) = (Instant::now(), count);
        }
        self.last
    }
}
