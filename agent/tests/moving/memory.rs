//! A store in memory that keeps every version, so that any cut can be digested.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use annulus_agent::{
    Copy, Cut, DigestAt, Holding, RangeStore, Record, Records, SlotOf, StoreError, Stray, Versions,
    Watermark, digest,
};
use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;

#[derive(Clone, Default)]
struct Area {
    versions: BTreeMap<Position, (Bytes, Option<Bytes>)>,
    watermark: Option<Position>,
    fork: Option<Position>,
    attempt: u32,
    complete: bool,
}

impl Area {
    fn at(&self, cut: Option<Position>) -> BTreeMap<Bytes, (Position, Option<Bytes>)> {
        let versions = self
            .versions
            .iter()
            .filter(|(at, _)| cut.is_none_or(|cut| **at <= cut));
        versions
            .map(|(at, (key, value))| (key.clone(), (*at, value.clone())))
            .collect()
    }

    fn advance(&mut self, through: Option<Position>) {
        self.watermark = self.watermark.max(through);
        while let Some(held) = self.watermark {
            let next = Position::new(held.reign, held.seq + 1);
            if !self.versions.contains_key(&next) {
                return;
            }
            self.watermark = Some(next);
        }
    }

    fn pending(&self) -> bool {
        self.versions
            .keys()
            .next_back()
            .is_some_and(|last| Some(*last) > self.watermark)
    }
}

#[derive(Default)]
pub struct MemoryStore {
    areas: Mutex<BTreeMap<(Slot, Copy), Area>>,
    broken: Mutex<Option<Slot>>,
    /// Into how many slots the circle was cut by the last split.
    slot_bits: Mutex<u8>,
    /// It cannot say what a copy holds: what differs is copied anew.
    lists_nothing: AtomicBool,
}

impl MemoryStore {
    fn areas(&self) -> MutexGuard<'_, BTreeMap<(Slot, Copy), Area>> {
        self.areas.lock().unwrap()
    }

    fn with<T>(
        &self,
        slot: Slot,
        copy: Copy,
        run: impl FnOnce(&mut Area) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut areas = self.areas();
        run(areas
            .get_mut(&(slot, copy))
            .ok_or(StoreError::Missing { slot, copy })?)
    }

    /// As owner: the next position of the reign, stored.
    pub fn assign(&self, slot: Slot, key: Bytes, value: Option<Bytes>) -> Position {
        self.with(slot, Copy::Live, |area| {
            let last = area.watermark.expect("an owner has begun its reign");
            let next = Position::new(last.reign, last.seq + 1);
            area.versions.insert(next, (key, value));
            area.advance(None);
            Ok(next)
        })
        .unwrap()
    }

    pub fn newest(&self, slot: Slot, copy: Copy) -> BTreeMap<Bytes, (Position, Option<Bytes>)> {
        self.areas()
            .get(&(slot, copy))
            .map(|area| area.at(None))
            .unwrap_or_default()
    }

    /// Silently loses one record: what the digest is there for.
    pub fn damage(&self, slot: Slot, copy: Copy) -> bool {
        let mut areas = self.areas();
        let Some(area) = areas.get_mut(&(slot, copy)) else {
            return false;
        };
        area.versions.pop_first().is_some()
    }

    /// Another store with the same copies.
    #[allow(dead_code, reason = "the tests of the conformance kit fork stores")]
    pub fn image(&self) -> Self {
        Self {
            areas: Mutex::new(self.areas().clone()),
            slot_bits: Mutex::new(*self.slot_bits.lock().unwrap()),
            ..Self::default()
        }
    }

    /// Alters the value of one record and keeps its key and version.
    pub fn alter(&self, slot: Slot, copy: Copy) -> bool {
        let mut areas = self.areas();
        let first = areas
            .get_mut(&(slot, copy))
            .and_then(|area| area.versions.values_mut().next());
        first.is_some_and(|(_, value)| {
            *value = Some(Bytes::from_static(b"altered"));
            true
        })
    }

    /// Adds a record that the owner never had, below everything else.
    pub fn slip_in(&self, slot: Slot, copy: Copy) -> bool {
        let mut areas = self.areas();
        let Some(area) = areas.get_mut(&(slot, copy)) else {
            return false;
        };
        let extra = (Bytes::from_static(b"extra"), Some(Bytes::new()));
        let oldest = Position::new(Epoch(1), 1);
        area.versions.insert(oldest, extra).is_none()
    }

    /// From now on nothing can be stored for this slot, or for none.
    pub fn break_slot(&self, slot: Option<Slot>) {
        *self.broken.lock().unwrap() = slot;
    }

    pub fn list_nothing(&self) {
        self.lists_nothing.store(true, Ordering::SeqCst);
    }

    pub fn forget_everything(&self) {
        self.areas().clear();
    }

    /// How many slots there are is not known any more.
    #[allow(dead_code, reason = "the tests of the conformance kit break stores")]
    pub fn forget_slot_bits(&self, bits: u8) {
        let mut known = self.slot_bits.lock().unwrap();
        if *known == bits {
            *known = 0;
        }
    }

    pub fn copies(&self) -> Vec<(Slot, Copy)> {
        self.areas().keys().copied().collect()
    }
}

