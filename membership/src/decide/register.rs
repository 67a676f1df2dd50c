//! The roster: a directory gets its incarnation, a node listens elsewhere.

use annulus_ring::{Endpoint, Incarnation, NodeId};

use super::Decision;
use crate::{Event, Registered, Registration, Rejection, RingState};

pub(super) fn register(
    ring: &RingState,
    registration: &Registration,
) -> Result<Decision, Rejection> {
    let node = &registration.node;
    let entry = ring.roster.get(node);
    if let Some(known) = entry.and_then(|entry| {
        entry
            .births
            .iter()
            .find(|known| known.birth == registration.birth)
    }) {
        let living = entry.and_then(|entry| entry.registered.as_ref());
        return if living.is_some_and(|living| living.birth == registration.birth) {
            // The agent asks again: its answer was lost. The same life, nothing new.
            Ok(Decision::default())
        } else {
            Err(Rejection::RemovedIncarnation {
                node: node.clone(),
                incarnation: known.incarnation,
            })
        };
    }
    if let Some(member) = ring.members.get(node) {
        return Err(Rejection::EmptiedDirectory {
            node: node.clone(),
            endpoint: member.endpoint.clone(),
        });
    }
    free(ring, node, &registration.endpoint)?;
    let incarnation = entry
        .map_or(Incarnation(0), |entry| entry.incarnation)
        .next();
    let registered = Registered {
        birth: registration.birth,
        incarnation,
        endpoint: registration.endpoint.clone(),
        zone: registration.zone.clone(),
        weight: registration.weight,
        former_zones: Vec::new(),
        former_weights: Vec::new(),
    };
    Ok(vec![Event::Registered {
        node: node.clone(),
        registered,
    }]
    .into())
}

/// No member listens there: two behind one address would answer for each other.
fn free(ring: &RingState, node: &NodeId, endpoint: &Endpoint) -> Result<(), Rejection> {
    let taken =
        |member: &&annulus_ring::Member| member.node_id != *node && member.endpoint == *endpoint;
    match ring.members.values().find(taken) {
        None => Ok(()),
        Some(member) => Err(Rejection::EndpointTaken {
            node: node.clone(),
            endpoint: endpoint.clone(),
            by: member.node_id.clone(),
        }),
    }
}

pub(super) fn set_endpoint(
    ring: &RingState,
    node: &NodeId,
    incarnation: Incarnation,
    endpoint: &Endpoint,
) -> Result<Decision, Rejection> {
    let registered = ring
        .registered(node)
        .ok_or_else(|| Rejection::NotRegistered { node: node.clone() })?;
    if registered.incarnation != incarnation {
        return Err(Rejection::WrongIncarnation {
            node: node.clone(),
            expected: registered.incarnation,
            found: incarnation,
        });
    }
    if registered.endpoint == *endpoint {
        return Ok(Decision::default());
    }
    // Only who is no member yet: members that change places must not wait for each other.
    if !ring.members.contains_key(node) {
        free(ring, node, endpoint)?;
    }
    let event = Event::EndpointChanged {
        node: node.clone(),
        endpoint: endpoint.clone(),
    };
    Ok(vec![event].into())
}
