//! Operators' calls: decode, check, propose or read, encode.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use annulus_membership::{
    Change, ChangeId, Command, MAX_MEMBERS, Outcome, Request as Proposal, RequestId, RingCommand,
    RingConfig, WarmUp, found_command, restart,
};
use annulus_proto::{
    convert::{self, EpochRef},
    v1,
};
use annulus_ring::{Epoch, HashName, NodeId, Replication, RingKind, RingName, UnknownKind};
use tonic::{Request, Response, Status};

use super::{
    changes,
    pass_on::{Call, Place, admin_of, explain, passed, probe, troubles},
    show,
    status::ApiError,
};
use crate::{
    context::Context,
    raft::{InitError, Standing},
};

/// The service; every server answers it.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) context: Arc<Context>,
}

type Answer<T> = Result<Response<T>, Status>;

impl Admin {
    /// Has a command about `ring` decided.
    pub(super) async fn change(
        &self,
        call: Call,
        request_id: &[u8],
        ring: &str,
        command: RingCommand,
    ) -> Result<v1::MutationResponse, ApiError> {
        let request_id = request_id_of(request_id)?;
        let ring = convert::ring_name("ring", ring)?;
        self.propose(call, request_id, ring, command).await
    }

    /// Has an operator's change decided.
    async fn asked(
        &self,
        call: Call,
        request_id: &[u8],
        ring: &str,
        change: Change,
        expected_layout_epoch: Option<u64>,
    ) -> Answer<v1::MutationResponse> {
        let expected = expected_layout_epoch;
        self.asked_by(call, request_id, ring, change, None, expected)
            .await
    }

    /// The same, in so many steps.
    async fn asked_by(
        &self,
        call: Call,
        request_id: &[u8],
        ring: &str,
        change: Change,
        steps: Option<u32>,
        expected_layout_epoch: Option<u64>,
    ) -> Answer<v1::MutationResponse> {
        let expected_layout_epoch = expected_layout_epoch.map(Epoch);
        let command = match steps {
            None => RingCommand::Change {
                change,
                expected_layout_epoch,
            },
            Some(steps) => RingCommand::ChangeBySteps {
                change,
                steps,
                expected_layout_epoch,
            },
        };
        let answer = self.change(call, request_id, ring, command).await?;
        Ok(Response::new(answer))
    }

    pub(super) async fn propose(
        &self,
        call: Call,
        request_id: RequestId,
        ring: RingName,
        command: RingCommand,
    ) -> Result<v1::MutationResponse, ApiError> {
        let kind = show::kind(&command);
        tracing::info!(%ring, %request_id, kind, "operator asks");
        let command = Command::Ring {
            ring: ring.clone(),
            command,
        };
        let proposal = Proposal {
            request_id: Some(request_id),
            command,
        };
        let outcome = self.context.node.propose(proposal, call.work()).await;
        self.context.metrics.proposed(kind, &outcome);
        match outcome {
            Ok(outcome) => answer(outcome),
            Err(error) => Err(explain(&self.context, error.into()).await),
        }
    }

    async fn found(
        &self,
        call: Call,
        request: v1::FoundRingRequest,
    ) -> Result<v1::MutationResponse, ApiError> {
        let request_id = request_id_of(&request.request_id)?;
        let ring = convert::ring_name("ring", &request.ring)?;
        if request.nodes.len() > MAX_MEMBERS {
            let found = request.nodes.len();
            return Err(ApiError::field(
                "nodes",
                format!("{found}, at most {MAX_MEMBERS}"),
            ));
        }
        let nodes: Vec<NodeId> = request
            .nodes
            .iter()
            .map(|node| convert::node_id("nodes", node))
            .collect::<Result<_, _>>()?;
        // The evidence is what the leader's links say, so the leader makes the command.
        let leader = match call.place(&self.context).await? {
            Place::Here => None,
            Place::Leader(leader) => Some(leader),
        };
        if let Some(leader) = leader {
            let mut client = admin_of(&self.context, &leader.endpoint)?;
            let answer = client.found_ring(call.pass_on(request));
            return passed(call, &leader, true, answer).await;
        }
        let made = self.context.node.shared().read(|state, _| {
            if let Some(outcome) = state.answer(request_id) {
                return Err(answer(outcome.clone()));
            }
            self.context
                .links
                .with_reports(&ring, |reports| {
                    let now_ms = self.context.clock.now_ms();
                    found_command(state, &ring, &nodes, reports, request.accept, now_ms)
                })
                .map_err(|rejection| Err(rejection.into()))
        });
        match made {
            Ok(command) => self.propose(call, request_id, ring, command).await,
            Err(answer) => answer,
        }
    }

