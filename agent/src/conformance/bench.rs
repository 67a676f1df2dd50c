//! What the checks have in common: fresh stores, records, and how an answer is compared.

use std::{cell::Cell, fmt::Debug, path::PathBuf};

use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;

use super::{Lab, Subject};
use crate::{
    digest::Sum,
    store::{Copy, Cut, Record, StoreError},
};

pub(super) const SLOT: Slot = Slot(3);
pub(super) const OTHER: Slot = Slot(4);
pub(super) const SESSION: SessionId = SessionId(7);
pub(super) const STAGING: Copy = Copy::Staging(SESSION);

/// Why a check ended early.
pub(super) enum Stop {
    Broken { expected: String, came: String },
    Skipped(&'static str),
}

impl Stop {
    pub(super) fn broken(expected: impl Into<String>, came: impl Into<String>) -> Self {
        Self::Broken {
            expected: expected.into(),
            came: came.into(),
        }
    }
}

/// An error where the history is legal and the check expected none.
impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::broken(
            "no error, as the calls before were legal",
            format!("{error} ({error:?})"),
        )
    }
}

pub(super) type Done = Result<(), Stop>;

/// Opens stores for one check.
pub(super) struct Bench<'a> {
    lab: &'a dyn Lab,
    dir: PathBuf,
    opened: Cell<u32>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(lab: &'a dyn Lab, dir: PathBuf) -> Self {
        Self {
            lab,
            dir,
            opened: Cell::new(0),
        }
    }

    pub(super) fn lab(&self) -> &'a dyn Lab {
        self.lab
    }

    /// A directory that nobody used.
    pub(super) fn fresh_dir(&self) -> Result<PathBuf, Stop> {
        self.opened.set(self.opened.get() + 1);
        let dir = self.dir.join(self.opened.get().to_string());
        std::fs::create_dir_all(&dir)
            .map_err(|error| Stop::broken("a scratch directory", format!("{dir:?}: {error}")))?;
        Ok(dir)
    }

    /// An empty store.
    pub(super) fn empty(&self) -> Result<Box<dyn Subject>, Stop> {
        opened(self.lab.open(&self.fresh_dir()?))
    }

    /// A store in which `SLOT` is live and in reign 1.
    pub(super) fn live(&self) -> Result<Box<dyn Subject>, Stop> {
        let store = self.empty()?;
        store.open_live(&[SLOT])?;
        store.begin_reign(&[(SLOT, Epoch(1))])?;
        Ok(store)
    }

    /// A store with an empty staging copy of `SLOT`, attempt 1.
    pub(super) fn staging(&self) -> Result<Box<dyn Subject>, Stop> {
        let store = self.empty()?;
        store.open_staging(SESSION, 1, &[SLOT])?;
        Ok(store)
    }

    /// A store with a complete staging copy of `SLOT`: k = v at (1, 1).
    pub(super) fn staged(&self) -> Result<Box<dyn Subject>, Stop> {
        let store = self.staging()?;
        store.merge(SLOT, STAGING, vec![put("k", at(1, 1), "v")], None)?;
        store.mark_complete(SLOT, SESSION, at(1, 1))?;
        Ok(store)
    }
}

pub(super) fn opened(
    store: Result<Box<dyn Subject>, super::OpenError>,
) -> Result<Box<dyn Subject>, Stop> {
    store.map_err(|error| Stop::broken("the store opens", error.to_string()))
}

pub(super) fn at(reign: u64, seq: u64) -> Position {
    Position::new(Epoch(reign), seq)
}

pub(super) fn put(key: &str, version: Position, value: &str) -> Record {
    Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version,
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    }
}

pub(super) fn tombstone(key: &str, version: Position) -> Record {
    Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version,
        value: None,
    }
}

/// All records of a cut, by key.
pub(super) fn records(cut: Cut) -> Result<Vec<Record>, StoreError> {
    let mut records = cut.records.collect::<Result<Vec<_>, _>>()?;
    records.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(records)
}

/// The digest that these records have, by the definition.
pub(super) fn sum(records: &[Record]) -> ([u8; 32], u64) {
    let sum: Sum = records.iter().collect();
    (sum.to_bytes(), sum.records)
}

/// Fails unless the two are equal.
pub(super) fn same<T: PartialEq + Debug>(what: &str, expected: T, came: T) -> Done {
    if expected == came {
        return Ok(());
    }
    Err(Stop::broken(
        format!("{what}: {expected:?}"),
        format!("{came:?}"),
    ))
}

/// Fails unless the store answers [`StoreError::Missing`].
pub(super) fn missing<T: Debug>(what: &str, came: Result<T, StoreError>) -> Done {
    match came {
        Err(StoreError::Missing { .. }) => Ok(()),
        other => Err(Stop::broken(
            format!("{what}: StoreError::Missing"),
            format!("{other:?}"),
        )),
    }
}

/// Fails unless nothing is shown: an empty answer, or no live copy at all.
pub(super) fn nothing<T: Debug + Default + PartialEq>(
    what: &str,
    came: Result<T, StoreError>,
) -> Done {
    match came {
        Err(StoreError::Missing { .. }) => Ok(()),
        Ok(shown) if shown == T::default() => Ok(()),
        other => Err(Stop::broken(
            format!("{what}: nothing, or StoreError::Missing"),
            format!("{other:?}"),
        )),
    }
}

/// Which copies of `slot` are held, in order.
pub(super) fn held(store: &dyn Subject, slot: Slot) -> Result<Vec<Copy>, StoreError> {
    let holdings = store.holdings()?;
    let mut copies: Vec<Copy> = holdings
        .iter()
        .filter(|holding| holding.slot == slot)
        .map(|holding| holding.copy)
        .collect();
    copies.sort();
    Ok(copies)
}

/// A live copy's watermark.
pub(super) fn mark(store: &dyn Subject, copy: Copy) -> Result<Option<Position>, StoreError> {
    Ok(store.watermark(SLOT, copy)?.held)
}

pub(super) fn bytes(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}
