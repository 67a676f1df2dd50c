//! The hot path: key to hash to range to list, in one compiled immutable table.
//!
//! What an access costs (16-byte keys, one core, `cargo run --release -p annulus-bench -- ring
//! lookup` prints it for yours):
//!
//! | access | cost |
//! |---|---|
//! | [`Lookup::route`] on a table in hand | the hash, one load of 8 or 16 bytes |
//! | the same through a thread's cached handle (`annulus_client::Reader`) | and one load to see that the table is still the newest |
//! | the same through a shared handle (`annulus_client::Client`) | and a wait-free guard, some 15 ns |
//! | [`Lookup::lookup_batch`] | per key as `route`; cache misses of a block overlap |
//!
//! No access allocates, locks or counts. Readers keep the table by one `Arc` per thread, not
//! per key; a new snapshot is another table, and the old one goes when its last reader looks.

use std::sync::Arc;

use crate::{
    Epoch, Handle, HashName, Member, RangeSets, Slot, SlotTable, Snapshot, SnapshotError, Step,
    TokenRange,
};

mod cells;
mod index;

use cells::Cells;
pub use index::{IndexError, MAX_TOKENS, TokenIndex};

/// Keys of a batch that are hashed before the first of them is looked up: enough for every
/// cache miss that a core can have open, few enough to stay in registers and the first cache.
const BLOCK: usize = 32;

/// A snapshot that made sense, with its read lists laid out for lookup.
///
/// Cost of [`Lookup::route`]: the hash, one load from the table; no allocation, no lock.
/// Memory beside the snapshot: 8 bytes x 2^k with rf 1 to 3, 16 with rf 4 to 7 (128 KiB for
/// k = 14, rf 3), plus 4 bytes per handle up to the highest.
#[derive(Clone, Debug)]
pub struct Lookup {
    // What the hot path needs is here and not behind the snapshot's pointer.
    hash: HashName,
    bits: u8,
    seed: u64,
    /// Read sets: O, or N of a changed slot from the switch on.
    read: Cells,
    snapshot: Arc<Snapshot>,
    /// Handle to place in `snapshot.members`; [`NOBODY`] for a handle that no member has.
    by_handle: Box<[u32]>,
}

