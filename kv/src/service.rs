//! The Kv service: decode, judge, carry out or forward, answer.

use std::{sync::Arc, time::Duration};

use annulus_agent::guard::{NodeView, Place};
use annulus_ring::{NodeId, Position};
use futures::future::join_all;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::{
    channels::{explain, never_sent},
    limits,
    node::Node,
    pb::{self, kv_client::KvClient, kv_server::Kv},
    read::Answer,
    refused::{Cause, Refused},
    wire,
    write::Item,
};

/// How long a request may take that names no limit, and that names a longer one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// Hops of a request that must not be passed on: once from the client, once from a node.
const MAX_HOPS: u32 = 2;

/// The service, over a node.
#[derive(Clone)]
pub(crate) struct KvService(pub Arc<Node>);

/// A request's stamp and time, checked.
struct Head {
    stamp: pb::Stamp,
    deadline: Instant,
}

impl Head {
    fn new(node: &Node, stamp: Option<pb::Stamp>, timeout_ms: u32) -> Result<Self, Refused> {
        let view = node.guard.view();
        let invalid = |name: &str, message: String| {
            Cause::Invalid {
                name: name.to_owned(),
                message,
            }
            .at(view.epoch())
        };
        let stamp = stamp.ok_or_else(|| {
            invalid(
                "NoStamp",
                "the request carries no stamp; set ring, generation, epoch".into(),
            )
        })?;
        if stamp.ring != view.ring.as_str() {
            let message = format!(
                "this node serves ring {}, the request is for {:?}",
                view.ring, stamp.ring
            );
            return Err(invalid("WrongRing", message));
        }
        if stamp.hops > MAX_HOPS {
            let message = format!("{} hops, at most {MAX_HOPS} are allowed", stamp.hops);
            return Err(invalid("TooManyHops", message));
        }
        let timeout = match timeout_ms {
            0 => DEFAULT_TIMEOUT,
            ms => Duration::from_millis(ms.into()).min(MAX_TIMEOUT),
        };
        Ok(Self {
            stamp,
            deadline: Instant::now() + timeout,
        })
    }

    /// The same request as this node passes it on: stamped by this node's view.
    fn forwarded(&self, view: &NodeView) -> (pb::Stamp, u32) {
        let stamp = pb::Stamp {
            ring: self.stamp.ring.clone(),
            generation: view.generation().0,
            epoch: view.epoch().0,
            hops: self.stamp.hops.max(1) + 1,
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        (
            stamp,
            u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1),
        )
    }
}

/// Whom to pass a refused request on to: the owner that the refusal names, once.
fn next_hop(refused: &Refused, hops: u32, view: &NodeView) -> Option<NodeId> {
    let owner = match &refused.cause {
        Cause::NotOwner { owner } => owner.clone()?,
        Cause::Stale { nodes } => nodes.first()?.clone(),
        Cause::Behind
        | Cause::Sealed
        | Cause::NotMember
        | Cause::Unavailable(_)
        | Cause::Unknown(_)
        | Cause::Invalid { .. } => return None,
    };
    (hops < MAX_HOPS && owner != view.node).then_some(owner)
}

impl KvService {
    /// Where a checked key is; every node of a ring cuts the circle alike.
    fn place(&self, key: &[u8]) -> Result<Place, Refused> {
        let view = self.0.guard.view();
        view.locate(key).ok_or_else(|| {
            let text = "this node has not heard of the ring's lists yet".to_owned();
            Cause::Unavailable(text).at(view.epoch())
        })
    }

