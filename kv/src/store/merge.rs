//! One write transaction over many jobs: taking records in by version, and the moves of copies.

use std::collections::BTreeMap;

use annulus_agent::{
    digest,
    store::{Copy, Held, Record, StoreError, Stray},
};
use annulus_ring::{Epoch, Position, SessionId, Slot};
use redb::{ReadableTable, Table, WriteTransaction};

use super::{
    catalog::{Area, AreaId, Catalog, Role},
    tables::{self, AREAS, META, NEXT_AREA_KEY, RECORDS, SLOT_BITS_KEY, VERSIONS},
    undo::{Delta, Noted},
};

/// Records deleted of dropped areas in one transaction.
const DROP_PIECE: usize = 512;

/// Why a job came to nothing.
pub(super) enum Fault {
    /// The job was refused, and left nothing half done; the transaction goes on.
    Refused(StoreError),
    /// The engine failed: the whole transaction is lost, and the store with it.
    Engine(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Engine(error.into())
    }
}

/// An open write transaction with its tables, and the catalog as it will be after the commit.
pub(super) struct Batch<'txn> {
    records: Table<'txn, &'static [u8], &'static [u8]>,
    versions: Table<'txn, &'static [u8], &'static [u8]>,
    areas: Table<'txn, u64, &'static [u8]>,
    meta: Table<'txn, &'static str, u64>,
    catalog: &'txn mut Catalog,
    touched: BTreeMap<AreaId, Touched>,
}

/// What the transaction did to one area.
#[derive(Default)]
struct Touched {
    /// [`Noted::start`] and [`Noted::floor`].
    start: Position,
    floor: Position,
    deltas: Vec<(Position, Delta)>,
    removed: bool,
}

/// What is to be published once the transaction is durable.
pub(super) struct Outcome {
    /// New state of an area; `None`: gone.
    pub areas: Vec<(AreaId, Option<Area>)>,
    /// To be noted before it is durable.
    pub noted: Vec<Noted>,
}

/// Records for one copy, and how far it got with them.
pub(super) struct Merge {
    pub slot: Slot,
    pub copy: Copy,
    pub records: Vec<Record>,
    pub through: Option<Position>,
    pub acknowledged: Option<Position>,
}

impl<'txn> Batch<'txn> {
    pub fn open(
        txn: &'txn WriteTransaction,
        catalog: &'txn mut Catalog,
    ) -> Result<Self, redb::Error> {
        Ok(Self {
            records: txn.open_table(RECORDS)?,
            versions: txn.open_table(VERSIONS)?,
            areas: txn.open_table(AREAS)?,
            meta: txn.open_table(META)?,
            catalog,
            touched: BTreeMap::new(),
        })
    }

    /// Writes the rows of touched areas and tells what to publish after the commit.
    pub fn close(mut self) -> Result<Outcome, redb::Error> {
        let mut outcome = Outcome {
            areas: Vec::new(),
            noted: Vec::new(),
        };
        for (id, touched) in self.touched {
            if touched.removed {
                self.areas.remove(id.0)?;
                self.catalog.remove(id);
                outcome.areas.push((id, None));
                continue;
            }
            let area = self
                .catalog
                .area(id)
                .expect("a touched area is in the catalog");
            self.areas.insert(id.0, tables::area_row(area).as_slice())?;
            if area.role == Role::Live {
                let Touched {
                    start,
                    floor,
                    deltas,
                    ..
                } = touched;
                outcome.noted.push(Noted {
                    area: id,
                    start,
                    floor,
                    deltas,
                });
            }
            outcome.areas.push((id, Some(area.clone())));
        }
        Ok(outcome)
    }

    fn find(&self, slot: Slot, copy: Copy) -> Result<AreaId, Fault> {
        self.catalog
            .find(slot, copy)
            .ok_or(Fault::Refused(StoreError::Missing { slot, copy }))
    }

