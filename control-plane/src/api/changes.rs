//! Changes, between messages and domain values.

use annulus_membership::Change;
use annulus_proto::{convert, v1};
use v1::planned_change::Change as Message;

use super::status::ApiError;

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
        Change::Replace { node, by } => Message::Replace(v1::PlannedReplace {
            node: node.to_string(),
            by: by.to_string(),
        }),
    };
    v1::PlannedChange {
        change: Some(message),
    }
}
