//! Many writes at once, in one message an owner.

use std::{collections::BTreeMap, time::Duration};

use annulus_client::{Deadline, Stamp, Target};
use annulus_ring::{Endpoint, Epoch, NodeId};
use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep, timeout_at};

use super::{BatchItem, Error, KvClient, WriteOptions, Written, broken, head};
use crate::{
    limits::{self, MAX_BATCH_BYTES, MAX_BATCH_ITEMS},
    pb,
    refused::{Cause, Refused},
};

/// Messages under way at once.
const AT_ONCE: usize = 12;
/// Pause before what was refused is sent again: first and largest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// Writes for one owner, by their places in the caller's list.
struct Lot {
    target: Target,
    places: Vec<usize>,
}

/// What became of one write in one round.
enum Came {
    Written(Written),
    /// Nothing was done; the reason, for the case that the deadline comes.
    Again(Error),
    Unknown(String),
    Over(Error),
}

impl KvClient {
    /// Makes many writes; one result each, in order. Not atomic, and writes of one key are in the
    /// order of the list only where all go well: do not list a key twice.
    ///
    /// What was refused is sent again until the deadline; what may have been done is not, unless
    /// the options say that this is harmless.
    pub async fn batch(
        &self,
        items: &[BatchItem],
        options: WriteOptions,
    ) -> Vec<Result<Written, Error>> {
        self.batch_while(items, options, None, &|_| {}).await
    }

