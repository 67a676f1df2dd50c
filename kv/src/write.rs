//! The owner's way of a write, from admission to acknowledgement.
//!
//! ```text
//!   admit -> position, under the slot's lock -> local commit, synced
//!         -> every other member of the write set -> w of every group hold it -> acknowledged
//! ```
//!
//! The local commit comes first, so a position that anybody has seen is on this disk, and none is
//! given twice in a reign. From then on the write is *pending* until it is acknowledged, whether
//! its caller still waits or not: its outcome is unknown to him, and it is sent again until it is
//! known here. It keeps its admission, and so holds up every epoch that changes its slot until it
//! was stamped anew under that epoch, or failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering};

use annulus_agent::{
    guard::{Admission, Intent, Place, Stamp},
    store::{Copy, Record, StoreError},
};
use annulus_ring::{Epoch, Handle, Position};
use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

use crate::{
    lane::{Lane, NotAssigned},
    node::Node,
    refused::{Cause, Refused},
};

/// Writes that may wait for their acknowledgement at one node; more are refused. Bounds what a
/// node without its quorum collects.
const MAX_PENDING: usize = 16_384;

/// One write at its owner.
pub(crate) struct Write {
    pub lane: Arc<Lane>,
    pub record: Record,
    /// The reign in which it is sent.
    pub reign: Epoch,
    state: Mutex<State>,
    settled: Notify,
}

struct State {
    phase: Phase,
    /// Until the write is over.
    admission: Option<Arc<Admission>>,
    /// Who holds it durably.
    holders: Vec<Handle>,
}

#[derive(Clone, Debug)]
enum Phase {
    Pending,
    Acknowledged,
    Failed(Refused),
}

