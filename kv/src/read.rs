//! Reads: exact by the owner, or any by whoever holds a copy.

use std::sync::Arc;

use annulus_agent::{
    guard::{Admission, Intent, Place, Stamp},
    store::{RangeStore, Record},
};
use annulus_ring::{Position, Slot};
use futures::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    lane::Standing,
    node::Node,
    refused::{Cause, Refused},
};

/// Pause before members are asked again that did not confirm.
const ASK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The newest record of the key; tombstones included.
    pub record: Option<Record>,
    /// How far the answering copy has got.
    pub watermark: Option<Position>,
}

impl Node {
    /// A read that sees every write acknowledged before it came in, and none that is not
    /// acknowledged when it is answered.
    ///
    /// The owner's copy has every acknowledged write of its reign, as it commits its own first,
    /// and the base of the reign. What it must ask is whether it is still the owner: w members of
    /// the read set that obey no newer reign leave too few for another owner to acknowledge by.
    pub(crate) async fn read_exact(
        self: &Arc<Self>,
        place: Place,
        stamp: Stamp,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Answer, Refused> {
        let admission = Arc::new(self.guard.admit(place, stamp, Intent::ReadExact).await?);
        let lane = self.open_lane(&admission).await?;
        let unavailable = |text: String| Cause::Unavailable(text).at(admission.epoch);
        self.wait(deadline, self.confirm(&admission))
            .await
            .map_err(|late| unavailable(format!("too few members confirmed the reign {late}")))??;
        let answer = self.look_up(admission.slot, key, &admission)?;
        let found = answer
            .record
            .as_ref()
            .map_or(Position::default(), |record| record.version);
        let stale = |epoch| Cause::Stale { nodes: Vec::new() }.at(epoch);
        match lane.standing(admission.reign, found) {
            Standing::Acknowledged => {}
            Standing::Closed => return Err(stale(self.epoch())),
            Standing::Pending(write) => self
                .wait(deadline, write.outcome())
                .await
                .map_err(|late| unavailable(format!("{found} was not acknowledged {late}")))?
                // Whether it counts is for the next reign to say.
                .map_err(|refused| stale(refused.epoch))?,
        }
        Ok(answer)
    }

    /// A read of this node's copy, whatever it has.
    pub(crate) async fn read_any(
        self: &Arc<Self>,
        place: Place,
        stamp: Stamp,
        key: &[u8],
    ) -> Result<Answer, Refused> {
        let admission = self.guard.admit(place, stamp, Intent::ReadAny).await?;
        self.look_up(admission.slot, key, &admission)
    }

    fn look_up(&self, slot: Slot, key: &[u8], admission: &Admission) -> Result<Answer, Refused> {
        let refuse = |cause: Cause| cause.at(admission.epoch);
        let live = annulus_agent::store::Copy::Live;
        // First the watermark: the record may be newer than it says, never older.
        let watermark = self
            .store
            .watermark(slot, live)
            .map_err(|error| refuse(error.into()))?
            .held;
        let record = self
            .store
            .get(slot, key)
            .map_err(|error| refuse(error.into()))?;
        Ok(Answer { record, watermark })
    }

    /// Waits until w members of the read set, this one included, confirmed the reign: w of the list
    /// that is read.
    async fn confirm(self: &Arc<Self>, admission: &Admission) -> Result<(), Refused> {
        let Admission {
            slot, reign, epoch, ..
        } = *admission;
        loop {
            // This member's own word costs nothing, and it must not be the one that errs.
            self.guard.confirm_reign(slot, reign, epoch).await?;
            let mut confirmed = 1;
            let mut answers: FuturesUnordered<_> = if confirmed < admission.confirmations {
                admission
                    .readers()
                    .map(|peer| self.ask(&peer.node_id, slot, reign, epoch))
                    .collect()
            } else {
                FuturesUnordered::new()
            };
            while confirmed < admission.confirmations {
                match answers.next().await {
                    Some(Ok(Ok(()))) => confirmed += 1,
                    // Refused, or not reached.
                    Some(Ok(Err(_)) | Err(_)) => {}
                    None => break,
                }
            }
            if confirmed >= admission.confirmations {
                return Ok(());
            }
            if admission.outdated() {
                return Err(Cause::Stale { nodes: Vec::new() }.at(self.epoch()));
            }
            tokio::time::sleep(ASK_PAUSE).await;
        }
    }
}
