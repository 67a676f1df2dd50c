//! What lies on disk: four redb tables and the bytes of their rows.
//!
//! ```text
//!   records   (area, key)        -> reign, seq, tombstone?, value
//!   versions  (area, reign, seq) -> key          one row per record, superseded ones removed
//!   areas     area               -> slot, role, watermark, marker, acknowledged
//!   meta      name               -> number
//! ```
//!
//! Numbers are big-endian, so that the order of bytes is the order of areas and positions.

use annulus_agent::store::{Held, Record};
use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;
use redb::TableDefinition;

use super::catalog::{Area, AreaId, Role};

/// Newest version of each key of each area.
pub(super) const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
/// By position: what a tail is read from.
pub(super) const VERSIONS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("versions");
/// Every copy of every slot.
pub(super) const AREAS: TableDefinition<u64, &[u8]> = TableDefinition::new("areas");
/// Format and the next area's number.
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The layout of this file; raised when a row's bytes change their meaning.
pub(super) const FORMAT: u64 = 1;
pub(super) const FORMAT_KEY: &str = "format";
pub(super) const NEXT_AREA_KEY: &str = "next_area";
/// 2^this slots, as of the last split; absent = never split.
pub(super) const SLOT_BITS_KEY: &str = "slot_bits";

const PUT: u8 = 0;
const TOMBSTONE: u8 = 1;
/// An area's row of before there were forks.
const FORKLESS_ROW_BYTES: usize = 52;
/// An area's row whose size is not counted.
const UNCOUNTED_ROW_BYTES: usize = 69;
/// reign, seq, kind.
const ROW_HEADER_BYTES: usize = 17;

/// Key of a record's row.
pub(super) fn record_key(area: AreaId, key: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(8 + key.len());
    row.extend_from_slice(&area.0.to_be_bytes());
    row.extend_from_slice(key);
    row
}

/// Key of a position's row.
pub(super) fn version_key(area: AreaId, at: Position) -> [u8; 24] {
    let mut row = [0; 24];
    row[..8].copy_from_slice(&area.0.to_be_bytes());
    row[8..16].copy_from_slice(&at.reign.0.to_be_bytes());
    row[16..].copy_from_slice(&at.seq.to_be_bytes());
    row
}

/// First key of an area, and the first after it.
pub(super) fn area_bounds(area: AreaId) -> ([u8; 8], [u8; 8]) {
    (area.0.to_be_bytes(), (area.0 + 1).to_be_bytes())
}

/// A record's row.
pub(super) fn record_row(record: &Record) -> Vec<u8> {
    let value = record.value.as_deref().unwrap_or_default();
    let mut row = Vec::with_capacity(ROW_HEADER_BYTES + value.len());
    row.extend_from_slice(&record.version.reign.0.to_be_bytes());
    row.extend_from_slice(&record.version.seq.to_be_bytes());
    row.push(if record.value.is_some() {
        PUT
    } else {
        TOMBSTONE
    });
    row.extend_from_slice(value);
    row
}

/// A row's version and value; nothing if the bytes make no sense.
pub(super) fn parse_row(row: &[u8]) -> Option<(Position, Option<&[u8]>)> {
    let (header, value) = row.split_at_checked(ROW_HEADER_BYTES)?;
    let version = Position::new(Epoch(be64(header, 0)?), be64(header, 8)?);
    match (header[16], value.is_empty()) {
        (PUT, _) => Some((version, Some(value))),
        (TOMBSTONE, true) => Some((version, None)),
        _ => None,
    }
}

/// The record of a row; nothing if the bytes make no sense.
pub(super) fn parse_record(row_key: &[u8], row: &[u8]) -> Option<Record> {
    let (version, value) = parse_row(row)?;
    Some(Record {
        key: Bytes::copy_from_slice(row_key.get(8..)?),
        version,
        value: value.map(Bytes::copy_from_slice),
    })
}

/// The position in a row of `versions`.
pub(super) fn parse_version_key(row_key: &[u8]) -> Option<Position> {
    Some(Position::new(Epoch(be64(row_key, 8)?), be64(row_key, 16)?))
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at + 8)?;
    Some(u64::from_be_bytes(part.try_into().ok()?))
}

fn push_position(row: &mut Vec<u8>, position: Option<Position>) {
    row.push(u8::from(position.is_some()));
    let position = position.unwrap_or_default();
    row.extend_from_slice(&position.reign.0.to_be_bytes());
    row.extend_from_slice(&position.seq.to_be_bytes());
}