impl Write {
    pub fn new(lane: Arc<Lane>, record: Record, admission: Arc<Admission>) -> Arc<Self> {
        let reign = admission.reign;
        let state = State {
            phase: Phase::Pending,
            admission: Some(admission),
            holders: Vec::new(),
        };
        Arc::new(Self {
            lane,
            record,
            reign,
            state: Mutex::new(state),
            settled: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this member holds it durably.
    pub fn is_held_by(&self, handle: Handle) -> bool {
        self.state().holders.contains(&handle)
    }

    /// Whether it is over.
    pub fn is_settled(&self) -> bool {
        !matches!(self.state().phase, Phase::Pending)
    }

    /// Done when the write is over: acknowledged, or failed with its outcome unknown.
    pub async fn outcome(&self) -> Result<(), Refused> {
        loop {
            let settled = self.settled.notified();
            let phase = self.state().phase.clone();
            match phase {
                Phase::Pending => settled.await,
                Phase::Acknowledged => return Ok(()),
                Phase::Failed(refused) => return Err(refused),
            }
        }
    }

    /// Puts the present view's admission in the place of the old one, if that is outdated.
    fn restamp(&self) -> Restamped {
        let admission = self.state().admission.clone();
        let Some(admission) = admission.filter(|admission| admission.outdated()) else {
            return Restamped::Untouched;
        };
        match admission.restamp() {
            Ok(renewed) => {
                let mut state = self.state();
                if state.admission.is_some() {
                    state.admission = Some(Arc::new(renewed));
                }
                Restamped::Renewed
            }
            Err(refusal) => Restamped::Refused(refusal.into()),
        }
    }
}

enum Restamped {
    Untouched,
    Renewed,
    Refused(Refused),
}

/// A key and its new value; `None` deletes.
pub(crate) type Item = (Bytes, Option<Bytes>);

impl Node {
    /// Writes records of one slot, in order; one result each.
    ///
    /// An error of the whole call means that nothing was done. At `deadline` the writes that are
    /// not over are answered [`Cause::Unknown`].
    pub(crate) async fn write(
        self: &Arc<Self>,
        place: Place,
        stamp: Stamp,
        items: Vec<Item>,
        deadline: Instant,
    ) -> Result<Vec<Result<Position, Refused>>, Refused> {
        let refuse = |cause: Cause| cause.at(self.epoch());
        let pending = self.pending.load(Ordering::Relaxed);
        if pending + items.len() > MAX_PENDING {
            let text = format!("{pending} writes wait for their acknowledgement here");
            return Err(refuse(Cause::Unavailable(text)));
        }
        let admission = Arc::new(self.guard.admit(place, stamp, Intent::Write).await?);
        let lane = self.open_lane(&admission).await?;
        // A caller who has given up may have asked again elsewhere: what has no position yet
        // must not get one after that.
        if Instant::now() >= deadline {
            return Err(refuse(Cause::Unavailable(
                "the deadline passed before it began".into(),
            )));
        }
        let writes = self
            .assign(&lane, &admission, items)
            .map_err(|error| match error {
                NotAssigned::OtherReign => Cause::Stale { nodes: Vec::new() }.at(admission.epoch),
                NotAssigned::Store(error) => refuse(error.into()),
            })?;
        // The view may have been swapped after admission and before the writes were pending, where
        // the swap's own round of stamping did not see them.
        if admission.outdated() {
            writes.iter().for_each(|write| self.restamp(write));
        }
        drop(admission);
        let mut results = Vec::with_capacity(writes.len());
        for write in &writes {
            results.push(match self.wait(deadline, write.outcome()).await {
                Ok(Ok(())) => Ok(write.record.version),
                Ok(Err(refused)) => Err(refused),
                Err(late) => {
                    let text = format!("{} was not acknowledged {late}", write.record.version);
                    Err(refuse(Cause::Unknown(text)))
                }
            });
        }
        Ok(results)
    }

    fn assign(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        admission: &Arc<Admission>,
        items: Vec<Item>,
    ) -> Result<Vec<Arc<Write>>, NotAssigned> {
        let make = |index: usize, version: Position| {
            let (key, value) = items[index].clone();
            Write::new(
                lane.clone(),
                Record {
                    key,
                    version,
                    value,
                },
                admission.clone(),
            )
        };
        let own = admission.own;
        let submit = |writes: &[Arc<Write>], acknowledged| {
            let records = writes.iter().map(|write| write.record.clone()).collect();
            let (node, submitted) = (self.clone(), writes.to_vec());
            let done = move |result: Result<(), StoreError>| match result {
                Ok(()) => node.committed(&submitted, own),
                Err(error) => {
                    // The commit failed, and the disk may have it or not.
                    let refused = Cause::Unknown(error.to_string()).at(node.epoch());
                    submitted
                        .iter()
                        .for_each(|write| node.fail(write, refused.clone()));
                }
            };
            self.store
                .submit(lane.slot, Copy::Live, records, acknowledged, Box::new(done))?;
            self.pending.fetch_add(writes.len(), Ordering::Relaxed);
            Ok(())
        };
        lane.assign(admission.reign, make, items.len(), submit)
    }

    /// Writes are on this disk: now the others get them. On the writer's thread.
    fn committed(self: &Arc<Self>, writes: &[Arc<Write>], own: Handle) {
        for write in writes {
            self.hold(write, own);
        }
        self.send(writes);
    }

    /// A member holds the write durably.
    pub(crate) fn hold(&self, write: &Arc<Write>, handle: Handle) {
        let mut state = write.state();
        if !state.holders.contains(&handle) {
            state.holders.push(handle);
        }
        self.acknowledge(write, state);
    }

    /// Acknowledges the write if w of every group hold it.
    fn acknowledge(&self, write: &Arc<Write>, mut state: MutexGuard<'_, State>) {
        let satisfied = state.admission.as_ref().is_some_and(|admission| {
            state.holders.contains(&admission.own) && admission.satisfied(&state.holders)
        });
        if satisfied {
            state.phase = Phase::Acknowledged;
            let admission = state.admission.take();
            drop(state);
            self.settle(write, false);
            // Last: while it lives, this node is not drained.
            drop(admission);
        }
    }

    /// Gives the write up: it may or may not be seen.
    pub(crate) fn fail(&self, write: &Arc<Write>, refused: Refused) {
        let mut state = write.state();
        if !matches!(state.phase, Phase::Pending) {
            return;
        }
        state.phase = Phase::Failed(refused);
        let admission = state.admission.take();
        drop(state);
        self.settle(write, true);
        drop(admission);
    }

    fn settle(&self, write: &Arc<Write>, failed: bool) {
        write.lane.settle(write, failed);
        self.pending.fetch_sub(1, Ordering::Relaxed);
        write.settled.notify_waiters();
    }

    /// Stamps a pending write anew if its slot changed: same position, new sets. Or fails it.
    pub(crate) fn restamp(self: &Arc<Self>, write: &Arc<Write>) {
        match write.restamp() {
            Restamped::Untouched => {}
            Restamped::Renewed => {
                // Its holders may satisfy the new groups already.
                self.acknowledge(write, write.state());
                self.send(std::slice::from_ref(write));
            }
            Restamped::Refused(refused) => {
                let text = format!("no longer the owner: {refused}");
                self.fail(write, Cause::Unknown(text).at(refused.epoch));
            }
        }
    }
}
