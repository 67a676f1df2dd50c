//! Another hash, or twice as many slots: the one change that moves no range and touches all.
//!
//! ```text
//!   Convert ----> an epoch under which members serve nobody -----> FinishConversion: another epoch,
//!                       |   everyone acks it, drained              every range in a new reign
//!                       '--> 5 s later, without all acks: AbortConversion, as if nothing had been
//! ```
//!
//! Under the old coordinates a request names one range of a key, under the new ones another. So no
//! two nodes may ever serve under different ones: everybody stops, then everybody goes on. Where
//! slots are split, each child keeps the list and the records of its parent; where the hash is
//! another, which only cache rings may have, every node begins cold.

use annulus_ring::{Availability, Epoch, HashName, Slot};
use serde::{Deserialize, Serialize};

use crate::{
    NodeEvidence, Reports, RingCommand, RingState,
    due::{Gap, Missing, current},
    pins::Pins,
};

/// How long members may serve nobody before the leader gives a conversion up, in ms.
pub const CONVERSION_BUDGET_MS: u64 = 5_000;

/// How a key finds its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinates {
    /// Hash of keys; its seed stays.
    pub hash: HashName,
    /// k: 2^k slots.
    pub slot_bits: u8,
}

/// A conversion that runs: members serve nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversion {
    /// What it leads to.
    pub to: Coordinates,
    /// The epoch that began it.
    pub begun: Epoch,
    /// Wall clock of the entry; for people.
    pub since_ms: u64,
}

impl RingState {
    /// How keys find their slots now.
    #[must_use]
    pub fn coordinates(&self) -> Coordinates {
        Coordinates {
            hash: self.config.hash,
            slot_bits: self.config.slot_bits,
        }
    }

    /// The running conversion takes effect, under the epoch that is set already.
    pub(crate) fn convert(&mut self) {
        let Some(Conversion { to, .. }) = self.conversion.take() else {
            return;
        };
        if to.slot_bits > self.config.slot_bits {
            self.split();
        }
        if to.hash != self.config.hash {
            // Their entries are of keys that are looked for elsewhere now; nobody keeps them.
            self.retained.clear();
        }
        self.config.hash = to.hash;
        // Whatever was acknowledged is behind everybody; positions of a range that was split have
        // holes, so each child begins a reign.
        let slots = self.slots.slot_count();
        self.reigns = vec![self.epoch; slots];
        self.last_changes = vec![self.epoch; slots];
        // They name slots that are no more.
        self.plans.clear();
        self.layout_epoch = self.epoch;
        self.converted = self.epoch;
    }

    fn split(&mut self) {
        let Some(slots) = self.slots.split() else {
            return;
        };
        self.slots = slots;
        self.config.slot_bits += 1;
        self.pins = std::mem::take(&mut self.pins).split();
        for copies in &mut self.retained {
            for slots in [&mut copies.kept, &mut copies.permitted] {
                *slots = slots.iter().copied().flat_map(children).collect();
            }
        }
    }
}

/// The two slots that a slot is split into.
pub(crate) fn children(slot: Slot) -> [Slot; 2] {
    [Slot(2 * slot.0), Slot(2 * slot.0 + 1)]
}

/// The end of a conversion, or its abort, where one of them is due.
pub(crate) fn due(
    ring: &RingState,
    conversion: &Conversion,
    reports: &Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    let begun = conversion.begun;
    let (evidence, gaps) = gather(ring, conversion, reports);
    if gaps.is_empty() {
        return Some(RingCommand::FinishConversion { begun, evidence });
    }
    let over = reports.converting_ms(now_ms) > CONVERSION_BUDGET_MS;
    over.then_some(RingCommand::AbortConversion { begun })
}

/// Who serves nobody by now, and who is still to say so.
pub(crate) fn gather(
    ring: &RingState,
    conversion: &Conversion,
    reports: &Reports,
) -> (Vec<NodeEvidence>, Vec<Gap>) {
    let (mut evidence, mut gaps) = (Vec::new(), Vec::new());
    for node in ring.members.keys() {
        let report = current(ring, reports, node);
        let missing = match report {
            Some(report) if !report.linked => Some(Missing::Link),
            Some(report) if report.adopted < conversion.begun => {
                Some(Missing::Ack(conversion.begun))
            }
            Some(_) => None,
            None => Some(Missing::Link),
        };
        let node = node.clone();
        match (report, missing) {
            (Some(report), None) => evidence.push(NodeEvidence {
                node,
                incarnation: report.incarnation,
                session: Default::default(),
                acked_epoch: report.adopted,
                hit_permille: None,
            }),
            (_, missing) => gaps.push(Gap {
                node,
                what: missing.unwrap_or(Missing::Link),
            }),
        }
    }
    (evidence, gaps)
}

/// The first member that is not up.
pub(crate) fn absent(ring: &RingState) -> Option<&annulus_ring::NodeId> {
    let mut members = ring.members.values();
    members
        .find(|member| member.availability != Availability::Up)
        .map(|member| &member.node_id)
}

impl Pins {
    /// The same pins of a circle whose slots were split.
    fn split(self) -> Self {
        let mut pins = Self::default();
        for (slot, node, kind) in self.iter() {
            let slots = crate::Spans::of(children(slot));
            pins.add(node, &slots, kind);
        }
        pins
    }
}
