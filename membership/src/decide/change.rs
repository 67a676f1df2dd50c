//! An operator's request: accepted (and queued) or refused at once.

use annulus_ring::Epoch;

use super::Decision;
use crate::{Change, ChangePhase, Event, MAX_QUEUE, Rejection, RingState, fold};

pub(super) fn decide(
    ring: &RingState,
    change: &Change,
    expected_layout_epoch: Option<Epoch>,
) -> Result<Decision, Rejection> {
    if let Some(expected) = expected_layout_epoch
        && expected != ring.layout_epoch
    {
        return Err(Rejection::StaleLayout {
            expected,
            found: ring.layout_epoch,
        });
    }
    let waiting = ring
        .changes
        .values()
        .filter(|record| record.phase == ChangePhase::Queued)
        .count();
    if waiting >= MAX_QUEUE {
        return Err(Rejection::QueueFull { limit: MAX_QUEUE });
    }
    let before = fold::after_queue(ring);
    fold::preflight(ring, &before, change)?;
    let mut notes = fold::price(ring, &before, change);
    if !ring.founded {
        notes.push("collected: it becomes a member when the ring is founded".to_owned());
    } else if let Some(transition) = &ring.transition {
        notes.push(format!("queued behind transition {}", transition.id));
    }
    let events = vec![Event::ChangeAccepted {
        id: ring.next_change,
        change: change.clone(),
    }];
    Ok(Decision { events, notes })
}
