//! An operator's request: accepted (and queued) or refused at once.

use annulus_ring::{Epoch, Weight};

use super::Decision;
use crate::{Change, ChangeId, Event, MAX_QUEUE, MAX_ROW, Rejection, RingState, fold};

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
    let waiting = fold::queued(ring).count();
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
        after: None,
    }];
    Ok(Decision { events, notes })
}

/// The same as a row of changes, each carried out by a transition of its own.
pub(super) fn by_steps(
    ring: &RingState,
    change: &Change,
    steps: u32,
    expected_layout_epoch: Option<Epoch>,
) -> Result<Decision, Rejection> {
    // What holds for the whole holds for its parts: each takes less.
    let whole = decide(ring, change, expected_layout_epoch)?;
    if !(2..=MAX_ROW).contains(&steps) {
        return Err(Rejection::BadSteps {
            found: steps,
            limit: MAX_ROW,
        });
    }
    let row = row(ring, change, steps)?;
    let waiting = fold::queued(ring).count();
    if waiting + row.len() > MAX_QUEUE {
        return Err(Rejection::QueueFull { limit: MAX_QUEUE });
    }
    let mut notes = whole.notes;
    if row.len() > 1 {
        notes.push(format!(
            "a row of {} changes, each with a transition of its own; withdrawing one ends the row",
            row.len()
        ));
    }
    let mut after = None;
    let mut events = Vec::new();
    for (id, change) in (ring.next_change.0..).map(ChangeId).zip(row) {
        events.push(Event::ChangeAccepted { id, change, after });
        after = Some(id);
    }
    Ok(Decision { events, notes })
}

/// Weights in equal parts from what the node will have then, the change itself last.
fn row(ring: &RingState, change: &Change, steps: u32) -> Result<Vec<Change>, Rejection> {
    let (node, to) = match change {
        Change::Drain { node } => (node, 0),
        Change::Weight { node, weight } => (node, weight.get()),
        other => {
            return Err(Rejection::NoSteps {
                kind: other.kind().to_owned(),
            });
        }
    };
    let expected = fold::after_queue(ring);
    let from = expected.members.get(node).map_or(0, |one| one.1.get());
    let (from, to, steps) = (i64::from(from), i64::from(to), i64::from(steps));
    let mut row = Vec::new();
    let mut last = from;
    for step in 1..steps {
        let value = from + (to - from) * step / steps;
        let weight = u32::try_from(value).ok().and_then(Weight::new);
        if let Some(weight) = weight.filter(|_| value != last && value != to) {
            row.push(Change::Weight {
                node: node.clone(),
                weight,
            });
            last = value;
        }
    }
    row.push(change.clone());
    Ok(row)
}