    async fn init(
        &self,
        call: Call,
        request: v1::InitClusterRequest,
    ) -> Result<v1::InitClusterResponse, ApiError> {
        let mut servers = BTreeMap::new();
        for server in &request.servers {
            let endpoint = convert::endpoint("servers.endpoint", &server.endpoint)?;
            if server.id == 0 {
                return Err(ApiError::field("servers.id", "0; server ids start at 1"));
            }
            if servers.insert(server.id, endpoint.to_string()).is_some() {
                let reason = format!("{} is named twice", server.id);
                return Err(ApiError::field("servers.id", reason));
            }
        }
        let own = self.context.config.server_id.get();
        match servers.get(&own) {
            Some(endpoint) if *endpoint == self.context.endpoint.as_str() => {}
            Some(endpoint) => {
                let reason = format!(
                    "server {own} is named at {endpoint}, it advertises {}",
                    self.context.endpoint
                );
                return Err(ApiError::Init(InitError::BadServers { reason }));
            }
            None => {
                let reason = format!("server {own}, which was asked, is not among them");
                return Err(ApiError::Init(InitError::BadServers { reason }));
            }
        }
        if !self.context.node.standing().initialised() {
            let member = self.look_at_peers(&servers).await?;
            if let Some(member) = member {
                self.wait_to_be_told(&call, member).await?;
            }
        }
        let others: Vec<String> = servers
            .iter()
            .filter(|(id, _)| **id != own)
            .map(|(_, endpoint)| endpoint.clone())
            .collect();
        let cluster_id = self
            .context
            .node
            .init(servers, call.left())
            .await
            .map_err(ApiError::Init)?;
        tracing::info!(%cluster_id, "cluster is initialised");
        let all_know = self.every_server_knows(&others);
        // A server that is gone meanwhile does not hold up the answer.
        let _ = tokio::time::timeout(call.patience(), all_know).await;
        Ok(v1::InitClusterResponse {
            cluster_id: convert::id128_bytes(cluster_id.0),
        })
    }

    /// Every server named must answer under its id and belong to no cluster: a group founded
    /// with a member of another would be two clusters at once, or none. Gives one that is a member
    /// of this very group already, if there is one.
    async fn look_at_peers(
        &self,
        servers: &BTreeMap<u64, String>,
    ) -> Result<Option<u64>, ApiError> {
        let own = self.context.config.server_id.get();
        let mut member = None;
        for (&id, endpoint) in servers.iter().filter(|(id, _)| **id != own) {
            let refuse = |reason: String, silent| ApiError::BadPeer {
                id,
                endpoint: endpoint.clone(),
                reason,
                silent,
            };
            let status = match probe(&self.context, endpoint).await {
                Ok(status) => status,
                Err(error) => {
                    let reason = format!("does not answer ({error})");
                    return Err(refuse(reason, true));
                }
            };
            let found = status.freshness.map_or(0, |freshness| freshness.server_id);
            if found != id {
                return Err(refuse(format!("says that it is server {found}"), false));
            }
            // Being a member of this very group is what a repeated call finds.
            let group: BTreeMap<u64, String> = status
                .servers
                .into_iter()
                .map(|server| (server.id, server.endpoint))
                .collect();
            if !group.is_empty() && group != *servers {
                return Err(refuse(
                    "belongs to another cluster already".to_owned(),
                    false,
                ));
            }
            if !group.is_empty() {
                member = Some(id);
            }
        }
        Ok(member)
    }