fn cut_of(area: &Area, from: Option<Position>) -> Cut {
    let position = area.watermark.unwrap_or_default();
    let records: Vec<_> = area
        .at(None)
        .into_iter()
        .filter(|(_, (at, _))| Some(*at) > from)
        .map(|(key, (version, value))| {
            Ok(Record {
                key,
                version,
                value,
            })
        })
        .collect();
    Cut {
        position,
        records: Box::new(records.into_iter()),
    }
}

impl RangeStore for MemoryStore {
    fn holdings(&self) -> Result<Vec<Holding>, StoreError> {
        let holding = |((slot, copy), area): (&(Slot, Copy), &Area)| Holding {
            slot: *slot,
            copy: *copy,
            attempt: area.attempt,
            watermark: area.watermark,
            complete: area.complete || *copy == Copy::Live,
        };
        Ok(self.areas().iter().map(holding).collect())
    }

    fn open_live(&self, slots: &[Slot]) -> Result<(), StoreError> {
        let mut areas = self.areas();
        for slot in slots {
            areas.entry((*slot, Copy::Live)).or_default();
        }
        Ok(())
    }

    fn open_staging(
        &self,
        session: SessionId,
        attempt: u32,
        slots: &[Slot],
    ) -> Result<(), StoreError> {
        let mut areas = self.areas();
        for slot in slots {
            let staged = areas.iter().find_map(|((of, copy), area)| match copy {
                Copy::Staging(session) if of == slot => Some((*session, area.attempt)),
                _ => None,
            });
            if staged.is_some_and(|staged| staged >= (session, attempt)) {
                continue;
            }
            if let Some((older, _)) = staged {
                areas.remove(&(*slot, Copy::Staging(older)));
            }
            let area = Area {
                attempt,
                ..Area::default()
            };
            areas.insert((*slot, Copy::Staging(session)), area);
        }
        Ok(())
    }

    fn read_cut(&self, slot: Slot) -> Result<Cut, StoreError> {
        self.tail(slot, None)
    }

    fn tail(&self, slot: Slot, from: Option<Position>) -> Result<Cut, StoreError> {
        self.with(slot, Copy::Live, |area| Ok(cut_of(area, from)))
    }

    fn merge(
        &self,
        slot: Slot,
        copy: Copy,
        records: Vec<Record>,
        through: Option<Position>,
    ) -> Result<(), StoreError> {
        if *self.broken.lock().unwrap() == Some(slot) {
            return Err(StoreError::Backend {
                doing: "merging a record",
                source: "no space left on device".into(),
            });
        }
        self.with(slot, copy, |area| {
            for record in records {
                area.versions
                    .insert(record.version, (record.key, record.value));
            }
            area.advance(through);
            Ok(())
        })
    }

    fn mark_complete(
        &self,
        slot: Slot,
        session: SessionId,
        cut: Position,
    ) -> Result<(), StoreError> {
        self.with(slot, Copy::Staging(session), |area| {
            area.complete = true;
            area.advance(Some(cut));
            Ok(())
        })
    }

    fn digest(
        &self,
        slot: Slot,
        copy: Copy,
        cut: Option<Position>,
    ) -> Result<DigestAt, StoreError> {
        self.with(slot, copy, |area| {
            if cut.is_none() && (area.pending() || area.watermark.is_none()) {
                return Err(StoreError::Pending {
                    slot,
                    held: area.watermark,
                });
            }
            let cut = cut.or(area.watermark).unwrap_or_default();
            if Some(cut) > area.watermark {
                return Err(StoreError::NotThere {
                    slot,
                    asked: cut,
                    held: area.watermark,
                });
            }
            let mut sum = digest::Sum::new();
            for (key, (version, value)) in area.at(Some(cut)) {
                sum.add(digest::hash_parts(&key, version, value.as_deref()));
            }
            Ok(DigestAt {
                cut,
                digest: sum.to_bytes(),
                records: sum.records,
            })
        })
    }

