//! Folding: which of the waiting changes pass preflight together, and what they make of the
//! members. Asked by the proposer, who computes a target for it, and by `decide`, who checks.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Availability, Candidate, Handle, Member, MemberState, NodeId, Weight, Zone};

use crate::{Change, ChangeId, ChangePhase, MAX_MEMBERS, Rejection, RingState};

/// The waiting changes, sorted into those that go on and those that no longer can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    /// Pass preflight, in order of acceptance.
    pub accepted: Vec<ChangeId>,
    /// Do not, with the reason.
    pub refused: Vec<(ChangeId, Rejection)>,
    /// Members to be, sorted by node id, with the handles they will keep.
    pub joiners: Vec<Member>,
    /// Members that drain, sorted.
    pub leavers: Vec<NodeId>,
    /// New weights of members that stay, by id.
    pub weights: BTreeMap<NodeId, Weight>,
    /// Who may hold ranges afterwards.
    pub candidates: Vec<Candidate>,
}

/// Members that may hold ranges, by id: what preflight looks at.
pub type Expected = BTreeMap<NodeId, (Zone, Weight)>;

/// Folds all waiting changes.
#[must_use]
pub fn fold(ring: &RingState) -> Fold {
    let mut fold = Fold::default();
    let mut expected = current(ring);
    let mut joining = BTreeSet::new();
    let mut leaving = BTreeSet::new();
    // Those that leave, and those of weight 0: they give up every range.
    let mut vacating = BTreeSet::new();
    for (id, record) in &ring.changes {
        if record.phase != ChangePhase::Queued {
            continue;
        }
        // A node cannot come and go in one transition, nor come with two weights: what is asked of
        // it after its join waits for the next one.
        let node = record.change.node();
        if !matches!(&record.change, Change::Join { .. }) && joining.contains(node) {
            continue;
        }
        let vacates = match &record.change {
            Change::Join { .. } => false,
            Change::Drain { .. } => true,
            Change::Weight { weight, .. } => weight.get() == 0,
        };
        // Some member of each list must stay, to take the range over and to be copied from.
        if vacates && empties_a_list(ring, &vacating, node) {
            continue;
        }
        match preflight(ring, &expected, &record.change) {
            Ok(()) => {
                apply(ring, &mut expected, &record.change);
                fold.accepted.push(*id);
                if vacates {
                    vacating.insert(node.clone());
                }
                match &record.change {
                    Change::Join { node, .. } => {
                        joining.insert(node.clone());
                    }
                    Change::Drain { node } => {
                        fold.weights.remove(node);
                        leaving.insert(node.clone());
                    }
                    Change::Weight { node, weight } => {
                        fold.weights.insert(node.clone(), *weight);
                    }
                }
            }
            Err(rejection) => fold.refused.push((*id, rejection)),
        }
    }
    fold.joiners = new_members(ring, &joining, MemberState::Joining);
    fold.leavers = leaving.into_iter().collect();
    let stays = |member: &&Member| {
        member.state != MemberState::Draining && !fold.leavers.contains(&member.node_id)
    };
    fold.candidates = ring
        .members
        .values()
        .filter(stays)
        .chain(&fold.joiners)
        .map(|member| Candidate {
            handle: member.handle,
            zone: member.zone.clone(),
            weight: *fold.weights.get(&member.node_id).unwrap_or(&member.weight),
        })
        .collect();
    fold
}

/// Whether some list has only members that drain already, and `node`. O(slots x rf).
fn empties_a_list(ring: &RingState, leaving: &BTreeSet<NodeId>, node: &NodeId) -> bool {
    let handles: BTreeSet<Handle> = leaving
        .iter()
        .chain([node])
        .filter_map(|node| ring.members.get(node))
        .map(|member| member.handle)
        .collect();
    ring.slots.slots().any(|slot| {
        let list = ring.slots.list(slot);
        !list.is_empty() && list.iter().all(|handle| handles.contains(handle))
    })
}

/// Members for registered `nodes`, each with the lowest handle that is free, in order of id.
#[must_use]
pub fn new_members(ring: &RingState, nodes: &BTreeSet<NodeId>, state: MemberState) -> Vec<Member> {
    let mut taken: BTreeSet<Handle> = ring.members.values().map(|member| member.handle).collect();
    let mut members = Vec::new();
    for node in nodes {
        let Some(registered) = ring.registered(node) else {
            continue;
        };
        let free = (0..Handle::NONE.0)
            .map(Handle)
            .find(|handle| !taken.contains(handle));
        let Some(handle) = free else { break };
        taken.insert(handle);
        members.push(Member {
            node_id: node.clone(),
            incarnation: registered.incarnation,
            handle,
            zone: registered.zone.clone(),
            weight: registered.weight,
            endpoint: registered.endpoint.clone(),
            state,
            availability: Availability::Up,
        });
    }
    members
}

