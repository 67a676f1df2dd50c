//! Numbers that order things: epochs, generations, incarnations, positions.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The value after this one; epochs and their like never come near `u64::MAX`.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// Whether it is 0; for `skip_serializing_if`.
            #[must_use]
            pub fn is_zero(&self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Number of a published snapshot of one ring: +1 each, never reused; 0 = none yet.
    Epoch
);
counter!(
    /// Rises only when a backup is restored. Snapshots are ordered by (generation, epoch).
    Generation
);
counter!(
    /// One life of a node's data: +1 each time its id is registered with an empty directory.
    Incarnation
);
counter!(
    /// A multi-step movement of ranges within one ring.
    TransitionId
);
counter!(
    /// One transition's copying of ranges. Equal to the number of its [`TransitionId`]; closed by
    /// abort and by step 8, and its packets are refused from then on.
    SessionId
);

impl From<TransitionId> for SessionId {
    fn from(id: TransitionId) -> Self {
        Self(id.0)
    }
}

/// A place in the order of a range's writes, and so both the version of a record and the
/// watermark of a copy.
///
/// `reign` is the epoch that made the writing owner owner. Positions of two reigns are
/// ordered by reign and never counted across: `seq` starts at 1 in every reign.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// The epoch that began the reign.
    pub reign: Epoch,
    /// 1 for the first write of the reign; 0 = holds the base of the reign and no write of it.
    pub seq: u64,
}

impl Position {
    /// A position from its two numbers.
    #[must_use]
    pub fn new(reign: Epoch, seq: u64) -> Self {
        Self { reign, seq }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.reign, self.seq)
    }
}
