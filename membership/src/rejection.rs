//! A command refused by `decide`: an answer, not a failure. Nothing was touched.

use annulus_ring::{
    AssignError, Endpoint, Epoch, Incarnation, NodeId, ReplicationError, RingName, Slot, Step,
    TransitionId, Weight, Zone,
};
use serde::{Deserialize, Serialize};

use crate::{ChangeId, WaveId};

/// Why a command was refused. The variant's name is shown to people and is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// No `Init` yet.
    #[error("the cluster is not initialised; run `annulus cluster init`")]
    NotInitialised,
    /// Another cluster id.
    #[error("the cluster is already initialised under another id")]
    AlreadyInitialised,
    /// Name is taken.
    #[error("ring {ring} exists")]
    RingExists {
        /// Which.
        ring: RingName,
    },
    /// No such ring.
    #[error("ring {ring} does not exist; `annulus ring list` shows those that do")]
    UnknownRing {
        /// Which.
        ring: RingName,
    },
    /// Too many rings.
    #[error("{limit} rings exist, which is the most one control plane serves")]
    TooManyRings {
        /// The limit.
        limit: usize,
    },
    /// k out of range.
    #[error("slot bits {found}: 1 to 18 are possible")]
    SlotBits {
        /// As asked.
        found: u8,
    },
    /// rf, w, r.
    #[error("{0}")]
    Replication(String),
    /// A setting that only caches have.
    #[error("{setting} is a setting of cache rings; create the ring with --kind cache, or without")]
    NotACache {
        /// Which.
        setting: String,
    },
    /// A share of nothing, or of more than all.
    #[error("hit ratio {found} of 1,000; it is 1 to 1,000")]
    HitRatio {
        /// As given.
        found: u16,
    },
    /// rf 1 has no replica to move from one list to another safely yet.
    #[error("a ring of rf 1 cannot move ranges yet; create it with rf 2 or more")]
    SingleReplica,
    /// Founding twice.
    #[error("ring {ring} is founded already; `annulus node join` adds a node")]
    AlreadyFounded {
        /// Which.
        ring: RingName,
    },
    /// Not founded yet.
    #[error("ring {ring} is not founded; `annulus ring found {ring}` does that")]
    NotFounded {
        /// Which.
        ring: RingName,
    },
    /// Nobody to found with.
    #[error("no node to found with: start agents, then name them or join them")]
    NoFounders,
    /// A founder that is not what the proposer saw.
    #[error("founder {node} is not registered as incarnation {incarnation}")]
    FounderChanged {
        /// Who.
        node: NodeId,
        /// As claimed.
        incarnation: Incarnation,
    },
    /// Fewer nodes than rf.
    #[error("{found} nodes with weight, rf is {rf}; --accept founds with fewer copies")]
    TooFewNodes {
        /// Nodes with weight.
        found: usize,
        /// Wanted.
        rf: u8,
    },
    /// Fewer zones than rf among the founders.
    #[error(
        "the nodes are in {found} zone(s), rf {rf} wants as many; --accept founds all the same"
    )]
    TooFewZones {
        /// Zones with weight.
        found: usize,
        /// Wanted.
        rf: u8,
    },
    /// Every weight is 0.
    #[error("every weight is 0: nobody could own anything")]
    NoWeight,
    /// The id has no registered agent.
    #[error("node {node} is not registered; start its agent with an empty directory first")]
    NotRegistered {
        /// Who.
        node: NodeId,
    },
    /// Registered, and the leader has no link to it. An answer to `ring found` only, by the leader.
    #[error("node {node} is not linked, {}; start its agent, or found without it", last_heard(*.silent_ms))]
    NotLinked {
        /// Who.
        node: NodeId,
        /// For how long nothing was heard of it, in ms; none: never, by this leader.
        silent_ms: Option<u64>,
    },
    /// Not a member.
    #[error("node {node} is not a member; `annulus node list` shows the members")]
    NotMember {
        /// Who.
        node: NodeId,
    },
    /// Already a member, or about to be.
    #[error("node {node} is a member or about to become one")]
    AlreadyMember {
        /// Who.
        node: NodeId,
    },
    /// Already leaving.
    #[error("node {node} is draining or about to")]
    AlreadyDraining {
        /// Who.
        node: NodeId,
    },
    /// A replacement takes the very ranges, so it must stand in the same zone.
    #[error("{node} is in zone {zone} and {by} in {other}; join {by} and drain {node} instead")]
    ReplacementZone {
        /// Who leaves.
        node: NodeId,
        /// Its zone.
        zone: Zone,
        /// Who comes.
        by: NodeId,
        /// Its zone.
        other: Zone,
    },
    /// It could own nothing.
    #[error("{by} has weight 0 and could take nothing over; start it with another weight")]
    ReplacementWeight {
        /// Who comes.
        by: NodeId,
    },
    /// Two nodes that give one address would answer for each other.
    #[error(
        "{node} gives the address {endpoint}, which is that of {by}; start it with another --advertise"
    )]
    EndpointTaken {
        /// Who asks.
        node: NodeId,
        /// For which address.
        endpoint: Endpoint,
        /// Whose it is.
        by: NodeId,
    },
    /// Nothing to change.
    #[error("the weight of {node} is {weight} already, or about to be")]
    SameWeight {
        /// Who.
        node: NodeId,
        /// As asked.
        weight: Weight,
    },
    /// Silent for too long.
    #[error(
        "node {node} is down; bring it back first, `annulus status` shows when it was last heard"
    )]
    NodeDown {
        /// Who.
        node: NodeId,
    },
    /// The ring stands still.
    #[error("movement is paused ({reason}); `annulus ring resume` lets it go on")]
    Paused {
        /// As the operator said.
        reason: String,
    },
    /// Nothing may be deleted.
    #[error("deletion is on hold ({reason}); `annulus ring unhold` allows it again")]
    Held {
        /// As the operator said.
        reason: String,
    },
    /// Nothing to resume.
    #[error("movement is not paused")]
    NotPaused,
    /// Nothing to lift.
    #[error("there is no hold on this ring")]
    NotHeld,
    /// Empty, too long or not printable.
    #[error("the reason is empty, not printable, or longer than {limit} bytes")]
    BadReason {
        /// Most bytes.
        limit: usize,
    },
    /// A member is in no state for this.
    #[error("node {node} is {state}; a drain needs it active")]
    NotActive {
        /// Who.
        node: NodeId,
        /// Its state.
        state: annulus_ring::MemberState,
    },
    /// Join and agent disagree.
    #[error("node {node} said zone {registered}, the join says {asked}; one of them is wrong")]
    ZoneDiffers {
        /// Who.
        node: NodeId,
        /// The agent's.
        registered: Zone,
        /// The operator's.
        asked: Zone,
    },
    /// Join and agent disagree.
    #[error("node {node} said weight {registered}, the join says {asked}; one of them is wrong")]
    WeightDiffers {
        /// Who.
        node: NodeId,
        /// The agent's.
        registered: Weight,
        /// The operator's.
        asked: Weight,
    },
    /// The agent was restarted with another zone or weight.
    #[error(
        "node {node} registered with {what} {registered}, now it says {found}: start it with what it \
         registered with; {}",
        fact_advice(what)
    )]
    FactsDiffer {
        /// Who.
        node: NodeId,
        /// "zone" or "weight".
        what: String,
        /// As registered.
        registered: String,
        /// As said now.
        found: String,
    },
    /// Data of a directory that was never registered here.
    #[error(
        "node {node}: the directory holds data but was never registered in this ring; start the \
         agent with an empty directory"
    )]
    ForeignData {
        /// Who.
        node: NodeId,
    },
    /// An emptied disk, or a copy of the id elsewhere.
    #[error(
        "node {node} is a member at {endpoint}, this directory is new: an emptied disk does not \
         hold its ranges; drain {node} and join it under another id, or give the old directory back"
    )]
    EmptiedDirectory {
        /// Who.
        node: NodeId,
        /// Where the member listens.
        endpoint: Endpoint,
    },
    /// A birth of a life that has ended.
    #[error(
        "node {node}: this directory is of incarnation {incarnation}, which was removed; start \
         the agent with an empty directory"
    )]
    RemovedIncarnation {
        /// Who.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
    },
    /// Not the life that is registered.
    #[error("node {node} is registered as incarnation {expected}, not {found}")]
    WrongIncarnation {
        /// Who.
        node: NodeId,
        /// As registered.
        expected: Incarnation,
        /// As said.
        found: Incarnation,
    },
    /// Ring is full.
    #[error("the ring has {limit} members, which is the most")]
    TooManyMembers {
        /// The limit.
        limit: usize,
    },
    /// Too many changes wait.
    #[error("{limit} changes wait already; try again when some are done")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The drain would shorten lists.
    #[error(
        "without {node} there are {left} node(s) with weight, rf is {rf}: lists would get shorter; \
         join another node first"
    )]
    ShortensLists {
        /// Who.
        node: NodeId,
        /// Nodes with weight left.
        left: usize,
        /// rf.
        rf: u8,
    },
    /// The drain would narrow the spread.
    #[error(
        "without {node} there is nobody in zone {zone}: ranges would spread over {left} zone(s) instead of \
         {now}; join a node in {zone} first"
    )]
    EmptiesZone {
        /// Who.
        node: NodeId,
        /// Its zone.
        zone: Zone,
        /// Zones with weight left.
        left: usize,
        /// Zones with weight now.
        now: usize,
    },
    /// The operator looked at an older layout.
    #[error("the layout changed: you saw layout epoch {expected}, it is {found}; look again")]
    StaleLayout {
        /// As asked.
        expected: Epoch,
        /// As is.
        found: Epoch,
    },
    /// One at a time.
    #[error("transition {transition} runs; one runs per ring")]
    TransitionRuns {
        /// Which.
        transition: TransitionId,
    },
    /// No such transition, or none.
    #[error("no transition {transition} is running")]
    NoTransition {
        /// Which.
        transition: TransitionId,
    },
    /// Nothing to settle.
    #[error("no transition is in its soak; settle ends a soak early")]
    NothingToSettle,
    /// Another step.
    #[error("the transition is at step {found}, the command expects {expected}")]
    WrongStep {
        /// As the command says.
        expected: Step,
        /// As is.
        found: Step,
    },
    /// Unknown change.
    #[error("change {change} is unknown; `annulus ring show` lists the changes")]
    UnknownChange {
        /// Which.
        change: ChangeId,
    },
    /// Ended already.
    #[error("change {change} has ended")]
    ChangeEnded {
        /// Which.
        change: ChangeId,
    },
    /// Withdrawn already, and on its way back from the switch.
    #[error(
        "the transition is flipping back already; its changes are aborted or queued at the end"
    )]
    FlipsBack,
    /// A target that cannot be.
    #[error("target refused at slot {slot}: {reason}")]
    BadTarget {
        /// Where.
        slot: Slot,
        /// What is wrong.
        reason: TargetFault,
    },
    /// Computed on another layout, by another assigner, or for other changes.
    #[error("the target was computed for another state; compute it again")]
    StaleTarget,
    /// Evidence is not what the step asks for.
    #[error("evidence refused: {reason}")]
    Evidence {
        /// What is wrong.
        reason: EvidenceFault,
    },
    /// A wave runs.
    #[error("hand-over wave {wave} runs; one runs per ring")]
    WaveRuns {
        /// Which.
        wave: WaveId,
    },
    /// No such wave.
    #[error("hand-over wave {wave} is not running")]
    NoWave {
        /// Which.
        wave: WaveId,
    },
    /// A wave that breaks a rule.
    #[error("hand-over refused at slot {slot}: {reason}")]
    BadWave {
        /// Where.
        slot: Slot,
        /// What is wrong.
        reason: WaveFault,
    },
    /// Ranges whose owner leaves are handed over first.
    #[error("{ranges} range(s) still have an owner that leaves")]
    OwnersLeave {
        /// How many.
        ranges: u32,
    },
    /// The soak runs.
    #[error("the soak has {left_ms} ms of ring time left; `annulus node settle` ends it")]
    Soaking {
        /// How long.
        left_ms: u64,
    },
    /// No such retained copy.
    #[error("node {node} keeps no copy of slot {slot} from that session")]
    NoSuchCopy {
        /// Who.
        node: NodeId,
        /// Which.
        slot: Slot,
    },
    /// Grace runs, a transition touches it, or too few copies elsewhere.
    #[error("slot {slot} may not be deleted: {reason}")]
    NotPermitted {
        /// Which.
        slot: Slot,
        /// Why not.
        reason: PermitFault,
    },
    /// Too long a tick.
    #[error("a tick of {found} ms; at most {limit}")]
    TickTooLong {
        /// As asked.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The assigner found no table.
    #[error("{0}")]
    Assign(String),
}

