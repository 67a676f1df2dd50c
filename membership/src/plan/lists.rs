//! The lists before a plan and after it.

use std::collections::BTreeMap;

use annulus_ring::{Handle, List, Member, NodeId, Slot, SlotChange, SlotTable, Snapshot};

use crate::{Plan, RingState};

/// The layout that a plan was made on: the ring itself, or a kept snapshot of its layout epoch
/// when the ring has moved on.
#[derive(Clone, Debug)]
pub struct Base<'a> {
    pub(super) slots: &'a SlotTable,
    pub(super) rf: u8,
    pub(super) members: BTreeMap<Handle, &'a Member>,
}

impl<'a> Base<'a> {
    /// As the ring is now.
    #[must_use]
    pub fn of(ring: &'a RingState) -> Self {
        Self::new(
            &ring.slots,
            ring.config.replication.rf,
            ring.members.values(),
        )
    }

    /// As the ring was.
    #[must_use]
    pub fn of_snapshot(snapshot: &'a Snapshot) -> Self {
        let layout = &snapshot.layout;
        Self::new(
            &layout.slots,
            layout.replication.rf,
            snapshot.members.iter(),
        )
    }

    /// A slot's list.
    #[must_use]
    pub fn list(&self, slot: Slot) -> &[Handle] {
        self.slots.list(slot)
    }

    /// Who has a number.
    #[must_use]
    pub fn node(&self, handle: Handle) -> Option<&NodeId> {
        self.members.get(&handle).map(|member| &member.node_id)
    }

    fn new(slots: &'a SlotTable, rf: u8, members: impl Iterator<Item = &'a Member>) -> Self {
        Self {
            slots,
            rf,
            members: members.map(|member| (member.handle, member)).collect(),
        }
    }
}

/// Every slot with its list before and after. O(slots).
pub(super) fn each<'a>(
    base: &'a Base<'_>,
    target: &'a [SlotChange],
) -> impl Iterator<Item = (Slot, &'a [Handle], &'a [Handle])> {
    let mut changes = target.iter().peekable();
    base.slots.slots().map(move |slot| {
        let old = base.slots.list(slot);
        let new = changes.next_if(|change| change.slot == slot);
        (slot, old, new.map_or(old, |change| change.to.as_slice()))
    })
}

/// The table after a plan, as wide as its longest list asks.
pub(super) fn after(base: &Base<'_>, plan: &Plan) -> SlotTable {
    let longest = plan.target.iter().map(|change| change.to.len()).max();
    let longest = u8::try_from(longest.unwrap_or(0)).unwrap_or(annulus_ring::slots::MAX_RF);
    let mut table = SlotTable::empty(base.slots.bits(), base.rf.max(longest));
    for (slot, _, new) in each(base, &plan.target) {
        table.set(slot, new);
    }
    table
}

/// `one` without what is in `other`, in order.
pub(super) fn without(one: &[Handle], other: &[Handle]) -> List {
    one.iter()
        .copied()
        .filter(|handle| !other.contains(handle))
        .collect()
}
