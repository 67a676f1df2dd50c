//! What the agent drives: copies of slots whose records are a Redis-protocol server's entries.
//!
//! The server has one key space, so a slot's copies here are one set of entries: what staging,
//! live and retained say is who may be told of them. Versions are all alike and digests are
//! refused: a cache ring asks for neither.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use annulus_agent::{
    Copy, Cut, DigestAt, EpochGuard, Holding, RangeStore, Record, SlotOf, StoreError, Stray,
    Versions, Watermark,
};
use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;
use tracing::{info, warn};

use crate::{
    copies::{Copies, State},
    entry::Entry,
    server::{Server, ServerError},
};

/// How long one pass over the key space answers cuts. Keys set since are with the gainers already,
/// as clients write to them too; a shorter time costs more passes.
const PASS_AGE: Duration = Duration::from_secs(30);
/// Entries read at once for a cut.
const CHUNK: usize = 200;

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory of the copies' file, or the file.
    #[error(
        "directory {path}: {source}; a damaged copies.json may be deleted, the node is cold then"
    )]
    Copies {
        /// Which.
        path: String,
        /// What the system, or the parser, said.
        source: io::Error,
    },
    /// The server's address.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// A store over one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    server: Server,
    copies: Mutex<Copies>,
    /// Says which slot a key is in; there from the agent's start on.
    guard: OnceLock<EpochGuard>,
    /// Of live copies that this node owns: what a cut is stamped with.
    reigns: Mutex<BTreeMap<Slot, Epoch>>,
    pass: Mutex<Option<Arc<Pass>>>,
    /// The server's (hits, misses) when a session's staging was opened.
    lookups: Mutex<Option<(SessionId, (u64, u64))>>,
}

/// The keys of one pass over the key space, by slot. Costs each key's bytes and some 40 more.
#[derive(Debug)]
struct Pass {
    at: Instant,
    /// By which conversion of the ring slots were named.
    converted: Epoch,
    keys: HashMap<Slot, Vec<Bytes>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: ServerError) -> StoreError {
    StoreError::Backend {
        doing: "ask the redis server",
        source: error.into(),
    }
}

fn unsynced(error: io::Error) -> StoreError {
    StoreError::Backend {
        doing: "sync the file of copies",
        source: error.into(),
    }
}

impl RedisStore {
    /// Opens the file of copies in `dir`; `server` is `host:port` or a `redis://` URL, and is
    /// connected to at the first call.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(dir: &Path, server: &str) -> Result<Self, OpenError> {
        let copies = Copies::open(dir).map_err(|source| OpenError::Copies {
            path: dir.display().to_string(),
            source,
        })?;
        let inner = Inner {
            server: Server::new(server)?,
            copies: Mutex::new(copies),
            guard: OnceLock::new(),
            reigns: Mutex::default(),
            pass: Mutex::default(),
            lookups: Mutex::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Tells the store by which ring keys belong to slots. Once, right after the agent's start:
    /// the agent asks nothing of keys before it has a view.
    pub fn follow(&self, guard: EpochGuard) {
        // A second guard would be of the same agent.
        let _ = self.inner.guard.set(guard);
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        lock(&self.inner.copies)
    }

    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<(Slot, Copy), State>),
    ) -> Result<(), StoreError> {
        self.copies().change(change).map_err(unsynced)
    }

    fn must_hold(&self, slot: Slot, copy: Copy) -> Result<(), StoreError> {
        match self.copies().get(slot, copy) {
            Some(_) => Ok(()),
            None => Err(StoreError::Missing { slot, copy }),
        }
    }

    /// One pass over all keys; a recent one is used again unless `fresh`.
    fn pass(&self, fresh: bool) -> Result<Arc<Pass>, StoreError> {
        // Held while it runs: whoever comes meanwhile wants the same.
        let mut kept = lock(&self.inner.pass);
        let view = self.inner.guard.get().map(EpochGuard::view);
        let converted = view.as_ref().map_or(Epoch(0), |view| view.converted);
        if let Some(pass) = &*kept
            && !fresh
            && pass.converted == converted
            && pass.at.elapsed() < PASS_AGE
        {
            return Ok(pass.clone());
        }
        let mut keys: HashMap<Slot, Vec<Bytes>> = HashMap::new();
        let at = Instant::now();
        self.inner
            .server
            .scan(|key| {
                if let Some(slot) = view.as_ref().and_then(|view| view.slot(&key)) {
                    keys.entry(slot).or_default().push(key);
                }
            })
            .map_err(failed)?;
        let pass = Arc::new(Pass {
            at,
            converted,
            keys,
        });
        *kept = Some(pass.clone());
        Ok(pass)
    }

    /// Deletes the entries of slots of which no copy is held any more.
    fn purge(&self, slots: &[Slot]) -> Result<(), StoreError> {
        let orphaned: BTreeSet<Slot> = {
            let copies = self.copies();
            let unheld = slots.iter().filter(|slot| copies.of(**slot).is_empty());
            unheld.copied().collect()
        };
        if orphaned.is_empty() {
            return Ok(());
        }
        let pass = self.pass(true)?;
        let mut count = 0;
        for keys in orphaned.iter().filter_map(|slot| pass.keys.get(slot)) {
            self.inner.server.unlink(keys).map_err(failed)?;
            count += keys.len();
        }
        info!(
            slots = orphaned.len(),
            count, "entries of slots held no more are deleted"
        );
        Ok(())
    }
}

