//! What data nodes report and what they are told, between messages and domain values.

use annulus_membership::{
    Directive, Held, MAX_MEMBERS, MAX_WAVE, Report, RingState, SlotReport, TransitionState, WaveId,
};
use annulus_proto::{convert, v1};
use annulus_ring::{Epoch, NodeId, Position, SessionId, Slot};

use super::status::ApiError;

/// A node's report, checked. What belongs to a session that does not run is left out: a node may
/// speak of a session whose end it has not learnt yet, and nothing is kept for it.
pub(super) fn report(
    ring: &RingState,
    node: &NodeId,
    message: v1::Report,
) -> Result<Report, ApiError> {
    let running = ring.transition.as_ref().map(TransitionState::session);
    let mut slots = Vec::with_capacity(message.slots.len());
    for slot in message.slots {
        let session = SessionId(slot.session);
        let known = session == SessionId(0) || Some(session) == running;
        let index = slot.slot;
        if index as usize >= ring.slots.slot_count() {
            let limit = ring.slots.slot_count();
            return Err(ApiError::field(
                "slots.slot",
                format!("{index}, the ring has {limit}"),
            ));
        }
        let standing = standing(ring, node, session, slot)?;
        if known {
            slots.push(standing);
        }
    }
    Ok(Report {
        adopted: Epoch(message.adopted_epoch),
        slots,
        sealed: message.sealed.map(wave).transpose()?,
        confirmed: message.confirmed.map(wave).transpose()?,
        retained: message
            .retained
            .iter()
            .map(convert::slot_set)
            .collect::<Result<_, _>>()?,
        copied_bytes: message.copied_bytes,
        free_bytes: message.free_bytes,
        held: held(message.held_bytes, message.held_keys),
        copy_bytes_per_second: message.copy_bytes_per_second,
        unheld: message.unheld_ranges,
        behind: message.behind_ranges,
        fenced: message.fenced_wave.map(WaveId),
        succeeded: message.succeeded.map(succeeded).transpose()?,
        hits: message.hits.map(hits).transpose()?,
    })
}

/// Known when both are.
fn held(bytes: Option<u64>, keys: Option<u64>) -> Option<Held> {
    Some(Held {
        bytes: bytes?,
        keys: keys?,
    })
}

fn hits(message: v1::SessionHits) -> Result<(SessionId, u16), ApiError> {
    let found = message.permille;
    match u16::try_from(found) {
        Ok(permille) if permille <= 1_000 => Ok((SessionId(message.session), permille)),
        _ => Err(ApiError::field(
            "hits.permille",
            format!("{found}, at most 1000"),
        )),
    }
}

fn standing(
    ring: &RingState,
    node: &NodeId,
    session: SessionId,
    message: v1::SlotReport,
) -> Result<SlotReport, ApiError> {
    let slot = Slot(message.slot);
    let position = |position: Option<v1::Position>| position.map(Position::from);
    let mut for_gainer = None;
    let digest = match message.digest {
        None => None,
        Some(digest) => {
            // `peer` is the other side; only a source's digest is made for somebody.
            if !digest.peer.is_empty() && is_source(ring, node, session, slot) {
                for_gainer = Some(convert::node_id("slots.digest.peer", &digest.peer)?);
            }
            let cut = convert::required("slots.digest.cut", digest.cut)?.into();
            let bytes = convert::digest("slots.digest.digest", &digest.digest)?;
            Some((cut, bytes, digest.records))
        }
    };
    Ok(SlotReport {
        slot,
        session,
        attempt: message.attempt,
        staged: message.staged,
        copied: position(message.copied),
        watermark: position(message.watermark),
        digest,
        for_gainer,
        joint: position(message.joint),
    })
}

/// Whether copies of `slot` in this session come from `node`.
fn is_source(ring: &RingState, node: &NodeId, session: SessionId, slot: Slot) -> bool {
    let sets = ring.sets(slot);
    let source = if session == SessionId(0) {
        sets.owner()
    } else {
        sets.old.first().copied()
    };
    let source = source.and_then(|handle| ring.by_handle(handle));
    source.is_some_and(|source| source.node_id == *node)
}

fn wave(message: v1::WaveReport) -> Result<(WaveId, Vec<Position>), ApiError> {
    if message.positions.len() > MAX_WAVE {
        let found = message.positions.len();
        return Err(ApiError::field(
            "positions",
            format!("{found}, at most {MAX_WAVE}"),
        ));
    }
    let positions = message.positions.into_iter().map(Position::from).collect();
    Ok((WaveId(message.wave), positions))
}

fn succeeded(message: v1::Succeeded) -> Result<(WaveId, Vec<NodeId>), ApiError> {
    if message.read.len() > MAX_MEMBERS {
        let found = message.read.len();
        return Err(ApiError::field(
            "read",
            format!("{found}, at most {MAX_MEMBERS}"),
        ));
    }
    let read = message
        .read
        .iter()
        .map(|node| convert::node_id("succeeded.read", node));
    Ok((WaveId(message.wave), read.collect::<Result<_, _>>()?))
}

/// What a node should do, as it is told; `epoch` is the ring's in the state it was made from.
pub(super) fn directive(directive: Directive, epoch: Epoch) -> v1::Directive {
    let numbers = |slots: &[Slot]| slots.iter().map(|slot| slot.0).collect();
    v1::Directive {
        everyone_adopted_epoch: directive.everyone_adopted.0,
        wave: directive.wave.map(|(wave, sealed)| v1::Wave {
            id: wave.id.0,
            owner: wave.owner.to_string(),
            successor: wave.successor.to_string(),
            slots: numbers(&wave.slots),
            sealed: sealed.into_iter().map(v1::Position::from).collect(),
            silent_owner: wave.intent.is_some(),
            tails: directive.tails.map(|of| v1::Tails {
                of: of.into_iter().map(Into::into).collect(),
            }),
        }),
        waves_over: directive.waves_over.0,
        paused: directive.paused,
        joint: directive
            .joint
            .into_iter()
            .map(v1::SlotPosition::from)
            .collect(),
        verify: numbers(&directive.verify),
        permits: directive
            .permits
            .iter()
            .map(|(session, slots)| convert::slot_set_message(*session, slots))
            .collect(),
        epoch: epoch.0,
    }
}
