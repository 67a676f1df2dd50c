//! What a store must offer so that the agent can move its ranges.
//!
//! A store keeps *copies* of slots: at most one live copy a slot, which serves; hidden staging
//! copies, which a running session fills; retained copies, which nobody reads and a delete
//! permit releases. The agent never looks inside a record: it moves, counts and compares.
//!
//! ```text
//!   open_live ------------------------> Live ---retain---> Retained(session) --drop_retained--> gone
//!   open_staging --> Staging(session) --promote--^
//!                        |        ^---demote (flip back)--- Live
//!                        '--drop_staging--> gone
//! ```

use std::{fmt, sync::Arc};

use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;

/// One key at one version. A record without a value is a tombstone: kept, copied and digested
/// like any other, or a deleted key could come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key's bytes, as the client gave them.
    pub key: Bytes,
    /// Where the write stands in its range's order; the newest version of a key wins.
    pub version: Position,
    /// The value; absent = tombstone. An empty value is a value.
    pub value: Option<Bytes>,
}

impl Record {
    /// Bytes of key and value: what throttles and counters count.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Which copy of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// The copy that serves and is written. At most one a slot.
    Live,
    /// Hidden from reads, scans and counts; filled by this session, served after `promote`.
    Staging(SessionId),
    /// What a loser keeps of the session that ended: never served, never counted, never written.
    Retained(SessionId),
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live copy"),
            Self::Staging(session) => write!(f, "staging copy of session {session}"),
            Self::Retained(session) => write!(f, "retained copy of session {session}"),
        }
    }
}

/// One copy that the store holds durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Of which slot.
    pub slot: Slot,
    /// Which copy.
    pub copy: Copy,
    /// Staging: the attempt it was opened for, from 1. Otherwise the attempt that it came from, or 0.
    pub attempt: u32,
    /// Everything up to here is held without holes; absent = the base is not held yet.
    pub watermark: Option<Position>,
    /// Staging: the complete-copy marker is set. Live: always true.
    pub complete: bool,
}

/// A consistent reading of one live copy, chosen by the store.
pub struct Cut {
    /// Everything that the copy holds up to here is in `records`. At an owner: its last assigned
    /// position (every assigned position is committed locally before the next cut is taken).
    pub position: Position,
    /// Records in any order, each key at its newest version not above `position`; a key that was
    /// overwritten after the cut is absent or as it was. One read transaction: later writes do
    /// not appear.
    pub records: Records,
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// A record that the owner does not hold so: of a deposed owner and never acknowledged, or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its key.
    pub key: Bytes,
    /// Its version.
    pub version: Position,
    /// What the owner holds of the key; absent = nothing.
    pub instead: Option<Record>,
}

/// Keys and versions of a copy, in any order.
pub type Versions = Box<dyn Iterator<Item = Result<(Bytes, Position), StoreError>> + Send>;

/// Records of a copy, in any order.
pub type Records = Box<dyn Iterator<Item = Result<Record, StoreError>> + Send>;

/// Which slot a key is in.
pub type SlotOf = Arc<dyn Fn(&[u8]) -> Slot + Send + Sync>;

/// What live copies hold, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sum of [`Record::payload_bytes`], tombstones included.
    pub bytes: u64,
    /// Keys that have a value.
    pub keys: u64,
}

/// A copy's digest ([`crate::digest`]) at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestAt {
    /// Over all records with a version up to here.
    pub cut: Position,
    /// [`crate::digest::Sum::to_bytes`].
    pub digest: [u8; 32],
    /// How many records, tombstones included.
    pub records: u64,
}

/// How far a copy has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Everything up to here is held without holes; absent = the base is not held yet.
    pub held: Option<Position>,
    /// Records above `held` are stored too, so there is a hole between: repair is due.
    pub pending: bool,
}

