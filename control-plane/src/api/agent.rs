//! Data nodes' links: one stream each, at the leader only.
//!
//! ```text
//!   Hello  -->  greeting: register, move, or refuse
//!          <--  Welcome, View, Directive
//!   Renew  -->  every second          <--  RenewAck
//!   Report -->  what became durable   <--  View on each epoch, Directive when it changes
//!          <--  LeaderAt, when leadership is lost
//! ```
//!
//! What is to be sent is looked up when the transport has room: the newest view and the whole
//! wanted set, so a slow agent skips, and no queue grows (BOUNDED).

use std::{sync::Arc, time::Duration};

use annulus_membership::{Boot, Hello as Greeted, Registration, Rejection};
use annulus_proto::{
    convert::{self, Hello},
    v1::{self, from_agent, to_agent},
};
use annulus_ring::{Epoch, Incarnation, NodeId, RingName, Slot};
use tokio::{
    sync::{mpsc, watch::Receiver},
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{
    pass_on::{Call, explain},
    reports,
    status::{ApiError, cause},
};
use crate::{
    config::ms,
    context::Context,
    greeting::{self, GreetError},
    links::{Link as Entered, LinkError},
    publish::hub::Published,
};

/// The service; servers that do not lead answer where the leader is.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) context: Arc<Context>,
}

/// How long an agent may take to say Hello, and to take our last word.
const HELLO: Duration = Duration::from_secs(5);
/// How long leadership may take to be confirmed.
const CONFIRM: Duration = Duration::from_secs(2);
/// How long a new leader may take to open its books.
const OPENING: Duration = Duration::from_secs(1);

type Out = mpsc::Sender<Result<v1::ToAgent, Status>>;

/// How a link ends.
enum End {
    /// The agent went, or fell silent.
    Gone,
    /// Ask there.
    Leader,
    /// Not like this.
    Refused(v1::LinkRefused),
}

impl End {
    fn refused(error: ApiError, last: bool) -> Self {
        let status = Status::from(error);
        let name = cause(&status)
            .map(|refused| refused.name)
            .unwrap_or_default();
        Self::Refused(v1::LinkRefused {
            name,
            message: status.message().to_owned(),
            r#final: last,
        })
    }
}

impl From<GreetError> for End {
    fn from(error: GreetError) -> Self {
        match error {
            // A ring may be created yet.
            GreetError::Refused(rejection @ Rejection::UnknownRing { .. }) => {
                Self::refused(rejection.into(), false)
            }
            GreetError::Refused(rejection) => Self::refused(rejection.into(), true),
            GreetError::Unavailable(error) => {
                tracing::warn!(%error, "a greeting could not be recorded");
                Self::Leader
            }
        }
    }
}

async fn serve(context: Arc<Context>, inbound: Streaming<v1::FromAgent>, out: Out) {
    let message = match talk(&context, inbound, &out).await {
        End::Gone => return,
        End::Leader => {
            let leader = context.node.standing().leader;
            let endpoint = leader.map(|leader| leader.endpoint).unwrap_or_default();
            to_agent::Message::Leader(v1::LeaderAt { endpoint })
        }
        End::Refused(refused) => {
            tracing::warn!(
                name = refused.name,
                reason = refused.message,
                "link refused"
            );
            context.metrics.links_refused.inc();
            to_agent::Message::Refused(refused)
        }
    };
    let last = v1::ToAgent {
        message: Some(message),
    };
    // An agent that does not read is let go without a word.
    let _ = tokio::time::timeout(HELLO, out.send(Ok(last))).await;
}

