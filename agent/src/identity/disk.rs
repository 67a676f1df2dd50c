//! One small record on disk that is replaced often, at the price of one data sync.
//!
//! ```text
//!   | version 7 | version 7 | version 8 | version 8 |     four regions, the versions in turns
//!     pair 1                  pair 0
//! ```
//!
//! A file that is written anew, renamed and synced with its directory costs the file system's
//! journal two commits, some 5 to 10 ms, and a hand-over waits for two or three of them. Here the
//! next version overwrites the pair that holds the one before the last, so what a crash tears was
//! never told to anybody and the last version stands untouched beside it. Each version is there
//! twice: damage to one copy is no reason to fall back to an older version, which would forget what
//! was said.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"annulus2";
/// Magic, version, length of the record, SHA-256 over version, length and record.
const HEADER: usize = 8 + 8 + 4 + 32;
const REGIONS: u64 = 4;
/// Bytes of a region at first; doubled when a record does not fit.
const SMALLEST: u64 = 16 << 10;

/// The open file.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    file: File,
    region: u64,
    version: u64,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub disk: Disk,
    pub record: Vec<u8>,
    /// One of the two copies of the newest version is damaged.
    pub halved: bool,
}

impl Disk {
    /// Makes the file with a first record, in the place of any other.
    pub(super) fn create(path: &Path, record: &[u8]) -> io::Result<Self> {
        Self::anew(path, 1, record)
    }

    /// Opens the file and reads its newest record; none, if no version in it is whole.
    pub(super) fn open(path: &Path) -> io::Result<Option<Found>> {
        let bytes = fs::read(path)?;
        let region = bytes.len() as u64 / REGIONS;
        if region < SMALLEST || !(bytes.len() as u64).is_multiple_of(REGIONS) {
            return Ok(None);
        }
        let size = usize::try_from(region).unwrap_or(usize::MAX);
        let versions = bytes.chunks_exact(size).filter_map(parse);
        let Some((version, record)) = versions.clone().max_by_key(|(version, _)| *version) else {
            return Ok(None);
        };
        let copies = versions.filter(|(other, _)| *other == version).count();
        let record = record.to_vec();
        let file = OpenOptions::new().write(true).open(path)?;
        let disk = Self {
            path: path.to_owned(),
            file,
            region,
            version,
        };
        Ok(Some(Found {
            disk,
            record,
            halved: copies < 2,
        }))
    }

    /// Replaces the record; on disk when this returns. When it fails, either the old or the new
    /// one is.
    pub(super) fn replace(&mut self, record: &[u8]) -> io::Result<()> {
        let version = self.version + 1;
        // Whatever becomes of this try, the next one must not touch the other pair.
        self.version = version + 1;
        let frame = frame(version, record)?;
        if frame.len() as u64 > self.region {
            *self = Self::anew(&self.path, version, record)?;
            return Ok(());
        }
        for offset in offsets(version, self.region) {
            self.file.write_all_at(&frame, offset)?;
        }
        self.file.sync_data()?;
        self.version = version;
        Ok(())
    }

    /// A whole file, large enough for the record.
    fn anew(path: &Path, version: u64, record: &[u8]) -> io::Result<Self> {
        let frame = frame(version, record)?;
        let mut region = SMALLEST;
        while region < frame.len() as u64 {
            region *= 2;
        }
        let mut bytes = vec![0; usize::try_from(region * REGIONS).map_err(io::Error::other)?];
        for offset in offsets(version, region) {
            let offset = usize::try_from(offset).map_err(io::Error::other)?;
            bytes[offset..offset + frame.len()].copy_from_slice(&frame);
        }
        let temporary = temporary(path);
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        if let Some(dir) = path.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            region,
            version,
        })
    }
}