    /// The area, to be written back when the batch is closed.
    fn touch(&mut self, id: AreaId) -> &mut Area {
        let area = self
            .catalog
            .area_mut(id)
            .expect("the id came from the catalog");
        self.touched.entry(id).or_insert_with(|| Touched {
            start: area.held.unwrap_or_default(),
            ..Touched::default()
        });
        area
    }

    /// The watermark jumps: what the copy was at the cuts between cannot be told.
    fn jump(&mut self, id: AreaId, through: Position) {
        let area = self.touch(id);
        if area.held.is_none_or(|held| held < through) {
            area.took_through(through);
            let floor = area.held.unwrap_or_default();
            self.touched.get_mut(&id).expect("touched above").floor = floor;
        }
    }

    /// Takes records in: the newest version of a key wins, whatever the order of arrival.
    pub fn merge(&mut self, merge: Merge) -> Result<(), Fault> {
        let id = self.find(merge.slot, merge.copy)?;
        let live = merge.copy == Copy::Live;
        self.touch(id);
        for record in &merge.records {
            let delta = self.store(id, record, live)?;
            self.touch(id).took(record.version);
            if live {
                let touched = self.touched.get_mut(&id).expect("touched above");
                touched.deltas.push((record.version, delta));
            }
        }
        if let Some(through) = merge.through {
            self.jump(id, through);
        }
        if let Some(acknowledged) = merge.acknowledged {
            self.touch(id).acknowledge(acknowledged);
        }
        Ok(())
    }

    /// Stores one record unless a newer one is there; answers what that did to the digest.
    fn store(&mut self, id: AreaId, record: &Record, live: bool) -> Result<Delta, Fault> {
        let row_key = tables::record_key(id, &record.key);
        let mut delta = Delta::default();
        let mut replaced = None;
        if let Some(row) = self.records.get(row_key.as_slice())? {
            let Some((version, value)) = tables::parse_row(row.value()) else {
                let slot = self.catalog.area(id).map_or(Slot(0), |area| area.slot);
                return Err(Fault::Refused(damaged(slot, &record.key)));
            };
            if version >= record.version {
                return Ok(delta);
            }
            if live {
                delta.removed = Some(digest::hash_parts(&record.key, version, value));
            }
            let bytes = record.key.len() + value.map_or(0, <[u8]>::len);
            replaced = Some((bytes as u64, value.is_some()));
            self.versions
                .remove(tables::version_key(id, version).as_slice())?;
        }
        self.records
            .insert(row_key.as_slice(), tables::record_row(record).as_slice())?;
        let version_key = tables::version_key(id, record.version);
        self.versions.insert(version_key.as_slice(), &*record.key)?;
        if live {
            delta.added = Some(digest::hash(record));
        }
        let stored = (record.payload_bytes() as u64, record.value.is_some());
        self.touch(id).weigh(stored, replaced);
        Ok(delta)
    }

    fn create(&mut self, slot: Slot, role: Role, attempt: u32) -> Result<AreaId, Fault> {
        let next = self.meta.get(NEXT_AREA_KEY)?.map_or(1, |next| next.value());
        self.meta.insert(NEXT_AREA_KEY, next + 1)?;
        self.catalog
            .put(AreaId(next), Area::new(slot, role, attempt));
        self.touch(AreaId(next));
        Ok(AreaId(next))
    }

    fn become_role(&mut self, id: AreaId, role: Role) {
        let mut area = self.touch(id).clone();
        area.role = role;
        area.complete |= role == Role::Live;
        self.catalog.put(id, area);
    }

    /// Empty live copies of slots that have none.
    pub fn open_live(&mut self, slots: &[Slot]) -> Result<(), Fault> {
        for slot in slots {
            if self.catalog.find(*slot, Copy::Live).is_none() {
                self.create(*slot, Role::Live, 0)?;
            }
        }
        Ok(())
    }

