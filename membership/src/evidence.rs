//! Evidence: whom a step waits for, and the roots over what both ends of a copy reported.
//!
//! `due` (on the leader) builds evidence from reports; `decide` (on every server) re-checks that
//! it is complete, current and equal on both sides. A deposed leader can skip nothing.

use std::collections::BTreeMap;

use annulus_ring::{Epoch, Handle, NodeId, Position, Slot, Step};
use sha2::{Digest as _, Sha256};

use crate::{RingState, Root, TransitionState, bait};

/// Whom the end of a step waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Barrier {
    /// Nodes that must have adopted, and drained up to, this epoch.
    pub nodes: BTreeMap<NodeId, Epoch>,
    /// Ranges by (source, gainer), each sorted by slot.
    pub pairs: BTreeMap<(NodeId, NodeId), Vec<Slot>>,
    /// What pairs must prove.
    pub proof: Proof,
}

/// What a pair's roots are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Nothing is asked of pairs.
    #[default]
    Nothing,
    /// Gainer: staging is durably open.
    Staged,
    /// Gainer: the copy is complete, at this cut.
    Copied,
    /// Both: digest at the same cut.
    Digests,
    /// Both: J of the present reign, merged; of members that stay, where they must prove it
    /// ([`annulus_ring::RangeSets::stayers_must_prove`]), by a digest at J or later.
    Joint,
}

impl Proof {
    /// Whether the source speaks too.
    #[must_use]
    pub fn both_sides(self) -> bool {
        match self {
            Self::Nothing | Self::Staged | Self::Copied => false,
            Self::Digests | Self::Joint => true,
        }
    }
}

/// Whom the present step waits for before the next one (or the end) is entered.
#[must_use]
pub fn barrier(ring: &RingState, transition: &TransitionState) -> Barrier {
    let mut owners = BTreeMap::new();
    let mut gainers = BTreeMap::new();
    let mut losers = BTreeMap::new();
    let mut holders = BTreeMap::new();
    let mut pairs: BTreeMap<(NodeId, NodeId), Vec<Slot>> = BTreeMap::new();
    let ids: BTreeMap<_, _> = ring
        .members
        .values()
        .map(|member| (member.handle, &member.node_id))
        .collect();
    let since = transition.step_epoch;
    let quorums = ring.quorums();
    let joint = transition.step == Step::Joint;
    for slot in transition.target.keys() {
        let sets = ring.sets(*slot);
        let Some(owner) = sets.old.first().and_then(|handle| ids.get(handle)) else {
            continue;
        };
        // A failover voids what both sides said before it (story F3): their word must be of the
        // reign that runs, also where the same node owns again.
        let of_reign = since.max(ring.reigns[slot.index()]);
        let mut say = |node: &NodeId| {
            let epoch = owners.entry(node.clone()).or_insert(of_reign);
            *epoch = of_reign.max(*epoch);
        };
        if transition.requorum.is_some() {
            // Nobody may gain the range: what changes is how its owner acknowledges.
            say(owner);
        }
        if joint && sets.stayers_must_prove(quorums) {
            let stays = |handle: &&Handle| sets.old[1..].contains(handle);
            let stayers = sets.new.iter().filter(stays);
            for stayer in stayers.filter_map(|handle| ids.get(handle)) {
                say(stayer);
                pairs
                    .entry(((*owner).clone(), (*stayer).clone()))
                    .or_default()
                    .push(*slot);
            }
        }
        for gainer in sets.gainers().filter_map(|handle| ids.get(&handle)) {
            for (nodes, node) in [(&mut owners, owner), (&mut gainers, gainer)] {
                let epoch = nodes.entry((*node).clone()).or_insert(of_reign);
                *epoch = of_reign.max(*epoch);
            }
            pairs
                .entry(((*owner).clone(), (*gainer).clone()))
                .or_default()
                .push(*slot);
        }
        for loser in sets.losers().filter_map(|handle| ids.get(&handle)) {
            losers.insert((*loser).clone(), since);
        }
        for holder in sets.new.iter().filter_map(|handle| ids.get(handle)) {
            holders.insert((*holder).clone(), since);
        }
    }
    match transition.step {
        Step::Prepared => Barrier {
            nodes: gainers,
            pairs,
            proof: Proof::Staged,
        },
        Step::Writing if bait::on("copying-before-owners-drained") => Barrier::default(),
        Step::Writing => Barrier {
            nodes: owners,
            ..Barrier::default()
        },
        Step::Copying => Barrier {
            nodes: gainers,
            pairs,
            proof: Proof::Copied,
        },
        Step::CatchingUp => Barrier {
            nodes: gainers,
            pairs,
            proof: Proof::Digests,
        },
        Step::Verified => Barrier::default(),
        Step::Joint => {
            owners.extend(gainers);
            Barrier {
                nodes: owners,
                pairs,
                proof: Proof::Joint,
            }
        }
        // Their own small soak: until all have it, one of them may answer a read of before.
        // With other quorums any member of N may have answered by them.
        Step::FlippingBack => {
            if transition.requorum.is_some() {
                gainers.extend(holders);
            }
            Barrier {
                nodes: without_the_dead(ring, transition, gainers),
                ..Barrier::default()
            }
        }
        Step::Switched => {
            if !bait::on("end-without-losers") {
                holders.extend(losers);
            }
            Barrier {
                nodes: without_the_dead(ring, transition, holders),
                ..Barrier::default()
            }
        }
    }
}

