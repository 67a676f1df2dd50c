//! Failover, as the leader drives it: whose ranges need another owner, who refuses the old one
//! already, and whether the successor holds their tails.

use std::collections::BTreeMap;

use annulus_ring::{Availability, Handle, Member, NodeId, SessionId, Slot};

use super::{FAILOVER_BUDGET_MS, current};
use crate::{
    HandOver, MAX_FAILOVER, MAX_WAVE, NodeEvidence, NodeReport, Reports, RingCommand, RingState,
    Wave, Word,
    decide::{needed, successors},
};

/// Ranges of one silent owner, by who could take them over; and those that nobody can, for now.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// By successor.
    pub by_successor: BTreeMap<Handle, Vec<Slot>>,
    /// Too few members of their lists are there.
    pub stuck: Vec<Slot>,
}

/// The next failover, if an owner is down and enough others are there.
pub(super) fn due(ring: &RingState, reports: &Reports, now_ms: u64) -> Option<RingCommand> {
    if !reports.may_begin_wave(now_ms) {
        return None;
    }
    silent_owners(ring, reports, now_ms).find_map(|owner| {
        let orphans = orphans(ring, reports, owner);
        let most = |(_, slots): &(&Handle, &Vec<Slot>)| slots.len();
        let (successor, slots) = orphans.by_successor.iter().max_by_key(most)?;
        let (owner, successor) = (
            owner.node_id.clone(),
            ring.by_handle(*successor)?.node_id.clone(),
        );
        let up_to = |most| slots.iter().copied().take(most).collect();
        Some(RingCommand::HandOver(if ring.config.is_cache() {
            // Nobody is to refuse anything, and nothing is read: a change of order is all of it.
            HandOver::Begin {
                owner,
                successor,
                slots: up_to(MAX_WAVE),
            }
        } else {
            HandOver::Intend {
                owner,
                successor,
                slots: up_to(MAX_FAILOVER),
            }
        }))
    })
}

/// Members that are committed as down, not heard again, and still own something.
pub(crate) fn silent_owners<'a>(
    ring: &'a RingState,
    reports: &'a Reports,
    now_ms: u64,
) -> impl Iterator<Item = &'a Member> {
    ring.members.values().filter(move |member| {
        member.availability == Availability::Down
            && reports.word(member, now_ms) == Word::Down
            && ring
                .slots
                .slots()
                .any(|slot| ring.slots.list(slot).first() == Some(&member.handle))
    })
}

pub(crate) fn orphans(ring: &RingState, reports: &Reports, owner: &Member) -> Orphans {
    let there: BTreeMap<Handle, &NodeReport> = ring
        .members
        .values()
        .filter(|member| member.availability == Availability::Up)
        .filter_map(|member| Some((member.handle, current(ring, reports, &member.node_id)?)))
        .filter(|(_, report)| report.linked && report.unheld == 0)
        .collect();
    let mut orphans = Orphans::default();
    for slot in ring.slots.slots() {
        let list = ring.slots.list(slot);
        if list.first() != Some(&owner.handle) {
            continue;
        }
        let present = list.iter().filter(|handle| there.contains_key(handle));
        let enough = present.count() >= needed(ring, slot);
        // Who lags takes over only where nobody else can; then who has been given least.
        let choice = successors(ring, slot)
            .filter(|handle| there.contains_key(handle))
            .min_by_key(|handle| {
                let given = orphans.by_successor.get(handle).map_or(0, Vec::len);
                (there[handle].behind > 0, given)
            });
        match choice {
            Some(successor) if enough => {
                orphans
                    .by_successor
                    .entry(successor)
                    .or_default()
                    .push(slot);
            }
            _ => orphans.stuck.push(slot),
        }
    }
    orphans
}

/// Who refuses the silent owner of a failover already, as far as this leader has heard: linked, in
/// the member's life, since the intent. Sorted by node.
pub(crate) fn fenced(ring: &RingState, reports: &Reports, wave: &Wave) -> Vec<NodeEvidence> {
    let Some(intent) = wave.intent else {
        return Vec::new();
    };
    let refuses = |member: &Member| {
        let report = current(ring, reports, &member.node_id)?;
        let fenced = report.linked && report.fenced == Some(wave.id) && report.adopted >= intent;
        fenced.then(|| NodeEvidence {
            node: member.node_id.clone(),
            incarnation: member.incarnation,
            session: SessionId(0),
            acked_epoch: report.adopted,
            hit_permille: None,
        })
    };
    ring.members.values().filter_map(refuses).collect()
}

/// Whose tails the successor should store: all that refuse, once they are enough for every range.
pub(crate) fn tails(ring: &RingState, reports: &Reports, wave: &Wave) -> Option<Vec<NodeId>> {
    let fenced = fenced(ring, reports, wave);
    let handle = |node: &NodeId| ring.members.get(node).map(|member| member.handle);
    let handles: Vec<Handle> = fenced.iter().filter_map(|one| handle(&one.node)).collect();
    let enough = wave.slots.iter().all(|slot| {
        let list = ring.slots.list(*slot);
        let found = list
            .iter()
            .filter(|handle| handles.contains(handle))
            .count();
        found >= needed(ring, *slot)
    });
    let ready = enough && fenced.iter().any(|one| one.node == wave.successor);
    let others = fenced.into_iter().map(|one| one.node);
    ready.then(|| others.filter(|node| *node != wave.successor).collect())
}

pub(super) fn wave_due(
    ring: &RingState,
    wave: &Wave,
    reports: &mut Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    let succeed = |read: &[NodeId]| {
        let mut fenced = fenced(ring, reports, wave);
        fenced.retain(|one| one.node == wave.successor || read.contains(&one.node));
        HandOver::Succeed {
            wave: wave.id,
            fenced,
            read: read.to_vec(),
        }
    };
    let stored = current(ring, reports, &wave.successor)
        .and_then(|report| report.succeeded.as_ref())
        .filter(|(id, _)| *id == wave.id);
    if let Some((_, read)) = stored {
        let hand_over = succeed(read);
        // What it read from may have been told to somebody who is gone since.
        if crate::decide::hand_over_passes(ring, &hand_over) {
            return Some(RingCommand::HandOver(hand_over));
        }
    }
    reports
        .wave_ran_out(wave.id, FAILOVER_BUDGET_MS, now_ms)
        .then_some(RingCommand::HandOver(HandOver::Abort { wave: wave.id }))
}
