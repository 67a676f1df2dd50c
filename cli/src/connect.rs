//! The way to a server: calls of the admin service, and what their failures mean to a person.

use std::{sync::Arc, time::Duration};

use annulus_client::{AdminClient, AdminConfig, AdminError, Client, admin};
use annulus_proto::v1;
use annulus_ring::{Endpoint, Epoch, NodeId, RingKind, RingName, Snapshot, Zone};
use futures::future::join_all;

use crate::{
    args::{CreateArgs, Global, Kind, ReplicationArgs, slots::Spans},
    config,
    exit::{Failure, Result},
    ring::EpochView,
    views::{ClusterView, RingView, ServerView},
};

mod plans;

/// How long a server may take to say that it is there, when it is asked why others were not.
const PROBE_LIMIT: Duration = Duration::from_millis(1_500);

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// No older than the question.
    Leader,
    /// What the asked server has; the answer says how old it is.
    Local,
}

impl From<bool> for Read {
    /// From the flag `--local`.
    fn from(local: bool) -> Self {
        if local { Self::Local } else { Self::Leader }
    }
}

impl From<Read> for admin::Read {
    fn from(read: Read) -> Self {
        match read {
            Read::Leader => Self::Linearizable,
            Read::Local => Self::Local,
        }
    }
}

/// A mutation that was accepted.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Number of the change; 0 if there is none to wait for.
    pub change_id: u64,
    /// Epoch of the ring after it.
    pub epoch: u64,
    /// Sentences that the operator should know.
    pub notes: Vec<String>,
    /// Number of the plan that was stored or committed; 0 if none was.
    pub plan_id: u64,
    /// All changes that a committed plan became.
    pub change_ids: Vec<u64>,
}

impl From<v1::MutationResponse> for Accepted {
    fn from(response: v1::MutationResponse) -> Self {
        let v1::MutationResponse {
            change_id,
            epoch,
            notes,
            plan_id,
            change_ids,
        } = response;
        Self {
            change_id,
            epoch,
            notes,
            plan_id,
            change_ids,
        }
    }
}

/// A snapshot with its checksum.
pub struct Dumped {
    /// The snapshot, verified.
    pub snapshot: Snapshot,
    /// 64 hexadecimal digits; empty if the server no longer keeps that epoch.
    pub checksum: String,
}

/// Asks whichever server answers.
#[derive(Clone, Debug)]
pub struct Admin {
    client: AdminClient,
    endpoints: Vec<Endpoint>,
}

impl Admin {
    /// A way to the servers of these options; contacts nobody yet.
    pub fn new(global: &Global) -> Result<Self> {
        Self::of(&global.endpoints, global.timeout)
    }

    /// A way to these servers, each call tried for `timeout`.
    pub fn of(endpoints: &[String], timeout: Duration) -> Result<Self> {
        let endpoints = endpoints
            .iter()
            .map(|text| config::endpoint(text.trim(), "--endpoints"))
            .collect::<Result<Vec<_>>>()?;
        let config = AdminConfig {
            deadline: timeout,
            ..AdminConfig::new(endpoints.clone())
        };
        let client = AdminClient::start(config)
            .map_err(|error| Failure::usage(error, "correct --endpoints or --timeout"))?;
        Ok(Self { client, endpoints })
    }

