//! How a request becomes an entry, wherever it was made, and a read becomes linearizable.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use annulus_membership::{Entry, Outcome, Request};
use annulus_proto::v1;
use openraft::ReadPolicy;
use openraft::errors::{ClientWriteError, RaftError};
use tokio::time::Instant;
use tonic::Status;

use super::network::Lane;
use super::node::Node;
use super::service::NOT_APPENDED;
use super::types::{LogEntry, LogId};
use super::{Leader, ProposeError, ReadError, Standing, wire};

/// Most bytes of an entry. Larger targets are refused when they are planned.
pub const MAX_ENTRY_BYTES: u64 = 8 << 20;

/// Between two tries, unless something changes before.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a request waits for somebody to lead: the longest election with lost rounds. After it
/// nobody does, which the caller should hear before its own deadline.
const ELECTION: Duration = Duration::from_secs(3);

/// What became of one try.
pub(super) enum Attempt {
    Done(Outcome),
    /// Nothing was appended: may be tried again by anybody.
    NotAppended(String),
    /// It may have been appended: only a request with an id may be tried again.
    Perhaps(String),
    Refused(ProposeError),
}

enum Route {
    Here,
    There(Leader),
    Nobody,
}

fn route(standing: &Standing) -> Result<Route, ()> {
    if !standing.initialised() {
        return Err(());
    }
    Ok(match &standing.leader {
        Some(leader) if leader.id == standing.server_id => Route::Here,
        Some(leader) => Route::There(leader.clone()),
        None => Route::Nobody,
    })
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Waits for news of the leader, or a moment.
async fn pause(node: &Node, until: Instant) {
    let mut standings = node.standings();
    standings.mark_unchanged();
    tokio::select! {
        biased;
        _ = standings.changed() => {}
        () = tokio::time::sleep(PAUSE.min(left(until))) => {}
    }
}

pub(super) async fn propose(
    node: &Node,
    request: Request,
    deadline: Duration,
) -> Result<Outcome, ProposeError> {
    let until = Instant::now() + deadline;
    let mut perhaps: Option<String> = None;
    let mut last: Option<(String, String)> = None;
    let mut nobody_since: Option<Instant> = None;
    loop {
        if let Some(reason) = node.fatal_reason() {
            return Err(match perhaps {
                Some(_) => ProposeError::Unknown { reason },
                None => ProposeError::Fatal { reason },
            });
        }
        let attempt = match route(&node.standing()) {
            Err(()) => return Err(ProposeError::NotInitialised),
            Ok(Route::Nobody) => {
                last = None;
                Attempt::NotAppended("no leader".to_owned())
            }
            Ok(Route::Here) => here(node, &request, until).await,
            Ok(Route::There(leader)) => {
                let attempt = there(node, &leader, &request, until).await;
                if let Attempt::NotAppended(reason) = &attempt {
                    last = Some((leader.endpoint, reason.clone()));
                }
                attempt
            }
        };
        match attempt {
            Attempt::Done(outcome) => return Ok(outcome),
            Attempt::NotAppended(reason) => tracing::debug!(reason, "proposal not appended yet"),
            Attempt::Perhaps(reason) if request.request_id.is_none() => {
                return Err(ProposeError::Unknown { reason });
            }
            // The id makes the next try harmless: it gets the same answer.
            Attempt::Perhaps(reason) => perhaps = Some(reason),
            Attempt::Refused(error) => return Err(error),
        }
        let nobody_leads = matches!(route(&node.standing()), Ok(Route::Nobody));
        nobody_since = nobody_leads.then(|| nobody_since.unwrap_or_else(Instant::now));
        let in_vain = nobody_since.is_some_and(|since| since.elapsed() >= ELECTION);
        if left(until).is_zero() || (in_vain && perhaps.is_none()) {
            break;
        }
        pause(node, until).await;
    }
    let waited_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    Err(match (perhaps, last) {
        (Some(reason), _) => ProposeError::Unknown { reason },
        (None, Some((leader, reason))) => ProposeError::Unavailable { leader, reason },
        (None, None) => ProposeError::NoLeader { waited_ms },
    })
}

/// One try as leader.
///
/// The lease check comes first and does three things: a leader that was deposed without knowing
/// does not answer from an old state; a fresh one, which refuses writes until its first
/// heartbeat was acknowledged although it is known as the leader already, is waited for; and
/// what was committed before is applied before the request is judged by it.
pub(super) async fn here(node: &Node, request: &Request, until: Instant) -> Attempt {
    let raft = node.raft();
    let lease = raft.ensure_linearizable(ReadPolicy::LeaseRead);
    match tokio::time::timeout(left(until), lease).await {
        Ok(Ok(_)) => {}
        Ok(Err(RaftError::APIError(error))) => return Attempt::NotAppended(error.to_string()),
        Ok(Err(RaftError::Fatal(error))) => return fatal(node, &error),
        Err(_elapsed) => return Attempt::NotAppended("the lease was not confirmed".to_owned()),
    }
    let (answer, checked, last_wall_ms) = node.shared().read(|state, _| {
        let answer = request.request_id.and_then(|id| state.answer(id).cloned());
        (answer, state.check(request), state.wall_ms)
    });
    if let Some(outcome) = answer {
        return Attempt::Done(outcome);
    }
    let entry = Entry {
        wall_ms: stamp(node, last_wall_ms),
        request_id: request.request_id,
        command: request.command.clone(),
    };
    let entry = match LogEntry::new(entry) {
        Ok(entry) => entry,
        Err(error) => return Attempt::NotAppended(format!("the entry does not encode: {error}")),
    };
    let bytes = entry.json().len() as u64;
    if bytes > MAX_ENTRY_BYTES {
        return Attempt::Refused(ProposeError::TooLarge {
            bytes,
            limit: MAX_ENTRY_BYTES,
        });
    }
    if let Err(rejection) = checked {
        return Attempt::Done(Outcome::Rejected(rejection));
    }
    let write = raft.client_write(entry);
    match tokio::time::timeout(left(until), write).await {
        Ok(Ok(written)) => Attempt::Done(written.data),
        Ok(Err(RaftError::APIError(error))) => match error {
            ClientWriteError::ForwardToLeader(_) => Attempt::NotAppended(error.to_string()),
            ClientWriteError::LogEntryDiscarded(_)
            | ClientWriteError::ChangeMembershipError(_)
            | ClientWriteError::PreconditionFailed(_) => Attempt::Perhaps(error.to_string()),
        },
        Ok(Err(RaftError::Fatal(error))) => Attempt::Perhaps(error.to_string()),
        Err(_elapsed) => Attempt::Perhaps("not committed within the deadline".to_owned()),
    }
}

fn fatal(node: &Node, error: &impl ToString) -> Attempt {
    let reason = node.fatal_reason().unwrap_or_else(|| error.to_string());
    Attempt::Refused(ProposeError::Fatal { reason })
}

/// Never below what this leader stamped before, nor below what is in the log.
fn stamp(node: &Node, last_wall_ms: u64) -> u64 {
    let now = node.wall_ms().max(last_wall_ms);
    node.last_stamp().fetch_max(now, Ordering::Relaxed).max(now)
}

/// One try at the leader.
async fn there(node: &Node, leader: &Leader, request: &Request, until: Instant) -> Attempt {
    let bytes = match serde_json::to_vec(request) {
        Ok(bytes) => bytes,
        Err(error) => return Attempt::NotAppended(format!("the request does not encode: {error}")),
    };
    if bytes.len() as u64 > MAX_ENTRY_BYTES {
        let bytes = bytes.len() as u64;
        return Attempt::Refused(ProposeError::TooLarge {
            bytes,
            limit: MAX_ENTRY_BYTES,
        });
    }
    let mut client = match node.peers().client(&leader.endpoint, Lane::Request) {
        Ok(client) => client,
        Err(error) => return Attempt::NotAppended(error.to_string()),
    };
    let message = v1::ProposeRequest {
        request: bytes.into(),
    };
    let size = message.request.len() as u64;
    let request = node.peers().addressed(leader.id, left(until), message);
    match tokio::time::timeout(left(until), client.propose(request)).await {
        Ok(Ok(response)) => match serde_json::from_slice(&response.into_inner().outcome) {
            Ok(outcome) => Attempt::Done(outcome),
            Err(error) => Attempt::Perhaps(format!("the leader's answer does not read: {error}")),
        },
        Ok(Err(status)) if status.code() == tonic::Code::OutOfRange => {
            Attempt::Refused(ProposeError::TooLarge {
                bytes: size,
                limit: MAX_ENTRY_BYTES,
            })
        }
        Ok(Err(status)) if nothing_happened(&status) => {
            Attempt::NotAppended(status.message().to_owned())
        }
        Ok(Err(status)) => Attempt::Perhaps(status.to_string()),
        Err(_elapsed) => Attempt::Perhaps("the leader did not answer in time".to_owned()),
    }
}

/// The leader said so, or nobody was there to take the call.
fn nothing_happened(status: &Status) -> bool {
    if status.metadata().contains_key(NOT_APPENDED)
        || status.code() == tonic::Code::FailedPrecondition
        || status.code() == tonic::Code::InvalidArgument
    {
        return true;
    }
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}

/// The index a linearizable read must wait for, as leader; a majority confirmed since the call.
pub(super) async fn read_index_here(node: &Node) -> Result<LogId, String> {
    let read = node.raft().get_read_log_id(ReadPolicy::ReadIndex).await;
    read.map(|(read, _applied)| *read.log_id())
        .map_err(|error| error.to_string())
}

pub(super) async fn linearize(node: &Node, deadline: Duration) -> Result<u64, ReadError> {
    let until = Instant::now() + deadline;
    let waited_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    loop {
        if let Some(reason) = node.fatal_reason() {
            return Err(ReadError::Fatal { reason });
        }
        let read = match route(&node.standing()) {
            Err(()) => return Err(ReadError::NotInitialised),
            Ok(Route::Nobody) => None,
            Ok(Route::Here) => within(until, read_index_here(node)).await,
            Ok(Route::There(leader)) => within(until, read_index_there(node, &leader, until)).await,
        };
        if let Some(read) = read {
            let mut applied = node.applied();
            let reached = applied.wait_for(|applied| applied.index >= read.index);
            return match tokio::time::timeout(left(until), reached).await {
                Ok(Ok(_)) => Ok(read.index),
                Ok(Err(_)) | Err(_) => Err(ReadError::NoLeader { waited_ms }),
            };
        }
        if left(until).is_zero() {
            return Err(ReadError::NoLeader { waited_ms });
        }
        pause(node, until).await;
    }
}

async fn within(
    until: Instant,
    read: impl Future<Output = Result<LogId, String>>,
) -> Option<LogId> {
    match tokio::time::timeout(left(until), read).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(reason)) => {
            tracing::debug!(reason, "read not confirmed yet");
            None
        }
        Err(_elapsed) => None,
    }
}

async fn read_index_there(node: &Node, leader: &Leader, until: Instant) -> Result<LogId, String> {
    let client = node.peers().client(&leader.endpoint, Lane::Request);
    let mut client = client.map_err(|error| error.to_string())?;
    let request = node
        .peers()
        .addressed(leader.id, left(until), v1::ReadIndexRequest {});
    let response = client
        .read_index(request)
        .await
        .map_err(|status| status.to_string())?;
    let read = response.into_inner().read_log_id;
    read.map(wire::log_id_in)
        .ok_or_else(|| "the leader named no index".to_owned())
}
