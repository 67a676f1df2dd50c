//! The store on sled, in a directory of ours. No other file knows sled.
//!
//! ```text
//!   DIR/identity   whose directory this is; written last when it is made
//!   DIR/lock       held while the store is open
//!   DIR/mark       how far the store had got (`mark`)
//!   DIR/store/     sled: tree `log` (`record`), tree `meta` (checksummed JSON by name)
//!   DIR/snapshots/ log snapshots (`raft::log_snapshot`)
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::durable;
use super::identity::{DirectoryLock, Identity, failed, sync_directory};
use super::mark::Mark;
use super::record::{self, Assembler};
use super::store::{Change, Loaded, Store, StoreError};
use crate::raft::types::LogId;
use crate::raft::{StartError, codec};

const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";
const CLUSTER: &str = "cluster";
const IDENTITY: &str = "identity";
/// The number that the mark witnesses.
const SEQUENCE: &str = "sequence";

/// Keys of one batch of removals; removed from the end backwards, so a crash between two
/// batches leaves no hole.
const BATCH: usize = 1_000;

pub(in crate::raft) struct SledStore {
    db: sled::Db,
    log: sled::Tree,
    meta: sled::Tree,
    mark: Mark,
    sequence: u64,
    dir: PathBuf,
    /// Parts of every entry that is in the tree, purged ones included until they are swept.
    parts: BTreeMap<u64, u16>,
    purged: Option<u64>,
    /// Last field: let go of after the database is closed.
    _lock: DirectoryLock,
}

/// Opens or makes the directory. Blocks, up to some seconds.
pub(in crate::raft) fn open(dir: &Path, server_id: u64) -> Result<(SledStore, Loaded), StartError> {
    let dir = dir.to_owned();
    // sled may panic at damage it does not expect: in a thread that is joined it is an error.
    let name = "annulus-log-open".to_owned();
    let opening = {
        let dir = dir.clone();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || open_here(&dir, server_id))
    };
    let opening = opening.map_err(|error| failed(&dir, &error))?;
    opening.join().unwrap_or_else(|panic| {
        Err(StartError::Damaged {
            path: dir.join("store"),
            reason: panic_text(&*panic),
        })
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "sled panicked: {}",
        text.unwrap_or_else(|| "no message".to_owned())
    )
}

fn open_here(dir: &Path, server_id: u64) -> Result<(SledStore, Loaded), StartError> {
    if !dir.exists() {
        fs::create_dir(dir).map_err(|error| failed(dir, &error))?;
        let parent = dir.parent().unwrap_or(Path::new("."));
        sync_directory(parent).map_err(|error| failed(parent, &error))?;
    }
    let lock = DirectoryLock::take(dir)?;
    let scratch = dir.join("lock");
    let scratch = File::open(&scratch).map_err(|error| failed(&scratch, &error))?;
    durable::verify(&scratch)?;

    let identity_path = dir.join("identity");
    let identity = Identity::read(&identity_path)?;
    let store = dir.join("store");
    let mark_path = dir.join("mark");
    match identity {
        Some(identity) => {
            identity.check(dir, server_id)?;
            for path in [&store.join("db"), &store.join("conf"), &mark_path] {
                if !path.exists() {
                    return Err(StartError::Damaged {
                        path: path.clone(),
                        reason: "it is missing".to_owned(),
                    });
                }
            }
        }
        None => make(dir, &store, &mark_path, server_id)?,
    }

    let (mark, witnessed) = Mark::open(&mark_path).map_err(|error| StartError::Damaged {
        path: mark_path.clone(),
        reason: error.to_string(),
    })?;
    clear_half_written(&store)?;
    let db = open_sled(&store)?;
    // sled has just renamed a snapshot of its own, and syncs no directory.
    sync_directory(&store).map_err(|error| failed(&store, &error))?;
    let damaged = |reason: String| StartError::Damaged {
        path: store.clone(),
        reason,
    };
    let log = db
        .open_tree("log")
        .map_err(|error| damaged(error.to_string()))?;
    let meta = db
        .open_tree("meta")
        .map_err(|error| damaged(error.to_string()))?;

    let inside: Identity = read_meta(&meta, IDENTITY)
        .map_err(&damaged)?
        .ok_or_else(|| damaged("it holds no identity: it has lost what it held".to_owned()))?;
    inside.check(dir, server_id)?;
    let sequence = read_meta(&meta, SEQUENCE).map_err(&damaged)?.unwrap_or(0);
    if sequence < witnessed {
        return Err(damaged(format!(
            "it ends at write {sequence}, but write {witnessed} was durable: its tail is gone, or \
             it is an old copy"
        )));
    }
    let (loaded, parts) = load(&log, &meta).map_err(&damaged)?;
    if identity.is_none() {
        // The power went between the rename of the store and this line; nothing is in it yet.
        if loaded.vote.is_some() || !loaded.entries.is_empty() || loaded.purged.is_some() {
            return Err(StartError::Damaged {
                path: identity_path,
                reason: "it is missing beside a store that is in use".to_owned(),
            });
        }
        let made = Identity::new(server_id).write(&identity_path);
        made.map_err(|error| failed(&identity_path, &error))?;
    }
    let purged = loaded.purged.map(|id| id.index);
    let dir = dir.to_owned();
    let store = SledStore {
        db,
        log,
        meta,
        mark,
        sequence,
        dir,
        parts,
        purged,
        _lock: lock,
    };
    Ok((store, loaded))
}

