//! What followed from a command. Past tense; each carries all that `evolve` needs.

use std::collections::BTreeMap;

use annulus_ring::{
    Availability, ClusterId, Endpoint, List, Member, NodeId, Slot, SlotChange, Step, TransitionId,
    Weight,
};

use crate::{
    Afterwards, Change, ChangeId, Coordinates, CopySet, Plan, PlanId, Registered, Rejection,
    Requorum, RingConfig, Wave, WaveId,
};

/// A fact about the whole control plane or one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cluster has its name.
    Initialised {
        /// Which.
        cluster_id: ClusterId,
    },
    /// Ring time went on.
    Ticked {
        /// By how much.
        elapsed_ms: u64,
    },
    /// A ring exists.
    RingCreated {
        /// Its settings.
        config: RingConfig,
    },
    /// A directory has its incarnation.
    Registered {
        /// Who.
        node: NodeId,
        /// What is known of it.
        registered: Registered,
    },
    /// A node listens elsewhere.
    EndpointChanged {
        /// Who.
        node: NodeId,
        /// Where.
        endpoint: Endpoint,
    },
    /// The founders own the circle.
    Founded {
        /// The members.
        members: Vec<Member>,
        /// A list for every slot.
        target: Vec<SlotChange>,
        /// The collected joins that this carries out.
        changes: Vec<ChangeId>,
    },
    /// An operator's request waits.
    ChangeAccepted {
        /// Its number.
        id: ChangeId,
        /// What was asked.
        change: Change,
        /// Part of a row: not before that one is done.
        after: Option<ChangeId>,
    },
    /// It no longer passed preflight when folded.
    ChangeRefused {
        /// Which.
        id: ChangeId,
        /// Why.
        rejection: Rejection,
    },
    /// It was withdrawn from the queue.
    ChangeWithdrawn {
        /// Which.
        id: ChangeId,
    },
    /// Ranges are to move.
    TransitionStarted {
        /// Its number.
        id: TransitionId,
        /// What it carries out.
        changes: Vec<ChangeId>,
        /// New members, joining.
        joiners: Vec<Member>,
        /// Members that drain from now on.
        leavers: Vec<NodeId>,
        /// Weights that hold from its end on.
        weights: BTreeMap<NodeId, Weight>,
        /// What else holds from its end on.
        afterwards: Afterwards,
        /// rf, w and r as published, where they differ between the old lists and the new ones.
        requorum: Option<Requorum>,
        /// New lists of the changed slots.
        target: Vec<SlotChange>,
    },
    /// The transition is one step further.
    StepEntered {
        /// Which step.
        step: Step,
    },
    /// The transition goes back from the switch; see [`Step::FlippingBack`].
    FlipBackBegun {
        /// The change that is withdrawn at its end; the others wait again then.
        change: ChangeId,
    },
    /// The operator ended the soak.
    SettleAsked,
    /// The transition ended well; its new lists are the lists.
    Settled,
    /// The transition was undone.
    TransitionAborted {
        /// The change that was withdrawn, if one was; the others wait again.
        change: Option<ChangeId>,
    },
    /// An owner is to seal ranges.
    WaveBegun {
        /// The wave.
        wave: Wave,
    },
    /// Members are to refuse the reign of an owner that is silent.
    FailoverBegun {
        /// The wave.
        wave: Wave,
    },
    /// The successor owns them.
    WaveCommitted {
        /// The lists, successor first.
        lists: Vec<(Slot, List)>,
    },
    /// The seal is lifted.
    WaveAborted {
        /// Which.
        wave: WaveId,
    },
    /// Copies may be deleted.
    Permitted {
        /// Which.
        copies: CopySet,
    },
    /// Copies are deleted.
    Released {
        /// Which.
        copies: CopySet,
    },
    /// Clients try a member last, or no longer last.
    AvailabilityChanged {
        /// Who.
        node: NodeId,
        /// From now on.
        availability: Availability,
    },
    /// Movement stands still, or goes on.
    PauseSet {
        /// Why it stands still.
        reason: Option<String>,
    },
    /// Nothing is deleted, or things are again.
    HoldSet {
        /// Why nothing is.
        reason: Option<String>,
    },
    /// A member is being looked after, or no longer.
    MaintenanceSet {
        /// Who.
        node: NodeId,
        /// Ring time of its end.
        until_ms: Option<u64>,
    },
    /// Dead members are removed by themselves, or not.
    AutoRemoveSet {
        /// After how long.
        after_ms: Option<u64>,
    },
    /// Members are to serve nobody until the ring is converted, or is not to be.
    ConversionBegun {
        /// To what.
        to: Coordinates,
    },
    /// Keys have their new places.
    Converted,
    /// It was given up.
    ConversionAborted,
    /// A plan is kept.
    PlanStored {
        /// Its number.
        id: PlanId,
        /// The plan, not yet stamped.
        plan: Plan,
    },
    /// A plan became changes, which run.
    PlanCommitted {
        /// Which.
        id: PlanId,
        /// What it became, in its order.
        changes: Vec<ChangeId>,
    },
    /// A plan is no longer kept.
    PlanDropped {
        /// Which.
        id: PlanId,
    },
    /// A member has given everything away.
    MemberRemoved {
        /// Who.
        node: NodeId,
    },
}

impl Event {
    /// Whether a client or a data node could notice, so that a new epoch is due.
    #[must_use]
    pub fn publishes(&self, member: impl Fn(&NodeId) -> bool) -> bool {
        match self {
            Self::RingCreated { .. }
            | Self::Founded { .. }
            | Self::TransitionStarted { .. }
            | Self::StepEntered { .. }
            | Self::FlipBackBegun { .. }
            | Self::Settled
            | Self::TransitionAborted { .. }
            | Self::FailoverBegun { .. }
            | Self::WaveCommitted { .. }
            | Self::AvailabilityChanged { .. }
            | Self::ConversionBegun { .. }
            | Self::Converted
            | Self::ConversionAborted
            | Self::MemberRemoved { .. } => true,
            Self::EndpointChanged { node, .. } => member(node),
            Self::Initialised { .. }
            | Self::Ticked { .. }
            | Self::Registered { .. }
            | Self::ChangeAccepted { .. }
            | Self::ChangeRefused { .. }
            | Self::ChangeWithdrawn { .. }
            | Self::SettleAsked
            | Self::WaveBegun { .. }
            | Self::WaveAborted { .. }
            | Self::Permitted { .. }
            | Self::PauseSet { .. }
            | Self::HoldSet { .. }
            | Self::AutoRemoveSet { .. }
            | Self::MaintenanceSet { .. }
            | Self::PlanStored { .. }
            | Self::PlanCommitted { .. }
            | Self::PlanDropped { .. }
            | Self::Released { .. } => false,
        }
    }
}