/// A barrier for reads without members that are dead, by the operator's word. Never because time
/// passed: in each of its ranges that moves, n - r + 1 members of the lists that were read refuse
/// reads of before by being in the barrier themselves (story F7), or the operator says that its
/// process is stopped. Whoever lacks that stays in.
fn without_the_dead(
    ring: &RingState,
    transition: &TransitionState,
    mut nodes: BTreeMap<NodeId, Epoch>,
) -> BTreeMap<NodeId, Epoch> {
    let handle = |node: &NodeId| ring.members.get(node).map(|member| member.handle);
    let dead: Vec<_> = ring
        .burials()
        .filter_map(|(node, _)| handle(node))
        .collect();
    let replication = match (transition.step, transition.requorum) {
        (Step::FlippingBack, Some(requorum)) => requorum.to,
        _ => ring.replication(),
    };
    let r = usize::from(replication.r);
    let fenced = |node: annulus_ring::Handle| {
        transition.target.keys().all(|slot| {
            let sets = ring.sets(*slot);
            let read = match transition.step {
                Step::FlippingBack => sets.new,
                _ => sets.old,
            };
            let left = read.iter().filter(|handle| !dead.contains(handle)).count();
            !read.contains(&node) || left + r > read.len()
        })
    };
    for (node, burial) in ring.burials() {
        if burial.stopped.is_some() || handle(node).is_some_and(fenced) {
            nodes.remove(node);
        }
    }
    nodes
}

/// Builds a root: SHA-256 over domain, count and one SHA-256 per leaf, in order of slots.
///
/// Two levels are enough here: a mismatch is traced through the reports themselves.
#[derive(Debug)]
pub struct RootBuilder {
    leaves: Sha256,
    count: u32,
}

impl Default for RootBuilder {
    fn default() -> Self {
        Self {
            leaves: Sha256::new_with_prefix(b"annulus evidence leaves v1"),
            count: 0,
        }
    }
}

impl RootBuilder {
    /// Adds what was reported of one slot: a cut or J, and a digest where the step has one.
    pub fn add(&mut self, slot: Slot, position: Option<Position>, digest: Option<&[u8; 32]>) {
        let position = position.unwrap_or_default();
        let mut leaf = Sha256::new_with_prefix(b"annulus evidence leaf v1");
        leaf.update(slot.0.to_be_bytes());
        leaf.update(position.reign.0.to_be_bytes());
        leaf.update(position.seq.to_be_bytes());
        leaf.update(digest.unwrap_or(&[0; 32]));
        self.leaves.update(leaf.finalize());
        self.count += 1;
    }

    /// The root.
    #[must_use]
    pub fn finish(mut self) -> Root {
        self.leaves.update(self.count.to_be_bytes());
        Root(self.leaves.finalize().into())
    }
}

/// The root of a proof that says nothing but which slots: what `decide` can compute itself.
#[must_use]
pub fn slots_root(slots: &[Slot]) -> Root {
    let mut root = RootBuilder::default();
    slots.iter().for_each(|slot| root.add(*slot, None, None));
    root.finish()
}