    /// Waits until every server knows its cluster: whichever is asked next must not deny it.
    async fn every_server_knows(&self, others: &[String]) {
        const ASK_AGAIN: Duration = Duration::from_millis(20);
        for endpoint in others {
            let knows = || async {
                let status = probe(&self.context, endpoint).await;
                status.is_ok_and(|status| !status.servers.is_empty())
            };
            while !knows().await {
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }

    /// `member` is in the group and this server is not: it hears of it in a moment when the group
    /// was founded just now, and never when its data directory is not the one it had. Founding it
    /// here would give a vote to a server that has forgotten its votes.
    async fn wait_to_be_told(&self, call: &Call, member: u64) -> Result<(), ApiError> {
        let mut standings = self.context.node.standings();
        let told = standings.wait_for(Standing::initialised);
        match tokio::time::timeout(call.patience(), told).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ApiError::Forgotten {
                own: self.context.config.server_id.get(),
                member,
            }),
        }
    }

    /// Brings this server's state up to the call, where it asks for that.
    pub(super) async fn freshness(&self, call: Call, mode: i32) -> Result<v1::Freshness, ApiError> {
        let linearizable = linearizable(mode)?;
        if linearizable {
            let read = self.context.node.linearize(call.patience()).await;
            if let Err(error) = read {
                return Err(explain(&self.context, error.into()).await);
            }
        }
        Ok(self.freshness_now(linearizable))
    }

    fn freshness_now(&self, linearizable: bool) -> v1::Freshness {
        v1::Freshness {
            server_id: self.context.config.server_id.get(),
            applied_index: self.context.node.applied().borrow().index,
            age_ms: if linearizable {
                0
            } else {
                self.context.behind_ms()
            },
            linearizable,
        }
    }

    /// For reads that show what only the leader knows: where they are to be answered.
    pub(super) async fn place(
        &self,
        call: Call,
        mode: i32,
    ) -> Result<(Place, v1::Freshness), ApiError> {
        let linearizable = linearizable(mode)?;
        let place = if linearizable {
            call.place(&self.context).await?
        } else {
            Place::Here
        };
        Ok((place, self.freshness_now(linearizable)))
    }

    fn show_ring(
        &self,
        name: &RingName,
        freshness: v1::Freshness,
    ) -> Result<v1::RingStatus, ApiError> {
        let context = &self.context;
        context.node.shared().read(|state, _| {
            let ring = state.rings.get(name);
            ring.map(|ring| show::ring(context, state, name, ring, freshness))
                .ok_or_else(|| unknown_ring(name))
        })
    }

    fn show_rings(&self, freshness: v1::Freshness) -> Vec<v1::RingStatus> {
        let context = &self.context;
        context.node.shared().read(|state, _| {
            let rings = state.rings.iter();
            rings
                .map(|(name, ring)| show::ring(context, state, name, ring, freshness))
                .collect()
        })
    }

    async fn cluster_status(
        &self,
        call: Call,
        request: v1::ClusterStatusRequest,
    ) -> Result<v1::ClusterStatus, ApiError> {
        match self.place(call, request.mode).await? {
            (Place::Here, freshness) => {
                // Whoever asks so asks with a local read: that one asks nobody else.
                let troubles = if freshness.linearizable {
                    troubles(&self.context).await
                } else {
                    BTreeMap::new()
                };
                let rings = self.show_rings(freshness);
                Ok(show::cluster(&self.context, rings, freshness, troubles))
            }
            (Place::Leader(leader), _) => {
                let mut client = admin_of(&self.context, &leader.endpoint)?;
                let answer = client.get_cluster_status(call.pass_on(request));
                passed(call, &leader, false, answer).await
            }
        }
    }

    async fn list(
        &self,
        call: Call,
        request: v1::ListRingsRequest,
    ) -> Result<v1::ListRingsResponse, ApiError> {
        match self.place(call, request.mode).await? {
            (Place::Here, freshness) => Ok(v1::ListRingsResponse {
                rings: self.show_rings(freshness),
                freshness: Some(freshness),
            }),
            (Place::Leader(leader), _) => {
                let mut client = admin_of(&self.context, &leader.endpoint)?;
                passed(
                    call,
                    &leader,
                    false,
                    client.list_rings(call.pass_on(request)),
                )
                .await
            }
        }
    }

    async fn get(
        &self,
        call: Call,
        request: v1::GetRingRequest,
    ) -> Result<v1::RingStatus, ApiError> {
        let ring = convert::ring_name("ring", &request.ring)?;
        match self.place(call, request.mode).await? {
            (Place::Here, freshness) => self.show_ring(&ring, freshness),
            (Place::Leader(leader), _) => {
                let mut client = admin_of(&self.context, &leader.endpoint)?;
                passed(call, &leader, false, client.get_ring(call.pass_on(request))).await
            }
        }
    }

