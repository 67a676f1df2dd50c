//! What the latest writes of a live copy did to its digest, so that the digest at an earlier cut
//! can be told: the present one, with the later writes undone.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use annulus_agent::digest::{RecordHash, Sum};
use annulus_ring::Position;

use super::catalog::AreaId;

/// Most writes kept of one area: at 2,000 writes a second on one slot a second.
const PER_AREA: usize = 2_048;
/// Most writes kept of all areas; beyond that everything is forgotten, and whoever asks is told so
/// and asks again. 30 MB.
const IN_ALL: usize = 262_144;
/// Writes older than this are forgotten: a gainer asks within a round trip of its own scan.
const KEPT: Duration = Duration::from_secs(30);

/// What one write did to the digest: the record that it put in, the one that it took out. Neither,
/// if a newer one was there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delta {
    pub added: Option<RecordHash>,
    pub removed: Option<RecordHash>,
}

/// One write.
struct Change {
    at: Position,
    delta: Delta,
    written: Instant,
}

/// The kept writes of one area, by position.
struct Ring {
    /// Every write above this is in `changes`.
    since: Position,
    changes: VecDeque<Change>,
}

impl Ring {
    fn note(&mut self, floor: Position, deltas: Vec<(Position, Delta)>) {
        if self.since < floor {
            self.since = floor;
            self.changes.retain(|change| floor < change.at);
        }
        let written = Instant::now();
        for (at, delta) in deltas {
            if at <= self.since {
                continue;
            }
            // Mostly a push at the end: an owner's positions rise.
            let place = self.changes.partition_point(|change| change.at < at);
            self.changes.insert(place, Change { at, delta, written });
        }
        while let Some(oldest) = self.changes.front()
            && (self.changes.len() > PER_AREA || written - oldest.written > KEPT)
        {
            self.since = self.since.max(oldest.at);
            self.changes.pop_front();
        }
    }
}

/// What one transaction did to one live area.
pub(super) struct Noted {
    pub area: AreaId,
    /// Its watermark before: a ring that is new knows nothing below it.
    pub start: Position,
    /// What the copy was below this cannot be told: it came in without its order (a repair, the
    /// base of a reign). Zero where the watermark moved write by write.
    pub floor: Position,
    /// What each write changed, in the order in which they were taken in.
    pub deltas: Vec<(Position, Delta)>,
}

/// The kept writes of all live areas.
#[derive(Default)]
pub(super) struct Undo {
    rings: Mutex<Rings>,
}

#[derive(Default)]
struct Rings {
    by_area: HashMap<AreaId, Ring>,
    /// Writes in all of them.
    count: usize,
}

impl Undo {
    fn rings(&self) -> std::sync::MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the writes of one area. Called before the
    /// commit, so that whoever sees a write in the tables finds it here too; whoever does not see
    /// it yet is below it and passes over it.
    pub fn note(&self, noted: Noted) {
        let mut rings = self.rings();
        if rings.count > IN_ALL {
            *rings = Rings::default();
        }
        let Rings { by_area, count } = &mut *rings;
        let fresh = || Ring {
            since: noted.start,
            changes: VecDeque::new(),
        };
        let ring = by_area.entry(noted.area).or_insert_with(fresh);
        *count -= ring.changes.len();
        ring.note(noted.floor, noted.deltas);
        *count += ring.changes.len();
    }

    /// Takes what was written above `cut` and not above `held` out of the digest at `held`.
    ///
    /// # Errors
    /// The oldest cut that can be told, if `cut` is older; `sum` is as it was.
    pub fn take_out(
        &self,
        area: AreaId,
        cut: Position,
        held: Position,
        sum: &mut Sum,
    ) -> Result<(), Position> {
        if cut == held {
            return Ok(());
        }
        let rings = self.rings();
        let ring = rings.by_area.get(&area).ok_or(held)?;
        if cut < ring.since {
            return Err(ring.since);
        }
        for change in ring
            .changes
            .iter()
            .filter(|change| cut < change.at && change.at <= held)
        {
            let Delta { added, removed } = change.delta;
            added.into_iter().for_each(|hash| sum.remove(hash));
            removed.into_iter().for_each(|hash| sum.add(hash));
        }
        Ok(())
    }

    /// Forgets an area that is no longer live.
    pub fn forget(&self, area: AreaId) {
        let mut rings = self.rings();
        let kept = rings
            .by_area
            .remove(&area)
            .map_or(0, |ring| ring.changes.len());
        rings.count -= kept;
    }
}
