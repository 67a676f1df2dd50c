//! A key's answer: which slot, who owns it, at which epoch. Lock-free and allocation-free.

use std::sync::Arc;

use annulus_ring::{Epoch, Generation, Handle, Lookup, Member, Slot, TokenRange};
use arc_swap::{ArcSwapOption, Cache, Guard};

use crate::{client::Client, error::LookupError};

/// Where a key lives, with the table that says so: everything it tells is of one epoch, however
/// many snapshots arrive meanwhile (APPLY-ATOMIC).
///
/// It pins its table; drop it when the request is on its way. Some eight of them may be alive
/// per thread before taking another costs a reference count (arc-swap's guards).
#[derive(Debug)]
pub struct Route {
    guard: Guard<Option<Arc<Lookup>>>,
    /// Hash of the key under the layout's hash and seed.
    pub hash: u64,
    /// Its slot.
    pub slot: Slot,
}

impl Route {
    /// One wait-free load (some 15 ns), the hash, one load from the table.
    #[inline]
    pub(crate) fn find(swap: &ArcSwapOption<Lookup>, key: &[u8]) -> Result<Self, LookupError> {
        let guard = swap.load();
        let route = guard
            .as_deref()
            .ok_or(LookupError::NoSnapshot)?
            .route(key)?;
        let (hash, slot) = (route.hash, route.slot);
        Ok(Self { guard, hash, slot })
    }

    /// The compiled snapshot that this answer is from.
    #[must_use]
    pub fn lookup(&self) -> &Lookup {
        self.guard
            .as_deref()
            .expect("a route is only made from a snapshot")
    }

    /// The epoch of this answer.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.lookup().epoch()
    }

    /// The generation of this answer.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.lookup().snapshot().generation
    }

    /// The range of the circle that the key is in.
    #[must_use]
    pub fn range(&self) -> TokenRange {
        self.slot
            .range(self.lookup().snapshot().layout.slots.bits())
    }

    /// Handles of the read set, owner first, never empty.
    #[must_use]
    pub fn handles(&self) -> &[Handle] {
        self.lookup().read_list(self.slot)
    }

    /// The owner: first of the list. It orders writes and answers exact reads.
    #[must_use]
    pub fn owner(&self) -> &Member {
        self.members()
            .next()
            .expect("a route's list is never empty")
    }

    /// Members of the read set, owner first.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let lookup = self.lookup();
        self.handles().iter().map(move |handle| {
            lookup
                .member(*handle)
                .expect("a checked snapshot has a member for every handle")
        })
    }
}

/// One thread's own way to the table, for loops that look up millions of keys: the load costs
/// 1 to 4 ns instead of some 15, as the thread keeps the table it saw last.
///
/// An idle `Reader` keeps an old table in memory until its next lookup; it never answers from
/// it, for each lookup first asks whether it is still the newest.
#[derive(Clone)]
pub struct Reader {
    cache: Cache<Arc<ArcSwapOption<Lookup>>, Option<Arc<Lookup>>>,
    // The watch goes on as long as anybody reads.
    _client: Client,
}

impl Reader {
    pub(crate) fn new(client: Client, swap: Arc<ArcSwapOption<Lookup>>) -> Self {
        Self {
            cache: Cache::new(swap),
            _client: client,
        }
    }

    /// Where `key` lives, at the newest epoch held.
    ///
    /// # Errors
    /// As [`Client::lookup`].
    #[inline]
    pub fn lookup(&mut self, key: &[u8]) -> Result<annulus_ring::Route<'_>, LookupError> {
        let lookup = self
            .cache
            .load()
            .as_deref()
            .ok_or(LookupError::NoSnapshot)?;
        Ok(lookup.route(key)?)
    }

    /// Where many keys live, all at the newest epoch held when the call begins: whether the
    /// table is still the newest is asked once, and cache misses of a block of keys overlap.
    /// `each` gets the place of a key and its answer, in order.
    ///
    /// # Errors
    /// [`LookupError::NoSnapshot`] before the first snapshot; `each` is not called then.
    #[inline]
    pub fn lookup_batch<'a, K: AsRef<[u8]>>(
        &'a mut self,
        keys: &[K],
        each: impl FnMut(usize, Result<annulus_ring::Route<'a>, annulus_ring::LookupError>),
    ) -> Result<(), LookupError> {
        let held = self.cache.load().as_deref();
        held.ok_or(LookupError::NoSnapshot)?
            .lookup_batch(keys, each);
        Ok(())
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}