fn last_heard(silent_ms: Option<u64>) -> String {
    match silent_ms {
        Some(ms) => format!("last heard {} s ago", ms / 1000),
        None => "last heard by no leader since this one leads".to_owned(),
    }
}

fn fact_advice(what: &str) -> &'static str {
    if what == "weight" {
        "`annulus node weight` gives a member another weight"
    } else {
        "for another zone join a new node there and drain this one"
    }
}

/// What is wrong with a list of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TargetFault {
    /// Sorted, each once, of this table.
    #[error("slots are not sorted, unique and of this ring")]
    Order,
    /// A handle nobody has.
    #[error("unknown handle {0}")]
    UnknownHandle(u16),
    /// Twice in one list.
    #[error("handle {0} twice")]
    Twice(u16),
    /// A node without weight or that leaves.
    #[error("handle {0} may not gain ranges")]
    NotEligible(u16),
    /// Shorter than it could be.
    #[error("{found} replicas, {expected} are possible")]
    Length {
        /// As is.
        found: usize,
        /// As possible.
        expected: usize,
    },
    /// Fewer zones than it could have.
    #[error("{found} zones, {expected} are possible")]
    Spread {
        /// As is.
        found: usize,
        /// As possible.
        expected: usize,
    },
    /// The owner stays but is not first, or a new owner that did not hold the range.
    #[error("its owner must stay first, or be replaced by a member of the old list")]
    Owner,
    /// Nothing changes there.
    #[error("the list is the one it has")]
    Unchanged,
    /// A leaving node still has a list.
    #[error("handle {0} leaves, but would still hold the range")]
    StillHeld(u16),
}