    /// Empty staging copies; what an older session or attempt left is dropped, and a call of an
    /// older one that comes late does nothing.
    pub fn open_staging(
        &mut self,
        session: SessionId,
        attempt: u32,
        slots: &[Slot],
    ) -> Result<(), Fault> {
        for slot in slots {
            if let Some((id, area)) = self.catalog.staging(*slot) {
                if let Role::Staging(held) = area.role
                    && (held, area.attempt) >= (session, attempt)
                {
                    continue;
                }
                self.become_role(id, Role::Dropped);
            }
            self.create(*slot, Role::Staging(session), attempt)?;
        }
        Ok(())
    }

    pub fn mark_complete(
        &mut self,
        slot: Slot,
        session: SessionId,
        cut: Position,
    ) -> Result<(), Fault> {
        let id = self.find(slot, Copy::Staging(session))?;
        self.touch(id).complete = true;
        self.jump(id, cut);
        Ok(())
    }

    pub fn begin_reign(&mut self, slots: &[(Slot, Epoch)]) -> Result<(), Fault> {
        // All or nothing: a missing copy is noticed before the first one is changed.
        for (slot, _) in slots {
            self.find(*slot, Copy::Live)?;
        }
        for (slot, reign) in slots {
            let id = self.find(*slot, Copy::Live)?;
            let begin = Position::new(*reign, 0);
            let area = self.touch(id);
            if area.held.is_none_or(|held| held < begin) {
                area.fork = area.held;
            }
            self.jump(id, begin);
        }
        Ok(())
    }

    /// Gives up records of a deposed owner; what its successor holds takes their place.
    pub fn give_up(&mut self, slot: Slot, copy: Copy, strays: &[Stray]) -> Result<(), Fault> {
        let id = self.find(slot, copy)?;
        for stray in strays {
            let row_key = tables::record_key(id, &stray.key);
            let held = match self.records.get(row_key.as_slice())? {
                Some(row) => match tables::parse_row(row.value()) {
                    Some((version, _)) => Some(version),
                    None => return Err(Fault::Refused(damaged(slot, &stray.key))),
                },
                None => None,
            };
            if held != Some(stray.version) {
                continue;
            }
            self.records.remove(row_key.as_slice())?;
            self.versions
                .remove(tables::version_key(id, stray.version).as_slice())?;
            if let Some(instead) = &stray.instead {
                self.store(id, instead, false)?;
            }
        }
        // The digest went back, which no later write undoes: earlier cuts cannot be told any more.
        let area = self.touch(id);
        let floor = area.highest();
        self.touched.get_mut(&id).expect("touched above").floor = floor;
        Ok(())
    }

    pub fn promote(&mut self, session: SessionId, slots: &[Slot]) -> Result<(), Fault> {
        let staging = Copy::Staging(session);
        for slot in slots {
            if self.catalog.find(*slot, Copy::Live).is_none() {
                self.find(*slot, staging)?;
            }
        }
        for slot in slots {
            // A slot with a live copy was promoted before; it never has both in a legal history,
            // as a gainer is not in the old list.
            if self.catalog.find(*slot, Copy::Live).is_none()
                && let Some(id) = self.catalog.find(*slot, staging)
            {
                self.become_role(id, Role::Live);
            }
        }
        Ok(())
    }

    pub fn demote(&mut self, session: SessionId, slots: &[Slot]) {
        for slot in slots {
            if let Some(id) = self.catalog.find(*slot, Copy::Live) {
                self.become_role(id, Role::Staging(session));
            }
        }
    }

    pub fn retain(&mut self, session: SessionId, slots: &[Slot]) {
        for slot in slots {
            if let Some(id) = self.catalog.find(*slot, Copy::Live) {
                self.become_role(id, Role::Retained(session));
            }
        }
    }

    pub fn drop_staging(&mut self, session: SessionId) {
        let ids: Vec<AreaId> = self.catalog.with_role(Role::Staging(session)).collect();
        for id in ids {
            self.become_role(id, Role::Dropped);
        }
    }

    pub fn drop_retained(&mut self, session: SessionId, slots: &[Slot]) {
        for slot in slots {
            if let Some(id) = self.catalog.find(*slot, Copy::Retained(session)) {
                self.become_role(id, Role::Dropped);
            }
        }
    }

