//! An entry in a key-value store: parts under (index, part), each with its own checksum.
//!
//! ```text
//!   key    index 8 | part 2                                   big-endian, so order is log order
//!   value  index 8 | term 8 | length 4 | parts 2 | part 2 | crc 4 | bytes
//! ```
//!
//! `length` is the whole payload's; `crc` is CRC-32 over the rest of the header and the bytes.
//! Repeating the key in the value finds records that ended up under another's key.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};

use crate::raft::types::{LogId, log_id};

/// Payload bytes of one part. Far below the 48 KiB that design.md allows: a sled leaf gathers
/// up to 20 values before it splits, and a page over 128 KiB (a quarter of a segment) would go
/// to a blob file, which sled never syncs.
pub(super) const PART_BYTES: usize = 6 * 1024;

/// Most bytes of one payload: parts are counted in 16 bits, and an entry is refused long before.
pub(super) const MAX_PAYLOAD_BYTES: usize = 16 << 20;

const HEADER: usize = 8 + 8 + 4 + 2 + 2 + 4;

pub(super) type Key = [u8; 10];

pub(super) fn key(index: u64, part: u16) -> Key {
    let mut key = [0; 10];
    key[..8].copy_from_slice(&index.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Index and part of a key.
pub(super) fn split(key: Key) -> (u64, u16) {
    let mut fields = key.as_slice();
    (fields.get_u64(), fields.get_u16())
}

/// How many parts a payload of so many bytes has; at least one.
pub(super) fn parts(bytes: usize) -> u16 {
    u16::try_from(bytes.div_ceil(PART_BYTES).max(1)).unwrap_or(u16::MAX)
}

/// The payload's parts, in order.
pub(super) fn encode(id: LogId, payload: &[u8]) -> impl Iterator<Item = (Key, Vec<u8>)> {
    let count = parts(payload.len());
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    (0..count).map(move |part| {
        let from = usize::from(part) * PART_BYTES;
        let bytes = &payload[from..payload.len().min(from + PART_BYTES)];
        let mut value = Vec::with_capacity(HEADER + bytes.len());
        value.put_u64(id.index);
        value.put_u64(id.leader_id.term);
        value.put_u32(length);
        value.put_u16(count);
        value.put_u16(part);
        value.put_u32(crc(&value, bytes));
        value.put_slice(bytes);
        (key(id.index, part), value)
    })
}

fn crc(header: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(bytes);
    hasher.finalize()
}

/// Puts parts together again, in key order, and says what does not fit.
#[derive(Default)]
pub(super) struct Assembler {
    entries: BTreeMap<u64, (LogId, Bytes)>,
    open: Option<(LogId, u32, u16, Vec<u8>)>,
    last_part: u16,
}

impl Assembler {
    /// Takes the next part.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut fields = value;
        if value.len() < HEADER {
            return Err(format!(
                "log record has {} bytes, a header has {HEADER}",
                value.len()
            ));
        }
        let index = fields.get_u64();
        let term = fields.get_u64();
        let length = fields.get_u32();
        let count = fields.get_u16();
        let part = fields.get_u16();
        let expected = fields.get_u32();
        let found = crc(&value[..HEADER - 4], fields);
        if found != expected {
            return Err(format!(
                "entry {index} part {part} hashes to {found:08x}, its header says {expected:08x}"
            ));
        }
        if key != self::key(index, part) {
            return Err(format!(
                "entry {index} part {part} is under another's key {key:02x?}"
            ));
        }
        let id = log_id(term, index);
        match &mut self.open {
            Some((open, .., bytes)) => {
                if *open != id || part != self.last_part + 1 {
                    return Err(format!(
                        "entry {} part {} is missing, found entry {index} part {part}",
                        open.index,
                        self.last_part + 1
                    ));
                }
                bytes.extend_from_slice(fields);
            }
            None => {
                if part != 0 {
                    return Err(format!(
                        "entry {index} begins with part {part}, expected part 0"
                    ));
                }
                self.open = Some((id, length, count, fields.to_vec()));
            }
        }
        self.last_part = part;
        self.close_if_complete()
    }

    fn close_if_complete(&mut self) -> Result<(), String> {
        let complete =
            |(_, _, count, _): &mut (LogId, u32, u16, Vec<u8>)| self.last_part + 1 == *count;
        if let Some((id, length, _, bytes)) = self.open.take_if(complete) {
            if bytes.len() != length as usize {
                return Err(format!(
                    "entry {} has {} bytes, its header says {length}",
                    id.index,
                    bytes.len()
                ));
            }
            self.entries.insert(id.index, (id, bytes.into()));
        }
        Ok(())
    }

    /// All entries, contiguous behind `purged`, terms never falling.
    pub(super) fn finish(
        self,
        purged: Option<LogId>,
    ) -> Result<BTreeMap<u64, (LogId, Bytes)>, String> {
        if let Some((id, _, count, _)) = self.open {
            return Err(format!(
                "entry {} ends after part {} of {count}",
                id.index, self.last_part
            ));
        }
        let mut last = purged;
        for (id, _) in self.entries.values() {
            let expected = last.map_or(0, |last| last.index + 1);
            if id.index != expected {
                return Err(format!(
                    "the log goes on with entry {}, expected {expected}",
                    id.index
                ));
            }
            if last.is_some_and(|last| id.leader_id < last.leader_id) {
                return Err(format!(
                    "entry {} is of term {}, the one before of a later one",
                    id.index, id.leader_id.term
                ));
            }
            last = Some(*id);
        }
        Ok(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(sizes: &[usize]) -> Vec<(Key, Vec<u8>)> {
        let entries = sizes.iter().enumerate().map(|(at, size)| {
            let payload = vec![u8::try_from(at % 251).unwrap(); *size];
            encode(log_id(1, at as u64), &payload).collect::<Vec<_>>()
        });
        entries.flatten().collect()
    }

    fn load(
        stored: &[(Key, Vec<u8>)],
        purged: Option<LogId>,
    ) -> Result<BTreeMap<u64, (LogId, Bytes)>, String> {
        let mut assembler = Assembler::default();
        for (key, value) in stored {
            assembler.take(key, value)?;
        }
        assembler.finish(purged)
    }

    #[test]
    fn entries_of_every_size_come_back() {
        let sizes = [
            0,
            1,
            PART_BYTES - 1,
            PART_BYTES,
            PART_BYTES + 1,
            5 * PART_BYTES + 7,
            3,
        ];
        let loaded = load(&stored(&sizes), None).unwrap();
        for (at, size) in sizes.iter().enumerate() {
            assert_eq!(loaded[&(at as u64)].1.len(), *size);
        }
    }

    #[test]
    fn a_hole_is_named() {
        let mut records = stored(&[10, 10, 10]);
        records.remove(1);
        assert_eq!(
            load(&records, None).unwrap_err(),
            "the log goes on with entry 2, expected 1"
        );
    }

    #[test]
    fn a_missing_part_is_named() {
        let mut records = stored(&[10, 3 * PART_BYTES, 10]);
        records.remove(2);
        let error = load(&records, None).unwrap_err();
        assert_eq!(error, "entry 1 part 1 is missing, found entry 1 part 2");
        let mut records = stored(&[10, 3 * PART_BYTES]);
        records.pop();
        assert_eq!(
            load(&records, None).unwrap_err(),
            "entry 1 ends after part 1 of 3"
        );
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let records = stored(&[40]);
        for byte in 0..records[0].1.len() {
            let mut damaged = records.clone();
            damaged[0].1[byte] ^= 4;
            assert!(load(&damaged, None).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn the_log_begins_behind_what_was_purged() {
        let records = stored(&[10, 10, 10]);
        let error = load(&records[2..], Some(log_id(1, 0))).unwrap_err();
        assert_eq!(error, "the log goes on with entry 2, expected 1");
        assert_eq!(load(&records[1..], Some(log_id(1, 0))).unwrap().len(), 2);
    }
}