    /// Founds the control plane; gives the cluster id as 32 hexadecimal digits.
    pub async fn init_cluster(&self, servers: &[(u64, String)]) -> Result<String> {
        let servers = servers
            .iter()
            .map(|(id, text)| Ok((*id, config::endpoint(text, "server")?)))
            .collect::<Result<Vec<_>>>()?;
        match self.client.init_cluster(servers.clone()).await {
            Ok(id) => Ok(id.to_string()),
            Err(error @ AdminError::Unavailable { .. }) => {
                let silent = self.survey().await.silent;
                Err(not_founded(&error, &servers, &silent))
            }
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// Servers, leader, rings.
    pub async fn cluster(&self, read: Read) -> Result<ClusterView> {
        self.explained(self.client.cluster_status(read.into()).await)
            .await
            .map(ClusterView::from)
    }

    /// All rings.
    pub async fn rings(&self, read: Read) -> Result<Vec<RingView>> {
        let answer = self.explained(self.client.rings(read.into()).await).await?;
        Ok(answer.rings.into_iter().map(RingView::from).collect())
    }

    /// One ring.
    pub async fn ring(&self, ring: &RingName, read: Read) -> Result<RingView> {
        self.explained(self.client.ring(ring, read.into()).await)
            .await
            .map(RingView::from)
    }

    /// As [`Self::ring`], and on failure no questions why: for loops that ask again anyway.
    pub async fn ring_quietly(&self, ring: &RingName) -> Result<RingView, AdminError> {
        self.client
            .ring(ring, admin::Read::Linearizable)
            .await
            .map(RingView::from)
    }

    /// Waits for the first snapshot of a client's ring; a ring that the control plane does not know
    /// is not waited for.
    pub async fn first_snapshot(&self, client: &Client, limit: Duration) -> Result {
        let refused = async {
            match self
                .client
                .ring(client.ring(), admin::Read::Linearizable)
                .await
            {
                Err(error @ (AdminError::Refused { .. } | AdminError::Invalid { .. })) => error,
                // It is there, or nobody knows: what the client waits for tells.
                Ok(_) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ready = client.ready(limit) => match ready {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::unavailable(
                    error,
                    "check --endpoints (or ANNULUS_ENDPOINTS), and that the servers run: \
                     `annulus cluster status`",
                )),
            },
            error = refused => Err(self.explain(error).await),
        }
    }

    /// Number of the leader, if one is known to a server that answers for it.
    pub async fn leader(&self) -> Option<u64> {
        let status = self
            .client
            .cluster_status(admin::Read::Linearizable)
            .await
            .ok()?;
        (status.leader_id != 0).then_some(status.leader_id)
    }

    /// The kept epochs of a ring, oldest first.
    pub async fn epochs(&self, ring: &RingName, read: Read) -> Result<Vec<EpochView>> {
        let answer = self
            .explained(self.client.epochs(ring, read.into()).await)
            .await?;
        let epoch = |epoch: v1::EpochRef| EpochView {
            generation: epoch.generation.into(),
            epoch: epoch.epoch.into(),
            checksum: hex::encode(&epoch.checksum),
        };
        Ok(answer.epochs.into_iter().map(epoch).collect())
    }

    /// A snapshot, verified as a client would.
    pub async fn snapshot(
        &self,
        ring: &RingName,
        epoch: Option<u64>,
        read: Read,
    ) -> Result<Snapshot> {
        let answer = self
            .client
            .snapshot(ring, epoch.map(Epoch), read.into())
            .await;
        self.explained(answer).await
    }

    /// A snapshot and the checksum that the server lists for it.
    pub async fn dump(&self, ring: &RingName, epoch: Option<u64>, read: Read) -> Result<Dumped> {
        let snapshot = self.snapshot(ring, epoch, read).await?;
        let (generation, epoch) = (snapshot.generation.0, snapshot.epoch.0);
        let epochs = self.epochs(ring, read).await?;
        let listed = epochs
            .into_iter()
            .find(|kept| (kept.generation.0, kept.epoch.0) == (generation, epoch));
        Ok(Dumped {
            snapshot,
            checksum: listed.map(|kept| kept.checksum).unwrap_or_default(),
        })
    }

    /// Creates a ring.
    pub async fn create_ring(&self, args: &CreateArgs) -> Result<Accepted> {
        let w = args.w.unwrap_or(args.rf / 2 + 1);
        let r = args.r.unwrap_or((args.rf + 1).saturating_sub(w));
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let request = v1::CreateRingRequest {
            request_id: self.client.request_id(),
            ring: args.ring.to_string(),
            slot_bits: args.slot_bits.into(),
            rf: args.rf.into(),
            w: w.into(),
            r: r.into(),
            hash: args.hash.clone(),
            seed: args.seed,
            soak_ms: args.soak.map(ms),
            grace_ms: args.grace.map(ms),
            accept: args.accept,
            kind: match args.kind {
                Kind::Durable => RingKind::Durable,
                Kind::Cache => RingKind::Cache,
            }
            .to_string(),
            warm_up: args.warm_up.map(|limit| v1::WarmUp {
                limit_ms: ms(limit),
                hit_ratio_permille: args.hit_ratio.map_or(0, u32::from),
            }),
            serve_when_isolated: args.stop_when_isolated.then_some(false),
        };
        self.mutated(self.client.create_ring(request).await).await
    }

    /// Founds a ring; without names, with all nodes joined so far.
    pub async fn found_ring(
        &self,
        ring: &RingName,
        nodes: &[NodeId],
        accept: bool,
    ) -> Result<Accepted> {
        let request = v1::FoundRingRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            nodes: nodes.iter().map(ToString::to_string).collect(),
            accept,
        };
        self.mutated(self.client.found_ring(request).await).await
    }

    /// Asks for a join.
    pub async fn join(
        &self,
        ring: &RingName,
        node: &NodeId,
        zone: Option<Zone>,
        weight: Option<u32>,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::JoinNodeRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            zone: zone.map_or_else(String::new, |zone| zone.to_string()),
            weight,
            expected_layout_epoch,
        };
        self.mutated(self.client.join_node(request).await).await
    }

