//! Operators' calls, through whichever server answers.
//!
//! Requests and answers of the admin service are used as they are on the wire
//! ([`annulus_proto::v1`]); what is added is who is asked, for how long, and what a failure
//! means:
//!
//! ```text
//!   endpoints at random, those that failed lately last
//!     no answer within the patience   -> the next one is asked too (the first may still answer)
//!     not reached, no leader, broken  -> the next one at once; all failed: pause, again
//!     refused, invalid                -> final
//! ```
//!
//! A mutation carries one request id through all of this: the same id gets the same answer, so
//! asking twice does it once (EXACTLY-ONCE).

use std::{
    collections::BTreeMap,
    fmt::Display,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use annulus_proto::{
    MAX_MESSAGE_BYTES,
    snapshot::{DecodeError, Expect, verify_and_decode},
    v1,
};
use annulus_ring::{ClusterId, Endpoint, Epoch, NodeId, RingName, Snapshot};
use bytes::Bytes;
use tonic::{Request, Response, Status, transport::Channel};

use crate::{
    chance::Chance,
    config::parse_endpoint,
    dial::{Dial, DialError},
    endpoints::Endpoints,
    error::ConfigError,
};

mod error;
mod failover;
mod plans;

pub use error::AdminError;

use failover::Manner;

type Wire = v1::admin_client::AdminClient<Channel>;

/// Every setting of an [`AdminClient`].
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Servers of the control plane, in any order.
    pub endpoints: Vec<Endpoint>,
    /// How connections are made.
    pub dial: Dial,
    /// Longest time of one call with all its tries. Default 10 s. Raise it to sit out longer
    /// elections; the price is how long a call against a dead cluster takes to say so.
    pub deadline: Duration,
    /// Longest time of one try at one server. Default 5 s: the server waits for an election and
    /// for the log by itself.
    pub try_timeout: Duration,
    /// How long one server may take before the next one is asked as well. Default 500 ms.
    /// Lower it to pass a black hole faster, at the price of more doubled calls.
    pub patience: Duration,
    /// Ceilings of the pauses after every server failed: first and largest. Default 100 ms
    /// and 1 s.
    pub pause: (Duration, Duration),
    /// Seed of request ids, jitter and order; only for simulations that run twice.
    pub seed: Option<u64>,
}

impl AdminConfig {
    /// Settings as the fields' docs say.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            dial: Dial::default(),
            deadline: Duration::from_secs(10),
            try_timeout: Duration::from_secs(5),
            patience: Duration::from_millis(500),
            pause: (Duration::from_millis(100), Duration::from_secs(1)),
            seed: None,
        }
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`ConfigError`], which names the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoints);
        }
        for endpoint in &self.endpoints {
            self.dial.check(endpoint)?;
        }
        if self.deadline.is_zero() || self.try_timeout.is_zero() {
            let why = "zero leaves no time for an answer";
            return Err(ConfigError::Setting {
                setting: "deadline and try_timeout",
                why,
            });
        }
        if self.pause.0.is_zero() {
            let why = "zero would be a busy loop while servers are down";
            return Err(ConfigError::Setting {
                setting: "pause",
                why,
            });
        }
        Ok(())
    }
}

/// How fresh an answer has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Read {
    /// Through the leader: no older than the call.
    #[default]
    Linearizable,
    /// The answering server's own state, whatever its age; the answer says how old.
    Local,
}

impl From<Read> for i32 {
    fn from(read: Read) -> Self {
        match read {
            Read::Linearizable => v1::ReadMode::Linearizable.into(),
            Read::Local => v1::ReadMode::Local.into(),
        }
    }
}

/// Calls the admin service. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct AdminClient {
    config: AdminConfig,
    endpoints: Endpoints,
    channels: Arc<Mutex<BTreeMap<Endpoint, Channel>>>,
    chance: Arc<Chance>,
}