/// Where a whole file is written before it takes its name.
pub(super) fn temporary(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

/// Where the two copies of a version are.
fn offsets(version: u64, region: u64) -> [u64; 2] {
    let pair = version % 2;
    [pair * 2 * region, (pair * 2 + 1) * region]
}

fn frame(version: u64, record: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(record.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(HEADER + record.len());
    frame.extend(MAGIC);
    frame.extend(version.to_le_bytes());
    frame.extend(length.to_le_bytes());
    frame.extend(sum(version, record));
    frame.extend(record);
    Ok(frame)
}

fn sum(version: u64, record: &[u8]) -> [u8; 32] {
    let mut sum = Sha256::new();
    sum.update(version.to_le_bytes());
    sum.update((record.len() as u64).to_le_bytes());
    sum.update(record);
    sum.finalize().into()
}

/// The version and record of a region that is whole.
fn parse(region: &[u8]) -> Option<(u64, &[u8])> {
    let rest = region.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (told, rest) = rest.split_first_chunk::<32>()?;
    let version = u64::from_le_bytes(*version);
    let record = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    (sum(version, record) == *told).then_some((version, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("record")
        }

        fn bytes(&self) -> Vec<u8> {
            fs::read(self.path()).unwrap()
        }

        /// Opens the file as it would be with these bytes.
        fn with(&self, bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
            let path = self.0.path().join("other");
            fs::write(&path, bytes).unwrap();
            let found = Disk::open(&path).unwrap();
            found.map(|found| (found.record, found.halved))
        }
    }

    #[test]
    fn the_last_record_is_read_again() {
        let scratch = Scratch::new();
        let mut disk = Disk::create(&scratch.path(), b"0").unwrap();
        for n in 1..10 {
            disk.replace(n.to_string().as_bytes()).unwrap();
            let mut found = Disk::open(&scratch.path()).unwrap().unwrap();
            assert_eq!((found.record, found.halved), (n.to_string().into(), false));
            if n % 3 == 0 {
                // Another process goes on where this one stopped.
                found.disk.replace(b"between").unwrap();
                disk = Disk::open(&scratch.path()).unwrap().unwrap().disk;
            }
        }
    }

    #[test]
    fn a_record_that_does_not_fit_gets_a_larger_file() {
        let scratch = Scratch::new();
        let mut disk = Disk::create(&scratch.path(), b"small").unwrap();
        let small = scratch.bytes().len();
        let large = vec![7; 100_000];
        disk.replace(&large).unwrap();
        assert!(scratch.bytes().len() > small);
        assert_eq!(Disk::open(&scratch.path()).unwrap().unwrap().record, large);
        disk.replace(b"small again").unwrap();
        let found = Disk::open(&scratch.path()).unwrap().unwrap();
        assert_eq!(found.record, b"small again");
    }

    /// Whatever part of a write reached the disk: the old record or the new one, whole.
    #[test]
    fn a_torn_write_leaves_the_old_record_or_the_new_one() {
        let scratch = Scratch::new();
        let mut disk = Disk::create(&scratch.path(), b"first").unwrap();
        disk.replace(b"old").unwrap();
        let before = scratch.bytes();
        disk.replace(b"the new one").unwrap();
        let after = scratch.bytes();
        let differing: Vec<usize> = (0..before.len())
            .filter(|at| before[*at] != after[*at])
            .collect();
        assert!(differing.len() > 40, "two copies with their sums");
        for reached in 0..=differing.len() {
            let (some, rest) = differing.split_at(reached);
            // In order, and in the reverse order, as a disk may.
            for written in [some, rest] {
                let mut torn = before.clone();
                written.iter().for_each(|at| torn[*at] = after[*at]);
                let (record, _) = scratch.with(&torn).unwrap();
                assert!(record == b"old" || record == b"the new one", "{record:?}");
            }
        }
        assert_eq!(scratch.with(&after), Some((b"the new one".to_vec(), false)));
    }

    #[test]
    fn damage_to_one_copy_forgets_nothing() {
        let scratch = Scratch::new();
        let mut disk = Disk::create(&scratch.path(), b"first").unwrap();
        disk.replace(b"last").unwrap();
        let bytes = scratch.bytes();
        let newest = offsets(2, SMALLEST).map(|offset| usize::try_from(offset).unwrap());
        for at in 0..HEADER + 4 {
            for copy in newest {
                let mut damaged = bytes.clone();
                damaged[copy + at] ^= 1;
                assert_eq!(
                    scratch.with(&damaged),
                    Some((b"last".to_vec(), true)),
                    "{at}"
                );
            }
        }
        assert_eq!(scratch.with(&bytes[..100]), None, "no file of this kind");
        assert_eq!(scratch.with(&vec![0; bytes.len()]), None, "nothing whole");
    }

    /// The pair that holds the last record is not touched before another one is whole.
    #[test]
    fn a_failed_write_is_tried_again_in_its_own_place() {
        let scratch = Scratch::new();
        let mut disk = Disk::create(&scratch.path(), b"first").unwrap();
        disk.replace(b"last").unwrap();
        let last = offsets(2, SMALLEST).map(|offset| usize::try_from(offset).unwrap());
        let kept = scratch.bytes();
        let writable = std::mem::replace(&mut disk.file, File::open(scratch.path()).unwrap());
        for _ in 0..3 {
            assert!(
                disk.replace(b"lost").is_err(),
                "the file is open for reading"
            );
        }
        disk.file = writable;
        disk.replace(b"next").unwrap();
        let now = scratch.bytes();
        for at in last {
            assert_eq!(now[at..at + HEADER], kept[at..at + HEADER]);
        }
        assert_eq!(
            Disk::open(&scratch.path()).unwrap().unwrap().record,
            b"next"
        );
    }
}