    async fn restart(
        &self,
        call: Call,
        request: v1::OkToRestartRequest,
    ) -> Result<v1::OkToRestartResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let wanted: BTreeSet<NodeId> = request
            .nodes
            .iter()
            .map(|node| convert::node_id("nodes", node))
            .collect::<Result<_, _>>()?;
        // Who is there only the leader hears.
        match call.place(&self.context).await? {
            Place::Here => {}
            Place::Leader(leader) => {
                let mut client = admin_of(&self.context, &leader.endpoint)?;
                let answer = client.ok_to_restart(call.pass_on(request));
                return passed(call, &leader, false, answer).await;
            }
        }
        let now_ms = self.context.clock.now_ms();
        let answer = self.context.node.shared().read(|state, _| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            self.context.links.with_reports(&name, |reports| {
                let up = restart::up(ring, reports, now_ms);
                restart::batches(ring, up, &wanted).map_err(ApiError::from)
            })
        })?;
        Ok(changes::restart(answer, self.freshness_now(true)))
    }

    async fn snapshot(
        &self,
        call: Call,
        request: v1::GetSnapshotRequest,
    ) -> Result<v1::GetSnapshotResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let freshness = self.freshness(call, request.mode).await?;
        let snapshot = self.context.node.shared().read(|state, shelf| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            let epoch = if request.epoch == 0 {
                ring.epoch
            } else {
                Epoch(request.epoch)
            };
            shelf
                .get(&name, epoch)
                .ok_or_else(|| ApiError::UnknownEpoch {
                    epoch: epoch.0,
                    oldest: shelf
                        .epochs(&name)
                        .first()
                        .map_or(ring.epoch, |kept| kept.1),
                    newest: ring.epoch,
                    ring: name.clone(),
                })
        })?;
        Ok(v1::GetSnapshotResponse {
            freshness: Some(freshness),
            snapshot: Some(snapshot),
        })
    }

    async fn epochs(
        &self,
        call: Call,
        request: v1::ListEpochsRequest,
    ) -> Result<v1::ListEpochsResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let freshness = self.freshness(call, request.mode).await?;
        let kept = self
            .context
            .node
            .shared()
            .read(|state, shelf| state.rings.contains_key(&name).then(|| shelf.epochs(&name)));
        let epochs = kept.ok_or_else(|| unknown_ring(&name))?.into_iter();
        Ok(v1::ListEpochsResponse {
            freshness: Some(freshness),
            epochs: epochs
                .map(|(generation, epoch, checksum)| {
                    EpochRef {
                        generation,
                        epoch,
                        checksum,
                    }
                    .into()
                })
                .collect(),
        })
    }
}

/// What became of a command, for its caller.
pub(super) fn answer(outcome: Outcome) -> Result<v1::MutationResponse, ApiError> {
    match outcome {
        Outcome::Applied(applied) => Ok(v1::MutationResponse {
            change_id: applied.change.map_or(0, |change| change.0),
            epoch: applied.epoch.0,
            notes: applied.notes,
            plan_id: applied.plan.map_or(0, |plan| plan.0),
            change_ids: applied.changes.iter().map(|change| change.0).collect(),
        }),
        Outcome::Rejected(rejection) => Err(rejection.into()),
    }
}

pub(super) fn unknown_ring(ring: &RingName) -> ApiError {
    annulus_membership::Rejection::UnknownRing { ring: ring.clone() }.into()
}

pub(super) fn request_id_of(bytes: &[u8]) -> Result<RequestId, ApiError> {
    Ok(RequestId(convert::id128("request_id", bytes)?))
}

fn linearizable(mode: i32) -> Result<bool, ApiError> {
    match v1::ReadMode::try_from(mode) {
        Ok(v1::ReadMode::Linearizable) => Ok(true),
        Ok(v1::ReadMode::Local) => Ok(false),
        Ok(v1::ReadMode::Unspecified) | Err(_) => Err(ApiError::field(
            "mode",
            format!("{mode}; 1 is linearizable, 2 is local"),
        )),
    }
}

