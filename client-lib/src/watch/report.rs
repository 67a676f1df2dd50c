//! Tells servers what is applied here.

use std::{sync::Arc, time::Duration};

use annulus_proto::v1;
use annulus_ring::{Checksum, Endpoint};
use bytes::Bytes;
use tokio::time::timeout;

use super::WatchClient;
use crate::{
    current::{Current, EpochRef},
    status::{Board, Fork},
};

pub(super) fn message(held: EpochRef) -> v1::EpochRef {
    let Checksum(checksum) = held.checksum;
    v1::EpochRef {
        generation: held.generation.0,
        epoch: held.epoch.0,
        checksum: Bytes::copy_from_slice(&checksum),
    }
}

/// Tells the server of a stream what is applied, newest only: for adoption, and so that it can
/// notice a fork that this side cannot see.
pub(super) struct Reports {
    pub(super) client: WatchClient,
    pub(super) endpoint: Endpoint,
    pub(super) current: Arc<Current>,
    pub(super) board: Arc<Board>,
    pub(super) watcher: String,
    pub(super) patience: Duration,
}

impl Reports {
    pub(super) async fn send(mut self) -> std::convert::Infallible {
        let mut epochs = self.current.epochs();
        // What was held before this stream is news to this server.
        epochs.mark_changed();
        while epochs.changed().await.is_ok() {
            let held = *epochs.borrow_and_update();
            if let Some(held) = held {
                self.report(held).await;
            }
        }
        std::future::pending().await
    }

    async fn report(&mut self, held: EpochRef) {
        let request = v1::ReportAppliedRequest {
            ring: self.current.ring().to_string(),
            watcher: self.watcher.clone(),
            applied: Some(message(held)),
        };
        let (ring, endpoint) = (self.current.ring(), &self.endpoint);
        match timeout(self.patience, self.client.report_applied(request)).await {
            Ok(Ok(response)) if response.get_ref().fork => {
                tracing::error!(%ring, %endpoint, epoch = %held.epoch, checksum = ?held.checksum,
                    "FORK: the server knows this epoch under another checksum");
                self.board.trouble(format!(
                    "FORK: {endpoint} knows epoch {} under another checksum than {}",
                    held.epoch, held.checksum
                ));
                self.board.update(|status| {
                    status.fork.get_or_insert(Fork {
                        epoch: held.epoch,
                        held: held.checksum,
                        found: None,
                        endpoint: endpoint.clone(),
                    });
                });
            }
            Ok(Ok(_)) => {}
            // Nothing hangs on a report; the next epoch brings the next one.
            Ok(Err(answer)) => {
                let why = crate::explain::status(&answer);
                tracing::debug!(%ring, %endpoint, epoch = %held.epoch, why, "report not taken");
            }
            Err(_) => {
                tracing::debug!(%ring, %endpoint, epoch = %held.epoch, "report not answered");
            }
        }
    }
}
