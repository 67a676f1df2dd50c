//! A call that only the leader can answer: done here, or passed on to it once.
//!
//! Every wait is bounded, and the error at its end says who does not answer: a command against a
//! sick cluster must end, and differently from a refusal.

use std::{collections::BTreeMap, future::Future, time::Duration};

use annulus_proto::{
    MAX_MESSAGE_BYTES, convert,
    v1::{self, admin_client::AdminClient},
};
use bytes::Bytes;
use futures::future::join_all;
use tokio::time::Instant;
use tonic::{Code, Request, Status, metadata::MetadataMap, transport::Channel};

use super::status::{ApiError, cause};
use crate::{config::ms, context::Context, raft::Leader};

/// Set on a call that was passed on: it goes no further.
const PASSED_ON: &str = "annulus-passed-on";
/// How long a server may take to show that it lives.
const PROBE: Duration = Duration::from_millis(500);
/// How long a call waits for an election, at most.
const ELECTION: Duration = Duration::from_secs(3);
/// Left of a caller's deadline for the way back of our answer.
const WAY_BACK: Duration = Duration::from_millis(200);

/// One call's deadline and whether it came from another server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    deadline: Instant,
    passed_on: bool,
}

/// Where a call is to be answered.
#[derive(Debug)]
pub(crate) enum Place {
    /// This server leads, was just confirmed, and has applied all that was committed.
    Here,
    /// There.
    Leader(Leader),
}

impl Call {
    /// Reads what came with a request.
    pub(crate) fn of<T>(context: &Context, request: &Request<T>) -> Self {
        let own = ms(context.config.limits.call_ms);
        let asked = timeout_of(request.metadata());
        let time = asked.map_or(own, |asked| asked.saturating_sub(WAY_BACK).min(own));
        Self {
            deadline: Instant::now() + time,
            passed_on: request.metadata().contains_key(PASSED_ON),
        }
    }

    /// Until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The same, with time left to find out afterwards who does not answer.
    pub(crate) fn work(&self) -> Duration {
        let left = self.left();
        left.saturating_sub(PROBE).max(left / 2)
    }

    /// The same, as long as an election may take at most.
    pub(crate) fn patience(&self) -> Duration {
        self.work().min(ELECTION)
    }

    /// Finds the leader, and confirms it when that is this server.
    ///
    /// # Errors
    /// No leader within the patience: who does not answer.
    pub(crate) async fn place(&self, context: &Context) -> Result<Place, ApiError> {
        let patience = Instant::now() + self.patience();
        let mut standings = context.node.standings();
        loop {
            let standing = standings.borrow_and_update().clone();
            if !standing.initialised() {
                return Err(ApiError::NotInitialised);
            }
            if standing.is_leader() {
                let left = patience.saturating_duration_since(Instant::now());
                match context.node.linearize(left).await {
                    // A follower too can be linearized: it must still be the leader.
                    Ok(_) if context.node.standing().is_leader() => return Ok(Place::Here),
                    Ok(_) => continue,
                    Err(error) => return Err(explain(context, error.into()).await),
                }
            }
            if self.passed_on {
                return Err(ApiError::LeaderMoved);
            }
            if let Some(leader) = standing.leader
                && leader.id != standing.server_id
            {
                return Ok(Place::Leader(leader));
            }
            let woken = tokio::time::timeout_at(patience, standings.changed()).await;
            if !matches!(woken, Ok(Ok(()))) {
                return Err(no_leader(context).await);
            }
        }
    }

    /// The request as it goes to the leader.
    pub(crate) fn pass_on<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.left());
        request
            .metadata_mut()
            .insert(PASSED_ON, tonic::metadata::MetadataValue::from_static("1"));
        request
    }
}

/// A client of another server's Admin service.
pub(crate) fn admin_of(
    context: &Context,
    endpoint: &str,
) -> Result<AdminClient<Channel>, ApiError> {
    let channel = context
        .dial
        .dial(endpoint)
        .map_err(|error| ApiError::LeaderSilent {
            leader: endpoint.to_owned(),
            reason: error.to_string(),
        })?;
    Ok(AdminClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES))
}

/// Waits for the leader's answer to a passed-on call, and says what it means here. `changes`: the
/// call may have done something, so that a broken connection leaves its outcome unknown.
pub(crate) async fn passed<T>(
    call: Call,
    leader: &Leader,
    changes: bool,
    answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, ApiError> {
    // A leader that takes the call and never answers must not keep the caller.
    let status = match tokio::time::timeout(call.left(), answer).await {
        Ok(Ok(response)) => return Ok(response.into_inner()),
        Ok(Err(status)) => status,
        Err(_) => {
            return Err(silent(
                leader,
                changes,
                "no answer within the deadline".to_owned(),
            ));
        }
    };
    if cause(&status).is_some() {
        return Err(ApiError::Passed(Box::new(status)));
    }
    let reason = match status.code() {
        Code::DeadlineExceeded | Code::Cancelled => "no answer within the deadline".to_owned(),
        _ => status.message().to_owned(),
    };
    Err(silent(leader, changes && !never_sent(&status), reason))
}

fn silent(leader: &Leader, perhaps_done: bool, reason: String) -> ApiError {
    let leader = leader.endpoint.clone();
    if perhaps_done {
        return ApiError::Unknown(format!("the leader at {leader}: {reason}"));
    }
    ApiError::LeaderSilent { leader, reason }
}

/// The connection was never made.
fn never_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        source = error.source();
    }
    false
}