/// No member's place.
const NOBODY: u32 = u32::MAX;

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
        let table = &snapshot.layout.slots;
        let mut read = Cells::new(
            longest(&snapshot),
            table.slots().map(|slot| table.list(slot)),
        );
        for change in switched(&snapshot) {
            read.set(change.slot.index(), &change.to);
        }
        Ok(Self::around(snapshot, read))
    }

    /// The table of a later snapshot of the same ring, made from this one: only lists that
    /// differ are checked and laid out again. Equal to compiling the snapshot, whatever it is.
    ///
    /// Cost: two passes of comparing and copying (2 bytes x rf and 8 or 16 bytes per slot),
    /// O(members), O(rf) per changed list. A snapshot of another k or rf, or one that lost a
    /// member, costs as much as [`Lookup::compile`].
    ///
    /// # Errors
    /// As [`Lookup::compile`].
    pub fn updated(&self, snapshot: Arc<Snapshot>) -> Result<Self, SnapshotError> {
        let (old, new) = (&self.snapshot.layout.slots, &snapshot.layout.slots);
        let shape = |table: &SlotTable, snapshot| (table.bits(), table.rf(), longest(snapshot));
        if shape(old, &self.snapshot) != shape(new, &snapshot) {
            return Self::compile(snapshot);
        }
        let changed = changed(old, new);
        snapshot.check_after(&self.snapshot, &changed)?;
        let mut read = self.read.clone();
        // What was read in N and is not any more, then what O says now, then what is read in N.
        for change in switched(&self.snapshot) {
            read.set(change.slot.index(), new.list(change.slot));
        }
        for slot in changed {
            read.set(slot.index(), new.list(slot));
        }
        for change in switched(&snapshot) {
            read.set(change.slot.index(), &change.to);
        }
        Ok(Self::around(snapshot, read))
    }

    fn around(snapshot: Arc<Snapshot>, read: Cells) -> Self {
        let highest = snapshot
            .members
            .iter()
            .map(|member| member.handle.index())
            .max();
        let mut by_handle = vec![NOBODY; highest.map_or(0, |highest| highest + 1)];
        for (at, member) in (0_u32..).zip(&snapshot.members) {
            by_handle[member.handle.index()] = at;
        }
        let layout = &snapshot.layout;
        Self {
            hash: layout.hash,
            bits: layout.slots.bits(),
            seed: layout.seed,
            read,
            by_handle: by_handle.into(),
            snapshot,
        }
    }

    /// Whether both answer every key alike, at the same epoch with the same members.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.read == other.read
            && self.by_handle == other.by_handle
            && self.snapshot == other.snapshot
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
        let at = *self.by_handle.get(handle.index())?;
        // `NOBODY` is beyond any member.
        self.snapshot.members.get(at as usize)
    }

    /// Hash of a key under this layout.
    #[must_use]
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        // The default is part of the caller's loop (always: called, a lookup took 11 ns instead
        // of 5). The others are called, as their bodies would only crowd it.
        match self.hash {
            HashName::Xxh3_64 => HashName::Xxh3_64.hash(self.seed, key),
            other => called(other, self.seed, key),
        }
    }

    /// The slot of a key.
    #[must_use]
    #[inline]
    pub fn slot(&self, key: &[u8]) -> Slot {
        Slot::of(self.hash(key), self.bits)
    }

    /// Read set of a slot, owner first; may be empty.
    #[must_use]
    #[inline]
    pub fn read_list(&self, slot: Slot) -> &[Handle] {
        self.read.list(slot.index())
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
    #[inline(always)]
    pub fn route(&self, key: &[u8]) -> Result<Route<'_>, LookupError> {
        self.route_hash(self.hash(key))
    }

    /// Where the keys of this hash live.
    ///
    /// # Errors
    /// As [`Lookup::route`].
    #[inline(always)]
    pub fn route_hash(&self, hash: u64) -> Result<Route<'_>, LookupError> {
        let slot = Slot::of(hash, self.bits);
        let replicas = self.read.list(slot.index());
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

    /// Where many keys live: `each` gets the place of a key and its answer, in order.
    ///
    /// All are answered from this one table. A block of keys is hashed before the first of
    /// them is looked up, so that the cache misses of large tables overlap.
    ///
    /// ```
    /// # fn owners(lookup: &annulus_ring::Lookup) {
    /// let keys = ["user:1", "user:2", "user:3"];
    /// let mut owners = vec![None; keys.len()];
    /// lookup.lookup_batch(&keys, |at, route| {
    ///     owners[at] = route.ok().map(|route| route.owner().node_id.clone());
    /// });
    /// # }
    /// ```
    #[inline]
    pub fn lookup_batch<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        mut each: impl FnMut(usize, Result<Route<'a>, LookupError>),
    ) {
        let mut hashes = [0; BLOCK];
        for (block, keys) in keys.chunks(BLOCK).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hash(key.as_ref());
            }
            for (at, hash) in hashes[..keys.len()].iter().enumerate() {
                each(block * BLOCK + at, self.route_hash(*hash));
            }
        }
    }
}

#[inline(never)]
fn called(hash: HashName, seed: u64, key: &[u8]) -> u64 {
    hash.hash(seed, key)
}

/// The longest list that may be read: of O, or of N from the switch on.
fn longest(snapshot: &Snapshot) -> u8 {
    let quorums = snapshot.quorums();
    quorums.old.rf.max(quorums.new.rf)
}

/// Changes whose new lists are read.
fn switched(snapshot: &Snapshot) -> &[crate::SlotChange] {
    match &snapshot.transition {
        Some(transition) if transition.step == Step::Switched => &transition.target,
        Some(_) | None => &[],
    }
}

/// Slots of two tables of one shape whose lists differ, in order.
fn changed(old: &SlotTable, new: &SlotTable) -> Vec<Slot> {
    let (rf, mut changed) = (usize::from(old.rf()), Vec::new());
    // Most stretches are equal: those are passed over whole.
    let stretch = 64 * rf;
    let pairs = old.flat().chunks(stretch).zip(new.flat().chunks(stretch));
    for (at, (old, new)) in pairs.enumerate() {
        if old != new {
            let lists = old.chunks(rf).zip(new.chunks(rf)).enumerate();
            let differ = lists.filter(|(_, (old, new))| old != new);
            changed.extend(differ.map(|(list, _)| Slot((at * 64 + list) as u32)));
        }
    }
    changed
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
        self.slot.range(self.lookup.bits)
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
