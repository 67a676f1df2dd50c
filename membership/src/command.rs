//! What may be asked of the replicated state.
//!
//! Each type here is part of a wire format (log entries, in a self-describing serde form):
//! fields are added, never re-meant.

use std::fmt;

use annulus_ring::{
    Availability, ClusterId, Endpoint, Epoch, HashName, Incarnation, NodeId, Position, Replication,
    RingKind, RingName, SessionId, Slot, SlotChange, Step, TransitionId, Weight, Zone,
};
use serde::{Deserialize, Serialize};

use crate::{PinKind, PlanId, Spans, WarmUp};

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:08x}..", self.0 >> 96)
            }
        }
        // Hex, because readers of JSON that know only doubles would bend the number.
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
            }
        }
    };
}

id128!(
    /// What makes a retry harmless: the same id gets the same answer.
    RequestId
);
id128!(
    /// Drawn and synced by an agent with a new directory.
    Birth
);
id128!(
    /// Drawn at each start of an agent's process.
    Boot
);

/// Number of an accepted change within its ring, from 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ChangeId(pub u64);

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a hand-over wave within its ring, from 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WaveId(pub u64);

impl fmt::Display for WaveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One committed log entry: the leader's stamp on somebody's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Leader's wall clock in ms since 1970; never decreases in the log (`State` takes the
    /// larger of it and the last one). Shown to people, decides nothing.
    pub wall_ms: u64,
    /// Absent for what the leader proposes by itself.
    pub request_id: Option<RequestId>,
    /// What is asked.
    pub command: Command,
}

/// What a follower passes on and the leader turns into an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// See [`Entry::request_id`].
    pub request_id: Option<RequestId>,
    /// What is asked.
    pub command: Command,
}

/// A change proposed to the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Names the cluster; the first entry of a control plane, harmless when repeated.
    Init {
        /// Drawn by whoever initialises.
        cluster_id: ClusterId,
    },
    /// Raises `ring_time`.
    Tick {
        /// At most [`crate::MAX_TICK_MS`].
        elapsed_ms: u64,
    },
    /// Something about one ring.
    Ring {
        /// Which.
        ring: RingName,
        /// What.
        command: RingCommand,
    },
}

