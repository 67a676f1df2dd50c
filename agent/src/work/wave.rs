//! The successor's part in a hand-over: hold everything up to F, durably, and say so.

use std::{sync::Arc, time::Duration};

use annulus_ring::{Position, Slot};
use futures::StreamExt;
use tracing::{info, warn};

use crate::{
    fetch::FetchError,
    shared::{Pauses, Shared},
    store::Copy,
    wire::Wave,
};

/// Slots brought up to F at once.
const AT_ONCE: usize = 16;
/// Pauses between tries; a seal refuses writes meanwhile, so they stay short.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Repairs every slot of the wave until it holds F, then confirms. Tries until it is cancelled.
pub(super) async fn confirm(shared: Arc<Shared>, wave: Wave) {
    let slots = wave.slots.iter().copied().zip(wave.sealed.iter().copied());
    futures::stream::iter(slots)
        .for_each_concurrent(AT_ONCE, |(slot, f)| {
            let shared = shared.clone();
            async move { hold(&shared, slot, f).await }
        })
        .await;
    info!(
        wave = wave.id,
        count = wave.slots.len(),
        "everything up to F is held, confirmed"
    );
    shared.board.confirmed(Some((wave.id, wave.sealed)));
}

async fn hold(shared: &Arc<Shared>, slot: Slot, f: Position) {
    let mut pauses = Pauses::new(RETRY.0, RETRY.1);
    loop {
        match step(shared, slot, f).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => warn!(%error, %slot, %f, "F is not held yet, trying again"),
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

async fn step(shared: &Arc<Shared>, slot: Slot, f: Position) -> Result<bool, FetchError> {
    let watermark = move |store: &dyn crate::store::RangeStore| store.watermark(slot, Copy::Live);
    let mark = shared.store.call(watermark).await?;
    let holds = |held: Option<Position>| held.is_some_and(|held| held >= f);
    if holds(mark.held) {
        return Ok(true);
    }
    shared.repair(slot, Copy::Live, mark.held).await?;
    Ok(holds(shared.store.call(watermark).await?.held))
}