/// What is wrong with evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EvidenceFault {
    /// A node of the barrier is missing, or one too many.
    #[error("nodes are not those of the barrier")]
    Nodes,
    /// Another life.
    #[error("node {0} is of another incarnation")]
    Incarnation(NodeId),
    /// Another session.
    #[error("node {0} speaks of another session")]
    Session(NodeId),
    /// Not adopted.
    #[error("node {node} acked epoch {found}, {wanted} is needed")]
    Epoch {
        /// Who.
        node: NodeId,
        /// As acked.
        found: Epoch,
        /// As needed.
        wanted: Epoch,
    },
    /// Pairs or their counts are not those of the target.
    #[error("pairs are not those of the target")]
    Pairs,
    /// The two ends disagree.
    #[error("{source_node} and {gainer} do not agree")]
    Roots {
        /// One end.
        source_node: NodeId,
        /// The other.
        gainer: NodeId,
    },
}

/// What is wrong with a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WaveFault {
    /// Sorted, unique, of this ring, 1 to 64.
    #[error("slots are not sorted, unique, of this ring, and 1 to 64")]
    Order,
    /// Not the first of the list.
    #[error("the named owner does not own it")]
    NotOwner,
    /// Not in the list.
    #[error("the successor is no member of its list")]
    NotMember,
    /// Not in the new list.
    #[error("the successor is no member of its new list")]
    NotInTarget,
    /// Only before step 2 of a range whose owner leaves, or while nothing moves.
    #[error("a running transition moves it")]
    Moving,
    /// F differs between owner and successor, is of another reign, or some are missing.
    #[error("the successor does not hold what the owner sealed")]
    NotHeld,
    /// Another life than the member's.
    #[error("sealed or confirmed in another incarnation")]
    Incarnation,
}

