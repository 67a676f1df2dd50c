//! What this node takes from a range's owner: the other end of [`crate::peer`].

use std::sync::Arc;

use annulus_proto::{
    convert::{ConvertError, PeerStamp, digest, required},
    v1,
};
use annulus_ring::{Endpoint, NodeId, Position, SessionId, Slot};
use tonic::{Code, Status, Streaming};

use crate::{
    shared::Shared,
    store::{Copy, DigestAt, Record, StoreError},
};

/// Why nothing (more) came. Everything here is worth another try, some only under another view.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("slot {slot} has no owner to ask")]
    NoOwner { slot: Slot },
    #[error("this node owns slot {slot} itself")]
    OwnOwner { slot: Slot },
    #[error(transparent)]
    Dial(#[from] annulus_client::DialError),
    #[error("{source_node} answered {code:?}: {message}")]
    Answer {
        source_node: NodeId,
        code: Code,
        message: String,
    },
    #[error("{source_node} ended the stream without a cut")]
    Torn { source_node: NodeId },
    #[error("{source_node} cut at {found}, which is not of reign {expected}")]
    Reign {
        source_node: NodeId,
        found: Position,
        expected: annulus_ring::Epoch,
    },
    #[error("message of {source_node}: {error}")]
    Message {
        source_node: NodeId,
        error: ConvertError,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FetchError {
    /// Records may have been merged already; otherwise there is nothing to begin anew.
    pub(crate) fn spoils_attempt(&self) -> bool {
        match self {
            Self::NoOwner { .. } | Self::OwnOwner { .. } | Self::Dial(_) => false,
            Self::Answer { code, .. } => {
                !matches!(code, Code::Unavailable | Code::FailedPrecondition)
            }
            Self::Torn { .. } | Self::Reign { .. } | Self::Message { .. } | Self::Store(_) => true,
        }
    }

    /// The owner cannot say what it was at that cut, but may at a newer one.
    pub(crate) fn asks_for_another_cut(&self) -> bool {
        matches!(
            self,
            Self::Answer {
                code: Code::OutOfRange,
                ..
            }
        )
    }
}

/// What a stream of records is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A whole copy: throttled, and complete only with its marker.
    Copy,
    /// A tail: everything up to its cut is then held.
    Repair,
}

/// A slot's owner, as the present view names it.
struct Source {
    node: NodeId,
    endpoint: Endpoint,
    stamp: PeerStamp,
}

impl Source {
    fn answered(&self, status: &Status) -> FetchError {
        FetchError::Answer {
            source_node: self.node.clone(),
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

impl Shared {
    fn source(&self, slot: Slot) -> Result<Source, FetchError> {
        let view = self.guard.view();
        let owner = view
            .sets(slot)
            .owner()
            .ok_or(FetchError::NoOwner { slot })?;
        if view.own == Some(owner) {
            return Err(FetchError::OwnOwner { slot });
        }
        let peer = view.peer(owner, None).ok_or(FetchError::NoOwner { slot })?;
        let stamp = PeerStamp {
            ring: self.config.ring.clone(),
            generation: view.generation(),
            epoch: view.epoch(),
            reign: view.reign(slot),
            node_id: self.config.node_id.clone(),
            incarnation: view.incarnation.unwrap_or_default(),
        };
        Ok(Source {
            node: peer.node_id,
            endpoint: peer.endpoint,
            stamp,
        })
    }

    /// Copies the whole range into the session's staging copy and marks it complete. Throttled,
    /// and limited per source. The cut.
    pub(crate) async fn pull(
        self: &Arc<Self>,
        slot: Slot,
        session: SessionId,
        attempt: u32,
    ) -> Result<Position, FetchError> {
        let source = self.source(slot)?;
        let limit = self.pulls_from(&source.node);
        let _turn = limit.acquire().await;
        // The view may have changed during the wait.
        let source = self.source(slot)?;
        let request = v1::PullRequest {
            stamp: Some(source.stamp.clone().into()),
            session: session.0,
            attempt,
            slot: slot.0,
        };
        let stream = self.peer(&source.endpoint)?.pull(request).await;
        let stream = stream
            .map_err(|status| source.answered(&status))?
            .into_inner();
        let copy = Copy::Staging(session);
        let cut = self
            .drink(&source, stream, slot, copy, Purpose::Copy)
            .await?;
        self.store
            .call(move |store| store.mark_complete(slot, session, cut))
            .await?;
        Ok(cut)
    }

    /// Closes the holes of a copy: everything the owner has above the copy's watermark. Where the
    /// copy is of an older reign this brings the base of the owner's. The owner's cut.
    pub(crate) async fn repair(
        self: &Arc<Self>,
        slot: Slot,
        copy: Copy,
        from: Option<Position>,
    ) -> Result<Position, FetchError> {
        let source = self.source(slot)?;
        let session = match copy {
            Copy::Staging(session) => session.0,
            Copy::Live | Copy::Retained(_) => 0,
        };
        let request = v1::TailRequest {
            stamp: Some(source.stamp.clone().into()),
            session,
            slot: slot.0,
            from: from.map(Into::into),
        };
        let stream = self.peer(&source.endpoint)?.tail(request).await;
        let stream = stream
            .map_err(|status| source.answered(&status))?
            .into_inner();
        self.drink(&source, stream, slot, copy, Purpose::Repair)
            .await
    }

    /// Merges a stream chunk by chunk. A repair's last chunk goes in with the cut as `through`.
    async fn drink(
        self: &Arc<Self>,
        source: &Source,
        mut stream: Streaming<v1::RecordChunk>,
        slot: Slot,
        copy: Copy,
        purpose: Purpose,
    ) -> Result<Position, FetchError> {
        let wrong = |error| FetchError::Message {
            source_node: source.node.clone(),
            error,
        };
        loop {
            let chunk = stream
                .message()
                .await
                .map_err(|status| source.answered(&status))?;
            let Some(chunk) = chunk else {
                return Err(FetchError::Torn {
                    source_node: source.node.clone(),
                });
            };
            let cut = chunk.cut.map(Position::from);
            if let Some(found) = cut
                && found.reign != source.stamp.reign
            {
                let (source_node, expected) = (source.node.clone(), source.stamp.reign);
                return Err(FetchError::Reign {
                    source_node,
                    found,
                    expected,
                });
            }
            let records = chunk
                .records
                .into_iter()
                .map(record)
                .collect::<Result<Vec<_>, _>>()
                .map_err(wrong)?;
            let bytes: usize = records.iter().map(Record::payload_bytes).sum();
            if purpose == Purpose::Copy {
                self.throttle.take(bytes).await;
            }
            let through = cut.filter(|_| purpose == Purpose::Repair);
            if !records.is_empty() || through.is_some() {
                self.store
                    .call(move |store| store.merge(slot, copy, records, through))
                    .await?;
            }
            if matches!(copy, Copy::Staging(_)) && bytes > 0 {
                self.board.copied(bytes as u64);
                self.metrics.copied_bytes.inc_by(bytes as u64);
            }
            if let Some(cut) = cut {
                return Ok(cut);
            }
        }
    }

    /// The owner's digest at a cut.
    pub(crate) async fn digest_of_owner(
        &self,
        slot: Slot,
        session: SessionId,
        attempt: u32,
        cut: Position,
    ) -> Result<DigestAt, FetchError> {
        let source = self.source(slot)?;
        let request = v1::DigestRequest {
            stamp: Some(source.stamp.clone().into()),
            session: session.0,
            attempt,
            slot: slot.0,
            cut: Some(cut.into()),
        };
        let answer = self.peer(&source.endpoint)?.digest(request).await;
        let answer = answer
            .map_err(|status| source.answered(&status))?
            .into_inner();
        let digest = digest("digest", &answer.digest).map_err(|error| FetchError::Message {
            source_node: source.node,
            error,
        })?;
        Ok(DigestAt {
            cut,
            digest,
            records: answer.records,
        })
    }
}

fn record(message: v1::Record) -> Result<Record, ConvertError> {
    let version = required("record.version", message.version)?.into();
    Ok(Record {
        key: message.key,
        version,
        value: message.value,
    })
}
