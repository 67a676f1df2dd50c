//! Between the link's messages and what the agent works with. Nothing deeper in knows protobuf.

use std::{collections::BTreeSet, sync::Arc};

use annulus_proto::{
    convert::{self, ConvertError},
    snapshot::{self, DecodeError, Expect},
    v1,
};
use annulus_ring::{
    Checksum, ClusterId, Epoch, Generation, Lookup, NodeId, Position, RingName, SessionId, Slot,
    SnapshotError,
};
use bytes::Bytes;

use crate::{board::News, store::DigestAt, terms::Terms};

/// A view from the leader, checked and compiled.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub checksum: Checksum,
    pub lookup: Arc<Lookup>,
    pub reigns: Arc<[Epoch]>,
    pub last_changes: Arc<[Epoch]>,
    pub terms: Terms,
    /// Serve nobody: the ring is being converted.
    pub converting: bool,
    /// The ring's last conversion.
    pub converted: Epoch,
}

impl View {
    pub(crate) fn epoch(&self) -> Epoch {
        self.lookup.epoch()
    }

    pub(crate) fn generation(&self) -> Generation {
        self.lookup.snapshot().generation
    }

    pub(crate) fn held(&self) -> (Generation, Epoch, Checksum) {
        (self.generation(), self.epoch(), self.checksum)
    }
}

/// Why a message from the leader was refused; what was known stays in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("view: the snapshot is missing")]
    NoSnapshot,
    #[error("view: {0}")]
    Decode(#[from] DecodeError),
    #[error("view: {0}")]
    Sense(#[from] SnapshotError),
    #[error("view of epoch {epoch}: {reigns} reigns and {changes} last changes for {slots} slots")]
    Tables {
        epoch: Epoch,
        reigns: usize,
        changes: usize,
        slots: usize,
    },
    #[error("{0}")]
    Convert(#[from] ConvertError),
    #[error("view: {0}; upgrade this node")]
    Kind(#[from] annulus_ring::UnknownKind),
    #[error("wave {wave}: {positions} positions for {slots} slots")]
    Wave {
        wave: u64,
        positions: usize,
        slots: usize,
    },
    #[error("directive without an epoch; upgrade the control plane")]
    NoEpoch,
}

/// Checks and compiles a view. O(slots x rf).
pub(crate) fn view(
    message: &v1::View,
    ring: &RingName,
    cluster_id: Option<ClusterId>,
    held: Option<(Generation, Epoch, Checksum)>,
) -> Result<View, WireError> {
    let bytes = message.snapshot.as_ref().ok_or(WireError::NoSnapshot)?;
    let snapshot = snapshot::verify_and_decode(
        bytes,
        Expect {
            cluster_id,
            ring,
            held,
        },
    )?;
    let checksum = convert::checksum("checksum", &bytes.checksum)?;
    let slots = snapshot.layout.slots.slot_count();
    let (reigns, changes) = (message.reigns.len(), message.last_changes.len());
    if reigns != slots || changes != slots {
        return Err(WireError::Tables {
            epoch: snapshot.epoch,
            reigns,
            changes,
            slots,
        });
    }
    Ok(View {
        checksum,
        lookup: Arc::new(Lookup::compile(Arc::new(snapshot))?),
        reigns: message.reigns.iter().copied().map(Epoch).collect(),
        last_changes: message.last_changes.iter().copied().map(Epoch).collect(),
        terms: Terms::read(message.terms.as_ref())?,
        converting: message.converting,
        converted: Epoch(message.converted_epoch),
    })
}

/// A hand-over wave that this node takes part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wave {
    pub id: u64,
    pub owner: NodeId,
    pub successor: NodeId,
    /// Sorted, each once.
    pub slots: Vec<Slot>,
    /// F of each slot, in order; empty until the owner sealed.
    pub sealed: Vec<Position>,
    /// A failover: this node refuses the owner's reign in every range of it that lists it.
    pub silent: bool,
    /// As its successor, once enough members refuse: store the tails of these others.
    pub tails: Option<Vec<NodeId>>,
}

/// What the leader wants of this node besides what follows from the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directive {
    /// The ring's epoch in the state it was made from.
    pub epoch: Epoch,
    pub everyone_adopted: Epoch,
    pub wave: Option<Wave>,
    pub waves_over: u64,
    pub joint: std::collections::BTreeMap<Slot, Position>,
    pub verify: BTreeSet<Slot>,
    pub permits: Vec<(SessionId, Vec<Slot>)>,
    /// Begin no copy.
    pub paused: bool,
}

impl TryFrom<v1::Directive> for Directive {
    type Error = WireError;

    fn try_from(message: v1::Directive) -> Result<Self, WireError> {
        if message.epoch == 0 {
            return Err(WireError::NoEpoch);
        }
        let joint = message
            .joint
            .into_iter()
            .map(<(Slot, Position)>::try_from)
            .collect::<Result<_, _>>()?;
        let permits = message
            .permits
            .iter()
            .map(convert::slot_set)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            epoch: Epoch(message.epoch),
            everyone_adopted: Epoch(message.everyone_adopted_epoch),
            wave: message.wave.map(Wave::try_from).transpose()?,
            waves_over: message.waves_over,
            joint,
            verify: message.verify.into_iter().map(Slot).collect(),
            permits,
            paused: message.paused,
        })
    }
}