/// Why a copy may not be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PermitFault {
    /// Grace runs.
    #[error("its grace has {0} ms of ring time left")]
    Grace(u64),
    /// A transition touches the range.
    #[error("a transition touches the range")]
    Moving,
    /// Evidence is not of the read set, too old, or of another life.
    #[error("the read set has not all reported verified copies")]
    Unverified,
    /// Fewer copies than min(rf, nodes with weight), or narrower spread.
    #[error("too few copies elsewhere")]
    TooFew,
}

impl From<ReplicationError> for Rejection {
    fn from(error: ReplicationError) -> Self {
        let advice = match error {
            ReplicationError::OutOfRange { .. } => "",
            ReplicationError::ReadMissesWrite { .. } | ReplicationError::NoMajority { .. } => {
                "; --accept takes quorums that may lose or split writes"
            }
        };
        Self::Replication(format!("{error}{advice}"))
    }
}

impl From<AssignError> for Rejection {
    fn from(error: AssignError) -> Self {
        Self::Assign(error.to_string())
    }
}

impl Rejection {
    /// The variant's name: stable, for scripts and for `Refused.name` on the wire.
    #[must_use]
    pub fn name(&self) -> String {
        // Debug of an enum starts with its variant.
        let debug = format!("{self:?}");
        debug
            .split([' ', '(', '{'])
            .next()
            .unwrap_or_default()
            .to_owned()
    }
}
