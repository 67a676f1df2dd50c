//! The `slots` layout: 2^k equal ranges, each with an ordered list of handles.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Handle, Token, TokenRange};

/// Fewest and most bits of a slot number.
pub const SLOT_BITS: std::ops::RangeInclusive<u8> = 1..=20;
/// Most replicas of a range.
pub const MAX_RF: u8 = 7;

/// One of 2^k equal ranges, numbered clockwise from hash 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot of `hash` among 2^`bits`: its top bits.
    #[must_use]
    #[inline]
    pub fn of(hash: u64, bits: u8) -> Self {
        // 1 <= bits <= 20 (SLOT_BITS), so the shift is in range and the result fits.
        Self((hash >> (64 - u32::from(bits))) as u32)
    }

    /// The slot as an index.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The range `(previous token, token]` that this slot is among 2^`bits`.
    #[must_use]
    pub fn range(self, bits: u8) -> TokenRange {
        let shift = 64 - u32::from(bits);
        let start = (u64::from(self.0) << shift).wrapping_sub(1);
        // The last slot ends at 2^64 - 1; the sum is taken around the circle.
        let end = start.wrapping_add(1 << shift);
        TokenRange::new(Token(start), Token(end))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range's replicas in order; the first is the owner. Empty: nobody.
pub type List = SmallVec<[Handle; 4]>;

/// How many replicas a range has, and how many of them a write and an exact read need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replication {
    /// Replicas of a range.
    pub rf: u8,
    /// Replicas that must hold a write before it is acknowledged.
    pub w: u8,
    /// Replicas that an exact read asks.
    pub r: u8,
}

/// Why a replication setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicationError {
    /// rf is 0 or more than [`MAX_RF`], or w or r is 0 or more than rf.
    #[error("replication rf={rf} w={w} r={r}: rf is 1 to 7, and w and r are 1 to rf")]
    OutOfRange {
        /// Replicas.
        rf: u8,
        /// Write quorum.
        w: u8,
        /// Read quorum.
        r: u8,
    },
    /// A read could miss an acknowledged write.
    #[error("w={w} + r={r} must be more than rf={rf}, or a read may miss an acknowledged write")]
    ReadMissesWrite {
        /// Replicas.
        rf: u8,
        /// Write quorum.
        w: u8,
        /// Read quorum.
        r: u8,
    },
    /// Two owners could both acknowledge.
    #[error("w={w} must be more than half of rf={rf}, or two owners could both acknowledge")]
    NoMajority {
        /// Replicas.
        rf: u8,
        /// Write quorum.
        w: u8,
    },
}

impl Replication {
    /// Checks the rules of the layout.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(self) -> Result<(), ReplicationError> {
        let Self { rf, w, r } = self;
        if rf == 0 || rf > MAX_RF || w == 0 || w > rf || r == 0 || r > rf {
            return Err(ReplicationError::OutOfRange { rf, w, r });
        }
        if w + r <= rf {
            return Err(ReplicationError::ReadMissesWrite { rf, w, r });
        }
        if w * 2 <= rf {
            return Err(ReplicationError::NoMajority { rf, w });
        }
        Ok(())
    }
}

/// Who holds each slot: one list of at most rf handles per slot, stored flat.
///
/// Memory: 2 bytes x rf x 2^k (98 KB for k = 14, rf 3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredTable")]
pub struct SlotTable {
    bits: u8,
    rf: u8,
    /// rf handles per slot, padded at the end with [`Handle::NONE`].
    handles: Vec<Handle>,
}

/// A table as read, before its bounds are checked.
#[derive(Deserialize)]
struct StoredTable {
    bits: u8,
    rf: u8,
    handles: Vec<Handle>,
}

impl TryFrom<StoredTable> for SlotTable {
    type Error = TableError;
    fn try_from(StoredTable { bits, rf, handles }: StoredTable) -> Result<Self, TableError> {
        let bounded = SLOT_BITS.contains(&bits) && (1..=MAX_RF).contains(&rf);
        if !bounded || handles.len() != (1 << bits) * usize::from(rf) {
            return Err(TableError {
                bits,
                rf,
                found: handles.len(),
            });
        }
        Ok(Self { bits, rf, handles })
    }
}

/// A stored table that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "slot table of k={bits} and rf={rf} with {found} handles; expected k 1 to 20, rf 1 to 7 and \
     rf x 2^k handles"
)]
struct TableError {
    bits: u8,
    rf: u8,
    found: usize,
}

