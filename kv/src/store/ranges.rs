//! The store as the agent drives it.

use annulus_agent::store::{
    Copy, Cut, DigestAt, Held, Holding, RangeStore, Record, Records, SlotOf, StoreError, Stray,
    Versions, Watermark,
};
use annulus_ring::{Epoch, Position, SessionId, Slot};

use super::{
    Store,
    merge::{Batch, Fault, Merge},
    writer::Work,
};

impl Store {
    pub(super) fn carry_out(
        &self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), StoreError> {
        self.writer().wait(Work::Other(Box::new(work)))
    }
}

impl RangeStore for Store {
    fn holdings(&self) -> Result<Vec<Holding>, StoreError> {
        Ok(self.shared().catalog().holdings())
    }

    fn open_live(&self, slots: &[Slot]) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| batch.open_live(&slots))
    }

    fn open_staging(
        &self,
        session: SessionId,
        attempt: u32,
        slots: &[Slot],
    ) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| batch.open_staging(session, attempt, &slots))
    }

    fn read_cut(&self, slot: Slot) -> Result<Cut, StoreError> {
        self.reading(slot, Copy::Live)?.cut(None)
    }

    fn tail(&self, slot: Slot, from: Option<Position>) -> Result<Cut, StoreError> {
        self.reading(slot, Copy::Live)?.cut(from)
    }

    fn merge(
        &self,
        slot: Slot,
        copy: Copy,
        records: Vec<Record>,
        through: Option<Position>,
    ) -> Result<(), StoreError> {
        if let Some(late) = self.shared().repairs_late.get()
            && self.shared().catalog().is_complete(slot, copy)
        {
            std::thread::sleep(*late);
        }
        let merge = Merge {
            slot,
            copy,
            records,
            through,
            acknowledged: None,
        };
        self.writer().wait(Work::Merge(merge))
    }

    fn mark_complete(
        &self,
        slot: Slot,
        session: SessionId,
        cut: Position,
    ) -> Result<(), StoreError> {
        self.carry_out(move |batch| batch.mark_complete(slot, session, cut))
    }

    fn digest(
        &self,
        slot: Slot,
        copy: Copy,
        cut: Option<Position>,
    ) -> Result<DigestAt, StoreError> {
        self.reading(slot, copy)?.digest(self.shared(), copy, cut)
    }

    fn watermark(&self, slot: Slot, copy: Copy) -> Result<Watermark, StoreError> {
        let watermark = self.shared().catalog().watermark(slot, copy);
        watermark.ok_or(StoreError::Missing { slot, copy })
    }

    fn begin_reign(&self, slots: &[(Slot, Epoch)]) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| batch.begin_reign(&slots))
    }

    /// One transaction, in which every record is written anew: room for all of them twice.
    fn split(&self, bits: u8, slot_of: SlotOf) -> Result<(), StoreError> {
        self.carry_out(move |batch| batch.split(bits, &*slot_of))
    }

    fn fork(&self, slot: Slot) -> Result<Option<Position>, StoreError> {
        let catalog = self.shared().catalog();
        let copy = Copy::Live;
        let id = catalog.find(slot, copy);
        let area = id.and_then(|id| catalog.area(id));
        Ok(area.ok_or(StoreError::Missing { slot, copy })?.fork)
    }

    fn find(&self, slot: Slot, key: &[u8]) -> Result<Option<Record>, StoreError> {
        self.get(slot, key)
    }

    fn versions(
        &self,
        slot: Slot,
        copy: Copy,
        from: Option<Position>,
    ) -> Result<Versions, StoreError> {
        self.reading(slot, copy)?.versions(from)
    }

    fn records(&self, slot: Slot, copy: Copy) -> Result<Option<Records>, StoreError> {
        Ok(Some(Box::new(self.reading(slot, copy)?.records()?)))
    }

    fn give_up(&self, slot: Slot, copy: Copy, strays: Vec<Stray>) -> Result<(), StoreError> {
        self.carry_out(move |batch| batch.give_up(slot, copy, &strays))
    }

    fn promote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| batch.promote(session, &slots))
    }

    fn demote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| {
            batch.demote(session, &slots);
            Ok(())
        })
    }

    fn retain(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| {
            batch.retain(session, &slots);
            Ok(())
        })
    }

    fn drop_staging(&self, session: SessionId) -> Result<(), StoreError> {
        self.carry_out(move |batch| {
            batch.drop_staging(session);
            Ok(())
        })
    }

    fn drop_retained(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        let slots = slots.to_vec();
        self.carry_out(move |batch| {
            batch.drop_retained(session, &slots);
            Ok(())
        })
    }

    fn held(&self) -> Option<Held> {
        self.shared().catalog().held()
    }

    fn free_bytes(&self) -> u64 {
        // What cannot be read is unknown, and 0 says so.
        rustix::fs::statvfs(self.dir()).map_or(0, |disk| disk.f_bavail * disk.f_frsize)
    }

    fn last_position(&self, slot: Slot) -> Result<Position, StoreError> {
        // Every position is committed here before anything else is done with it, so the watermark
        // of an owner's copy is the highest that anybody has seen.
        Ok(RangeStore::watermark(self, slot, Copy::Live)?
            .held
            .unwrap_or_default())
    }
}
