//! C55, the library's part: an admin client against sick servers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use annulus_client::{AdminClient, AdminConfig, AdminError, Dial, DialSettings, admin::Read};
use annulus_proto::v1;
use annulus_ring::{Epoch, RingName};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status};

use crate::{
    rings::{RING, bytes, damaged},
    stub::{NOBODY, black_hole, nobody, until},
};

type Join = dyn Fn(usize) -> Result<v1::MutationResponse, Status> + Send + Sync;

/// A server whose every answer is made by a closure given the number of the call.
#[derive(Clone)]
struct Admin {
    calls: Arc<AtomicUsize>,
    ids: Arc<Mutex<Vec<bytes::Bytes>>>,
    join: Arc<Join>,
    snapshot: v1::SnapshotBytes,
}

impl Admin {
    async fn start(
        join: impl Fn(usize) -> Result<v1::MutationResponse, Status> + Send + Sync + 'static,
    ) -> (Self, String, JoinHandle<()>) {
        Self::serve(join, bytes(3)).await
    }

    async fn serve(
        join: impl Fn(usize) -> Result<v1::MutationResponse, Status> + Send + Sync + 'static,
        snapshot: v1::SnapshotBytes,
    ) -> (Self, String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (calls, ids) = (Arc::default(), Arc::default());
        let admin = Self {
            calls,
            ids,
            join: Arc::new(join),
            snapshot,
        };
        let serving = tonic::transport::Server::builder()
            .add_service(v1::admin_server::AdminServer::new(admin.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        (
            admin,
            address,
            tokio::spawn(async move { serving.await.unwrap() }),
        )
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn mutate(&self, id: bytes::Bytes) -> Result<Response<v1::MutationResponse>, Status> {
        self.ids.lock().unwrap().push(id);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new((self.join)(call)?))
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl v1::admin_server::Admin for Admin {
    async fn init_cluster(
        &self,
        _: Request<v1::InitClusterRequest>,
    ) -> Answer<v1::InitClusterResponse> {
        self.mutate(bytes::Bytes::new())?;
        Ok(Response::new(v1::InitClusterResponse {
            cluster_id: vec![7; 16].into(),
        }))
    }
    async fn get_cluster_status(
        &self,
        request: Request<v1::ClusterStatusRequest>,
    ) -> Answer<v1::ClusterStatus> {
        match request.into_inner().mode() {
            v1::ReadMode::Local => Ok(Response::new(v1::ClusterStatus {
                leader_id: 1,
                ..v1::ClusterStatus::default()
            })),
            _ => Err(Status::unavailable("no leader: 1 of 3 servers reachable")),
        }
    }
    async fn create_ring(
        &self,
        request: Request<v1::CreateRingRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn found_ring(
        &self,
        request: Request<v1::FoundRingRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn list_rings(&self, _: Request<v1::ListRingsRequest>) -> Answer<v1::ListRingsResponse> {
        Ok(Response::new(v1::ListRingsResponse::default()))
    }
    async fn get_ring(&self, request: Request<v1::GetRingRequest>) -> Answer<v1::RingStatus> {
        let ring = request.into_inner().ring;
        Ok(Response::new(v1::RingStatus {
            ring,
            ..v1::RingStatus::default()
        }))
    }
    async fn join_node(
        &self,
        request: Request<v1::JoinNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn replace_node(
        &self,
        request: Request<v1::ReplaceNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn set_zone(&self, request: Request<v1::SetZoneRequest>) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn drain_zone(
        &self,
        request: Request<v1::DrainZoneRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn set_replication(
        &self,
        request: Request<v1::SetReplicationRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn pin_ranges(&self, request: Request<v1::PinRequest>) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn unpin_ranges(
        &self,
        request: Request<v1::UnpinRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn maintain_node(
        &self,
        request: Request<v1::MaintainRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn ok_to_restart(
        &self,
        _request: Request<v1::OkToRestartRequest>,
    ) -> Answer<v1::OkToRestartResponse> {
        Err(Status::unimplemented("not asked here"))
    }
    async fn set_auto_remove(
        &self,
        request: Request<v1::AutoRemoveRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn convert_ring(
        &self,
        request: Request<v1::ConvertRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn set_weight(
        &self,
        request: Request<v1::SetWeightRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn pause_ring(&self, request: Request<v1::BrakeRequest>) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn hold_ring(&self, request: Request<v1::BrakeRequest>) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn abort_change(
        &self,
        request: Request<v1::AbortChangeRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn settle_transition(
        &self,
        request: Request<v1::SettleRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn make_plan(
        &self,
        request: Request<v1::MakePlanRequest>,
    ) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn commit_plan(&self, request: Request<v1::PlanRequest>) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn drop_plan(&self, request: Request<v1::PlanRequest>) -> Answer<v1::MutationResponse> {
        self.mutate(request.into_inner().request_id)
    }
    async fn list_plans(&self, _: Request<v1::ListPlansRequest>) -> Answer<v1::ListPlansResponse> {
        Ok(Response::new(v1::ListPlansResponse::default()))
    }
    async fn get_plan(&self, _: Request<v1::GetPlanRequest>) -> Answer<v1::GetPlanResponse> {
        Ok(Response::new(v1::GetPlanResponse::default()))
    }
    async fn explain_range(
        &self,
        _: Request<v1::ExplainRangeRequest>,
    ) -> Answer<v1::ExplainRangeResponse> {
        Ok(Response::new(v1::ExplainRangeResponse::default()))
    }
    async fn explain_change(
        &self,
        _: Request<v1::ExplainChangeRequest>,
    ) -> Answer<v1::ExplainChangeResponse> {
        Ok(Response::new(v1::ExplainChangeResponse::default()))
    }
    async fn why_kept(&self, _: Request<v1::WhyKeptRequest>) -> Answer<v1::WhyKeptResponse> {
        Ok(Response::new(v1::WhyKeptResponse::default()))
    }
    async fn get_snapshot(
        &self,
        _: Request<v1::GetSnapshotRequest>,
    ) -> Answer<v1::GetSnapshotResponse> {
        let snapshot = Some(self.snapshot.clone());
        Ok(Response::new(v1::GetSnapshotResponse {
            freshness: None,
            snapshot,
        }))
    }
    async fn list_epochs(
        &self,
        _: Request<v1::ListEpochsRequest>,
    ) -> Answer<v1::ListEpochsResponse> {
        Ok(Response::new(v1::ListEpochsResponse::default()))
    }
}

fn done(call: usize) -> Result<v1::MutationResponse, Status> {
    Ok(v1::MutationResponse {
        change_id: call as u64 + 1,
        ..v1::MutationResponse::default()
    })
}

/// A client with bounds short enough for tests; `seed` picks which endpoint comes first.
fn client(endpoints: &[&str], seed: u64) -> AdminClient {
    let config = AdminConfig {
        deadline: Duration::from_secs(3),
        try_timeout: Duration::from_millis(500),
        patience: Duration::from_millis(50),
        pause: (Duration::from_millis(10), Duration::from_millis(50)),
        seed: Some(seed),
        ..AdminConfig::new(endpoints.iter().map(|text| text.parse().unwrap()).collect())
    };
    AdminClient::start(config).unwrap()
}

fn join() -> v1::JoinNodeRequest {
    v1::JoinNodeRequest {
        ring: RING.into(),
        node: "d".into(),
        ..v1::JoinNodeRequest::default()
    }
}

#[tokio::test]
async fn c55_a_black_hole_in_the_list_costs_no_more_than_the_patience() {
    let (_keep, hole) = black_hole().await;
    let (_, good, _server) = Admin::start(done).await;
    // Whichever is asked first.
    for seed in 0..6 {
        let client = client(&[&hole, &good], seed);
        let begun = Instant::now();
        client.join_node(join()).await.unwrap();
        assert_eq!(
            client.cluster_status(Read::Local).await.unwrap().leader_id,
            1
        );
        client
            .ring(&RingName::new(RING).unwrap(), Read::Linearizable)
            .await
            .unwrap();
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    }
}

/// Speaks HTTP, 1.1 and 2, and answers everything with a page.
async fn web_server() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let app = axum::Router::new().fallback(|| async { "hello" });
    (
        address,
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }),
    )
}

/// Speaks HTTP/1.1 only, and takes the preface of HTTP/2 for a bad request.
async fn old_web_server() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut preface = [0; 24];
            let _ = stream.read_exact(&mut preface).await;
            let _ = stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                .await;
        }
    };
    (address, tokio::spawn(serving))
}

#[tokio::test]
async fn c55_a_port_of_something_else_is_passed_and_named() {
    let (_, good, _server) = Admin::start(done).await;
    let webs = [web_server().await, old_web_server().await];
    for (web, _server) in &webs {
        for seed in 0..4 {
            client(&[web, &good], seed).join_node(join()).await.unwrap();
        }
        let error = client(&[web], 0)
            .cluster_status(Read::Local)
            .await
            .unwrap_err();
        let AdminError::Unavailable { tried } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(tried[0].0.as_str(), web);
        assert!(error.to_string().contains("no gRPC"), "{error}");
        let short = client(&[web], 0).with_deadline(Duration::from_millis(300));
        let error = short.join_node(join()).await.unwrap_err();
        assert!(matches!(error, AdminError::Unavailable { .. }), "{error:?}");
    }

    // A gRPC server that is none of ours.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = listener.local_addr().unwrap().to_string();
    let serving = tonic::transport::Server::builder()
        .add_routes(tonic::service::Routes::default())
        .serve_with_incoming(TcpListenerStream::new(listener));
    let _server = tokio::spawn(async move { serving.await.unwrap() });
    let short = client(&[&other], 0).with_deadline(Duration::from_millis(300));
    let error = short.join_node(join()).await.unwrap_err();
    assert!(matches!(error, AdminError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("something else"), "{error}");
}

#[tokio::test]
async fn c55_with_nobody_up_everybody_is_named() {
    let held = [nobody(), nobody(), nobody()];
    let places = held.each_ref().map(|nobody| nobody.endpoint());
    let endpoints = places;
    let client = client(&endpoints, 0);
    for error in [
        client.cluster_status(Read::Linearizable).await.unwrap_err(),
        client
            .clone()
            .with_deadline(Duration::from_millis(300))
            .join_node(join())
            .await
            .unwrap_err(),
    ] {
        let AdminError::Unavailable { tried } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(tried.len(), 3);
        assert!(
            tried.iter().all(|(_, why)| why.contains("refused")),
            "{tried:?}"
        );
        assert!(
            places.iter().all(|place| error.to_string().contains(place)),
            "{error}"
        );
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn c55_a_read_without_quorum_says_so_and_a_local_one_answers() {
    let (_, address, _server) = Admin::start(done).await;
    let client = client(&[&address], 0);
    let error = client.cluster_status(Read::Linearizable).await.unwrap_err();
    assert!(error.to_string().contains("no leader: 1 of 3"), "{error}");
    assert!(client.cluster_status(Read::Local).await.is_ok());
}

#[tokio::test]
async fn c55_a_server_that_never_answers_leaves_the_outcome_open() {
    let (_keep, hole) = black_hole().await;
    let client = client(&[&hole], 0).with_deadline(Duration::from_millis(300));
    let error = client.join_node(join()).await.unwrap_err();
    let AdminError::Unknown { tried } = &error else {
        panic!("{error:?}")
    };
    assert!(tried[0].1.contains("no answer within 300ms"), "{error}");
    // A read has no outcome.
    let error = client.cluster_status(Read::Local).await.unwrap_err();
    assert!(matches!(error, AdminError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_never_comes_up_did_nothing() {
    // Packets to it vanish: the connector never ends, so the connect timeout has to.
    let dial = Dial::new(
        DialSettings {
            connect_timeout: Duration::from_millis(50),
            ..DialSettings::default()
        },
        |address| {
            address.connect_with_connector_lazy(tower::service_fn(|_: http::Uri| {
                std::future::pending::<
                    Result<hyper_util::rt::TokioIo<tokio::net::TcpStream>, std::io::Error>,
                >()
            }))
        },
    );
    let config = AdminConfig {
        dial,
        ..AdminConfig::new(vec!["192.0.2.1:7000".parse().unwrap()])
    };
    // Asked once, so the answer is that of one connect timeout.
    let client = AdminClient::start(config).unwrap();
    let error = client
        .init_cluster([(1, "192.0.2.1:7000".parse().unwrap())])
        .await
        .unwrap_err();
    assert!(matches!(error, AdminError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_mutation_is_repeated_under_one_id() {
    let (admin, address, _server) = Admin::start(|call| match call {
        0 => Err(Status::unavailable("no leader yet")),
        1 => Err(Status::deadline_exceeded(
            "proposed, and not committed in time",
        )),
        _ => done(call),
    })
    .await;
    let client = client(&[&address], 0);
    let answer = client.join_node(join()).await.unwrap();
    assert_eq!(answer.change_id, 3);
    let ids = admin.ids.lock().unwrap().clone();
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[0].len(), 16);
    assert!(ids.iter().all(|id| *id == ids[0]));
    // The next one is another.
    client.join_node(join()).await.unwrap();
    assert_ne!(admin.ids.lock().unwrap()[3], ids[0]);
    // A caller's own id stays.
    let own = client.request_id();
    client
        .join_node(v1::JoinNodeRequest {
            request_id: own.clone(),
            ..join()
        })
        .await
        .unwrap();
    assert_eq!(admin.ids.lock().unwrap()[4], own);
}

#[tokio::test]
async fn a_mutation_that_stays_open_is_unknown_even_if_the_last_server_was_down() {
    let (admin, address, server) =
        Admin::start(|_| Err(Status::deadline_exceeded("proposed, and not committed"))).await;
    let nobody = nobody();
    let client =
        client(&[&address, nobody.endpoint()], 0).with_deadline(Duration::from_millis(500));
    let call = tokio::spawn(async move { client.join_node(join()).await });
    until("it was proposed", || admin.calls() > 0).await;
    server.abort();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, AdminError::Unknown { .. }), "{error:?}");
}

#[tokio::test]
async fn a_refusal_is_final_and_keeps_its_name() {
    let (admin, address, _server) = Admin::start(|_| {
        let cause = v1::Refused {
            name: "NotRegistered".into(),
            message: "node d never said hello; start its agent first".into(),
        };
        let details = cause.encode_to_vec().into();
        Err(Status::with_details(
            Code::FailedPrecondition,
            "refused",
            details,
        ))
    })
    .await;
    let error = client(&[&address, NOBODY], 0)
        .join_node(join())
        .await
        .unwrap_err();
    let AdminError::Refused { name, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(name, "NotRegistered");
    assert!(error.to_string().contains("start its agent first"));
    assert_eq!(admin.calls(), 1);
}

#[tokio::test]
async fn a_cluster_that_no_server_belongs_to_is_told_at_once_and_by_name() {
    let not_yet = || {
        let (name, message) = ("NotInitialised".into(), "run `annulus cluster init`".into());
        let details = v1::Refused { name, message }.encode_to_vec().into();
        Err(Status::with_details(
            Code::Unavailable,
            "not initialised",
            details,
        ))
    };
    // One that does not know may be one that was not told: another does.
    let (_, ignorant, _one) = Admin::start(move |_| not_yet()).await;
    let (_, knowing, _two) = Admin::start(done).await;
    client(&[&ignorant, &knowing], 0)
        .join_node(join())
        .await
        .unwrap();
    // Nobody knows of a cluster: each is asked once.
    let (admin, address, _three) = Admin::start(move |_| not_yet()).await;
    let patient = client(&[&address], 0).with_deadline(Duration::from_secs(600));
    let error = patient.join_node(join()).await.unwrap_err();
    let AdminError::Refused { name, message } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (&**name, &**message),
        ("NotInitialised", "run `annulus cluster init`")
    );
    assert_eq!(admin.calls(), 1);
}

#[tokio::test]
async fn init_is_asked_of_one_server_only() {
    let (slow, slow_at, _one) =
        Admin::start(|_| Err(Status::deadline_exceeded("voters did not answer"))).await;
    let dead = nobody();
    let servers = || [(1, "127.0.0.1:7000".parse().unwrap())];
    for seed in 0..4 {
        let client = client(&[dead.endpoint(), &slow_at], seed);
        let error = client.init_cluster(servers()).await.unwrap_err();
        assert!(matches!(error, AdminError::Unknown { .. }), "{error:?}");
    }
    assert_eq!(slow.calls(), 4);
    let (_, good, _two) = Admin::start(done).await;
    for seed in 0..4 {
        let id = client(&[dead.endpoint(), &good], seed)
            .init_cluster(servers())
            .await
            .unwrap();
        assert_eq!(id.0, u128::from_be_bytes([7; 16]));
    }
}

#[tokio::test]
async fn a_snapshot_is_verified_before_it_is_believed() {
    let ring = RingName::new(RING).unwrap();
    let (_, good, _one) = Admin::start(done).await;
    let snapshot = client(&[&good], 0)
        .snapshot(&ring, None, Read::Local)
        .await
        .unwrap();
    assert_eq!(snapshot.epoch, Epoch(3));
    let (_, damage, word) = damaged(3).remove(0);
    let (_, bad, _two) = Admin::serve(done, damage).await;
    let error = client(&[&bad], 0)
        .snapshot(&ring, None, Read::Local)
        .await
        .unwrap_err();
    assert!(matches!(error, AdminError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains(word), "{error}");
}
