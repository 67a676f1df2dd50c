//! What one node knows of the ring: a snapshot, and by which epochs requests are judged.

use std::{collections::BTreeMap, sync::Arc};

use annulus_ring::{
    Endpoint, Epoch, Generation, Handle, Incarnation, Lookup, NodeId, RangeSets, RingName,
    SessionId, Slot, Step, Zone,
};
use smallvec::SmallVec;

use crate::guard::Peer;

/// The node's present opinion, immutable; swapped whole by the agent.
#[derive(Debug)]
pub struct NodeView {
    /// Rises by one with every swap in this process, also where the epoch stays (a seal).
    pub seq: u64,
    /// The ring.
    pub ring: RingName,
    /// This node.
    pub node: NodeId,
    /// Its life; none before the first welcome.
    pub incarnation: Option<Incarnation>,
    /// The compiled snapshot; none until the first view came.
    pub lookup: Option<Arc<Lookup>>,
    /// By slot: the epoch that began the owner's reign.
    pub reigns: Arc<[Epoch]>,
    /// By slot: the last epoch that changed its lists, sets, groups or order.
    pub last_changes: Arc<[Epoch]>,
    /// This node's handle; none where it is no member in this incarnation.
    pub own: Option<Handle>,
    /// Slots whose writes this node has durably given up as owner, with the reign that was sealed.
    pub seals: Arc<BTreeMap<Slot, Epoch>>,
    /// Slots whose list names this node while it holds no live copy of them: never served.
    pub unheld: Arc<std::collections::BTreeSet<Slot>>,
    /// The ring is being converted: clients are served by nobody.
    pub converting: bool,
    /// The ring's last conversion: slots that were named under another one are not these.
    pub converted: Epoch,
}

/// A slot, and under which conversion of the ring it was named: what a request is admitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The slot.
    pub slot: Slot,
    /// [`NodeView::converted`] of the view that named it.
    pub converted: Epoch,
}

impl NodeView {
    /// Before anything is known: epoch 0, no slot.
    #[must_use]
    pub fn unknown(ring: RingName, node: NodeId) -> Self {
        Self {
            seq: 0,
            ring,
            node,
            incarnation: None,
            lookup: None,
            reigns: Arc::from([]),
            last_changes: Arc::from([]),
            own: None,
            seals: Arc::default(),
            unheld: Arc::default(),
            converting: false,
            converted: Epoch(0),
        }
    }

    /// The epoch adopted; 0 before the first view.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.lookup
            .as_ref()
            .map_or(Epoch(0), |lookup| lookup.epoch())
    }

    /// The generation adopted.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.lookup
            .as_ref()
            .map_or(Generation(0), |lookup| lookup.snapshot().generation)
    }

    /// The slot of a key; none before the first view.
    #[must_use]
    pub fn slot(&self, key: &[u8]) -> Option<Slot> {
        Some(self.lookup.as_ref()?.slot(key))
    }

    /// Where a key is, to be admitted for it; none before the first view.
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Option<Place> {
        Some(self.place(self.slot(key)?))
    }

    /// A slot of this view, to be admitted for it.
    #[must_use]
    pub fn place(&self, slot: Slot) -> Place {
        let converted = self.converted;
        Place { slot, converted }
    }

    /// How many slots there are; 0 before the first view.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.reigns.len()
    }

    /// Old list, new list and step of a slot; an empty list for a slot that is not of the ring.
    #[must_use]
    pub fn sets(&self, slot: Slot) -> RangeSets<'_> {
        match &self.lookup {
            Some(lookup) if slot.index() < self.slot_count() => lookup.sets(slot),
            _ => RangeSets::steady(&[]),
        }
    }

    /// The owner's reign; 0 for a slot that is not of the ring.
    #[must_use]
    pub fn reign(&self, slot: Slot) -> Epoch {
        self.reigns.get(slot.index()).copied().unwrap_or_default()
    }

    /// The last epoch that changed the slot.
    #[must_use]
    pub fn last_change(&self, slot: Slot) -> Epoch {
        self.last_changes
            .get(slot.index())
            .copied()
            .unwrap_or_default()
    }

    /// The zone of a member, where that is not this node's own.
    #[must_use]
    pub fn other_zone(&self, member: Handle) -> Option<Zone> {
        let snapshot = self.lookup.as_ref()?.snapshot();
        let zone = |handle| Some(&snapshot.member_by_handle(handle)?.zone);
        let own = self.own.and_then(zone);
        zone(member).filter(|zone| own != Some(zone)).cloned()
    }

    /// The session whose packets are taken: the running transition's. Every other one is closed,
    /// or was never heard of.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let transition = self.lookup.as_ref()?.snapshot().transition.as_ref()?;
        Some(transition.id.into())
    }

    /// The step of the running transition.
    #[must_use]
    pub fn step(&self) -> Option<Step> {
        Some(self.lookup.as_ref()?.snapshot().transition.as_ref()?.step)
    }

    /// Whether this node is the slot's owner.
    #[must_use]
    pub fn owns(&self, slot: Slot) -> bool {
        self.own.is_some() && self.sets(slot).owner() == self.own
    }

    /// Where a member listens; `session` is filled for gainers that do not count as members yet.
    #[must_use]
    pub fn peer(&self, handle: Handle, session: Option<SessionId>) -> Option<Peer> {
        let member = self.lookup.as_ref()?.member(handle)?;
        Some(Peer {
            handle,
            node_id: member.node_id.clone(),
            endpoint: member.endpoint.clone(),
            session,
        })
    }

    /// Where a node listens.
    #[must_use]
    pub fn endpoint(&self, node: &NodeId) -> Option<&Endpoint> {
        Some(&self.lookup.as_ref()?.snapshot().member(node)?.endpoint)
    }

    /// The read set, owner first.
    #[must_use]
    pub fn read_set(&self, slot: Slot) -> Vec<Peer> {
        self.sets(slot)
            .read_set()
            .iter()
            .filter_map(|handle| self.peer(*handle, None))
            .collect()
    }

    /// Everybody who must receive a write, this node included. A gainer carries the session until
    /// the switch: from then on its copy is a live one.
    #[must_use]
    pub fn write_set(&self, slot: Slot) -> Vec<Peer> {
        let sets = self.sets(slot);
        let gainers: SmallVec<[Handle; 4]> = match sets.step {
            Some(Step::Switched) | None => SmallVec::new(),
            Some(_) => sets.gainers().collect(),
        };
        sets.write_set()
            .iter()
            .filter_map(|handle| {
                let session = if gainers.contains(handle) {
                    self.session()
                } else {
                    None
                };
                self.peer(*handle, session)
            })
            .collect()
    }
}