    /// Asks for a drain.
    pub async fn drain(
        &self,
        ring: &RingName,
        node: &NodeId,
        steps: Option<u32>,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::DrainNodeRequest {
            steps,
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            expected_layout_epoch,
        };
        self.mutated(self.client.drain_node(request).await).await
    }

    /// Asks for a replacement.
    pub async fn replace(
        &self,
        ring: &RingName,
        node: &NodeId,
        by: &NodeId,
        burial: Option<v1::Burial>,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::ReplaceNodeRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            by: by.to_string(),
            burial,
            expected_layout_epoch,
        };
        self.mutated(self.client.replace_node(request).await).await
    }

    /// Asks for a dead member to be taken out.
    pub async fn remove(
        &self,
        ring: &RingName,
        node: &NodeId,
        burial: v1::Burial,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::RemoveNodeRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            burial: Some(burial),
            expected_layout_epoch,
        };
        self.mutated(self.client.remove_node(request).await).await
    }

    /// Asks for another weight.
    pub async fn weight(
        &self,
        ring: &RingName,
        node: &NodeId,
        weight: u32,
        steps: Option<u32>,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::SetWeightRequest {
            steps,
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            weight,
            expected_layout_epoch,
        };
        self.mutated(self.client.set_weight(request).await).await
    }

    /// Asks for another zone.
    pub async fn zone(
        &self,
        ring: &RingName,
        node: &NodeId,
        zone: &Zone,
        accept: bool,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::SetZoneRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            zone: zone.to_string(),
            accept,
            expected_layout_epoch,
        };
        self.mutated(self.client.set_zone(request).await).await
    }

    /// Asks for a whole zone to leave.
    pub async fn drain_zone(
        &self,
        ring: &RingName,
        zone: &Zone,
        accept: bool,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::DrainZoneRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            zone: zone.to_string(),
            accept,
            expected_layout_epoch,
        };
        self.mutated(self.client.drain_zone(request).await).await
    }

    /// Asks for other replicas and quorums.
    pub async fn replication(&self, ring: &RingName, args: &ReplicationArgs) -> Result<Accepted> {
        let request = v1::SetReplicationRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            rf: args.rf.into(),
            w: args.w().into(),
            r: args.r().into(),
            accept: args.accept,
            expected_layout_epoch: args.change.expect_layout,
        };
        self.mutated(self.client.set_replication(request).await)
            .await
    }

    /// Asks for other coordinates.
    pub async fn convert(
        &self,
        ring: &RingName,
        double: bool,
        hash: Option<String>,
        layout: Option<String>,
    ) -> Result<Accepted> {
        let request = v1::ConvertRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            hash,
            layout,
            double,
        };
        self.mutated(self.client.convert_ring(request).await).await
    }

    /// Asks for pins.
    pub async fn pin(
        &self,
        ring: &RingName,
        node: &NodeId,
        slots: Spans,
        owner: bool,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::PinRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            slots: slots.0,
            owner,
            expected_layout_epoch,
        };
        self.mutated(self.client.pin_ranges(request).await).await
    }

    /// Asks for pins to be lifted; without slots, all that are pinned to the node.
    pub async fn unpin(
        &self,
        ring: &RingName,
        node: &NodeId,
        slots: Option<Spans>,
        expected_layout_epoch: Option<u64>,
    ) -> Result<Accepted> {
        let request = v1::UnpinRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            slots: slots.unwrap_or_default().0,
            expected_layout_epoch,
        };
        self.mutated(self.client.unpin_ranges(request).await).await
    }

    /// Announces a stop of a member, or its end.
    pub async fn maintain(
        &self,
        ring: &RingName,
        node: &NodeId,
        time: Option<Duration>,
        accept: bool,
    ) -> Result<Accepted> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = v1::MaintainRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            node: node.to_string(),
            for_ms: time.map(ms),
            accept,
        };
        self.mutated(self.client.maintain_node(request).await).await
    }

    /// Which members can be stopped together.
    pub async fn ok_to_restart(
        &self,
        ring: &RingName,
        nodes: &[NodeId],
    ) -> Result<v1::OkToRestartResponse> {
        self.explained(self.client.ok_to_restart(ring, nodes).await)
            .await
    }

    /// Withdraws a change.
    pub async fn abort(&self, ring: &RingName, change_id: u64) -> Result<Accepted> {
        let request_id = self.client.request_id();
        let request = v1::AbortChangeRequest {
            request_id,
            ring: ring.to_string(),
            change_id,
        };
        self.mutated(self.client.abort_change(request).await).await
    }

    /// Ends the soak.
    pub async fn settle(&self, ring: &RingName) -> Result<Accepted> {
        let request_id = self.client.request_id();
        let request = v1::SettleRequest {
            request_id,
            ring: ring.to_string(),
        };
        self.mutated(self.client.settle(request).await).await
    }

    /// Stops movement, or lets it go on.
    pub async fn pause(&self, ring: &RingName, reason: Option<String>) -> Result<Accepted> {
        let request = self.brake(ring, reason);
        self.mutated(self.client.pause_ring(request).await).await
    }

    /// Forbids deletion, or allows it again.
    pub async fn hold(&self, ring: &RingName, reason: Option<String>) -> Result<Accepted> {
        let request = self.brake(ring, reason);
        self.mutated(self.client.hold_ring(request).await).await
    }

    /// Asks for automatic removal, or for none.
    pub async fn auto_remove(&self, ring: &RingName, after: Option<Duration>) -> Result<Accepted> {
        let ms = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let request = v1::AutoRemoveRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            after_ms: after.map(ms),
        };
        self.mutated(self.client.set_auto_remove(request).await)
            .await
    }

    fn brake(&self, ring: &RingName, reason: Option<String>) -> v1::BrakeRequest {
        v1::BrakeRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            reason,
        }
    }

    async fn mutated(&self, answer: Result<v1::MutationResponse, AdminError>) -> Result<Accepted> {
        self.explained(answer).await.map(Accepted::from)
    }

    async fn explained<T>(&self, answer: Result<T, AdminError>) -> Result<T> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// A failure in an operator's words. When nobody answered, each server is asked once more,
    /// by itself, whether it is there at all: "no quorum" and "wrong port" need other remedies.
    async fn explain(&self, error: AdminError) -> Failure {
        match error {
            AdminError::Refused { name, message } => refused(&name, &message),
            AdminError::Invalid { message } => Failure::usage(
                message,
                "correct the command; `annulus help` shows its form",
            ),
            AdminError::Unavailable { .. } => self.survey().await.failure(&error),
            AdminError::Unknown { .. } => Failure::unknown(
                self.survey().await.sentence(&error),
                "look with `annulus status` whether it was done before you ask again",
            ),
            error => Failure::failed(
                error,
                "ask another server with --endpoints, and report this",
            ),
        }
    }

    /// Asks every server by itself whether it is there.
    pub async fn survey(&self) -> Survey {
        let first = self.probe(&self.endpoints).await;
        // One without its own data directory knows of no servers, and must not speak for the rest.
        let known = first.iter().filter_map(|(_, view)| view.as_ref());
        let known = known.max_by_key(|view| (view.servers.len(), view.freshness.applied_index));
        let servers: Vec<ServerView> = known.map(|view| view.servers.clone()).unwrap_or_default();
        // Servers that were not named as endpoints may be the ones that matter.
        let others: Vec<Endpoint> = servers
            .iter()
            .filter_map(|server| server.endpoint.parse().ok())
            .filter(|endpoint| !self.endpoints.contains(endpoint))
            .collect();
        let second = self.probe(&others).await;
        let answers: Vec<_> = first.into_iter().chain(second).collect();
        let newest = answers
            .iter()
            .filter_map(|(_, view)| view.as_ref())
            .max_by_key(|view| view.freshness.applied_index);
        Survey {
            stale: newest.cloned(),
            strangers: answers
                .iter()
                .filter(|(_, view)| view.as_ref().is_some_and(|view| view.servers.is_empty()))
                .map(|(endpoint, _)| endpoint.to_string())
                .filter(|endpoint| servers.iter().any(|server| server.endpoint == *endpoint))
                .collect(),
            servers,
            silent: answers
                .iter()
                .filter(|(_, view)| view.is_none())
                .map(|(endpoint, _)| endpoint.to_string())
                .collect(),
        }
    }

    async fn probe(&self, endpoints: &[Endpoint]) -> Vec<(Endpoint, Option<ClusterView>)> {
        join_all(endpoints.iter().map(|endpoint| async move {
            let config = AdminConfig {
                deadline: PROBE_LIMIT,
                ..AdminConfig::new(vec![endpoint.clone()])
            };
            let view = match AdminClient::start(config) {
                Ok(client) => client.cluster_status(admin::Read::Local).await.ok(),
                Err(_) => None,
            };
            (endpoint.clone(), view.map(ClusterView::from))
        }))
        .await
    }
}