    /// Every copy that is not staged becomes one of each half of its slot. Nothing of it is noted for
    /// earlier cuts: they are of another slot.
    pub fn split(&mut self, bits: u8, slot_of: &dyn Fn(&[u8]) -> Slot) -> Result<(), Fault> {
        let known = self.meta.get(SLOT_BITS_KEY)?.map(|known| known.value());
        if known == Some(bits.into()) {
            return Ok(());
        }
        self.meta.insert(SLOT_BITS_KEY, u64::from(bits))?;
        let areas: Vec<(AreaId, Area)> = self.catalog.areas().collect();
        for (id, area) in areas {
            // First of all: a child may have the number of a slot that is split after it.
            self.become_role(id, Role::Dropped);
            if matches!(area.role, Role::Staging(_) | Role::Dropped) {
                continue;
            }
            let (even, odd) = (Slot(2 * area.slot.0), Slot(2 * area.slot.0 + 1));
            let halves = [self.half(&area, even)?, self.half(&area, odd)?];
            self.deal_out(id, area.slot, |key| {
                halves[usize::from(slot_of(key) == odd)]
            })?;
            for half in halves {
                let area = self.touch(half);
                let floor = area.highest();
                self.touched.get_mut(&half).expect("touched above").floor = floor;
            }
        }
        Ok(())
    }

    /// An empty copy of half a slot, as far as the whole one had got.
    fn half(&mut self, whole: &Area, slot: Slot) -> Result<AreaId, Fault> {
        let id = self.create(slot, whole.role, whole.attempt)?;
        let mut area = whole.clone();
        (area.slot, area.size) = (slot, Some(Held::default()));
        self.catalog.put(id, area);
        Ok(id)
    }

    /// Copies each record of an area to the one that `to` says.
    fn deal_out(
        &mut self,
        from: AreaId,
        slot: Slot,
        to: impl Fn(&[u8]) -> AreaId,
    ) -> Result<(), Fault> {
        let (first, end) = tables::area_bounds(from);
        let mut next = first.to_vec();
        loop {
            let piece: Vec<(Vec<u8>, Vec<u8>)> = self
                .records
                .range(next.as_slice()..end.as_slice())?
                .take(DROP_PIECE)
                .map(|row| row.map(|(key, row)| (key.value().to_vec(), row.value().to_vec())))
                .collect::<Result<_, _>>()?;
            let Some((last, _)) = piece.last() else {
                return Ok(());
            };
            // The least key after it.
            next.clone_from(last);
            next.push(0);
            for (key, row) in &piece {
                let Some(record) = tables::parse_record(key, row) else {
                    let key = key.get(8..).unwrap_or_default();
                    return Err(Fault::Refused(damaged(slot, key)));
                };
                self.store(to(&record.key), &record, false)?;
            }
        }
    }

    /// Deletes a piece of what was dropped; false when nothing is left to delete.
    pub fn sweep(&mut self) -> Result<bool, Fault> {
        let Some(id) = self.catalog.with_role(Role::Dropped).next() else {
            return Ok(false);
        };
        let (first, end) = tables::area_bounds(id);
        let mut left = DROP_PIECE;
        for table in [&mut self.records, &mut self.versions] {
            let piece: Vec<Vec<u8>> = table
                .range(first.as_slice()..end.as_slice())?
                .take(left)
                .map(|row| row.map(|(key, _)| key.value().to_vec()))
                .collect::<Result<_, _>>()?;
            for key in &piece {
                table.remove(key.as_slice())?;
            }
            left -= piece.len();
        }
        self.touch(id);
        if left > 0 {
            self.touched.get_mut(&id).expect("touched above").removed = true;
        }
        Ok(true)
    }
}

/// The error for a record whose row makes no sense.
pub(super) fn damaged(slot: Slot, key: &[u8]) -> StoreError {
    StoreError::Damaged {
        slot,
        what: format!("the record of key {}", key.escape_ascii()),
    }
}