/// sled writes `snap.<lsn>.generating` at each opening and renames it when it is whole; one that
/// the power cut short makes sled refuse the whole store, though it is only a short cut through
/// a log that is all there (<https://github.com/spacejam/sled/issues/1527>).
fn clear_half_written(store: &Path) -> Result<(), StartError> {
    let files = fs::read_dir(store).map_err(|error| failed(store, &error))?;
    for file in files {
        let file = file.map_err(|error| failed(store, &error))?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "generating")
        {
            fs::remove_file(&file).map_err(|error| failed(&file, &error))?;
        }
    }
    Ok(())
}

fn config(path: &Path) -> sled::Config {
    sled::Config::default()
        .path(path)
        .mode(sled::Mode::HighThroughput)
        .cache_capacity(64 << 20)
        .flush_every_ms(Some(500))
        .use_compression(false)
}

/// A closed sled lets go of its file a little later than it returns, so a lock held is waited
/// for; our own lock says that nobody else can be the holder.
fn open_sled(path: &Path) -> Result<sled::Db, StartError> {
    let began = std::time::Instant::now();
    loop {
        match config(path).open() {
            Ok(db) => return Ok(db),
            Err(sled::Error::Io(error))
                if error.to_string().contains("could not acquire lock")
                    && began.elapsed() < std::time::Duration::from_secs(5) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(sled::Error::Io(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(failed(path, &error));
            }
            Err(error) => {
                return Err(StartError::Damaged {
                    path: path.to_owned(),
                    reason: format!("sled does not open it: {error}"),
                });
            }
        }
    }
}

/// Makes a store under a temporary name, syncs all of it and only then gives it its name: what
/// a power cut leaves of a store that was being made is thrown away, for nobody relied on it.
fn make(dir: &Path, store: &Path, mark: &Path, server_id: u64) -> Result<(), StartError> {
    if store.exists() {
        return Ok(());
    }
    let unfinished = dir.join("store.new");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(|error| failed(&unfinished, &error))?;
    }
    let db = open_sled(&unfinished)?;
    let io = |reason: String| StartError::Io {
        path: unfinished.clone(),
        reason,
    };
    let meta = db
        .open_tree("meta")
        .map_err(|error| io(error.to_string()))?;
    db.open_tree("log").map_err(|error| io(error.to_string()))?;
    let identity = meta_value(&Identity::new(server_id)).map_err(&io)?;
    meta.insert(IDENTITY, identity)
        .map_err(|error| io(error.to_string()))?;
    db.flush().map_err(|error| io(error.to_string()))?;
    drop((meta, db));

    let make = || -> std::io::Result<()> {
        for file in ["conf", "db"] {
            File::open(unfinished.join(file))?.sync_all()?;
        }
        sync_directory(&unfinished.join("blobs"))?;
        sync_directory(&unfinished)?;
        Mark::create(mark)?;
        fs::rename(&unfinished, store)?;
        sync_directory(dir)
    };
    make().map_err(|error| failed(dir, &error))
}

