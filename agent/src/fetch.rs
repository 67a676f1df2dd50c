//! What this node takes from a range's owner: the other end of [`crate::peer`].

use std::sync::Arc;

use annulus_proto::{
    convert::{ConvertError, PeerStamp, digest, required},
    v1,
};
use annulus_ring::{Endpoint, NodeId, Position, SessionId, Slot, Zone};
use bytes::Bytes;
use tonic::{Code, Status, Streaming};
use tracing::info;

use crate::{
    bait,
    peer::{CHUNK_BYTES, CHUNK_RECORDS},
    shared::Shared,
    store::{Copy, DigestAt, Record, StoreError, Stray},
    view::NodeView,
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
    /// What a member holds of a reign that is refused: nothing follows about holes.
    Fenced,
}

/// How a stream of records ended.
struct End {
    cut: Position,
    /// Where the source's copy stood when its reign began.
    fork: Option<Position>,
}

/// A slot's owner, as the present view names it.
pub(crate) struct Source {
    pub node: NodeId,
    pub endpoint: Endpoint,
    /// Its zone, where that is not this node's.
    pub other_zone: Option<Zone>,
    pub stamp: PeerStamp,
}

impl Source {
    /// A message of it that makes no sense.
    pub(crate) fn misspoke(&self, error: ConvertError) -> FetchError {
        FetchError::Message {
            source_node: self.node.clone(),
            error,
        }
    }

    /// An answer of it that is not whole.
    pub(crate) fn torn(&self) -> FetchError {
        FetchError::Torn {
            source_node: self.node.clone(),
        }
    }

    /// The cut, if it is of the reign that was asked for.
    pub(crate) fn of_its_reign(&self, cut: Position) -> Result<Position, FetchError> {
        if cut.reign == self.stamp.reign {
            return Ok(cut);
        }
        Err(FetchError::Reign {
            source_node: self.node.clone(),
            found: cut,
            expected: self.stamp.reign,
        })
    }

