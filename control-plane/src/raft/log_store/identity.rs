//! Whose directory this is: a lock, and a small file that outlives a lost store.
//!
//! A server whose store vanished must never begin empty under its old id (it would vote twice):
//! so the identity is written last when a directory is made, and a directory with an identity
//! but without a whole store is refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::raft::StartError;

/// Layout of the directory and of the records in it.
pub(super) const FORMAT: u64 = 1;
/// How long a quick restart waits for its predecessor to let go.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Whose directory this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) format: u64,
    pub(super) server_id: u64,
}

impl Identity {
    pub(super) fn new(server_id: u64) -> Self {
        Self {
            format: FORMAT,
            server_id,
        }
    }

    /// Refuses another server's directory, and a newer release's.
    pub(super) fn check(self, dir: &Path, server_id: u64) -> Result<(), StartError> {
        let dir = dir.to_owned();
        if self.format != FORMAT {
            return Err(StartError::Format {
                dir,
                found: self.format,
                expected: FORMAT,
            });
        }
        if self.server_id != server_id {
            return Err(StartError::OtherServer {
                dir,
                found: self.server_id,
                expected: server_id,
            });
        }
        Ok(())
    }

    /// `None` where there is no such file.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, StartError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path, &error)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| StartError::Damaged {
                path: path.to_owned(),
                reason: format!("it does not read as an identity: {error}"),
            })
    }

    /// Whole and durable, or not there.
    pub(super) fn write(self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&self)?;
        write_durably(path, &text)
    }
}

/// Temporary name, sync, rename, sync of the directory.
pub(in crate::raft) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Makes names in a directory durable.
pub(in crate::raft) fn sync_directory(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    File::open(dir)?.sync_all()
}

pub(super) fn failed(path: &Path, error: &io::Error) -> StartError {
    StartError::Io {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// Held for as long as the store is open; the kernel lets go when the process ends.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Waits a few seconds for a predecessor that is ending. Blocks.
    pub(super) fn take(dir: &Path) -> Result<Self, StartError> {
        let path: PathBuf = dir.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    return Err(StartError::Locked {
                        dir: dir.to_owned(),
                        waited_ms,
                    });
                }
                Err(TryLockError::Error(error)) => return Err(failed(&path, &error)),
            }
        }
    }
}