type Parts = BTreeMap<u64, u16>;

fn load(log: &sled::Tree, meta: &sled::Tree) -> Result<(Loaded, Parts), String> {
    let purged: Option<LogId> = read_meta(meta, PURGED)?;
    let mut loaded = Loaded {
        vote: read_meta(meta, VOTE)?,
        committed: read_meta::<Option<LogId>>(meta, COMMITTED)?.flatten(),
        purged,
        entries: BTreeMap::new(),
        cluster_id: read_meta(meta, CLUSTER)?,
    };
    let mut parts = Parts::new();
    let mut assembler = Assembler::default();
    let kept = purged.map_or(0, |id| id.index + 1);
    for record in log.iter() {
        let (key, value) = record.map_err(|error| error.to_string())?;
        let key: record::Key = key
            .as_ref()
            .try_into()
            .map_err(|_| format!("{key:02x?} is no log key"))?;
        let (index, part) = record::split(key);
        let count = parts.entry(index).or_default();
        *count = (*count).max(part.saturating_add(1));
        // Below lies what a sweep had not deleted yet, whole or not.
        if index >= kept {
            assembler.take(&key, &value)?;
        }
    }
    for (index, (log_id, payload)) in assembler.finish(purged)? {
        let size = payload.len();
        let payload =
            codec::decode_payload(&payload).map_err(|error| format!("entry {index}: {error}"))?;
        loaded
            .entries
            .insert(index, (openraft::Entry { log_id, payload }, size));
    }
    let last_term = loaded
        .entries
        .values()
        .next_back()
        .map(|(entry, _)| entry.log_id.leader_id.term);
    let voted_in = loaded.vote.map(|vote| vote.leader_id.term);
    if last_term > voted_in {
        return Err(format!(
            "its last entry is of term {}, its vote of {}: the vote has been lost",
            last_term.unwrap_or(0),
            voted_in.map_or_else(|| "none".to_owned(), |term| term.to_string())
        ));
    }
    Ok((loaded, parts))
}

/// CRC-32 of the rest, then JSON.
fn meta_value(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    let mut bytes = crc32fast::hash(&json).to_be_bytes().to_vec();
    bytes.extend(json);
    Ok(bytes)
}

fn read_meta<T: DeserializeOwned>(meta: &sled::Tree, name: &str) -> Result<Option<T>, String> {
    let Some(bytes) = meta.get(name).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let whole = bytes.split_first_chunk::<4>();
    let whole = whole.filter(|(crc, json)| crc32fast::hash(json).to_be_bytes() == **crc);
    let Some((_, json)) = whole else {
        return Err(format!("its {name} does not match its checksum"));
    };
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|error| format!("its {name}: {error}"))
}

impl SledStore {
    fn failed(&self, reason: impl ToString) -> StoreError {
        StoreError {
            path: self.dir.join("store"),
            reason: reason.to_string(),
        }
    }

    fn put_meta(
        &self,
        batch: &mut sled::Batch,
        name: &str,
        value: &impl Serialize,
    ) -> Result<(), StoreError> {
        batch.insert(
            name,
            meta_value(value).map_err(|reason| self.failed(reason))?,
        );
        Ok(())
    }

