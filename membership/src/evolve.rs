//! Folds events into the state. Cannot fail: whatever could be wrong was refused by `decide`.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{
    Checksum, Epoch, Generation, Incarnation, Member, MemberState, NodeId, Position, RingName,
    SlotTable, Step, TransitionId,
};

use crate::{
    ANSWER_AGE_MS, Afterwards, Applied, Brake, ChangeId, ChangePhase, ChangeRecord, Command,
    Conversion, Event, KnownBirth, MAX_ANSWERS, MAX_BIRTHS, MAX_ENDED_CHANGES, MAX_FORMER,
    Maintenance, Outcome, Pins, Plan, PlanId, Registered, RequestId, RetainedCopies, RingConfig,
    RingState, RosterEntry, State, TransitionState, Wave, WaveId,
    decide::{Decision, applied},
    plan::{MAX_PLAN_BYTES, MAX_PLANS},
};

impl State {
    pub(crate) fn evolve(
        &mut self,
        command: &Command,
        decision: Decision,
    ) -> (Applied, Option<RingName>) {
        let name = match command {
            Command::Ring { ring, .. } => Some(ring.clone()),
            Command::Init { .. } | Command::Tick { .. } => None,
        };
        let Some(name) = name else {
            decision
                .events
                .iter()
                .for_each(|event| self.evolve_cluster(event));
            return (applied(&decision, Epoch(0)), None);
        };
        for event in &decision.events {
            if let Event::RingCreated { config } = event {
                self.rings
                    .insert(name.clone(), RingState::new(config.clone()));
            }
        }
        let (wall_ms, now_ms) = (self.wall_ms, self.ring_time_ms);
        let Some(ring) = self.rings.get_mut(&name) else {
            return (applied(&decision, Epoch(0)), None);
        };
        let publishes = decision
            .events
            .iter()
            .any(|event| event.publishes(|node| ring.members.contains_key(node)));
        if publishes {
            // One entry makes at most one epoch, whatever number of events it has.
            ring.epoch = ring.epoch.next();
            ring.previous_checksum = ring.checksum;
            ring.published_at_ms = wall_ms;
        }
        decision
            .events
            .iter()
            .for_each(|event| ring.evolve(event, now_ms, wall_ms));
        ring.trim_ended_changes();
        (applied(&decision, ring.epoch), publishes.then_some(name))
    }

    fn evolve_cluster(&mut self, event: &Event) {
        match event {
            Event::Initialised { cluster_id } => self.cluster_id = Some(*cluster_id),
            Event::Ticked { elapsed_ms } => {
                self.ring_time_ms += elapsed_ms;
                let now_ms = self.ring_time_ms;
                for ring in self.rings.values_mut() {
                    ring.maintenance.retain(|_, one| one.until_ms > now_ms);
                }
            }
            _ => {}
        }
    }

    /// Keeps an answer; drops those that are over age or over number.
    pub(crate) fn remember(&mut self, id: RequestId, outcome: Outcome) {
        self.answers.by_id.insert(id, outcome);
        self.answers.order.push_back((self.ring_time_ms, id));
        while let Some((given_ms, oldest)) = self.answers.order.front().copied() {
            let old = self.ring_time_ms.saturating_sub(given_ms) > ANSWER_AGE_MS;
            if !old && self.answers.order.len() <= MAX_ANSWERS {
                break;
            }
            self.answers.order.pop_front();
            self.answers.by_id.remove(&oldest);
        }
    }
}

impl RingState {
    fn new(config: RingConfig) -> Self {
        let slots = SlotTable::empty(config.slot_bits, config.replication.rf);
        let count = slots.slot_count();
        Self {
            config,
            generation: Generation(1),
            epoch: Epoch(0),
            checksum: Checksum::default(),
            previous_checksum: Checksum::default(),
            published_at_ms: 0,
            layout_epoch: Epoch(1),
            founded: false,
            roster: BTreeMap::new(),
            members: BTreeMap::new(),
            slots,
            reigns: vec![Epoch(0); count],
            last_changes: vec![Epoch(0); count],
            changes: BTreeMap::new(),
            next_change: ChangeId(1),
            transition: None,
            last_transition: TransitionId(0),
            wave: None,
            last_wave: WaveId(0),
            retained: Vec::new(),
            paused: None,
            auto_remove_ms: None,
            held: None,
            pins: Pins::default(),
            maintenance: BTreeMap::new(),
            plans: BTreeMap::new(),
            last_plan: PlanId(0),
            conversion: None,
            converted: Epoch(0),
        }
    }

