//! The replicated state: plain data, equal on every server at the same log index.
//!
//! Fields are public to read; only `evolve` changes them. Ordered containers only, so that the
//! serde form is byte-identical too (REPLICAS-EQUAL).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use annulus_ring::{
    Candidate, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, Incarnation, List, Member,
    MemberState, NodeId, Quorums, RangeSets, Replication, RingName, SessionId, Slot, SlotTable,
    Step, TransitionId, Weight, Zone, place::Rules,
};
use serde::{Deserialize, Serialize};

use crate::{
    Birth, Burial, Change, ChangeId, Conversion, Outcome, Pins, Plan, PlanId, Rejection, RequestId,
    RingConfig, WaveId,
};

/// Everything the control plane has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Drawn by `Init`.
    pub cluster_id: Option<ClusterId>,
    /// Largest `wall_ms` of any entry; for people.
    pub wall_ms: u64,
    /// Ring time: raised by ticks only; soak, grace and request ids are counted in it.
    pub ring_time_ms: u64,
    /// By name.
    pub rings: BTreeMap<RingName, RingState>,
    /// Answers to request ids, kept for retries.
    pub answers: Answers,
}

/// Answers by request id, oldest first out: see [`crate::MAX_ANSWERS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// By id.
    pub by_id: BTreeMap<RequestId, Outcome>,
    /// In the order given, with the ring time of the answer.
    pub order: VecDeque<(u64, RequestId)>,
}

/// One ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingState {
    /// Settings.
    pub config: RingConfig,
    /// Rises only on restore.
    pub generation: Generation,
    /// Of the newest snapshot.
    pub epoch: Epoch,
    /// Checksum of the newest snapshot, noted back after it was encoded.
    pub checksum: Checksum,
    /// Checksum of the one before.
    pub previous_checksum: Checksum,
    /// Wall clock of the entry that made the newest epoch.
    pub published_at_ms: u64,
    /// Last epoch in which lists, members, weights, zones or replication changed.
    pub layout_epoch: Epoch,
    /// Whether an epoch ever had an owner.
    pub founded: bool,
    /// Who said Hello, ever, by id.
    pub roster: BTreeMap<NodeId, RosterEntry>,
    /// Members by id.
    pub members: BTreeMap<NodeId, Member>,
    /// O of every slot.
    pub slots: SlotTable,
    /// Per slot: the epoch that began the owner's reign; 0 before founding.
    pub reigns: Vec<Epoch>,
    /// Per slot: the last epoch that changed its lists, sets, groups or order.
    pub last_changes: Vec<Epoch>,
    /// Changes by id: all that run or wait, and the last ended ones.
    pub changes: BTreeMap<ChangeId, ChangeRecord>,
    /// Number of the next change.
    pub next_change: ChangeId,
    /// What is moving.
    pub transition: Option<TransitionState>,
    /// Number of the last transition (and session).
    pub last_transition: TransitionId,
    /// The running hand-over wave.
    pub wave: Option<Wave>,
    /// Number of the last wave begun.
    pub last_wave: WaveId,
    /// Copies that losers keep.
    pub retained: Vec<RetainedCopies>,
    /// All movement stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Brake>,
    /// Members that are down for so long are removed by themselves, in ms of the leader's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_remove_ms: Option<u64>,
    /// Nothing is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Brake>,
    /// Who must be in which list.
    #[serde(default, skip_serializing_if = "Pins::is_empty")]
    pub pins: Pins,
    /// Members that are being looked after; ended by ticks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub maintenance: BTreeMap<NodeId, Maintenance>,
    /// Kept plans by number: at most [`crate::plan::MAX_PLANS`] and [`crate::plan::MAX_PLAN_BYTES`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<PlanId, Plan>,
    /// Number of the last plan stored.
    #[serde(default, skip_serializing_if = "PlanId::is_none")]
    pub last_plan: PlanId,
    /// What is being made of the circle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Conversion>,
    /// The epoch of the last conversion: slots that somebody named under an older one are others.
    #[serde(default, skip_serializing_if = "Epoch::is_zero")]
    pub converted: Epoch,
}

/// An operator's word that a member will be stopped for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Ring time of its end.
    pub until_ms: u64,
    /// Wall clock of the entry; for people.
    pub since_ms: u64,
}

/// An operator's word that something stands still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brake {
    /// Why; at most [`crate::MAX_REASON`] bytes.
    pub reason: String,
    /// Wall clock of the entry; for people.
    pub since_ms: u64,
}

/// What is known of an id, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterEntry {
    /// Highest incarnation ever given to the id.
    pub incarnation: Incarnation,
    /// The last births, newest last, at most [`crate::MAX_BIRTHS`].
    pub births: Vec<KnownBirth>,
    /// The living registration; none after the incarnation was removed or aborted.
    pub registered: Option<Registered>,
}

/// A directory that was registered once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownBirth {
    /// Drawn with the directory.
    pub birth: Birth,
    /// The life it began.
    pub incarnation: Incarnation,
    /// Its join was aborted: its data was never anybody's, and the agent may start anew.
    pub aborted: bool,
}

/// A registered directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Drawn with the directory.
    pub birth: Birth,
    /// Its life.
    pub incarnation: Incarnation,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its zone.
    pub zone: Zone,
    /// Its weight.
    pub weight: Weight,
    /// Zones that it stood in before operators moved it, the last [`crate::MAX_FORMER`]: its agent
    /// may be configured with one of them still, and is not refused for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_zones: Vec<Zone>,
    /// The same of its weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_weights: Vec<Weight>,
}

