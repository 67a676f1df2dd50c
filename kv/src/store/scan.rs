//! Reading: one key, a whole copy at a cut, a tail, a digest. Each in one read transaction, which
//! later writes do not touch.

use annulus_agent::{
    digest::{self, Sum},
    store::{Copy, Cut, DigestAt, Record, StoreError, Versions},
};
use annulus_ring::{Position, Slot};
use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase};

use super::{
    Shared, StoreFault,
    catalog::{Area, AreaId},
    merge::damaged,
    tables::{self, AREAS, RECORDS, VERSIONS},
};

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// One copy as it was at one moment.
pub(super) struct Reading {
    id: AreaId,
    /// As on disk at that moment: the watermark goes with the records.
    pub area: Area,
    records: Rows,
    versions: Rows,
}

impl Reading {
    pub fn open(
        database: &Database,
        shared: &Shared,
        slot: Slot,
        copy: Copy,
    ) -> Result<Self, StoreError> {
        let missing = || StoreError::Missing { slot, copy };
        let id = shared.catalog().find(slot, copy).ok_or_else(missing)?;
        let open = || -> Result<_, redb::Error> {
            let txn = database.begin_read()?;
            let area = txn.open_table(AREAS)?.get(id.0)?;
            let area = area.map(|row| tables::parse_area(row.value()));
            Ok((area, txn.open_table(RECORDS)?, txn.open_table(VERSIONS)?))
        };
        let (area, records, versions) =
            open().map_err(|error| StoreFault::engine("read", &error))?;
        let area = area
            .ok_or_else(missing)?
            .ok_or_else(|| StoreError::Damaged {
                slot,
                what: format!("the row of area {}", id.0),
            })?;
        Ok(Self {
            id,
            area,
            records,
            versions,
        })
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Record>, StoreError> {
        let row_key = tables::record_key(self.id, key);
        let row = self.records.get(row_key.as_slice()).map_err(fault)?;
        row.map(|row| {
            tables::parse_record(&row_key, row.value()).ok_or_else(|| damaged(self.area.slot, key))
        })
        .transpose()
    }

    /// All records, in the order of their keys.
    pub fn records(
        &self,
    ) -> Result<impl Iterator<Item = Result<Record, StoreError>> + Send + use<>, StoreError> {
        let (first, end) = tables::area_bounds(self.id);
        let rows = self
            .records
            .range(first.as_slice()..end.as_slice())
            .map_err(fault)?;
        let slot = self.area.slot;
        Ok(rows.map(move |row| {
            let (key, row) = row.map_err(fault)?;
            tables::parse_record(key.value(), row.value()).ok_or_else(|| damaged(slot, key.value()))
        }))
    }

    /// Records with versions above `from`, in the order of versions.
    pub fn above(
        self,
        from: Option<Position>,
    ) -> Result<impl Iterator<Item = Result<Record, StoreError>> + Send + use<>, StoreError> {
        let first = self.first_above(from);
        let (_, end) = tables::area_bounds(self.id);
        let rows = self
            .versions
            .range(first.as_slice()..end.as_slice())
            .map_err(fault)?;
        Ok(rows.map(move |row| {
            let (_, key) = row.map_err(fault)?;
            let key = key.value();
            self.get(key)?.ok_or_else(|| damaged(self.area.slot, key))
        }))
    }

    /// Versions above `from`, in order.
    pub fn positions_above(
        &self,
        from: Option<Position>,
    ) -> Result<impl Iterator<Item = Result<Position, StoreError>> + use<>, StoreError> {
        let first = self.first_above(from);
        let (_, end) = tables::area_bounds(self.id);
        let rows = self
            .versions
            .range(first.as_slice()..end.as_slice())
            .map_err(fault)?;
        let slot = self.area.slot;
        Ok(rows.map(move |row| {
            let (key, _) = row.map_err(fault)?;
            tables::parse_version_key(key.value()).ok_or_else(|| StoreError::Damaged {
                slot,
                what: "a row of the version index".to_owned(),
            })
        }))
    }

    /// Keys and versions above `from`, in the order of versions.
    pub fn versions(self, from: Option<Position>) -> Result<Versions, StoreError> {
        let first = self.first_above(from);
        let (_, end) = tables::area_bounds(self.id);
        let rows = self
            .versions
            .range(first.as_slice()..end.as_slice())
            .map_err(fault)?;
        let slot = self.area.slot;
        Ok(Box::new(rows.map(move |row| {
            let (version, key) = row.map_err(fault)?;
            let key = Bytes::copy_from_slice(key.value());
            match tables::parse_version_key(version.value()) {
                Some(version) => Ok((key, version)),
                None => Err(damaged(slot, &key)),
            }
        })))
    }

    /// The first row of the version index above `from`.
    fn first_above(&self, from: Option<Position>) -> Vec<u8> {
        match from {
            Some(from) => {
                tables::version_key(self.id, Position::new(from.reign, from.seq + 1)).to_vec()
            }
            None => tables::area_bounds(self.id).0.to_vec(),
        }
    }

    /// The copy at a cut.
    pub fn cut(self, from: Option<Position>) -> Result<Cut, StoreError> {
        let position = self.area.held.unwrap_or_default();
        let records: Box<dyn Iterator<Item = _> + Send> = match from {
            None => Box::new(self.records()?),
            Some(_) => Box::new(self.above(from)?),
        };
        Ok(Cut { position, records })
    }

    /// The digest at `cut`, or at the watermark.
    pub fn digest(
        &self,
        shared: &Shared,
        copy: Copy,
        cut: Option<Position>,
    ) -> Result<DigestAt, StoreError> {
        let (slot, held) = (self.area.slot, self.area.held);
        let at = cut.or(held).ok_or(StoreError::Pending { slot, held })?;
        let reached = held.filter(|held| at <= *held && at.reign <= held.reign);
        let Some(reached) = reached else {
            return Err(StoreError::NotThere {
                slot,
                asked: at,
                held,
            });
        };
        // A record above the watermark would be in the sum, and cannot be told apart from one that
        // replaced a record below it.
        if self.positions_above(held)?.next().transpose()?.is_some() {
            return Err(StoreError::Pending { slot, held });
        }
        let mut sum = Sum::new();
        for record in self.records()? {
            sum.add(digest::hash(&record?));
        }
        let undone = match copy {
            Copy::Live => shared.undo.take_out(self.id, at, reached, &mut sum),
            Copy::Staging(_) | Copy::Retained(_) if at == reached => Ok(()),
            Copy::Staging(_) | Copy::Retained(_) => Err(reached),
        };
        undone.map_err(|oldest| StoreError::CutTrimmed {
            slot,
            cut: at,
            oldest,
        })?;
        Ok(DigestAt {
            cut: at,
            digest: sum.to_bytes(),
            records: sum.records,
        })
    }
}

/// The newest record of a key in the live copy: the hot path, with one table and one lookup.
pub(super) fn get_live(
    database: &Database,
    shared: &Shared,
    slot: Slot,
    key: &[u8],
) -> Result<Option<Record>, StoreError> {
    let missing = StoreError::Missing {
        slot,
        copy: Copy::Live,
    };
    let id = shared.catalog().find(slot, Copy::Live).ok_or(missing)?;
    let row_key = tables::record_key(id, key);
    let open = || -> Result<Rows, redb::Error> { Ok(database.begin_read()?.open_table(RECORDS)?) };
    // The row is a view of a page, which only the table keeps from being written over: it must
    // outlive the row.
    let records = open().map_err(|error| StoreFault::engine("read", &error))?;
    let row = records.get(row_key.as_slice()).map_err(fault)?;
    row.map(|row| tables::parse_record(&row_key, row.value()).ok_or_else(|| damaged(slot, key)))
        .transpose()
}

fn fault(error: redb::StorageError) -> StoreError {
    StoreFault::engine("read", &error).into()
}