/// Settings of a new ring; 0 and empty are defaults.
fn config_of(request: &v1::CreateRingRequest) -> Result<RingConfig, ApiError> {
    let small = |field: &'static str, value: u32| {
        u8::try_from(value).map_err(|_| ApiError::field(field, format!("{value}, at most 255")))
    };
    let kind = match request.kind.as_str() {
        "" => RingKind::default(),
        kind => kind
            .parse()
            .map_err(|error: UnknownKind| ApiError::field("kind", error.to_string()))?,
    };
    let defaults = match kind {
        RingKind::Durable => RingConfig::default(),
        // There is nothing to lose in them, so nothing is kept longer than it must be.
        RingKind::Cache => RingConfig {
            kind,
            soak_ms: 0,
            grace_ms: 0,
            ..RingConfig::default()
        },
    };
    let or = |value: u8, default: u8| if value == 0 { default } else { value };
    let rf = or(small("rf", request.rf)?, defaults.replication.rf);
    let majority = rf / 2 + 1;
    Ok(RingConfig {
        slot_bits: or(small("slot_bits", request.slot_bits)?, defaults.slot_bits),
        hash: if request.hash.is_empty() {
            HashName::default()
        } else {
            request.hash.parse::<HashName>()?
        },
        seed: request.seed,
        replication: Replication {
            rf,
            w: or(small("w", request.w)?, majority),
            r: or(small("r", request.r)?, majority),
        },
        soak_ms: request.soak_ms.unwrap_or(defaults.soak_ms),
        grace_ms: request.grace_ms.unwrap_or(defaults.grace_ms),
        kind,
        warm_up: request
            .warm_up
            .as_ref()
            .map_or(Ok(WarmUp::None), warm_up_of)?,
        serve_when_isolated: request.serve_when_isolated.unwrap_or(true),
    })
}

fn warm_up_of(message: &v1::WarmUp) -> Result<WarmUp, ApiError> {
    let (limit_ms, found) = (message.limit_ms, message.hit_ratio_permille);
    if found == 0 {
        return Ok(WarmUp::Time { time_ms: limit_ms });
    }
    let hit_ratio_permille = u16::try_from(found).map_err(|_| {
        ApiError::field(
            "warm_up.hit_ratio_permille",
            format!("{found}, at most 1000"),
        )
    })?;
    Ok(WarmUp::HitRatio {
        hit_ratio_permille,
        limit_ms,
    })
}

fn join_of(request: &v1::JoinNodeRequest) -> Result<RingCommand, ApiError> {
    let zone = match request.zone.as_str() {
        "" => None,
        zone => Some(convert::zone("zone", zone)?),
    };
    let weight = request
        .weight
        .map(|weight| convert::weight("weight", weight))
        .transpose()?;
    let node = convert::node_id("node", &request.node)?;
    Ok(RingCommand::Change {
        change: Change::Join { node, zone, weight },
        expected_layout_epoch: request.expected_layout_epoch.map(Epoch),
    })
}

