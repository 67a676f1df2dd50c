//! Whose data this is: the agent's small durable file, beside the store. What is said to the leader
//! was synced here (or in the store) before. Its contents are JSON, for whoever looks into it.

mod disk;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use annulus_ring::{ClusterId, Epoch, Generation, Incarnation, NodeId, RingName, SessionId, Slot};
use serde::{Deserialize, Serialize};
use tracing::warn;

use self::disk::Disk;

const FILE: &str = "identity";
const LOCK: &str = "lock";
/// The `format` that this build writes and reads.
const FORMAT: u32 = 1;

/// What an agent remembers over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Which fields there are.
    pub format: u32,
    /// The ring that the directory belongs to.
    pub ring: RingName,
    /// The node that it belongs to.
    pub node_id: NodeId,
    /// Drawn when the directory was made, or when its data was set aside. 32 hexadecimal digits,
    /// since readers of JSON that know only doubles would bend a number.
    #[serde(with = "hex128")]
    pub birth: u128,
    /// Given by the control plane; 0 = none yet.
    pub incarnation: Incarnation,
    /// The control plane it was first welcomed by.
    pub cluster_id: Option<ClusterId>,
    /// Generation of the adopted epoch.
    pub generation: Generation,
    /// Adopted, and drained.
    pub adopted: Epoch,
    /// A copy was opened in this incarnation: an empty store is then a loss, not a beginning.
    pub held: bool,
    /// The last transition in which this node was to lose ranges, adopted at its switch: the
    /// session under which live copies that are no longer listed are retained.
    pub losing: SessionId,
    /// Hand-over waves that this owner sealed, with slot and sealed reign.
    pub seals: BTreeMap<u64, Vec<(Slot, Epoch)>>,
    /// Waves up to this one are over.
    pub waves_over: u64,
    /// How the slots of the copies held were named; absent = as in the next view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CircleCut>,
}

/// How keys find their slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircleCut {
    /// Hash of keys.
    pub hash: String,
    /// There are 2^this slots.
    pub slot_bits: u8,
}

/// Why an agent's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The system said no.
    #[error("agent directory: {doing} {path}: {source}", path = .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("agent directory {path}: another process uses it; stop that one or name another directory", path = .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file is not what was written.
    #[error("{path} is damaged ({why}); restore it, or start this node with an empty directory", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// The directory belongs to another ring or node.
    #[error("{path} belongs to {found}, this agent is {expected}; name another directory", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who asks.
        expected: String,
    },
}

/// The file, open and locked for this process.
#[derive(Debug)]
pub struct IdentityFile {
    path: PathBuf,
    known: Mutex<Known>,
    /// Held as long as the agent uses the directory; the system drops it with the process.
    lock: Mutex<Option<File>>,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    disk: Disk,
}

