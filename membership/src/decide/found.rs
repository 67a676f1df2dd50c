//! Founding: all founders to `active` in one epoch. Legal only while nobody ever owned anything.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{MemberState, NodeId, RingName, SlotChange, Zone, place::Rules};

use super::{Decision, target};
use crate::{Change, ChangePhase, Event, Founder, Rejection, RingState, fold};

pub(super) fn decide(
    name: &RingName,
    ring: &RingState,
    founders: &[Founder],
    accept: bool,
    lists: &[SlotChange],
) -> Result<Decision, Rejection> {
    if ring.founded {
        return Err(Rejection::AlreadyFounded { ring: name.clone() });
    }
    let mut nodes = BTreeSet::new();
    for founder in founders {
        let current = ring
            .registered(&founder.node)
            .ok_or_else(|| Rejection::NotRegistered {
                node: founder.node.clone(),
            })?;
        if current.incarnation != founder.incarnation {
            return Err(Rejection::FounderChanged {
                node: founder.node.clone(),
                incarnation: founder.incarnation,
            });
        }
        nodes.insert(founder.node.clone());
    }
    if nodes.is_empty() {
        return Err(Rejection::NoFounders);
    }
    let members = fold::new_members(ring, &nodes, MemberState::Active);
    let mut endpoints = BTreeMap::new();
    for member in &members {
        if let Some(by) = endpoints.insert(&member.endpoint, &member.node_id) {
            return Err(Rejection::EndpointTaken {
                node: member.node_id.clone(),
                endpoint: member.endpoint.clone(),
                by: by.clone(),
            });
        }
    }
    let weighty: Vec<_> = members
        .iter()
        .filter(|member| member.weight.get() > 0)
        .collect();
    if weighty.is_empty() {
        return Err(Rejection::NoWeight);
    }
    let rf = ring.config.replication.rf;
    let zones: BTreeSet<&Zone> = weighty.iter().map(|member| &member.zone).collect();
    let mut notes = Vec::new();
    if weighty.len() < usize::from(rf) {
        if !accept {
            return Err(Rejection::TooFewNodes {
                found: weighty.len(),
                rf,
            });
        }
        notes.push(format!(
            "founded with {} node(s) of rf {rf}: every range is short until more join",
            weighty.len()
        ));
    }
    if zones.len() < usize::from(rf) {
        if !accept {
            return Err(Rejection::TooFewZones {
                found: zones.len(),
                rf,
            });
        }
        notes.push(format!(
            "{} zone(s) for rf {rf}: the loss of one zone may take several copies of a range",
            zones.len()
        ));
    }
    target::check(ring, &target::of(&members), &Rules::default(), false, lists)?;
    let changes = ring
        .changes
        .iter()
        .filter(|(_, record)| record.phase == ChangePhase::Queued)
        .filter(|(_, record)| {
            matches!(&record.change, Change::Join { node, .. } if nodes.contains(node))
        })
        .map(|(id, _)| *id)
        .collect();
    let events = vec![Event::Founded {
        members,
        target: lists.to_vec(),
        changes,
    }];
    Ok(Decision { events, notes })
}

/// Nodes whose join was collected before founding, in order of id.
pub(crate) fn collected(ring: &RingState) -> Vec<NodeId> {
    let waiting = ring
        .changes
        .values()
        .filter(|record| record.phase == ChangePhase::Queued);
    let nodes: BTreeSet<NodeId> = waiting
        .filter_map(|record| match &record.change {
            Change::Join { node, .. } => Some(node.clone()),
            Change::Drain { .. }
            | Change::Remove { .. }
            | Change::Weight { .. }
            | Change::Replace { .. }
            | Change::Pin { .. }
            | Change::Unpin { .. }
            | Change::Zone { .. }
            | Change::DrainZone { .. }
            | Change::Replication { .. } => None,
        })
        .collect();
    nodes.into_iter().collect()
}
