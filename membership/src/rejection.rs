//! A command refused by `decide`: an answer, not a failure. Nothing was touched.

use annulus_ring::{
    AssignError, Endpoint, Epoch, Incarnation, NodeId, Replication, ReplicationError, RingName,
    Slot, Step, TransitionId, Weight, Zone,
};
use serde::{Deserialize, Serialize};

use crate::{ChangeId, PlanId, Spans, WaveId};

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
    #[error(
        "a ring of rf 1 cannot move ranges yet; `annulus ring replication` gives it more replicas \
         first"
    )]
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
    /// Every range has its one copy there: nobody stays to take the ranges over and to be copied
    /// from, so the replacement would wait for ever.
    #[error(
        "{node} alone holds every range, so nobody could hand over to {by}; let one more node with \
         weight join first, then replace it"
    )]
    ReplacesOnlyHolder {
        /// Who leaves.
        node: NodeId,
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
    /// Slots that are none.
    #[error(
        "slots {slots}: expected 1 to {limit} stretches of slots from 0 to {last}, sorted and apart"
    )]
    BadSlots {
        /// As asked.
        slots: Spans,
        /// Most stretches.
        limit: usize,
        /// The ring's last slot.
        last: Slot,
    },
    /// A pin to nobody.
    #[error(
        "{node} has weight 0 and holds no ranges; `annulus node weight` gives it a share first"
    )]
    PinWeight {
        /// Who.
        node: NodeId,
    },
    /// Nothing to change.
    #[error("slots {slots} are pinned to {node} like that already, or about to be")]
    SamePins {
        /// Who.
        node: NodeId,
        /// As asked.
        slots: Spans,
    },
    /// Nothing to lift.
    #[error("no such slot is pinned to {node}; `annulus ring show` lists the pins")]
    NotPinned {
        /// Who.
        node: NodeId,
    },
    /// Too many pins.
    #[error("{found} pins, at most {limit} are possible; pin fewer slots")]
    TooManyPins {
        /// With those asked for.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// Two owners.
    #[error("slot {slot} is pinned to {by} as its owner; `annulus ring unpin` lifts that first")]
    OwnerPinned {
        /// Which.
        slot: Slot,
        /// Whose.
        by: NodeId,
    },
    /// It would hold nothing, and must hold these.
    #[error(
        "slots {slots} are pinned to {node}, which would hold no ranges; `annulus ring unpin` \
         lifts the pins first"
    )]
    Pinned {
        /// To whom.
        node: NodeId,
        /// Which.
        slots: Spans,
    },
    /// Pins against rf and spread.
    #[error(
        "slot {slot} would have no place for {node} in zone {zone}, to which it is pinned: its \
         replicas are at most rf and spread over as many zones as possible; `annulus ring unpin` \
         lifts pins"
    )]
    NoRoomForPin {
        /// Which.
        slot: Slot,
        /// Pinned to whom.
        node: NodeId,
        /// Its zone.
        zone: Zone,
    },
    /// Nothing to change.
    #[error("the ring has rf {} w {} r {} already, or is about to", .to.rf, .to.w, .to.r)]
    SameReplication {
        /// As asked.
        to: Replication,
    },
    /// Fewer nodes than replicas.
    #[error("rf {rf} needs as many nodes with weight, there are {found}; join more first")]
    RfNeedsNodes {
        /// As asked.
        rf: u8,
        /// Nodes with weight.
        found: usize,
    },
    /// Nothing to change.
    #[error("{node} is in zone {zone} already, or about to be")]
    SameZone {
        /// Who.
        node: NodeId,
        /// As asked.
        zone: Zone,
    },
    /// The only one of its zone, while there are no more zones than replicas.
    #[error(
        "alone in zone {zone}, {node} would get a copy of every range; join more nodes there, or \
         --accept that"
    )]
    CarriesAll {
        /// Who.
        node: NodeId,
        /// Where.
        zone: Zone,
    },
    /// No member stands there.
    #[error("no member that stays is in zone {zone}; `annulus node list` shows the zones")]
    UnknownZone {
        /// As asked.
        zone: Zone,
    },
    /// The zone's drain would shorten lists.
    #[error(
        "without zone {zone} there are {left} node(s) with weight, rf is {rf}: lists would get \
         shorter; join nodes in other zones first"
    )]
    ZoneShortens {
        /// Which.
        zone: Zone,
        /// Nodes with weight left.
        left: usize,
        /// rf.
        rf: u8,
    },
    /// The zone's drain would narrow the spread.
    #[error(
        "without zone {zone} ranges would spread over {left} zone(s) instead of {now}; join nodes \
         in another zone first, or --accept that"
    )]
    ZoneLost {
        /// Which.
        zone: Zone,
        /// Zones with weight left.
        left: usize,
        /// Zones with weight now.
        now: usize,
    },
    /// Nobody who stays holds the range.
    #[error(
        "every replica of slot {slot} is in zone {zone}: nobody who stays could take it over; let \
         the other changes end first"
    )]
    ZoneHoldsAll {
        /// Which.
        slot: Slot,
        /// Where.
        zone: Zone,
    },
    /// Silent for too long.
    #[error(
        "node {node} is down; bring it back first, or take it out with `annulus node remove --dead` \
         if it is gone for good"
    )]
    NodeDown {
        /// Who.
        node: NodeId,
    },
    /// Only a member that is down is taken for dead.
    #[error("node {node} is not down; `annulus node drain` takes a living member out")]
    NodeUp {
        /// Who.
        node: NodeId,
    },
    /// An operator said that it is dead.
    #[error(
        "node {node} is taken for dead and will be removed; withdraw that with `annulus node abort` \
         if it is not, or start it with an empty directory once it is gone"
    )]
    TakenForDead {
        /// Who.
        node: NodeId,
    },
    /// No copy of these ranges is left that could be read.
    #[error(
        "no other member of slot(s) {slots} of {node} is up; bring one of their members back first"
    )]
    NoSurvivor {
        /// Who is dead.
        node: NodeId,
        /// Which ranges.
        slots: Spans,
    },
    /// Acknowledged writes may be gone with the dead; the operator must quote where.
    #[error(
        "of {ranges} range(s) of {node} too few other members are up to prove that no acknowledged \
         write is lost; bring another member back, or accept the loss with `--lost {}`",
        .slots.quote()
    )]
    MayLose {
        /// Who is dead.
        node: NodeId,
        /// How many ranges.
        ranges: usize,
        /// Which.
        slots: Spans,
    },
    /// Nobody can stand for its refusal of old reads but who knows that it is stopped.
    #[error(
        "too few other members of slot(s) {slots} are left to refuse reads of before in the place of \
         {node}; if its process is stopped, say so with `--stopped \"who says so, and why\"`"
    )]
    NotStopped {
        /// Who is dead.
        node: NodeId,
        /// Of which ranges.
        slots: Spans,
    },
    /// A node that is merely restarted must not be removed.
    #[error("{found} ms is too soon to take a silent node for dead by itself; at least {limit} ms")]
    AutoRemoveTooSoon {
        /// As asked, in ms.
        found: u64,
        /// At least, in ms.
        limit: u64,
    },
    /// It fell silent before it held what it was to gain.
    #[error(
        "node {node} was silent for too long while it joined; join it again when its agent runs"
    )]
    JoinerSilent {
        /// Who.
        node: NodeId,
    },
    /// Planning again ends with the switch.
    #[error("the transition is at step {step}; from the switch on `annulus node abort` flips back")]
    TooLateToReplan {
        /// Where it is.
        step: Step,
    },
    /// Without the node the target would be the same.
    #[error("node {node} is to hold nothing that could go elsewhere")]
    NothingToReplan {
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
    /// One step is no row.
    #[error("{found} steps: 2 to {limit} are possible")]
    BadSteps {
        /// As asked.
        found: u32,
        /// The limit.
        limit: u32,
    },
    /// Not everything comes in parts.
    #[error("a {kind} cannot be done by steps; a drain and another weight can")]
    NoSteps {
        /// Of what kind it is.
        kind: String,
    },
    /// Part of a row whose part before did not end well.
    #[error("change {change}, the one before it in its row, was withdrawn or refused")]
    RowBroken {
        /// Which.
        change: ChangeId,
    },
    /// A change of coordinates.
    #[error(
        "from {what}, every key would get another place: a durable ring keeps its own for life; \
         create a second ring, copy the data, and move your clients over"
    )]
    OtherCoordinates {
        /// From what to what.
        what: String,
    },
    /// No other layout is carried in snapshots.
    #[error(
        "rings are laid out in slots; `{layout}` is known to the library and to `simulate` alone"
    )]
    OnlySlots {
        /// As asked.
        layout: String,
    },
    /// Nothing to change.
    #[error("the ring has this hash and layout already")]
    SameCoordinates,
    /// Slots are not renamed under what names them.
    #[error("{what}; a conversion needs a ring at rest: wait for it, or abort it, and try again")]
    NotAtRest {
        /// What is not.
        what: String,
    },
    /// Slots get other names just now.
    #[error("the ring is being converted, which takes a moment; try again")]
    Converting,
    /// Finished, aborted, or another one.
    #[error("no conversion that began with epoch {begun} runs")]
    NotConverting {
        /// As named.
        begun: Epoch,
    },
    /// Nothing to end.
    #[error("{node} is not in maintenance")]
    NotMaintained {
        /// Who.
        node: NodeId,
    },
    /// No time, or too much.
    #[error("maintenance for {found} ms: 1 ms to {limit} ms (7 days) are possible")]
    MaintenanceTime {
        /// As asked.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many away at once.
    #[error(
        "without {node} slot {slot} has {up} member(s) that are up, {need} are needed; \
         `annulus node ok-to-restart` shows who can go together, --accept takes the risk"
    )]
    TooManyAway {
        /// Who.
        node: NodeId,
        /// A slot that would fall short.
        slot: Slot,
        /// Members of its list left up.
        up: usize,
        /// w or r, whichever is more.
        need: usize,
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
    /// A plan of nothing.
    #[error("a plan needs at least one change, such as `join n7`")]
    EmptyPlan,
    /// A plan of too much.
    #[error("a plan of {found} changes; at most {limit} go into one, make several")]
    TooManyPlanned {
        /// As asked.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The layout is about to change, or does.
    #[error(
        "{count} change(s) wait or run, the first is {first}: a plan holds for one layout only; wait \
         until they are done, or withdraw them with `annulus node abort`, then plan again"
    )]
    ChangesPending {
        /// The first of them.
        first: ChangeId,
        /// How many.
        count: usize,
    },
    /// One of its changes would wait for a transition of its own.
    #[error(
        "{change} cannot go in one transition with the changes before it; plan it by itself when \
         they are done"
    )]
    PlanSplits {
        /// Kind and node of the change.
        change: String,
    },
    /// Dropped, pushed out by newer ones, or never made.
    #[error("plan {plan} is not kept; `annulus plan list` shows those that are")]
    UnknownPlan {
        /// Which.
        plan: PlanId,
    },
    /// Twice is not once.
    #[error(
        "plan {plan} was committed already and became change {change}; see `annulus plan show`"
    )]
    PlanCommitted {
        /// Which.
        plan: PlanId,
        /// The first change that it became.
        change: ChangeId,
    },
    /// Made on another layout.
    #[error(
        "plan {plan} was made on layout epoch {planned}, the ring is at {found}: plan again, and \
         compare the two with `annulus plan diff`"
    )]
    StalePlan {
        /// Which.
        plan: PlanId,
        /// Its layout epoch.
        planned: Epoch,
        /// As is.
        found: Epoch,
    },
    /// Made with other facts about a node.
    #[error("plan {plan} counts on {node} as it had registered; it did so anew since: plan again")]
    PlanOutdated {
        /// Which.
        plan: PlanId,
        /// Who.
        node: NodeId,
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
        "`annulus node zone` moves a member to another zone"
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
    /// The replication changes, and the slot does not.
    #[error("it is not in the target, though the replication of every range changes")]
    Missing,
    /// A pin is not honoured.
    #[error("it is pinned to handle {0}, which the list lacks")]
    Unpinned(u16),
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
    /// Sorted, unique, of this ring, 1 to 64; of a failover 1 to 1,024.
    #[error("slots are not sorted, unique, of this ring, and 1 to 64 (1 to 1,024 in a failover)")]
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
    /// Failover of an owner that is not committed as down.
    #[error("the owner is not down; a living owner hands over by itself")]
    OwnerUp,
    /// Failover to a member that is committed as down.
    #[error("the successor is down")]
    SuccessorDown,
    /// A planned wave ends by what its owner sealed, a failover by what members refuse.
    #[error("the wave is of the other kind: planned, or of a silent owner")]
    OtherKind,
    /// Too few members refuse the old reign, or too few of their tails were read.
    #[error("{found} of the {needed} members that must refuse the old reign and give their tails")]
    Quorum {
        /// Members that count.
        found: u8,
        /// n - w + 1.
        needed: u8,
    },
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
