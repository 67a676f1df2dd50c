//! The one link to the leader: Hello, renewals and reports out; views and directives in.
//!
//! Nothing of the data path waits for it. Without a control plane the agent goes on obeying the
//! last view; when a leader is back, it is told everything anew.

use std::{sync::Arc, time::Duration};

use annulus_proto::{
    MAX_MESSAGE_BYTES, convert,
    snapshot::DecodeError,
    v1::{self, from_agent, link_client::LinkClient, to_agent},
};
use annulus_ring::{Checksum, ClusterId, Endpoint, Epoch, Generation, Incarnation};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{debug, error, info, warn};

use crate::{
    adopt::{Order, StepError},
    plan::Held,
    shared::{Leader, Pauses, Shared},
    wire::{self, Directive, View, WireError},
};

/// Pauses between tries, when nobody leads or nobody answers.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Pauses after a refusal that somebody must act on first.
const REFUSED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// The refusal of a node whose life in the ring has ended as it should.
const LIFE_IS_OVER: &str = "RemovedIncarnation";
/// Pause after it: only a restored backup could change the answer.
const OVER: Duration = Duration::from_secs(60);
/// Hints to another server followed in a row without a pause.
const HOPS: u32 = 3;

pub(crate) struct Link {
    shared: Arc<Shared>,
    views: watch::Sender<Option<View>>,
    directives: watch::Sender<Option<Arc<Directive>>>,
    orders: mpsc::Sender<Order>,
    /// Drawn at each start: tells two processes of one directory apart.
    boot: u128,
    held: Option<(Generation, Epoch, Checksum)>,
}

/// How a try at a link ended.
enum End {
    /// Say Hello again at once.
    Again,
    /// Another server leads, or none that is known.
    LeaderAt(Option<Endpoint>),
    /// The control plane will not have this node.
    Refused {
        name: String,
        message: String,
        last: bool,
    },
}