    pub(crate) fn answered(&self, status: &Status) -> FetchError {
        FetchError::Answer {
            source_node: self.node.clone(),
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

impl Shared {
    pub(crate) fn source(&self, slot: Slot) -> Result<Source, FetchError> {
        let view = self.guard.view();
        let owner = view
            .sets(slot)
            .owner()
            .ok_or(FetchError::NoOwner { slot })?;
        if view.own == Some(owner) {
            return Err(FetchError::OwnOwner { slot });
        }
        let peer = view.peer(owner, None).ok_or(FetchError::NoOwner { slot })?;
        Ok(Source {
            node: peer.node_id,
            endpoint: peer.endpoint,
            other_zone: view.other_zone(owner),
            stamp: self.stamp(&view, slot),
        })
    }

    fn stamp(&self, view: &NodeView, slot: Slot) -> PeerStamp {
        PeerStamp {
            ring: self.config.ring.clone(),
            generation: view.generation(),
            epoch: view.epoch(),
            reign: view.reign(slot),
            node_id: self.config.node_id.clone(),
            incarnation: view.incarnation.unwrap_or_default(),
        }
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
        let End { cut, .. } = self
            .drink(&source, stream, slot, copy, Purpose::Copy)
            .await?;
        self.store
            .call(move |store| store.mark_complete(slot, session, cut))
            .await?;
        Ok(cut)
    }

    /// Closes the holes of a copy: everything the owner has above the copy's watermark. Where the
    /// copy is of an older reign this brings the base of the owner's, and takes out what the owner
    /// lacks ([`Self::sift`]), or a deposed owner's strays would keep digests apart for ever (story
    /// F10). The owner's cut.
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
        let End { cut, fork } = self
            .drink(&source, stream, slot, copy, Purpose::Repair)
            .await?;
        let joins = from.is_none_or(|held| held.reign < cut.reign);
        if joins && !bait::on(bait::STRAYS_KEPT) {
            // The fork speaks of the reign before; who comes from an older one compares all.
            let above = fork.filter(|fork| from.is_some_and(|held| held.reign == fork.reign));
            self.sift(&source, slot, copy, session, above).await?;
        }
        // Only now: a watermark in a reign says that its base is held, and nothing else of before.
        self.store
            .call(move |store| store.merge(slot, copy, Vec::new(), Some(cut)))
            .await?;
        Ok(cut)
    }

    /// Gives up every record of an older reign above `above` that the owner does not hold so. Costs
    /// a pass over the versions above `above`, and their keys over the wire.
    async fn sift(
        self: &Arc<Self>,
        source: &Source,
        slot: Slot,
        copy: Copy,
        session: u64,
        above: Option<Position>,
    ) -> Result<(), FetchError> {
        let reign = source.stamp.reign;
        let suspects = move |store: &dyn crate::store::RangeStore| {
            let of_before = |held: &Result<(Bytes, Position), StoreError>| match held {
                Ok((_, version)) => version.reign < reign,
                Err(_) => true,
            };
            let versions = store.versions(slot, copy, above)?;
            versions.filter(of_before).collect::<Result<Vec<_>, _>>()
        };
        let mut suspects = self.store.call(suspects).await?;
        while !suspects.is_empty() {
            let mut bytes = 0;
            let fits = |(key, _): &&(Bytes, Position)| {
                bytes += key.len();
                bytes <= CHUNK_BYTES
            };
            let count = suspects.iter().take(CHUNK_RECORDS).take_while(fits).count();
            let rest = suspects.split_off(count.max(1));
            let asked = std::mem::replace(&mut suspects, rest);
            self.sift_some(source, slot, copy, session, asked).await?;
        }
        Ok(())
    }

    async fn sift_some(
        self: &Arc<Self>,
        source: &Source,
        slot: Slot,
        copy: Copy,
        session: u64,
        asked: Vec<(Bytes, Position)>,
    ) -> Result<(), FetchError> {
        let wrong = |error| source.misspoke(error);
        let held = asked.iter().map(|(key, version)| v1::KeyVersion {
            key: key.clone(),
            version: Some((*version).into()),
        });
        let request = v1::SiftRequest {
            stamp: Some(source.stamp.clone().into()),
            session,
            slot: slot.0,
            held: held.collect(),
        };
        let answer = self.peer(&source.endpoint)?.sift(request).await;
        let mut stream = answer
            .map_err(|status| source.answered(&status))?
            .into_inner();
        while let Some(chunk) = stream
            .message()
            .await
            .map_err(|status| source.answered(&status))?
        {
            let mut strays = Vec::with_capacity(chunk.strays.len());
            for stray in chunk.strays {
                let at = usize::try_from(stray.at).unwrap_or(usize::MAX);
                let (key, version) = asked.get(at).ok_or_else(|| source.torn())?;
                strays.push(Stray {
                    key: key.clone(),
                    version: *version,
                    instead: stray.instead.map(record).transpose().map_err(wrong)?,
                });
            }
            let count = strays.len();
            info!(%slot, %copy, count, owner = %source.node, reign = %source.stamp.reign,
                "records of a deposed owner are given up");
            self.metrics.strays.inc_by(count as u64);
            self.store
                .call(move |store| store.give_up(slot, copy, strays))
                .await?;
        }
        Ok(())
    }

    /// As successor of a failover: takes in what a member that refuses the silent owner holds above
    /// `from`.
    pub(crate) async fn fenced_tail(
        self: &Arc<Self>,
        wave: u64,
        node: &NodeId,
        slot: Slot,
        from: Option<Position>,
    ) -> Result<(), FetchError> {
        let view = self.guard.view();
        let endpoint = view.endpoint(node).ok_or(FetchError::NoOwner { slot })?;
        let source = Source {
            node: node.clone(),
            endpoint: endpoint.clone(),
            other_zone: None,
            stamp: self.stamp(&view, slot),
        };
        let request = v1::FencedTailRequest {
            stamp: Some(source.stamp.clone().into()),
            wave,
            slot: slot.0,
            from: from.map(Into::into),
        };
        let stream = self.peer(&source.endpoint)?.fenced_tail(request).await;
        let stream = stream
            .map_err(|status| source.answered(&status))?
            .into_inner();
        self.drink(&source, stream, slot, Copy::Live, Purpose::Fenced)
            .await?;
        Ok(())
    }

    /// Merges a stream chunk by chunk, up to the chunk that carries the cut.
    async fn drink(
        self: &Arc<Self>,
        source: &Source,
        mut stream: Streaming<v1::RecordChunk>,
        slot: Slot,
        copy: Copy,
        purpose: Purpose,
    ) -> Result<End, FetchError> {
        let wrong = |error| source.misspoke(error);
        loop {
            let chunk = stream
                .message()
                .await
                .map_err(|status| source.answered(&status))?;
            let chunk = chunk.ok_or_else(|| source.torn())?;
            let cut = chunk.cut.map(Position::from);
            if let Some(cut) = cut
                && purpose != Purpose::Fenced
            {
                source.of_its_reign(cut)?;
            }
            let records = chunk
                .records
                .into_iter()
                .map(record)
                .collect::<Result<Vec<_>, _>>()
                .map_err(wrong)?;
            let bytes: usize = records.iter().map(Record::payload_bytes).sum();
            if purpose == Purpose::Copy {
                let zone = source.other_zone.as_ref();
                self.throttles.take_in(zone, bytes).await;
            }
            if !records.is_empty() {
                self.store
                    .call(move |store| store.merge(slot, copy, records, None))
                    .await?;
            }
            if matches!(copy, Copy::Staging(_)) && bytes > 0 {
                self.board.copied(bytes as u64);
                self.metrics.copied_bytes.inc_by(bytes as u64);
            }
            if let Some(cut) = cut {
                let fork = chunk.fork.map(Position::from);
                return Ok(End { cut, fork });
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
        let digest = digest("digest", &answer.digest).map_err(|error| source.misspoke(error))?;
        Ok(DigestAt {
            cut,
            digest,
            records: answer.records,
        })
    }
}

pub(crate) fn record(message: v1::Record) -> Result<Record, ConvertError> {
    let version = required("record.version", message.version)?.into();
    Ok(Record {
        key: message.key,
        version,
        value: message.value,
    })
}