fn parse_position(row: &[u8], at: usize) -> Option<Option<Position>> {
    let position = Position::new(Epoch(be64(row, at + 1)?), be64(row, at + 9)?);
    match row.get(at)? {
        0 => Some(None),
        1 => Some(Some(position)),
        _ => None,
    }
}

/// An area's row: slot 4, role 1, session 8, attempt 4, complete 1, watermark 17, acknowledged 17,
/// fork 17, and, where it is counted, bytes 8 and keys 8.
pub(super) fn area_row(area: &Area) -> Vec<u8> {
    let (role, session) = match area.role {
        Role::Live => (0, 0),
        Role::Staging(session) => (1, session.0),
        Role::Retained(session) => (2, session.0),
        Role::Dropped => (3, 0),
    };
    let mut row = Vec::with_capacity(UNCOUNTED_ROW_BYTES + 16);
    row.extend_from_slice(&area.slot.0.to_be_bytes());
    row.push(role);
    row.extend_from_slice(&u64::to_be_bytes(session));
    row.extend_from_slice(&area.attempt.to_be_bytes());
    row.push(u8::from(area.complete));
    push_position(&mut row, area.held);
    push_position(&mut row, area.acknowledged);
    push_position(&mut row, area.fork);
    if let Some(size) = area.size {
        row.extend_from_slice(&size.bytes.to_be_bytes());
        row.extend_from_slice(&size.keys.to_be_bytes());
    }
    row
}

/// An area from its row, without what is only in memory; nothing if the bytes make no sense.
pub(super) fn parse_area(row: &[u8]) -> Option<Area> {
    let be32 = |at: usize| Some(u32::from_be_bytes(row.get(at..at + 4)?.try_into().ok()?));
    let session = SessionId(be64(row, 5)?);
    let role = match row.get(4)? {
        0 => Role::Live,
        1 => Role::Staging(session),
        2 => Role::Retained(session),
        3 => Role::Dropped,
        _ => return None,
    };
    let mut area = Area::new(Slot(be32(0)?), role, be32(13)?);
    area.complete = *row.get(17)? != 0;
    area.held = parse_position(row, 18)?;
    area.acknowledged = parse_position(row, 35)?;
    if row.len() > FORKLESS_ROW_BYTES {
        area.fork = parse_position(row, FORKLESS_ROW_BYTES)?;
    }
    area.size = if row.len() > UNCOUNTED_ROW_BYTES {
        Some(Held {
            bytes: be64(row, UNCOUNTED_ROW_BYTES)?,
            keys: be64(row, UNCOUNTED_ROW_BYTES + 8)?,
        })
    } else {
        None
    };
    Some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_went() {
        let at = Position::new(Epoch(3), 9);
        for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"v"))] {
            let record = Record {
                key: Bytes::from_static(b"k"),
                version: at,
                value,
            };
            let key = record_key(AreaId(7), &record.key);
            assert_eq!(parse_record(&key, &record_row(&record)), Some(record));
        }
        let mut area = Area::new(Slot(5), Role::Staging(SessionId(4)), 2);
        area.held = Some(at);
        area.complete = true;
        area.fork = Some(Position::new(Epoch(2), 7));
        area.size = Some(Held { bytes: 7, keys: 2 });
        let back = parse_area(&area_row(&area)).unwrap();
        assert_eq!(area_row(&back), area_row(&area));
        assert_eq!(
            (back.slot, back.role, back.held, back.fork),
            (area.slot, area.role, area.held, area.fork)
        );
        assert_eq!(back.size, area.size);
        area.size = None;
        let back = parse_area(&area_row(&area)).unwrap();
        assert_eq!(back.size, None, "a row of before this was counted");
        let before_forks = parse_area(&area_row(&area)[..52]).unwrap();
        assert_eq!((before_forks.held, before_forks.fork), (area.held, None));
        assert_eq!(parse_version_key(&version_key(AreaId(1), at)), Some(at));
    }

    #[test]
    fn damaged_rows_are_refused() {
        assert_eq!(parse_row(&[0; 16]), None);
        assert_eq!(parse_row(&[9; 17]), None);
        assert!(parse_area(&[0; 20]).is_none());
        assert!(parse_area(&[9; 52]).is_none());
    }
}