/// Why a link ended that should not have.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Dial(#[from] annulus_client::DialError),
    #[error("{code:?}: {message}")]
    Status { code: tonic::Code, message: String },
    #[error("the server ended the link")]
    Ended,
    #[error("nothing was heard for {0:?}")]
    Silence(Duration),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(
        "cluster {found} answered, this directory belongs to cluster {expected}; check the endpoints"
    )]
    Cluster {
        found: ClusterId,
        expected: ClusterId,
    },
    #[error("the agent stops")]
    Stopping,
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        Self::Status {
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

impl Link {
    pub(crate) fn new(
        shared: Arc<Shared>,
        views: watch::Sender<Option<View>>,
        directives: watch::Sender<Option<Arc<Directive>>>,
        orders: mpsc::Sender<Order>,
    ) -> Self {
        Self {
            shared,
            views,
            directives,
            orders,
            boot: rand::random(),
            held: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let _stopped = stop.run_until_cancelled(self.keep()).await;
        self.unlinked();
    }

    async fn keep(&mut self) {
        let mut turn = fastrand::usize(..self.shared.config.control.len());
        let mut hint = None;
        let mut hops = 0;
        let mut retry = Pauses::new(RETRY.0, RETRY.1);
        let mut refused = Pauses::new(REFUSED.0, REFUSED.1);
        let mut told = false;
        loop {
            let hinted = hint.take();
            let endpoint: Endpoint = hinted.unwrap_or_else(|| {
                turn = (turn + 1) % self.shared.config.control.len();
                self.shared.config.control[turn].clone()
            });
            let mut welcomed = false;
            let ended = self.once(&endpoint, &mut welcomed).await;
            self.unlinked();
            if welcomed {
                retry.reset();
                refused.reset();
                hops = 0;
            }
            let epoch = self.shared.guard.view().epoch();
            let pause = match ended {
                Ok(End::Again) => Duration::ZERO,
                Ok(End::LeaderAt(Some(leader))) if hops < HOPS => {
                    hops += 1;
                    hint = Some(leader);
                    Duration::ZERO
                }
                Ok(End::LeaderAt(_)) => {
                    hops = 0;
                    debug!(%endpoint, %epoch, "no leader is known there");
                    retry.next()
                }
                Ok(End::Refused {
                    name,
                    message,
                    last,
                }) => {
                    if name == SECOND_PROCESS && self.order(Order::StandAside).await.is_ok() {
                        // Two under one name would both be owner (ONE-OWNER).
                        warn!(%endpoint, %epoch, "another process has this node's place; this one serves nothing");
                    }
                    let over = name == LIFE_IS_OVER;
                    let pause = match (over, last) {
                        (true, _) => OVER,
                        (false, true) => refused.next(),
                        (false, false) => retry.next(),
                    };
                    if !over {
                        warn!(%endpoint, %epoch, name, message, "the control plane refused this node");
                    } else if !told {
                        // Nothing is wrong, and nothing will come of asking again.
                        info!(
                            node = %self.shared.config.node_id, %epoch,
                            "drained and removed; this process can be stopped. To join again, start \
                             it with an empty directory"
                        );
                        told = true;
                    }
                    self.shared.status.send_modify(|status| {
                        status.refused = Some(format!("{name}: {message}"));
                    });
                    pause
                }
                Err(error) => {
                    if welcomed {
                        info!(%error, %endpoint, %epoch, "the link to the leader broke; going on without");
                    } else {
                        debug!(%error, %endpoint, %epoch, "no link there");
                    }
                    retry.next()
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn unlinked(&self) {
        self.shared.leader.send_replace(None);
        self.shared.metrics.linked.set(0);
        self.shared
            .status
            .send_if_modified(|status| status.linked_to.take().is_some());
    }

    async fn hello(&self) -> Result<v1::Hello, LinkError> {
        let known = self.shared.identity.get();
        let config = &self.shared.config;
        let holdings = self.shared.store.call(|store| store.holdings()).await;
        let held = Held::from(holdings.map_err(StepError::from)?);
        // The first report lists them: a copy that it leaves out counts as deleted.
        self.shared.board.retained(held.retained.clone());
        let hello = convert::Hello {
            ring: config.ring.clone(),
            node_id: config.node_id.clone(),
            birth: known.birth,
            incarnation: known.incarnation,
            boot: self.boot,
            endpoint: config.endpoint.clone(),
            zone: config.zone.clone(),
            weight: config.weight,
            empty: !known.held && held.nothing(),
            adopted_epoch: known.adopted,
        };
        Ok(hello.into())
    }

    /// One link, from dialling to its end.
    async fn once(&mut self, endpoint: &Endpoint, welcomed: &mut bool) -> Result<End, LinkError> {
        let silence = self.shared.config.silence;
        let channel = self.shared.config.dial.channel(endpoint)?;
        let (out, outgoing) = mpsc::channel(16);
        let hello = from_agent::Message::Hello(self.hello().await?);
        send(&out, hello).await?;
        let mut client = LinkClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let open = timeout(silence, client.open(ReceiverStream::new(outgoing))).await;
        let mut incoming = open.map_err(|_| LinkError::Silence(silence))??.into_inner();
        match self.first(&mut incoming).await? {
            First::Welcome(welcome) => {
                if self.welcome(welcome).await? {
                    return Ok(End::Again);
                }
            }
            First::End(end) => return Ok(end),
        }
        *welcomed = true;
        info!(%endpoint, epoch = %self.shared.guard.view().epoch(), "linked to the leader");
        self.shared.metrics.linked.set(1);
        self.shared.leader.send_replace(Some(Leader {
            endpoint: endpoint.clone(),
            channel,
        }));
        self.shared.status.send_modify(|status| {
            status.linked_to = Some(endpoint.clone());
            status.refused = None;
        });
        self.report(&out, true).await?;
        self.talk(&out, &mut incoming).await
    }

    async fn first(&self, incoming: &mut Streaming<v1::ToAgent>) -> Result<First, LinkError> {
        let silence = self.shared.config.silence;
        let deadline = Instant::now() + silence;
        loop {
            let message = tokio::time::timeout_at(deadline, incoming.message()).await;
            let message = message.map_err(|_| LinkError::Silence(silence))??;
            match message.ok_or(LinkError::Ended)?.message {
                Some(to_agent::Message::Welcome(welcome)) => return Ok(First::Welcome(welcome)),
                Some(to_agent::Message::Leader(leader)) => {
                    return Ok(First::End(leader_at(&leader)));
                }
                Some(to_agent::Message::Refused(refused)) => {
                    return Ok(First::End(refusal(refused)));
                }
                // Nothing that comes before the welcome is for this life.
                Some(_) | None => {}
            }
        }
    }

    /// Makes the welcome durable. Whether Hello must be said again, as another life.
    async fn welcome(&mut self, welcome: v1::Welcome) -> Result<bool, LinkError> {
        let found =
            convert::cluster_id("cluster_id", &welcome.cluster_id).map_err(WireError::from)?;
        let known = self.shared.identity.get();
        if let Some(expected) = known.cluster_id.filter(|expected| *expected != found) {
            error!(%found, %expected, "another cluster answered");
            return Err(LinkError::Cluster { found, expected });
        }
        if welcome.discard {
            let (answer, done) = oneshot::channel();
            self.order(Order::Discard(answer)).await?;
            done.await.map_err(|_| LinkError::Stopping)??;
            return Ok(true);
        }
        let incarnation = Incarnation(welcome.incarnation);
        if known.incarnation != incarnation || known.cluster_id.is_none() {
            let shared = self.shared.clone();
            let synced = tokio::task::spawn_blocking(move || {
                shared.identity.update(|known| {
                    known.incarnation = incarnation;
                    known.cluster_id = Some(found);
                })
            });
            synced
                .await
                .map_err(StepError::from)?
                .map_err(StepError::from)?;
            self.shared
                .status
                .send_modify(|status| status.incarnation = incarnation);
            info!(%incarnation, cluster = %found, "registered");
            self.order(Order::Welcomed).await?;
        }
        Ok(false)
    }

    async fn order(&self, order: Order) -> Result<(), LinkError> {
        self.orders
            .send(order)
            .await
            .map_err(|_| LinkError::Stopping)
    }

    async fn talk(
        &mut self,
        out: &mpsc::Sender<v1::FromAgent>,
        incoming: &mut Streaming<v1::ToAgent>,
    ) -> Result<End, LinkError> {
        let shared = self.shared.clone();
        let silence = shared.config.silence;
        let mut renew = tokio::time::interval(shared.config.renew);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seq = 0;
        let mut heard = Instant::now();
        let mut report_at: Option<Instant> = None;
        loop {
            let due = async {
                match report_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                message = incoming.message() => {
                    heard = Instant::now();
                    let message = message?.ok_or(LinkError::Ended)?;
                    if let Some(end) = self.hear(message)? {
                        return Ok(end);
                    }
                }
                () = shared.rejected.notified() => return Ok(End::Again),
                _ = renew.tick() => {
                    seq += 1;
                    send(out, from_agent::Message::Renew(v1::Renew { seq })).await?;
                }
                () = due => {
                    report_at = None;
                    self.report(out, false).await?;
                }
                may_wait = shared.board.changed(report_at.is_some()) => {
                    if may_wait {
                        report_at = Some(Instant::now() + shared.config.debounce);
                    } else {
                        // Not by way of the timer, which this news would set again and again.
                        report_at = None;
                        self.report(out, false).await?;
                    }
                }
                () = sleep_until(heard + silence) => return Err(LinkError::Silence(silence)),
            }
        }
    }

    /// Says what is new, or everything.
    async fn report(
        &self,
        out: &mpsc::Sender<v1::FromAgent>,
        everything: bool,
    ) -> Result<(), LinkError> {
        let news = self.shared.board.take(everything);
        send(out, from_agent::Message::Report(news.into())).await
    }

    fn hear(&mut self, message: v1::ToAgent) -> Result<Option<End>, LinkError> {
        match message.message {
            Some(to_agent::Message::View(view)) => self.view(&view)?,
            Some(to_agent::Message::Directive(directive)) => {
                let directive = Directive::try_from(directive)?;
                self.directives.send_replace(Some(Arc::new(directive)));
            }
            Some(to_agent::Message::Leader(leader)) => return Ok(Some(leader_at(&leader))),
            Some(to_agent::Message::Refused(refused)) => return Ok(Some(refusal(refused))),
            // An ack is a sign of life; that is all it is for.
            Some(to_agent::Message::RenewAck(_) | to_agent::Message::Welcome(_)) | None => {}
        }
        Ok(None)
    }

    fn view(&mut self, message: &v1::View) -> Result<(), LinkError> {
        let cluster = self.shared.identity.get().cluster_id;
        match wire::view(message, &self.shared.config.ring, cluster, self.held) {
            Ok(view) => {
                self.held = Some(view.held());
                self.views.send_replace(Some(view));
                Ok(())
            }
            // A new link begins with what is known already.
            Err(WireError::Decode(DecodeError::NotNewer { .. })) => Ok(()),
            Err(error) => {
                error!(%error, epoch = %self.shared.guard.view().epoch(), "a view was refused; the last good one stays");
                Err(error.into())
            }
        }
    }
}

/// The leader's name for a refusal because another process of this node is linked.
const SECOND_PROCESS: &str = "SecondProcess";

enum First {
    Welcome(v1::Welcome),
    End(End),
}

fn leader_at(leader: &v1::LeaderAt) -> End {
    End::LeaderAt(Endpoint::new(&leader.endpoint).ok())
}

fn refusal(refused: v1::LinkRefused) -> End {
    End::Refused {
        name: refused.name,
        message: refused.message,
        last: refused.r#final,
    }
}

async fn send(
    out: &mpsc::Sender<v1::FromAgent>,
    message: from_agent::Message,
) -> Result<(), LinkError> {
    let message = v1::FromAgent {
        message: Some(message),
    };
    out.send(message).await.map_err(|_| LinkError::Ended)
}
