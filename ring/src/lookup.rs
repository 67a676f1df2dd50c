//! The hot path: key to hash to range to list, in one compiled immutable table.

use std::sync::Arc;

use crate::{
    Epoch, Handle, Member, RangeSets, Slot, SlotTable, Snapshot, SnapshotError, Step, TokenRange,
};

/// A snapshot that made sense, with its read lists laid out for lookup.
///
/// Cost of [`Lookup::route`]: the hash, one load from the table; no allocation, no lock.
/// Memory beside the snapshot: 2 bytes x rf x 2^k, plus 4 bytes per handle.
#[derive(Debug)]
pub struct Lookup {
    snapshot: Arc<Snapshot>,
    /// Read sets: O, or N of a changed slot from the switch on.
    read: SlotTable,
    /// Handle to place in `snapshot.members`.
    by_handle: Vec<Option<u32>>,
}

/// Why a key has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The range's list is empty: the ring is not founded, or nobody is eligible.
    #[error("epoch {epoch}: no node owns slot {slot}; found the ring or join a node with weight")]
    NoOwner {
        /// The epoch asked.
        epoch: Epoch,
        /// The slot of the key.
        slot: Slot,
    },
}

/// Where a key lives, at one epoch.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    lookup: &'a Lookup,
    /// Hash of the key.
    pub hash: u64,
    /// Its slot.
    pub slot: Slot,
    replicas: &'a [Handle],
}

impl Lookup {
    /// Checks the snapshot and lays out its table. O(slots x rf + members).
    ///
    /// # Errors
    /// [`SnapshotError`] from [`Snapshot::check`]; nothing is compiled then.
    pub fn compile(snapshot: Arc<Snapshot>) -> Result<Self, SnapshotError> {
        snapshot.check()?;
        let mut read = snapshot.layout.slots.clone();
        if let Some(transition) = &snapshot.transition
            && transition.step == Step::Switched
        {
            crate::placement::apply(&mut read, &transition.target);
        }
        let highest = snapshot
            .members
            .iter()
            .map(|member| member.handle.index())
            .max();
        let mut by_handle = vec![None; highest.map_or(0, |highest| highest + 1)];
        for (at, member) in (0_u32..).zip(&snapshot.members) {
            by_handle[member.handle.index()] = Some(at);
        }
        Ok(Self {
            snapshot,
            read,
            by_handle,
        })
    }

    /// The snapshot that was compiled.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The epoch of every answer.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.snapshot.epoch
    }

    /// The member with this handle.
    #[must_use]
    pub fn member(&self, handle: Handle) -> Option<&Member> {
        let at = (*self.by_handle.get(handle.index())?)?;
        self.snapshot.members.get(at as usize)
    }

    /// Hash of a key under this layout.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.snapshot
            .layout
            .hash
            .hash(self.snapshot.layout.seed, key)
    }

    /// The slot of a key.
    #[must_use]
    #[inline]
    pub fn slot(&self, key: &[u8]) -> Slot {
        Slot::of(self.hash(key), self.read.bits())
    }

    /// Read set of a slot, owner first; may be empty.
    #[must_use]
    #[inline]
    pub fn read_list(&self, slot: Slot) -> &[Handle] {
        self.read.list(slot)
    }

    /// Old list, new list and step of a slot.
    #[must_use]
    pub fn sets(&self, slot: Slot) -> RangeSets<'_> {
        self.snapshot.sets(slot)
    }

    /// Where `key` lives.
    ///
    /// # Errors
    /// [`LookupError::NoOwner`] where the list is empty.
    #[inline]
    pub fn route(&self, key: &[u8]) -> Result<Route<'_>, LookupError> {
        let hash = self.hash(key);
        let slot = Slot::of(hash, self.read.bits());
        let replicas = self.read.list(slot);
        if replicas.is_empty() {
            return Err(LookupError::NoOwner {
                epoch: self.epoch(),
                slot,
            });
        }
        Ok(Route {
            lookup: self,
            hash,
            slot,
            replicas,
        })
    }
}

impl<'a> Route<'a> {
    /// The epoch of this answer.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.lookup.epoch()
    }

    /// The range of the circle that the key is in.
    #[must_use]
    pub fn range(&self) -> TokenRange {
        self.slot.range(self.lookup.read.bits())
    }

    /// Handles of the read set, owner first, never empty.
    #[must_use]
    pub fn handles(&self) -> &'a [Handle] {
        self.replicas
    }

    /// The owner: first of the list.
    #[must_use]
    pub fn owner(&self) -> &'a Member {
        self.member(self.replicas[0])
    }

    /// Members of the read set, owner first.
    pub fn members(self) -> impl Iterator<Item = &'a Member> {
        self.replicas.iter().map(move |handle| self.member(*handle))
    }

    fn member(&self, handle: Handle) -> &'a Member {
        self.lookup
            .member(handle)
            .expect("Snapshot::check found a member for every listed handle")
    }
}