async fn talk(context: &Arc<Context>, mut inbound: Streaming<v1::FromAgent>, out: &Out) -> End {
    let first = tokio::select! {
        biased;
        () = context.stop.cancelled() => return End::Leader,
        first = tokio::time::timeout(HELLO, inbound.message()) => first,
    };
    let hello = match first {
        Ok(Ok(Some(v1::FromAgent {
            message: Some(from_agent::Message::Hello(hello)),
        }))) => hello,
        Ok(Ok(Some(_))) => {
            let error = ApiError::field("message", "the first one on a link is a Hello");
            return End::refused(error, true);
        }
        Ok(Ok(None) | Err(_)) | Err(_) => return End::Gone,
    };
    let hello = match Hello::try_from(hello) {
        Ok(hello) => hello,
        Err(error) => return End::refused(error.into(), true),
    };
    match open(context, &hello).await {
        Ok((entered, incarnation, discard)) => {
            let welcome = welcome(context, incarnation, discard);
            if out.send(Ok(welcome)).await.is_err() {
                return End::Gone;
            }
            if discard {
                return End::Gone;
            }
            let Some(snapshots) = context.hub.subscribe(&hello.ring) else {
                return End::Leader;
            };
            let session = Session {
                context: Arc::clone(context),
                heard: Instant::now(),
                entered,
                hello,
                view_due: true,
                viewed: Epoch(0),
                directive_due: true,
                directed: None,
                ack_due: None,
            };
            session.run(inbound, out, snapshots).await
        }
        Err(end) => end,
    }
}

/// Confirms the leadership, keeps the agent's place, and greets it.
async fn open(context: &Arc<Context>, hello: &Hello) -> Result<(Entered, Incarnation, bool), End> {
    if !context.node.standing().is_leader() {
        return Err(End::Leader);
    }
    // A greeting is judged by all that was committed, or a fresh leader would register twice.
    context
        .node
        .linearize(CONFIRM)
        .await
        .map_err(|_| End::Leader)?;
    let entered = enter(context, hello).await?;
    let registration = Registration {
        node: hello.node_id.clone(),
        birth: annulus_membership::Birth(hello.birth),
        endpoint: hello.endpoint.clone(),
        zone: hello.zone.clone(),
        weight: hello.weight,
    };
    let greeted = Greeted {
        registration,
        incarnation: hello.incarnation,
        empty: hello.empty,
    };
    let welcome = greeting::greet(context, &hello.ring, &greeted).await?;
    let now_ms = context.clock.now_ms();
    if !welcome.discard
        && !entered.welcome(
            welcome.incarnation,
            hello.empty,
            hello.adopted_epoch,
            now_ms,
        )
    {
        return Err(End::Leader);
    }
    tracing::info!(
        ring = %hello.ring, node = %hello.node_id, incarnation = %welcome.incarnation,
        endpoint = %hello.endpoint, empty = hello.empty, adopted = %hello.adopted_epoch,
        discard = welcome.discard, "agent is linked"
    );
    Ok((entered, welcome.incarnation, welcome.discard))
}

async fn enter(context: &Arc<Context>, hello: &Hello) -> Result<Entered, End> {
    let (ring, node) = (&hello.ring, &hello.node_id);
    let known = context
        .node
        .shared()
        .read(|state, _| state.rings.contains_key(ring));
    if !known {
        let rejection = Rejection::UnknownRing { ring: ring.clone() };
        return Err(End::refused(rejection.into(), false));
    }
    let patience = Instant::now() + OPENING;
    let mut looks = context.links.looks();
    loop {
        let standing = context.node.standing();
        if !standing.is_leader() {
            return Err(End::Leader);
        }
        let now_ms = context.clock.now_ms();
        let boot = Boot(hello.boot);
        match context
            .links
            .enter(standing.term, ring, node, boot, &hello.endpoint, now_ms)
        {
            Ok(entered) => return Ok(entered),
            Err(error @ LinkError::SecondProcess { .. }) => {
                return Err(End::Refused(v1::LinkRefused {
                    name: "SecondProcess".to_owned(),
                    message: error.to_string(),
                    // The first may be the dead one, whose link has not fallen silent yet.
                    r#final: false,
                }));
            }
            // The driver opens the books of a new term when it learns of it.
            Err(LinkError::NotLeading) => {
                let woken = tokio::time::timeout_at(patience, looks.changed()).await;
                if !matches!(woken, Ok(Ok(()))) {
                    return Err(End::Leader);
                }
            }
        }
    }
}

fn welcome(context: &Context, incarnation: Incarnation, discard: bool) -> v1::ToAgent {
    let cluster_id = context.node.shared().read(|state, _| state.cluster_id);
    let welcome = v1::Welcome {
        cluster_id: cluster_id
            .map(|id| convert::id128_bytes(id.0))
            .unwrap_or_default(),
        incarnation: incarnation.0,
        discard,
    };
    v1::ToAgent {
        message: Some(to_agent::Message::Welcome(welcome)),
    }
}