impl IdentityFile {
    /// Opens the directory, makes it where it is missing, and draws a birth where there is none.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open(dir: &Path, ring: &RingName, node_id: &NodeId) -> Result<Self, IdentityError> {
        fs::create_dir_all(dir).map_err(io_error("make", dir))?;
        let lock = lock(dir)?;
        let path = dir.join(FILE);
        // A write that was cut short before its rename: never said to anybody.
        let temporary = disk::temporary(&path);
        match fs::remove_file(&temporary) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("remove", &temporary)(error)),
        }
        let known = match Disk::open(&path) {
            Ok(Some(found)) => {
                if found.halved {
                    warn!(path = %path.display(), "one of two copies is damaged; the other one serves");
                }
                let identity = parse(&path, &found.record)?;
                let (found_names, expected) =
                    ((&identity.ring, &identity.node_id), (ring, node_id));
                if found_names != expected {
                    return Err(IdentityError::Foreign {
                        path,
                        found: format!("node {} of ring {}", found_names.1, found_names.0),
                        expected: format!("node {node_id} of ring {ring}"),
                    });
                }
                Known {
                    identity,
                    disk: found.disk,
                }
            }
            Ok(None) => {
                let why = "no record in it is whole".to_owned();
                return Err(IdentityError::Damaged { path, why });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::new(ring.clone(), node_id.clone());
                let disk = Disk::create(&path, &to_json(&identity));
                let disk = disk.map_err(io_error("write", &path))?;
                if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    sync_dir(parent)?;
                }
                Known { identity, disk }
            }
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        Ok(Self {
            path,
            known: Mutex::new(known),
            lock: Mutex::new(Some(lock)),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the directory up, once a write that is under way has ended.
    pub(crate) fn unlock(&self) {
        let _known = self.known();
        self.lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// What is on disk.
    #[must_use]
    pub fn get(&self) -> Identity {
        self.known().identity.clone()
    }

    /// Changes it; on disk when this returns. When it fails nothing is changed here, and a restart
    /// may find either. Blocks for a sync.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn update(&self, change: impl FnOnce(&mut Identity)) -> Result<Identity, IdentityError> {
        let mut known = self.known();
        if self
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
        {
            // Given up: the file may be another process's by now.
            return Err(IdentityError::InUse {
                path: self.path.clone(),
            });
        }
        let mut next = known.identity.clone();
        change(&mut next);
        if next != known.identity {
            let written = known.disk.replace(&to_json(&next));
            written.map_err(io_error("write", &self.path))?;
            known.identity = next.clone();
        }
        Ok(next)
    }
}

impl Identity {
    fn new(ring: RingName, node_id: NodeId) -> Self {
        Self {
            format: FORMAT,
            ring,
            node_id,
            birth: rand::random(),
            incarnation: Incarnation(0),
            cluster_id: None,
            generation: Generation(0),
            adopted: Epoch(0),
            held: false,
            losing: SessionId(0),
            seals: BTreeMap::new(),
            waves_over: 0,
            cut: None,
        }
    }

    /// The data was set aside: the same directory begins a new life.
    pub fn be_reborn(&mut self) {
        *self = Self {
            // Epochs only rise for this process's peers and clients, whatever its life.
            generation: self.generation,
            adopted: self.adopted,
            cluster_id: self.cluster_id,
            ..Self::new(self.ring.clone(), self.node_id.clone())
        };
    }

    /// Sealed slots of all waves that are not over, with the sealed reign.
    #[must_use]
    pub fn sealed(&self) -> BTreeMap<Slot, Epoch> {
        self.seals.values().flatten().copied().collect()
    }
}

fn lock(dir: &Path) -> Result<File, IdentityError> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(IdentityError::InUse {
            path: dir.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(io_error("lock", &path)(error)),
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Identity, IdentityError> {
    let damaged = |why: String| IdentityError::Damaged {
        path: path.to_owned(),
        why,
    };
    let known: Identity =
        serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    if known.format != FORMAT {
        return Err(damaged(format!(
            "format {} is not known here",
            known.format
        )));
    }
    Ok(known)
}

fn to_json(known: &Identity) -> Vec<u8> {
    serde_json::to_vec(known).expect("names and numbers always serialise")
}

fn sync_dir(dir: &Path) -> Result<(), IdentityError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(io_error("sync", dir))
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io {
        doing,
        path,
        source,
    }
}

mod hex128 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{value:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> (RingName, NodeId) {
        (RingName::new("r").unwrap(), NodeId::new("a").unwrap())
    }

    #[test]
    fn an_identity_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (ring, node) = names();
        let file = IdentityFile::open(dir.path(), &ring, &node).unwrap();
        let said = file
            .update(|known| {
                known.incarnation = Incarnation(4);
                known.adopted = Epoch(812);
                known.held = true;
                known.seals.insert(7, vec![(Slot(3), Epoch(12))]);
            })
            .unwrap();
        drop(file);
        let again = IdentityFile::open(dir.path(), &ring, &node).unwrap();
        assert_eq!(again.get(), said);
        assert_eq!(again.get().sealed(), BTreeMap::from([(Slot(3), Epoch(12))]));
    }

    #[test]
    fn a_torn_temporary_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (ring, node) = names();
        let birth = IdentityFile::open(dir.path(), &ring, &node)
            .unwrap()
            .get()
            .birth;
        let temporary = disk::temporary(&dir.path().join(FILE));
        fs::write(&temporary, b"annulus2 half of it").unwrap();
        let again = IdentityFile::open(dir.path(), &ring, &node).unwrap();
        assert_eq!(again.get().birth, birth);
        assert!(!temporary.exists());
    }

    #[test]
    fn a_second_process_on_the_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (ring, node) = names();
        let _first = IdentityFile::open(dir.path(), &ring, &node).unwrap();
        let second = IdentityFile::open(dir.path(), &ring, &node);
        assert!(
            matches!(second, Err(IdentityError::InUse { .. })),
            "{second:?}"
        );
    }

    #[test]
    fn a_damaged_or_foreign_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (ring, node) = names();
        drop(IdentityFile::open(dir.path(), &ring, &node).unwrap());
        let other = NodeId::new("b").unwrap();
        let foreign = IdentityFile::open(dir.path(), &ring, &other).unwrap_err();
        assert!(
            foreign.to_string().contains("node a of ring r"),
            "{foreign}"
        );
        fs::write(dir.path().join(FILE), b"{}").unwrap();
        let damaged = IdentityFile::open(dir.path(), &ring, &node).unwrap_err();
        assert!(
            matches!(damaged, IdentityError::Damaged { .. }),
            "{damaged}"
        );
    }
}