    fn watermark(&self, slot: Slot, copy: Copy) -> Result<Watermark, StoreError> {
        self.with(slot, copy, |area| {
            Ok(Watermark {
                held: area.watermark,
                pending: area.pending(),
            })
        })
    }

    fn begin_reign(&self, slots: &[(Slot, Epoch)]) -> Result<(), StoreError> {
        for (slot, reign) in slots {
            self.with(*slot, Copy::Live, |area| {
                let begin = Position::new(*reign, 0);
                if area.watermark < Some(begin) {
                    area.fork = area.watermark;
                }
                area.advance(Some(begin));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn split(&self, bits: u8, slot_of: SlotOf) -> Result<(), StoreError> {
        let mut known = self.slot_bits.lock().unwrap();
        if *known == bits {
            return Ok(());
        }
        *known = bits;
        let mut areas = self.areas();
        for ((slot, copy), area) in std::mem::take(&mut *areas) {
            if matches!(copy, Copy::Staging(_)) {
                continue;
            }
            for child in [Slot(2 * slot.0), Slot(2 * slot.0 + 1)] {
                let mut area = area.clone();
                area.versions.retain(|_, (key, _)| slot_of(key) == child);
                areas.insert((child, copy), area);
            }
        }
        Ok(())
    }

    fn fork(&self, slot: Slot) -> Result<Option<Position>, StoreError> {
        self.with(slot, Copy::Live, |area| Ok(area.fork))
    }

    fn find(&self, slot: Slot, key: &[u8]) -> Result<Option<Record>, StoreError> {
        self.with(slot, Copy::Live, |area| {
            let found = area.at(None).remove_entry(key);
            Ok(found.map(|(key, (version, value))| Record {
                key,
                version,
                value,
            }))
        })
    }

    fn versions(
        &self,
        slot: Slot,
        copy: Copy,
        from: Option<Position>,
    ) -> Result<Versions, StoreError> {
        self.with(slot, copy, |area| {
            let newest = area.at(None).into_iter().map(|(key, (at, _))| (key, at));
            let above: Vec<_> = newest.filter(|(_, at)| Some(*at) > from).map(Ok).collect();
            Ok(Box::new(above.into_iter()) as Versions)
        })
    }

    fn records(&self, slot: Slot, copy: Copy) -> Result<Option<Records>, StoreError> {
        let lists = !self.lists_nothing.load(Ordering::SeqCst);
        self.with(slot, copy, |area| {
            Ok(lists.then(|| cut_of(area, None).records))
        })
    }

    fn give_up(&self, slot: Slot, copy: Copy, strays: Vec<Stray>) -> Result<(), StoreError> {
        self.with(slot, copy, |area| {
            for stray in strays {
                let newest = area.at(None).get(&stray.key).map(|(at, _)| *at);
                if newest == Some(stray.version) {
                    area.versions.retain(|_, (key, _)| *key != stray.key);
                    if let Some(instead) = stray.instead {
                        area.versions
                            .insert(instead.version, (instead.key, instead.value));
                    }
                }
            }
            Ok(())
        })
    }

    fn promote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let mut areas = self.areas();
        for slot in slots {
            match areas.remove(&(*slot, Copy::Staging(session))) {
                Some(area) => {
                    areas.insert((*slot, Copy::Live), area);
                }
                None if areas.contains_key(&(*slot, Copy::Live)) => {}
                None => {
                    let copy = Copy::Staging(session);
                    return Err(StoreError::Missing { slot: *slot, copy });
                }
            }
        }
        Ok(())
    }

    fn demote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let mut areas = self.areas();
        for slot in slots {
            if let Some(area) = areas.remove(&(*slot, Copy::Live)) {
                areas.insert((*slot, Copy::Staging(session)), area);
            }
        }
        Ok(())
    }

    fn retain(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let mut areas = self.areas();
        for slot in slots {
            if let Some(area) = areas.remove(&(*slot, Copy::Live)) {
                areas.insert((*slot, Copy::Retained(session)), area);
            }
        }
        Ok(())
    }

    fn drop_staging(&self, session: SessionId) -> Result<(), StoreError> {
        self.areas()
            .retain(|(_, copy), _| *copy != Copy::Staging(session));
        Ok(())
    }

    fn drop_retained(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let mut areas = self.areas();
        for slot in slots {
            areas.remove(&(*slot, Copy::Retained(session)));
        }
        Ok(())
    }

    fn last_position(&self, slot: Slot) -> Result<Position, StoreError> {
        self.with(slot, Copy::Live, |area| {
            Ok(area.watermark.unwrap_or_default())
        })
    }
}
