//! Folding: which of the waiting changes pass preflight together, and what they make of the
//! members. Asked by the proposer, who computes a target for it, and by `decide`, who checks.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{
    AssignError, Availability, Candidate, Handle, List, Member, MemberState, NodeId, Slot,
    SlotChange, SlotTable, Weight, Zone,
    place::{self, Rules},
    placement::diff,
};

use crate::{
    Afterwards, Change, ChangeId, ChangePhase, ChangeRecord, MAX_MEMBERS, Registered, Rejection,
    Requorum, RingState, bait, burial, expected::Expected, preflight as rules, view,
};

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
    /// What else is set by them.
    pub afterwards: Afterwards,
    /// Who may hold ranges afterwards.
    pub candidates: Vec<Candidate>,
}

/// Folds all waiting changes.
#[must_use]
pub fn fold(ring: &RingState) -> Fold {
    let (mut queued, mut broken) = (Vec::new(), Vec::new());
    for (id, record) in &ring.changes {
        if record.phase != ChangePhase::Queued {
            continue;
        }
        // The next of a row waits for the one before, and falls with it.
        match record.after.and_then(|before| ring.changes.get(&before)) {
            Some(before) if !before.phase.ended() => {}
            Some(before) if before.phase != ChangePhase::Done => {
                let change = record.after.unwrap_or(*id);
                broken.push((*id, Rejection::RowBroken { change }));
            }
            // Done, or so long ago that it is forgotten.
            Some(_) | None => queued.push((*id, &record.change)),
        }
    }
    let mut fold = fold_of(ring, queued.into_iter());
    fold.refused.extend(broken);
    fold.refused.sort_by_key(|(id, _)| *id);
    fold
}

/// Folds only these of the waiting changes.
#[must_use]
pub(crate) fn fold_only(ring: &RingState, some: &[ChangeId]) -> Fold {
    let changes = some
        .iter()
        .filter_map(|id| Some((*id, ring.changes.get(id)?)));
    fold_of(ring, changes.map(|(id, record)| (id, &record.change)))
}