/// Replaces "no leader" by who does not answer.
pub(crate) async fn explain(context: &Context, error: ApiError) -> ApiError {
    match error {
        ApiError::NoLeader { .. } => no_leader(context).await,
        other => other,
    }
}

/// Asks every voter for a sign of life.
pub(crate) async fn no_leader(context: &Context) -> ApiError {
    let standing = context.node.standing();
    let voters: Vec<_> = standing
        .servers
        .iter()
        .filter(|(_, server)| server.voter)
        .collect();
    let alive = join_all(voters.iter().map(|(id, server)| async {
        **id == standing.server_id || probe(context, &server.endpoint).await.is_ok()
    }))
    .await;
    let reachable = alive.iter().filter(|alive| **alive).count();
    let total = voters.len();
    if reachable > total / 2 {
        return ApiError::NoLeader { reachable, total };
    }
    let silent: Vec<String> = voters
        .iter()
        .zip(&alive)
        .filter(|(_, alive)| !**alive)
        .map(|((id, server), _)| format!("{id} ({})", server.endpoint))
        .collect();
    ApiError::NoQuorum {
        reachable,
        total,
        silent: silent.join(", "),
    }
}

/// What is wrong with the other servers, by id: each is asked for a sign of life.
pub(crate) async fn troubles(context: &Context) -> BTreeMap<u64, String> {
    let standing = context.node.standing();
    let cluster_id = context.node.shared().read(|state, _| state.cluster_id);
    let cluster_id = cluster_id.map(|id| convert::id128_bytes(id.0));
    let others = standing
        .servers
        .iter()
        .filter(|(id, _)| **id != standing.server_id);
    let asked = others.map(|(id, server)| {
        let cluster_id = cluster_id.as_ref();
        async move {
            let answer = probe(context, &server.endpoint).await;
            let trouble = trouble(*id, cluster_id, answer)?;
            Some((*id, trouble))
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// What is wrong with server `id` of the cluster `ours`, by its own answer; none if nothing is.
fn trouble(
    id: u64,
    ours: Option<&Bytes>,
    answer: Result<v1::ClusterStatus, String>,
) -> Option<String> {
    let status = match answer {
        Ok(status) => status,
        Err(why) => return Some(format!("does not answer ({why}); start it")),
    };
    let found = status.freshness.map_or(0, |freshness| freshness.server_id);
    if found != id {
        return Some(format!(
            "is not what answers there: that is server {found}; correct the addresses"
        ));
    }
    if status.servers.is_empty() {
        return Some(
            "says that it belongs to no cluster: it was started without its own data directory; \
             give it that one back, and do not run `annulus cluster init`"
                .to_owned(),
        );
    }
    // A server that has not applied its cluster's name yet is no stranger.
    let foreign = ours.is_some_and(|ours| *ours != status.cluster_id);
    (foreign && !status.cluster_id.is_empty()).then(|| {
        "belongs to another cluster: it was started with another's data directory".to_owned()
    })
}

/// What a server says of itself, if it lives.
pub(crate) async fn probe(context: &Context, endpoint: &str) -> Result<v1::ClusterStatus, String> {
    let mut client = admin_of(context, endpoint).map_err(|error| error.to_string())?;
    let mut request = Request::new(v1::ClusterStatusRequest {
        mode: v1::ReadMode::Local.into(),
    });
    request.set_timeout(PROBE);
    match tokio::time::timeout(PROBE, client.get_cluster_status(request)).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err(format!("no answer within {} ms", PROBE.as_millis())),
    }
}

/// The deadline that came with a call: `grpc-timeout`, up to eight digits and a unit.
fn timeout_of(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let value: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_in_trouble_is_told_by_its_answer() {
        let ours = Bytes::from_static(b"ours");
        let answer = |server_id, cluster_id: &'static [u8], servers: usize| v1::ClusterStatus {
            freshness: Some(v1::Freshness {
                server_id,
                ..v1::Freshness::default()
            }),
            cluster_id: Bytes::from_static(cluster_id),
            servers: vec![v1::cluster_status::Server::default(); servers],
            ..v1::ClusterStatus::default()
        };
        let found = |answer| trouble(2, Some(&ours), answer);
        assert_eq!(found(Ok(answer(2, b"ours", 3))), None);
        assert_eq!(found(Ok(answer(2, b"", 3))), None, "not applied yet");
        for (answer, word) in [
            (Err("refused".to_owned()), "does not answer (refused)"),
            (Ok(answer(3, b"ours", 3)), "that is server 3"),
            (Ok(answer(2, b"", 0)), "belongs to no cluster"),
            (Ok(answer(2, b"theirs", 3)), "another cluster"),
        ] {
            let told = found(answer).unwrap();
            assert!(told.contains(word), "{told}");
        }
    }

    #[test]
    fn a_callers_deadline_is_read() {
        let read = |text: &'static str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(
                "grpc-timeout",
                tonic::metadata::MetadataValue::from_static(text),
            );
            timeout_of(&metadata)
        };
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        for bad in ["", "S", "3", "3x", "999999999S", "-1S"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
