//! Sets of hashes, made of ranges: unions, intersections and what is left over.

use crate::{Token, TokenRange};

/// Any set of hashes, as the fewest ranges. Two equal sets are equal values.
///
/// Memory: 16 bytes per range. All operations take one pass over both sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// First and last hash of each stretch, both in it; sorted, none touching the next. A range
    /// that wraps is two stretches here.
    stretches: Vec<(u64, u64)>,
}

impl RangeSet {
    /// No hash.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Every hash.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            stretches: vec![(0, u64::MAX)],
        }
    }

    /// How many hashes, from 0 to 2^64.
    #[must_use]
    pub fn len(&self) -> u128 {
        let length = |(first, last): &(u64, u64)| u128::from(last - first) + 1;
        self.stretches.iter().map(length).sum()
    }

    /// Whether there is no hash.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Whether `hash` is in the set. A binary search.
    #[must_use]
    pub fn contains(&self, hash: u64) -> bool {
        let at = self.stretches.partition_point(|(_, last)| *last < hash);
        self.stretches
            .get(at)
            .is_some_and(|(first, _)| *first <= hash)
    }

    /// The fewest ranges that make up the set, clockwise by their ends; one that wraps comes
    /// first. The whole circle is closed by the largest token.
    #[must_use]
    pub fn ranges(&self) -> Vec<TokenRange> {
        let range = |(first, last): &(u64, u64)| {
            TokenRange::new(Token(first.wrapping_sub(1)), Token(*last))
        };
        let mut ranges: Vec<_> = self.stretches.iter().map(range).collect();
        if let [(0, head), .., (tail, u64::MAX)] = self.stretches[..] {
            ranges.pop();
            ranges[0] = TokenRange::new(Token(tail.wrapping_sub(1)), Token(head));
        }
        ranges
    }

    /// Hashes in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let both = self.stretches.iter().chain(&other.stretches);
        Self::of(both.copied().collect())
    }

    /// Hashes in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (
            self.stretches.iter().peekable(),
            other.stretches.iter().peekable(),
        );
        let mut shared = Vec::new();
        while let (Some(one), Some(two)) = (a.peek(), b.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                shared.push((first, last));
            }
            // The one that ends first has met all it can.
            let _ = if one.1 < two.1 { a.next() } else { b.next() };
        }
        Self { stretches: shared }
    }

    /// Hashes not in the set.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.stretches.len() + 1);
        let mut next = Some(0);
        for (first, last) in &self.stretches {
            if let Some(from) = next
                && from < *first
            {
                gaps.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        gaps.extend(next.map(|from| (from, u64::MAX)));
        Self { stretches: gaps }
    }

    /// Hashes of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// Sorts stretches and joins those that touch.
    fn of(mut stretches: Vec<(u64, u64)>) -> Self {
        stretches.sort_unstable();
        stretches.dedup_by(|next, open| {
            let touches = open.1.checked_add(1).is_none_or(|after| next.0 <= after);
            if touches {
                open.1 = open.1.max(next.1);
            }
            touches
        });
        Self { stretches }
    }
}

impl FromIterator<TokenRange> for RangeSet {
    /// All hashes of the ranges, which may overlap and be in any order.
    fn from_iter<I: IntoIterator<Item = TokenRange>>(ranges: I) -> Self {
        let mut stretches = Vec::new();
        for range in ranges {
            let (first, last) = (range.start.0.wrapping_add(1), range.end.0);
            if first <= last {
                stretches.push((first, last));
            } else {
                stretches.extend([(first, u64::MAX), (0, last)]);
            }
        }
        Self::of(stretches)
    }
}
