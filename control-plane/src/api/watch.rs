//! Watch streams: from this server's applied state, never an epoch at or below the reader's.
//!
//! ```text
//!   reader has (g, e)   newest here (g, n)
//!   e < n               Full(n) at once, then every newer one
//!   e = n, or nothing   wait; Progress every 5 s
//!   e > n               wait; after 5 s Bye(AHEAD)
//!   no leader for 5 s   Bye(BEHIND), after the newest that is known here
//! ```
//!
//! The stream is pulled: it looks at the newest bytes whenever the transport has room. A slow
//! reader skips epochs and holds up nobody (BOUNDED).

use std::{pin::Pin, sync::Arc};

use annulus_membership::Rejection;
use annulus_proto::{
    convert::{self, EpochRef, MAX_WATCHER_BYTES},
    v1::{self, bye::Reason, watch_event::Event},
};
use annulus_ring::{Epoch, Generation, RingName};
use futures::{Stream, stream};
use tokio::{sync::watch::Receiver, time::Instant};
use tonic::{Request, Response, Status};

use super::{
    pass_on::{Call, explain},
    status::ApiError,
};
use crate::{
    config::ms,
    context::Context,
    metrics::StreamGauge,
    publish::{hub::Published, watchers::Registered},
};

/// The service; every server answers it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) context: Arc<Context>,
}

type Events = Pin<Box<dyn Stream<Item = Result<v1::WatchEvent, Status>> + Send>>;

impl Watch {
    async fn open(&self, request: Request<v1::WatchRequest>) -> Result<Events, ApiError> {
        let call = Call::of(&self.context, &request);
        let remote = request.remote_addr();
        let request = request.into_inner();
        let ring = convert::ring_name("ring", &request.ring)?;
        let text = text_of(request.watcher)?;
        let have = request.have.map(EpochRef::try_from).transpose()?;
        let newest = self.subscribe(call, &ring).await?;
        if let Some(have) = have {
            self.look_for_fork(&ring, &text, have);
        }
        let limit = self.context.config.limits.watch_streams.get();
        let registered = self
            .context
            .watchers
            .enter(limit, ring.clone(), text, remote)
            .ok_or(ApiError::TooManyStreams { limit })?;
        let now = Instant::now();
        let reader = Reader {
            have: have.map_or_else(Default::default, |have| (have.generation, have.epoch)),
            give_up_ahead: now + ms(self.context.config.watch.ahead_ms),
            next_progress: now + ms(self.context.config.watch.progress_ms),
            newest,
            ended: false,
            _registered: registered,
            _gauge: self.context.metrics.stream_opened(&ring),
            ring,
            context: Arc::clone(&self.context),
        };
        Ok(Box::pin(stream::unfold(reader, Reader::next)))
    }

    /// The ring's newest bytes. A ring that is not known here may only be not applied here yet.
    async fn subscribe(
        &self,
        call: Call,
        ring: &RingName,
    ) -> Result<Receiver<Arc<Published>>, ApiError> {
        if let Some(newest) = self.context.hub.subscribe(ring) {
            return Ok(newest);
        }
        if let Err(error) = self.context.node.linearize(call.patience()).await {
            return Err(explain(&self.context, error.into()).await);
        }
        let unknown = || Rejection::UnknownRing { ring: ring.clone() }.into();
        self.context.hub.subscribe(ring).ok_or_else(unknown)
    }

    /// Whether this server keeps the reader's epoch under another checksum. EPOCH-UNIQUE says
    /// that this cannot be; if it is, somebody must know at once.
    fn look_for_fork(&self, ring: &RingName, watcher: &str, at: EpochRef) -> bool {
        let kept = self
            .context
            .node
            .shared()
            .read(|_, shelf| shelf.epochs(ring));
        let other = kept.into_iter().find(|(generation, epoch, checksum)| {
            (*generation, *epoch) == (at.generation, at.epoch) && *checksum != at.checksum
        });
        let Some((_, epoch, checksum)) = other else {
            return false;
        };
        self.context.metrics.forks.inc();
        tracing::error!(
            %ring, %epoch, watcher, kept = %checksum, reported = %at.checksum,
            "FORK: a watcher holds another snapshot under the same epoch"
        );
        true
    }
}

fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Unspecified => "none",
        Reason::Shutdown => "this server stops",
        Reason::Behind => "this server hears no leader",
        Reason::UnknownRing => "the ring is not known here",
        Reason::Ahead => "the reader is ahead of this server",
    }
}

fn text_of(watcher: String) -> Result<String, ApiError> {
    if watcher.len() > MAX_WATCHER_BYTES {
        let found = watcher.len();
        let reason = format!("{found} bytes, at most {MAX_WATCHER_BYTES} are possible");
        return Err(ApiError::field("watcher", reason));
    }
    if watcher.chars().any(char::is_control) {
        return Err(ApiError::field("watcher", "has control characters"));
    }
    Ok(watcher)
}

/// One stream's place.
struct Reader {
    context: Arc<Context>,
    ring: RingName,
    newest: Receiver<Arc<Published>>,
    have: (Generation, Epoch),
    give_up_ahead: Instant,
    next_progress: Instant,
    ended: bool,
    _registered: Registered,
    _gauge: StreamGauge,
}

impl Reader {
    /// The next event, and the reader after it; none once a Bye was given.
    async fn next(mut self) -> Option<(Result<v1::WatchEvent, Status>, Self)> {
        if self.ended {
            return None;
        }
        let event = self.event().await;
        self.ended = matches!(event, Event::Bye(_));
        Some((Ok(v1::WatchEvent { event: Some(event) }), self))
    }

    async fn event(&mut self) -> Event {
        let bound = ms(self.context.config.watch.behind_ms);
        loop {
            let newest = Arc::clone(&self.newest.borrow_and_update());
            // WATCH-MONOTONE: strictly newer than what the reader has, or nothing.
            if newest.place() > self.have {
                self.have = newest.place();
                self.context.metrics.sent(&self.ring, newest.size());
                return Event::Full(newest.bytes.clone());
            }
            let ahead = self.have > newest.place();
            let behind = self.context.behind();
            if behind > bound {
                return self.bye(Reason::Behind);
            }
            let stop = self.context.stop.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.bye(Reason::Shutdown),
                changed = self.newest.changed() => if changed.is_err() {
                    return self.bye(Reason::Shutdown);
                },
                () = tokio::time::sleep_until(self.give_up_ahead), if ahead => {
                    return self.bye(Reason::Ahead);
                }
                () = tokio::time::sleep_until(self.next_progress) => {
                    self.next_progress =
                        Instant::now() + ms(self.context.config.watch.progress_ms);
                    return Event::Progress(v1::Progress {
                        generation: newest.generation.0,
                        epoch: newest.epoch.0,
                        behind_ms: self.context.behind_ms(),
                    });
                }
                // Looks again when the bound could be reached at the earliest.
                () = tokio::time::sleep(bound - behind + std::time::Duration::from_millis(1)) => {}
            }
        }
    }

    fn bye(&self, reason: Reason) -> Event {
        tracing::info!(
            ring = %self.ring, epoch = %self.have.1, reason = words(reason),
            "watch stream ends"
        );
        Event::Bye(v1::Bye {
            reason: reason.into(),
            try_endpoints: self.context.other_endpoints(),
        })
    }
}

#[tonic::async_trait]
impl v1::watch_server::Watch for Watch {
    type WatchStream = Events;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Events>, Status> {
        Ok(Response::new(self.open(request).await?))
    }

    async fn report_applied(
        &self,
        request: Request<v1::ReportAppliedRequest>,
    ) -> Result<Response<v1::ReportAppliedResponse>, Status> {
        let remote = request.remote_addr();
        let request = request.into_inner();
        let ring = convert::ring_name("ring", &request.ring).map_err(ApiError::from)?;
        let text = text_of(request.watcher)?;
        let applied = convert::required("applied", request.applied).map_err(ApiError::from)?;
        let applied = EpochRef::try_from(applied).map_err(ApiError::from)?;
        self.context
            .watchers
            .applied(&ring, &text, remote, applied.epoch);
        let fork = self.look_for_fork(&ring, &text, applied);
        Ok(Response::new(v1::ReportAppliedResponse { fork }))
    }
}