impl RangeStore for RedisStore {
    fn holdings(&self) -> Result<Vec<Holding>, StoreError> {
        Ok(self.copies().holdings())
    }

    fn open_live(&self, slots: &[Slot]) -> Result<(), StoreError> {
        self.change(|held| {
            for slot in slots {
                held.entry((*slot, Copy::Live)).or_default();
            }
        })
    }

    /// Entries carry no versions, so nothing is told apart: what a deposed owner set lives until it
    /// is set again, invalidated or runs out, as any old entry of a cache may.
    fn find(&self, _slot: Slot, _key: &[u8]) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }

    fn versions(
        &self,
        _slot: Slot,
        _copy: Copy,
        _from: Option<Position>,
    ) -> Result<Versions, StoreError> {
        Ok(Box::new(std::iter::empty()))
    }

    fn give_up(&self, _slot: Slot, _copy: Copy, _strays: Vec<Stray>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Entries are found by their keys, wherever those are: names of copies are forgotten, and the
    /// agent opens them anew. What was retained must not come back as live, and is deleted.
    fn split(&self, _bits: u8, _slot_of: SlotOf) -> Result<(), StoreError> {
        let retained: Vec<Slot> = {
            let holdings = self.copies().holdings();
            let kept = |one: &Holding| matches!(one.copy, Copy::Retained(_));
            holdings
                .iter()
                .filter(|one| kept(one))
                .map(|one| one.slot)
                .collect()
        };
        self.change(|held| held.retain(|(_, copy), _| !matches!(copy, Copy::Retained(_))))?;
        self.purge(&retained)?;
        self.change(BTreeMap::clear)?;
        lock(&self.inner.reigns).clear();
        Ok(())
    }

    /// Entries of an older attempt stay: clients write to them and invalidate them as well.
    fn open_staging(
        &self,
        session: SessionId,
        attempt: u32,
        slots: &[Slot],
    ) -> Result<(), StoreError> {
        // What was retained heard of no invalidation since: it must not come back as staged.
        let stale: Vec<Slot> = {
            let copies = self.copies();
            let retained = |slot: &&Slot| {
                let held = copies.of(**slot);
                let kept = |one: &(Copy, State)| matches!(one.0, Copy::Retained(_));
                !held.is_empty() && held.iter().all(kept)
            };
            slots.iter().filter(retained).copied().collect()
        };
        self.change(|held| {
            held.retain(|(slot, _), _| !stale.contains(slot));
        })?;
        self.purge(&stale)?;
        let mut lookups = lock(&self.inner.lookups);
        if lookups.is_none_or(|(of, _)| of < session) {
            *lookups = Some((session, self.inner.server.lookups().map_err(failed)?));
        }
        drop(lookups);
        self.change(|held| {
            for slot in slots {
                let staged: Vec<(SessionId, u32)> = held
                    .iter()
                    .filter_map(|((of, copy), state)| match copy {
                        Copy::Staging(session) if of == slot => Some((*session, state.attempt)),
                        _ => None,
                    })
                    .collect();
                if staged.iter().any(|one| *one >= (session, attempt)) {
                    continue;
                }
                for (older, _) in staged {
                    held.remove(&(*slot, Copy::Staging(older)));
                }
                let complete = false;
                held.insert((*slot, Copy::Staging(session)), State { attempt, complete });
            }
        })
    }

    fn read_cut(&self, slot: Slot) -> Result<Cut, StoreError> {
        self.must_hold(slot, Copy::Live)?;
        let reign = lock(&self.inner.reigns).get(&slot).copied();
        let position = Position::new(reign.unwrap_or_default(), 0);
        let keys = self
            .pass(false)?
            .keys
            .get(&slot)
            .cloned()
            .unwrap_or_default();
        let inner = self.inner.clone();
        let chunks: Vec<Vec<Bytes>> = keys.chunks(CHUNK).map(<[Bytes]>::to_vec).collect();
        let records = chunks.into_iter().flat_map(move |keys| {
            let told = match inner.server.dump(&keys) {
                Ok(entries) => entries,
                Err(error) => return vec![Err(failed(error))],
            };
            let found = keys.into_iter().zip(told);
            found
                .filter_map(|(key, entry)| {
                    Some(Ok(Record {
                        key,
                        version: position,
                        value: Some(entry?.to_bytes()),
                    }))
                })
                .collect()
        });
        Ok(Cut {
            position,
            records: Box::new(records),
        })
    }

    /// The same as a cut: entries have no versions to be above anything.
    fn tail(&self, slot: Slot, _from: Option<Position>) -> Result<Cut, StoreError> {
        self.read_cut(slot)
    }

    fn merge(
        &self,
        slot: Slot,
        copy: Copy,
        records: Vec<Record>,
        _through: Option<Position>,
    ) -> Result<(), StoreError> {
        self.must_hold(slot, copy)?;
        let mut entries = Vec::with_capacity(records.len());
        for Record { key, value, .. } in records {
            let entry = value.as_ref().and_then(Entry::from_bytes);
            let Some(entry) = entry else {
                let key = key.escape_ascii();
                let what = format!("the entry that came for key {key}");
                return Err(StoreError::Damaged { slot, what });
            };
            entries.push((key, entry));
        }
        let restored = self.inner.server.restore(&entries).map_err(failed)?;
        if restored.unreadable > 0 {
            let count = restored.unreadable;
            warn!(%slot, count, "entries of a newer server version cannot be read here: misses");
        }
        Ok(())
    }

    fn mark_complete(
        &self,
        slot: Slot,
        session: SessionId,
        _cut: Position,
    ) -> Result<(), StoreError> {
        let copy = Copy::Staging(session);
        self.must_hold(slot, copy)?;
        self.copies().complete(slot, copy);
        Ok(())
    }

    fn digest(
        &self,
        _slot: Slot,
        _copy: Copy,
        _cut: Option<Position>,
    ) -> Result<DigestAt, StoreError> {
        Err(StoreError::Backend {
            doing: "digest",
            source: "a redis server has no digests; create the ring with --kind cache".into(),
        })
    }

    fn watermark(&self, slot: Slot, copy: Copy) -> Result<Watermark, StoreError> {
        self.must_hold(slot, copy)?;
        Ok(Watermark::default())
    }

    fn begin_reign(&self, slots: &[(Slot, Epoch)]) -> Result<(), StoreError> {
        for (slot, _) in slots {
            self.must_hold(*slot, Copy::Live)?;
        }
        let mut reigns = lock(&self.inner.reigns);
        for (slot, reign) in slots {
            let known = reigns.entry(*slot).or_default();
            *known = (*known).max(*reign);
        }
        Ok(())
    }

    fn promote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let copy = Copy::Staging(session);
        {
            let copies = self.copies();
            let neither = |slot: &&Slot| {
                copies.get(**slot, copy).is_none() && copies.get(**slot, Copy::Live).is_none()
            };
            if let Some(slot) = slots.iter().find(neither) {
                return Err(StoreError::Missing { slot: *slot, copy });
            }
        }
        self.change(|held| {
            for slot in slots {
                if let Some(state) = held.remove(&(*slot, copy)) {
                    held.entry((*slot, Copy::Live)).or_insert(state);
                }
            }
        })
    }

    fn demote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        self.rename(slots, Copy::Staging(session))
    }

    fn retain(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        self.rename(slots, Copy::Retained(session))
    }

    fn drop_staging(&self, session: SessionId) -> Result<(), StoreError> {
        let slots = self.copies().staging(session);
        self.give_up(&slots, Copy::Staging(session))
    }

    fn drop_retained(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let copy = Copy::Retained(session);
        let kept: Vec<Slot> = {
            let copies = self.copies();
            let held = |slot: &&Slot| copies.get(**slot, copy).is_some();
            slots.iter().filter(held).copied().collect()
        };
        self.give_up(&kept, copy)
    }

    fn last_position(&self, slot: Slot) -> Result<Position, StoreError> {
        self.must_hold(slot, Copy::Live)?;
        let reign = lock(&self.inner.reigns).get(&slot).copied();
        Ok(Position::new(reign.unwrap_or_default(), 0))
    }

    fn hit_permille(&self, session: SessionId) -> Result<Option<u16>, StoreError> {
        let begun = *lock(&self.inner.lookups);
        let Some((_, (hits, misses))) = begun.filter(|(of, _)| *of == session) else {
            return Ok(None);
        };
        let (hits_now, misses_now) = self.inner.server.lookups().map_err(failed)?;
        let hits = hits_now.saturating_sub(hits);
        let lookups = hits + misses_now.saturating_sub(misses);
        let permille = (hits * 1_000).checked_div(lookups);
        Ok(permille.and_then(|permille| u16::try_from(permille).ok()))
    }
}

impl RedisStore {
    /// Live copies become `copy`.
    fn rename(&self, slots: &[Slot], copy: Copy) -> Result<(), StoreError> {
        self.change(|held| {
            for slot in slots {
                if let Some(state) = held.remove(&(*slot, Copy::Live)) {
                    let complete = true;
                    held.insert((*slot, copy), State { complete, ..state });
                }
            }
        })
    }

    /// Forgets copies, then deletes the entries that no other copy needs. Stopped in between, the
    /// entries stay, unserved, until their TTL or eviction.
    fn give_up(&self, slots: &[Slot], copy: Copy) -> Result<(), StoreError> {
        self.change(|held| {
            slots.iter().for_each(|slot| {
                held.remove(&(*slot, copy));
            });
        })?;
        self.purge(slots)
    }
}
