//! openraft's messages <-> ours. openraft's own serde forms are no wire format.

use annulus_proto::v1;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};

use super::codec;
use super::types::{LogEntry, LogId, Payload, RaftEntry, TypeConfig, Vote, log_id};

/// Most bytes of one raft message on either end: one entry at its limit, or many small ones.
pub(super) const MAX_MESSAGE_BYTES: usize = 12 << 20;

/// A message that does not say what it must.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{field} is {found}, which this release does not know")]
    Unknown { field: &'static str, found: i32 },
    #[error("entry {index}: {reason}")]
    Entry { index: u64, reason: String },
    #[error("entries are not consecutive: {found} follows {before}")]
    Order { before: u64, found: u64 },
}

impl From<WireError> for tonic::Status {
    fn from(error: WireError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

pub(super) fn vote_out(vote: Vote) -> v1::RaftVote {
    v1::RaftVote {
        term: vote.leader_id.term,
        node_id: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(super) fn vote_in(vote: Option<v1::RaftVote>) -> Result<Vote, WireError> {
    let vote = vote.ok_or(WireError::Missing("vote"))?;
    let leader_id = LeaderId {
        term: vote.term,
        voted_for: vote.node_id,
    };
    Ok(Vote {
        leader_id,
        committed: vote.committed,
    })
}

/// With plain Raft ordering a log id needs no node: the field stays 0.
pub(super) fn log_id_out(id: LogId) -> v1::LogId {
    v1::LogId {
        term: id.leader_id.term,
        node_id: 0,
        index: id.index,
    }
}

#[allow(clippy::needless_pass_by_value)] // reads as a conversion where it is mapped over an Option
pub(super) fn log_id_in(id: v1::LogId) -> LogId {
    log_id(id.term, id.index)
}

pub(super) fn append_out(
    request: AppendEntriesRequest<TypeConfig>,
) -> std::io::Result<v1::AppendRequest> {
    use v1::raft_entry::Payload as Wire;
    let entries = request.entries.iter().map(|entry| {
        let payload = match &entry.payload {
            Payload::Blank => Wire::Blank(true),
            Payload::Normal(entry) => Wire::Normal(entry.json().clone()),
            Payload::Membership(voters) => Wire::Membership(serde_json::to_vec(voters)?.into()),
        };
        Ok(v1::RaftEntry {
            log_id: Some(log_id_out(entry.log_id)),
            payload: Some(payload),
        })
    });
    Ok(v1::AppendRequest {
        vote: Some(vote_out(request.vote)),
        prev: request.prev_log_id.map(log_id_out),
        entries: entries.collect::<std::io::Result<_>>()?,
        leader_commit: request.leader_commit.map(log_id_out),
    })
}

pub(super) fn append_in(
    request: v1::AppendRequest,
) -> Result<AppendEntriesRequest<TypeConfig>, WireError> {
    let prev_log_id = request.prev.map(log_id_in);
    let mut before = prev_log_id.map(|id| id.index);
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        let entry = entry_in(entry)?;
        let found = entry.log_id.index;
        // openraft takes this for granted, and would make a hole of it.
        let expected = before.map_or(0, |before| before.saturating_add(1));
        if found != expected {
            return Err(WireError::Order {
                before: before.unwrap_or(0),
                found,
            });
        }
        before = Some(found);
        entries.push(entry);
    }
    Ok(AppendEntriesRequest {
        vote: vote_in(request.vote)?,
        prev_log_id,
        entries,
        leader_commit: request.leader_commit.map(log_id_in),
    })
}

fn entry_in(entry: v1::RaftEntry) -> Result<RaftEntry, WireError> {
    use v1::raft_entry::Payload as Wire;
    let log_id = log_id_in(entry.log_id.ok_or(WireError::Missing("log_id"))?);
    let bad = |error: codec::CodecError| WireError::Entry {
        index: log_id.index,
        reason: error.to_string(),
    };
    let payload = match entry.payload.ok_or(WireError::Missing("payload"))? {
        Wire::Blank(_) => Payload::Blank,
        Wire::Normal(json) => {
            Payload::Normal(LogEntry::from_json(json).map_err(|error| bad(error.into()))?)
        }
        Wire::Membership(json) => {
            Payload::Membership(serde_json::from_slice(&json).map_err(|error| bad(error.into()))?)
        }
    };
    Ok(RaftEntry { log_id, payload })
}

pub(super) fn appended_out(response: AppendEntriesResponse<TypeConfig>) -> v1::AppendResponse {
    use v1::append_response::Outcome;
    let mut wire = v1::AppendResponse::default();
    let outcome = match response {
        AppendEntriesResponse::Success => Outcome::Success,
        AppendEntriesResponse::PartialSuccess(matched) => {
            wire.matched = matched.map(log_id_out);
            Outcome::Partial
        }
        AppendEntriesResponse::Conflict => Outcome::Conflict,
        AppendEntriesResponse::HigherVote(vote) => {
            wire.higher_vote = Some(vote_out(vote));
            Outcome::HigherVote
        }
    };
    wire.set_outcome(outcome);
    wire
}

pub(super) fn appended_in(
    response: v1::AppendResponse,
) -> Result<AppendEntriesResponse<TypeConfig>, WireError> {
    use v1::append_response::Outcome;
    match response.outcome() {
        Outcome::Success => Ok(AppendEntriesResponse::Success),
        Outcome::Partial => Ok(AppendEntriesResponse::PartialSuccess(
            response.matched.map(log_id_in),
        )),
        Outcome::Conflict => Ok(AppendEntriesResponse::Conflict),
        Outcome::HigherVote => vote_in(response.higher_vote).map(AppendEntriesResponse::HigherVote),
        Outcome::Unspecified => Err(WireError::Unknown {
            field: "outcome",
            found: response.outcome,
        }),
    }
}

pub(super) fn ask_out(request: &VoteRequest<TypeConfig>) -> v1::VoteRequest {
    v1::VoteRequest {
        vote: Some(vote_out(request.vote)),
        last_log: request.last_log_id.map(log_id_out),
        leader_transfer: request.leadership_transfer,
    }
}

pub(super) fn ask_in(request: v1::VoteRequest) -> Result<VoteRequest<TypeConfig>, WireError> {
    let mut asked = VoteRequest::new(vote_in(request.vote)?, request.last_log.map(log_id_in));
    asked.leadership_transfer = request.leader_transfer;
    Ok(asked)
}

pub(super) fn voted_out(response: VoteResponse<TypeConfig>) -> v1::VoteResponse {
    v1::VoteResponse {
        vote: Some(vote_out(response.vote)),
        granted: response.vote_granted,
        last_log: response.last_log_id.map(log_id_out),
    }
}

pub(super) fn voted_in(response: v1::VoteResponse) -> Result<VoteResponse<TypeConfig>, WireError> {
    let vote = vote_in(response.vote)?;
    Ok(VoteResponse::new(
        vote,
        response.last_log.map(log_id_in),
        response.granted,
    ))
}

pub(super) fn transfer_out(
    request: &TransferLeaderRequest<TypeConfig>,
) -> v1::TransferLeaderRequest {
    v1::TransferLeaderRequest {
        from: Some(vote_out(*request.from_leader())),
        to: *request.to_node_id(),
        last_log: request.last_log_id().copied().map(log_id_out),
    }
}

pub(super) fn transfer_in(
    request: v1::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, WireError> {
    let last_log = request.last_log.map(log_id_in);
    Ok(TransferLeaderRequest::new(
        vote_in(request.from)?,
        request.to,
        last_log,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_a_hole_between_them_are_refused() {
        let entry = |index| v1::RaftEntry {
            log_id: Some(v1::LogId {
                term: 1,
                node_id: 0,
                index,
            }),
            payload: Some(v1::raft_entry::Payload::Blank(true)),
        };
        let request = |indexes: &[u64]| v1::AppendRequest {
            vote: Some(v1::RaftVote {
                term: 1,
                node_id: 1,
                committed: true,
            }),
            prev: Some(v1::LogId {
                term: 1,
                node_id: 0,
                index: 4,
            }),
            entries: indexes.iter().copied().map(entry).collect(),
            leader_commit: None,
        };
        assert_eq!(append_in(request(&[5, 6])).unwrap().entries.len(), 2);
        let error = append_in(request(&[5, 7])).unwrap_err().to_string();
        assert_eq!(error, "entries are not consecutive: 7 follows 5");
        append_in(request(&[6])).unwrap_err();
    }

    #[test]
    fn an_answer_without_an_outcome_is_refused() {
        appended_in(v1::AppendResponse::default()).unwrap_err();
    }
}
