//! What one server answers the others: the gRPC service `Raft`.

use std::time::Duration;

use annulus_proto::v1;
use annulus_proto::v1::raft_server::Raft as Service;
use annulus_ring::ClusterId;
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tonic::{Request, Response, Status, Streaming};

use super::log_snapshot;
use super::network::{CLUSTER, TO};
use super::node::Node;
use super::propose::{self, Attempt};
use super::types::Snapshot;
use super::{ProposeError, wire};

/// How long a peer may be silent within a log snapshot.
const CHUNK_PATIENCE: Duration = Duration::from_secs(15);
/// The longest a passed-on request waits here; its own deadline is usually shorter.
const PROPOSE_PATIENCE: Duration = Duration::from_secs(10);
/// Metadata of a refusal that changed nothing: the asker may try again.
pub(super) const NOT_APPENDED: &str = "annulus-not-appended";

/// Serves the other servers. Made by [`Node::service`].
#[derive(Clone, Debug)]
pub struct RaftService {
    node: Node,
}

pub(super) fn sha256(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&Sha256::digest(bytes))
}

impl RaftService {
    pub(super) fn new(node: Node) -> Self {
        Self { node }
    }

    /// Refuses what was meant for another server, or comes from another cluster. A server that lost
    /// its directory has no cluster and no history: it must not vote or acknowledge under its old
    /// id, or what only it and others had acknowledged would be lost.
    fn take<T>(&self, request: Request<T>) -> Result<T, Status> {
        let asked = request
            .metadata()
            .get(CLUSTER)
            .and_then(|name| u128::from_str_radix(name.to_str().ok()?, 16).ok())
            .map(ClusterId);
        let message = self.addressed(request)?;
        match (asked, self.node.log().name().get()) {
            (Some(asked), Some(own)) if asked != own => Err(Status::failed_precondition(format!(
                "this server is of cluster {:032x}, the call is of cluster {:032x}",
                own.0, asked.0
            ))),
            (Some(asked), None) if self.node.log().is_pristine() => {
                self.node.lost_directory(asked);
                Err(Status::failed_precondition(format!(
                    "server {} has an empty directory that belongs to no cluster; it cannot come \
                     back into cluster {:032x} under its old id",
                    self.node.server_id(),
                    asked.0
                )))
            }
            _ => Ok(message),
        }
    }

    /// Refuses what was meant for another server.
    fn addressed<T>(&self, request: Request<T>) -> Result<T, Status> {
        let here = self.node.server_id();
        let to = request
            .metadata()
            .get(TO)
            .and_then(|to| to.to_str().ok()?.parse::<u64>().ok());
        match to {
            Some(to) if to == here => Ok(request.into_inner()),
            Some(to) => Err(Status::failed_precondition(format!(
                "this is server {here}, the call is for server {to}"
            ))),
            None => Err(Status::invalid_argument(format!("{TO} is missing"))),
        }
    }
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this server's raft has ended: {error}"))
}

#[tonic::async_trait]
impl Service for RaftService {
    async fn append(
        &self,
        request: Request<v1::AppendRequest>,
    ) -> Result<Response<v1::AppendResponse>, Status> {
        let request = wire::append_in(self.take(request)?)?;
        let response = self
            .node
            .raft()
            .append_entries(request)
            .await
            .map_err(stopped)?;
        let answer = wire::appended_out(response);
        if answer.outcome() != v1::append_response::Outcome::HigherVote {
            self.node.heard_leader();
        }
        Ok(Response::new(answer))
    }

    async fn vote(
        &self,
        request: Request<v1::VoteRequest>,
    ) -> Result<Response<v1::VoteResponse>, Status> {
        let request = wire::ask_in(self.take(request)?)?;
        let response = self.node.raft().vote(request).await.map_err(stopped)?;
        Ok(Response::new(wire::voted_out(response)))
    }

    async fn pre_vote(
        &self,
        request: Request<v1::VoteRequest>,
    ) -> Result<Response<v1::VoteResponse>, Status> {
        let request = wire::ask_in(self.take(request)?)?;
        let response = self.node.raft().pre_vote(request).await.map_err(stopped)?;
        Ok(Response::new(wire::voted_out(response)))
    }