    /// `self.epoch` is already that of the snapshot that the events make, if they make one.
    fn evolve(&mut self, event: &Event, now_ms: u64, wall_ms: u64) {
        match event {
            Event::Initialised { .. } | Event::Ticked { .. } | Event::RingCreated { .. } => {}
            Event::Registered { node, registered } => self.register(node, registered),
            Event::EndpointChanged { node, endpoint } => {
                if let Some(entry) = self.roster.get_mut(node)
                    && let Some(registered) = &mut entry.registered
                {
                    registered.endpoint = endpoint.clone();
                }
                if let Some(member) = self.members.get_mut(node) {
                    member.endpoint = endpoint.clone();
                }
            }
            Event::Founded {
                members,
                target,
                changes,
            } => {
                self.members.extend(
                    members
                        .iter()
                        .map(|member| (member.node_id.clone(), member.clone())),
                );
                annulus_ring::placement::apply(&mut self.slots, target);
                self.reigns.fill(self.epoch);
                self.last_changes.fill(self.epoch);
                self.founded = true;
                self.layout_epoch = self.epoch;
                changes
                    .iter()
                    .for_each(|id| self.set_phase(*id, ChangePhase::Done));
            }
            Event::ChangeAccepted { id, change, after } => {
                let record = ChangeRecord {
                    change: change.clone(),
                    phase: ChangePhase::Queued,
                    after: *after,
                    transition: None,
                };
                self.changes.insert(*id, record);
                self.next_change = ChangeId(id.0 + 1);
            }
            Event::ChangeRefused { id, rejection } => {
                self.set_phase(*id, ChangePhase::Refused(rejection.clone()));
            }
            Event::ChangeWithdrawn { id } => self.set_phase(*id, ChangePhase::Aborted),
            Event::TransitionStarted {
                id,
                changes,
                joiners,
                leavers,
                weights,
                afterwards,
                requorum,
                target,
            } => {
                for id_of_change in changes {
                    self.set_phase(*id_of_change, ChangePhase::Running(*id));
                    if let Some(record) = self.changes.get_mut(id_of_change) {
                        record.transition = Some(*id);
                    }
                }
                self.start(*id, changes, joiners, leavers, target, now_ms);
                if let Some(transition) = &mut self.transition {
                    transition.weights.clone_from(weights);
                    transition.afterwards = afterwards.clone();
                    transition.requorum = *requorum;
                }
            }
            Event::StepEntered { step } => self.enter(*step, now_ms),
            Event::FlipBackBegun { change } => {
                self.enter(Step::FlippingBack, now_ms);
                if let Some(transition) = &mut self.transition {
                    transition.withdrawn = Some(*change);
                }
            }
            Event::SettleAsked => {
                if let Some(transition) = &mut self.transition {
                    transition.settle_now = true;
                }
            }
            Event::Settled => self.settle(now_ms),
            Event::TransitionAborted { change } => self.abort(*change),
            Event::WaveBegun { wave } => {
                self.last_wave = wave.id;
                self.wave = Some(wave.clone());
            }
            Event::FailoverBegun { wave } => {
                for slot in &wave.slots {
                    self.last_changes[slot.index()] = self.epoch;
                }
                self.last_wave = wave.id;
                self.wave = Some(Wave {
                    intent: Some(self.epoch),
                    ..wave.clone()
                });
            }
            Event::WaveCommitted { lists } => {
                for (slot, list) in lists {
                    self.slots.set(*slot, list);
                    // The owner of O is the owner of N where it stays: the rule of the target.
                    if let Some(transition) = &mut self.transition
                        && let Some(new) = transition.target.get_mut(slot)
                        && let Some(at) = new.iter().position(|handle| *handle == list[0])
                    {
                        new[..=at].rotate_right(1);
                    }
                    self.reigns[slot.index()] = self.epoch;
                    self.last_changes[slot.index()] = self.epoch;
                }
                self.layout_epoch = self.epoch;
                self.wave = None;
            }
            Event::WaveAborted { .. } => self.wave = None,
            Event::Permitted { copies } => {
                if let Some(known) = self.retained_mut(copies) {
                    for slot in &copies.slots {
                        known.kept.remove(slot);
                        known.permitted.insert(*slot);
                    }
                }
            }
            Event::Released { copies } => {
                if let Some(known) = self.retained_mut(copies) {
                    copies.slots.iter().for_each(|slot| {
                        known.permitted.remove(slot);
                    });
                }
                self.retained
                    .retain(|known| !known.kept.is_empty() || !known.permitted.is_empty());
            }
            Event::AvailabilityChanged { node, availability } => {
                if let Some(member) = self.members.get_mut(node) {
                    member.availability = *availability;
                }
            }
            Event::PauseSet { reason } => self.paused = brake(reason.as_ref(), wall_ms),
            Event::AutoRemoveSet { after_ms } => self.auto_remove_ms = *after_ms,
            Event::HoldSet { reason } => self.held = brake(reason.as_ref(), wall_ms),
            Event::MaintenanceSet { node, until_ms } => {
                self.maintenance.remove(node);
                if let Some(until_ms) = *until_ms {
                    let since_ms = wall_ms;
                    let maintenance = Maintenance { until_ms, since_ms };
                    self.maintenance.insert(node.clone(), maintenance);
                }
            }
            Event::ConversionBegun { to } => {
                self.last_changes.fill(self.epoch);
                self.conversion = Some(Conversion {
                    to: *to,
                    begun: self.epoch,
                    since_ms: wall_ms,
                });
            }
            Event::Converted => self.convert(),
            Event::ConversionAborted => {
                self.last_changes.fill(self.epoch);
                self.conversion = None;
            }
            Event::PlanStored { id, plan } => self.keep_plan(*id, plan, wall_ms),
            Event::PlanCommitted { id, changes } => {
                if let Some(plan) = self.plans.get_mut(id) {
                    plan.committed.clone_from(changes);
                }
            }
            Event::PlanDropped { id } => {
                self.plans.remove(id);
            }
            Event::MemberRemoved { node } => {
                self.maintenance.remove(node);
                self.members.remove(node);
                // Copies that a dead node kept are out of reach; nobody waits for their release.
                self.retained.retain(|copies| copies.node != *node);
                self.end_registration(node, false);
                self.layout_epoch = self.epoch;
            }
        }
    }

