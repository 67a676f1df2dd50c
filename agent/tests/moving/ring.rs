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
    /// Three agents, of which a and b are founded with slots [a, b] and [b, a].
    pub async fn founded(names: &[&'static str]) -> Self {
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
            script.members = vec!["a", "b"];
            script.lists = vec![vec!["a", "b"], vec!["b", "a"]];
            script.reigns = vec![script.epoch; 2];
            script.last_changes = vec![script.epoch; 2];
        });
        leader.adopted(&["a", "b"], epoch).await;
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

    /// Steps 1 to `last` of transition `id`, which takes slot 0 from b and gives it to `gainer`.
    pub async fn walk(&self, id: u64, gainer: &'static str, last: Step) {
        let list = ["a", gainer];
        let epoch = self.leader.step(id, Step::Prepared, &list);
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
            let epoch = self.leader.step(id, step, &list);
            self.leader.adopted(&["a", "b", gainer], epoch).await;
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
    }

    /// Waits until gainer and owner report equal digests at one cut, not older than the copy.
    pub async fn verified(&self, id: u64, gainer: &'static str) {
        eventually("equal digests at one cut", || {
            let here = self.leader.reported(gainer).slots.get(&(id, 0)).cloned();
            let there = self.leader.reported("a").source;
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

    /// Steps 6 and 7.
    pub async fn walk_on(&self, id: u64, gainer: &'static str) {
        let list = ["a", gainer];
        let epoch = self.leader.step(id, Step::Joint, &list);
        self.leader.adopted(&["a", "b", gainer], epoch).await;
        let owner = self
            .leader
            .until("a", "J", |one| {
                one.slots.get(&(id, 0)).is_some_and(|at| at.joint.is_some())
            })
            .await;
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
        let epoch = self.leader.step(id, Step::Switched, &list);
        self.leader.adopted(&["a", "b", gainer], epoch).await;
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
