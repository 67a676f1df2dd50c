//! The replicated state: plain data, equal on every server at the same log index.
//!
//! Fields are public to read; only `evolve` changes them. Ordered containers only, so that the
//! serde form is byte-identical too (REPLICAS-EQUAL).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use annulus_ring::{
    Candidate, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, Incarnation, List, Member,
    MemberState, NodeId, RangeSets, RingName, SessionId, Slot, SlotTable, Step, TransitionId,
    Weight, Zone,
};
use serde::{Deserialize, Serialize};

use crate::{
    Birth, Change, ChangeId, Outcome, Plan, PlanId, Rejection, RequestId, RingConfig, WaveId,
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
    /// Nothing is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Brake>,
    /// Kept plans by number: at most [`crate::plan::MAX_PLANS`] and [`crate::plan::MAX_PLAN_BYTES`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<PlanId, Plan>,
    /// Number of the last plan stored.
    #[serde(default, skip_serializing_if = "PlanId::is_none")]
    pub last_plan: PlanId,
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
}

/// An accepted change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// What was asked.
    pub change: Change,
    /// How far it is.
    pub phase: ChangePhase,
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
}

impl TransitionState {
    /// The session of its copies.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.id.into()
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
    /// Sorted, at most [`crate::MAX_WAVE`].
    pub slots: Vec<Slot>,
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

    /// The living registration of an id.
    #[must_use]
    pub fn registered(&self, node: &NodeId) -> Option<&Registered> {
        self.roster.get(node)?.registered.as_ref()
    }
}
