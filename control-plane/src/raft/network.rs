//! How raft reaches the other servers: our prost messages over tonic, each call with a deadline.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annulus_proto::v1;
use annulus_proto::v1::raft_client::RaftClient;
use bytes::Bytes;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::dial::{Dial, DialError};
use super::log_store::Name;
use super::types::{Snapshot, TypeConfig, Vote};
use super::wire;

/// The metadata field that says whom a call is for, so that a server that took over another's
/// address does not answer in its name.
pub(super) const TO: &str = "annulus-to";
/// The metadata field that says of which cluster the sender is, once it knows; 32 hex digits.
pub(super) const CLUSTER: &str = "annulus-cluster";
/// Bytes of a log snapshot in one message.
const CHUNK_BYTES: usize = 256 << 10;
/// An append with entries may wait for a slow disk; the heartbeat's own deadline is shorter.
const APPEND_TIMEOUT: Duration = Duration::from_secs(5);
/// A log snapshot must move at least this fast, after a grace.
const SNAPSHOT_BYTES_PER_SECOND: u64 = 256 << 10;
const SNAPSHOT_GRACE: Duration = Duration::from_secs(30);

/// What a connection is for: bulk must not stand in the way of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Beat,
    Log,
    Snapshot,
    Request,
}

/// Channels to the other servers, kept: a vote must not wait for a handshake each time.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    dial: Dial,
    name: Name,
    channels: Arc<Mutex<BTreeMap<(String, Lane), Channel>>>,
}

impl Peers {
    pub(super) fn new(dial: Dial, name: Name) -> Self {
        Self {
            dial,
            name,
            channels: Arc::default(),
        }
    }

    /// A call for server `to`, with its deadline on the wire.
    pub(super) fn addressed<T>(&self, to: u64, deadline: Duration, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(TO, to.into());
        if let Some(name) = self.name.get() {
            let name = format!("{:032x}", name.0).parse();
            metadata.insert(CLUSTER, name.expect("hex digits are ASCII"));
        }
        request.set_timeout(deadline);
        request
    }

    pub(super) fn client(
        &self,
        endpoint: &str,
        lane: Lane,
    ) -> Result<RaftClient<Channel>, DialError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (endpoint.to_owned(), lane);
        let channel = match channels.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.dial.dial(endpoint)?;
                channels.insert(key, channel.clone());
                channel
            }
        };
        Ok(RaftClient::new(channel)
            .max_decoding_message_size(wire::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(wire::MAX_MESSAGE_BYTES))
    }
}

/// Makes clients for openraft.
pub(super) struct Network {
    pub(super) server_id: u64,
    pub(super) peers: Peers,
}

/// One lane to one server.
pub(super) struct Peer {
    server_id: u64,
    target: u64,
    endpoint: String,
    lane: Lane,
    peers: Peers,
}

impl Network {
    fn peer(&self, target: u64, node: &BasicNode, lane: Lane) -> Peer {
        Peer {
            server_id: self.server_id,
            target,
            endpoint: node.addr.clone(),
            lane,
            peers: self.peers.clone(),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        self.peer(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        self.peer(target, node, Lane::Beat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        self.peer(target, node, Lane::Snapshot)
    }
}

type RpcError = RPCError<TypeConfig>;

fn failed(status: &Status) -> RpcError {
    match status.code() {
        // Backs off; anything else is tried again at once.
        tonic::Code::Unavailable | tonic::Code::FailedPrecondition => {
            RPCError::Unreachable(Unreachable::from_string(status))
        }
        _ => RPCError::Network(NetworkError::from_string(status)),
    }
}

impl Peer {
    fn client(&self, lane: Lane) -> Result<RaftClient<Channel>, RpcError> {
        let client = self.peers.client(&self.endpoint, lane);
        client.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))
    }

    /// Runs a call under its deadline.
    async fn call<T>(
        &self,
        action: RPCTypes,
        deadline: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RpcError> {
        match tokio::time::timeout(deadline, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(failed(&status)),
            Err(_elapsed) => Err(RPCError::Timeout(Timeout {
                action,
                id: self.server_id,
                target: self.target,
                timeout: deadline,
            })),
        }
    }

    async fn ask(
        &self,
        request: VoteRequest<TypeConfig>,
        option: &RPCOption,
        pre_vote: bool,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let mut client = self.client(Lane::Beat)?;
        let deadline = option.soft_ttl();
        let request = self
            .peers
            .addressed(self.target, deadline, wire::ask_out(&request));
        let call = async move {
            if pre_vote {
                client.pre_vote(request).await
            } else {
                client.vote(request).await
            }
        };
        let response = self.call(RPCTypes::Vote, deadline, call).await?;
        wire::voted_in(response).map_err(|error| RPCError::Network(NetworkError::new(&error)))
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let mut client = self.client(self.lane)?;
        let deadline = match self.lane {
            Lane::Beat => option.soft_ttl(),
            Lane::Log | Lane::Snapshot | Lane::Request => APPEND_TIMEOUT,
        };
        let message = wire::append_out(request)
            .map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        let request = self.peers.addressed(self.target, deadline, message);
        let call = async move { client.append(request).await };
        let response = self.call(RPCTypes::AppendEntries, deadline, call).await?;
        wire::appended_in(response).map_err(|error| RPCError::Network(NetworkError::new(&error)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask(request, &option, false).await
    }

    /// The trait's own grants blindly, which would make pre-vote no vote at all.
    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask(request, &option, true).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let mut client = self.client(Lane::Snapshot)?;
        let bytes = snapshot.snapshot;
        let total = bytes.len() as u64;
        let deadline = SNAPSHOT_GRACE + Duration::from_secs(total / SNAPSHOT_BYTES_PER_SECOND);
        let meta = serde_json::to_vec(&snapshot.meta)
            .map_err(|error| NetworkError::<TypeConfig>::new(&error))?;
        let head = v1::SnapshotMeta {
            vote: Some(wire::vote_out(vote)),
            meta: meta.into(),
            total_bytes: total,
            sha256: super::service::sha256(&bytes),
        };
        let stream = futures::stream::iter(chunks(head, bytes));
        let request = self.peers.addressed(self.target, deadline, stream);
        let call = async move { client.install_snapshot(request).await };
        let sending = self.call(RPCTypes::InstallSnapshot, deadline, call);
        let response = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            response = sending => response?,
        };
        let vote = wire::vote_in(response.vote)
            .map_err(|error| NetworkError::<TypeConfig>::new(&error))?;
        Ok(SnapshotResponse::new(vote))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let mut client = self.client(Lane::Beat)?;
        let deadline = option.soft_ttl();
        let request = self
            .peers
            .addressed(self.target, deadline, wire::transfer_out(&request));
        let call = async move { client.transfer_leader(request).await };
        self.call(RPCTypes::TransferLeader, deadline, call).await?;
        Ok(Ok(()))
    }
}

/// The first message carries the head; the last one says so. At least one.
fn chunks(head: v1::SnapshotMeta, bytes: Bytes) -> impl Iterator<Item = v1::SnapshotChunk> {
    let mut head = Some(head);
    let mut offset = 0;
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let end = bytes.len().min(offset + CHUNK_BYTES);
        done = end == bytes.len();
        let chunk = v1::SnapshotChunk {
            meta: head.take(),
            offset: offset as u64,
            data: bytes.slice(offset..end),
            last: done,
        };
        offset = end;
        Some(chunk)
    })
}