    fn apply(&self, tree: &sled::Tree, batch: sled::Batch) -> Result<(), StoreError> {
        tree.apply_batch(batch).map_err(|error| self.failed(error))
    }

    /// Removes entries from `from` on, from the end backwards.
    fn truncate(&mut self, from: u64) -> Result<(), StoreError> {
        let removed = self.parts.split_off(&from);
        let keys: Vec<record::Key> = removed
            .iter()
            .rev()
            .flat_map(|(index, parts)| (0..*parts).rev().map(|part| record::key(*index, part)))
            .collect();
        for piece in keys.chunks(BATCH) {
            let mut batch = sled::Batch::default();
            piece.iter().for_each(|key| batch.remove(key));
            self.apply(&self.log, batch)?;
        }
        Ok(())
    }
}

impl Store for SledStore {
    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut log = sled::Batch::default();
        let mut entries = 0_usize;
        let mut meta = sled::Batch::default();
        for change in changes {
            match change {
                Change::Put { log_id, payload } => {
                    if payload.len() > record::MAX_PAYLOAD_BYTES {
                        return Err(self.failed(format!("entry {log_id} is over the limit")));
                    }
                    for (key, value) in record::encode(*log_id, payload) {
                        log.insert(&key, value);
                    }
                    self.parts
                        .insert(log_id.index, record::parts(payload.len()));
                    entries += 1;
                }
                Change::TruncateFrom(from) => {
                    // What came before it in this group goes first.
                    if entries > 0 {
                        self.apply(&self.log, std::mem::take(&mut log))?;
                        entries = 0;
                    }
                    self.truncate(*from)?;
                }
                // A vote goes before the entries that follow it, and a purge too, as they may
                // begin behind a gap that only the purge explains. Batches of two trees are not
                // atomic, so the order is kept by applying them in order.
                Change::Vote(_) | Change::Purged(_) => {
                    if entries > 0 {
                        self.apply(&self.log, std::mem::take(&mut log))?;
                        entries = 0;
                    }
                    let mut batch = std::mem::take(&mut meta);
                    match change {
                        Change::Vote(vote) => self.put_meta(&mut batch, VOTE, vote)?,
                        Change::Purged(upto) => {
                            self.purged = self.purged.max(Some(upto.index));
                            self.put_meta(&mut batch, PURGED, upto)?;
                        }
                        Change::Put { .. }
                        | Change::Committed(_)
                        | Change::TruncateFrom(_)
                        | Change::Cluster(_) => {}
                    }
                    self.apply(&self.meta, batch)?;
                }
                Change::Committed(committed) => self.put_meta(&mut meta, COMMITTED, committed)?,
                Change::Cluster(id) => self.put_meta(&mut meta, CLUSTER, id)?,
            }
        }
        if entries > 0 {
            self.apply(&self.log, log)?;
        }
        // Last: whoever finds this number finds all that was written before it.
        self.sequence += 1;
        self.put_meta(&mut meta, SEQUENCE, &self.sequence)?;
        self.apply(&self.meta, meta)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.db.flush().map_err(|error| self.failed(error))?;
        self.mark.set(self.sequence).map_err(|error| StoreError {
            path: self.dir.join("mark"),
            reason: error.to_string(),
        })
    }

    fn sweep(&mut self, most: usize) -> Result<bool, StoreError> {
        let Some(purged) = self.purged else {
            return Ok(false);
        };
        let mut batch = sled::Batch::default();
        let mut keys = 0;
        while keys < most {
            let Some(first) = self
                .parts
                .first_entry()
                .filter(|first| *first.key() <= purged)
            else {
                break;
            };
            let (index, parts) = first.remove_entry();
            (0..parts).for_each(|part| batch.remove(&record::key(index, part)));
            keys += usize::from(parts);
        }
        if keys > 0 {
            self.apply(&self.log, batch)?;
        }
        Ok(self
            .parts
            .keys()
            .next()
            .is_some_and(|first| *first <= purged))
    }
}