    fn register(&mut self, node: &NodeId, registered: &Registered) {
        let entry = self
            .roster
            .entry(node.clone())
            .or_insert_with(|| RosterEntry {
                incarnation: Incarnation(0),
                births: Vec::new(),
                registered: None,
            });
        entry.incarnation = registered.incarnation;
        entry.births.push(KnownBirth {
            birth: registered.birth,
            incarnation: registered.incarnation,
            aborted: false,
        });
        if entry.births.len() > MAX_BIRTHS {
            entry.births.remove(0);
        }
        entry.registered = Some(registered.clone());
    }

    /// The incarnation is over: removed for good, or a join that came to nothing.
    fn end_registration(&mut self, node: &NodeId, aborted: bool) {
        let Some(entry) = self.roster.get_mut(node) else {
            return;
        };
        let Some(ended) = entry.registered.take() else {
            return;
        };
        for known in &mut entry.births {
            if known.birth == ended.birth {
                known.aborted = aborted;
            }
        }
    }

    fn set_phase(&mut self, id: ChangeId, phase: ChangePhase) {
        if let Some(record) = self.changes.get_mut(&id) {
            record.phase = phase;
        }
    }

    fn start(
        &mut self,
        id: TransitionId,
        changes: &[ChangeId],
        joiners: &[Member],
        leavers: &[NodeId],
        target: &[annulus_ring::SlotChange],
        now_ms: u64,
    ) {
        for joiner in joiners {
            self.members.insert(joiner.node_id.clone(), joiner.clone());
        }
        for leaver in leavers {
            if let Some(member) = self.members.get_mut(leaver) {
                member.state = MemberState::Draining;
            }
        }
        self.last_transition = id;
        self.layout_epoch = self.epoch;
        self.transition = Some(TransitionState {
            id,
            changes: changes.to_vec(),
            step: Step::Prepared,
            step_epoch: self.epoch,
            step_since_ms: now_ms,
            settle_now: false,
            withdrawn: None,
            target: target
                .iter()
                .map(|change| (change.slot, change.to.clone()))
                .collect(),
            joining: joiners
                .iter()
                .map(|joiner| joiner.node_id.clone())
                .collect(),
            draining: leavers.iter().cloned().collect(),
            weights: BTreeMap::new(),
            afterwards: Afterwards::default(),
            requorum: None,
        });
    }

