//! A ring in one process: the leader in the test's hand, and its nodes.

use std::{sync::Arc, time::Duration};

use annulus_agent::Stamp;
use annulus_proto::v1;
use annulus_ring::{Endpoint, Generation, Step};

use crate::{
    leader::{Leader, Reported, position},
    node::{Node, Nodes, epoch},
};

/// A leader and its nodes.
pub struct Ring {
    pub leader: Arc<Leader>,
    pub control: Endpoint,
    pub nodes: Nodes,
    pub task: tokio::task::JoinHandle<()>,
}

impl Ring {
    /// Agents, of which a and b are founded with slots [a, b] and [b, a].
    pub async fn founded(names: &[&'static str]) -> Self {
        Self::founded_by(names, &["a", "b"]).await
    }

    /// Agents, of which a, b and c are founded with slots [a, b, c] and [b, c, a], w = 2, r = 2;
    /// g is a member without a range.
    pub async fn of_three() -> Self {
        let ring = Self::founded_by(&["a", "b", "c", "g"], &["a", "b", "c"]).await;
        let epoch = ring
            .leader
            .publish(|script| script.members = vec!["a", "b", "c", "g"]);
        ring.leader.adopted(&["a", "b", "c", "g"], epoch).await;
        ring
    }

    async fn founded_by(names: &[&'static str], founders: &[&'static str]) -> Self {
        let _told = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let (leader, control, task) = Leader::start().await;
        let mut nodes = Vec::new();
        for name in names {
            nodes.push(Arc::new(Node::start(name, &leader, &control).await));
        }
        for name in names {
            let hello = leader
                .until(name, "hello", |one| !one.hellos.is_empty())
                .await;
            assert!(hello.hellos[0].empty, "a new directory is empty");
        }
        let epoch = leader.publish(|script| {
            script.members = founders.to_vec();
            script.replicas = u8::try_from(founders.len()).unwrap();
            let mut other = founders.to_vec();
            other.rotate_left(1);
            script.lists = vec![founders.to_vec(), other];
            script.reigns = vec![script.epoch; 2];
            script.last_changes = vec![script.epoch; 2];
        });
        leader.adopted(founders, epoch).await;
        Self {
            leader,
            control,
            nodes: Nodes(nodes),
            task,
        }
    }

    pub fn node(&self, name: &str) -> &Node {
        self.nodes.get(name)
    }

    /// N of slot 0, in which `gainer` takes the place of the last of O.
    pub fn target(&self, gainer: &'static str) -> Vec<&'static str> {
        let mut list = self.leader.script().lists[0].clone();
        *list.last_mut().unwrap() = gainer;
        list
    }

    /// O of slot 0 and its gainer, without those that hear nothing.
    fn everyone(&self, gainer: &'static str) -> Vec<&'static str> {
        let script = self.leader.script();
        let all = script.lists[0].iter().copied().chain([gainer]);
        all.filter(|node| !script.frozen.contains(node)).collect()
    }

    fn owner(&self) -> &'static str {
        self.leader.script().lists[0][0]
    }

    /// Steps 1 to `last` of transition `id`, which takes slot 0 from the last of its list and gives
    /// it to `gainer`.
    pub async fn walk(&self, id: u64, gainer: &'static str, last: Step) {
        let epoch = self.leader.step(id, Step::Prepared, &self.target(gainer));
        self.leader.adopted(&[gainer], epoch).await;
        self.leader
            .until(gainer, "staged", |one| {
                one.slots.get(&(id, 0)).is_some_and(|at| at.staged)
            })
            .await;
        for step in Step::ALL
            .into_iter()
            .skip(1)
            .take_while(|step| *step <= last)
        {
            self.enter(id, gainer, step).await;
        }
    }

    /// One step, and what it is there for.
    pub async fn enter(&self, id: u64, gainer: &'static str, step: Step) {
        let epoch = self.leader.step(id, step, &self.target(gainer));
        self.leader.adopted(&self.everyone(gainer), epoch).await;
        match step {
            Step::Copying => {
                let copied = |one: &Reported| one.slots[&(id, 0)].copied.is_some();
                self.leader.until(gainer, "copied", copied).await;
            }
            Step::CatchingUp => self.verified(id, gainer).await,
            Step::Prepared
            | Step::Writing
            | Step::Verified
            | Step::Joint
            | Step::Switched
            | Step::FlippingBack => {}
        }
    }

    /// Waits until gainer and owner report equal digests at one cut, not older than the copy.
    pub async fn verified(&self, id: u64, gainer: &'static str) {
        let owner = self.owner();
        eventually("equal digests at one cut", || {
            let here = self.leader.reported(gainer).slots.get(&(id, 0)).cloned();
            let there = self.leader.reported(owner).source;
            let there = there.get(&(id, 0, gainer.to_owned()));
            let (Some(here), Some(there)) = (here, there) else {
                return false;
            };
            here.digest.is_some_and(|digest| {
                digest.cut == there.cut
                    && digest.digest == there.digest
                    && position(there.cut) >= position(here.copied)
            })
        })
        .await;
    }

    /// Step 6, until the gainer says that it merged everything up to J.
    pub async fn join(&self, id: u64, gainer: &'static str) {
        self.enter(id, gainer, Step::Joint).await;
        let reign = self.leader.script().reigns[0];
        let of_reign = |one: &Reported| {
            let joint = one.slots.get(&(id, 0)).and_then(|at| at.joint);
            joint.is_some_and(|joint| joint.reign == reign)
        };
        let owner = self.leader.until(self.owner(), "J", of_reign).await;
        let j = owner.slots[&(id, 0)].joint;
        let joint = vec![v1::SlotPosition {
            slot: 0,
            position: j,
        }];
        self.leader.direct(
            gainer,
            v1::Directive {
                joint,
                ..Default::default()
            },
        );
        let merged = |one: &Reported| position(one.slots[&(id, 0)].watermark) >= position(j);
        self.leader
            .until(gainer, "everything up to J", merged)
            .await;
    }

    /// Steps 6 and 7.
    pub async fn walk_on(&self, id: u64, gainer: &'static str) {
        self.join(id, gainer).await;
        self.enter(id, gainer, Step::Switched).await;
    }

    /// Step 8: the new list is the list, and who left keeps its copy unread.
    pub async fn settle(&self, gainer: &'static str) -> u64 {
        let (everyone, list) = (self.everyone(gainer), self.target(gainer));
        let settled = self.leader.publish(|script| {
            script.transition = None;
            script.lists[0] = list;
            script.last_changes[0] = script.epoch;
        });
        self.leader.adopted(&everyone, settled).await;
        settled
    }

    /// Long enough for a node to do what it would.
    pub async fn some_renewals(&self, node: &str) {
        let before = self.leader.reported(node).renewals;
        let more = |one: &Reported| one.renewals > before + 2;
        self.leader.until(node, "renewals", more).await;
    }
}

pub fn stamp(node: &Node) -> Stamp {
    Stamp {
        generation: Generation(1),
        epoch: epoch(node),
    }
}

pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
