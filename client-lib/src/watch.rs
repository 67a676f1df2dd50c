//! The task that keeps the newest snapshot held: one stream at a time, for ever.
//!
//! ```text
//!   pick an endpoint (random; those that failed lately last)
//!     -> Watch(ring, have = what is held)       bounded by the connect timeout
//!     -> Full: offer, keep on disk, report      any event counts as life
//!     -> silence, Bye, refusal, break           pause (full jitter), pick again
//! ```

use std::{collections::VecDeque, sync::Arc, time::Duration};

use annulus_proto::{MAX_MESSAGE_BYTES, v1};
use annulus_ring::{Endpoint, Epoch, Generation};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status as Answer, Streaming, transport::Channel};

use crate::{
    backoff::Backoff,
    chance::Chance,
    config::{Config, parse_endpoint},
    current::{Current, EpochRef},
    endpoints::Endpoints,
    status::Board,
};

mod report;

use report::{Reports, message};

/// Most endpoints taken from one Bye.
const MAX_HINTS: usize = 16;

type WatchClient = v1::watch_client::WatchClient<Channel>;

/// Everything the task owns or shares.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) config: Config,
    pub(crate) endpoints: Endpoints,
    pub(crate) current: Arc<Current>,
    pub(crate) board: Arc<Board>,
    pub(crate) chance: Arc<Chance>,
    /// The newest epoch that somebody wants; [`crate::Client::refresh`] raises it.
    pub(crate) wanted: watch::Receiver<Epoch>,
    /// Where accepted snapshots go to be kept on disk.
    pub(crate) keep: Option<watch::Sender<Option<(EpochRef, v1::SnapshotBytes)>>>,
}

/// Why a stream is over.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("cannot be dialled: {0}")]
    Dial(#[from] crate::dial::DialError),
    #[error("gave no answer within {0:?}")]
    NoAnswer(Duration),
    #[error("{}", explain(.0))]
    Broken(Answer),
    #[error("ended the stream")]
    Closed,
    #[error("was silent for {0:?}")]
    Silent(Duration),
    #[error("said bye: {}", bye(*.reason))]
    Bye {
        reason: v1::bye::Reason,
        hints: Vec<Endpoint>,
    },
    #[error("sent a snapshot that was refused")]
    Refused,
    #[error("sent a delta, which is not understood here")]
    Delta,
    #[error("has not got epoch {0}, which a node has")]
    Late(Epoch),
}

fn explain(answer: &Answer) -> String {
    crate::explain::status(answer)
}

fn bye(reason: v1::bye::Reason) -> &'static str {
    match reason {
        v1::bye::Reason::Unspecified => "no reason given",
        v1::bye::Reason::Shutdown => "it stops",
        v1::bye::Reason::Behind => "it has lost its leader",
        v1::bye::Reason::UnknownRing => {
            "the ring is not known there; `annulus ring list` shows all"
        }
        v1::bye::Reason::Ahead => "it has not reached our epoch yet",
    }
}

/// What one stream was good for.
#[derive(Debug, Default)]
struct Worth {
    spoke: bool,
    accepted: bool,
}

/// What survives from stream to stream.
#[derive(Debug)]
struct Memory {
    /// Asks for a full snapshot, whatever is held.
    without_base: bool,
    /// The wanted epoch for which the server was last changed, and when.
    chased: (Epoch, Option<Instant>),
}