    fn client(
        &self,
        view: &NodeView,
        node: &NodeId,
    ) -> Result<KvClient<tonic::transport::Channel>, String> {
        let endpoint = view
            .endpoint(node)
            .ok_or_else(|| format!("{node} is no member"))?;
        let channel = self
            .0
            .channels
            .to(endpoint)
            .map_err(|error| error.to_string())?;
        self.0.guard.count_forwarded();
        Ok(KvClient::new(channel)
            .max_decoding_message_size(limits::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(limits::MAX_MESSAGE_BYTES))
    }

    async fn write(&self, head: &Head, item: Item) -> Result<Position, Refused> {
        let epoch = self.0.epoch();
        limits::check_write(&item.0, item.1.as_deref())
            .map_err(|error| Cause::from(error).at(epoch))?;
        let place = self.place(&item.0)?;
        let stamp = wire::stamp(&head.stamp);
        let mut results = self
            .0
            .write(place, stamp, vec![item], head.deadline)
            .await?;
        results.pop().expect("one result for one write")
    }

    /// Writes here, or passes the write on to the owner; answers whose epoch judged it as well.
    async fn write_or_forward(
        &self,
        op: &'static str,
        head: Result<Head, Refused>,
        item: Item,
    ) -> pb::WriteResponse {
        let written = match &head {
            Ok(head) => self.write(head, item.clone()).await,
            Err(refused) => Err(refused.clone()),
        };
        if let (Ok(head), Err(refused)) = (&head, &written) {
            let view = self.0.guard.view();
            if let Some(owner) = next_hop(refused, head.stamp.hops, &view)
                && let Some(response) = self.forward_write(head, &view, &owner, item).await
            {
                self.0.metrics.count(op, "forwarded");
                return response;
            }
        }
        self.0.metrics.count(
            op,
            written
                .as_ref()
                .map_or_else(|refused| refused.cause.kind(), |_| "ok"),
        );
        write_response(self.0.epoch().0, written)
    }

    /// `None`: the request certainly did not reach the owner.
    async fn forward_write(
        &self,
        head: &Head,
        view: &NodeView,
        owner: &NodeId,
        (key, value): Item,
    ) -> Option<pb::WriteResponse> {
        let (stamp, timeout_ms) = head.forwarded(view);
        let stamp = Some(stamp);
        let mut client = self.client(view, owner).ok()?;
        let answer = async {
            match value {
                Some(value) => {
                    client
                        .put(pb::PutRequest {
                            stamp,
                            key,
                            value,
                            timeout_ms,
                        })
                        .await
                }
                None => {
                    client
                        .delete(pb::DeleteRequest {
                            stamp,
                            key,
                            timeout_ms,
                        })
                        .await
                }
            }
        };
        // The owner answers by itself at the deadline; a little later nothing is to be expected.
        let patience = head.deadline + Duration::from_secs(1);
        let unknown = |text: String| {
            let refused = Cause::Unknown(format!("passed on to {owner}: {text}")).at(view.epoch());
            Some(write_response(view.epoch().0, Err(refused)))
        };
        match tokio::time::timeout_at(patience, answer).await {
            Ok(Ok(response)) => Some(response.into_inner()),
            Ok(Err(status)) if never_sent(&status) => None,
            Ok(Err(status)) => unknown(explain(&status)),
            Err(_) => unknown("no answer".to_owned()),
        }
    }

    async fn read(&self, head: &Head, key: &[u8], mode: pb::ReadMode) -> Result<Answer, Refused> {
        let epoch = self.0.epoch();
        limits::check_key(key).map_err(|error| Cause::from(error).at(epoch))?;
        let place = self.place(key)?;
        let stamp = wire::stamp(&head.stamp);
        match mode {
            pb::ReadMode::Exact => self.0.read_exact(place, stamp, key, head.deadline).await,
            pb::ReadMode::Any => self.0.read_any(place, stamp, key).await,
            pb::ReadMode::Unspecified => {
                let message = "the request says neither exact nor any".to_owned();
                Err(Cause::Invalid {
                    name: "NoMode".to_owned(),
                    message,
                }
                .at(epoch))
            }
        }
    }

    async fn forward_read(
        &self,
        head: &Head,
        view: &NodeView,
        owner: &NodeId,
        mut request: pb::GetRequest,
    ) -> Option<pb::GetResponse> {
        let (stamp, timeout_ms) = head.forwarded(view);
        request.stamp = Some(stamp);
        request.timeout_ms = timeout_ms;
        let mut client = self.client(view, owner).ok()?;
        // A read that broke on the way is answered with the refusal: asking again is harmless.
        let answer = tokio::time::timeout_at(head.deadline, client.get(request)).await;
        Some(answer.ok()?.ok()?.into_inner())
    }

    /// The writes of a batch that belong to one slot.
    async fn write_slot(
        &self,
        head: &Head,
        place: Place,
        items: Vec<(usize, Item)>,
    ) -> Vec<(usize, Result<Position, Refused>)> {
        let (ordinals, items): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        match self
            .0
            .write(place, wire::stamp(&head.stamp), items, head.deadline)
            .await
        {
            Ok(results) => ordinals.into_iter().zip(results).collect(),
            Err(refused) => ordinals
                .into_iter()
                .map(|ordinal| (ordinal, Err(refused.clone())))
                .collect(),
        }
    }
}

fn write_result(written: Result<Position, Refused>) -> pb::WriteResult {
    let result = match written {
        Ok(version) => pb::write_result::Result::Written(version.into()),
        Err(refused) => pb::write_result::Result::Refused(refused.into()),
    };
    pb::WriteResult {
        result: Some(result),
    }
}

fn write_response(epoch: u64, written: Result<Position, Refused>) -> pb::WriteResponse {
    pb::WriteResponse {
        epoch,
        result: Some(write_result(written)),
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn get(
        &self,
        request: Request<pb::GetRequest>,
    ) -> Result<Response<pb::GetResponse>, Status> {
        let request = request.into_inner();
        let mode = request.mode();
        let head = Head::new(&self.0, request.stamp.clone(), request.timeout_ms);
        let found = match &head {
            Ok(head) => self.read(head, &request.key, mode).await,
            Err(refused) => Err(refused.clone()),
        };
        if let (Ok(head), Err(refused)) = (&head, &found) {
            let view = self.0.guard.view();
            if let Some(owner) = next_hop(refused, head.stamp.hops, &view)
                && let Some(response) = self.forward_read(head, &view, &owner, request).await
            {
                self.0.metrics.count("get", "forwarded");
                return Ok(Response::new(response));
            }
        }
        let kind = found
            .as_ref()
            .map_or_else(|refused| refused.cause.kind(), |_| "ok");
        self.0.metrics.count("get", kind);
        let result = match found {
            Ok(Answer { record, watermark }) => pb::get_response::Result::Found(pb::Found {
                version: record.as_ref().map(|record| record.version.into()),
                value: record.and_then(|record| record.value),
                watermark: watermark.map(Into::into),
            }),
            Err(refused) => pb::get_response::Result::Refused(refused.into()),
        };
        let epoch = self.0.epoch().0;
        Ok(Response::new(pb::GetResponse {
            epoch,
            result: Some(result),
        }))
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        let pb::PutRequest {
            stamp,
            key,
            value,
            timeout_ms,
        } = request.into_inner();
        let head = Head::new(&self.0, stamp, timeout_ms);
        Ok(Response::new(
            self.write_or_forward("put", head, (key, Some(value))).await,
        ))
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        let pb::DeleteRequest {
            stamp,
            key,
            timeout_ms,
        } = request.into_inner();
        let head = Head::new(&self.0, stamp, timeout_ms);
        Ok(Response::new(
            self.write_or_forward("delete", head, (key, None)).await,
        ))
    }

    async fn batch(
        &self,
        request: Request<pb::BatchRequest>,
    ) -> Result<Response<pb::BatchResponse>, Status> {
        let pb::BatchRequest {
            stamp,
            items,
            timeout_ms,
        } = request.into_inner();
        let epoch = self.0.epoch();
        let head = Head::new(&self.0, stamp, timeout_ms).and_then(|head| {
            let sizes = items.iter().map(|item| (&item.key, item.value.as_ref()));
            limits::check_batch(sizes).map_err(|error| Cause::from(error).at(epoch))?;
            Ok(head)
        });
        let mut results = vec![None; items.len()];
        match head {
            Err(refused) => results.fill(Some(Err(refused))),
            Ok(head) => {
                let mut by_slot: std::collections::BTreeMap<Place, Vec<(usize, Item)>> =
                    std::collections::BTreeMap::new();
                for (ordinal, item) in items.into_iter().enumerate() {
                    let checked = limits::check_write(&item.key, item.value.as_deref())
                        .map_err(|error| Cause::from(error).at(epoch));
                    match checked.and_then(|()| self.place(&item.key)) {
                        Ok(place) => {
                            by_slot
                                .entry(place)
                                .or_default()
                                .push((ordinal, (item.key, item.value)));
                        }
                        Err(refused) => results[ordinal] = Some(Err(refused)),
                    }
                }
                let head = &head;
                let written = join_all(
                    by_slot
                        .into_iter()
                        .map(|(place, items)| self.write_slot(head, place, items)),
                );
                for (ordinal, result) in written.await.into_iter().flatten() {
                    results[ordinal] = Some(result);
                }
            }
        }
        let results = results.into_iter().map(|result| {
            let result = result.expect("every item was refused or written");
            let kind = result
                .as_ref()
                .map_or_else(|refused| refused.cause.kind(), |_| "ok");
            self.0.metrics.count("batch", kind);
            write_result(result)
        });
        let results = results.collect();
        Ok(Response::new(pb::BatchResponse {
            epoch: self.0.epoch().0,
            results,
        }))
    }
}
