//! One data node asked directly, past the client library: what does this very node answer?

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use annulus_kv::pb::{self, kv_client::KvClient};
use annulus_ring::{Epoch, Member, NodeId, Position, Snapshot};
use futures::{StreamExt, stream};
use tonic::transport::{Channel, Endpoint};

use crate::{ledger::Ack, wait::until};

/// How long a node may be behind, or busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions under way at once.
const AT_ONCE: usize = 64;

/// A connection to each member of a ring.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    nodes: BTreeMap<NodeId, KvClient<Channel>>,
}

/// What a node said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The epoch by which it judged.
    pub epoch: Epoch,
    /// Its copy's newest version of the key (none: never written there), or why it refuses.
    pub found: Result<Option<Position>, Refusal>,
}

/// Acknowledged writes that too few members hold, each with those that do.
pub type Short = Vec<(Ack, Vec<NodeId>)>;

/// The first of them, for a message.
#[must_use]
pub fn show(short: &Short) -> String {
    const SHOWN: usize = 5;
    let mut lines = vec![format!("{} held by too few:", short.len())];
    for (ack, holders) in short.iter().take(SHOWN) {
        let key = String::from_utf8_lossy(&ack.key);
        lines.push(format!(
            "  {key:?} in slot {}, acknowledged at {} in epoch {}, held by {holders:?} alone",
            ack.slot, ack.version, ack.epoch
        ));
    }
    lines.join("\n")
}

/// A refusal by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The asked epoch is too old for this range.
    Stale,
    /// The node has not heard of the asked epoch.
    Behind,
    /// Not the owner.
    NotOwner,
    /// Not in the range's read set.
    NotMember,
    /// Anything else.
    Other,
}

impl Probe {
    /// Connections to all members of the snapshot, opened when first used.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let connect = |member: &Member| {
            let address = format!("http://{}", member.endpoint);
            let channel = Endpoint::from_shared(address).expect("an endpoint is an address");
            (
                member.node_id.clone(),
                KvClient::new(channel.connect_lazy()),
            )
        };
        Self {
            nodes: snapshot.members.iter().map(connect).collect(),
        }
    }

    /// Reads `key` at `node` itself, routed by `snapshot`.
    ///
    /// # Errors
    /// If the call broke.
    pub async fn read(
        &self,
        node: &NodeId,
        snapshot: &Snapshot,
        key: &[u8],
        mode: pb::ReadMode,
    ) -> Result<Answer, String> {
        let request = pb::GetRequest {
            stamp: Some(pb::Stamp {
                ring: snapshot.ring.to_string(),
                generation: snapshot.generation.0,
                epoch: snapshot.epoch.0,
                // The last hop allowed: the node must answer itself or refuse, not pass it on.
                hops: 2,
            }),
            key: key.to_vec().into(),
            mode: mode.into(),
            timeout_ms: 2_000,
        };
        let mut kv = self.nodes.get(node).ok_or("no such member")?.clone();
        let answer = kv
            .get(request)
            .await
            .map_err(|status| status.to_string())?
            .into_inner();
        let found = match answer.result.ok_or("an answer without a result")? {
            pb::get_response::Result::Found(found) => Ok(found
                .version
                .map(|at| Position::new(Epoch(at.reign), at.seq))),
            pb::get_response::Result::Refused(refused) => {
                use pb::refused::Cause;
                Err(match refused.cause {
                    Some(Cause::Stale(_)) => Refusal::Stale,
                    Some(Cause::Behind(_)) => Refusal::Behind,
                    Some(Cause::NotOwner(_)) => Refusal::NotOwner,
                    Some(Cause::NotMember(_)) => Refusal::NotMember,
                    _ => Refusal::Other,
                })
            }
        };
        Ok(Answer {
            epoch: Epoch(answer.epoch),
            found,
        })
    }

    /// Which members of the key's read set hold this write or a newer one, by their own copies.
    pub async fn holders(&self, snapshot: &Snapshot, ack: &Ack) -> Vec<NodeId> {
        let mut holders = Vec::new();
        for handle in snapshot.sets(ack.slot).read_set() {
            let member = snapshot
                .member_by_handle(*handle)
                .expect("a checked snapshot");
            let what = format!("{} to answer for its copy", member.node_id);
            let version = until(PATIENCE, what, || async {
                let mode = pb::ReadMode::Any;
                let answer = self.read(&member.node_id, snapshot, &ack.key, mode).await?;
                answer
                    .found
                    .map_err(|refusal| format!("{refusal:?} at epoch {}", answer.epoch))
            })
            .await;
            if version.is_some_and(|version| version >= ack.version) {
                holders.push(member.node_id.clone());
            }
        }
        holders
    }

    /// Looks at `acks` in their read sets, and gives those that fewer than w members hold: a later
    /// exact read by r members could miss them, so they count as lost (NO-LOST-WRITE).
    pub async fn short_of_quorum(&self, snapshot: &Arc<Snapshot>, acks: Vec<Ack>) -> Short {
        let w = usize::from(snapshot.layout.replication.w);
        stream::iter(acks)
            .map(|ack| async move {
                let holders = self.holders(snapshot, &ack).await;
                (ack, holders)
            })
            .buffer_unordered(AT_ONCE)
            .filter(|(_, holders)| {
                let short = holders.len() < w;
                async move { short }
            })
            .collect()
            .await
    }
}
