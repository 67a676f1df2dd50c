//! Removal of members that stay dead, where a ring asks for it. Off by default; one at a time; and it
//! freezes itself when so many look dead that rather the leader is cut off, or a zone is.

use std::collections::BTreeMap;

use annulus_ring::{Availability, Zone};

use crate::{Burial, Change, ChangePhase, Reports, RingCommand, RingState, fold};

/// Of one zone at most so many may be down while any is removed by itself.
const DOWN_PER_ZONE: usize = 1;
/// Of all members at most one in so many.
const DOWN_ONE_IN: usize = 4;

/// The removal of the member that is down longest, if the ring's time for it is over and nothing
/// speaks against it.
pub(super) fn due(ring: &RingState, reports: &Reports, now_ms: u64) -> Option<RingCommand> {
    let after_ms = ring.auto_remove_ms?;
    let waits = |phase: &ChangePhase| !phase.ended();
    if ring.changes.values().any(|change| waits(&change.phase)) || frozen(ring) {
        return None;
    }
    let silent = ring.members.values().filter_map(|member| {
        let down_ms = reports.down_ms(&member.node_id, now_ms)?;
        (down_ms >= after_ms).then_some((down_ms, member))
    });
    let (_, member) = silent.max_by_key(|(down_ms, _)| *down_ms)?;
    let change = Change::Remove {
        node: member.node_id.clone(),
        // Nothing is quoted and nothing vouched for: what needs an operator's word waits for one.
        burial: Burial::default(),
    };
    let expected = fold::after_queue(ring);
    fold::preflight(ring, &expected, &change).ok()?;
    Some(RingCommand::Change {
        change,
        expected_layout_epoch: Some(ring.layout_epoch),
    })
}

/// Whether too much looks dead for removing any of it without a word.
pub(crate) fn frozen(ring: &RingState) -> bool {
    let mut down: BTreeMap<&Zone, usize> = BTreeMap::new();
    let members = ring.members.values();
    for member in members.filter(|member| member.availability == Availability::Down) {
        *down.entry(&member.zone).or_default() += 1;
    }
    let all: usize = down.values().sum();
    let zone_is_down = down.values().any(|count| *count > DOWN_PER_ZONE);
    zone_is_down || all > (ring.members.len() / DOWN_ONE_IN).max(1)
}