impl TryFrom<v1::Wave> for Wave {
    type Error = WireError;

    fn try_from(message: v1::Wave) -> Result<Self, WireError> {
        let slots = convert::sorted_slots("wave.slots", &message.slots)?;
        let sealed: Vec<Position> = message.sealed.into_iter().map(Position::from).collect();
        if !sealed.is_empty() && sealed.len() != slots.len() {
            return Err(WireError::Wave {
                wave: message.id,
                positions: sealed.len(),
                slots: slots.len(),
            });
        }
        let names = |tails: v1::Tails| {
            let names = tails.of.iter();
            names
                .map(|node| convert::node_id("wave.tails", node))
                .collect()
        };
        Ok(Self {
            silent: message.silent_owner,
            tails: message.tails.map(names).transpose()?,
            id: message.id,
            owner: convert::node_id("wave.owner", &message.owner)?,
            successor: convert::node_id("wave.successor", &message.successor)?,
            slots,
            sealed,
        })
    }
}

fn wave_report((wave, positions): (u64, Vec<Position>)) -> v1::WaveReport {
    v1::WaveReport {
        wave,
        positions: positions.into_iter().map(Into::into).collect(),
    }
}

fn digest(at: DigestAt, peer: String) -> v1::SlotDigest {
    v1::SlotDigest {
        cut: Some(at.cut.into()),
        digest: Bytes::copy_from_slice(&at.digest),
        peer,
        records: at.records,
    }
}

impl From<News> for v1::Report {
    fn from(news: News) -> Self {
        let own = news
            .slots
            .into_iter()
            .map(|((session, slot), standing)| v1::SlotReport {
                slot: slot.0,
                session: session.0,
                attempt: standing.attempt,
                staged: standing.staged,
                copied: standing.copied.map(Into::into),
                watermark: standing.watermark.map(Into::into),
                // The peer is named at the source only: that is how the leader tells the two apart.
                digest: standing.digest.map(|at| digest(at, String::new())),
                joint: standing.joint.map(Into::into),
            });
        let source = news
            .source_digests
            .into_iter()
            .map(|((session, slot, peer), at)| v1::SlotReport {
                slot: slot.0,
                session: session.0,
                digest: Some(digest(at, peer.into())),
                ..v1::SlotReport::default()
            });
        Self {
            adopted_epoch: news.adopted.0,
            slots: own.chain(source).collect(),
            sealed: news.sealed.map(wave_report),
            confirmed: news.confirmed.map(wave_report),
            released: news
                .released
                .iter()
                .map(|(session, slots)| convert::slot_set_message(*session, slots))
                .collect(),
            free_bytes: news.free_bytes,
            unheld_ranges: news.unheld,
            behind_ranges: news.behind,
            fenced_wave: news.fenced,
            succeeded: news.succeeded.map(|(wave, read)| v1::Succeeded {
                wave,
                read: read.into_iter().map(Into::into).collect(),
            }),
            copied_bytes: news.copied_bytes,
            held_bytes: news.held.map(|held| held.bytes),
            held_keys: news.held.map(|held| held.keys),
            copy_bytes_per_second: news.copy_bytes_per_second,
            hits: news.hits.map(|(session, permille)| v1::SessionHits {
                session: session.0,
                permille: permille.into(),
            }),
            retained: news
                .retained
                .into_iter()
                .map(|(session, slots)| {
                    convert::slot_set_message(session, &slots.into_iter().collect::<Vec<_>>())
                })
                .collect(),
        }
    }
}