/// A welcomed agent's link.
struct Session {
    context: Arc<Context>,
    entered: Entered,
    hello: Hello,
    heard: Instant,
    view_due: bool,
    /// Epoch of the last view sent.
    viewed: Epoch,
    directive_due: bool,
    /// The last directive sent.
    directed: Option<v1::Directive>,
    ack_due: Option<u64>,
}

impl Session {
    async fn run(
        mut self,
        mut inbound: Streaming<v1::FromAgent>,
        out: &Out,
        mut snapshots: Receiver<Arc<Published>>,
    ) -> End {
        let silent = ms(self.context.config.link.silent_ms);
        let mut looks = self.context.links.looks();
        let stop = self.context.stop.clone();
        let cut = self.entered.cut.clone();
        loop {
            let due = self.view_due || self.directive_due || self.ack_due.is_some();
            tokio::select! {
                biased;
                () = stop.cancelled() => return End::Leader,
                () = cut.cancelled() => return End::Leader,
                changed = snapshots.changed() => match changed {
                    Ok(()) => self.view_due = true,
                    Err(_) => return End::Leader,
                },
                room = out.reserve(), if due => match room {
                    Ok(room) => {
                        if let Some(message) = self.next_message() {
                            room.send(Ok(v1::ToAgent { message: Some(message) }));
                        }
                    }
                    Err(_) => return End::Gone,
                },
                looked = looks.changed() => match looked {
                    Ok(()) => self.directive_due = true,
                    Err(_) => return End::Leader,
                },
                message = inbound.message() => match message {
                    Ok(Some(message)) => if let Some(end) = self.take(message) {
                        return end;
                    },
                    Ok(None) | Err(_) => return End::Gone,
                },
                () = tokio::time::sleep_until(self.heard + silent) => {
                    tracing::warn!(
                        ring = %self.hello.ring, node = %self.hello.node_id,
                        "link is closed: the agent fell silent"
                    );
                    return End::Gone;
                }
            }
        }
    }

    /// What is most due, if it still is.
    fn next_message(&mut self) -> Option<to_agent::Message> {
        if let Some(seq) = self.ack_due.take() {
            return Some(to_agent::Message::RenewAck(v1::RenewAck { seq }));
        }
        if !self.view_due {
            // A directive speaks about the view that the agent has, never about a newer one.
            let newest = self.context.epoch(&self.hello.ring);
            self.view_due = newest.is_some_and(|newest| newest > self.viewed);
        }
        if std::mem::take(&mut self.view_due) {
            let (epoch, view) = self.view()?;
            if epoch > self.viewed {
                self.viewed = epoch;
                self.directive_due = true;
                return Some(to_agent::Message::View(view));
            }
        }
        if std::mem::take(&mut self.directive_due) {
            let (epoch, directive) = self.directive()?;
            if epoch > self.viewed {
                // An epoch came in between: its view goes first.
                self.view_due = true;
                self.directive_due = true;
                return None;
            }
            if self.directed.as_ref() != Some(&directive) {
                self.directed = Some(directive.clone());
                return Some(to_agent::Message::Directive(directive));
            }
        }
        None
    }

    /// Snapshot, reigns and last changes of one moment.
    fn view(&self) -> Option<(Epoch, v1::View)> {
        let ring = &self.hello.ring;
        self.context.node.shared().read(|state, shelf| {
            let known = state.rings.get(ring)?;
            let numbers = |epochs: &[Epoch]| epochs.iter().map(|epoch| epoch.0).collect();
            let view = v1::View {
                snapshot: Some(shelf.get(ring, known.epoch)?),
                reigns: numbers(&known.reigns),
                last_changes: numbers(&known.last_changes),
                terms: Some(v1::RingTerms {
                    kind: known.config.kind.to_string(),
                    copies: !known.config.is_cache() || !known.config.warm_up.is_none(),
                    serves_when_isolated: known.config.serve_when_isolated,
                }),
                converting: known.conversion.is_some(),
                converted_epoch: known.converted.0,
            };
            Some((known.epoch, view))
        })
    }

