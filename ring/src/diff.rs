//! What lies between two tables of ranges, whatever layouts they came from.
//!
//! Build both whole tables and compare: with zones the walk is not local, so no shortcut through
//! "the neighbours of the new token" is right.

use crate::{Handle, List, RangeTable, RangeTableError, Token, TokenRange, ranges::without};

/// A range whose list differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeChange {
    /// Which.
    pub range: TokenRange,
    /// O: its list before; empty where nobody held it.
    pub old: List,
    /// N: its list after.
    pub new: List,
}

impl RangeChange {
    /// N minus O, in the order of N: these copy the range.
    #[must_use]
    pub fn gainers(&self) -> List {
        without(&self.new, &self.old)
    }

    /// O minus N, in the order of O: these give it up.
    #[must_use]
    pub fn losers(&self) -> List {
        without(&self.old, &self.new)
    }

    /// The owner changes: a hand-over.
    #[must_use]
    pub fn owner_changes(&self) -> bool {
        self.old.first() != self.new.first()
    }

    /// Nobody gains or loses, the order alone is another; nothing is copied.
    #[must_use]
    pub fn order_only(&self) -> bool {
        self.gainers().is_empty() && self.losers().is_empty()
    }
}

/// Why changes do not fit a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Two changes speak of one hash.
    #[error("range {range} overlaps another change")]
    Overlap {
        /// The later one.
        range: TokenRange,
    },
    /// The table's list is not the change's old one.
    #[error("range {range}: the list before is not the one that the change names")]
    OtherBase {
        /// The change's range.
        range: TokenRange,
    },
    /// The result is no table.
    #[error(transparent)]
    Table(#[from] RangeTableError),
}

/// The ranges whose lists differ, clockwise by their ends, each as long as it can be: no two
/// neighbours have the same old and the same new list. O(ranges of both x rf).
#[must_use]
pub fn diff(old: &RangeTable, new: &RangeTable) -> Vec<RangeChange> {
    let ends = merged(old.tokens(), new.tokens());
    let Some(last) = ends.last().copied() else {
        return Vec::new();
    };
    let mut changes: Vec<RangeChange> = Vec::new();
    let (mut old, mut new) = (Cursor::new(old), Cursor::new(new));
    let mut start = last;
    for end in ends {
        let (before, after) = (old.advance(end), new.advance(end));
        if before != after {
            let range = TokenRange::new(start, end);
            match changes.last_mut() {
                Some(open) if open.range.end == start && same(open, before, after) => {
                    open.range.end = end;
                }
                _ => changes.push(RangeChange {
                    range,
                    old: List::from_slice(before),
                    new: List::from_slice(after),
                }),
            }
        }
        start = end;
    }
    // The range that wraps was begun first; what runs into it from behind was found last.
    if changes.len() > 1
        && let Some(tail) = changes.pop_if(|tail| tail.range.end == last)
    {
        let head = &mut changes[0];
        if head.range.start == last && same(head, &tail.old, &tail.new) {
            head.range.start = tail.range.start;
        } else {
            changes.push(tail);
        }
    }
    changes
}

/// The table after the changes: `diff(old, apply(old, diff(old, new)))` is `diff(old, new)`. Ranges
/// of equal lists are joined.
///
/// # Errors
/// [`ApplyError`]; nothing is made then.
pub fn apply(old: &RangeTable, rf: u8, changes: &[RangeChange]) -> Result<RangeTable, ApplyError> {
    let mut edges: Vec<_> = changes
        .iter()
        .flat_map(|change| [change.range.start, change.range.end])
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let ends = merged(old.tokens(), &edges);
    let mut lists: Vec<List> = ends
        .iter()
        .map(|end| List::from_slice(old.lookup(end.0)))
        .collect();
    let mut touched = vec![false; ends.len()];
    for change in changes {
        // Every edge is among the ends, so the range is whole pieces: those after its start, up
        // to the one that its end closes.
        let range = change.range;
        let after = |token: Token| ends.partition_point(|end| *end <= token);
        let (mut at, count) = (after(range.start), ends.len());
        loop {
            let piece = at % count;
            if std::mem::replace(&mut touched[piece], true) {
                return Err(ApplyError::Overlap { range });
            }
            if lists[piece] != change.old {
                return Err(ApplyError::OtherBase { range });
            }
            lists[piece].clone_from(&change.new);
            if ends[piece] == range.end {
                break;
            }
            at += 1;
        }
    }
    Ok(RangeTable::new(rf, ends.into_iter().zip(lists))?.joined())
}

/// A table read clockwise, once round.
struct Cursor<'a> {
    table: &'a RangeTable,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(table: &'a RangeTable) -> Self {
        Self { table, at: 0 }
    }

    /// The list at a token not before the last one asked for.
    fn advance(&mut self, token: Token) -> &'a [Handle] {
        let tokens = self.table.tokens();
        while tokens.get(self.at).is_some_and(|end| *end < token) {
            self.at += 1;
        }
        match self.table.len() {
            0 => &[],
            count => self.table.list(self.at % count),
        }
    }
}

fn same(change: &RangeChange, old: &[Handle], new: &[Handle]) -> bool {
    change.old.as_slice() == old && change.new.as_slice() == new
}

/// Two sorted sequences as one, each token once.
fn merged(one: &[Token], other: &[Token]) -> Vec<Token> {
    let mut both = [one, other].concat();
    // Two sorted runs: the stable sort finds and merges them in one pass.
    both.sort();
    both.dedup();
    both
}
