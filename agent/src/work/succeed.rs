//! The successor's part in a failover: store everything that the members that refuse the silent
//! owner hold of its reign, before owning anything.

use std::{sync::Arc, time::Duration};

use annulus_ring::{NodeId, Slot};
use futures::StreamExt;
use tracing::{info, warn};

use crate::{
    bait,
    fetch::FetchError,
    shared::{Pauses, Shared},
    store::Copy,
    wire::Wave,
};

/// Tails read at once.
const AT_ONCE: usize = 16;
/// Pauses between tries; the ranges take no writes meanwhile, so they stay short.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Stores the tails of every named member for every range of the wave that lists it, then says so.
/// Tries until it is cancelled; the leader names others when one of them is gone.
pub(super) async fn succeed(shared: Arc<Shared>, wave: Wave) {
    let view = shared.guard.view();
    let mut tails: Vec<(NodeId, Slot)> = Vec::new();
    let others = wave.tails.unwrap_or_default();
    let read = match bait::on(bait::TAILS_NOT_READ) {
        true => &[][..],
        false => &others[..],
    };
    for node in read {
        let handle = view
            .lookup
            .as_ref()
            .and_then(|lookup| lookup.snapshot().member(node))
            .map(|member| member.handle);
        let listed =
            |slot: &Slot| handle.is_some_and(|handle| view.sets(*slot).old.contains(&handle));
        let slots = wave.slots.iter().copied().filter(listed);
        tails.extend(slots.map(|slot| (node.clone(), slot)));
    }
    futures::stream::iter(tails)
        .for_each_concurrent(AT_ONCE, |(node, slot)| {
            let (shared, wave) = (shared.clone(), wave.id);
            async move { store(&shared, wave, &node, slot).await }
        })
        .await;
    let (count, from) = (wave.slots.len(), others.len());
    info!(
        wave = wave.id,
        count, from, "tails are stored, ready to own"
    );
    shared.board.succeeded(Some((wave.id, others)));
}

async fn store(shared: &Arc<Shared>, wave: u64, node: &NodeId, slot: Slot) {
    let mut pauses = Pauses::new(RETRY.0, RETRY.1);
    loop {
        match step(shared, wave, node, slot).await {
            Ok(()) => return,
            Err(error) => warn!(%error, %slot, %node, "a tail is not stored yet, trying again"),
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

async fn step(
    shared: &Arc<Shared>,
    wave: u64,
    node: &NodeId,
    slot: Slot,
) -> Result<(), FetchError> {
    let mark = shared
        .store
        .call(move |store| store.watermark(slot, Copy::Live))
        .await?;
    // Everything up to its own watermark this node holds itself.
    shared.fenced_tail(wave, node, slot, mark.held).await
}
