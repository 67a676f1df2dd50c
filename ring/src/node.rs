//! A node of the ring: its weight, its state, its small number for life.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Endpoint, Incarnation, NodeId, Zone};

/// Largest weight. Sums over the largest ring stay far below 2^64.
pub const MAX_WEIGHT: u32 = 1_000_000;
/// Most members of one ring.
pub const MAX_MEMBERS: usize = 10_000;

/// A node's relative share, an integer; 0 owns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(u32);

impl Weight {
    /// Owns nothing.
    pub const ZERO: Self = Self(0);

    /// A weight of 0 to [`MAX_WEIGHT`], or nothing.
    #[must_use]
    pub fn new(value: u32) -> Option<Self> {
        (value <= MAX_WEIGHT).then_some(Self(value))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A small integer that a member keeps for life; the lowest free one is given next, so tables
/// stay compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Handle(pub u16);

impl Handle {
    /// Pads a list that is shorter than rf; never a member's.
    pub const NONE: Self = Self(u16::MAX);

    /// The handle as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Where a member stands in its life. A summary for people: what a node may do with a range
/// follows from that range's sets alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Accepted and registered; nothing moves to it yet.
    ///
    /// - reads: no - writes: no - counts as a replica: no
    /// - entered by `Start`; left by `Advance` (to `Copying`) or `Abort` (gone)
    Joining,
    /// Receives the new writes of its ranges and copies the old ones.
    ///
    /// - reads: no - writes: yes, in the write set - counts as a replica: not yet
    /// - entered from `Joining` by `Advance`; left by `Advance` or `Abort` (gone)
    Copying,
    /// Has a whole copy, catches up, is verified, then acknowledged jointly.
    ///
    /// - reads: no - writes: yes - counts as a replica: only from step 6, jointly
    /// - entered from `Copying` by `Advance`; left by `Advance` or `Abort` (gone)
    CatchingUp,
    /// Serves every range whose list names it.
    ///
    /// - reads: yes - writes: yes - counts as a replica: yes
    /// - entered by founding or by the switch; left by `Start` of a drain
    Active,
    /// Gives its ranges away and goes on serving what it still holds.
    ///
    /// - reads: yes, until the switch - writes: yes, until settled - counts: as long as listed
    /// - entered from `Active` by `Start`; left by `Released` (to `Removed`) or `Abort` (back)
    Draining,
    /// Gone for good as this incarnation; no longer listed in snapshots.
    Removed,
}

impl MemberState {
    /// The word used everywhere: CLI, logs, docs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Copying => "copying",
            Self::CatchingUp => "catching_up",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Committed opinion on reaching a member; changes no placement.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// Reachable.
    #[default]
    Up,
    /// Tried last.
    Down,
}

/// A node together with its state, as a snapshot lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub node_id: NodeId,
    /// Which life of its data.
    pub incarnation: Incarnation,
    /// Its small number.
    pub handle: Handle,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share.
    pub weight: Weight,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Where it stands.
    pub state: MemberState,
    /// Whether it is tried first or last.
    pub availability: Availability,
}
