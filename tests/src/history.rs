//! Kept epochs as each server holds them, asked directly and whole.

use std::{collections::BTreeMap, sync::Arc};

use annulus_proto::{
    MAX_MESSAGE_BYTES,
    snapshot::{Expect, verify_and_decode},
    v1::{self, admin_client::AdminClient},
};
use annulus_ring::{Checksum, Epoch, Generation, RingName, Snapshot};
use tonic::transport::{Channel, Endpoint};

/// One server's shelf.
#[derive(Debug)]
pub struct Shelf {
    admin: AdminClient<Channel>,
    ring: RingName,
}

impl Shelf {
    /// The shelf of `ring` at the server that listens here.
    ///
    /// # Panics
    /// If the names make no sense.
    #[must_use]
    pub fn at(endpoint: &str, ring: &str) -> Self {
        let channel = Endpoint::from_shared(format!("http://{endpoint}")).expect("an address");
        let admin = AdminClient::new(channel.connect_lazy())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self {
            admin,
            ring: RingName::new(ring).expect("a ring's name"),
        }
    }

    /// Kept epochs with their checksums, from the server's own state.
    ///
    /// # Errors
    /// The server's words.
    pub async fn epochs(&mut self) -> Result<BTreeMap<(Generation, Epoch), Checksum>, String> {
        let request = v1::ListEpochsRequest {
            ring: self.ring.to_string(),
            mode: v1::ReadMode::Local.into(),
        };
        let answer = self
            .admin
            .list_epochs(request)
            .await
            .map_err(|status| status.to_string())?;
        let epochs = answer.into_inner().epochs.into_iter();
        epochs
            .map(|at| {
                let checksum = <[u8; 32]>::try_from(at.checksum.as_ref())
                    .map_err(|_| format!("checksum of epoch {} is no SHA-256", at.epoch))?;
                Ok((
                    (Generation(at.generation), Epoch(at.epoch)),
                    Checksum(checksum),
                ))
            })
            .collect()
    }

    /// A kept snapshot, verified.
    ///
    /// # Errors
    /// The server's words, or why it was refused here.
    pub async fn snapshot(&mut self, epoch: Epoch) -> Result<Snapshot, String> {
        let request = v1::GetSnapshotRequest {
            ring: self.ring.to_string(),
            mode: v1::ReadMode::Local.into(),
            epoch: epoch.0,
        };
        let answer = self
            .admin
            .get_snapshot(request)
            .await
            .map_err(|status| status.to_string())?;
        let bytes = answer
            .into_inner()
            .snapshot
            .ok_or("no snapshot in the answer")?;
        let expect = Expect {
            cluster_id: None,
            ring: &self.ring,
            held: None,
        };
        verify_and_decode(&bytes, expect).map_err(|error| error.to_string())
    }

    /// All kept snapshots, oldest first.
    ///
    /// # Panics
    /// If the server does not give them.
    pub async fn all(&mut self) -> Vec<Arc<Snapshot>> {
        let epochs = self
            .epochs()
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let mut snapshots = Vec::new();
        for (_, epoch) in epochs.into_keys() {
            let snapshot = self.snapshot(epoch).await;
            snapshots.push(Arc::new(snapshot.unwrap_or_else(|error| panic!("{error}"))));
        }
        snapshots
    }
}

/// Equal checksums of every epoch that the servers keep, and a chain without a gap: EPOCH-UNIQUE,
/// EPOCH-CHAIN and REPLICAS-EQUAL as seen from outside. Gives how many epochs were compared.
///
/// # Panics
/// If two servers differ, or the chain breaks.
pub async fn servers_agree(endpoints: &[String], ring: &str) -> usize {
    use crate::{cluster::SOON, wait::until};
    let shelves = until(
        SOON,
        "all servers to have applied the same epochs",
        || async {
            let mut shelves = Vec::new();
            for endpoint in endpoints {
                shelves.push(Shelf::at(endpoint, ring).epochs().await?);
            }
            let newest: Vec<_> = shelves
                .iter()
                .map(|shelf| shelf.keys().last().copied())
                .collect();
            if newest.iter().all(|at| *at == newest[0]) {
                Ok(shelves)
            } else {
                Err(format!("{newest:?}"))
            }
        },
    )
    .await;
    for (endpoint, shelf) in endpoints.iter().zip(&shelves) {
        for (at, checksum) in shelf {
            let first = shelves[0].get(at);
            assert_eq!(
                Some(checksum),
                first,
                "epoch {at:?} at {endpoint} and {}",
                endpoints[0]
            );
        }
    }
    let snapshots = Shelf::at(&endpoints[0], ring).all().await;
    for pair in snapshots.windows(2) {
        assert_eq!(pair[1].epoch, pair[0].epoch.next(), "EPOCH-CHAIN");
        let before = shelves[0].get(&(pair[0].generation, pair[0].epoch));
        assert_eq!(
            Some(&pair[1].previous_checksum),
            before,
            "EPOCH-CHAIN at {}",
            pair[1].epoch
        );
    }
    shelves[0].len()
}