/// An accepted change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// What was asked.
    pub change: Change,
    /// How far it is.
    pub phase: ChangePhase,
    /// Part of a row: not before that one is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ChangeId>,
    /// The last transition that it was part of; none while it waits for its first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition: Option<TransitionId>,
}

/// How far a change is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangePhase {
    /// Waits to be folded into a transition.
    Queued,
    /// Part of the running transition.
    Running(TransitionId),
    /// Carried out.
    Done,
    /// Withdrawn.
    Aborted,
    /// No longer passed preflight when it was folded.
    Refused(Rejection),
}

impl ChangePhase {
    /// Nothing more happens to the change.
    #[must_use]
    pub fn ended(&self) -> bool {
        match self {
            Self::Queued | Self::Running(_) => false,
            Self::Done | Self::Aborted | Self::Refused(_) => true,
        }
    }
}

/// The running transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionState {
    /// Its number; the session's too.
    pub id: TransitionId,
    /// The changes it carries out.
    pub changes: Vec<ChangeId>,
    /// How far it is.
    pub step: Step,
    /// The epoch that entered the step.
    pub step_epoch: Epoch,
    /// Ring time when the step was entered.
    pub step_since_ms: u64,
    /// Whether an operator ended the soak.
    pub settle_now: bool,
    /// Flipping back: the change that is withdrawn with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<ChangeId>,
    /// N of the changed slots, by slot.
    pub target: BTreeMap<Slot, List>,
    /// Handles of the members that gain, and of those that leave.
    pub joining: BTreeSet<NodeId>,
    /// Members that drain.
    pub draining: BTreeSet<NodeId>,
    /// Weights that hold from its end on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<NodeId, Weight>,
    /// What else holds from its end on.
    #[serde(default, skip_serializing_if = "Afterwards::is_nothing")]
    pub afterwards: Afterwards,
    /// As published, for the old lists and for the new ones, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requorum: Option<Requorum>,
}

/// rf, w and r before a transition and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requorum {
    /// Of O.
    pub from: Replication,
    /// Of N.
    pub to: Replication,
}

/// What a transition's changes set besides lists and weights: it holds from the end on, and an
/// abort leaves it as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Afterwards {
    /// Zones of members that stay, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<NodeId, Zone>,
    /// As configured, where it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// All pins, where they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<Pins>,
}

impl Afterwards {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl TransitionState {
    /// The session of its copies.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.id.into()
    }

    /// Whether a list of the target names this member. O(changed slots x rf).
    #[must_use]
    pub fn lists(&self, member: Handle) -> bool {
        self.target.values().any(|list| list.contains(&member))
    }
}

/// A running hand-over wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wave {
    /// Its number.
    pub id: WaveId,
    /// Who seals.
    pub owner: NodeId,
    /// Who takes over.
    pub successor: NodeId,
    /// Sorted, at most [`crate::MAX_WAVE`], or [`crate::MAX_FAILOVER`] of a failover.
    pub slots: Vec<Slot>,
    /// The owner is silent: the epoch from which members refuse its reign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Epoch>,
}

/// Copies that one loser keeps from one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetainedCopies {
    /// Who.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// The session whose end made them.
    pub session: SessionId,
    /// Ring time of that end.
    pub since_ms: u64,
    /// The epoch of that end: proofs for a permit are younger.
    pub since_epoch: Epoch,
    /// Still kept, without leave to delete.
    pub kept: BTreeSet<Slot>,
    /// May be deleted; not yet reported deleted.
    pub permitted: BTreeSet<Slot>,
}

impl RingState {
    /// Old list, new list and step of a slot.
    #[must_use]
    pub fn sets(&self, slot: Slot) -> RangeSets<'_> {
        let old = self.slots.list(slot);
        match &self.transition {
            Some(transition) => match transition.target.get(&slot) {
                Some(new) => RangeSets {
                    old,
                    new,
                    step: Some(transition.step),
                },
                None => RangeSets::steady(old),
            },
            None => RangeSets::steady(old),
        }
    }

    /// rf, w and r of the old lists and of the new ones.
    #[must_use]
    pub fn quorums(&self) -> Quorums {
        let running = self.transition.as_ref();
        match running.and_then(|transition| transition.requorum) {
            Some(Requorum { from, to }) => Quorums { old: from, new: to },
            None => {
                let one = self.replication();
                Quorums { old: one, new: one }
            }
        }
    }

    /// The member with this handle.
    #[must_use]
    pub fn by_handle(&self, handle: Handle) -> Option<&Member> {
        self.members.values().find(|member| member.handle == handle)
    }

    /// Members that may hold ranges now, for the assigner and for shortfalls.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        self.members
            .values()
            .filter(|member| member.state != MemberState::Draining)
            .map(|member| Candidate {
                handle: member.handle,
                zone: member.zone.clone(),
                weight: member.weight,
            })
            .collect()
    }

    /// What is said of members that are dead, by changes that wait or run.
    pub fn burials(&self) -> impl Iterator<Item = (&NodeId, &Burial)> {
        let open = self.changes.values().filter(|one| !one.phase.ended());
        open.filter_map(|record| record.change.buries())
    }

    /// Whether an accepted change takes this member for dead.
    #[must_use]
    pub fn buried(&self, node: &NodeId) -> bool {
        self.burials().any(|(dead, _)| dead == node)
    }

    /// The pins that hold now, as the assigner takes them.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let handle = |node: &NodeId| self.members.get(node).map(|member| member.handle);
        self.pins.rules(handle)
    }

    /// The living registration of an id.
    #[must_use]
    pub fn registered(&self, node: &NodeId) -> Option<&Registered> {
        self.roster.get(node)?.registered.as_ref()
    }
}
