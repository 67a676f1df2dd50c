//! The reader's side: the sections that a delta leads to, not yet verified.

use annulus_ring::{
    Checksum, Epoch, Generation, SlotChange, SlotTable, placement,
    slots::{MAX_RF, SLOT_BITS},
};
use bytes::Bytes;
use prost::Message as _;

use super::{DeltaError, Held, pairs};
use crate::{
    snapshot::{
        SLOTS_PER_SECTION,
        decode::Known,
        encode::{slot_section, target_sections},
    },
    v1,
};

fn shape<T>(what: &'static str) -> Result<T, DeltaError> {
    Err(DeltaError::Shape { what })
}

/// Puts the full snapshot together, with the lists that its sections were packed from. The
/// caller verifies the bytes: nothing here is believed. Unchanged sections were the base's, so
/// they were packed from its lists.
pub(super) fn sections(
    held: Held<'_>,
    delta: &v1::Delta,
) -> Result<(v1::SnapshotBytes, Known), DeltaError> {
    starts_from(held, delta)?;
    let (base, slots) = (held.snapshot, &held.snapshot.layout.slots);
    if delta.format != held.bytes.format {
        return shape("another format than its base has");
    }
    let header = v1::SnapshotHeader::decode(delta.header.clone())
        .or_else(|_| shape("a header that is none"))?;
    debug_assert!(SLOT_BITS.contains(&slots.bits()), "the base was checked");
    if (header.slot_bits, header.rf) != (slots.bits().into(), slots.rf().into()) {
        return shape("another k or rf than its base has");
    }

    let mut sections = vec![delta.header.clone()];
    sections.extend(members(held, delta)?);
    let (slot_sections, table) = slot_sections(held, delta)?;
    sections.extend(slot_sections);
    let mut known = Known {
        slots: table,
        target: Vec::new(),
    };
    if let Some(transition) = &header.transition {
        let rf = match &transition.replication {
            Some(new) => usize::try_from(new.rf).unwrap_or(usize::MAX),
            None => slots.rf().into(),
        };
        if !(1..=usize::from(MAX_RF)).contains(&rf) {
            return shape("an rf that no ring has");
        }
        let given = match &delta.target {
            Some(target) => Some(pairs::unpack(target, rf, slots.slot_count())?),
            None => None,
        };
        let target: &[SlotChange] = match (&given, &base.transition) {
            (Some(target), _) => target,
            (None, Some(transition)) if usize::from(base.quorums().new.rf) == rf => {
                &transition.target
            }
            (None, Some(_)) => return shape("another rf than its base has, without the lists"),
            (None, None) => return shape("a transition without its target"),
        };
        sections.extend(target_sections(target, rf));
        known.target = target.to_vec();
    } else if delta.target.is_some() {
        return shape("a target without its transition");
    }
    let bytes = v1::SnapshotBytes {
        format: delta.format,
        checksum: delta.checksum.clone(),
        sections,
    };
    Ok((bytes, known))
}

/// Whether the delta starts from what is held.
fn starts_from(held: Held<'_>, delta: &v1::Delta) -> Result<(), DeltaError> {
    let checksum = |bytes: &[u8]| bytes.try_into().map(Checksum).unwrap_or_default();
    let base = delta.base.clone().unwrap_or_default();
    let found = (
        Generation(base.generation),
        Epoch(base.epoch),
        &base.checksum,
    );
    let (generation, epoch) = (held.snapshot.generation, held.snapshot.epoch);
    if found == (generation, epoch, &held.bytes.checksum) {
        return Ok(());
    }
    Err(DeltaError::Base {
        found_generation: found.0,
        found: found.1,
        found_checksum: checksum(&base.checksum),
        held_generation: generation,
        held: epoch,
        held_checksum: checksum(&held.bytes.checksum),
    })
}

/// The base's members without those that are gone, with those that are new or differ, merged
/// by node id.
fn members(held: Held<'_>, delta: &v1::Delta) -> Result<Vec<Bytes>, DeltaError> {
    let old = &held.snapshot.members;
    let Some(before) = held.bytes.sections.get(1..=old.len()) else {
        return shape("a base without its members");
    };
    let mut new = Vec::with_capacity(delta.members.len());
    for section in &delta.members {
        match v1::MemberSection::decode(section.clone()) {
            Ok(member) => new.push((member.node_id, section)),
            Err(_) => return shape("a member that is none"),
        }
    }
    let rises = |ids: &mut dyn Iterator<Item = &str>| {
        let ids: Vec<_> = ids.collect();
        ids.windows(2).all(|pair| pair[0] < pair[1])
    };
    if !rises(&mut new.iter().map(|(id, _)| id.as_str()))
        || !rises(&mut delta.removed.iter().map(String::as_str))
    {
        return shape("members out of order or listed twice");
    }
    let mut merged = Vec::with_capacity(old.len() + new.len());
    let (mut new, mut removed) = (new.into_iter().peekable(), delta.removed.iter().peekable());
    for (member, section) in old.iter().zip(before) {
        let id = member.node_id.as_str();
        while let Some((_, section)) = new.next_if(|(other, _)| other.as_str() < id) {
            merged.push(section.clone());
        }
        if removed.next_if(|gone| gone.as_str() == id).is_some() {
            continue;
        }
        match new.next_if(|(other, _)| other == id) {
            Some((_, section)) => merged.push(section.clone()),
            None => merged.push(section.clone()),
        }
    }
    merged.extend(new.map(|(_, section)| section.clone()));
    if removed.next().is_some() {
        return shape("a member is gone that the base has not");
    }
    Ok(merged)
}

/// The base's slot sections, those with changed lists packed again.
fn slot_sections(held: Held<'_>, delta: &v1::Delta) -> Result<(Vec<Bytes>, SlotTable), DeltaError> {
    let slots = &held.snapshot.layout.slots;
    let (rf, count) = (usize::from(slots.rf()), slots.slot_count());
    let mut changes = match (delta.settled, &held.snapshot.transition) {
        (true, Some(transition)) if held.snapshot.quorums().new.rf == slots.rf() => {
            transition.target.clone()
        }
        (true, Some(_)) => return shape("a target of another rf has settled"),
        (true, None) => return shape("a target has settled that the base has not"),
        (false, _) => Vec::new(),
    };
    if let Some(pairs) = &delta.slots {
        changes.extend(pairs::unpack(pairs, rf, count)?);
    }
    let first = 1 + held.snapshot.members.len();
    let sections = first..first + count.div_ceil(SLOTS_PER_SECTION);
    let Some(before) = held.bytes.sections.get(sections) else {
        return shape("a base without its slots");
    };
    let mut sections = before.to_vec();
    let mut table = slots.clone();
    placement::apply(&mut table, &changes);
    let mut touched = vec![false; sections.len()];
    for change in &changes {
        touched[change.slot.index() / SLOTS_PER_SECTION] = true;
    }
    for (at, section) in sections.iter_mut().enumerate() {
        if touched[at] {
            *section = slot_section(&table, at * SLOTS_PER_SECTION);
        }
    }
    Ok((sections, table))
}
