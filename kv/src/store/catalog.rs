//! The copies of slots in memory: which area is what, and how far it has got. Pure.

use std::collections::{BTreeMap, HashMap};

use annulus_agent::store::{Copy, Held, Holding, Watermark};
use annulus_ring::{Position, SessionId, Slot};

/// Number of an area on disk; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AreaId(pub u64);

/// What an area is. Promoting and retaining change this and nothing else: no record moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Serves; one a slot.
    Live,
    /// Filled by a session; one a slot.
    Staging(SessionId),
    /// Left by a session; any number a slot.
    Retained(SessionId),
    /// Gone for everybody; its records are deleted in pieces.
    Dropped,
}

impl Role {
    fn copy(self) -> Option<Copy> {
        match self {
            Self::Live => Some(Copy::Live),
            Self::Staging(session) => Some(Copy::Staging(session)),
            Self::Retained(session) => Some(Copy::Retained(session)),
            Self::Dropped => None,
        }
    }
}

/// One copy of one slot.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub slot: Slot,
    pub role: Role,
    pub attempt: u32,
    pub complete: bool,
    /// Everything up to here is held without holes.
    pub held: Option<Position>,
    /// The watermark before the present reign began here, as its owner.
    pub fork: Option<Position>,
    /// Every write up to here is known to be acknowledged.
    pub acknowledged: Option<Position>,
    /// What its records hold; none: written before this was counted.
    pub size: Option<Held>,
    /// Positions above `held` that were taken in: first of a run -> last seq of it.
    above: BTreeMap<Position, u64>,
}

impl Area {
    pub fn new(slot: Slot, role: Role, attempt: u32) -> Self {
        let complete = matches!(role, Role::Live);
        Self {
            slot,
            role,
            attempt,
            complete,
            held: None,
            fork: None,
            acknowledged: None,
            size: Some(Held::default()),
            above: BTreeMap::new(),
        }
    }

    /// Whether records are held above a hole.
    pub fn pending(&self) -> bool {
        !self.above.is_empty()
    }

    /// The highest position that was taken in.
    pub fn highest(&self) -> Position {
        let last = self.above.last_key_value();
        let above = last.map(|(first, last)| Position::new(first.reign, *last));
        self.held.max(above).unwrap_or_default()
    }

    /// A record at this position was taken in (stored, or found to be superseded).
    pub fn took(&mut self, at: Position) {
        if self.held.is_some_and(|held| at <= held) {
            return;
        }
        let run = self.above.range_mut(..=at).next_back();
        match run {
            Some((first, last)) if first.reign == at.reign && at.seq <= *last + 1 => {
                *last = at.seq.max(*last);
            }
            _ => {
                self.above.insert(at, at.seq);
            }
        }
        self.absorb();
    }

    /// Everything up to `through` is held now.
    pub fn took_through(&mut self, through: Position) {
        if self.held.is_none_or(|held| held < through) {
            self.held = Some(through);
        }
        self.absorb();
    }

    /// A record was stored in the place of another, if there was one: (payload bytes, is a key).
    pub fn weigh(&mut self, stored: (u64, bool), replaced: Option<(u64, bool)>) {
        let Some(size) = &mut self.size else { return };
        let (bytes, is_key) = stored;
        size.bytes += bytes;
        size.keys += u64::from(is_key);
        if let Some((bytes, is_key)) = replaced {
            size.bytes = size.bytes.saturating_sub(bytes);
            size.keys = size.keys.saturating_sub(u64::from(is_key));
        }
    }

    /// Every write up to `at` is acknowledged.
    pub fn acknowledge(&mut self, at: Position) {
        if self.acknowledged.is_none_or(|known| known < at) {
            self.acknowledged = Some(at);
        }
    }

    /// Moves the watermark over runs that follow it without a hole. Positions are counted inside
    /// one reign only: a run of a newer reign waits until its base is held.
    fn absorb(&mut self) {
        while let Some((&first, &last)) = self.above.first_key_value() {
            let Some(held) = self.held else { return };
            let end = Position::new(first.reign, last);
            if end <= held {
                self.above.pop_first();
            } else if first.reign == held.reign && first.seq <= held.seq + 1 {
                self.held = Some(end);
                self.above.pop_first();
            } else {
                return;
            }
        }
    }
}

/// All areas, and which of them a slot's copies are.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    areas: BTreeMap<AreaId, Area>,
    by_copy: HashMap<(Slot, Copy), AreaId>,
    staging: HashMap<Slot, SessionId>,
}

impl Catalog {
    /// Adds an area, or puts it in the place of its former state.
    pub fn put(&mut self, id: AreaId, area: Area) {
        let former = self
            .areas
            .get(&id)
            .and_then(|former| Some((former.slot, former.role.copy()?)));
        if let Some(former) = former
            && self.by_copy.get(&former) == Some(&id)
        {
            self.by_copy.remove(&former);
            if let Copy::Staging(_) = former.1 {
                self.staging.remove(&former.0);
            }
        }
        if let Some(copy) = area.role.copy() {
            self.by_copy.insert((area.slot, copy), id);
            if let Copy::Staging(session) = copy {
                self.staging.insert(area.slot, session);
            }
        }
        self.areas.insert(id, area);
    }

