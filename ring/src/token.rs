//! The circle of u64: tokens and the ranges they close.

use std::fmt;

use serde::{Deserialize, Serialize};

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