    fn enter(&mut self, step: Step, now_ms: u64) {
        let Some(transition) = &mut self.transition else {
            return;
        };
        transition.step = step;
        transition.step_epoch = self.epoch;
        transition.step_since_ms = now_ms;
        if step.changes_sets() {
            for slot in transition.target.keys() {
                self.last_changes[slot.index()] = self.epoch;
            }
        }
        if matches!(step, Step::Switched | Step::FlippingBack) {
            // On a cache ring the owner may change here, and with it the reign.
            for (slot, new) in &transition.target {
                if new.first() != self.slots.list(*slot).first() {
                    self.reigns[slot.index()] = self.epoch;
                }
            }
        }
        let state = match step {
            Step::Prepared => MemberState::Joining,
            Step::Writing | Step::Copying => MemberState::Copying,
            Step::CatchingUp | Step::Verified | Step::Joint | Step::FlippingBack => {
                MemberState::CatchingUp
            }
            Step::Switched => MemberState::Active,
        };
        for node in &transition.joining {
            if let Some(member) = self.members.get_mut(node) {
                member.state = state;
            }
        }
    }

    fn settle(&mut self, now_ms: u64) {
        let Some(transition) = self.transition.take() else {
            return;
        };
        let mut kept: BTreeMap<NodeId, BTreeSet<annulus_ring::Slot>> = BTreeMap::new();
        let ids: BTreeMap<_, _> = self
            .members
            .values()
            .map(|member| (member.handle, member.node_id.clone()))
            .collect();
        let rf = transition.afterwards.replication.map_or(0, |new| new.rf);
        let widest = rf.max(self.slots.rf());
        if widest > self.slots.rf() {
            self.slots = self.slots.resized(widest);
        }
        for (slot, new) in &transition.target {
            let old = self.slots.list(*slot);
            for loser in old.iter().filter(|handle| !new.contains(handle)) {
                if let Some(node) = ids.get(loser) {
                    kept.entry(node.clone()).or_default().insert(*slot);
                }
            }
            self.slots.set(*slot, new);
            self.last_changes[slot.index()] = self.epoch;
        }
        for (node, slots) in kept {
            let Some(member) = self.members.get(&node) else {
                continue;
            };
            self.retained.push(RetainedCopies {
                incarnation: member.incarnation,
                node,
                session: transition.session(),
                since_ms: now_ms,
                since_epoch: self.epoch,
                kept: slots,
                permitted: BTreeSet::new(),
            });
        }
        for (node, weight) in &transition.weights {
            if let Some(member) = self.members.get_mut(node) {
                member.weight = *weight;
            }
            if let Some(known) = self.registered_mut(node) {
                former(&mut known.former_weights, &mut known.weight, *weight);
            }
        }
        self.hold_from_now(transition.afterwards);
        self.layout_epoch = self.epoch;
        transition
            .changes
            .iter()
            .for_each(|id| self.set_phase(*id, ChangePhase::Done));
    }

