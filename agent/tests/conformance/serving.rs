//! What clients would see of the store in memory, and what a bug shows them.

use annulus_agent::{Copy, RangeStore, Record, StoreError, conformance::Subject};
use annulus_ring::{Position, Slot};
use bytes::Bytes;

use crate::{broken::Broken, bug::Bug};

impl Subject for Broken {
    fn write(&self, slot: Slot, key: &[u8], value: Option<&[u8]>) -> Result<Position, StoreError> {
        let last = self.last_position(slot)?;
        let mut seq = last.seq;
        if self.has(Bug::CountsPositionsAcrossReigns) {
            let newest = self.store().newest(slot, Copy::Live);
            seq = newest.values().map(|(at, _)| at.seq).max().unwrap_or(0);
        }
        let version = Position::new(last.reign, seq + 1);
        let record = Record {
            key: Bytes::copy_from_slice(key),
            version,
            value: value.map(Bytes::copy_from_slice),
        };
        self.merge(slot, Copy::Live, vec![record], None)?;
        Ok(version)
    }

    fn read(&self, slot: Slot, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let copy = self.shown(slot, Bug::ReadsStaging)?;
        if let Some(told) = self.bent().values.get(&(slot, Bytes::copy_from_slice(key))) {
            return Ok(told.clone());
        }
        let find = |slot, copy| self.store().newest(slot, copy).remove(key);
        let mut found = find(slot, copy);
        if self.has(Bug::FindsKeysInAnySlot) {
            let copies = self.store().copies().into_iter();
            let mut live = copies.filter(|(_, copy)| *copy == Copy::Live);
            found = live.find_map(|(slot, copy)| find(slot, copy));
        }
        let value = found.and_then(|(_, value)| value);
        Ok(value.filter(|value| !(self.has(Bug::ReadsEmptyAsNothing) && value.is_empty())))
    }

    fn scan(&self, slot: Slot) -> Result<Vec<Bytes>, StoreError> {
        let copy = self.shown(slot, Bug::ScansStaging)?;
        Ok(self.keys(slot, copy))
    }

    fn count(&self, slot: Slot) -> Result<u64, StoreError> {
        let copy = self.shown(slot, Bug::CountsStaging)?;
        let all = self.store().newest(slot, copy).len();
        let keys = self.keys(slot, copy).len();
        let counted = if self.has(Bug::CountsTombstones) {
            all
        } else {
            keys
        };
        Ok(counted as u64)
    }
}
