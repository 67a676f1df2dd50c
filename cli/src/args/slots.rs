//! Slots as operators write them: `3,5-7`.

use annulus_proto::v1::SlotSpan;
use annulus_ring::Slot;

/// Stretches of slots, sorted, none touching the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(pub Vec<SlotSpan>);

impl Spans {
    /// These slots and those.
    #[must_use]
    pub fn with(&self, slots: impl IntoIterator<Item = Slot>) -> Self {
        let more = slots.into_iter().map(|slot| (slot.0, slot.0));
        let all = self.0.iter().map(|span| (span.first, span.last));
        Self::of(all.chain(more).collect())
    }

    fn of(mut spans: Vec<(u32, u32)>) -> Self {
        spans.sort_unstable();
        spans.dedup_by(|next, open| {
            let touches = next.0 <= open.1.saturating_add(1);
            if touches {
                open.1 = open.1.max(next.1);
            }
            touches
        });
        let span = |(first, last)| SlotSpan { first, last };
        Self(spans.into_iter().map(span).collect())
    }
}

/// Stretches as people read them.
#[must_use]
pub fn told(spans: &[SlotSpan]) -> String {
    let span = |span: &SlotSpan| {
        if span.first == span.last {
            span.first.to_string()
        } else {
            format!("{}-{}", span.first, span.last)
        }
    };
    spans.iter().map(span).collect::<Vec<_>>().join(",")
}

/// Reads `3,5-7`, in any order.
///
/// # Errors
/// A sentence for people.
pub fn parse(text: &str) -> Result<Spans, String> {
    let slot = |text: &str| {
        text.trim()
            .parse::<u32>()
            .map_err(|_| format!("{text:?} is no slot; write numbers, such as 3,5-7"))
    };
    let mut spans = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (slot(first)?, slot(last)?);
        if first > last {
            return Err(format!("{part:?} ends before it begins"));
        }
        spans.push((first, last));
    }
    Ok(Spans::of(spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_in_any_order_and_told_sorted() {
        let read = |text: &str| parse(text).map(|spans| told(&spans.0));
        assert_eq!(read("3,5-7"), Ok("3,5-7".to_owned()));
        assert_eq!(read("7,5, 6,3"), Ok("3,5-7".to_owned()));
        assert_eq!(read("0-4,2-9,11"), Ok("0-9,11".to_owned()));
        for bad in ["", "a", "3,", "7-3", "-1", "1-2-3"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        let more = parse("4,8").expect("slots").with([Slot(5), Slot(8)]);
        assert_eq!(told(&more.0), "4-5,8");
    }
}