impl Watcher {
    /// Runs until stopped; nothing else ends it.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.follow_for_ever() => {}
        }
    }

    async fn follow_for_ever(&mut self) {
        let mut backoff = Backoff::new(self.config.backoff_base, self.config.backoff_cap);
        let (mut queue, mut hints) = (VecDeque::new(), VecDeque::new());
        let mut memory = Memory {
            without_base: false,
            chased: (Epoch(0), None),
        };
        loop {
            let hinted = hints.pop_front();
            let by_hint = hinted.is_some();
            let endpoint = match hinted.or_else(|| queue.pop_front()) {
                Some(endpoint) => endpoint,
                None => {
                    queue = self.endpoints.order().into();
                    continue;
                }
            };
            let begun = Instant::now();
            let mut worth = Worth::default();
            let end = self.follow(&endpoint, &mut worth, &mut memory).await;
            self.note_end(&endpoint, &end);

            // A server that answers and sends nothing of use must not be asked ten times a
            // second: only use, or a long life, brings the pauses back to the base.
            let lived = worth.spoke && begun.elapsed() >= self.config.backoff_cap;
            let refused = matches!(end, End::Refused | End::Delta);
            if worth.accepted || (lived && !refused) {
                backoff.reset();
            }
            if worth.spoke {
                queue.clear();
                hints.clear();
            }
            // Hints of a hinted server are not followed: two that name each other would keep
            // everybody from the rest of the list.
            if let End::Bye { hints: given, .. } = end
                && !by_hint
            {
                hints = given.into();
            }
            sleep(backoff.next(&self.chance)).await;
        }
    }

    fn note_end(&self, endpoint: &Endpoint, end: &End) {
        self.endpoints.note_bad(endpoint);
        self.board.update(|status| {
            status.endpoint = None;
            if matches!(end, End::Silent(_)) {
                status.silent_count += 1;
            }
        });
        // A refusal already said what was wrong with the snapshot.
        if !matches!(end, End::Refused) {
            self.board.trouble(format!("{endpoint} {end}"));
        }
        let epoch = self.current.held().map_or(Epoch(0), |held| held.epoch);
        tracing::info!(ring = %self.current.ring(), %endpoint, %epoch, why = %end, "watch ended");
    }

    /// One stream, from dialling to its end.
    async fn follow(&mut self, endpoint: &Endpoint, worth: &mut Worth, memory: &mut Memory) -> End {
        let channel = match self.config.dial.channel(endpoint) {
            Ok(channel) => channel,
            Err(error) => return error.into(),
        };
        let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let held = self.current.held().filter(|_| !memory.without_base);
        let request = v1::WatchRequest {
            ring: self.current.ring().to_string(),
            have: held.map(message),
            watcher: self.config.name.clone(),
        };
        // A black hole behind a listening port connects and never answers: the same bound
        // holds for connecting and for the first answer together.
        let patience = self.config.dial.settings().connect_timeout;
        let stream = match timeout(patience, client.watch(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(answer)) => return End::Broken(answer),
            Err(_) => return End::NoAnswer(patience),
        };
        self.board.update(|status| {
            status.endpoint = Some(endpoint.clone());
            status.connect_count += 1;
        });
        tracing::info!(ring = %self.current.ring(), %endpoint, "watching");
        let reports = Reports {
            client,
            endpoint: endpoint.clone(),
            current: Arc::clone(&self.current),
            board: Arc::clone(&self.board),
            watcher: self.config.name.clone(),
            patience,
        };
        tokio::select! {
            biased;
            end = self.read(stream, endpoint, worth, memory) => end,
            never = reports.send() => match never {},
        }
    }

    async fn read(
        &mut self,
        mut stream: Streaming<v1::WatchEvent>,
        endpoint: &Endpoint,
        worth: &mut Worth,
        memory: &mut Memory,
    ) -> End {
        let silence = self.config.silence;
        let mut silent_at = Instant::now() + silence;
        let mut chase_at = self.chase_at(memory);
        loop {
            let event = tokio::select! {
                biased;
                event = timeout_at(silent_at, stream.message()) => event,
                Ok(()) = self.wanted.changed() => {
                    chase_at = chase_at.or_else(|| self.chase_at(memory));
                    continue;
                }
                () = until(chase_at) => {
                    chase_at = None;
                    let wanted = *self.wanted.borrow();
                    if self.lacks(wanted) {
                        memory.chased = (wanted, Some(Instant::now()));
                        return End::Late(wanted);
                    }
                    continue;
                }
            };
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return End::Closed,
                Ok(Err(answer)) => return End::Broken(answer),
                Err(_) => return End::Silent(silence),
            };
            silent_at = Instant::now() + silence;
            if !worth.spoke {
                worth.spoke = true;
                self.endpoints.note_good(endpoint);
            }
            if let Some(end) = self.take(event, endpoint, worth, memory) {
                return end;
            }
        }
    }

    /// When to look for another server, if an epoch is wanted that this one may not have. Each
    /// wanted epoch is chased once, and not more often than the interval: what a node claims
    /// costs at most that, even if it is nonsense.
    fn chase_at(&self, memory: &Memory) -> Option<Instant> {
        let wanted = *self.wanted.borrow();
        let (chased, last) = memory.chased;
        if wanted <= chased || !self.lacks(wanted) || self.endpoints.len() < 2 {
            return None;
        }
        let patient = Instant::now() + self.config.refresh_patience;
        let spaced = last.map(|last| last + self.config.refresh_interval);
        Some(spaced.map_or(patient, |spaced| spaced.max(patient)))
    }

    fn lacks(&self, wanted: Epoch) -> bool {
        self.current.held().is_none_or(|held| held.epoch < wanted)
    }

    /// One event; answers why the stream is over, if it is.
    fn take(
        &self,
        event: v1::WatchEvent,
        endpoint: &Endpoint,
        worth: &mut Worth,
        memory: &mut Memory,
    ) -> Option<End> {
        match event.event? {
            v1::watch_event::Event::Full(bytes) => {
                memory.without_base = false;
                return self.offer(bytes, endpoint, worth);
            }
            v1::watch_event::Event::Delta(_) => {
                memory.without_base = true;
                return Some(End::Delta);
            }
            v1::watch_event::Event::Progress(progress) => {
                let behind = Duration::from_millis(progress.behind_ms);
                let theirs = (Generation(progress.generation), Epoch(progress.epoch));
                if self
                    .current
                    .held()
                    .is_some_and(|held| held.order() == theirs)
                {
                    self.board.confirmed(behind);
                } else {
                    self.board.update(|status| status.server_behind = behind);
                }
            }
            v1::watch_event::Event::Bye(bye) => {
                let hints = bye.try_endpoints.iter().take(MAX_HINTS);
                return Some(End::Bye {
                    reason: bye.reason(),
                    hints: hints.filter_map(|hint| parse_endpoint(hint).ok()).collect(),
                });
            }
        }
        None
    }

    fn offer(
        &self,
        bytes: v1::SnapshotBytes,
        endpoint: &Endpoint,
        worth: &mut Worth,
    ) -> Option<End> {
        let ring = self.current.ring();
        match self.current.offer(&bytes) {
            Ok(held) => {
                worth.accepted = true;
                self.board.accepted(held, endpoint);
                tracing::debug!(%ring, %endpoint, epoch = %held.epoch, checksum = ?held.checksum,
                    "applied a snapshot");
                if let Some(keep) = &self.keep {
                    keep.send_replace(Some((held, bytes)));
                }
                None
            }
            Err(refused) => {
                self.board.refused(&refused, endpoint);
                let epoch = self.current.held().map_or(Epoch(0), |held| held.epoch);
                if refused.is_old_news() {
                    tracing::debug!(%ring, %endpoint, %epoch, "passed over a snapshot that is not newer");
                    return None;
                }
                if refused.fork().is_some() {
                    tracing::error!(%ring, %endpoint, %epoch, error = %refused, "FORK");
                } else {
                    tracing::warn!(%ring, %endpoint, %epoch, error = %refused,
                        "refused a snapshot; routing goes on by the held one");
                }
                Some(End::Refused)
            }
        }
    }
}

/// Waits for the instant; for ever without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