impl AdminClient {
    /// A client of these servers, as `host:port` (with or without `http://`), with the default
    /// settings. Contacts nobody yet.
    ///
    /// # Errors
    /// [`ConfigError`], which names what is wrong.
    pub fn new(endpoints: impl IntoIterator<Item = impl Display>) -> Result<Self, ConfigError> {
        let parsed = endpoints
            .into_iter()
            .map(|text| parse_endpoint(&text.to_string()));
        Self::start(AdminConfig::new(parsed.collect::<Result<_, _>>()?))
    }

    /// A client from settings. Contacts nobody yet.
    ///
    /// # Errors
    /// [`ConfigError`] from [`AdminConfig::validate`].
    pub fn start(config: AdminConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let chance = Arc::new(Chance::new(config.seed));
        let endpoints = Endpoints::new(config.endpoints.clone(), Arc::clone(&chance));
        Ok(Self {
            config,
            endpoints,
            channels: Arc::default(),
            chance,
        })
    }

    /// The same client with another longest time of one call.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.config.deadline = deadline;
        self
    }

    /// A new request id, for callers that want to repeat a mutation themselves.
    #[must_use]
    pub fn request_id(&self) -> Bytes {
        Bytes::copy_from_slice(&self.chance.id())
    }

    /// Founds the control plane: the servers become the voters of one raft group. Asked of one
    /// server only and never repeated by itself, for it has no request id.
    ///
    /// # Errors
    /// [`AdminError`]; after [`AdminError::Unknown`] look at the status before trying again.
    pub async fn init_cluster(
        &self,
        servers: impl IntoIterator<Item = (u64, Endpoint)>,
    ) -> Result<ClusterId, AdminError> {
        let servers = servers
            .into_iter()
            .map(|(id, endpoint)| v1::init_cluster_request::Server {
                id,
                endpoint: endpoint.to_string(),
            });
        let request = v1::InitClusterRequest {
            servers: servers.collect(),
        };
        let (endpoint, answer) = self.ask(Manner::Once, request, wire::init_cluster).await?;
        annulus_proto::convert::cluster_id("cluster_id", &answer.cluster_id).map_err(|error| {
            AdminError::Broken {
                endpoint,
                what: error.to_string(),
            }
        })
    }

    /// Servers, leader, rings.
    ///
    /// # Errors
    /// [`AdminError::Unavailable`] when no server answers; a linearizable read needs a majority.
    pub async fn cluster_status(&self, read: Read) -> Result<v1::ClusterStatus, AdminError> {
        let request = v1::ClusterStatusRequest { mode: read.into() };
        self.read(request, wire::get_cluster_status).await
    }

    /// Every ring.
    ///
    /// # Errors
    /// As [`Self::cluster_status`].
    pub async fn rings(&self, read: Read) -> Result<v1::ListRingsResponse, AdminError> {
        self.read(v1::ListRingsRequest { mode: read.into() }, wire::list_rings)
            .await
    }

    /// One ring with its nodes and changes.
    ///
    /// # Errors
    /// As [`Self::cluster_status`]; [`AdminError::Refused`] for an unknown ring.
    pub async fn ring(&self, ring: &RingName, read: Read) -> Result<v1::RingStatus, AdminError> {
        let request = v1::GetRingRequest {
            mode: read.into(),
            ring: ring.to_string(),
        };
        self.read(request, wire::get_ring).await
    }

    /// The kept epochs of a ring with their checksums, oldest first.
    ///
    /// # Errors
    /// As [`Self::ring`].
    pub async fn epochs(
        &self,
        ring: &RingName,
        read: Read,
    ) -> Result<v1::ListEpochsResponse, AdminError> {
        let request = v1::ListEpochsRequest {
            ring: ring.to_string(),
            mode: read.into(),
        };
        self.read(request, wire::list_epochs).await
    }

    /// A kept snapshot, verified as a watcher would; `None` for the newest.
    ///
    /// # Errors
    /// As [`Self::ring`]; [`AdminError::Broken`] when its bytes are not what they say.
    pub async fn snapshot(
        &self,
        ring: &RingName,
        epoch: Option<Epoch>,
        read: Read,
    ) -> Result<Snapshot, AdminError> {
        let request = v1::GetSnapshotRequest {
            ring: ring.to_string(),
            mode: read.into(),
            epoch: epoch.map_or(0, |epoch| epoch.0),
        };
        let (endpoint, answer) = self.ask(Manner::Read, request, wire::get_snapshot).await?;
        let broken = |what: String| AdminError::Broken {
            endpoint: endpoint.clone(),
            what,
        };
        let bytes = answer
            .snapshot
            .ok_or_else(|| broken("it has no snapshot".to_owned()))?;
        let expect = Expect {
            cluster_id: None,
            ring,
            held: None,
        };
        verify_and_decode(&bytes, expect).map_err(|error: DecodeError| broken(error.to_string()))
    }

    /// Creates a ring.
    ///
    /// # Errors
    /// [`AdminError`], like every mutation: [`AdminError::Refused`] and [`AdminError::Invalid`]
    /// changed nothing, nor did [`AdminError::Unavailable`]; [`AdminError::Unknown`] may have.
    pub async fn create_ring(
        &self,
        mut request: v1::CreateRingRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::create_ring).await
    }

    /// Founds a ring on nodes whose join was collected.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn found_ring(
        &self,
        mut request: v1::FoundRingRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::found_ring).await
    }

    /// Joins a node.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn join_node(
        &self,
        mut request: v1::JoinNodeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::join_node).await
    }

    /// Drains a node.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn drain_node(
        &self,
        mut request: v1::DrainNodeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::drain_node).await
    }

    /// Replaces a member by a registered node.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn replace_node(
        &self,
        mut request: v1::ReplaceNodeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::replace_node).await
    }

    /// Takes a dead member out.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn remove_node(
        &self,
        mut request: v1::RemoveNodeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::remove_node).await
    }

    /// Changes a member's weight.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn set_weight(
        &self,
        mut request: v1::SetWeightRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::set_weight).await
    }

    /// Moves a member to another zone.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn set_zone(
        &self,
        mut request: v1::SetZoneRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::set_zone).await
    }

    /// Lets every member of a zone leave.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn drain_zone(
        &self,
        mut request: v1::DrainZoneRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::drain_zone).await
    }

    /// Gives a ring another number of replicas, or other quorums.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn set_replication(
        &self,
        mut request: v1::SetReplicationRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::set_replication).await
    }

    /// Gives a ring another hash or another kind of layout.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn convert_ring(
        &self,
        mut request: v1::ConvertRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::convert_ring).await
    }

    /// Pins ranges to a member.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn pin_ranges(
        &self,
        mut request: v1::PinRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::pin_ranges).await
    }

    /// Lifts pins to a member.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn unpin_ranges(
        &self,
        mut request: v1::UnpinRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::unpin_ranges).await
    }

    /// Announces that a member will be stopped for a while, or that it is back.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn maintain_node(
        &self,
        mut request: v1::MaintainRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::maintain_node).await
    }

    /// Which members can be stopped together; no nodes: of all.
    ///
    /// # Errors
    /// As [`Self::ring`].
    pub async fn ok_to_restart(
        &self,
        ring: &RingName,
        nodes: &[NodeId],
    ) -> Result<v1::OkToRestartResponse, AdminError> {
        let request = v1::OkToRestartRequest {
            ring: ring.to_string(),
            nodes: nodes.iter().map(ToString::to_string).collect(),
        };
        self.read(request, wire::ok_to_restart).await
    }

    /// Aborts a change.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn abort_change(
        &self,
        mut request: v1::AbortChangeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::abort_change).await
    }

    /// Ends the soak of a switched transition.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn settle(
        &self,
        mut request: v1::SettleRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::settle_transition).await
    }

    /// Stops all movement on a ring where it stands, or lets it go on.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn pause_ring(
        &self,
        mut request: v1::BrakeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::pause_ring).await
    }

    /// Forbids every deletion on a ring, or allows it again.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn hold_ring(
        &self,
        mut request: v1::BrakeRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::hold_ring).await
    }

    /// Lets members that stay down be removed by themselves, or no longer.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn set_auto_remove(
        &self,
        mut request: v1::AutoRemoveRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::set_auto_remove).await
    }

    /// Keeps an id that the caller drew before; draws one otherwise.
    fn draw(&self, request_id: &mut Bytes) {
        if request_id.is_empty() {
            *request_id = self.request_id();
        }
    }

    async fn read<Q, A, F, Fut>(&self, request: Q, call: F) -> Result<A, AdminError>
    where
        Q: Clone,
        F: Fn(Wire, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        Ok(self.ask(Manner::Read, request, call).await?.1)
    }

    async fn mutate<Q, A, F, Fut>(&self, request: Q, call: F) -> Result<A, AdminError>
    where
        Q: Clone,
        F: Fn(Wire, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        Ok(self.ask(Manner::Mutation, request, call).await?.1)
    }

    fn channels(&self) -> MutexGuard<'_, BTreeMap<Endpoint, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wire(&self, endpoint: &Endpoint) -> Result<Wire, DialError> {
        let kept = self.channels().get(endpoint).cloned();
        let channel = match kept {
            Some(channel) => channel,
            None => {
                let channel = self.config.dial.channel(endpoint)?;
                self.channels().insert(endpoint.clone(), channel.clone());
                channel
            }
        };
        Ok(Wire::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }
}

