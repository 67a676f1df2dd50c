//! Sets of slots as operators name them: `3, 5-7`.

use std::fmt;

use annulus_ring::Slot;
use serde::{Deserialize, Serialize};

/// Most stretches of one set.
pub const MAX_SPANS: usize = 1_024;

/// Slots as stretches from a first to a last, both in it. A well-formed set is sorted, and no
/// stretch touches the next; [`Spans::check`] says whether this one is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spans(pub Vec<(Slot, Slot)>);

impl Spans {
    /// The set of these slots, in any order.
    #[must_use]
    pub fn of(slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut slots: Vec<u32> = slots.into_iter().map(|slot| slot.0).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut spans: Vec<(Slot, Slot)> = Vec::new();
        for slot in slots {
            match spans.last_mut() {
                Some((_, last)) if last.0.checked_add(1) == Some(slot) => last.0 = slot,
                _ => spans.push((Slot(slot), Slot(slot))),
            }
        }
        Self(spans)
    }

    /// Whether no slot is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is well formed, not empty, and of a table of `slots` slots.
    #[must_use]
    pub fn check(&self, slots: usize) -> bool {
        let rises = |pair: &[(Slot, Slot)]| pair[0].1.0 < pair[1].0.0.saturating_sub(1);
        let inside = |(first, last): &(Slot, Slot)| first <= last && last.index() < slots;
        !self.0.is_empty()
            && self.0.len() <= MAX_SPANS
            && self.0.windows(2).all(rises)
            && self.0.iter().all(inside)
    }

    /// Every slot, in order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0
            .iter()
            .flat_map(|(first, last)| (first.0..=last.0).map(Slot))
    }

    /// Whether a slot is in it.
    #[must_use]
    pub fn contains(&self, slot: Slot) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= slot);
        after.checked_sub(1).is_some_and(|at| slot <= self.0[at].1)
    }

    /// All of it, however long, to be given back as it is.
    #[must_use]
    pub fn quote(&self) -> String {
        let span = |(first, last): &(Slot, Slot)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.0.iter().map(span).collect::<Vec<_>>().join(",")
    }

    /// How many slots.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0
            .iter()
            .map(|(first, last)| last.index() + 1 - first.index())
            .sum()
    }
}

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A sentence has room for a few.
        const SHOWN: usize = 8;
        for (at, (first, last)) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        if self.0.len() > SHOWN {
            write!(f, ",.. ({} slots)", self.count())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_told_as_stretches() {
        let spans = Spans::of([7, 3, 5, 6, 3].map(Slot));
        assert_eq!(spans.to_string(), "3,5-7");
        assert_eq!(spans.count(), 4);
        assert!(spans.slots().eq([3, 5, 6, 7].map(Slot)));
        assert!(spans.check(8) && !spans.check(7));
        let many = Spans::of((0..40).step_by(2).map(Slot));
        assert_eq!(many.to_string(), "0,2,4,6,8,10,12,14,.. (20 slots)");
    }

    #[test]
    fn what_is_not_sorted_apart_and_inside_is_refused() {
        let spans = |spans: &[(u32, u32)]| {
            let of = |(first, last): &(u32, u32)| (Slot(*first), Slot(*last));
            Spans(spans.iter().map(of).collect())
        };
        assert!(spans(&[(0, 1), (3, 3)]).check(4));
        for bad in [
            &[][..],
            &[(2, 1)],
            &[(0, 4)],
            &[(0, 1), (2, 3)],
            &[(0, 2), (2, 3)],
            &[(3, 3), (0, 1)],
        ] {
            assert!(!spans(bad).check(4), "{bad:?}");
        }
    }
}
