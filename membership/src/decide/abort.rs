//! Withdrawing a change: from the queue, or with its transition. In steps 1 to 6 that is one entry;
//! from the switch the lists flip back first, since gainers may have answered reads.

use annulus_ring::Step;

use super::Decision;
use crate::{ChangeId, ChangePhase, Event, Rejection, RingState, bait};

pub(super) fn decide(ring: &RingState, id: ChangeId) -> Result<Decision, Rejection> {
    let record = ring
        .changes
        .get(&id)
        .ok_or(Rejection::UnknownChange { change: id })?;
    match (&record.phase, &ring.transition) {
        (ChangePhase::Queued, _) => Ok(vec![Event::ChangeWithdrawn { id }].into()),
        (ChangePhase::Running(_), Some(transition))
            if transition.step < Step::Switched || bait::on("abort-without-flip-back") =>
        {
            let mut events = Vec::new();
            if let Some(wave) = &ring.wave {
                events.push(Event::WaveAborted { wave: wave.id });
            }
            events.push(Event::TransitionAborted { change: Some(id) });
            let others: Vec<String> = transition
                .changes
                .iter()
                .filter(|other| **other != id)
                .map(ToString::to_string)
                .collect();
            let notes = if others.is_empty() {
                Vec::new()
            } else {
                vec![format!("change(s) {} wait again", others.join(", "))]
            };
            Ok(Decision { events, notes })
        }
        (ChangePhase::Running(_), Some(transition)) if transition.step == Step::Switched => {
            Ok(Decision {
                events: vec![Event::FlipBackBegun { change: id }],
                notes: vec![
                    "reads go back to the old lists now; the change is aborted when every gainer \
                     has heard it"
                        .to_owned(),
                ],
            })
        }
        (ChangePhase::Running(_), _) => Err(Rejection::FlipsBack),
        (ChangePhase::Done | ChangePhase::Aborted | ChangePhase::Refused(_), _) => {
            Err(Rejection::ChangeEnded { change: id })
        }
    }
}
