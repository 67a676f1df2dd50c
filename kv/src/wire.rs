//! Small conversions between messages and values.

use annulus_agent::guard::Stamp;
use annulus_ring::{Epoch, Generation, Position};

use crate::pb;

impl From<Position> for pb::Version {
    fn from(at: Position) -> Self {
        Self {
            reign: at.reign.0,
            seq: at.seq,
        }
    }
}

impl From<pb::Version> for Position {
    fn from(version: pb::Version) -> Self {
        Self::new(Epoch(version.reign), version.seq)
    }
}

/// What a guard judges of a request's stamp.
pub(crate) fn stamp(stamp: &pb::Stamp) -> Stamp {
    Stamp {
        generation: Generation(stamp.generation),
        epoch: Epoch(stamp.epoch),
    }
}