impl SlotTable {
    /// A table of 2^`bits` empty lists.
    ///
    /// # Panics
    /// If `bits` is outside [`SLOT_BITS`] or `rf` outside 1 to [`MAX_RF`]: the caller checks input.
    #[must_use]
    pub fn empty(bits: u8, rf: u8) -> Self {
        assert!(
            SLOT_BITS.contains(&bits) && (1..=MAX_RF).contains(&rf),
            "bits {bits}, rf {rf}"
        );
        Self {
            bits,
            rf,
            handles: vec![Handle::NONE; (1 << bits) * usize::from(rf)],
        }
    }

    /// k: the table has 2^k slots.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Longest list.
    #[must_use]
    pub fn rf(&self) -> u8 {
        self.rf
    }

    /// Number of slots.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        1 << self.bits
    }

    /// All slots in order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..1_u32 << self.bits).map(Slot)
    }

    /// The list of `slot`, owner first. One load and a short scan.
    ///
    /// # Panics
    /// If the slot is not of this table.
    #[must_use]
    #[inline]
    pub fn list(&self, slot: Slot) -> &[Handle] {
        let rf = usize::from(self.rf);
        let padded = &self.handles[slot.index() * rf..][..rf];
        let length = padded
            .iter()
            .position(|handle| *handle == Handle::NONE)
            .unwrap_or(rf);
        &padded[..length]
    }

    /// The table of twice as many slots in which every key keeps its list: each slot is split
    /// in two. None beyond the most bits of [`SLOT_BITS`].
    #[must_use]
    pub fn split(&self) -> Option<Self> {
        let bits = self.bits + 1;
        let lists = self.handles.chunks(usize::from(self.rf));
        SLOT_BITS.contains(&bits).then(|| Self {
            bits,
            rf: self.rf,
            handles: lists
                .flat_map(|list| [list, list])
                .flatten()
                .copied()
                .collect(),
        })
    }

    /// The same lists in a table of other width; those that are longer than `rf` lose their last.
    ///
    /// # Panics
    /// If `rf` is outside 1 to [`MAX_RF`].
    #[must_use]
    pub fn resized(&self, rf: u8) -> Self {
        let mut table = Self::empty(self.bits, rf);
        for slot in self.slots() {
            let list = self.list(slot);
            table.set(slot, &list[..list.len().min(rf.into())]);
        }
        table
    }

    /// All lists, each padded to rf, in order of slot.
    pub(crate) fn flat(&self) -> &[Handle] {
        &self.handles
    }

    /// Replaces the list of `slot`.
    ///
    /// # Panics
    /// If the list is longer than rf or the slot is not of this table.
    pub fn set(&mut self, slot: Slot, list: &[Handle]) {
        let rf = usize::from(self.rf);
        assert!(
            list.len() <= rf,
            "a list of {} in a table of rf {rf}",
            list.len()
        );
        let padded = &mut self.handles[slot.index() * rf..][..rf];
        padded.fill(Handle::NONE);
        padded[..list.len()].copy_from_slice(list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_ranges_meet_at_their_tokens() {
        for bits in [1, 3, 10] {
            let count = 1_u32 << bits;
            for slot in (0..count).map(Slot) {
                let range = slot.range(bits);
                assert_eq!(Slot::of(range.end.0, bits), slot);
                assert_eq!(Slot::of(range.start.0.wrapping_add(1), bits), slot);
                let next = Slot((slot.0 + 1) % count);
                assert_eq!(range.end, next.range(bits).start);
            }
        }
    }

    #[test]
    fn a_stored_table_out_of_bounds_is_refused() {
        let table = SlotTable::empty(1, 2);
        let stored = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<SlotTable>(&stored).unwrap(), table);
        for (good, bad) in [
            ("\"bits\":1", "\"bits\":2"),
            ("\"bits\":1", "\"bits\":21"),
            ("\"rf\":2", "\"rf\":0"),
        ] {
            let error = serde_json::from_str::<SlotTable>(&stored.replace(good, bad)).unwrap_err();
            assert!(error.to_string().starts_with("slot table of k="), "{error}");
        }
    }

    #[test]
    fn replication_rules_name_what_is_wrong() {
        let rule = |rf, w, r| Replication { rf, w, r }.check();
        assert_eq!(rule(3, 2, 2), Ok(()));
        assert_eq!(rule(1, 1, 1), Ok(()));
        assert!(matches!(
            rule(3, 2, 1),
            Err(ReplicationError::ReadMissesWrite { .. })
        ));
        assert!(matches!(
            rule(4, 2, 3),
            Err(ReplicationError::NoMajority { .. })
        ));
        assert!(matches!(
            rule(0, 0, 0),
            Err(ReplicationError::OutOfRange { .. })
        ));
        assert!(matches!(
            rule(8, 8, 8),
            Err(ReplicationError::OutOfRange { .. })
        ));
    }
}
