//! Tokens by bucket: hash to bucket to the few tokens in it, each with its list beside it.
//!
//! ```text
//!   hash  1011 0110 ..          buckets      entries, sorted by token
//!         ----                  ...          ...
//!         1011 ---------------> [11] = 40    40  | 1011 0001 | a b c |   below the hash: go on
//!                               [12] = 42    41  | 1011 1100 | b d a |   at or after it: this
//! ```
//!
//! There are between one and two buckets per token, so a lookup reads one bucket and, on
//! average, less than two entries that lie side by side. A binary search of the same tokens
//! reads log2(tokens) places that do not.

use super::cells::{Cell, LONG, SHORT};
use crate::{Handle, Token, TokenRange, ranges::RangeTable, slots::MAX_RF};

/// Most tokens of one index: 10,000 members of some 1,600 tokens each.
pub const MAX_TOKENS: usize = 1 << 24;

/// Ranges of a circle cut by tokens, laid out for lookup; immutable.
///
/// Cost of [`TokenIndex::list`]: one load of a bucket, then on average less than two entries
/// side by side; no allocation, no lock. The longest run of tokens in one bucket bounds it; for
/// hashed tokens that is O(log tokens / log log tokens).
///
/// Memory per token: 16 bytes with rf 1 to 3, 24 with rf 4 to 7, and 4 to 8 for the buckets. A
/// node of 256 tokens costs 5 to 6 KiB with rf 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIndex {
    /// Bits that a hash is shifted right by to give its bucket: 64 - log2(buckets).
    shift: u32,
    /// Place of the first token at or after each bucket's start.
    buckets: Box<[u32]>,
    entries: Entries,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entries {
    Short(Box<[Entry<SHORT>]>),
    Long(Box<[Entry<LONG>]>),
}

/// A token and the list of the range that it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Entry<const N: usize> {
    token: u64,
    list: Cell<N>,
}

/// Why ranges cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Tokens must rise, each once: of equal tokens the caller keeps the first.
    #[error("token {token:?} is not after the one before it")]
    Order {
        /// The offending token.
        token: Token,
    },
    /// A list longer than any may be.
    #[error("the range that {token:?} closes has {found} replicas, at most {MAX_RF} are allowed")]
    TooLong {
        /// Its token.
        token: Token,
        /// Replicas found.
        found: usize,
    },
    /// More tokens than [`MAX_TOKENS`].
    #[error("{found} tokens, at most {MAX_TOKENS} are allowed")]
    TooMany {
        /// Tokens found.
        found: usize,
    },
}

impl TokenIndex {
    /// Lays out ranges given by the token that closes each, in rising order, with its list,
    /// owner first. None: every lookup answers an empty list. O(tokens).
    ///
    /// # Errors
    /// [`IndexError`] for tokens that do not rise, lists that are too long, too many tokens.
    pub fn compile<'a>(
        ranges: impl ExactSizeIterator<Item = (Token, &'a [Handle])> + Clone,
    ) -> Result<Self, IndexError> {
        let found = ranges.len();
        if found > MAX_TOKENS {
            return Err(IndexError::TooMany { found });
        }
        let (mut longest, mut previous) = (0, None);
        for (token, list) in ranges.clone() {
            if previous >= Some(token) {
                return Err(IndexError::Order { token });
            }
            if list.len() > usize::from(MAX_RF) {
                let found = list.len();
                return Err(IndexError::TooLong { token, found });
            }
            previous = Some(token);
            longest = longest.max(list.len());
        }
        let entries = if longest < SHORT {
            Entries::Short(entries(ranges.clone()))
        } else {
            Entries::Long(entries(ranges.clone()))
        };
        // At least two, so that the shift stays below 64.
        let bits = found.next_power_of_two().trailing_zeros().max(1);
        let shift = u64::BITS - bits;
        let mut buckets = vec![0_u32; 1 << bits];
        // A bucket's first token is the number of tokens in all buckets before it.
        for (token, _) in ranges {
            let bucket = (token.0 >> shift) as usize;
            if let Some(next) = buckets.get_mut(bucket + 1) {
                *next += 1;
            }
        }
        let mut sum = 0;
        for bucket in &mut buckets {
            sum += *bucket;
            *bucket = sum;
        }
        Ok(Self {
            shift,
            buckets: buckets.into(),
            entries,
        })
    }