    /// Forgets an area whose records are all deleted.
    pub fn remove(&mut self, id: AreaId) {
        self.areas.remove(&id);
    }

    pub fn find(&self, slot: Slot, copy: Copy) -> Option<AreaId> {
        self.by_copy.get(&(slot, copy)).copied()
    }

    /// The slot's staging copy, whichever session it is of.
    pub fn staging(&self, slot: Slot) -> Option<(AreaId, &Area)> {
        let session = *self.staging.get(&slot)?;
        let id = self.find(slot, Copy::Staging(session))?;
        Some((id, &self.areas[&id]))
    }

    pub fn area(&self, id: AreaId) -> Option<&Area> {
        self.areas.get(&id)
    }

    pub fn area_mut(&mut self, id: AreaId) -> Option<&mut Area> {
        self.areas.get_mut(&id)
    }

    /// All areas as they are, in order.
    pub fn areas(&self) -> impl Iterator<Item = (AreaId, Area)> + '_ {
        let areas = self.areas.iter();
        areas.map(|(id, area)| (*id, area.clone()))
    }

    /// Areas of this role and session, in order.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = AreaId> + '_ {
        self.areas
            .iter()
            .filter(move |(_, area)| area.role == role)
            .map(|(id, _)| *id)
    }

    pub fn watermark(&self, slot: Slot, copy: Copy) -> Option<Watermark> {
        let area = self.areas.get(&self.find(slot, copy)?)?;
        Some(Watermark {
            held: area.held,
            pending: area.pending(),
        })
    }

    pub fn is_complete(&self, slot: Slot, copy: Copy) -> bool {
        let area = self.find(slot, copy).and_then(|id| self.areas.get(&id));
        area.is_some_and(|area| area.complete)
    }

    /// What live copies hold, all together; none while one of them is not counted.
    pub fn held(&self) -> Option<Held> {
        let live = self.areas.values().filter(|area| area.role == Role::Live);
        live.map(|area| area.size)
            .try_fold(Held::default(), |sum, size| {
                let size = size?;
                Some(Held {
                    bytes: sum.bytes + size.bytes,
                    keys: sum.keys + size.keys,
                })
            })
    }

    pub fn holdings(&self) -> Vec<Holding> {
        let holding = |area: &Area| {
            Some(Holding {
                slot: area.slot,
                copy: area.role.copy()?,
                attempt: area.attempt,
                watermark: area.held,
                complete: area.complete,
            })
        };
        self.areas.values().filter_map(holding).collect()
    }
}

#[cfg(test)]
mod tests {
    use annulus_ring::Epoch;

    use super::*;

    fn at(reign: u64, seq: u64) -> Position {
        Position::new(Epoch(reign), seq)
    }

    #[test]
    fn watermark_stops_at_a_hole_and_jumps_when_it_is_filled() {
        let mut area = Area::new(Slot(0), Role::Live, 0);
        area.took_through(at(1, 0));
        area.took(at(1, 1));
        assert_eq!((area.held, area.pending()), (Some(at(1, 1)), false));
        for seq in [3, 4, 6] {
            area.took(at(1, seq));
        }
        assert_eq!((area.held, area.pending()), (Some(at(1, 1)), true));
        area.took(at(1, 2));
        assert_eq!((area.held, area.pending()), (Some(at(1, 4)), true));
        area.took(at(1, 5));
        assert_eq!((area.held, area.pending()), (Some(at(1, 6)), false));
    }

    #[test]
    fn watermark_waits_for_the_base_of_a_newer_reign() {
        let mut area = Area::new(Slot(0), Role::Live, 0);
        area.took_through(at(1, 5));
        area.took(at(2, 1));
        area.took(at(2, 2));
        assert_eq!((area.held, area.pending()), (Some(at(1, 5)), true));
        area.took_through(at(2, 1));
        assert_eq!((area.held, area.pending()), (Some(at(2, 2)), false));
        // Positions of an older reign say nothing any more.
        area.took(at(1, 6));
        assert_eq!((area.held, area.pending()), (Some(at(2, 2)), false));
    }

    #[test]
    fn without_a_base_everything_is_pending() {
        let mut area = Area::new(Slot(0), Role::Staging(SessionId(1)), 1);
        area.took(at(1, 1));
        assert_eq!((area.held, area.pending()), (None, true));
        area.took_through(at(1, 4));
        assert_eq!((area.held, area.pending()), (Some(at(1, 4)), false));
    }

    #[test]
    fn repeated_and_shuffled_positions_count_once() {
        let mut area = Area::new(Slot(0), Role::Live, 0);
        area.took_through(at(1, 0));
        for seq in [5, 3, 5, 2, 2, 4, 1] {
            area.took(at(1, seq));
        }
        assert_eq!((area.held, area.pending()), (Some(at(1, 5)), false));
    }
}