/// A command about one ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RingCommand {
    /// Publishes epoch 1, without members.
    Create {
        /// Its settings.
        config: RingConfig,
        /// Accept quorums that break `w + r > rf` or `w > rf/2`.
        accept: bool,
    },
    /// Takes all founders to `active` in one epoch.
    Found {
        /// Whom, with the evidence that each reported an empty directory on its present link.
        /// Empty: all whose join was collected.
        founders: Vec<Founder>,
        /// Accept fewer nodes than rf, or than zones for the spread.
        accept: bool,
        /// The lists, computed by the proposer; handles are given in order of node id from 0.
        target: Vec<SlotChange>,
    },
    /// An agent's greeting with an unknown birth and an empty directory.
    Register(Registration),
    /// A known agent listens elsewhere.
    SetEndpoint {
        /// Who.
        node: NodeId,
        /// In which life.
        incarnation: Incarnation,
        /// Where now.
        endpoint: Endpoint,
    },
    /// An operator's request.
    Change {
        /// What for.
        change: Change,
        /// Refused if the ring's `layout_epoch` is another.
        expected_layout_epoch: Option<Epoch>,
    },
    /// An operator's request, carried out by a row of transitions, each a part of it: a drain or
    /// another weight.
    ChangeBySteps {
        /// What for.
        change: Change,
        /// How many transitions at most, 2 to [`crate::MAX_ROW`].
        steps: u32,
        /// As for [`RingCommand::Change`].
        expected_layout_epoch: Option<Epoch>,
    },
    /// Keys are to be hashed, or the circle to be cut, in another way.
    Convert {
        /// Another hash.
        hash: Option<HashName>,
        /// Another kind of layout, by its word.
        layout: Option<String>,
        /// Every slot is split in two.
        #[serde(default, skip_serializing_if = "is_no")]
        double: bool,
    },
    /// The running conversion takes effect.
    FinishConversion {
        /// The epoch that began it.
        begun: Epoch,
        /// That every member serves nobody since, sorted by node.
        evidence: Vec<NodeEvidence>,
    },
    /// The running conversion is given up: all goes on as before.
    AbortConversion {
        /// The epoch that began it.
        begun: Epoch,
    },
    /// Folds queued changes into one transition.
    Start {
        /// The changes folded, in order of acceptance: those that wait and may go on, or some of them.
        changes: Vec<ChangeId>,
        /// The `layout_epoch` that `target` was computed on.
        base_layout_epoch: Epoch,
        /// Version of the assigner that computed it.
        assigner_version: u32,
        /// Changed slots and their new lists. Handles of joiners are as
        /// [`crate::RingState::planned_handles`] gives them.
        target: Vec<SlotChange>,
    },
    /// Takes the running transition from one step to the next.
    Advance {
        /// Which transition.
        transition: TransitionId,
        /// The step it is in.
        from_step: Step,
        /// Why it may go on.
        evidence: Evidence,
    },
    /// One wave of changes of owner.
    HandOver(HandOver),
    /// Withdraws a change: from the queue, or with its transition in steps 1 to 6.
    Abort {
        /// Which.
        change: ChangeId,
    },
    /// The running transition starts again without a node that gains and is down: a joiner, whose
    /// join is refused, or a member that is to be removed. The other changes wait again.
    Replan {
        /// Which transition.
        transition: TransitionId,
        /// Who is down.
        without: NodeId,
    },
    /// Ends the soak now.
    Settle,
    /// The leader finds a member silent for too long, or well again: clients try it last, or not.
    Availability {
        /// Who.
        node: NodeId,
        /// In which life.
        incarnation: Incarnation,
        /// From now on.
        availability: Availability,
    },
    /// A member is about to be stopped for a while: its ranges are handed over before, and its
    /// silence means nothing until the end.
    Maintain {
        /// Who.
        node: NodeId,
        /// For how long, in ms of ring time, at most [`crate::MAX_MAINTENANCE_MS`]; none: it is
        /// over.
        for_ms: Option<u64>,
        /// Accept that ranges may have fewer members up than their quorums need.
        accept: bool,
    },
    /// All movement stops where it is: no step, no wave, no copying, no deletion. Every step is
    /// safe to stay in; aborts and flips back go on.
    Pause {
        /// Why, for people; none: movement goes on.
        reason: Option<String>,
    },
    /// Nothing is deleted on this ring, however old.
    Hold {
        /// Why, for people; none: permits are given again.
        reason: Option<String>,
    },
    /// Members that stay down are removed by themselves, as far as no operator's word is needed.
    AutoRemove {
        /// After so long, in ms of the leader's clock, at least [`crate::MIN_AUTO_REMOVE_MS`]; none:
        /// never, which is the default.
        after_ms: Option<u64>,
    },
    /// Leave to delete retained copies.
    Permit {
        /// Whose copies.
        copies: CopySet,
        /// Per slot: the read set holds verified complete copies.
        evidence: Vec<SlotEvidence>,
    },
    /// Copies deleted under their permit.
    Released {
        /// Which.
        copies: CopySet,
    },
    /// Keeps what a set of changes would make of the ring; changes nothing else.
    StorePlan {
        /// What is to be changed, in order; see [`crate::plan::MAX_PLAN_CHANGES`].
        changes: Vec<Change>,
        /// The `layout_epoch` that `target` was computed on.
        base_layout_epoch: Epoch,
        /// Version of the assigner that computed it.
        assigner_version: u32,
        /// Changed slots and their new lists, as in [`RingCommand::Start`].
        target: Vec<SlotChange>,
    },
    /// Accepts all changes of a plan and starts the transition to its very target, in one epoch.
    CommitPlan {
        /// Which.
        plan: PlanId,
    },
    /// Keeps a plan no longer.
    DropPlan {
        /// Which.
        plan: PlanId,
    },
}