    /// Gathers the chunks within the size that the first one claims, and no claim is believed
    /// beyond the limit; a peer that sends more, out of order or nothing is cut off.
    async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::SnapshotChunk>>,
    ) -> Result<Response<v1::InstallSnapshotResponse>, Status> {
        let mut stream = self.take(request)?;
        let (head, bytes) = gather(&mut stream).await?;
        let vote = wire::vote_in(head.vote)?;
        let meta = serde_json::from_slice(&head.meta)
            .map_err(|error| Status::invalid_argument(format!("meta does not read: {error}")))?;
        let snapshot = Snapshot {
            meta,
            snapshot: bytes,
        };
        let raft = self.node.raft();
        let response = raft
            .install_full_snapshot(vote, snapshot)
            .await
            .map_err(stopped)?;
        self.node.heard_leader();
        Ok(Response::new(v1::InstallSnapshotResponse {
            vote: Some(wire::vote_out(response.vote)),
        }))
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        let request = wire::transfer_in(self.take(request)?)?;
        let answer = self
            .node
            .raft()
            .handle_transfer_leader(request)
            .await
            .map_err(stopped)?;
        answer.map_err(|error| Status::aborted(error.to_string()))?;
        Ok(Response::new(v1::TransferLeaderResponse {}))
    }

    /// Decides here or not at all: a request is passed on once.
    async fn propose(
        &self,
        request: Request<v1::ProposeRequest>,
    ) -> Result<Response<v1::ProposeResponse>, Status> {
        let request = self.take(request)?.request;
        let request = serde_json::from_slice(&request)
            .map_err(|error| Status::invalid_argument(format!("request does not read: {error}")))?;
        let until = tokio::time::Instant::now() + PROPOSE_PATIENCE;
        match propose::here(&self.node, &request, until).await {
            Attempt::Done(outcome) => {
                let outcome = serde_json::to_vec(&outcome)
                    .map_err(|error| Status::internal(error.to_string()))?;
                Ok(Response::new(v1::ProposeResponse {
                    outcome: outcome.into(),
                }))
            }
            Attempt::NotAppended(reason) => Err(not_appended(Status::unavailable(reason))),
            Attempt::Perhaps(reason) => Err(Status::unknown(reason)),
            Attempt::Refused(error @ ProposeError::TooLarge { .. }) => {
                Err(not_appended(Status::out_of_range(error.to_string())))
            }
            Attempt::Refused(error) => Err(not_appended(Status::unavailable(error.to_string()))),
        }
    }

    async fn enlist(
        &self,
        request: Request<v1::EnlistRequest>,
    ) -> Result<Response<v1::EnlistResponse>, Status> {
        let request = self.addressed(request)?;
        let id = <[u8; 16]>::try_from(request.cluster_id.as_ref())
            .map_err(|_| Status::invalid_argument("cluster_id is not of 16 bytes"))?;
        let id = ClusterId(u128::from_be_bytes(id));
        self.node
            .enlist(id)
            .await
            .map_err(Status::failed_precondition)?;
        Ok(Response::new(v1::EnlistResponse {}))
    }

    async fn read_index(
        &self,
        request: Request<v1::ReadIndexRequest>,
    ) -> Result<Response<v1::ReadIndexResponse>, Status> {
        self.take(request)?;
        let read = propose::read_index_here(&self.node).await;
        let read = read.map_err(Status::unavailable)?;
        Ok(Response::new(v1::ReadIndexResponse {
            read_log_id: Some(wire::log_id_out(read)),
        }))
    }
}

fn not_appended(mut status: Status) -> Status {
    status.metadata_mut().insert(
        NOT_APPENDED,
        tonic::metadata::MetadataValue::from_static("1"),
    );
    status
}

async fn gather(
    stream: &mut Streaming<v1::SnapshotChunk>,
) -> Result<(v1::SnapshotMeta, Bytes), Status> {
    let mut head: Option<v1::SnapshotMeta> = None;
    let mut bytes = BytesMut::new();
    loop {
        let next = tokio::time::timeout(CHUNK_PATIENCE, stream.message()).await;
        let next = next.map_err(|_| {
            Status::deadline_exceeded(format!(
                "no chunk for {} s after {} bytes",
                CHUNK_PATIENCE.as_secs(),
                bytes.len()
            ))
        })?;
        let Some(chunk) = next? else {
            return Err(Status::data_loss(format!(
                "the stream ended after {} bytes",
                bytes.len()
            )));
        };
        if head.is_none() {
            let first = chunk
                .meta
                .ok_or_else(|| Status::invalid_argument("meta is missing"))?;
            if first.total_bytes > log_snapshot::MAX_BYTES {
                return Err(Status::resource_exhausted(format!(
                    "a log snapshot of {} bytes is over the limit of {}",
                    first.total_bytes,
                    log_snapshot::MAX_BYTES
                )));
            }
            head = Some(first);
        }
        let claimed = head.as_ref().map_or(0, |head| head.total_bytes);
        if chunk.offset != bytes.len() as u64 {
            return Err(Status::invalid_argument(format!(
                "chunk at {}, expected {}",
                chunk.offset,
                bytes.len()
            )));
        }
        if chunk.offset.saturating_add(chunk.data.len() as u64) > claimed {
            return Err(Status::resource_exhausted(format!(
                "more than the {claimed} bytes that were announced"
            )));
        }
        if chunk.data.is_empty() && !chunk.last {
            return Err(Status::invalid_argument("an empty chunk"));
        }
        bytes.extend_from_slice(&chunk.data);
        if chunk.last {
            break;
        }
    }
    let head = head.ok_or_else(|| Status::invalid_argument("meta is missing"))?;
    if bytes.len() as u64 != head.total_bytes || sha256(&bytes) != head.sha256 {
        return Err(Status::data_loss(format!(
            "{} bytes do not hash to what was announced for {}",
            bytes.len(),
            head.total_bytes
        )));
    }
    Ok((head, bytes.freeze()))
}
