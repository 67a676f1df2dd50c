//! One call over several servers: overlapping tries, pauses, and what is known at the end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    time::Duration,
};

use annulus_ring::Endpoint;
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Request, Response, Status};

use super::{
    AdminClient, AdminError, Wire,
    error::{NOT_INITIALISED, Verdict, judge},
};
use crate::{backoff::Backoff, deadline::Deadline};

/// How a call may be spread and repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Changes nothing: over all servers, a few rounds.
    Read,
    /// Has a request id: over all servers, again and again until the deadline.
    Mutation,
    /// Has none: one server after another until one was certainly reached.
    Once,
}

impl Manner {
    /// How often every server is asked. A read against a dead cluster should say so soon.
    fn rounds(self) -> usize {
        match self {
            Self::Read => 3,
            Self::Mutation => usize::MAX,
            Self::Once => 1,
        }
    }
}

/// The connection has a timer of its own for the deadline that a request carries; ours says more.
const AFTER_OURS: Duration = Duration::from_millis(50);

/// What every server met last, and whether one may have done it.
#[derive(Debug, Default)]
struct Tried {
    last: BTreeMap<Endpoint, String>,
    may_be_done: bool,
    /// Those whose last word was that the cluster is not initialised.
    not_initialised: BTreeSet<Endpoint>,
}

impl Tried {
    fn note(&mut self, endpoint: Endpoint, verdict: Verdict) {
        self.not_initialised.remove(&endpoint);
        let why = match verdict {
            Verdict::NotDone(why) => why,
            Verdict::MayBeDone(why) => {
                self.may_be_done = true;
                why
            }
            Verdict::NotInitialised(why) => {
                self.not_initialised.insert(endpoint.clone());
                why
            }
            // Ends the call, so it is never noted.
            Verdict::Final(error) => error.to_string(),
        };
        tracing::debug!(%endpoint, why, self.may_be_done, "an admin call failed");
        self.last.insert(endpoint, why);
    }

    /// The refusal, when all servers were asked and all of them say so.
    fn not_initialised(&self, servers: usize) -> Option<AdminError> {
        let all = self.not_initialised.len() == servers && !self.may_be_done;
        let message = self.last.values().next().filter(|_| all)?.clone();
        let name = NOT_INITIALISED.to_owned();
        Some(AdminError::Refused { name, message })
    }

    fn into_error(self, manner: Manner) -> AdminError {
        let tried = self.last.into_iter().collect();
        match manner {
            Manner::Mutation | Manner::Once if self.may_be_done => AdminError::Unknown { tried },
            Manner::Read | Manner::Mutation | Manner::Once => AdminError::Unavailable { tried },
        }
    }
}

impl AdminClient {
    /// Asks until somebody answers; says who did.
    pub(super) async fn ask<Q, A, F, Fut>(
        &self,
        manner: Manner,
        request: Q,
        call: F,
    ) -> Result<(Endpoint, A), AdminError>
    where
        Q: Clone,
        F: Fn(Wire, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let deadline = Deadline::from(self.config.deadline);
        let mut backoff = Backoff::new(self.config.pause.0, self.config.pause.1);
        let mut tried = Tried::default();
        let mut under_way = FuturesUnordered::new();
        let mut busy: Vec<Endpoint> = Vec::new();
        let mut queue = VecDeque::from(self.endpoints.order());
        let mut rounds = 1;
        let mut next_at = Some(Instant::now());
        loop {
            tokio::select! {
                biased;
                Some((endpoint, made)) = under_way.next(), if !under_way.is_empty() => {
                    busy.retain(|one| *one != endpoint);
                    let verdict = match made {
                        Ok(answer) => return Ok((endpoint, answer)),
                        Err(Verdict::Final(error)) => return Err(error),
                        Err(verdict) => verdict,
                    };
                    tried.note(endpoint, verdict);
                    if manner == Manner::Once && tried.may_be_done {
                        return Err(tried.into_error(manner));
                    }
                    // `init` answers when every server that it reaches knows, so asking again would
                    // get the same answer.
                    if let Some(error) = tried.not_initialised(self.endpoints.len()) {
                        return Err(error);
                    }
                    if !queue.is_empty() {
                        next_at = Some(Instant::now());
                    } else if next_at.is_none() && rounds < manner.rounds() {
                        next_at = Some(Instant::now() + backoff.next(&self.chance));
                    } else if next_at.is_none() && under_way.is_empty() {
                        return Err(tried.into_error(manner));
                    }
                }
                () = until(next_at) => {
                    // A repeated try that may not even connect in time would only blur what is
                    // known about the outcome.
                    let connect = self.config.dial.settings().connect_timeout;
                    if (rounds > 1 || queue.is_empty()) && deadline.left() <= 2 * connect {
                        if under_way.is_empty() {
                            return Err(tried.into_error(manner));
                        }
                        queue.clear();
                        (rounds, next_at) = (manner.rounds(), None);
                        continue;
                    }
                    if queue.is_empty() {
                        rounds += 1;
                        queue = self.endpoints.order().into();
                        // A server that has not answered yet is not asked twice at a time.
                        queue.retain(|endpoint| !busy.contains(endpoint));
                    }
                    if let Some(endpoint) = queue.pop_front() {
                        busy.push(endpoint.clone());
                        under_way.push(self.attempt(endpoint, request.clone(), &call, deadline));
                    }
                    // `Once` must not have two servers at it.
                    let overlap = manner != Manner::Once && !queue.is_empty();
                    next_at = overlap.then(|| Instant::now() + self.config.patience);
                }
                () = sleep_until(deadline.at()) => {
                    for endpoint in busy {
                        let why = format!("no answer within {:?}", self.config.deadline);
                        self.give_up_on(&endpoint);
                        tried.note(endpoint, Verdict::MayBeDone(why));
                    }
                    return Err(tried.into_error(manner));
                }
            }
        }
    }

    /// One try at one server.
    async fn attempt<Q, A, F, Fut>(
        &self,
        endpoint: Endpoint,
        request: Q,
        call: &F,
        deadline: Deadline,
    ) -> (Endpoint, Result<A, Verdict>)
    where
        F: Fn(Wire, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let wire = match self.wire(&endpoint) {
            Ok(wire) => wire,
            Err(error) => return (endpoint, Err(Verdict::NotDone(error.to_string()))),
        };
        let until = deadline.within(self.config.try_timeout);
        // The server ends what it does in time to say what it knows: an answer that comes after we
        // stopped listening is an unknown outcome.
        let mut request = Request::new(request);
        request.set_timeout(until.saturating_duration_since(Instant::now()) + AFTER_OURS);
        let made = match timeout_at(until, call(wire, request)).await {
            Ok(Ok(answer)) => {
                self.endpoints.note_good(&endpoint);
                Ok(answer.into_inner())
            }
            Ok(Err(status)) => {
                let verdict = judge(&status);
                match verdict {
                    Verdict::Final(_) => self.endpoints.note_good(&endpoint),
                    Verdict::NotDone(_) | Verdict::NotInitialised(_) | Verdict::MayBeDone(_) => {
                        self.give_up_on(&endpoint);
                    }
                }
                Err(verdict)
            }
            Err(_) => {
                self.give_up_on(&endpoint);
                let limit = self.config.try_timeout.min(self.config.deadline);
                Err(Verdict::MayBeDone(format!("no answer within {limit:?}")))
            }
        };
        (endpoint, made)
    }

    /// Asks it last next time, over a new connection: the old one may be half open.
    fn give_up_on(&self, endpoint: &Endpoint) {
        self.endpoints.note_bad(endpoint);
        self.channels().remove(endpoint);
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
