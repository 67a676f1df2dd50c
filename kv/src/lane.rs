//! The order of one slot's writes at its owner, and those that are not acknowledged yet.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use annulus_agent::store::StoreError;
use annulus_ring::{Epoch, Position, Slot};

use crate::write::Write;

/// One slot at its owner.
pub(crate) struct Lane {
    pub slot: Slot,
    state: Mutex<State>,
    /// Held by whoever opens the lane for a reign.
    pub opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The reign that the lane was opened for.
    reign: Option<Epoch>,
    /// The position assigned last.
    last: Position,
    pending: BTreeMap<Position, Arc<Write>>,
    /// A write of this reign failed: what is acknowledged cannot be told by one position.
    holed: bool,
}

/// Why nothing was assigned.
pub(crate) enum NotAssigned {
    /// The lane is open for another reign than the admission's.
    OtherReign,
    /// The store did not take the records.
    Store(StoreError),
}

/// How a record stands that was found in the store.
pub(crate) enum Standing {
    Acknowledged,
    /// It may come to be seen by nobody else.
    Pending(Arc<Write>),
    /// The lane is no longer open for that reign: it cannot be told here.
    Closed,
}

impl State {
    fn acknowledged(&self) -> Option<Position> {
        if self.holed {
            return None;
        }
        Some(match self.pending.first_key_value() {
            // Below the first of a reign lies at least the base.
            Some((first, _)) => Position::new(first.reign, first.seq.saturating_sub(1)),
            None => self.last,
        })
    }

    fn register(&mut self, write: &Arc<Write>) {
        self.pending.insert(write.record.version, write.clone());
    }
}

impl Lane {
    fn new(slot: Slot) -> Self {
        Self {
            slot,
            state: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lane takes writes of this reign.
    pub fn is_open(&self, reign: Epoch) -> bool {
        let state = self.state();
        state.reign == Some(reign) && !state.holed
    }

    /// Opens the lane for a reign: writes go on after `last`, and `open_ends`, which may not be
    /// acknowledged, are pending again. Answers what was pending before, to be failed.
    pub fn open(&self, reign: Epoch, last: Position, open_ends: &[Arc<Write>]) -> Vec<Arc<Write>> {
        let mut state = self.state();
        let last = last.max(Position::new(reign, 0));
        let former = std::mem::replace(
            &mut *state,
            State {
                reign: Some(reign),
                last,
                ..State::default()
            },
        );
        open_ends.iter().for_each(|write| state.register(write));
        former.pending.into_values().collect()
    }

    /// Gives each record the next position and hands them all to `submit`, in that order and with
    /// what is acknowledged so far. They are pending when this returns.
    ///
    /// Positions are assigned and submitted under one lock, so the store commits them in order,
    /// without a hole: a position is never given twice in a reign, nor left out.
    pub fn assign(
        self: &Arc<Self>,
        reign: Epoch,
        make: impl Fn(usize, Position) -> Arc<Write>,
        count: usize,
        submit: impl FnOnce(&[Arc<Write>], Option<Position>) -> Result<(), StoreError>,
    ) -> Result<Vec<Arc<Write>>, NotAssigned> {
        let mut state = self.state();
        if state.reign != Some(reign) || state.holed {
            return Err(NotAssigned::OtherReign);
        }
        let seq = state.last.seq;
        let writes: Vec<_> = (0..count)
            .zip(seq + 1..)
            .map(|(index, seq)| make(index, Position::new(reign, seq)))
            .collect();
        submit(&writes, state.acknowledged()).map_err(NotAssigned::Store)?;
        state.last.seq += count as u64;
        writes.iter().for_each(|write| state.register(write));
        Ok(writes)
    }

    /// Forgets everything: the node stops.
    pub fn close(&self) {
        *self.state() = State::default();
    }

    /// A write is over.
    pub fn settle(&self, write: &Arc<Write>, failed: bool) {
        let mut state = self.state();
        let version = &write.record.version;
        // Another write stands at this position when the lane was opened anew meanwhile.
        if !state
            .pending
            .get(version)
            .is_some_and(|found| Arc::ptr_eq(found, write))
        {
            return;
        }
        state.pending.remove(version);
        state.holed |= failed;
    }

    /// Every write up to here is acknowledged; `None`: not known.
    pub fn acknowledged(&self) -> Option<Position> {
        self.state().acknowledged()
    }

    /// How a record of this version stands, which was found in the store while the lane was open
    /// for `reign`. Records are pending before they can be found.
    pub fn standing(&self, reign: Epoch, version: Position) -> Standing {
        let state = self.state();
        if state.reign != Some(reign) || state.holed {
            return Standing::Closed;
        }
        match state.pending.get(&version) {
            Some(write) => Standing::Pending(write.clone()),
            None => Standing::Acknowledged,
        }
    }

    /// All pending writes, in order.
    pub fn pending(&self) -> Vec<Arc<Write>> {
        self.state().pending.values().cloned().collect()
    }
}

/// All lanes of a node, made when first needed.
#[derive(Default)]
pub(crate) struct Lanes {
    by_slot: RwLock<HashMap<Slot, Arc<Lane>>>,
}

impl Lanes {
    pub fn of(&self, slot: Slot) -> Arc<Lane> {
        if let Some(lane) = self
            .by_slot
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&slot)
        {
            return lane.clone();
        }
        let mut by_slot = self.by_slot.write().unwrap_or_else(PoisonError::into_inner);
        by_slot
            .entry(slot)
            .or_insert_with(|| Arc::new(Lane::new(slot)))
            .clone()
    }

    pub fn all(&self) -> Vec<Arc<Lane>> {
        self.by_slot
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }
}
