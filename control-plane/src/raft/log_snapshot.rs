//! Log snapshots: the whole replicated state at one index, as a file of ours.
//!
//! ```text
//!   annulus log snapshot 1\n
//!   <sha-256 of what follows, 64 hex digits>\n
//!   <JSON: last_log_id, last_membership, state, shelf>
//! ```
//!
//! Made under a temporary name, synced, renamed, and the directory synced: so a file with a
//! final name is whole, and one that is not whole has been damaged since. The newest counts;
//! older ones are removed when it is durable.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use annulus_membership::State;
use annulus_proto::shelf::Shelf;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::StartError;
use super::log_store::{MemoryStorage, sync_directory, write_durably};
use super::types::{SnapshotMeta, StoredMembership};

const MAGIC: &[u8] = b"annulus log snapshot 1\n";
const HASH: usize = 64;
const EXTENSION: &str = "snapshot";

/// Most bytes of one log snapshot: a peer that claims or sends more is cut off. The shelf's
/// 256 MiB in hex, and as much again for everything else.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// Where log snapshots are kept.
#[derive(Clone, Debug)]
pub(super) enum LogSnapshots {
    Directory(PathBuf),
    Memory(MemoryStorage),
}

/// What one holds.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Content {
    pub(super) meta: SnapshotMeta,
    pub(super) state: State,
    pub(super) shelf: Shelf,
}

/// The same, borrowed.
#[derive(Serialize)]
struct ContentRef<'a> {
    meta: &'a SnapshotMeta,
    state: &'a State,
    shelf: &'a Shelf,
}

/// Bytes that are no log snapshot, or no longer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("it does not begin as a log snapshot of this format does")]
    Magic,
    #[error("its content hashes to {found}, its header says {expected}")]
    Hash { found: String, expected: String },
    #[error("its content does not read: {0}")]
    Content(#[from] serde_json::Error),
}

/// The bytes of a log snapshot.
pub(super) fn encode(meta: &SnapshotMeta, state: &State, shelf: &Shelf) -> io::Result<Bytes> {
    let mut bytes = MAGIC.to_vec();
    bytes.resize(MAGIC.len() + HASH, b'0');
    bytes.push(b'\n');
    let body = bytes.len();
    serde_json::to_writer(&mut bytes, &ContentRef { meta, state, shelf })?;
    let hash = hex::encode(Sha256::digest(&bytes[body..]));
    bytes[MAGIC.len()..MAGIC.len() + HASH].copy_from_slice(hash.as_bytes());
    Ok(bytes.into())
}

/// Checks the hash, then reads.
pub(super) fn decode(bytes: &[u8]) -> Result<Content, SnapshotError> {
    let body = checked(bytes)?;
    Ok(serde_json::from_slice(body)?)
}

fn checked(bytes: &[u8]) -> Result<&[u8], SnapshotError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Magic)?;
    let (expected, rest) = rest.split_at_checked(HASH).ok_or(SnapshotError::Magic)?;
    let body = rest.strip_prefix(b"\n").ok_or(SnapshotError::Magic)?;
    let found = hex::encode(Sha256::digest(body));
    if found.as_bytes() != expected {
        let expected = String::from_utf8_lossy(expected).into_owned();
        return Err(SnapshotError::Hash { found, expected });
    }
    Ok(body)
}

impl LogSnapshots {
    /// Makes the directory where it is missing, and removes what a crash left half-made.
    pub(super) fn directory(path: PathBuf) -> Result<Self, StartError> {
        let failed = |error: io::Error| StartError::Io {
            path: path.clone(),
            reason: error.to_string(),
        };
        if !path.exists() {
            fs::create_dir(&path).map_err(failed)?;
            sync_directory(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        }
        for file in fs::read_dir(&path).map_err(failed)? {
            let file = file.map_err(failed)?.path();
            if file.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_file(&file).map_err(failed)?;
            }
        }
        Ok(Self::Directory(path))
    }