/// Folds these changes, as if they waited in this order and nothing else did.
pub(crate) fn fold_of<'a>(
    ring: &RingState,
    changes: impl Iterator<Item = (ChangeId, &'a Change)>,
) -> Fold {
    let changes: Vec<(ChangeId, &Change)> = changes.collect();
    let mut fold = Fold::default();
    let mut expected = current(ring);
    // Their ranges are rebuilt first: whoever else would leave with the last copy waits for that.
    let buried: BTreeSet<&NodeId> = changes
        .iter()
        .filter_map(|(_, change)| Some(change.buries()?.0))
        .collect();
    let mut joining = BTreeSet::new();
    let mut leaving = BTreeSet::new();
    // Those that leave, and those of weight 0: they give up every range.
    let mut vacating = BTreeSet::new();
    for (id, change) in changes.iter().copied() {
        // A node cannot come and go in one transition, nor come with two weights: what is asked of
        // it after its join waits for the next one.
        let vacated = vacated(&expected, change);
        let mut concerned = change.node().into_iter().chain(&vacated);
        if concerned.any(|node| joining.contains(node)) {
            continue;
        }
        // Some member of each list must stay, to take the range over and to be copied from.
        let dead = buried.iter().copied().filter(|_| change.buries().is_none());
        let all = vacating.iter().chain(&vacated).chain(dead);
        if !vacated.is_empty() && emptied(ring, all).is_some() {
            // What it waited for may have been withdrawn: then nobody ever comes.
            let rf = expected.replication.rf;
            let widens = changes.iter().any(|(_, other)| match other {
                Change::Replication { to, .. } => to.rf > rf,
                _ => false,
            });
            if !widens && let Err(rejection) = preflight(ring, &expected, change) {
                fold.refused.push((id, rejection));
            }
            continue;
        }
        match preflight(ring, &expected, change) {
            Ok(()) => {
                apply(ring, &mut expected, change);
                fold.accepted.push(id);
                vacating.extend(vacated.iter().cloned());
                joining.extend(change.joiner().cloned());
                match change {
                    Change::Join { .. }
                    | Change::Pin { .. }
                    | Change::Unpin { .. }
                    | Change::Replication { .. } => {}
                    Change::Drain { .. } | Change::DrainZone { .. } | Change::Remove { .. } => {
                        for node in vacated {
                            fold.weights.remove(&node);
                            fold.afterwards.zones.remove(&node);
                            leaving.insert(node);
                        }
                    }
                    Change::Zone { node, zone, .. } => {
                        fold.afterwards.zones.insert(node.clone(), zone.clone());
                    }
                    Change::Weight { node, weight } => {
                        fold.weights.insert(node.clone(), *weight);
                    }
                    Change::Replace { node, by, .. } => {
                        fold.weights.remove(node);
                        fold.afterwards.zones.remove(node);
                        leaving.insert(node.clone());
                        fold.replacements.push((node.clone(), by.clone()));
                    }
                }
            }
            Err(rejection) => fold.refused.push((id, rejection)),
        }
    }
    fold.joiners = new_members(ring, &joining, MemberState::Joining);
    fold.leavers = leaving.into_iter().collect();
    let to = expected.replication;
    fold.afterwards.replication = (to != ring.config.replication).then_some(to);
    fold.afterwards.pins = (expected.pins != ring.pins).then_some(expected.pins);
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
            zone: fold
                .afterwards
                .zones
                .get(&member.node_id)
                .unwrap_or(&member.zone)
                .clone(),
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
        let rules = self.rules(ring);
        let assign = |base: &SlotTable| place::assign_with(base, &self.candidates, &rules);
        let mut table = assign(&self.base(ring))?.table;
        if !self.lead_by_holders(ring, &rules, &mut table) {
            // Other changes moved everybody else away: not a replacement any more.
            table = assign(&ring.slots)?.table;
            self.lead_by_holders(ring, &rules, &mut table);
        }
        Ok(self.changes(ring, &table))
    }

    /// Puts a member that holds the range first in every list, the owner where it stays: the assigner
    /// takes a replacement for one, and may move a small list away whole. Whether it could.
    fn lead_by_holders(&self, ring: &RingState, rules: &Rules, table: &mut SlotTable) -> bool {
        let mut all = true;
        for slot in ring.slots.slots() {
            let old = ring.slots.list(slot);
            let mut list = List::from_slice(table.list(slot));
            let is_led_by_a_holder = match (old.first(), list.first()) {
                // Of a cache ring: nobody stays.
                _ if ring.config.is_cache() && !old.iter().any(|held| list.contains(held)) => true,
                (Some(owner), Some(first)) if list.contains(owner) => first == owner,
                (Some(_), Some(first)) => old.contains(first),
                _ => true,
            };
            if is_led_by_a_holder {
                continue;
            }
            let place = |list: &List| {
                let place = |held: &Handle| list.iter().position(|one| one == held);
                old.iter().find_map(place)
            };
            let holder = place(&list).or_else(|| {
                list = self.with_a_holder(old, &list, rules, slot)?;
                place(&list)
            });
            match holder {
                Some(at) => {
                    list[..=at].rotate_right(1);
                    table.set(slot, &list);
                }
                None => all = false,
            }
        }
        all
    }

    /// This list with one of its new members given up for one of `old`, as spread as it was; balance
    /// gives way here. None where pins or zones leave no place.
    fn with_a_holder(
        &self,
        old: &[Handle],
        list: &List,
        rules: &Rules,
        slot: Slot,
    ) -> Option<List> {
        let candidate = |handle: Handle| self.candidates.iter().find(|one| one.handle == handle);
        let spread = |list: &List| {
            let zones = list.iter().filter_map(|one| Some(&candidate(*one)?.zone));
            zones.collect::<BTreeSet<&Zone>>().len()
        };
        let pins = rules.pins.iter().chain(&rules.owners);
        let pinned: BTreeSet<Handle> = pins
            .filter(|pin| pin.slot == slot)
            .map(|pin| pin.handle)
            .collect();
        let may_hold = |held: &&Handle| candidate(**held).is_some_and(|one| one.weight.get() > 0);
        old.iter().filter(may_hold).find_map(|held| {
            let places = (0..list.len())
                .rev()
                .filter(|at| !pinned.contains(&list[*at]));
            let mut lists = places.map(|at| {
                let mut changed = list.clone();
                changed[at] = *held;
                changed
            });
            lists.find(|changed| spread(changed) >= spread(list))
        })
    }

    /// What lies between the lists and `table`; every slot, where the quorums of all change.
    fn changes(&self, ring: &RingState, table: &SlotTable) -> Vec<SlotChange> {
        if self.requorum(ring).is_none() {
            return diff(&ring.slots, table);
        }
        let change = |slot| SlotChange {
            slot,
            to: List::from_slice(table.list(slot)),
        };
        table.slots().map(change).collect()
    }

    /// rf, w and r as published before and after, where they differ.
    #[must_use]
    pub fn requorum(&self, ring: &RingState) -> Option<Requorum> {
        let configured = self
            .afterwards
            .replication
            .unwrap_or(ring.config.replication);
        let from = ring.replication();
        let to = view::with_nodes(configured, view::weighty(&self.candidates));
        (from != to).then_some(Requorum { from, to })
    }

    /// What its lists must keep to besides balance.
    #[must_use]
    pub fn rules(&self, ring: &RingState) -> Rules {
        let pins = self.afterwards.pins.as_ref().unwrap_or(&ring.pins);
        let joiner = |node: &NodeId| self.joiners.iter().find(|joiner| joiner.node_id == *node);
        let pins = pins.rules(|node| {
            let member = ring.members.get(node).or_else(|| joiner(node));
            member.map(|member| member.handle)
        });
        let rf = self.afterwards.replication.map(|to| to.rf);
        Rules { rf, ..pins }
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

/// Who gives up every range by a change.
fn vacated(expected: &Expected, change: &Change) -> Vec<NodeId> {
    match change {
        Change::DrainZone { zone, .. } => expected.standing_in(zone).cloned().collect(),
        other => other.vacates().into_iter().cloned().collect(),
    }
}

/// A slot that lists only these members. O(slots x rf).
fn emptied<'a>(ring: &RingState, leaving: impl Iterator<Item = &'a NodeId>) -> Option<Slot> {
    if ring.config.is_cache() {
        // Its ranges may pass to nodes that never had them.
        return None;
    }
    let handles: BTreeSet<Handle> = leaving
        .filter_map(|node| ring.members.get(node))
        .map(|member| member.handle)
        .collect();
    ring.slots.slots().find(|slot| {
        let list = ring.slots.list(*slot);
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

/// The ring as it will be when the running transition is done.
#[must_use]
pub fn current(ring: &RingState) -> Expected {
    let mut members: BTreeMap<NodeId, (Zone, Weight)> = ring
        .members
        .values()
        .filter(|member| member.state != MemberState::Draining)
        .map(|member| (member.node_id.clone(), (member.zone.clone(), member.weight)))
        .collect();
    let mut replication = ring.config.replication;
    let mut pins = &ring.pins;
    if let Some(transition) = &ring.transition {
        for (node, weight) in &transition.weights {
            if let Some(known) = members.get_mut(node) {
                known.1 = *weight;
            }
        }
        let Afterwards {
            zones,
            replication: to,
            pins: set,
        } = &transition.afterwards;
        replication = to.unwrap_or(replication);
        for (node, zone) in zones {
            if let Some(known) = members.get_mut(node) {
                known.0 = zone.clone();
            }
        }
        pins = set.as_ref().unwrap_or(pins);
    }
    Expected {
        members,
        replication,
        pins: pins.clone(),
    }
}

/// Changes that wait.
pub(crate) fn queued(ring: &RingState) -> impl Iterator<Item = &ChangeRecord> {
    let queued = |record: &&ChangeRecord| record.phase == ChangePhase::Queued;
    ring.changes.values().filter(queued)
}

/// The ring as it will be when every change accepted so far is done.
#[must_use]
pub fn after_queue(ring: &RingState) -> Expected {
    let mut expected = current(ring);
    for record in queued(ring) {
        apply(ring, &mut expected, &record.change);
    }
    expected
}

fn apply(ring: &RingState, expected: &mut Expected, change: &Change) {
    match change {
        Change::Join { node, .. } => {
            if let Some(registered) = ring.registered(node) {
                expected
                    .members
                    .insert(node.clone(), (registered.zone.clone(), registered.weight));
            }
        }
        Change::Drain { node } | Change::Remove { node, .. } => {
            expected.members.remove(node);
        }
        Change::Replication { to, .. } => expected.replication = *to,
        Change::DrainZone { zone, .. } => {
            expected.members.retain(|_, one| one.0 != *zone);
        }
        Change::Zone { node, zone, .. } => {
            if let Some(known) = expected.members.get_mut(node) {
                known.0 = zone.clone();
            }
        }
        Change::Replace { node, by, .. } => {
            if let Some(registered) = ring.registered(by) {
                expected.members.remove(node);
                expected.pins.hand_on(node, by);
                expected
                    .members
                    .insert(by.clone(), (registered.zone.clone(), registered.weight));
            }
        }
        Change::Weight { node, weight } => {
            if let Some(known) = expected.members.get_mut(node) {
                known.1 = *weight;
            }
        }
        Change::Pin { node, slots, kind } => {
            expected.pins.add(node, slots, *kind);
        }
        Change::Unpin { node, slots } => {
            expected.pins.remove(node, slots.as_ref());
        }
    }
}

/// What an operator accepts by a change that passed preflight on `expected`: one sentence each.
#[must_use]
pub fn price(ring: &RingState, expected: &Expected, change: &Change) -> Vec<String> {
    let rf = expected.replication.rf;
    let mut after = expected.clone();
    apply(ring, &mut after, change);
    let mut notes = Vec::new();
    let (now, then) = (expected.spread(rf), after.spread(rf));
    if let Change::Replication { to, .. } = change {
        let zones = after.zones().len();
        if zones < usize::from(to.rf) {
            notes.push(format!(
                "{zones} zone(s) for rf {}: the loss of one may take several copies of a range",
                to.rf
            ));
        }
        if let Err(error) = to.check() {
            notes.push(error.to_string());
        }
    } else if then < now {
        notes.push(format!(
            "ranges will spread over {then} zone(s) instead of {now}"
        ));
    }
    if let Change::Zone { node, .. } = change
        && after.carries_all(node, rf)
        && !expected.carries_all(node, rf)
    {
        notes.push(format!("{node} will hold a copy of every range"));
    }
    notes
}

/// May `change` follow on `expected`?
///
/// # Errors
/// The constraint that it would break, by name.
pub fn preflight(ring: &RingState, expected: &Expected, change: &Change) -> Result<(), Rejection> {
    allowed(ring, expected, change)?;
    let mut after = expected.clone();
    apply(ring, &mut after, change);
    let (bits, rf) = (ring.config.slot_bits, after.replication.rf);
    after.pins.check(bits, rf, &after.members)
}

fn allowed(ring: &RingState, expected: &Expected, change: &Change) -> Result<(), Rejection> {
    let grows = matches!(change, Change::Replication { .. });
    if expected.replication.rf == 1 && ring.founded && !grows && !ring.config.is_cache() {
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
            if expected.members.len() >= MAX_MEMBERS {
                return Err(Rejection::TooManyMembers { limit: MAX_MEMBERS });
            }
            Ok(())
        }
        Change::Remove { node, burial } => {
            burial::lies(ring, expected, node, burial)?;
            vacate(expected, node)
        }
        Change::Replace { node, by, burial } => {
            match burial {
                Some(burial) => burial::lies(ring, expected, node, burial)?,
                None => stands(ring, expected, node)?,
            }
            let registered = newcomer(ring, expected, by)?;
            let (zone, weight) = &expected.members[node];
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
            rules::leaves_a_holder(ring, expected, change)
        }
        Change::Drain { node } => {
            stands(ring, expected, node)?;
            vacate(expected, node)
        }
        Change::Weight { node, weight } => {
            stands(ring, expected, node)?;
            if expected.members[node].1 == *weight {
                return Err(Rejection::SameWeight {
                    node: node.clone(),
                    weight: *weight,
                });
            }
            if weight.get() == 0 {
                vacate(expected, node)?;
            }
            Ok(())
        }
        Change::Zone { node, zone, accept } => {
            stands(ring, expected, node)?;
            rules::rezone(expected, node, zone, *accept)
        }
        Change::Replication { to, accept } => rules::replication(expected, *to, *accept),
        Change::DrainZone { zone, accept } => {
            let inside: Vec<&NodeId> = expected.standing_in(zone).collect();
            if inside.is_empty() {
                return Err(Rejection::UnknownZone { zone: zone.clone() });
            }
            for node in &inside {
                stands(ring, expected, node)?;
            }
            if let Some(slot) = emptied(ring, inside.into_iter()) {
                let zone = zone.clone();
                return Err(Rejection::ZoneHoldsAll { slot, zone });
            }
            rules::drain_zone(expected, zone, *accept)
        }
        Change::Pin { node, slots, kind } => {
            stands(ring, expected, node)?;
            rules::pin(ring, expected, node, slots, *kind)
        }
        Change::Unpin { node, slots } => {
            if let Some(slots) = slots {
                rules::of_ring(ring, slots)?;
            }
            let mut left = expected.pins.clone();
            if !left.remove(node, slots.as_ref()) {
                return Err(Rejection::NotPinned { node: node.clone() });
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
    if expected.members.contains_key(node) || ring.members.contains_key(node) {
        return Err(Rejection::AlreadyMember { node: node.clone() });
    }
    let registered = ring
        .registered(node)
        .ok_or_else(|| Rejection::NotRegistered { node: node.clone() })?;
    // Members, and those that are about to become some.
    let mut members = expected.members.keys().chain(ring.members.keys());
    let taken = members.find(|other| {
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
pub(crate) fn stands(
    ring: &RingState,
    expected: &Expected,
    node: &NodeId,
) -> Result<(), Rejection> {
    if !expected.members.contains_key(node) {
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
fn vacate(expected: &Expected, node: &NodeId) -> Result<(), Rejection> {
    let members = &expected.members;
    let (zone, weight) = &members[node];
    if weight.get() == 0 {
        return Ok(());
    }
    let rf = expected.replication.rf;
    let weighty = |other: &&(Zone, Weight)| other.1.get() > 0;
    let now = members.values().filter(weighty).count();
    // Lists are as long as min(rf, nodes with weight): one node fewer shortens them only below rf.
    if now - 1 < usize::from(rf) && !bait::on("drain-below-rf") {
        return Err(Rejection::ShortensLists {
            node: node.clone(),
            left: now - 1,
            rf,
        });
    }
    let zones: BTreeSet<&Zone> = members
        .values()
        .filter(weighty)
        .map(|other| &other.0)
        .collect();
    let alone = !members
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
