//! The last good snapshot on disk, so that a start needs no control plane.
//!
//! The file is the `SnapshotBytes` message as received; it carries its own checksum and is
//! loaded through the same door as a stream's. A new one replaces it whole: temporary file,
//! sync, rename, sync of the folder.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use annulus_proto::{MAX_MESSAGE_BYTES, v1};
use annulus_ring::RingName;
use prost::Message as _;
use tokio::sync::watch;

use crate::{
    current::{Current, EpochRef, SnapshotRefused},
    status::Board,
};

/// A temporary file older than this belongs to no writer that lives.
const LITTER_AFTER: Duration = Duration::from_secs(600);

/// Why a file was not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has {found} bytes, at most {limit} are read", path.display())]
    TooLong {
        path: PathBuf,
        found: u64,
        limit: usize,
    },
    #[error("{} is no snapshot: {source}", path.display())]
    Torn {
        path: PathBuf,
        source: prost::DecodeError,
    },
    #[error("{}: {source}", path.display())]
    Refused {
        path: PathBuf,
        source: SnapshotRefused,
    },
}

impl LoadError {
    /// Whether the file itself is at fault, and not only the way to it.
    fn is_damage(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// Where a ring's file lies.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
    ring: RingName,
}

impl Cache {
    pub(crate) fn new(dir: PathBuf, ring: RingName) -> Self {
        Self { dir, ring }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.snapshot", self.ring))
    }

    /// Where a damaged file is kept for whoever wants to know what happened; one per ring.
    fn aside(&self) -> PathBuf {
        self.dir.join(format!("{}.snapshot.damaged", self.ring))
    }

    fn temporary(&self) -> PathBuf {
        // Its own name per process: two programs may share the folder.
        self.dir
            .join(format!("{}.snapshot.{}.tmp", self.ring, std::process::id()))
    }

    /// Offers the file to `current`. A missing file is no trouble; a damaged one is counted,
    /// kept aside and replaced by the next good snapshot. Blocking.
    pub(crate) fn load_into(&self, current: &Current, board: &Board) {
        self.sweep();
        match self.load(current) {
            Ok(Some((held, written))) => {
                board.loaded(held, written);
                tracing::info!(ring = %self.ring, epoch = %held.epoch, "started from the last file");
            }
            Ok(None) => {}
            Err(error) => {
                if error.is_damage() {
                    board.update(|status| status.damaged_file_count += 1);
                    if let Err(error) = fs::rename(self.path(), self.aside()) {
                        tracing::warn!(ring = %self.ring, %error, "cannot keep a damaged file aside");
                    }
                }
                tracing::warn!(ring = %self.ring, %error, "the last file is not used");
                board.trouble(error);
            }
        }
    }

    fn load(&self, current: &Current) -> Result<Option<(EpochRef, SystemTime)>, LoadError> {
        let path = self.path();
        let (bytes, written) = match read(&path) {
            Ok(read) => read,
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(ReadError::Io(source)) => return Err(LoadError::Read { path, source }),
            Err(ReadError::TooLong(found)) => {
                return Err(LoadError::TooLong {
                    path,
                    found,
                    limit: MAX_MESSAGE_BYTES,
                });
            }
        };
        let message = match v1::SnapshotBytes::decode(bytes::Bytes::from(bytes)) {
            Ok(message) => message,
            Err(source) => return Err(LoadError::Torn { path, source }),
        };
        match current.offer(&message) {
            Ok(held) => Ok(Some((held, written))),
            Err(source) => Err(LoadError::Refused { path, source }),
        }
    }

    /// Replaces the file. Blocking; synced when it returns.
    pub(crate) fn store(&self, message: &v1::SnapshotBytes) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let temporary = self.temporary();
        let written = File::create(&temporary)
            .and_then(|mut file| {
                file.write_all(&message.encode_to_vec())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, self.path()));
        if let Err(error) = written {
            // What was there before is still whole; the half-written one is of no use.
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        // Without this the name may be back at the old file after a power cut, or at none.
        File::open(&self.dir)?.sync_all()
    }

    /// Removes what writers left that died in the middle.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        let prefix = format!("{}.snapshot.", self.ring);
        for entry in entries.flatten() {
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| {
                name.strip_prefix(&prefix)
                    .and_then(|rest| rest.strip_suffix(".tmp"))
                    .is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
            });
            let old = || {
                let written = entry
                    .metadata()
                    .and_then(|metadata| metadata.modified())
                    .ok()?;
                Some(written.elapsed().ok()? > LITTER_AFTER)
            };
            if ours && old() == Some(true) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

enum ReadError {
    Io(io::Error),
    TooLong(u64),
}

fn read(path: &Path) -> Result<(Vec<u8>, SystemTime), ReadError> {
    let mut file = File::open(path).map_err(ReadError::Io)?;
    let metadata = file.metadata().map_err(ReadError::Io)?;
    if metadata.len() > MAX_MESSAGE_BYTES as u64 {
        return Err(ReadError::TooLong(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.read_to_end(&mut bytes).map_err(ReadError::Io)?;
    Ok((bytes, metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// Keeps the file at the newest accepted snapshot, off the watch's own path: a slow disk
/// delays no swap, and what was overtaken is not written.
pub(crate) async fn keep(
    cache: Cache,
    board: Arc<Board>,
    mut newest: watch::Receiver<Option<(EpochRef, v1::SnapshotBytes)>>,
) {
    while newest.changed().await.is_ok() {
        let Some((held, message)) = newest.borrow_and_update().clone() else {
            continue;
        };
        let writer = cache.clone();
        let stored = tokio::task::spawn_blocking(move || writer.store(&message)).await;
        match stored.map_err(io::Error::other).and_then(|stored| stored) {
            Ok(()) => board.update(|status| status.cached = Some(held)),
            Err(error) => {
                let path = cache.path();
                tracing::warn!(path = %path.display(), epoch = %held.epoch, %error,
                    "cannot keep the snapshot on disk");
                board.update(|status| status.cache_failed_count += 1);
                board.trouble(format!("cannot write {}: {error}", path.display()));
            }
        }
    }
}
