//! A snapshot's value to its sections. Equal values give equal bytes on every server.

use annulus_ring::{List, Slot, SlotChange, SlotTable, Snapshot};
use bytes::Bytes;

use super::{Encoded, SLOTS_PER_SECTION};
use crate::{convert, packing::pack, v1};

/// Encodes and hashes a snapshot: once, inside apply. O(members + slots x rf).
#[must_use]
pub fn encode(snapshot: &Snapshot) -> Encoded {
    let rf = usize::from(snapshot.layout.slots.rf());
    let mut sections = vec![section(&header(snapshot))];
    sections.extend(
        snapshot
            .members
            .iter()
            .map(|member| section(&v1::MemberSection::from(member))),
    );
    sections.extend(slot_sections(&snapshot.layout.slots));
    if let Some(transition) = &snapshot.transition {
        let rf = transition.replication.map_or(rf, |new| new.rf.into());
        sections.extend(target_sections(&transition.target, rf));
    }
    let transition = snapshot.transition.as_ref().map(|transition| transition.id);
    Encoded::new(snapshot.format, sections, transition)
}

fn section(message: &impl prost::Message) -> Bytes {
    message.encode_to_vec().into()
}

fn header(snapshot: &Snapshot) -> v1::SnapshotHeader {
    let layout = &snapshot.layout;
    v1::SnapshotHeader {
        format: snapshot.format,
        cluster_id: convert::id128_bytes(snapshot.cluster_id.0),
        ring: snapshot.ring.to_string(),
        generation: snapshot.generation.0,
        epoch: snapshot.epoch.0,
        previous_checksum: convert::checksum_bytes(snapshot.previous_checksum),
        created_at_ms: snapshot.created_at_ms,
        placement_version: layout.placement_version,
        hash: layout.hash.to_string(),
        seed: layout.seed,
        rf: layout.replication.rf.into(),
        w: layout.replication.w.into(),
        r: layout.replication.r.into(),
        layout: v1::LayoutKind::Slots.into(),
        slot_bits: layout.slots.bits().into(),
        // Members are at most 10,000 and changed slots at most 2^20.
        member_count: snapshot.members.len() as u32,
        transition: snapshot
            .transition
            .as_ref()
            .map(|transition| v1::TransitionHeader {
                id: transition.id.0,
                step: transition.step.number().into(),
                changed_slots: transition.target.len() as u32,
                replication: transition.replication.map(|new| v1::ReplicationHeader {
                    rf: new.rf.into(),
                    w: new.w.into(),
                    r: new.r.into(),
                }),
            }),
        signature: Bytes::new(),
    }
}

fn slot_sections(table: &SlotTable) -> impl Iterator<Item = Bytes> {
    let firsts = (0..table.slot_count()).step_by(SLOTS_PER_SECTION);
    firsts.map(move |first| slot_section(table, first))
}

/// The section of the slots from `first` on, a multiple of [`SLOTS_PER_SECTION`].
pub(crate) fn slot_section(table: &SlotTable, first: usize) -> Bytes {
    let count = SLOTS_PER_SECTION.min(table.slot_count() - first);
    let (first, count) = (first as u32, count as u32);
    let lists = (first..first + count).map(|slot| table.list(Slot(slot)));
    let (bits, handles) = pack(lists, usize::from(table.rf()));
    section(&v1::SlotSection {
        first,
        count,
        bits,
        handles,
    })
}

/// The sections of a target.
pub(crate) fn target_sections(target: &[SlotChange], rf: usize) -> impl Iterator<Item = Bytes> {
    let chunks = target.chunks(SLOTS_PER_SECTION);
    chunks.map(move |chunk| section(&target_section(chunk, rf)))
}

fn target_section(changes: &[SlotChange], rf: usize) -> v1::TargetSection {
    let (bits, handles) = pack(changes.iter().map(|change| List::as_slice(&change.to)), rf);
    v1::TargetSection {
        slots: changes.iter().map(|change| change.slot.0).collect(),
        bits,
        handles,
    }
}