    /// Durable when it returns; older ones are gone then. Blocks.
    pub(super) fn keep(&self, meta: &SnapshotMeta, bytes: Bytes) -> io::Result<()> {
        match self {
            Self::Memory(storage) => storage.keep_snapshot(bytes),
            Self::Directory(dir) => {
                let newest = dir.join(name(meta));
                write_durably(&newest, &bytes)?;
                for file in files(dir)? {
                    if file < newest {
                        fs::remove_file(&file)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The newest, whole; `None` where there is none yet. Blocks.
    pub(super) fn newest(&self) -> Result<Option<Bytes>, StartError> {
        match self {
            Self::Memory(storage) => Ok(storage.snapshot()),
            Self::Directory(dir) => {
                let failed = |path: &Path, error: io::Error| StartError::Io {
                    path: path.to_owned(),
                    reason: error.to_string(),
                };
                let (file, bytes) = loop {
                    let Some(file) = files(dir).map_err(|error| failed(dir, error))?.pop() else {
                        return Ok(None);
                    };
                    match fs::read(&file) {
                        Ok(bytes) => break (file, bytes),
                        // A newer one took its place in between.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(failed(&file, error)),
                    }
                };
                checked(&bytes).map_err(|error| StartError::Damaged {
                    path: file.clone(),
                    reason: error.to_string(),
                })?;
                Ok(Some(bytes.into()))
            }
        }
    }

    /// Where damage would be, for messages.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Memory(_) => PathBuf::from("memory"),
            Self::Directory(dir) => dir.clone(),
        }
    }
}

/// Sorts as (index, term).
fn name(meta: &SnapshotMeta) -> String {
    let (term, index) = meta
        .last_log_id
        .map_or((0, 0), |id| (id.leader_id.term, id.index));
    format!("{index:020}-{term:020}.{EXTENSION}")
}

/// Files with a final name, oldest first.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in fs::read_dir(dir)? {
        let file = file?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
        {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the head of a content only: for serving, where the state is not needed.
pub(super) fn meta_of(bytes: &[u8]) -> Result<SnapshotMeta, SnapshotError> {
    #[derive(Deserialize)]
    struct Head {
        meta: SnapshotMeta,
    }
    Ok(serde_json::from_slice::<Head>(checked(bytes)?)?.meta)
}

/// What a new state machine starts from.
pub(super) fn no_membership() -> StoredMembership {
    StoredMembership::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::log_id;

    fn meta(index: u64) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: Some(log_id(1, index)),
            last_membership: no_membership(),
        }
    }

    fn bytes(index: u64) -> Bytes {
        encode(&meta(index), &State::default(), &Shelf::default()).unwrap()
    }

    #[test]
    fn what_was_kept_comes_back_and_older_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let kept = LogSnapshots::directory(dir.path().join("snapshots")).unwrap();
        assert!(kept.newest().unwrap().is_none());
        for index in [9, 10, 200] {
            kept.keep(&meta(index), bytes(index)).unwrap();
        }
        let newest = decode(&kept.newest().unwrap().unwrap()).unwrap();
        assert_eq!(newest.meta, meta(200));
        assert_eq!(files(&kept.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_newest_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let kept = LogSnapshots::directory(dir.path().join("snapshots")).unwrap();
        kept.keep(&meta(7), bytes(7)).unwrap();
        let file = files(&kept.path()).unwrap().remove(0);
        let whole = fs::read(&file).unwrap();
        for damage in [whole[..whole.len() - 1].to_vec(), Vec::new(), {
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            flipped
        }] {
            fs::write(&file, damage).unwrap();
            let error = kept.newest().unwrap_err().to_string();
            assert!(error.contains(file.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_half_made_one_is_removed_at_start() {
        let dir = tempfile::tempdir().unwrap();
        let half = dir
            .path()
            .join("00000000000000000009-00000000000000000001.tmp");
        fs::write(&half, b"annulus").unwrap();
        let kept = LogSnapshots::directory(dir.path().to_owned()).unwrap();
        assert!(!half.exists());
        assert!(kept.newest().unwrap().is_none());
    }
}