#[tonic::async_trait]
impl v1::admin_server::Admin for Admin {
    async fn init_cluster(
        &self,
        request: Request<v1::InitClusterRequest>,
    ) -> Answer<v1::InitClusterResponse> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(self.init(call, request.into_inner()).await?))
    }

    async fn get_cluster_status(
        &self,
        request: Request<v1::ClusterStatusRequest>,
    ) -> Answer<v1::ClusterStatus> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(
            self.cluster_status(call, request.into_inner()).await?,
        ))
    }

    async fn create_ring(
        &self,
        request: Request<v1::CreateRingRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let config = config_of(&request)?;
        let command = RingCommand::Create {
            config,
            accept: request.accept,
        };
        Ok(Response::new(
            self.change(call, &request.request_id, &request.ring, command)
                .await?,
        ))
    }

    async fn found_ring(
        &self,
        request: Request<v1::FoundRingRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(self.found(call, request.into_inner()).await?))
    }

    async fn list_rings(
        &self,
        request: Request<v1::ListRingsRequest>,
    ) -> Answer<v1::ListRingsResponse> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(self.list(call, request.into_inner()).await?))
    }

    async fn get_ring(&self, request: Request<v1::GetRingRequest>) -> Answer<v1::RingStatus> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(self.get(call, request.into_inner()).await?))
    }

    async fn join_node(
        &self,
        request: Request<v1::JoinNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let command = join_of(&request)?;
        Ok(Response::new(
            self.change(call, &request.request_id, &request.ring, command)
                .await?,
        ))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let node = convert::node_id("node", &request.node).map_err(ApiError::from)?;
        let (change, steps) = (Change::Drain { node }, request.steps);
        let expected = request.expected_layout_epoch;
        self.asked_by(
            call,
            &request.request_id,
            &request.ring,
            change,
            steps,
            expected,
        )
        .await
    }

    async fn replace_node(
        &self,
        request: Request<v1::ReplaceNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let node = convert::node_id("node", &request.node).map_err(ApiError::from)?;
        let by = convert::node_id("by", &request.by).map_err(ApiError::from)?;
        let command = RingCommand::Change {
            change: Change::Replace {
                node,
                by,
                burial: request.burial.map(changes::burial),
            },
            expected_layout_epoch: request.expected_layout_epoch.map(Epoch),
        };
        let answer = self
            .change(call, &request.request_id, &request.ring, command)
            .await?;
        Ok(Response::new(answer))
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let node = convert::node_id("node", &request.node).map_err(ApiError::from)?;
        let command = RingCommand::Change {
            change: Change::Remove {
                node,
                burial: changes::burial(request.burial.unwrap_or_default()),
            },
            expected_layout_epoch: request.expected_layout_epoch.map(Epoch),
        };
        let answer = self
            .change(call, &request.request_id, &request.ring, command)
            .await?;
        Ok(Response::new(answer))
    }

    async fn set_weight(
        &self,
        request: Request<v1::SetWeightRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let node = convert::node_id("node", &request.node).map_err(ApiError::from)?;
        let weight = convert::weight("weight", request.weight).map_err(ApiError::from)?;
        let (change, steps) = (Change::Weight { node, weight }, request.steps);
        let expected = request.expected_layout_epoch;
        self.asked_by(
            call,
            &request.request_id,
            &request.ring,
            change,
            steps,
            expected,
        )
        .await
    }

    async fn set_zone(&self, request: Request<v1::SetZoneRequest>) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let change = changes::zone(&request)?;
        let expected = request.expected_layout_epoch;
        self.asked(call, &request.request_id, &request.ring, change, expected)
            .await
    }

    async fn drain_zone(
        &self,
        request: Request<v1::DrainZoneRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let change = changes::drain_zone(&request)?;
        let expected = request.expected_layout_epoch;
        self.asked(call, &request.request_id, &request.ring, change, expected)
            .await
    }

    async fn set_replication(
        &self,
        request: Request<v1::SetReplicationRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let change = changes::replication(&request)?;
        let expected = request.expected_layout_epoch;
        self.asked(call, &request.request_id, &request.ring, change, expected)
            .await
    }

    async fn convert_ring(
        &self,
        request: Request<v1::ConvertRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let v1::ConvertRequest {
            request_id,
            ring,
            hash,
            layout,
            double,
        } = request.into_inner();
        let hash = hash.map(|hash| hash.parse::<HashName>());
        let command = RingCommand::Convert {
            hash: hash.transpose().map_err(ApiError::from)?,
            layout,
            double,
        };
        let answer = self.change(call, &request_id, &ring, command).await?;
        Ok(Response::new(answer))
    }

    async fn pin_ranges(&self, request: Request<v1::PinRequest>) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let change = changes::pin(&request)?;
        let expected = request.expected_layout_epoch;
        self.asked(call, &request.request_id, &request.ring, change, expected)
            .await
    }

    async fn unpin_ranges(
        &self,
        request: Request<v1::UnpinRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let change = changes::unpin(&request)?;
        let expected = request.expected_layout_epoch;
        self.asked(call, &request.request_id, &request.ring, change, expected)
            .await
    }

    async fn maintain_node(
        &self,
        request: Request<v1::MaintainRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let node = convert::node_id("node", &request.node).map_err(ApiError::from)?;
        let command = RingCommand::Maintain {
            node,
            for_ms: request.for_ms,
            accept: request.accept,
        };
        let answer = self
            .change(call, &request.request_id, &request.ring, command)
            .await?;
        Ok(Response::new(answer))
    }

    async fn ok_to_restart(
        &self,
        request: Request<v1::OkToRestartRequest>,
    ) -> Answer<v1::OkToRestartResponse> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(
            self.restart(call, request.into_inner()).await?,
        ))
    }

    async fn abort_change(
        &self,
        request: Request<v1::AbortChangeRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let command = RingCommand::Abort {
            change: ChangeId(request.change_id),
        };
        Ok(Response::new(
            self.change(call, &request.request_id, &request.ring, command)
                .await?,
        ))
    }

    async fn settle_transition(
        &self,
        request: Request<v1::SettleRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let request = request.into_inner();
        let command = RingCommand::Settle;
        Ok(Response::new(
            self.change(call, &request.request_id, &request.ring, command)
                .await?,
        ))
    }

    async fn pause_ring(&self, request: Request<v1::BrakeRequest>) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let v1::BrakeRequest {
            request_id,
            ring,
            reason,
        } = request.into_inner();
        let command = RingCommand::Pause { reason };
        let answer = self.change(call, &request_id, &ring, command).await?;
        Ok(Response::new(answer))
    }

    async fn set_auto_remove(
        &self,
        request: Request<v1::AutoRemoveRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let v1::AutoRemoveRequest {
            request_id,
            ring,
            after_ms,
        } = request.into_inner();
        let command = RingCommand::AutoRemove { after_ms };
        let answer = self.change(call, &request_id, &ring, command).await?;
        Ok(Response::new(answer))
    }

    async fn hold_ring(&self, request: Request<v1::BrakeRequest>) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let v1::BrakeRequest {
            request_id,
            ring,
            reason,
        } = request.into_inner();
        let command = RingCommand::Hold { reason };
        let answer = self.change(call, &request_id, &ring, command).await?;
        Ok(Response::new(answer))
    }

    async fn make_plan(
        &self,
        request: Request<v1::MakePlanRequest>,
    ) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let answer = self.plan(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn list_plans(
        &self,
        request: Request<v1::ListPlansRequest>,
    ) -> Answer<v1::ListPlansResponse> {
        let call = Call::of(&self.context, &request);
        let answer = self.plans(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn get_plan(&self, request: Request<v1::GetPlanRequest>) -> Answer<v1::GetPlanResponse> {
        let call = Call::of(&self.context, &request);
        let answer = self.show_plan(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn commit_plan(&self, request: Request<v1::PlanRequest>) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let commit = |plan| RingCommand::CommitPlan { plan };
        let answer = self.end_plan(call, request.into_inner(), commit).await?;
        Ok(Response::new(answer))
    }

    async fn drop_plan(&self, request: Request<v1::PlanRequest>) -> Answer<v1::MutationResponse> {
        let call = Call::of(&self.context, &request);
        let drop = |plan| RingCommand::DropPlan { plan };
        let answer = self.end_plan(call, request.into_inner(), drop).await?;
        Ok(Response::new(answer))
    }

    async fn explain_range(
        &self,
        request: Request<v1::ExplainRangeRequest>,
    ) -> Answer<v1::ExplainRangeResponse> {
        let call = Call::of(&self.context, &request);
        let answer = self.range_story(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn explain_change(
        &self,
        request: Request<v1::ExplainChangeRequest>,
    ) -> Answer<v1::ExplainChangeResponse> {
        let call = Call::of(&self.context, &request);
        let answer = self.change_story(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn why_kept(&self, request: Request<v1::WhyKeptRequest>) -> Answer<v1::WhyKeptResponse> {
        let call = Call::of(&self.context, &request);
        let answer = self.kept_story(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn get_snapshot(
        &self,
        request: Request<v1::GetSnapshotRequest>,
    ) -> Answer<v1::GetSnapshotResponse> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(
            self.snapshot(call, request.into_inner()).await?,
        ))
    }

    async fn list_epochs(
        &self,
        request: Request<v1::ListEpochsRequest>,
    ) -> Answer<v1::ListEpochsResponse> {
        let call = Call::of(&self.context, &request);
        Ok(Response::new(
            self.epochs(call, request.into_inner()).await?,
        ))
    }
}
