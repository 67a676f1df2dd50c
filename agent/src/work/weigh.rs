//! How much this node holds and how much room it has, told now and then: plans are made by it.

use std::{sync::Arc, time::Duration};

use crate::shared::Shared;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// Looks until the agent stops.
pub(crate) async fn weigh(shared: Arc<Shared>) {
    loop {
        let store = shared.store.inner();
        let look = tokio::task::spawn_blocking(move || (store.held(), store.free_bytes()));
        // A store that panics says so itself.
        if let Ok((held, free_bytes)) = look.await {
            shared.board.weighed(held, free_bytes);
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
