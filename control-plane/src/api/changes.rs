//! Operators' changes, from their messages.

use annulus_membership::{Blocked, Burial, Change, PinKind, Restart, Spans};
use annulus_proto::{convert, v1};
use annulus_ring::{NodeId, Replication, Slot};

use v1::planned_change::Change as Message;

use super::status::ApiError;

/// Slots as asked for; whether they are of the ring is the ring's business.
pub(super) fn burial(message: v1::Burial) -> Burial {
    Burial {
        lost: spans(&message.lost),
        stopped: message.stopped,
    }
}

fn spans(slots: &[v1::SlotSpan]) -> Spans {
    let span = |span: &v1::SlotSpan| (Slot(span.first), Slot(span.last));
    Spans(slots.iter().map(span).collect())
}

pub(super) fn zone(request: &v1::SetZoneRequest) -> Result<Change, ApiError> {
    Ok(Change::Zone {
        node: convert::node_id("node", &request.node)?,
        zone: convert::zone("zone", &request.zone)?,
        accept: request.accept,
    })
}

pub(super) fn drain_zone(request: &v1::DrainZoneRequest) -> Result<Change, ApiError> {
    Ok(Change::DrainZone {
        zone: convert::zone("zone", &request.zone)?,
        accept: request.accept,
    })
}

pub(super) fn replication(request: &v1::SetReplicationRequest) -> Result<Change, ApiError> {
    let small = |field: &'static str, value: u32| {
        u8::try_from(value).map_err(|_| ApiError::field(field, format!("{value}, at most 7")))
    };
    Ok(Change::Replication {
        to: Replication {
            rf: small("rf", request.rf)?,
            w: small("w", request.w)?,
            r: small("r", request.r)?,
        },
        accept: request.accept,
    })
}

pub(super) fn restart(answer: Restart, freshness: v1::Freshness) -> v1::OkToRestartResponse {
    use v1::ok_to_restart_response::{Batch, Blocked as BlockedMessage};
    let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let batch = |nodes: Vec<NodeId>| Batch {
        nodes: nodes.iter().map(ToString::to_string).collect(),
    };
    let blocked = |blocked: Blocked| BlockedMessage {
        node: blocked.node.to_string(),
        slot: blocked.slot.0,
        up: count(blocked.up),
        need: count(blocked.need),
    };
    v1::OkToRestartResponse {
        freshness: Some(freshness),
        together: answer.together,
        batches: answer.batches.into_iter().map(batch).collect(),
        blocked: answer.blocked.into_iter().map(blocked).collect(),
    }
}

pub(super) fn pin(request: &v1::PinRequest) -> Result<Change, ApiError> {
    Ok(Change::Pin {
        node: convert::node_id("node", &request.node)?,
        slots: spans(&request.slots),
        kind: if request.owner {
            PinKind::Owner
        } else {
            PinKind::Member
        },
    })
}

pub(super) fn unpin(request: &v1::UnpinRequest) -> Result<Change, ApiError> {
    Ok(Change::Unpin {
        node: convert::node_id("node", &request.node)?,
        slots: (!request.slots.is_empty()).then(|| spans(&request.slots)),
    })
}

/// A change, checked.
pub(super) fn change(message: v1::PlannedChange) -> Result<Change, ApiError> {
    let node = |node: &str| convert::node_id("changes.node", node);
    Ok(match convert::required("changes.change", message.change)? {
        Message::Join(join) => Change::Join {
            node: node(&join.node)?,
            zone: match join.zone.as_str() {
                "" => None,
                zone => Some(convert::zone("changes.zone", zone)?),
            },
            weight: join
                .weight
                .map(|weight| convert::weight("changes.weight", weight))
                .transpose()?,
        },
        Message::Drain(drain) => Change::Drain {
            node: node(&drain.node)?,
        },
        Message::Weight(weight) => Change::Weight {
            node: node(&weight.node)?,
            weight: convert::weight("changes.weight", weight.weight)?,
        },
        Message::Replace(replace) => Change::Replace {
            node: node(&replace.node)?,
            by: convert::node_id("changes.by", &replace.by)?,
            burial: None,
        },
    })
}

/// A change as it is shown.
pub(super) fn message(change: &Change) -> v1::PlannedChange {
    let message = match change {
        Change::Join { node, zone, weight } => Message::Join(v1::PlannedJoin {
            node: node.to_string(),
            zone: zone.as_ref().map(ToString::to_string).unwrap_or_default(),
            weight: weight.map(annulus_ring::Weight::get),
        }),
        Change::Drain { node } => Message::Drain(v1::PlannedDrain {
            node: node.to_string(),
        }),
        Change::Weight { node, weight } => Message::Weight(v1::PlannedWeight {
            node: node.to_string(),
            weight: weight.get(),
        }),
        Change::Replace { node, by, .. } => Message::Replace(v1::PlannedReplace {
            node: node.to_string(),
            by: by.to_string(),
        }),
        // Not planned yet: no message asks for one.
        Change::Remove { .. }
        | Change::Pin { .. }
        | Change::Unpin { .. }
        | Change::Zone { .. }
        | Change::DrainZone { .. }
        | Change::Replication { .. } => return v1::PlannedChange { change: None },
    };
    v1::PlannedChange {
        change: Some(message),
    }
}
