//! Committed entries become state: a thin adapter around `membership`'s pure core.
//!
//! For each entry: apply it; when it published an epoch, encode that snapshot (the same bytes on
//! every server), note its checksum in the state, put it on the shelf; answer; wake readers.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use annulus_membership::{Outcome, State};
use annulus_proto::shelf::Shelf;
use annulus_proto::snapshot;
use annulus_ring::{Epoch, Generation, RingName};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};

use super::log_snapshot::{self, LogSnapshots};
use super::shared::Inner;
use super::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, no_outcome};
use super::{Applied, Shared};

/// openraft's state machine.
#[derive(Clone, Debug)]
pub struct Machine {
    shared: Arc<Shared>,
    snapshots: LogSnapshots,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    epochs: Arc<BTreeMap<RingName, (Generation, Epoch)>>,
}

impl Machine {
    pub(super) fn new(shared: Arc<Shared>, snapshots: LogSnapshots) -> Self {
        Self {
            shared,
            snapshots,
            last_applied: None,
            membership: log_snapshot::no_membership(),
            epochs: Arc::default(),
        }
    }

    fn apply_one(
        &mut self,
        entry: &annulus_membership::Entry,
        news: &mut BTreeMap<RingName, News>,
    ) -> Outcome {
        let (outcome, published) = self.shared.write(|Inner { state, shelf }| {
            let effect = state.apply(entry);
            let published = effect.published.map(|ring| {
                let snapshot = state
                    .snapshot(&ring)
                    .expect("a ring whose epoch rose has one");
                let encoded = snapshot::encode(&snapshot);
                state.note_checksum(&ring, encoded.checksum);
                shelf.push(&ring, snapshot.generation, snapshot.epoch, &encoded);
                (ring, (snapshot.generation, snapshot.epoch))
            });
            (effect.outcome, published)
        });
        if let Some((ring, epoch)) = published {
            Arc::make_mut(&mut self.epochs).insert(ring.clone(), epoch);
            news.entry(ring).or_default().add(epoch.1);
        }
        outcome
    }

    fn publish(&self) {
        let index = self.last_applied.map_or(0, |id| id.index);
        self.shared.publish(Applied {
            index,
            epochs: self.epochs.clone(),
        });
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.last_applied,
            last_membership: self.membership.clone(),
        }
    }
}

/// What one run of entries published of a ring. A start replays many at once: each would be a line
/// in the log.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    count: u32,
    newest: Epoch,
}

impl News {
    fn add(&mut self, epoch: Epoch) {
        self.count += 1;
        self.newest = epoch;
    }
}

/// The newest epoch of every ring, as the shelf knows it.
fn epochs_of(shelf: &Shelf) -> BTreeMap<RingName, (Generation, Epoch)> {
    let newest = shelf.rings().filter_map(|ring| {
        let (generation, epoch, _) = shelf.epochs(ring).last().copied()?;
        Some((ring.clone(), (generation, epoch)))
    });
    newest.collect()
}

/// Runs what blocks: on tokio's threads for it, or right here when snapshots are in memory, as
/// a simulation must not leave its one thread.
async fn blocking<T: Send + 'static>(
    snapshots: &LogSnapshots,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match snapshots {
        LogSnapshots::Memory(_) => work(),
        LogSnapshots::Directory(_) => tokio::task::spawn_blocking(work)
            .await
            .map_err(io::Error::other)?,
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut news = BTreeMap::new();
        while let Some((entry, responder)) = entries.try_next().await? {
            self.last_applied = Some(entry.log_id);
            let outcome = match &entry.payload {
                EntryPayload::Blank => no_outcome(),
                EntryPayload::Normal(logged) => {
                    // A panic in the core would leave raft running with a dead machine: as an
                    // error it ends the process, with its reason.
                    let applied = catch_unwind(AssertUnwindSafe(|| {
                        self.apply_one(logged.entry(), &mut news)
                    }));
                    applied.map_err(|_| {
                        io::Error::other(format!("applying entry {} panicked", entry.log_id))
                    })?
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                    no_outcome()
                }
            };
            // Readers first: whoever is answered must find here what the answer says.
            self.publish();
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        for (ring, News { count, newest }) in news {
            if count == 1 {
                tracing::info!(%ring, epoch = newest.0, "epoch published");
            } else {
                tracing::info!(%ring, epoch = newest.0, count, "epochs published, up to this one");
            }
        }
        Ok(())
    }

    /// Takes its view here, between two entries: building goes on beside applying.
    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        let (state, shelf) = self
            .shared
            .read(|state, shelf| (state.clone(), shelf.clone()));
        SnapshotBuilder {
            meta: self.meta(),
            state,
            shelf,
            snapshots: self.snapshots.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> io::Result<()> {
        let snapshots = self.snapshots.clone();
        let expected = meta.clone();
        let content = blocking(&self.snapshots, move || {
            let content = log_snapshot::decode(&snapshot).map_err(io::Error::other)?;
            if content.meta != expected {
                return Err(io::Error::other(format!(
                    "a log snapshot up to {:?} came as one up to {:?}",
                    content.meta.last_log_id, expected.last_log_id
                )));
            }
            // At start the newest is installed from its own file: nothing to keep anew.
            let newest = snapshots.newest().map_err(io::Error::other)?;
            if newest.as_deref() != Some(&*snapshot) {
                snapshots.keep(&expected, snapshot)?;
            }
            Ok(content)
        })
        .await?;
        self.last_applied = content.meta.last_log_id;
        self.membership = content.meta.last_membership;
        self.epochs = Arc::new(epochs_of(&content.shelf));
        self.shared.write(|inner| {
            *inner = Inner {
                state: content.state,
                shelf: content.shelf,
            };
        });
        self.publish();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let snapshots = self.snapshots.clone();
        blocking(&self.snapshots, move || {
            let Some(bytes) = snapshots.newest().map_err(io::Error::other)? else {
                return Ok(None);
            };
            let meta = log_snapshot::meta_of(&bytes).map_err(io::Error::other)?;
            Ok(Some(Snapshot {
                meta,
                snapshot: bytes,
            }))
        })
        .await
    }
}

/// The state at one index, about to become a file.
#[derive(Debug)]
pub struct SnapshotBuilder {
    meta: SnapshotMeta,
    state: State,
    shelf: Shelf,
    snapshots: LogSnapshots,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let meta = self.meta.clone();
        let state = std::mem::take(&mut self.state);
        let shelf = std::mem::take(&mut self.shelf);
        let snapshots = self.snapshots.clone();
        blocking(&self.snapshots, move || {
            let bytes = log_snapshot::encode(&meta, &state, &shelf)?;
            snapshots.keep(&meta, bytes.clone())?;
            tracing::info!(bytes = bytes.len(), last = ?meta.last_log_id, "log snapshot made");
            Ok(Snapshot {
                meta,
                snapshot: bytes,
            })
        })
        .await
    }
}
