//! Founding the control plane itself: its voters, then its name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use annulus_membership::{Command, Request, RequestId};
use annulus_proto::v1;
use annulus_ring::ClusterId;
use bytes::Bytes;
use openraft::BasicNode;
use openraft::errors::{InitializeError, RaftError};
use rand::RngExt;
use tokio::time::Instant;

use super::network::Lane;
use super::node::Node;
use super::{InitError, ProposeError, runtime};

pub(super) async fn init(
    node: &Node,
    servers: BTreeMap<u64, String>,
    deadline: Duration,
) -> Result<ClusterId, InitError> {
    let until = Instant::now() + deadline;
    check(node.server_id(), &servers)?;
    let nodes: BTreeMap<u64, BasicNode> = servers
        .iter()
        .map(|(id, endpoint)| (*id, BasicNode::new(endpoint)))
        .collect();
    let id = if node.standing().initialised() {
        node.log().name().get()
    } else {
        Some(enlist(node, &servers, until).await?)
    };
    match node.raft().initialize(nodes).await {
        Ok(()) => {}
        Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {
            let standing = node.standing();
            let same = standing.servers.len() == servers.len()
                && standing
                    .servers
                    .iter()
                    .all(|(id, known)| servers.get(id) == Some(&known.endpoint));
            if !same {
                return Err(InitError::AlreadyInitialised);
            }
        }
        Err(RaftError::APIError(InitializeError::NotInMembers(_))) => {
            return Err(bad("this server is not among them".to_owned()));
        }
        Err(RaftError::Fatal(error)) => {
            return Err(InitError::Fatal {
                reason: error.to_string(),
            });
        }
    }
    // What raft knows reaches the standing a moment later, and a proposal looks there.
    let mut standings = node.standings();
    let known = standings.wait_for(super::Standing::initialised);
    // Should it not come, the proposal says so.
    let _ = tokio::time::timeout_at(until, known).await;
    name(node, id, until).await
}

/// Every server notes to which cluster it belongs before there is anything to lose: from then on a
/// directory without a name is one that was lost.
async fn enlist(
    node: &Node,
    servers: &BTreeMap<u64, String>,
    until: Instant,
) -> Result<ClusterId, InitError> {
    // A call that came to nothing may be repeated: the name stays.
    let drawn = || ClusterId(runtime::generator().random());
    let id = node.log().name().get().unwrap_or_else(drawn);
    let others = servers.iter().filter(|(id, _)| **id != node.server_id());
    for (server, endpoint) in others {
        let silent = |reason: String| InitError::NotEnlisted {
            server: *server,
            endpoint: endpoint.clone(),
            reason,
        };
        let client = node.peers().client(endpoint, Lane::Request);
        let mut client = client.map_err(|error| silent(error.to_string()))?;
        let message = v1::EnlistRequest {
            cluster_id: Bytes::copy_from_slice(&id.0.to_be_bytes()),
        };
        let left = until.saturating_duration_since(Instant::now());
        let request = node.peers().addressed(*server, left, message);
        match tokio::time::timeout(left, client.enlist(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => return Err(silent(status.message().to_owned())),
            Err(_elapsed) => return Err(silent("it does not answer".to_owned())),
        }
    }
    let enlisted = node.enlist(id).await;
    enlisted.map_err(|_| InitError::AlreadyInitialised)?;
    Ok(id)
}

fn bad(reason: String) -> InitError {
    InitError::BadServers { reason }
}

fn check(here: u64, servers: &BTreeMap<u64, String>) -> Result<(), InitError> {
    if servers.is_empty() {
        return Err(bad("it is empty".to_owned()));
    }
    if servers.contains_key(&0) {
        return Err(bad("ids begin with 1".to_owned()));
    }
    if !servers.contains_key(&here) {
        return Err(bad(format!("this server, {here}, is not among them")));
    }
    let mut seen = BTreeSet::new();
    for (id, endpoint) in servers {
        if !seen.insert(endpoint) {
            return Err(bad(format!(
                "endpoint {endpoint} of server {id} is named twice"
            )));
        }
        let valid = endpoint.parse::<annulus_ring::Endpoint>();
        valid.map_err(|error| bad(format!("endpoint of server {id}: {error}")))?;
    }
    Ok(())
}

/// The first of several names stays: whoever asks gets it.
async fn name(node: &Node, id: Option<ClusterId>, until: Instant) -> Result<ClusterId, InitError> {
    let mut random = runtime::generator();
    let request = Request {
        request_id: Some(RequestId(random.random())),
        command: Command::Init {
            cluster_id: id.unwrap_or_else(|| ClusterId(random.random())),
        },
    };
    let left = || until.saturating_duration_since(Instant::now());
    let named = node.propose(request, left()).await;
    named.map_err(|error| match error {
        ProposeError::Fatal { reason } => InitError::Fatal { reason },
        error => InitError::Unknown {
            reason: error.to_string(),
        },
    })?;
    node.linearize(left())
        .await
        .map_err(|error| InitError::Unknown {
            reason: error.to_string(),
        })?;
    let named = node.shared().read(|state, _| state.cluster_id);
    named.ok_or_else(|| InitError::Unknown {
        reason: "the name is not applied yet".to_owned(),
    })
}