/// Who is there.
#[derive(Debug, Default)]
pub struct Survey {
    /// What the best informed server that answered knows; none answered if absent.
    pub stale: Option<ClusterView>,
    /// The cluster's servers, as far as one that answered knows them.
    servers: Vec<ServerView>,
    /// Endpoints that gave no answer.
    silent: Vec<String>,
    /// Endpoints of the cluster's servers whose answer is that they belong to no cluster.
    strangers: Vec<String>,
}

impl Survey {
    fn sentence(&self, error: &AdminError) -> String {
        let error = met(error);
        match &self.stale {
            None => format!("no server answers: {error}"),
            Some(_) if self.servers.is_empty() => {
                "the servers are up and do not belong to a cluster yet".to_owned()
            }
            Some(_) => {
                let silent = self.named(&self.silent);
                let strangers = self.named(&self.strangers);
                let all = self.servers.len();
                let (there, needed) = (all - silent.len() - strangers.len(), all / 2 + 1);
                let mut sentence = if there < needed {
                    format!("no quorum: {there} of {all} reachable, {needed} needed")
                } else {
                    format!(
                        "{there} of {all} servers reachable, and none answers as or for a leader: {error}"
                    )
                };
                if there < needed && !silent.is_empty() {
                    sentence.push_str(&format!("; no answer from {}", silent.join(", ")));
                }
                for stranger in strangers {
                    sentence.push_str(&format!("; {stranger} {STRANGER}"));
                }
                sentence
            }
        }
    }