    fn hold_from_now(&mut self, afterwards: Afterwards) {
        let Afterwards {
            zones,
            replication,
            pins,
        } = afterwards;
        if let Some(replication) = replication {
            self.config.replication = replication;
            // Every list is new, so none is longer.
            self.slots = self.slots.resized(replication.rf);
        }
        for (node, zone) in zones {
            if let Some(member) = self.members.get_mut(&node) {
                member.zone = zone.clone();
            }
            if let Some(known) = self.registered_mut(&node) {
                former(&mut known.former_zones, &mut known.zone, zone);
            }
        }
        if let Some(pins) = pins {
            self.pins = pins;
        }
    }

    fn registered_mut(&mut self, node: &NodeId) -> Option<&mut Registered> {
        self.roster.get_mut(node)?.registered.as_mut()
    }

    fn abort(&mut self, change: Option<ChangeId>) {
        let Some(transition) = self.transition.take() else {
            return;
        };
        // The lists were O all along; only who receives and who acknowledges goes back.
        if transition.step >= Step::Writing {
            for slot in transition.target.keys() {
                self.last_changes[slot.index()] = self.epoch;
            }
        }
        self.layout_epoch = self.epoch;
        for node in &transition.draining {
            if let Some(member) = self.members.get_mut(node) {
                member.state = MemberState::Active;
            }
        }
        for node in &transition.joining {
            self.members.remove(node);
            self.maintenance.remove(node);
        }
        let mut joiners = Vec::new();
        for id in &transition.changes {
            let Some(record) = self.changes.get_mut(id) else {
                continue;
            };
            if Some(*id) == change {
                record.phase = ChangePhase::Aborted;
            } else if !record.phase.ended() {
                record.phase = ChangePhase::Queued;
            }
            // Withdrawn, or refused with this: what the joiner copied is nobody's.
            if record.phase.ended() {
                joiners.extend(record.change.joiner().cloned());
            }
        }
        joiners
            .iter()
            .for_each(|node| self.end_registration(node, true));
    }

    /// Keeps a plan; the oldest go where there are too many, or too much of them.
    fn keep_plan(&mut self, id: PlanId, plan: &Plan, wall_ms: u64) {
        let plan = Plan {
            created_at_ms: wall_ms,
            ..plan.clone()
        };
        self.plans.insert(id, plan);
        self.last_plan = id;
        let mut bytes: usize = self.plans.values().map(Plan::bytes).sum();
        while self.plans.len() > 1 && (self.plans.len() > MAX_PLANS || bytes > MAX_PLAN_BYTES) {
            let Some((_, oldest)) = self.plans.pop_first() else {
                return;
            };
            bytes -= oldest.bytes();
        }
    }

    fn retained_mut(&mut self, copies: &crate::CopySet) -> Option<&mut RetainedCopies> {
        self.retained.iter_mut().find(|known| {
            known.node == copies.node
                && known.incarnation == copies.incarnation
                && known.session == copies.session
        })
    }

    fn trim_ended_changes(&mut self) {
        let ended: Vec<ChangeId> = self
            .changes
            .iter()
            .filter(|(_, record)| record.phase.ended())
            .map(|(id, _)| *id)
            .collect();
        let excess = ended.len().saturating_sub(MAX_ENDED_CHANGES);
        ended[..excess].iter().for_each(|id| {
            self.changes.remove(id);
        });
    }

    /// F of nothing: the position at which a reign that had no write stands.
    #[must_use]
    pub fn reign_start(&self, slot: annulus_ring::Slot) -> Position {
        Position::new(self.reigns[slot.index()], 0)
    }
}

/// `value` is now `new`, and was among the last what it was before.
fn former<T: PartialEq>(before: &mut Vec<T>, value: &mut T, new: T) {
    let old = std::mem::replace(value, new);
    before.retain(|one| *one != old && *one != *value);
    if old != *value {
        before.push(old);
    }
    if before.len() > MAX_FORMER {
        before.remove(0);
    }
}

fn brake(reason: Option<&String>, since_ms: u64) -> Option<Brake> {
    reason.map(|reason| Brake {
        reason: reason.clone(),
        since_ms,
    })
}
