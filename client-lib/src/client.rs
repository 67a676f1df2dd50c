//! The handle that programs hold: lookups, waiting for epochs, status.

use std::sync::Arc;

use annulus_ring::{Epoch, Lookup, RingName};
use tokio::{runtime::Handle, sync::watch, time::timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    cache::{self, Cache},
    chance::Chance,
    config::{Builder, Config},
    current::{Current, EpochRef},
    deadline::Deadline,
    endpoints::Endpoints,
    error::{ConfigError, Error, LookupError},
    route::{Reader, Route},
    status::{Board, Status},
    watch::Watcher,
};

/// Routes keys of one ring by the newest verified snapshot.
///
/// Cheap to clone; the watch behind it ends with the last clone (and the last [`Reader`]).
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    current: Arc<Current>,
    board: Arc<Board>,
    chance: Arc<Chance>,
    /// The newest epoch that a data node was seen at and that somebody wants here.
    wanted: watch::Sender<Epoch>,
    _stop: DropGuard,
}

impl Client {
    /// Begins a client of the named ring.
    pub fn builder(ring: impl std::fmt::Display) -> Builder {
        Builder::new(ring)
    }

    /// Starts a client from settings; [`Builder::connect_lazy`] says what happens.
    ///
    /// # Errors
    /// [`ConfigError`] from [`Config::validate`], or without a runtime.
    pub fn start(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let runtime = Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
        let current = Arc::new(Current::new(config.ring.clone(), config.cluster_id));
        let board = Arc::new(Board::default());
        let chance = Arc::new(Chance::new(config.seed));
        let wanted = watch::Sender::new(Epoch(0));
        let stop = CancellationToken::new();

        let keep = config.cache_dir.clone().map(|dir| {
            let cache = Cache::new(dir, config.ring.clone());
            cache.load_into(&current, &board);
            let (keep, newest) = watch::channel(None);
            runtime.spawn(cache::keep(cache, Arc::clone(&board), newest));
            keep
        });
        let watcher = Watcher {
            endpoints: Endpoints::new(config.endpoints.clone(), Arc::clone(&chance)),
            config,
            current: Arc::clone(&current),
            board: Arc::clone(&board),
            chance: Arc::clone(&chance),
            wanted: wanted.subscribe(),
            keep,
        };
        runtime.spawn(watcher.run(stop.clone()));
        let shared = Shared {
            current,
            board,
            chance,
            wanted,
            _stop: stop.drop_guard(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The ring that this client routes by.
    #[must_use]
    pub fn ring(&self) -> &RingName {
        self.shared.current.ring()
    }

    /// Waits for the first verified snapshot, from disk or from a server.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`] at the deadline, with what the watch last met.
    pub async fn ready(&self, deadline: impl Into<Deadline>) -> Result<EpochRef, Error> {
        let mut epochs = self.epochs();
        let first = epochs.wait_for(Option::is_some);
        match timeout_at(deadline.into().at(), first).await {
            Ok(Ok(held)) => Ok(held.expect("waited for one")),
            Ok(Err(_)) | Err(_) => Err(Error::NoSnapshot {
                ring: self.ring().clone(),
                last_error: self
                    .status()
                    .last_error
                    .unwrap_or_else(|| "none".to_owned()),
            }),
        }
    }

    /// Where `key` lives. Synchronous, lock-free, allocation-free: it asks nobody, and once a
    /// snapshot is held it never fails for lack of a control plane.
    ///
    /// (The first lookup of a thread registers the thread with arc-swap, which allocates once.)
    ///
    /// # Errors
    /// [`LookupError::NoSnapshot`] before the first one; [`LookupError::NoOwner`] where the
    /// range has no owner.
    #[inline]
    pub fn lookup(&self, key: &[u8]) -> Result<Route, LookupError> {
        Route::find(self.shared.current.swap(), key)
    }

    /// A cached way in for one thread's hot loop.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.clone(), Arc::clone(self.shared.current.swap()))
    }

    /// The whole compiled snapshot, to keep for as long as the caller likes.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Lookup>> {
        self.shared.current.swap().load_full()
    }

    /// Which snapshot is held.
    #[must_use]
    pub fn held(&self) -> Option<EpochRef> {
        self.shared.current.held()
    }

    /// Tells each epoch as it is applied; a slow reader sees the newest only.
    #[must_use]
    pub fn epochs(&self) -> watch::Receiver<Option<EpochRef>> {
        self.shared.current.epochs()
    }

    /// What the client knows about itself.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.board.read()
    }

    /// Says that some node is at an epoch after `newer_than`. If the stream does not bring it
    /// soon, the watch asks another server. Collapsed: for however many callers one refresh.
    pub fn refresh(&self, newer_than: Epoch) {
        let held = self.held().map_or(Epoch(0), |held| held.epoch);
        if held > newer_than || newer_than.0 == u64::MAX {
            return;
        }
        let begun = self.shared.wanted.send_if_modified(|wanted| {
            let raised = *wanted < newer_than.next();
            *wanted = newer_than.next().max(*wanted);
            raised
        });
        if begun {
            self.shared.board.update(|status| status.refresh_count += 1);
        }
    }

    /// Refreshes, and waits until an epoch after `newer_than` is held.
    ///
    /// # Errors
    /// [`Error::NoNewer`] at the deadline.
    pub async fn wait_newer_than(
        &self,
        newer_than: Epoch,
        deadline: impl Into<Deadline>,
    ) -> Result<EpochRef, Error> {
        let mut epochs = self.epochs();
        let generation = self.held().map(|held| held.generation);
        self.refresh(newer_than);
        // A restored backup may count from a lower epoch: a newer generation is newer too.
        let newer = epochs.wait_for(|held| {
            held.is_some_and(|held| {
                held.epoch > newer_than || generation.is_some_and(|was| held.generation > was)
            })
        });
        match timeout_at(deadline.into().at(), newer).await {
            Ok(Ok(held)) => Ok(held.expect("waited for one")),
            Ok(Err(_)) | Err(_) => Err(Error::NoNewer {
                ring: self.ring().clone(),
                held: self.held().map_or(Epoch(0), |held| held.epoch),
                after: newer_than,
            }),
        }
    }

    pub(crate) fn chance(&self) -> &Arc<Chance> {
        &self.shared.chance
    }
}
