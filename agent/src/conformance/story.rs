//! One legal history that makes every call, and a picture of all that a store shows.

use annulus_ring::{Epoch, SessionId, Slot};
use bytes::Bytes;

use super::{
    Subject,
    bench::{at, put, tombstone},
};
use crate::store::{Copy, DigestAt, Holding, StoreError, Stray, Watermark};

/// The slots of the story.
const SLOTS: [Slot; 6] = [Slot(0), Slot(1), Slot(2), Slot(3), Slot(4), Slot(5)];
const GAIN: SessionId = SessionId(7);
const LOSS: SessionId = SessionId(9);
const ABORTED: SessionId = SessionId(11);
const STAGED: Copy = Copy::Staging(GAIN);

/// What a call changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Something, the first time.
    Once,
    /// Nothing: it was made earlier in the story.
    Nothing,
    /// Something each time: a client's write is another write.
    Always,
}

/// One call of the story.
pub(super) struct Call {
    pub name: &'static str,
    /// What it changes, made once and made again.
    pub effect: Effect,
    pub make: fn(&dyn Subject) -> Result<(), StoreError>,
}

const fn call(name: &'static str, make: fn(&dyn Subject) -> Result<(), StoreError>) -> Call {
    Call {
        name,
        effect: Effect::Once,
        make,
    }
}

const fn repeated(name: &'static str, make: fn(&dyn Subject) -> Result<(), StoreError>) -> Call {
    Call {
        name,
        effect: Effect::Nothing,
        make,
    }
}

/// Every call that changes something, in an order in which an agent might make them.
pub(super) const STORY: &[Call] = &[
    call("open_live", |store| store.open_live(&SLOTS[..2])),
    call("begin_reign", |store| {
        store.begin_reign(&[(Slot(0), Epoch(1)), (Slot(1), Epoch(1))])
    }),
    Call {
        name: "write",
        effect: Effect::Always,
        make: |store| store.write(Slot(0), b"k", Some(b"v")).map(drop),
    },
    call("merge above a hole", |store| {
        let records = vec![put("c", at(1, 3), "3"), put("d", at(1, 4), "4")];
        store.merge(Slot(0), Copy::Live, records, None)
    }),
    call("merge with through", |store| {
        let records = vec![tombstone("k", at(1, 2))];
        store.merge(Slot(0), Copy::Live, records, Some(at(1, 2)))
    }),
    call("give_up", |store| {
        let stray = |key: &'static str, version, instead| Stray {
            key: Bytes::from_static(key.as_bytes()),
            version,
            instead,
        };
        let older = Some(put("d", at(0, 9), "older"));
        let strays = vec![stray("d", at(1, 4), older), stray("c", at(1, 3), None)];
        store.give_up(Slot(0), Copy::Live, strays)
    }),
    repeated("open_live beside records", |store| {
        store.open_live(&SLOTS[..2])
    }),
    call("open_staging", |store| {
        store.open_staging(GAIN, 1, &[Slot(2), Slot(3)])
    }),
    call("merge into staging", |store| {
        let records = vec![put("a", at(1, 1), "1"), put("b", at(1, 5), "5")];
        store.merge(Slot(2), STAGED, records, None)
    }),
    repeated("open_staging beside records", |store| {
        store.open_staging(GAIN, 1, &[Slot(2), Slot(3)])
    }),
    call("open_staging of a new attempt", |store| {
        store.open_staging(GAIN, 2, &[Slot(3)])
    }),
    call("mark_complete", |store| {
        store.mark_complete(Slot(2), GAIN, at(1, 4))
    }),
    call("mark_complete of an empty copy", |store| {
        store.mark_complete(Slot(3), GAIN, at(1, 0))
    }),
    call("promote", |store| store.promote(GAIN, &[Slot(2), Slot(3)])),
    call("begin_reign of what was gained", |store| {
        store.begin_reign(&[(Slot(2), Epoch(5)), (Slot(3), Epoch(5))])
    }),
    call("demote", |store| store.demote(GAIN, &[Slot(2), Slot(3)])),
    call("promote again", |store| {
        store.promote(GAIN, &[Slot(2), Slot(3)])
    }),
    call("retain", |store| store.retain(LOSS, &[Slot(0), Slot(1)])),
    call("drop_retained", |store| {
        store.drop_retained(LOSS, &[Slot(0)])
    }),
    call("open_staging of the next session", |store| {
        store.open_staging(ABORTED, 1, &[Slot(4), Slot(5)])
    }),
    call("merge into its staging", |store| {
        let records = vec![put("x", at(6, 1), "x"), tombstone("y", at(6, 2))];
        store.merge(Slot(4), Copy::Staging(ABORTED), records, None)
    }),
    call("drop_staging", |store| store.drop_staging(ABORTED)),
];

/// Keys and values.
type Shown = Vec<(Bytes, Option<Bytes>)>;

/// One copy as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    holding: Holding,
    watermark: Watermark,
    /// None where the store says that it is pending.
    digest: Option<DigestAt>,
    /// Of a live copy: keys with a value, and how many are counted.
    shown: Option<(Shown, u64)>,
}

/// All that a store shows of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picture(Vec<Seen>);

impl Picture {
    pub(super) fn of(store: &dyn Subject) -> Result<Self, StoreError> {
        let mut holdings = store.holdings()?;
        holdings.sort_by_key(|holding| (holding.slot, holding.copy));
        let see = |holding: Holding| {
            let (slot, copy) = (holding.slot, holding.copy);
            let digest = match store.digest(slot, copy, None) {
                Ok(digest) => Some(digest),
                Err(StoreError::Pending { .. }) => None,
                Err(error) => return Err(error),
            };
            let shown = match copy {
                Copy::Live => {
                    let mut keys = store.scan(slot)?;
                    keys.sort();
                    let read = |key: Bytes| store.read(slot, &key).map(|value| (key, value));
                    let pairs = keys.into_iter().map(read).collect::<Result<_, _>>()?;
                    Some((pairs, store.count(slot)?))
                }
                Copy::Staging(_) | Copy::Retained(_) => None,
            };
            Ok(Seen {
                holding,
                watermark: store.watermark(slot, copy)?,
                digest,
                shown,
            })
        };
        holdings
            .into_iter()
            .map(see)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}