/// Settings of a ring. Fixed at its creation, but for the replication and what a conversion changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingConfig {
    /// k: 2^k slots.
    pub slot_bits: u8,
    /// Hash of keys.
    pub hash: HashName,
    /// Seed of the hash.
    pub seed: u64,
    /// rf, w, r.
    pub replication: Replication,
    /// How long the old lists go on getting every write after the switch, in ms of ring time.
    /// Longer: an instant way back for longer; the price is writes to both lists.
    pub soak_ms: u64,
    /// How long a loser's copy is kept after the end of a transition, in ms of ring time.
    pub grace_ms: u64,
    /// Data, or entries of a cache.
    #[serde(default, skip_serializing_if = "RingKind::is_durable")]
    pub kind: RingKind,
    /// Cache: how long gainers are filled before they are switched on. Longer: fewer misses after
    /// the switch; the price is a longer transition.
    #[serde(default, skip_serializing_if = "WarmUp::is_none")]
    pub warm_up: WarmUp,
    /// Cache: whether a node that hears nothing of the control plane goes on serving. `false`
    /// trades its hits for the certainty that it serves nothing that was invalidated elsewhere.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub serve_when_isolated: bool,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_no(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_yes(value: &bool) -> bool {
    *value
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            slot_bits: 14,
            hash: HashName::Xxh3_64,
            seed: 0,
            replication: Replication { rf: 3, w: 2, r: 2 },
            soak_ms: 10 * 60 * 1000,
            grace_ms: 24 * 60 * 60 * 1000,
            kind: RingKind::Durable,
            warm_up: WarmUp::None,
            serve_when_isolated: true,
        }
    }
}

/// A founder, with what the leader saw of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Founder {
    /// Who.
    pub node: NodeId,
    /// In which life it reported an empty directory on its present link.
    pub incarnation: Incarnation,
}

/// What an agent says of itself when it has a new directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub node: NodeId,
    /// Drawn with the directory.
    pub birth: Birth,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its zone, as configured at the agent.
    pub zone: Zone,
    /// Its weight, as configured at the agent.
    pub weight: Weight,
}

/// An operator's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Make a registered node a member.
    Join {
        /// Who.
        node: NodeId,
        /// Must agree with the registration, where given.
        zone: Option<Zone>,
        /// Must agree with the registration, where given.
        weight: Option<Weight>,
    },
    /// Move every range off a member, then let it leave.
    Drain {
        /// Who.
        node: NodeId,
    },
    /// Give a member another share; 0: it stays a member and owns nothing.
    Weight {
        /// Who.
        node: NodeId,
        /// Its share from the end of the transition on.
        weight: Weight,
    },
    /// A registered node takes the very ranges of a member of its zone, which leaves.
    Replace {
        /// Who leaves.
        node: NodeId,
        /// Who comes.
        by: NodeId,
        /// The one that leaves is dead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        burial: Option<Burial>,
    },
    /// Take a dead member out: what it held is rebuilt from the others. From acceptance on its
    /// agent is refused, and nothing waits for it.
    Remove {
        /// Who is dead.
        node: NodeId,
        /// What the operator says of it.
        burial: Burial,
    },
    /// The lists of these slots name a member, whatever balance says.
    Pin {
        /// Who.
        node: NodeId,
        /// Which slots.
        slots: Spans,
        /// Whether it owns them too.
        kind: PinKind,
    },
    /// Lifts pins to a node; balance decides again.
    Unpin {
        /// To whom.
        node: NodeId,
        /// In which slots; none: in all.
        slots: Option<Spans>,
    },
    /// A member stands in another zone: the lists are spread anew.
    Zone {
        /// Who.
        node: NodeId,
        /// Where it stands from the end of the transition on.
        zone: Zone,
        /// Accept that it gets a copy of every range, as the first of a new zone may.
        accept: bool,
    },
    /// Another number of replicas, or other quorums. Every range keeps the old w until the new
    /// lists are read by everybody.
    Replication {
        /// From the end of the transition on.
        to: Replication,
        /// Accept quorums that break `w + r > rf` or `w > rf/2`.
        accept: bool,
    },
    /// Every member of a zone leaves, in one transition.
    DrainZone {
        /// Which.
        zone: Zone,
        /// Accept that lists spread over fewer zones.
        accept: bool,
    },
}

