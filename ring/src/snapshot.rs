//! What is published: one immutable answer to "who owns what", at one epoch.
//!
//! The bytes of a snapshot and its checksum are `annulus-proto`'s business; this is the
//! value, and whether it makes sense.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Epoch, Generation, Handle, HashName, Member, NodeId, Quorums, RangeSets, Replication,
    ReplicationError, RingName, Slot, SlotChange, SlotTable, Step, TransitionId, node::MAX_MEMBERS,
};

/// The `format` of snapshots that this build writes and reads.
pub const FORMAT: u32 = 1;

/// SHA-256 over a snapshot's sections.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checksum(pub [u8; 32]);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..")
    }
}

/// Drawn once when a control plane is founded; a snapshot of another cluster is refused.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How the circle is cut and who holds each piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Version of the algorithm that made the lists; for people, lookups do not need it.
    pub placement_version: u32,
    /// The hash of keys.
    pub hash: HashName,
    /// Seed of the hash.
    pub seed: u64,
    /// rf, w and r.
    pub replication: Replication,
    /// O for every slot. While a transition runs, N of the changed ones is in it.
    pub slots: SlotTable,
}

/// The running transition, as everybody who routes must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Its number; the session of its copies has the same.
    pub id: TransitionId,
    /// How far it is.
    pub step: Step,
    /// N of the changed slots, sorted by slot, each once.
    pub target: Vec<SlotChange>,
    /// N's rf, w and r where they differ from O's, which are the layout's; then every slot is
    /// among the changed ones, though its list may stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

/// Members and placement at one epoch, immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Which fields and rules; [`FORMAT`].
    pub format: u32,
    /// Whose.
    pub cluster_id: ClusterId,
    /// Which ring.
    pub ring: RingName,
    /// Rises when a backup is restored.
    pub generation: Generation,
    /// +1 per published snapshot, from 1.
    pub epoch: Epoch,
    /// Checksum of the epoch before; zeroes at epoch 1.
    pub previous_checksum: Checksum,
    /// Wall clock of the entry that made it, in ms since 1970; for people.
    pub created_at_ms: u64,
    /// Who holds what.
    pub layout: Layout,
    /// Sorted by node id, each once; may be empty.
    pub members: Vec<Member>,
    /// What is moving, if anything.
    pub transition: Option<Transition>,
}

/// Why a decoded snapshot makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A format from the future.
    #[error("format {found} is not known here, expected {FORMAT}")]
    Format {
        /// As found.
        found: u32,
    },
    /// Epochs start at 1.
    #[error("epoch 0 is never published")]
    EpochZero,
    /// Members must be sorted by id, each once.
    #[error("member {node} is out of order or listed twice")]
    MemberOrder {
        /// The offending member.
        node: NodeId,
    },
    /// Handles are unique and not the padding.
    #[error("member {node} has handle {handle}, which is taken or reserved")]
    MemberHandle {
        /// The offending member.
        node: NodeId,
        /// Its handle.
        handle: u16,
    },
    /// A list names a handle that no member has.
    #[error("slot {slot} names handle {handle}, which no member has")]
    UnknownHandle {
        /// The slot.
        slot: Slot,
        /// The handle.
        handle: u16,
    },
    /// A list names a node twice.
    #[error("slot {slot} names handle {handle} twice")]
    Twice {
        /// The slot.
        slot: Slot,
        /// The handle.
        handle: u16,
    },
    /// The transition's slots must be sorted, unique and of this table.
    #[error("transition: slot {slot} is out of order, listed twice or out of bounds")]
    TargetOrder {
        /// The slot.
        slot: Slot,
    },
    /// A list in the transition is empty or longer than rf.
    #[error("transition: slot {slot} has {found} replicas, expected 1 to {rf}")]
    TargetLength {
        /// The slot.
        slot: Slot,
        /// Replicas found.
        found: usize,
        /// Replicas allowed.
        rf: u8,
    },
    /// The replication changes, and some slot does not.
    #[error("transition to another replication: {found} slots change, expected all {expected}")]
    TargetCount {
        /// Slots that change.
        found: usize,
        /// Slots of the table.
        expected: usize,
    },
    /// The table's rf differs from the layout's.
    #[error("slot table of rf {found}, the layout says {expected}")]
    TableRf {
        /// The table's.
        found: u8,
        /// The layout's.
        expected: u8,
    },
    /// rf, w and r do not go together.
    #[error(transparent)]
    Replication(#[from] crate::ReplicationError),
    /// More members than a ring may have.
    #[error("{found} members, at most {limit} are allowed")]
    TooManyMembers {
        /// Members found.
        found: usize,
        /// Members allowed.
        limit: usize,
    },
}

impl Snapshot {
    /// Old list, new list and step of a slot. A binary search of the transition; the hot
    /// path uses [`crate::Lookup`].
    #[must_use]
    pub fn sets(&self, slot: Slot) -> RangeSets<'_> {
        let old = self.layout.slots.list(slot);
        let moving = self.transition.as_ref().and_then(|transition| {
            let at = transition
                .target
                .binary_search_by_key(&slot, |change| change.slot)
                .ok()?;
            Some((transition.target[at].to.as_slice(), transition.step))
        });
        match moving {
            Some((new, step)) => RangeSets {
                old,
                new,
                step: Some(step),
            },
            None => RangeSets::steady(old),
        }
    }

    /// rf, w and r of O and of N.
    #[must_use]
    pub fn quorums(&self) -> Quorums {
        let old = self.layout.replication;
        let new = self.transition.as_ref().and_then(|one| one.replication);
        Quorums {
            old,
            new: new.unwrap_or(old),
        }
    }

    /// The member with this handle. Linear; for tables and messages, not for the hot path.
    #[must_use]
    pub fn member_by_handle(&self, handle: Handle) -> Option<&Member> {
        self.members.iter().find(|member| member.handle == handle)
    }

    /// The member with this id.
    #[must_use]
    pub fn member(&self, node: &NodeId) -> Option<&Member> {
        let at = self
            .members
            .binary_search_by(|member| member.node_id.cmp(node))
            .ok()?;
        Some(&self.members[at])
    }
}