    /// [`Self::batch`] that also gives up when nothing was acknowledged for `patience`, and calls
    /// `tell` with how many writes each answer acknowledged.
    pub(crate) async fn batch_while(
        &self,
        items: &[BatchItem],
        options: WriteOptions,
        patience: Option<Duration>,
        tell: &(dyn Fn(usize) + Sync),
    ) -> Vec<Result<Written, Error>> {
        let last = Deadline::from(options.deadline.unwrap_or(self.deadline)).at();
        let mut progress = Instant::now();
        let mut results: Vec<Option<Result<Written, Error>>> = items
            .iter()
            .map(|item| limits::check_write(&item.key, item.value.as_deref()).err())
            .map(|limit| limit.map(|limit| Err(limit.into())))
            .collect();
        let mut pause = PAUSES.0;
        loop {
            let deadline = patience.map_or(last, |patience| last.min(progress + patience));
            let left: Vec<usize> = (0..items.len())
                .filter(|place| is_open(results[*place].as_ref()))
                .collect();
            if left.is_empty() {
                break;
            }
            let lots = match self.lots(items, &left, deadline).await {
                Ok(lots) => lots,
                Err(text) => {
                    fill(&mut results, &left, || Error::NoRoute(text.clone()));
                    break;
                }
            };
            let mut rounds = stream::iter(lots)
                .map(|lot| async move {
                    let came = self.send_lot(items, &lot).await;
                    (lot, came)
                })
                .buffer_unordered(AT_ONCE);
            let mut behind = None;
            while let Some((lot, came)) = rounds.next().await {
                let written = came.iter().filter(|came| matches!(came, Came::Written(_)));
                let written = written.count();
                if written > 0 {
                    progress = Instant::now();
                    tell(written);
                }
                for (place, came) in lot.places.into_iter().zip(came) {
                    let result = match came {
                        Came::Written(written) => Ok(written),
                        Came::Unknown(text) => Err(Error::Unknown(text)),
                        Came::Again(error) | Came::Over(error) => Err(error),
                    };
                    if let Err(Error::RefusedWrite { refused, .. }) = &result
                        && refused.epoch > lot.target.stamp.epoch
                    {
                        behind = behind.max(Some(refused.epoch));
                    }
                    results[place] = Some(result);
                }
            }
            let again = results
                .iter()
                .any(|result| goes_on(result.as_ref(), options.idempotent));
            let deadline = patience.map_or(last, |patience| last.min(progress + patience));
            if !again || Instant::now() + pause >= deadline {
                break;
            }
            for result in &mut results {
                if goes_on(result.as_ref(), options.idempotent) {
                    *result = None;
                }
            }
            if let Some(epoch) = behind {
                // A node is ahead of us; its epoch is on the way, or asked for here.
                let until = deadline.min(Instant::now() + PAUSES.1);
                drop(self.ring().wait_newer_than(Epoch(epoch.0 - 1), until).await);
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        results
            .into_iter()
            .map(|result| result.expect("the loop ends when every write has a result"))
            .collect()
    }

    /// The open writes by owner, in messages within the limits.
    async fn lots(
        &self,
        items: &[BatchItem],
        places: &[usize],
        deadline: Instant,
    ) -> Result<Vec<Lot>, String> {
        self.ring()
            .ready(deadline)
            .await
            .map_err(|error| error.to_string())?;
        let mut lots: Vec<Lot> = Vec::new();
        let mut open: BTreeMap<(NodeId, Endpoint), (usize, usize)> = BTreeMap::new();
        for place in places {
            let item = &items[*place];
            let route = self
                .ring()
                .lookup(&item.key)
                .map_err(|error| error.to_string())?;
            let owner = route.owner();
            let bytes = item.key.len() + item.value.as_ref().map_or(0, bytes::Bytes::len);
            let of = (owner.node_id.clone(), owner.endpoint.clone());
            let fits = open.get(&of).copied().filter(|(lot, filled)| {
                lots[*lot].places.len() < MAX_BATCH_ITEMS && filled + bytes <= MAX_BATCH_BYTES
            });
            let (lot, filled) = fits.unwrap_or_else(|| {
                let stamp = Stamp {
                    ring: self.ring().ring().clone(),
                    generation: route.generation(),
                    epoch: route.epoch(),
                    hops: 1,
                };
                let (node_id, endpoint) = of.clone();
                let target = Target {
                    node_id,
                    endpoint,
                    slot: route.slot,
                    stamp,
                    deadline,
                };
                lots.push(Lot {
                    target,
                    places: Vec::new(),
                });
                (lots.len() - 1, 0)
            });
            lots[lot].places.push(*place);
            open.insert(of, (lot, filled + bytes));
        }
        Ok(lots)
    }

    async fn send_lot(&self, items: &[BatchItem], lot: &Lot) -> Vec<Came> {
        let count = lot.places.len();
        let (stamp, timeout_ms) = head(&lot.target);
        let items = lot.places.iter().map(|place| &items[*place]);
        let items = items.map(|item| pb::BatchItem {
            key: item.key.clone(),
            value: item.value.clone(),
        });
        let request = pb::BatchRequest {
            stamp,
            items: items.collect(),
            timeout_ms,
        };
        let mut stub = match self.stub(&lot.target) {
            Ok(stub) => stub,
            Err(error) => return all(count, || not_reached(lot, error.to_string())),
        };
        let response = match timeout_at(lot.target.deadline, stub.batch(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => {
                return match broken(&status) {
                    annulus_client::CallError::Unavailable(text) => {
                        all(count, || not_reached(lot, text.to_string()))
                    }
                    error => all(count, || Came::Unknown(at(lot, &error.to_string()))),
                };
            }
            Err(_) => {
                return all(count, || {
                    Came::Unknown(at(lot, "no answer in the time given"))
                });
            }
        };
        self.note(&lot.target, response.epoch);
        if response.results.len() != count {
            let found = response.results.len();
            let what = format!("{found} results for {count} writes");
            return all(count, || Came::Unknown(at(lot, &what)));
        }
        let epoch = Epoch(response.epoch);
        response
            .results
            .into_iter()
            .map(|result| came(lot, result, epoch))
            .collect()
    }
}

fn is_open(result: Option<&Result<Written, Error>>) -> bool {
    result.is_none()
}

/// Whether a write that came to this is sent again.
fn goes_on(result: Option<&Result<Written, Error>>, idempotent: bool) -> bool {
    match result {
        Some(Err(error @ (Error::RefusedWrite { .. } | Error::NotReached { .. }))) => {
            error.is_retryable()
        }
        Some(Err(Error::Unknown(_))) => idempotent,
        Some(Ok(_) | Err(_)) | None => false,
    }
}

fn came(lot: &Lot, result: pb::WriteResult, epoch: Epoch) -> Came {
    let refuse = |refused| Error::RefusedWrite {
        node: lot.target.node_id.clone(),
        endpoint: lot.target.endpoint.clone(),
        refused,
    };
    match result.result {
        Some(pb::write_result::Result::Written(version)) => Came::Written(Written {
            version: version.into(),
            epoch,
        }),
        Some(pb::write_result::Result::Refused(refused)) => {
            let refused = Refused::from(refused);
            match refused.cause {
                Cause::Unknown(text) => Came::Unknown(at(lot, &text)),
                Cause::Invalid { .. } => Came::Over(refuse(refused)),
                _ => Came::Again(refuse(refused)),
            }
        }
        None => Came::Unknown("the node's answer says nothing".to_owned()),
    }
}

fn not_reached(lot: &Lot, why: String) -> Came {
    Came::Again(Error::NotReached {
        node: lot.target.node_id.clone(),
        endpoint: lot.target.endpoint.clone(),
        why,
    })
}

fn at(lot: &Lot, what: &str) -> String {
    let Target {
        node_id, endpoint, ..
    } = &lot.target;
    format!("{node_id} at {endpoint}: {what}")
}

fn all(count: usize, came: impl Fn() -> Came) -> Vec<Came> {
    (0..count).map(|_| came()).collect()
}

fn fill(
    results: &mut [Option<Result<Written, Error>>],
    places: &[usize],
    error: impl Fn() -> Error,
) {
    for place in places {
        results[*place] = Some(Err(error()));
    }
}
