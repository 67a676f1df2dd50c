//! Maintenance: a member is about to be stopped, and everybody knows.

use annulus_ring::{Availability, NodeId};

use super::Decision;
use crate::{Event, MAX_MAINTENANCE_MS, Rejection, RingState, restart};

pub(super) fn decide(
    ring: &RingState,
    now_ms: u64,
    node: &NodeId,
    for_ms: Option<u64>,
    accept: bool,
) -> Result<Decision, Rejection> {
    if !ring.members.contains_key(node) {
        return Err(Rejection::NotMember { node: node.clone() });
    }
    let Some(for_ms) = for_ms else {
        if !ring.maintenance.contains_key(node) {
            return Err(Rejection::NotMaintained { node: node.clone() });
        }
        return Ok(set(node, None).into());
    };
    if for_ms == 0 || for_ms > MAX_MAINTENANCE_MS {
        return Err(Rejection::MaintenanceTime {
            found: for_ms,
            limit: MAX_MAINTENANCE_MS,
        });
    }
    // What the state itself knows; who is silent just now only the leader does, and says so.
    let up = |other: &NodeId| {
        let member = ring.members.get(other);
        let up = member.is_some_and(|one| one.availability == Availability::Up);
        up && !ring.maintenance.contains_key(other)
    };
    let blocked = restart::without(ring, up, node);
    let mut notes = Vec::new();
    if let Some(blocked) = blocked {
        let crate::Blocked {
            node,
            slot,
            up,
            need,
        } = blocked;
        let refused = Rejection::TooManyAway {
            node,
            slot,
            up,
            need,
        };
        if !accept {
            return Err(refused);
        }
        notes.push(refused.to_string());
    }
    notes.push(
        "its ranges are handed over first; `annulus status` says when it can be stopped".to_owned(),
    );
    let events = set(node, Some(now_ms + for_ms));
    Ok(Decision { events, notes })
}

fn set(node: &NodeId, until_ms: Option<u64>) -> Vec<Event> {
    let node = node.clone();
    vec![Event::MaintenanceSet { node, until_ms }]
}