impl Snapshot {
    /// Whether the value makes sense: sorted, unique, known members, within bounds.
    ///
    /// It does not judge quorums: w and r that may lose a write are the operator's `--accept`.
    /// O(slots x rf + members).
    ///
    /// # Errors
    /// The first [`SnapshotError`] found.
    pub fn check(&self) -> Result<(), SnapshotError> {
        self.check_lists(self.layout.slots.slots(), None)
    }

    /// As [`Snapshot::check`], after `before`, which made sense, has the same k and rf, and
    /// differs in the lists of `changed`: O(changed x rf + members), or all if a member is gone.
    pub(crate) fn check_after(&self, before: &Self, changed: &[Slot]) -> Result<(), SnapshotError> {
        self.check_lists(changed.iter().copied(), Some(before))
    }

    fn check_lists(
        &self,
        slots: impl Iterator<Item = Slot>,
        before: Option<&Self>,
    ) -> Result<(), SnapshotError> {
        if self.format != FORMAT {
            return Err(SnapshotError::Format { found: self.format });
        }
        if self.epoch == Epoch(0) {
            return Err(SnapshotError::EpochZero);
        }
        if let Err(error @ ReplicationError::OutOfRange { .. }) = self.layout.replication.check() {
            return Err(error.into());
        }
        let (found, expected) = (self.layout.slots.rf(), self.layout.replication.rf);
        if found != expected {
            return Err(SnapshotError::TableRf { found, expected });
        }
        let known = self.check_members()?;
        // A list that did not change may name a member that is gone.
        let gone = before.is_some_and(|before| {
            let listed = |member: &Member| known.has(member.handle);
            !before.members.iter().all(listed)
        });
        if gone {
            for slot in self.layout.slots.slots() {
                known.check(slot, self.layout.slots.list(slot))?;
            }
        } else {
            for slot in slots {
                known.check(slot, self.layout.slots.list(slot))?;
            }
        }
        match &self.transition {
            Some(transition) => self.check_target(transition, &known),
            None => Ok(()),
        }
    }

    fn check_members(&self) -> Result<Known, SnapshotError> {
        let (found, limit) = (self.members.len(), MAX_MEMBERS);
        if found > limit {
            return Err(SnapshotError::TooManyMembers { found, limit });
        }
        if let Some(pair) = self
            .members
            .windows(2)
            .find(|pair| pair[0].node_id >= pair[1].node_id)
        {
            return Err(SnapshotError::MemberOrder {
                node: pair[1].node_id.clone(),
            });
        }
        let mut known = Known::default();
        for member in &self.members {
            if !known.add(member.handle) {
                let (node, handle) = (member.node_id.clone(), member.handle.0);
                return Err(SnapshotError::MemberHandle { node, handle });
            }
        }
        Ok(known)
    }

    fn check_target(&self, transition: &Transition, known: &Known) -> Result<(), SnapshotError> {
        let target = &transition.target;
        let rf = self.quorums().new.rf;
        if let Some(replication) = transition.replication {
            if let Err(error @ ReplicationError::OutOfRange { .. }) = replication.check() {
                return Err(error.into());
            }
            let (found, expected) = (target.len(), self.layout.slots.slot_count());
            if found != expected {
                return Err(SnapshotError::TargetCount { found, expected });
            }
        }
        let mut previous = None;
        for SlotChange { slot, to } in target {
            if previous >= Some(*slot) || slot.index() >= self.layout.slots.slot_count() {
                return Err(SnapshotError::TargetOrder { slot: *slot });
            }
            previous = Some(*slot);
            if to.is_empty() || to.len() > usize::from(rf) {
                return Err(SnapshotError::TargetLength {
                    slot: *slot,
                    found: to.len(),
                    rf,
                });
            }
            known.check(*slot, to)?;
        }
        Ok(())
    }
}

/// The handles that members have.
#[derive(Default)]
struct Known(Vec<bool>);

impl Known {
    /// Whether the handle was free and may be a member's.
    fn add(&mut self, handle: Handle) -> bool {
        if handle == Handle::NONE {
            return false;
        }
        if self.0.len() <= handle.index() {
            self.0.resize(handle.index() + 1, false);
        }
        !std::mem::replace(&mut self.0[handle.index()], true)
    }

    fn has(&self, handle: Handle) -> bool {
        self.0.get(handle.index()).is_some_and(|known| *known)
    }

    /// Whether a list names members only, each once.
    fn check(&self, slot: Slot, list: &[Handle]) -> Result<(), SnapshotError> {
        for (at, handle) in list.iter().enumerate() {
            if !self.has(*handle) {
                return Err(SnapshotError::UnknownHandle {
                    slot,
                    handle: handle.0,
                });
            }
            if list[..at].contains(handle) {
                return Err(SnapshotError::Twice {
                    slot,
                    handle: handle.0,
                });
            }
        }
        Ok(())
    }
}