/// What an operator says of a member that will not come back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burial {
    /// Ranges of which too few other members are up to prove that no acknowledged write is lost,
    /// quoted.
    #[serde(default, skip_serializing_if = "Spans::is_empty")]
    pub lost: Spans,
    /// The operator's word that its process is stopped, with who says so and why: stands in for
    /// the refusals that too few members can give (r = 1). At most [`crate::MAX_REASON`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl Change {
    /// The node it is about; of a replacement the one that leaves.
    #[must_use]
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Self::Join { node, .. }
            | Self::Drain { node }
            | Self::Weight { node, .. }
            | Self::Remove { node, .. }
            | Self::Replace { node, .. }
            | Self::Pin { node, .. }
            | Self::Unpin { node, .. }
            | Self::Zone { node, .. } => Some(node),
            Self::DrainZone { .. } | Self::Replication { .. } => None,
        }
    }

    /// What it is about besides the node, for people; may be empty.
    #[must_use]
    pub fn about(&self) -> String {
        match self {
            Self::Join { .. } | Self::Drain { .. } | Self::Unpin { slots: None, .. } => {
                String::new()
            }
            Self::Remove { .. } => String::new(),
            Self::Weight { weight, .. } => format!("to {weight}"),
            Self::Replace { by, .. } => format!("by {by}"),
            Self::Zone { zone, .. } => format!("to {zone}"),
            Self::DrainZone { zone, .. } => zone.to_string(),
            Self::Replication { to, .. } => format!("rf {} w {} r {}", to.rf, to.w, to.r),
            Self::Pin {
                slots,
                kind: PinKind::Member,
                ..
            }
            | Self::Unpin {
                slots: Some(slots), ..
            } => format!("slots {slots}"),
            Self::Pin {
                slots,
                kind: PinKind::Owner,
                ..
            } => format!("slots {slots} as owner"),
        }
    }

    /// Who becomes a member by it.
    #[must_use]
    pub fn joiner(&self) -> Option<&NodeId> {
        match self {
            Self::Join { node, .. } | Self::Replace { by: node, .. } => Some(node),
            Self::Drain { .. }
            | Self::Remove { .. }
            | Self::Weight { .. }
            | Self::Pin { .. }
            | Self::Unpin { .. }
            | Self::Zone { .. }
            | Self::DrainZone { .. }
            | Self::Replication { .. } => None,
        }
    }

    /// Who gives up every range by it; a zone's members are named by the ring.
    #[must_use]
    pub fn vacates(&self) -> Option<&NodeId> {
        match self {
            Self::Drain { node } | Self::Replace { node, .. } | Self::Remove { node, .. } => {
                Some(node)
            }
            Self::Weight { node, weight } if weight.get() == 0 => Some(node),
            Self::Join { .. }
            | Self::Weight { .. }
            | Self::Pin { .. }
            | Self::Unpin { .. }
            | Self::Zone { .. }
            | Self::DrainZone { .. }
            | Self::Replication { .. } => None,
        }
    }

    /// Who is dead, and what is said of it.
    #[must_use]
    pub fn buries(&self) -> Option<(&NodeId, &Burial)> {
        match self {
            Self::Remove { node, burial } => Some((node, burial)),
            Self::Replace { node, burial, .. } => Some((node, burial.as_ref()?)),
            Self::Join { .. }
            | Self::Drain { .. }
            | Self::Weight { .. }
            | Self::Pin { .. }
            | Self::Unpin { .. }
            | Self::Zone { .. }
            | Self::DrainZone { .. }
            | Self::Replication { .. } => None,
        }
    }

    /// One word, or two: "join", "drain zone".
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Join { .. } => "join",
            Self::Drain { .. } => "drain",
            Self::Weight { .. } => "weight",
            Self::Replace { .. } => "replace",
            Self::Remove { .. } => "remove",
            Self::Pin { .. } => "pin",
            Self::Unpin { .. } => "unpin",
            Self::Zone { .. } => "zone",
            Self::DrainZone { .. } => "drain zone",
            Self::Replication { .. } => "replication",
        }
    }
}

