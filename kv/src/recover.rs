//! Opening a slot as its owner: after a start, and at the beginning of a reign.
//!
//! The last records of a copy may be held by this node alone: it was killed between its own commit
//! and the acknowledgement. An exact read must not show such a record before w members hold it, or
//! a later read elsewhere could miss it. So whatever lies above the last position that is known to
//! be acknowledged is pending again, and is sent again, before the slot is served.

use std::sync::{Arc, atomic::Ordering};

use annulus_agent::guard::{Admission, Intent, NodeView, Stamp};
use annulus_ring::Slot;

use crate::{
    lane::Lane,
    node::Node,
    refused::{Cause, Refused},
    write::Write,
};

impl Node {
    /// The slot's lane, open for the admission's reign.
    pub(crate) async fn open_lane(
        self: &Arc<Self>,
        admission: &Arc<Admission>,
    ) -> Result<Arc<Lane>, Refused> {
        let (slot, reign) = (admission.slot, admission.reign);
        let lane = self.lanes.of(slot);
        if lane.is_open(reign) {
            return Ok(lane);
        }
        let opening = lane.opening.lock().await;
        if lane.is_open(reign) {
            drop(opening);
            return Ok(lane);
        }
        let refuse = |cause: Cause| cause.at(admission.epoch);
        let no_copy = || {
            refuse(Cause::Unavailable(format!(
                "no live copy of slot {slot} here"
            )))
        };
        let (held, acknowledged) = self.store.standing(slot).ok_or_else(no_copy)?;
        let held = held.unwrap_or_default();
        if held.reign > reign {
            return Err(refuse(Cause::Stale { nodes: Vec::new() }));
        }
        if held.reign < reign {
            // The agent begins reigns; the guard admitted us as owner, so this one has begun.
            self.store
                .ensure_reign(slot, reign)
                .await
                .map_err(|error| refuse(error.into()))?;
        }
        // A copy that was never told came whole from its owner, acknowledged.
        let from = acknowledged.unwrap_or(held);
        let store = self.store.clone();
        let records = tokio::task::spawn_blocking(move || store.above(slot, Some(from)))
            .await
            .map_err(|error| refuse(Cause::Unavailable(error.to_string())))?
            .map_err(|error| refuse(error.into()))?;
        let open_ends: Vec<_> = records
            .into_iter()
            .map(|record| Write::new(lane.clone(), record, admission.clone()))
            .collect();
        self.pending.fetch_add(open_ends.len(), Ordering::Relaxed);
        let former = lane.open(reign, held, &open_ends);
        drop(opening);
        let lost = Cause::Unknown("the slot began a new reign".into()).at(admission.epoch);
        former
            .iter()
            .for_each(|write| self.fail(write, lost.clone()));
        for write in &open_ends {
            self.hold(write, admission.own);
        }
        self.send(&open_ends);
        // As with new writes: the swap's own round of stamping may have passed before they were
        // pending.
        if admission.outdated() {
            open_ends.iter().for_each(|write| self.restamp(write));
        }
        if !open_ends.is_empty() {
            tracing::debug!(epoch = %admission.epoch, %slot, %reign, records = open_ends.len(),
                "records that may not be acknowledged are sent again");
        }
        Ok(lane)
    }

    /// Follows the view: pending writes of changed slots are stamped anew, owned slots opened.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut changes = self.guard.changes();
        loop {
            let view = changes.borrow_and_update().clone();
            for lane in self.lanes.all() {
                lane.pending().iter().for_each(|write| self.restamp(write));
            }
            self.open_owned(&view).await;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Opens every slot that this node owns, so that a restarted owner does not wait for the first
    /// request to make its last records safe.
    async fn open_owned(self: &Arc<Self>, view: &NodeView) {
        let stamp = Stamp {
            generation: view.generation(),
            epoch: view.epoch(),
        };
        for slot in (0..view.slot_count()).filter_map(|slot| u32::try_from(slot).ok().map(Slot)) {
            if !view.owns(slot) || self.lanes.of(slot).is_open(view.reign(slot)) {
                continue;
            }
            // A newer view takes over from here; it is in the channel already.
            if self.guard.view().seq != view.seq {
                return;
            }
            match self
                .guard
                .admit(view.place(slot), stamp, Intent::Write)
                .await
            {
                Ok(admission) => {
                    if let Err(refused) = self.open_lane(&Arc::new(admission)).await {
                        tracing::warn!(epoch = %view.epoch(), %slot, %refused,
                            "an owned slot does not open");
                    }
                }
                // Sealed, or changed meanwhile: it is opened by the request that is admitted.
                Err(refusal) => {
                    tracing::debug!(epoch = %view.epoch(), %slot, %refusal, "not opened yet");
                }
            }
        }
    }
}