    /// Lays out the ranges of a layout of tokens, hand-overs applied ([`TokenTable::ranges`]).
    ///
    /// # Errors
    /// [`IndexError::TooMany`] alone: the table has checked the rest.
    ///
    /// [`TokenTable::ranges`]: crate::tokens::TokenTable::ranges
    pub fn of(ranges: &RangeTable) -> Result<Self, IndexError> {
        let lists = (0..ranges.len()).map(|at| (ranges.tokens()[at], ranges.list(at)));
        Self::compile(lists)
    }

    /// The list of the range that `hash` is in, owner first; empty without tokens.
    #[must_use]
    #[inline]
    pub fn list(&self, hash: u64) -> &[Handle] {
        match &self.entries {
            Entries::Short(entries) => self.find(entries, hash).list.list(),
            Entries::Long(entries) => self.find(entries, hash).list.list(),
        }
    }

    /// The range that `hash` is in; none without tokens.
    #[must_use]
    pub fn range(&self, hash: u64) -> Option<TokenRange> {
        match &self.entries {
            Entries::Short(entries) => self.range_in(entries, hash),
            Entries::Long(entries) => self.range_in(entries, hash),
        }
    }

    /// Number of ranges.
    #[must_use]
    pub fn range_count(&self) -> usize {
        match &self.entries {
            Entries::Short(entries) => entries.len() - 1,
            Entries::Long(entries) => entries.len() - 1,
        }
    }

    /// Looks up many hashes and gives each list to `each` with its place, in order: buckets of
    /// a block are read before its entries, so that their cache misses overlap.
    #[inline]
    pub fn list_batch<'a>(&'a self, hashes: &[u64], mut each: impl FnMut(usize, &'a [Handle])) {
        for (block, hashes) in hashes.chunks(super::BLOCK).enumerate() {
            let mut places = [0_u32; super::BLOCK];
            for (place, hash) in places.iter_mut().zip(hashes) {
                *place = self.buckets[(hash >> self.shift) as usize];
            }
            for (at, (hash, place)) in hashes.iter().zip(places).enumerate() {
                let list = match &self.entries {
                    Entries::Short(entries) => walk(entries, place as usize, *hash).list.list(),
                    Entries::Long(entries) => walk(entries, place as usize, *hash).list.list(),
                };
                each(block * super::BLOCK + at, list);
            }
        }
    }

    #[inline]
    fn find<'a, const N: usize>(&self, entries: &'a [Entry<N>], hash: u64) -> &'a Entry<N> {
        walk(
            entries,
            self.buckets[(hash >> self.shift) as usize] as usize,
            hash,
        )
    }

    fn range_in<const N: usize>(&self, entries: &[Entry<N>], hash: u64) -> Option<TokenRange> {
        // The last entry repeats the first range, which wraps.
        let ranges = entries.len() - 1;
        if ranges == 0 {
            return None;
        }
        let at = entries[..ranges].partition_point(|entry| entry.token < hash) % ranges;
        let before = (at + ranges - 1) % ranges;
        Some(TokenRange::new(
            Token(entries[before].token),
            Token(entries[at].token),
        ))
    }
}

/// The first entry from `place` on at or after `hash`. The last entry is at or after every
/// hash, so the walk ends there.
#[inline]
fn walk<const N: usize>(entries: &[Entry<N>], mut place: usize, hash: u64) -> &Entry<N> {
    // Two steps as sums: most walks end within them, and where is a coin's toss that a branch
    // would be wrong about every other time.
    place += usize::from(entries[place].token < hash);
    place += usize::from(entries[place].token < hash);
    while entries[place].token < hash {
        place += 1;
    }
    &entries[place]
}

/// The ranges, and the first again at the end of the circle for hashes past the last token.
fn entries<'a, const N: usize>(
    ranges: impl Iterator<Item = (Token, &'a [Handle])> + Clone,
) -> Box<[Entry<N>]> {
    let first = ranges.clone().next().map_or(&[][..], |(_, list)| list);
    ranges
        .chain([(Token(u64::MAX), first)])
        .map(|(token, list)| Entry {
            token: token.0,
            list: Cell::new(list),
        })
        .collect()
}