/// Why a store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The copy does not exist (any more): promoted, dropped, or never opened.
    #[error("slot {slot}: no {copy} here; it was promoted, dropped or never opened")]
    Missing {
        /// The slot asked for.
        slot: Slot,
        /// The copy asked for.
        copy: Copy,
    },
    /// A digest at the copy's own watermark was asked, and records above it are stored.
    #[error("slot {slot}: records above watermark {held:?} are stored; repair, then ask again")]
    Pending {
        /// The slot.
        slot: Slot,
        /// Its watermark.
        held: Option<Position>,
    },
    /// The store can no longer say what the copy was at so old a cut.
    #[error("slot {slot}: cut {cut} is trimmed, the oldest is {oldest}; ask at a newer watermark")]
    CutTrimmed {
        /// The slot.
        slot: Slot,
        /// Asked.
        cut: Position,
        /// Oldest that can be answered.
        oldest: Position,
    },
    /// The copy has not got that far, or is in another reign.
    #[error("slot {slot}: asked at {asked}, the copy holds {held:?}; ask again when it got there")]
    NotThere {
        /// The slot.
        slot: Slot,
        /// Asked.
        asked: Position,
        /// Held.
        held: Option<Position>,
    },
    /// What is on disk makes no sense.
    #[error("slot {slot}: {what} is damaged; rebuild this node from an empty directory")]
    Damaged {
        /// The slot.
        slot: Slot,
        /// Which thing.
        what: String,
    },
    /// The storage engine failed; nothing of the call may be assumed done.
    #[error("storage: {doing}: {source}")]
    Backend {
        /// What was being done.
        doing: &'static str,
        /// The engine's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A durable store of slots, as the agent drives it.
///
/// Calls block; the agent makes them on blocking threads, several at once. **Every `Ok` is
/// durable**: it survives the loss of power. Every call is idempotent, since the agent repeats
/// what it is not sure of after a restart.
pub trait RangeStore: Send + Sync + 'static {
    /// All copies held, in any order.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn holdings(&self) -> Result<Vec<Holding>, StoreError>;

    /// Founding: makes empty live copies, without a watermark. A slot that has a live copy is
    /// left as it is. The agent calls [`RangeStore::begin_reign`] on all of them right after.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn open_live(&self, slots: &[Slot]) -> Result<(), StoreError>;

    /// Opens empty, hidden staging copies. A slot has at most one: a staging copy of the same
    /// session and attempt, or of a newer one, is left as it is, since the call came late; one of
    /// an older session or attempt is replaced by an empty one.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn open_staging(
        &self,
        session: SessionId,
        attempt: u32,
        slots: &[Slot],
    ) -> Result<(), StoreError>;

    /// The whole live copy at a cut.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    fn read_cut(&self, slot: Slot) -> Result<Cut, StoreError>;

    /// Records of the live copy with versions above `from` (all of them for `None`), at a cut; also
    /// those stored above a hole.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    fn tail(&self, slot: Slot, from: Option<Position>) -> Result<Cut, StoreError>;

    /// Takes records in by version: the newest of a key wins, whatever the order of arrival.
    ///
    /// `through`: together with these records everything up to there is held, so the watermark
    /// becomes the larger of itself and `through`, then advances over records of the same reign
    /// that are stored without a hole above it. In a newer reign than the watermark's, `through`
    /// says that the base of that reign is held. `records` may be empty.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such copy.
    fn merge(
        &self,
        slot: Slot,
        copy: Copy,
        records: Vec<Record>,
        through: Option<Position>,
    ) -> Result<(), StoreError>;

    /// Sets the complete-copy marker of a staging copy: everything up to `cut` was merged. The
    /// watermark becomes the larger of itself and `cut`, and advances as in `merge`.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such staging copy.
    fn mark_complete(
        &self,
        slot: Slot,
        session: SessionId,
        cut: Position,
    ) -> Result<(), StoreError>;

    /// The copy's digest over all records with versions up to `cut`; `None`: at its own watermark,
    /// read in the same transaction. Of the live copy at an owner an older cut may be asked, whose
    /// later writes the store undoes; the first such question may be answered
    /// [`StoreError::CutTrimmed`] while the store begins to keep what it needs for the next one.
    ///
    /// # Errors
    /// [`StoreError::Pending`], [`StoreError::CutTrimmed`], [`StoreError::NotThere`],
    /// [`StoreError::Missing`].
    fn digest(&self, slot: Slot, copy: Copy, cut: Option<Position>)
    -> Result<DigestAt, StoreError>;

    /// How far the copy has got.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn watermark(&self, slot: Slot, copy: Copy) -> Result<Watermark, StoreError>;

    /// The live copies hold the base of these reigns whole: the watermark becomes (reign, 0) where
    /// it is of an older reign or absent, and if this node is the owner the next write gets
    /// (reign, 1). A watermark of the same or a newer reign is left as it is. Where it is raised,
    /// what it was is kept for [`RangeStore::fork`].
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn begin_reign(&self, slots: &[(Slot, Epoch)]) -> Result<(), StoreError>;

    /// Staging copies of the session become the live copies; a slot of which the staging copy is
    /// gone and a live copy is there was promoted before.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if a slot has neither.
    fn promote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError>;

    /// The way back of [`RangeStore::promote`]: live copies become staging copies of the session,
    /// complete and hidden, with what they hold; a slot without a live copy is passed over.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn demote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError>;

    /// Live copies become retained copies of the session; slots without one are passed over.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn retain(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError>;

    /// Deletes all staging copies of the session.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn drop_staging(&self, session: SessionId) -> Result<(), StoreError>;

    /// Deletes retained copies of the session; the agent holds the permit. Slots without one are
    /// passed over.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn drop_retained(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError>;

    /// The highest position assigned as owner (F and J); at a copy without writes in its reign
    /// (reign, 0).
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    fn last_position(&self, slot: Slot) -> Result<Position, StoreError>;

    /// The watermark that the last [`RangeStore::begin_reign`] of the live copy raised. A store
    /// that cannot say answers none: members that join the reign then compare all they hold.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    fn fork(&self, slot: Slot) -> Result<Option<Position>, StoreError> {
        let _ = slot;
        Ok(None)
    }

    /// The newest record of a key in the live copy; a tombstone is one.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    fn find(&self, slot: Slot, key: &[u8]) -> Result<Option<Record>, StoreError>;

    /// Keys and versions of a copy's records above `from` (all of them for `None`), tombstones
    /// included.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such copy.
    fn versions(
        &self,
        slot: Slot,
        copy: Copy,
        from: Option<Position>,
    ) -> Result<Versions, StoreError>;

    /// Everything that a copy holds at one moment, staging and retained ones too: what is compared
    /// with the owner where digests differ, and what a gainer begins with that kept the range. A
    /// store that answers none has such copies fetched whole.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such copy.
    fn records(&self, slot: Slot, copy: Copy) -> Result<Option<Records>, StoreError> {
        let _ = (slot, copy);
        Ok(None)
    }

    /// Gives up what the owner does not hold so, a deposed owner's or a damaged one: where the
    /// copy's record of the key is still of exactly that version, it is replaced by `instead`, which
    /// may be older or of the same version, or removed. All in one step: what stands instead may be
    /// all that is left of an acknowledged write.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such copy.
    fn give_up(&self, slot: Slot, copy: Copy, strays: Vec<Stray>) -> Result<(), StoreError>;

    /// Every slot is split in two: of each live and retained copy of slot s become copies of 2s and
    /// 2s + 1, with its attempt, watermark and fork, and each record goes to the one that `slot_of` its
    /// key names. Staging copies are dropped. There are 2^`bits` slots afterwards, which the store keeps
    /// with its data: called again with the `bits` it has, it does nothing. No other call runs
    /// meanwhile, and clients are not served, so this may take its time but not more.
    ///
    /// # Errors
    /// [`StoreError::Backend`]; all or nothing was done.
    fn split(&self, bits: u8, slot_of: SlotOf) -> Result<(), StoreError>;

    /// What live copies hold, all together, for reports; none = the store cannot say. Plans estimate
    /// by it what a range weighs. Asked every few seconds: it must be cheap.
    fn held(&self) -> Option<Held> {
        None
    }

    /// Of a cache: how many of 1,000 lookups at the staging copies of this session found their
    /// entry; none = not known, and the warm-up's time alone ends it.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    fn hit_permille(&self, session: SessionId) -> Result<Option<u16>, StoreError> {
        let _ = session;
        Ok(None)
    }

    /// Free bytes on the store's disk, for reports; 0 = unknown.
    fn free_bytes(&self) -> u64 {
        0
    }
}