/// The generated calls, each owning its connection, so that several can be under way at once.
mod wire {
    use super::{Request, Response, Status, Wire, v1};

    macro_rules! calls {
        ($($name:ident: $request:ident -> $answer:ident),* $(,)?) => {
            $(pub(super) async fn $name(
                mut wire: Wire,
                request: Request<v1::$request>,
            ) -> Result<Response<v1::$answer>, Status> {
                wire.$name(request).await
            })*
        };
    }

    calls! {
        init_cluster: InitClusterRequest -> InitClusterResponse,
        get_cluster_status: ClusterStatusRequest -> ClusterStatus,
        create_ring: CreateRingRequest -> MutationResponse,
        found_ring: FoundRingRequest -> MutationResponse,
        list_rings: ListRingsRequest -> ListRingsResponse,
        get_ring: GetRingRequest -> RingStatus,
        join_node: JoinNodeRequest -> MutationResponse,
        drain_node: DrainNodeRequest -> MutationResponse,
        replace_node: ReplaceNodeRequest -> MutationResponse,
        remove_node: RemoveNodeRequest -> MutationResponse,
        set_weight: SetWeightRequest -> MutationResponse,
        set_zone: SetZoneRequest -> MutationResponse,
        drain_zone: DrainZoneRequest -> MutationResponse,
        set_replication: SetReplicationRequest -> MutationResponse,
        convert_ring: ConvertRequest -> MutationResponse,
        pin_ranges: PinRequest -> MutationResponse,
        unpin_ranges: UnpinRequest -> MutationResponse,
        maintain_node: MaintainRequest -> MutationResponse,
        ok_to_restart: OkToRestartRequest -> OkToRestartResponse,
        abort_change: AbortChangeRequest -> MutationResponse,
        settle_transition: SettleRequest -> MutationResponse,
        pause_ring: BrakeRequest -> MutationResponse,
        hold_ring: BrakeRequest -> MutationResponse,
        set_auto_remove: AutoRemoveRequest -> MutationResponse,
        make_plan: MakePlanRequest -> MutationResponse,
        list_plans: ListPlansRequest -> ListPlansResponse,
        get_plan: GetPlanRequest -> GetPlanResponse,
        commit_plan: PlanRequest -> MutationResponse,
        drop_plan: PlanRequest -> MutationResponse,
        explain_range: ExplainRangeRequest -> ExplainRangeResponse,
        explain_change: ExplainChangeRequest -> ExplainChangeResponse,
        why_kept: WhyKeptRequest -> WhyKeptResponse,
        get_snapshot: GetSnapshotRequest -> GetSnapshotResponse,
        list_epochs: ListEpochsRequest -> ListEpochsResponse,
    }
}
