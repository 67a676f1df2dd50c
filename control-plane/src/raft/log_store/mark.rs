//! A witness outside sled of how far sled had got: a store that lost its tail and opens as if
//! nothing were missing is found by it.
//!
//! Every group of writes raises a number inside the store; when the group is durable the number
//! is put into this file, and only then is anybody told. So the store's number is never behind
//! the file's, unless the store was truncated, damaged or put back from a copy. Two slots are
//! written in turn: a power cut spoils at most the newer, which nobody was told of.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: [u8; 8] = *b"annmark1";
/// Slots lie on sectors of their own, even on disks with large ones.
const SLOT: u64 = 4_096;
const LENGTH: usize = 8 + 8 + 4;

pub(super) struct Mark {
    file: File,
}

impl Mark {
    /// Makes and syncs the file; the caller syncs the directory.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.set_len(2 * SLOT)?;
        let mark = Self { file };
        mark.write_slot(0, 0)?;
        mark.write_slot(1, 0)?;
        mark.file.sync_all()?;
        Ok(mark)
    }

    /// Opens it and reads the newer number.
    pub(super) fn open(path: &Path) -> io::Result<(Self, u64)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let slots = [read_slot(&file, 0), read_slot(&file, 1)];
        let newest = slots.into_iter().flatten().max();
        let newest = newest.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "neither of its two slots is whole",
            )
        })?;
        Ok((Self { file }, newest))
    }

    /// Durable when it returns.
    pub(super) fn set(&self, number: u64) -> io::Result<()> {
        self.write_slot(number % 2, number)?;
        self.file.sync_data()
    }

    fn write_slot(&self, slot: u64, number: u64) -> io::Result<()> {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        let crc = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&crc.to_be_bytes());
        self.file.write_all_at(&bytes, slot * SLOT)
    }
}

fn read_slot(file: &File, slot: u64) -> Option<u64> {
    let mut bytes = [0; LENGTH];
    file.read_exact_at(&mut bytes, slot * SLOT).ok()?;
    let whole = bytes[..8] == MAGIC && crc32fast::hash(&bytes[..16]).to_be_bytes() == bytes[16..];
    let number: [u8; 8] = bytes[8..16].try_into().ok()?;
    whole.then(|| u64::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        let mark = Mark::create(&path).unwrap();
        assert_eq!(Mark::open(&path).unwrap().1, 0);
        mark.set(7).unwrap();
        mark.set(8).unwrap();
        assert_eq!(Mark::open(&path).unwrap().1, 8);
        // A torn write of 9 spoils the slot of 7.
        mark.file.write_all_at(&[0xff; 10], SLOT).unwrap();
        assert_eq!(Mark::open(&path).unwrap().1, 8);
        mark.file.write_all_at(&[0xff; 10], 0).unwrap();
        assert!(Mark::open(&path).is_err());
    }
}