    /// Those of the cluster's servers that listen at these endpoints.
    fn named(&self, endpoints: &[String]) -> Vec<String> {
        self.servers
            .iter()
            .filter(|server| endpoints.contains(&server.endpoint))
            .map(|server| format!("server {} at {}", server.id, server.endpoint))
            .collect()
    }

    fn failure(&self, error: &AdminError) -> Failure {
        let next = match &self.stale {
            None => "check --endpoints (or ANNULUS_ENDPOINTS), and that the servers run",
            Some(_) if self.servers.is_empty() => {
                "run `annulus cluster init ID=HOST:PORT ..` once, naming all of them"
            }
            Some(_) if !self.strangers.is_empty() => {
                "give each server its own data directory; do not run `annulus cluster init` again"
            }
            Some(_) => {
                "start the servers that do not answer; \
                        `annulus status --local` shows what is known meanwhile"
            }
        };
        Failure::unavailable(self.sentence(error), next)
    }
}

/// What each server met, without the kind of error, which is said already.
fn met(error: &AdminError) -> String {
    match error {
        AdminError::Unavailable { tried } | AdminError::Unknown { tried } if !tried.is_empty() => {
            let each = tried
                .iter()
                .map(|(endpoint, why)| format!("{endpoint}: {why}"));
            each.collect::<Vec<_>>().join("; ")
        }
        error => error.to_string(),
    }
}

/// What is said of a server that the cluster lists and that knows nothing of it.
const STRANGER: &str = "says that it belongs to no cluster: it was started without its own data \
                        directory";

/// Why no cluster was founded: those of its servers that do not answer, or else what they said.
fn not_founded(error: &AdminError, servers: &[(u64, Endpoint)], silent: &[String]) -> Failure {
    let silent: Vec<String> = servers
        .iter()
        .filter(|(_, endpoint)| silent.iter().any(|silent| silent == endpoint.as_str()))
        .map(|(id, endpoint)| format!("server {id} at {endpoint} does not answer"))
        .collect();
    let what = match (silent.is_empty(), error) {
        (false, _) => silent.join(", "),
        (true, AdminError::Unavailable { tried }) => {
            let mut said: Vec<&str> = tried.iter().map(|(_, why)| why.as_str()).collect();
            said.dedup();
            said.join("; ")
        }
        (true, error) => error.to_string(),
    };
    let what = match what.strip_suffix("; nothing was changed") {
        Some(what) => what.to_owned(),
        None => what,
    };
    Failure::unavailable(
        format!("{what}; nothing was changed"),
        "start every server that you name, or correct its address, then ask again",
    )
}