/// Members that will hold ranges when the running transition is done.
#[must_use]
pub fn current(ring: &RingState) -> Expected {
    ring.members
        .values()
        .filter(|member| member.state != MemberState::Draining)
        .map(|member| (member.node_id.clone(), (member.zone.clone(), member.weight)))
        .collect()
}

/// Members that will hold ranges when every change accepted so far is done.
#[must_use]
pub fn after_queue(ring: &RingState) -> Expected {
    let mut expected = current(ring);
    for record in ring
        .changes
        .values()
        .filter(|record| record.phase == ChangePhase::Queued)
    {
        apply(ring, &mut expected, &record.change);
    }
    expected
}

fn apply(ring: &RingState, expected: &mut Expected, change: &Change) {
    match change {
        Change::Join { node, .. } => {
            if let Some(registered) = ring.registered(node) {
                expected.insert(node.clone(), (registered.zone.clone(), registered.weight));
            }
        }
        Change::Drain { node } => {
            expected.remove(node);
        }
        Change::Weight { node, weight } => {
            if let Some(known) = expected.get_mut(node) {
                known.1 = *weight;
            }
        }
    }
}

/// May `change` follow on `expected`?
///
/// # Errors
/// The constraint that it would break, by name.
pub fn preflight(ring: &RingState, expected: &Expected, change: &Change) -> Result<(), Rejection> {
    if ring.config.replication.rf == 1 && ring.founded {
        return Err(Rejection::SingleReplica);
    }
    match change {
        Change::Join { node, zone, weight } => {
            if expected.contains_key(node) || ring.members.contains_key(node) {
                return Err(Rejection::AlreadyMember { node: node.clone() });
            }
            let registered = ring
                .registered(node)
                .ok_or_else(|| Rejection::NotRegistered { node: node.clone() })?;
            if let Some(asked) = zone
                && *asked != registered.zone
            {
                return Err(Rejection::ZoneDiffers {
                    node: node.clone(),
                    registered: registered.zone.clone(),
                    asked: asked.clone(),
                });
            }
            if let Some(asked) = weight
                && *asked != registered.weight
            {
                return Err(Rejection::WeightDiffers {
                    node: node.clone(),
                    registered: registered.weight,
                    asked: *asked,
                });
            }
            if expected.len() >= MAX_MEMBERS {
                return Err(Rejection::TooManyMembers { limit: MAX_MEMBERS });
            }
            Ok(())
        }
        Change::Drain { node } => {
            stands(ring, expected, node)?;
            vacate(ring, expected, node)
        }
        Change::Weight { node, weight } => {
            stands(ring, expected, node)?;
            if expected[node].1 == *weight {
                return Err(Rejection::SameWeight {
                    node: node.clone(),
                    weight: *weight,
                });
            }
            if weight.get() == 0 {
                vacate(ring, expected, node)?;
            }
            Ok(())
        }
    }
}

/// The node is, or will be, a member that does not leave, and it is not down.
fn stands(ring: &RingState, expected: &Expected, node: &NodeId) -> Result<(), Rejection> {
    if !expected.contains_key(node) {
        let known = ring.members.contains_key(node);
        return Err(if known {
            Rejection::AlreadyDraining { node: node.clone() }
        } else {
            Rejection::NotMember { node: node.clone() }
        });
    }
    if ring
        .members
        .get(node)
        .is_some_and(|member| member.availability == Availability::Down)
    {
        return Err(Rejection::NodeDown { node: node.clone() });
    }
    Ok(())
}

/// Nobody's lists get shorter and no zone is left empty when `node` gives up all its ranges.
fn vacate(ring: &RingState, expected: &Expected, node: &NodeId) -> Result<(), Rejection> {
    let (zone, weight) = &expected[node];
    if weight.get() == 0 {
        return Ok(());
    }
    let rf = ring.config.replication.rf;
    let weighty = |other: &&(Zone, Weight)| other.1.get() > 0;
    let now = expected.values().filter(weighty).count();
    // Lists are as long as min(rf, nodes with weight): one node fewer shortens them only below rf.
    if now - 1 < usize::from(rf) {
        return Err(Rejection::ShortensLists {
            node: node.clone(),
            left: now - 1,
            rf,
        });
    }
    let zones: BTreeSet<&Zone> = expected
        .values()
        .filter(weighty)
        .map(|other| &other.0)
        .collect();
    let alone = !expected
        .iter()
        .any(|(id, other)| id != node && other.0 == *zone && other.1.get() > 0);
    if alone && zones.len() <= usize::from(rf) {
        return Err(Rejection::EmptiesZone {
            node: node.clone(),
            zone: zone.clone(),
            left: zones.len() - 1,
            now: zones.len(),
        });
    }
    Ok(())
}