    fn directive(&self) -> Option<(Epoch, v1::Directive)> {
        let ring = &self.hello.ring;
        self.context.node.shared().read(|state, _| {
            let known = state.rings.get(ring)?;
            let directive = self.context.links.while_leading(ring, |reports| {
                let node = &self.hello.node_id;
                Some(annulus_membership::directive(state, known, reports?, node))
            })?;
            Some((known.epoch, reports::directive(directive, known.epoch)))
        })
    }

    /// Takes one message in; the end, if it ends the link.
    fn take(&mut self, message: v1::FromAgent) -> Option<End> {
        self.heard = Instant::now();
        if self.is_taken_for_dead() {
            let node = self.hello.node_id.clone();
            return Some(End::refused(Rejection::TakenForDead { node }.into(), false));
        }
        let now_ms = self.context.clock.now_ms();
        let stands = match message.message {
            Some(from_agent::Message::Renew(renew)) => {
                self.ack_due = Some(renew.seq);
                self.entered.renew(now_ms)
            }
            Some(from_agent::Message::Report(report)) => match self.decode(report) {
                Ok(report) => {
                    self.context.metrics.reports.inc();
                    self.entered.report(report, now_ms)
                }
                Err(error) => return Some(End::refused(error, true)),
            },
            Some(from_agent::Message::Hello(_)) | None => {
                let reason = "a Hello is only the first one on a link";
                return Some(End::refused(ApiError::field("message", reason), true));
            }
        };
        (!stands).then_some(End::Leader)
    }

    /// An operator said so while this link was open.
    fn is_taken_for_dead(&self) -> bool {
        let (ring, node) = (&self.hello.ring, &self.hello.node_id);
        self.context.node.shared().read(|state, _| {
            let known = state.rings.get(ring);
            known.is_some_and(|known| known.buried(node))
        })
    }

    fn decode(&self, report: v1::Report) -> Result<annulus_membership::Report, ApiError> {
        let (ring, node) = (&self.hello.ring, &self.hello.node_id);
        self.context.node.shared().read(|state, _| {
            let known = state.rings.get(ring);
            let known = known.ok_or_else(|| Rejection::UnknownRing { ring: ring.clone() })?;
            reports::report(known, node, report)
        })
    }
}

#[tonic::async_trait]
impl v1::link_server::Link for Link {
    type OpenStream = ReceiverStream<Result<v1::ToAgent, Status>>;

    async fn open(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<Self::OpenStream>, Status> {
        let (out, messages) = mpsc::channel(2);
        tokio::spawn(serve(Arc::clone(&self.context), request.into_inner(), out));
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn confirm_permit(
        &self,
        request: Request<v1::ConfirmPermitRequest>,
    ) -> Result<Response<v1::ConfirmPermitResponse>, Status> {
        let call = Call::of(&self.context, &request);
        let answer = self.confirm(call, request.into_inner()).await?;
        Ok(Response::new(answer))
    }
}

impl Link {
    /// Which of the asked copies may be deleted, by all that is committed (LAST-COPY).
    async fn confirm(
        &self,
        call: Call,
        request: v1::ConfirmPermitRequest,
    ) -> Result<v1::ConfirmPermitResponse, ApiError> {
        let ring: RingName = convert::ring_name("ring", &request.ring)?;
        let node: NodeId = convert::node_id("node_id", &request.node_id)?;
        let copies = convert::required("copies", request.copies)?;
        let (session, slots) = convert::slot_set(&copies)?;
        if let Err(error) = self.context.node.linearize(call.patience()).await {
            return Err(explain(&self.context, error.into()).await);
        }
        self.context.node.shared().read(|state, _| {
            let known = state.rings.get(&ring);
            let known = known.ok_or_else(|| Rejection::UnknownRing { ring: ring.clone() })?;
            let kept = known.retained.iter().filter(|kept| {
                known.converted == Epoch(request.converted_epoch)
                    && kept.node == node
                    && kept.incarnation == Incarnation(request.incarnation)
                    && kept.session == session
            });
            let mut stands: Vec<u32> = kept
                .flat_map(|kept| &kept.permitted)
                .filter(|slot: &&Slot| slots.binary_search(slot).is_ok())
                .map(|slot| slot.0)
                .collect();
            stands.sort_unstable();
            Ok(v1::ConfirmPermitResponse { slots: stands })
        })
    }
}