/// The control plane's messages end with what to do; this adds only where that is missing.
fn refused(name: &str, message: &str) -> Failure {
    let next = match name {
        "NotRegistered" => "`annulus kv serve --node ..` starts one; `annulus node list` shows all",
        "ShortensLists" | "EmptiesZone" => "`annulus node join` brings another node in",
        "TooFewNodes" | "TooFewZones" => "`annulus kv serve --node ..` starts more nodes",
        "StaleLayout" => "`annulus status` shows the layout epoch as it is",
        "StaleTarget" => "ask again: the ring changed meanwhile",
        "FlipsBack" => "wait for its end; `annulus status` shows whom it waits for",
        "ChangeEnded" => "`annulus ring show` lists the changes",
        // The message itself says what to do.
        _ => "",
    };
    Failure::refused(format!("{message} ({name})"), next)
}

/// The newest snapshot of a ring, from whichever server answers.
pub async fn newest_snapshot(global: &Global, ring: &RingName) -> Result<Arc<Snapshot>> {
    let admin = Admin::new(global)?;
    match admin.snapshot(ring, None, Read::Leader).await {
        Ok(snapshot) => Ok(Arc::new(snapshot)),
        Err(failure) if failure.kind() == crate::exit::Kind::Unavailable => {
            // Where a key lives is known without a leader too; it only may be old.
            let Ok(snapshot) = admin.snapshot(ring, None, Read::Local).await else {
                return Err(failure);
            };
            eprintln!("STALE: {failure}");
            Ok(Arc::new(snapshot))
        }
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{exit::Kind, render::Wide};

    fn server(id: u64) -> ServerView {
        let endpoint = format!("127.0.0.1:700{id}");
        ServerView {
            id: Wide(id),
            endpoint,
            voter: true,
            ..ServerView::default()
        }
    }

    fn survey(servers: u64, silent: &[u64]) -> Survey {
        Survey {
            stale: Some(ClusterView::from(v1::ClusterStatus::default())),
            servers: (1..=servers).map(server).collect(),
            silent: silent.iter().map(|id| server(*id).endpoint).collect(),
            strangers: Vec::new(),
        }
    }

    #[test]
    fn a_server_without_its_directory_is_named_and_not_told_to_found_another_cluster() {
        let error = AdminError::Unavailable { tried: Vec::new() };
        let survey = Survey {
            strangers: vec![server(3).endpoint],
            ..survey(3, &[2])
        };
        let text = survey.failure(&error).to_string();
        for part in [
            "no quorum: 1 of 3 reachable",
            "no answer from server 2 at 127.0.0.1:7002",
            "server 3 at 127.0.0.1:7003 says that it belongs to no cluster",
            "do not run `annulus cluster init`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_founding_that_one_server_misses_names_that_server() {
        let at = |id: u64| (id, server(id).endpoint.parse().expect("an endpoint"));
        let tried = vec![(at(1).1, "something".to_owned())];
        let error = AdminError::Unavailable { tried };
        let failure = not_founded(&error, &[at(1), at(2), at(3)], &[server(3).endpoint]);
        assert_eq!(failure.kind(), Kind::Unavailable);
        let text = failure.to_string();
        let expected =
            "unavailable: server 3 at 127.0.0.1:7003 does not answer; nothing was changed\n";
        assert!(text.starts_with(expected), "{text}");
        let text = not_founded(&error, &[at(1)], &[]).to_string();
        assert!(text.contains("something; nothing was changed"), "{text}");
    }

    #[test]
    fn a_lost_quorum_names_who_does_not_answer() {
        let error = AdminError::Unavailable { tried: Vec::new() };
        let failure = survey(3, &[2, 3]).failure(&error);
        assert_eq!(failure.kind(), Kind::Unavailable);
        let text = failure.to_string();
        assert!(
            text.contains("no quorum: 1 of 3 reachable, 2 needed"),
            "{text}"
        );
        assert!(
            text.contains("server 2 at 127.0.0.1:7002, server 3 at 127.0.0.1:7003"),
            "{text}"
        );
    }

    #[test]
    fn servers_of_no_cluster_are_told_how_to_found_one() {
        let error = AdminError::Unavailable { tried: Vec::new() };
        let text = survey(0, &[]).failure(&error).to_string();
        assert!(text.contains("annulus cluster init"), "{text}");
        let text = Survey::default().failure(&error).to_string();
        assert!(
            text.contains("no server answers") && text.contains("--endpoints"),
            "{text}"
        );
    }
}
