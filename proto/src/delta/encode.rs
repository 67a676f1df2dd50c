//! The sender's side: what to send to a reader that has the base.

use annulus_ring::{SlotChange, Snapshot, placement};
use bytes::Bytes;
use prost::Message as _;

use super::{Held, pairs};
use crate::v1;

/// The delta that leads from `base` to `new`, or none where the full snapshot serves better:
/// another cluster, ring, generation, format, k or rf, or a delta of more than half its size.
///
/// Both must be as encoded here (or verified and decoded): sections are told apart by their
/// place. O(members + slots x rf).
#[must_use]
pub fn between(base: Held<'_>, new: Held<'_>) -> Option<v1::Delta> {
    let (from, to) = (base.snapshot, new.snapshot);
    let shape = |snapshot: &Snapshot| {
        let slots = &snapshot.layout.slots;
        let of = (snapshot.cluster_id, snapshot.generation, snapshot.format);
        (of, slots.bits(), slots.rf())
    };
    if shape(from) != shape(to) || from.ring != to.ring || base.bytes.format != new.bytes.format {
        return None;
    }
    let rf = usize::from(to.layout.slots.rf());
    let (settled, changed) = changed(from, to);
    let target = to
        .transition
        .as_ref()
        .map(|transition| &transition.target)
        .filter(|target| {
            // Lists of another width are packed anew, even if they are the same.
            let before = from.transition.as_ref();
            before.is_none_or(|before| {
                before.target != **target || from.quorums().new.rf != to.quorums().new.rf
            })
        });
    let delta = v1::Delta {
        base: Some(v1::EpochRef {
            generation: from.generation.0,
            epoch: from.epoch.0,
            checksum: base.bytes.checksum.clone(),
        }),
        checksum: new.bytes.checksum.clone(),
        format: new.bytes.format,
        header: new.bytes.sections.first()?.clone(),
        members: members(base, new)?,
        removed: removed(from, to),
        settled,
        slots: (!changed.is_empty()).then(|| pairs::pack(&changed, rf)),
        target: target.map(|target| pairs::pack(target, to.quorums().new.rf.into())),
    };
    let full: usize = new.bytes.sections.iter().map(Bytes::len).sum();
    (delta.encoded_len() <= full / 2).then_some(delta)
}

/// Changed slots against the base's table, or against the table that its target makes of it,
/// whichever is less.
fn changed(from: &Snapshot, to: &Snapshot) -> (bool, Vec<SlotChange>) {
    let changed = placement::diff(&from.layout.slots, &to.layout.slots);
    match &from.transition {
        // Lists of another width do not fit the base's table.
        Some(transition)
            if !changed.is_empty() && from.quorums().new.rf == to.layout.slots.rf() =>
        {
            let mut settled = from.layout.slots.clone();
            placement::apply(&mut settled, &transition.target);
            let rest = placement::diff(&settled, &to.layout.slots);
            if rest.len() < changed.len() {
                (true, rest)
            } else {
                (false, changed)
            }
        }
        Some(_) | None => (false, changed),
    }
}

/// Sections of members that are new or differ; none if sections are missing.
fn members(base: Held<'_>, new: Held<'_>) -> Option<Vec<Bytes>> {
    let before = base.bytes.sections.get(1..=base.snapshot.members.len())?;
    let after = new.bytes.sections.get(1..=new.snapshot.members.len())?;
    let old = &base.snapshot.members;
    let differs = |(member, section): &(&annulus_ring::Member, &Bytes)| {
        let at = old.binary_search_by(|other| other.node_id.cmp(&member.node_id));
        at.ok().is_none_or(|at| before[at] != **section)
    };
    let pairs = new.snapshot.members.iter().zip(after).filter(differs);
    Some(pairs.map(|(_, section)| section.clone()).collect())
}

fn removed(from: &Snapshot, to: &Snapshot) -> Vec<String> {
    let gone = |member: &&annulus_ring::Member| to.member(&member.node_id).is_none();
    let gone = from.members.iter().filter(gone);
    gone.map(|member| member.node_id.to_string()).collect()
}
