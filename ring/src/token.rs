//! The circle of u64: tokens and the ranges they close.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A point on the circle. It belongs to the range that it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

/// `(start, end]` on the circle, wrapping past the largest hash to 0.
///
/// `start == end` is the whole circle: a ring of one token has one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenRange {
    /// The token before the range; not in it.
    pub start: Token,
    /// The token that closes the range; in it.
    pub end: Token,
}

impl TokenRange {
    /// The range `(start, end]`.
    #[must_use]
    pub fn new(start: Token, end: Token) -> Self {
        Self { start, end }
    }

    /// Whether `hash` lies in the range. Constant time.
    #[must_use]
    pub fn contains(self, hash: u64) -> bool {
        // Distances are measured clockwise from `start`, so the wrap needs no case of its own.
        let length = self.end.0.wrapping_sub(self.start.0);
        let offset = hash.wrapping_sub(self.start.0);
        length == 0 || (offset != 0 && offset <= length)
    }

    /// How many hashes the range holds, from 1 to 2^64.
    #[must_use]
    pub fn len(self) -> u128 {
        match self.end.0.wrapping_sub(self.start.0) {
            0 => 1 << 64,
            length => u128::from(length),
        }
    }

    /// The whole circle, closed by `end`.
    #[must_use]
    pub fn whole(end: Token) -> Self {
        Self::new(end, end)
    }

    /// Cuts the range after `token`: what is up to it, and what is behind it. `None` where nothing
    /// would be behind it or it lies outside.
    #[must_use]
    pub fn split(self, token: Token) -> Option<(Self, Self)> {
        (self.contains(token.0) && token != self.end).then(|| {
            let before = Self::new(self.start, token);
            (before, Self::new(token, self.end))
        })
    }

    /// Two ranges as one, where `next` begins at the token that closes this one and they do not
    /// overlap: the inverse of [`TokenRange::split`].
    #[must_use]
    pub fn join(self, next: Self) -> Option<Self> {
        let fits = self.end == next.start && self.len() + next.len() <= 1 << 64;
        fits.then(|| Self::new(self.start, next.end))
    }

    /// What both hold: nothing, one range, or two where each runs into the other's start. In the
    /// order in which this range meets them.
    #[must_use]
    pub fn intersect(self, other: Self) -> SmallVec<[Self; 2]> {
        // A whole circle has no start at which another would have to be cut.
        match (self.start == self.end, other.start == other.end) {
            (true, _) => return SmallVec::from_slice(&[other]),
            (_, true) => return SmallVec::from_slice(&[self]),
            (false, false) => {}
        }
        // Clockwise from the start of this range: 0 < offset <= length lies within.
        let length = self.len();
        let offset = |token: Token| u128::from(token.0.wrapping_sub(self.start.0));
        let at = |offset: u128| Token(self.start.0.wrapping_add(offset as u64));
        let (from, reach) = (offset(other.start), other.len());
        let circle = 1_u128 << 64;
        // The other as one or two stretches of this range's offsets; the second has gone round.
        let stretches = [
            ((from + reach).saturating_sub(circle), 0),
            ((from + reach).min(circle), from),
        ];
        let within = |(to, from): (u128, u128)| {
            let to = to.min(length);
            (from < to).then(|| Self::new(at(from), at(to)))
        };
        stretches.into_iter().filter_map(within).collect()
    }

    /// Never: a range closes with its own token.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }
}

impl fmt::Display for TokenRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:016x},{:016x}]", self.start.0, self.end.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_the_range_it_closes() {
        let range = TokenRange::new(Token(100), Token(200));
        assert!(!range.contains(100));
        assert!(range.contains(101));
        assert!(range.contains(200));
        assert!(!range.contains(201));
    }

    #[test]
    fn a_range_wraps_past_the_largest_hash() {
        let range = TokenRange::new(Token(u64::MAX - 1), Token(5));
        assert!(!range.contains(u64::MAX - 1));
        assert!(range.contains(u64::MAX));
        assert!(range.contains(0));
        assert!(range.contains(5));
        assert!(!range.contains(6));
        assert_eq!(range.len(), 7);
    }

    #[test]
    fn one_token_closes_the_whole_circle() {
        let range = TokenRange::new(Token(7), Token(7));
        assert!(
            [0, 6, 7, 8, u64::MAX]
                .into_iter()
                .all(|hash| range.contains(hash))
        );
        assert_eq!(range.len(), 1 << 64);
    }
}
