//! One range's list by epoch, and a transition's first and last epoch, out of the kept sections:
//! only those that speak of them are read.

use std::collections::BTreeMap;

use annulus_ring::{Epoch, Generation, Handle, NodeId, RingName, Slot, TransitionId};
use prost::Message;

use super::{History, Kept, SectionHash, Shelf};
use crate::{packing, snapshot::SLOTS_PER_SECTION, v1};

/// A range's list from an epoch on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptList {
    /// Rises when a backup is restored.
    pub generation: Generation,
    /// The first kept epoch with this list.
    pub epoch: Epoch,
    /// Wall clock of the entry that made it, in ms since 1970; for people.
    pub created_at_ms: u64,
    /// The owner first.
    pub nodes: Vec<NodeId>,
    /// The transition that ran at this epoch.
    pub transition: Option<TransitionId>,
    /// The transition that ran at the kept epoch before it.
    pub transition_before: Option<TransitionId>,
}

impl Shelf {
    /// Every other list that a range had, oldest first; the first is that of the oldest kept epoch.
    /// Lists of steps are not among them: it is the layout's that counts, which changes at a
    /// transition's end. Empty for an unknown ring. O(kept epochs), and a chunk of slots for each
    /// epoch that changed it.
    #[must_use]
    pub fn lists(&self, ring: &RingName, slot: Slot) -> Vec<KeptList> {
        let Some(history) = self.rings.get(ring) else {
            return Vec::new();
        };
        let mut reader = Reader {
            history,
            slot,
            lists: BTreeMap::new(),
        };
        let mut lists: Vec<KeptList> = Vec::new();
        let mut last: Option<(Vec<Handle>, Generation)> = None;
        let mut transition_before = None;
        for kept in &history.epochs {
            // What cannot be read was never published: nothing is told of it.
            let Some((header, handles)) = reader.list(kept) else {
                continue;
            };
            let found = (handles, kept.generation);
            if last.as_ref() != Some(&found)
                && let Some(nodes) = reader.names(kept, &header, &found.0)
            {
                lists.push(KeptList {
                    generation: kept.generation,
                    epoch: kept.epoch,
                    created_at_ms: header.created_at_ms,
                    nodes,
                    transition: kept.transition,
                    transition_before,
                });
            }
            last = Some(found);
            transition_before = kept.transition;
        }
        lists
    }

    /// The first kept epoch of a transition, and the one that ended it; none: not kept, not ended.
    #[must_use]
    pub fn transition(&self, ring: &RingName, id: TransitionId) -> (Option<Epoch>, Option<Epoch>) {
        let Some(history) = self.rings.get(ring) else {
            return (None, None);
        };
        let runs = |kept: &Kept| kept.transition == Some(id);
        let mut epochs = history.epochs.iter().skip_while(|kept| !runs(kept));
        let first = epochs.next().map(|kept| kept.epoch);
        let end = epochs.find(|kept| !runs(kept)).map(|kept| kept.epoch);
        (first, end)
    }
}

/// Reads one slot out of many epochs; a chunk that did not change is read once.
struct Reader<'a> {
    history: &'a History,
    slot: Slot,
    lists: BTreeMap<SectionHash, Option<Vec<Handle>>>,
}

impl Reader<'_> {
    fn section<M: Message + Default>(&self, hash: &SectionHash) -> Option<M> {
        M::decode(self.history.sections.get(hash)?.bytes.clone()).ok()
    }

    fn list(&mut self, kept: &Kept) -> Option<(v1::SnapshotHeader, Vec<Handle>)> {
        let header: v1::SnapshotHeader = self.section(kept.sections.first()?)?;
        let chunk = self.slot.index() / SLOTS_PER_SECTION;
        // The header, the members, then the chunks.
        let hash = kept
            .sections
            .get(1 + header.member_count as usize + chunk)?;
        if let Some(known) = self.lists.get(hash) {
            return Some((header, known.clone()?));
        }
        let list = self.unpack(hash, header.rf as usize);
        self.lists.insert(*hash, list.clone());
        Some((header, list?))
    }

    fn unpack(&self, hash: &SectionHash, rf: usize) -> Option<Vec<Handle>> {
        let section: v1::SlotSection = self.section(hash)?;
        let place = self.slot.0.checked_sub(section.first)?;
        if place >= section.count {
            return None;
        }
        let (mut at, mut found) = (0, None);
        let count = section.count as usize;
        packing::unpack(&section.handles, section.bits, rf, count, |list| {
            if at == place {
                found = Some(list.to_vec());
            }
            at += 1;
        })
        .ok()?;
        found
    }

    fn names(
        &self,
        kept: &Kept,
        header: &v1::SnapshotHeader,
        handles: &[Handle],
    ) -> Option<Vec<NodeId>> {
        let members: BTreeMap<u32, String> = kept
            .sections
            .iter()
            .skip(1)
            .take(header.member_count as usize)
            .filter_map(|hash| self.section::<v1::MemberSection>(hash))
            .map(|member| (member.handle, member.node_id))
            .collect();
        handles
            .iter()
            .map(|handle| NodeId::new(members.get(&handle.0.into())?.as_str()).ok())
            .collect()
    }
}
