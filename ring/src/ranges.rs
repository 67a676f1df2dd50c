//! What every layout with ranges comes down to: tokens in order, each with the list of the range
//! that it closes.

use crate::{Handle, List, SlotTable, Token, TokenRange, slots::MAX_RF};

/// Who holds each range, whatever layout it came from; the common ground of [`crate::diff`].
///
/// Tokens are sorted, each once; range i is `(token i - 1, token i]`, and range 0 wraps from the
/// last token. Lists are stored flat. No tokens at all: nobody holds anything.
///
/// Memory: 8 bytes + 2 bytes x rf per range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTable {
    rf: u8,
    tokens: Vec<Token>,
    /// rf handles per token, padded at the end with [`Handle::NONE`].
    handles: Vec<Handle>,
}

/// Why ranges make no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeTableError {
    /// Tokens must rise.
    #[error("token {:016x} does not follow {:016x}: tokens are sorted, each once", .token.0, .previous.0)]
    Order {
        /// The offending token.
        token: Token,
        /// The one before it.
        previous: Token,
    },
    /// A list is longer than rf.
    #[error("token {:016x} has {found} replicas, at most {rf} are allowed", .token.0)]
    TooLong {
        /// The token that closes the range.
        token: Token,
        /// Replicas found.
        found: usize,
        /// Replicas allowed.
        rf: u8,
    },
    /// A list names a node twice, or the padding.
    #[error("token {:016x} names handle {handle} twice, or it is reserved", .token.0)]
    Handle {
        /// The token that closes the range.
        token: Token,
        /// The handle.
        handle: u16,
    },
}

impl RangeTable {
    /// A table that holds nothing: every lookup answers `None`.
    ///
    /// # Panics
    /// If `rf` is outside 1 to [`MAX_RF`]: the caller checks input.
    #[must_use]
    pub fn empty(rf: u8) -> Self {
        assert!((1..=MAX_RF).contains(&rf), "rf {rf}");
        Self {
            rf,
            tokens: Vec::new(),
            handles: Vec::new(),
        }
    }

    /// A table of closing tokens, rising, each with its list, owner first; lists may be empty.
    ///
    /// # Errors
    /// The first [`RangeTableError`] found.
    ///
    /// # Panics
    /// If `rf` is outside 1 to [`MAX_RF`].
    pub fn new<L: AsRef<[Handle]>>(
        rf: u8,
        ranges: impl IntoIterator<Item = (Token, L)>,
    ) -> Result<Self, RangeTableError> {
        let mut table = Self::empty(rf);
        for (token, list) in ranges {
            let list = list.as_ref();
            if let Some(previous) = table.tokens.last().copied()
                && previous >= token
            {
                return Err(RangeTableError::Order { token, previous });
            }
            if list.len() > usize::from(rf) {
                let found = list.len();
                return Err(RangeTableError::TooLong { token, found, rf });
            }
            if let Some(handle) = bad_handle(list) {
                return Err(RangeTableError::Handle { token, handle });
            }
            table.push(token, list);
        }
        Ok(table)
    }

    /// Appends a range whose sense the caller vouches for.
    pub(crate) fn push(&mut self, token: Token, list: &[Handle]) {
        debug_assert!(self.tokens.last().is_none_or(|last| *last < token));
        self.tokens.push(token);
        self.handles.extend_from_slice(list);
        let padded = self.tokens.len() * usize::from(self.rf);
        self.handles.resize(padded, Handle::NONE);
    }

    /// Longest list.
    #[must_use]
    pub fn rf(&self) -> u8 {
        self.rf
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether nobody holds anything because there are no ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The closing tokens, sorted, each once.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// rf handles per token, in the order of [`RangeTable::tokens`], padded at the end of each
    /// list with [`Handle::NONE`].
    #[must_use]
    pub fn padded_handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Range `at` on the circle.
    ///
    /// # Panics
    /// If there are not so many ranges.
    #[must_use]
    pub fn range(&self, at: usize) -> TokenRange {
        let before = at.checked_sub(1).unwrap_or(self.tokens.len() - 1);
        TokenRange::new(self.tokens[before], self.tokens[at])
    }

    /// The list of range `at`, owner first; may be empty.
    ///
    /// # Panics
    /// If there are not so many ranges.
    #[must_use]
    pub fn list(&self, at: usize) -> &[Handle] {
        let rf = usize::from(self.rf);
        let padded = &self.handles[at * rf..][..rf];
        let length = padded
            .iter()
            .position(|handle| *handle == Handle::NONE)
            .unwrap_or(rf);
        &padded[..length]
    }

    pub(crate) fn set(&mut self, at: usize, list: &[Handle]) {
        let rf = usize::from(self.rf);
        let padded = &mut self.handles[at * rf..][..rf];
        padded.fill(Handle::NONE);
        padded[..list.len()].copy_from_slice(list);
    }

    /// All ranges, clockwise from the one that holds hash 0, with their lists.
    pub fn iter(&self) -> impl Iterator<Item = (TokenRange, &[Handle])> {
        (0..self.len()).map(|at| (self.range(at), self.list(at)))
    }

    /// The range of a hash: the first token at or after it, past the last one the first. `None`
    /// without tokens. A binary search.
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<usize> {
        let at = self.tokens.partition_point(|token| token.0 < hash);
        match at {
            at if at < self.tokens.len() => Some(at),
            _ => (!self.is_empty()).then_some(0),
        }
    }

    /// The list of a hash, owner first; empty where nobody holds it. A binary search.
    #[must_use]
    pub fn lookup(&self, hash: u64) -> &[Handle] {
        self.find(hash).map_or(&[], |at| self.list(at))
    }

    /// The same answers with neighbours of equal lists joined: the fewest ranges.
    #[must_use]
    pub fn joined(&self) -> Self {
        let mut joined = Self::empty(self.rf);
        for at in 0..self.len() {
            let next = if at + 1 == self.len() { 0 } else { at + 1 };
            if self.list(at) != self.list(next) {
                joined.push(self.tokens[at], self.list(at));
            }
        }
        // One list all round has no border; the last token stands for it.
        if joined.is_empty()
            && let Some(last) = self.len().checked_sub(1)
        {
            joined.push(self.tokens[last], self.list(last));
        }
        joined
    }
}

/// A handle that stands in a list twice, or may not stand in one.
pub(crate) fn bad_handle(list: &[Handle]) -> Option<u16> {
    let bad =
        |(at, handle): (usize, &Handle)| *handle == Handle::NONE || list[..at].contains(handle);
    let at = list.iter().enumerate().position(bad)?;
    Some(list[at].0)
}

impl From<&SlotTable> for RangeTable {
    /// One range per slot.
    fn from(slots: &SlotTable) -> Self {
        let mut table = Self::empty(slots.rf());
        for slot in slots.slots() {
            table.push(slot.range(slots.bits()).end, slots.list(slot));
        }
        table
    }
}

/// Members of `list` that are not in `other`, in order.
pub(crate) fn without(list: &[Handle], other: &[Handle]) -> List {
    list.iter()
        .copied()
        .filter(|handle| !other.contains(handle))
        .collect()
}
