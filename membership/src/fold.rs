//! Folding: which of the waiting changes pass preflight together, and what they make of the
//! members. Asked by the proposer, who computes a target for it, and by `decide`, who checks.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{
    AssignError, Availability, Candidate, Handle, List, Member, MemberState, NodeId, SlotChange,
    SlotTable, Weight, Zone, place, placement::diff,
};

use crate::{Change, ChangeId, ChangePhase, MAX_MEMBERS, Registered, Rejection, RingState, bait};

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
    /// Who leaves, and who takes its very ranges.
    pub replacements: Vec<(NodeId, NodeId)>,
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
        if joining.contains(record.change.node()) {
            continue;
        }
        // Some member of each list must stay, to take the range over and to be copied from.
        let vacates = record.change.vacates();
        if vacates.is_some_and(|node| empties_a_list(ring, &vacating, node)) {
            continue;
        }
        match preflight(ring, &expected, &record.change) {
            Ok(()) => {
                apply(ring, &mut expected, &record.change);
                fold.accepted.push(*id);
                vacating.extend(vacates.cloned());
                joining.extend(record.change.joiner().cloned());
                match &record.change {
                    Change::Join { .. } => {}
                    Change::Drain { node } => {
                        fold.weights.remove(node);
                        leaving.insert(node.clone());
                    }
                    Change::Weight { node, weight } => {
                        fold.weights.insert(node.clone(), *weight);
                    }
                    Change::Replace { node, by } => {
                        fold.weights.remove(node);
                        leaving.insert(node.clone());
                        fold.replacements.push((node.clone(), by.clone()));
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

impl Fold {
    /// The lists that carry the accepted changes out. O(slots x rf) besides the assigner's work.
    ///
    /// # Errors
    /// The assigner's; preflight leaves no reason for one.
    pub fn target(&self, ring: &RingState) -> Result<Vec<SlotChange>, AssignError> {
        let mut table = place::assign(&self.base(ring), &self.candidates)?;
        for slot in ring.slots.slots() {
            let old = ring.slots.list(slot);
            let mut list = List::from_slice(table.list(slot));
            let is_led_by_a_holder = match (old.first(), list.first()) {
                (Some(owner), Some(first)) if list.contains(owner) => first == owner,
                (Some(_), Some(first)) => old.contains(first),
                _ => true,
            };
            if is_led_by_a_holder {
                continue;
            }
            // To the assigner the replacement held the range already.
            let holder = old
                .iter()
                .find_map(|held| list.iter().position(|one| one == held));
            let Some(at) = holder else {
                // Other changes moved everybody else away: not a replacement any more.
                return Ok(diff(
                    &ring.slots,
                    &place::assign(&ring.slots, &self.candidates)?,
                ));
            };
            list[..=at].rotate_right(1);
            table.set(slot, &list);
        }
        Ok(diff(&ring.slots, &table))
    }

    /// The table that the assigner starts from: in every list of a node that is replaced, its
    /// replacement; last where the node was first, since a new owner must have held the range.
    #[must_use]
    fn base(&self, ring: &RingState) -> SlotTable {
        let mut table = ring.slots.clone();
        for (node, by) in &self.replacements {
            let joiner = self.joiners.iter().find(|joiner| joiner.node_id == *by);
            let (Some(old), Some(new)) = (ring.members.get(node), joiner) else {
                continue;
            };
            for slot in ring.slots.slots() {
                let mut list = List::from_slice(table.list(slot));
                let Some(at) = list.iter().position(|handle| *handle == old.handle) else {
                    continue;
                };
                if at == 0 {
                    list.remove(0);
                    list.push(new.handle);
                } else {
                    list[at] = new.handle;
                }
                table.set(slot, &list);
            }
        }
        table
    }
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
        Change::Replace { node, by } => {
            if let Some(registered) = ring.registered(by) {
                expected.remove(node);
                expected.insert(by.clone(), (registered.zone.clone(), registered.weight));
            }
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
            let registered = newcomer(ring, expected, node)?;
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
        Change::Replace { node, by } => {
            stands(ring, expected, node)?;
            let registered = newcomer(ring, expected, by)?;
            let (zone, weight) = &expected[node];
            if registered.zone != *zone {
                return Err(Rejection::ReplacementZone {
                    node: node.clone(),
                    zone: zone.clone(),
                    by: by.clone(),
                    other: registered.zone.clone(),
                });
            }
            if registered.weight.get() == 0 && weight.get() > 0 {
                return Err(Rejection::ReplacementWeight { by: by.clone() });
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

/// The node is registered, and neither a member nor about to become one.
fn newcomer<'a>(
    ring: &'a RingState,
    expected: &Expected,
    node: &NodeId,
) -> Result<&'a Registered, Rejection> {
    if expected.contains_key(node) || ring.members.contains_key(node) {
        return Err(Rejection::AlreadyMember { node: node.clone() });
    }
    let registered = ring
        .registered(node)
        .ok_or_else(|| Rejection::NotRegistered { node: node.clone() })?;
    // Members, and those that are about to become some.
    let taken = expected.keys().chain(ring.members.keys()).find(|other| {
        ring.registered(other)
            .is_some_and(|known| known.endpoint == registered.endpoint)
    });
    match taken {
        None => Ok(registered),
        Some(by) => Err(Rejection::EndpointTaken {
            node: node.clone(),
            endpoint: registered.endpoint.clone(),
            by: by.clone(),
        }),
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
    if now - 1 < usize::from(rf) && !bait::on("drain-below-rf") {
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