/// A hand-over wave's life: begun, then committed or aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOver {
    /// The owner is to seal these ranges.
    Begin {
        /// Who owns them now.
        owner: NodeId,
        /// Who shall.
        successor: NodeId,
        /// Sorted, at most [`crate::MAX_WAVE`].
        slots: Vec<Slot>,
    },
    /// Reorders the lists, in one epoch.
    Commit {
        /// Which wave.
        wave: WaveId,
        /// F of each slot in the wave's order, as the owner reported it after sealing.
        sealed: Vec<Position>,
        /// The same as the successor confirmed it. `decide` compares.
        confirmed: Vec<Position>,
        /// In which life the owner sealed.
        owner_incarnation: Incarnation,
        /// In which life the successor confirmed.
        successor_incarnation: Incarnation,
    },
    /// Lifts the seal, or the refusals.
    Abort {
        /// Which wave.
        wave: WaveId,
    },
    /// Failover: the owner is silent, so the members of its lists are to refuse its reign, durably.
    /// An epoch that changes the ranges for writes (story F1).
    Intend {
        /// Who owns them now, committed as down.
        owner: NodeId,
        /// Who shall.
        successor: NodeId,
        /// Sorted, at most [`crate::MAX_FAILOVER`].
        slots: Vec<Slot>,
    },
    /// The successor holds what enough members held after they refused; reorders the lists, in one
    /// epoch.
    Succeed {
        /// Which wave.
        wave: WaveId,
        /// Members that refuse the owner's reign since they adopted the intent, sorted by node.
        fenced: Vec<NodeEvidence>,
        /// Those of them whose tails the successor stored, sorted; itself not among them.
        read: Vec<NodeId>,
    },
}

/// SHA-256 root over what one side reported; see [`crate::evidence`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Root(#[serde(with = "hex32")] pub [u8; 32]);

mod hex32 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let bad = || serde::de::Error::custom("expected 64 hex digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| bad())?;
        }
        Ok(bytes)
    }
}

/// What the leader saw that lets a transition go on. `decide` checks that it is complete for the
/// state, of these incarnations and session, and that both sides agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// One per node of the step's barrier, sorted by node.
    pub nodes: Vec<NodeEvidence>,
    /// One per (source, gainer) that shares a moving range, sorted; empty where the step asks
    /// nothing of pairs.
    pub pairs: Vec<PairEvidence>,
}

/// One node's durable word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvidence {
    /// Who.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// In which session.
    pub session: SessionId,
    /// Adopted and drained.
    pub acked_epoch: Epoch,
    /// Gainer of a cache ring whose warm-up asks for it: hits of 1,000 lookups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_permille: Option<u16>,
}

/// What both ends of a copy reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairEvidence {
    /// The ranges' owner.
    pub source: NodeId,
    /// The ranges' gainer.
    pub gainer: NodeId,
    /// How many ranges.
    pub ranges: u32,
    /// Root over what the source reported of them; absent where only the gainer speaks.
    pub source_root: Option<Root>,
    /// Root over what the gainer reported of them.
    pub gainer_root: Root,
}

/// One slot whose read set holds verified complete copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotEvidence {
    /// Which.
    pub slot: Slot,
    /// The members, with life and adopted epoch, sorted by node. The owner is among them; each
    /// other's digest equalled the owner's at a cut taken since it adopted the end of the
    /// transition.
    pub members: Vec<NodeEvidence>,
}

/// Copies of one node from one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySet {
    /// Who keeps them.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// The session whose end made them retained.
    pub session: SessionId,
    /// Sorted, each once.
    pub slots: Vec<Slot>,
}
