use std::collections::BTreeMap;

use annulus_agent::{
    digest::{self, Sum},
    store::{Copy, Holding, RangeStore, Record, StoreError, Watermark},
};
use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;

use super::Store;

const SLOT: Slot = Slot(3);
const SESSION: SessionId = SessionId(7);
const STAGING: Copy = Copy::Staging(SESSION);

fn at(reign: u64, seq: u64) -> Position {
    Position::new(Epoch(reign), seq)
}

fn put(key: &str, version: Position, value: &str) -> Record {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version,
        value,
    }
}

fn tombstone(key: &str, version: Position) -> Record {
    Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version,
        value: None,
    }
}

fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

/// A store whose slot is live and in reign 1.
fn live() -> (tempfile::TempDir, Store) {
    let (dir, store) = open();
    store.open_live(&[SLOT]).unwrap();
    store.begin_reign(&[(SLOT, Epoch(1))]).unwrap();
    (dir, store)
}

fn value(store: &Store, key: &str) -> Option<Option<Bytes>> {
    store
        .get(SLOT, key.as_bytes())
        .unwrap()
        .map(|record| record.value)
}

fn naive(records: impl IntoIterator<Item = Record>) -> [u8; 32] {
    let mut sum = Sum::new();
    for record in records {
        sum.add(digest::hash(&record));
    }
    sum.to_bytes()
}

#[test]
fn newest_version_wins_whatever_the_order_of_arrival() {
    let (_dir, store) = live();
    let records = [
        put("k", at(1, 2), "new"),
        put("k", at(1, 1), "old"),
        put("j", at(1, 3), "j"),
    ];
    for record in records {
        store.merge(SLOT, Copy::Live, vec![record], None).unwrap();
    }
    assert_eq!(value(&store, "k"), Some(Some(Bytes::from("new"))));
    // A newer reign beats a higher seq.
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(2, 1), "reign 2")], None)
        .unwrap();
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 9), "stray")], None)
        .unwrap();
    assert_eq!(value(&store, "k"), Some(Some(Bytes::from("reign 2"))));
    assert_eq!(value(&store, "absent"), None);
}

#[test]
fn what_live_copies_hold_is_counted_and_survives_a_restart() {
    let held = |store: &Store| {
        let held = store.held().expect("counted from the first record on");
        (held.bytes, held.keys)
    };
    let (dir, store) = live();
    assert_eq!(held(&store), (0, 0));
    for (record, expected) in [
        (put("k", at(1, 1), "value"), (6, 1)),
        (put("jj", at(1, 2), "v"), (9, 2)),
        (put("k", at(1, 3), "v"), (5, 2)),
        // What came late changes nothing; a tombstone counts with its key.
        (put("k", at(1, 1), "value"), (5, 2)),
        (tombstone("jj", at(1, 4)), (4, 1)),
    ] {
        store.merge(SLOT, Copy::Live, vec![record], None).unwrap();
        assert_eq!(held(&store), expected);
    }
    let other = Slot(4);
    store.open_staging(SESSION, 1, &[other]).unwrap();
    let staged = vec![put("s", at(1, 1), "s")];
    store.merge(other, STAGING, staged, None).unwrap();
    assert_eq!(held(&store), (4, 1), "what is staged is not held yet");
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(held(&store), (4, 1));
    store.retain(SESSION, &[SLOT]).unwrap();
    assert_eq!(held(&store), (0, 0), "what is retained is no longer held");
}

#[test]
fn tombstones_are_kept_copied_and_digested() {
    let (_dir, store) = live();
    let empty = store.digest(SLOT, Copy::Live, None).unwrap().digest;
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "v")], None)
        .unwrap();
    store
        .merge(SLOT, Copy::Live, vec![tombstone("k", at(1, 2))], None)
        .unwrap();
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "v")], None)
        .unwrap();
    assert_eq!(
        value(&store, "k"),
        Some(None),
        "the put came late and does not return"
    );
    assert_eq!(store.count(SLOT).unwrap(), 0);
    let cut: Vec<Record> = store
        .read_cut(SLOT)
        .unwrap()
        .records
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(cut, [tombstone("k", at(1, 2))]);
    let digest = store.digest(SLOT, Copy::Live, None).unwrap();
    assert_eq!((digest.digest, digest.cut), (naive(cut), at(1, 2)));
    assert_ne!(digest.digest, empty);
    assert_ne!(
        digest.digest,
        naive([put("k", at(1, 2), "")]),
        "an empty value is not a tombstone"
    );
}

#[test]
fn staging_is_hidden_until_promoted() {
    let (_dir, store) = open();
    store.open_staging(SESSION, 1, &[SLOT]).unwrap();
    store
        .merge(SLOT, STAGING, vec![put("k", at(1, 1), "v")], None)
        .unwrap();
    let hidden = |error| {
        matches!(
            error,
            StoreError::Missing {
                copy: Copy::Live,
                ..
            }
        )
    };
    assert!(hidden(store.get(SLOT, b"k").unwrap_err()));
    assert!(hidden(store.count(SLOT).unwrap_err()));
    assert!(hidden(store.read_cut(SLOT).unwrap_err()));
    assert!(hidden(store.tail(SLOT, None).unwrap_err()));
    assert!(hidden(store.last_position(SLOT).unwrap_err()));
    let before = Watermark {
        held: None,
        pending: true,
    };
    assert_eq!(store.watermark(SLOT, STAGING).unwrap(), before);

    store.mark_complete(SLOT, SESSION, at(1, 0)).unwrap();
    let held = Some(at(1, 1));
    assert_eq!(
        store.watermark(SLOT, STAGING).unwrap(),
        Watermark {
            held,
            pending: false
        }
    );
    store.promote(SESSION, &[SLOT]).unwrap();
    store.promote(SESSION, &[SLOT]).unwrap();
    assert_eq!(value(&store, "k"), Some(Some(Bytes::from("v"))));
    assert_eq!(store.count(SLOT).unwrap(), 1);
    assert!(matches!(
        store.watermark(SLOT, STAGING),
        Err(StoreError::Missing { .. })
    ));
}

#[test]
fn staging_beside_a_live_copy_of_another_slot_stays_apart() {
    let (_dir, store) = live();
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "live")], None)
        .unwrap();
    store.open_staging(SESSION, 1, &[Slot(4)]).unwrap();
    store
        .merge(Slot(4), STAGING, vec![put("k", at(1, 5), "staged")], None)
        .unwrap();
    assert_eq!(value(&store, "k"), Some(Some(Bytes::from("live"))));
    store.drop_staging(SESSION).unwrap();
    assert_eq!(value(&store, "k"), Some(Some(Bytes::from("live"))));
    assert_eq!(store.holdings().unwrap().len(), 1);
}

#[test]
fn a_new_attempt_starts_empty_and_the_same_attempt_keeps_what_it_has() {
    let (_dir, store) = open();
    store.open_staging(SESSION, 1, &[SLOT]).unwrap();
    store
        .merge(SLOT, STAGING, vec![put("k", at(1, 1), "v")], Some(at(1, 1)))
        .unwrap();
    store.open_staging(SESSION, 1, &[SLOT]).unwrap();
    assert_eq!(store.digest(SLOT, STAGING, None).unwrap().records, 1);
    store.open_staging(SESSION, 2, &[SLOT]).unwrap();
    let fresh = Holding {
        slot: SLOT,
        copy: STAGING,
        attempt: 2,
        watermark: None,
        complete: false,
    };
    assert_eq!(store.holdings().unwrap(), [fresh]);
    store.open_staging(SessionId(8), 1, &[SLOT]).unwrap();
    assert!(matches!(
        store.watermark(SLOT, STAGING),
        Err(StoreError::Missing { .. })
    ));
}

#[test]
fn retained_copies_are_not_served_and_go_only_by_name() {
    let (_dir, store) = live();
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "v")], None)
        .unwrap();
    store.retain(SESSION, &[SLOT, Slot(9)]).unwrap();
    assert!(matches!(
        store.get(SLOT, b"k"),
        Err(StoreError::Missing { .. })
    ));
    let retained = Copy::Retained(SESSION);
    assert_eq!(store.digest(SLOT, retained, None).unwrap().records, 1);
    store.drop_retained(SessionId(1), &[SLOT]).unwrap();
    assert_eq!(
        store.holdings().unwrap().len(),
        1,
        "another session's permit deletes nothing"
    );
    store.drop_retained(SESSION, &[SLOT]).unwrap();
    assert!(store.holdings().unwrap().is_empty());
}

#[test]
fn what_was_promoted_can_be_hidden_again_with_what_came_since() {
    let (dir, store) = open();
    store.open_staging(SESSION, 1, &[SLOT]).unwrap();
    store.mark_complete(SLOT, SESSION, at(1, 0)).unwrap();
    store.promote(SESSION, &[SLOT]).unwrap();
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "v")], None)
        .unwrap();
    store.demote(SESSION, &[SLOT, Slot(9)]).unwrap();
    store.demote(SESSION, &[SLOT]).unwrap();
    assert!(matches!(
        store.get(SLOT, b"k"),
        Err(StoreError::Missing { .. })
    ));
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let holdings = store.holdings().unwrap();
    assert_eq!(holdings.len(), 1);
    assert_eq!(holdings[0].copy, STAGING);
    assert!(holdings[0].complete);
    assert_eq!(store.digest(SLOT, STAGING, None).unwrap().records, 1);
    store.drop_staging(SESSION).unwrap();
    assert!(store.holdings().unwrap().is_empty());
}

#[test]
fn dropped_copies_leave_nothing_behind() {
    let (dir, store) = open();
    store.open_staging(SESSION, 1, &[SLOT]).unwrap();
    let records = (1..=2_000)
        .map(|seq| put(&format!("k{seq}"), at(1, seq), "v"))
        .collect();
    store.merge(SLOT, STAGING, records, None).unwrap();
    store.drop_staging(SESSION).unwrap();
    // Closing waits for nothing: what is not deleted yet goes on at the next start.
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while store.rows() > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} rows left",
            store.rows()
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_tail_has_the_newest_record_of_each_key_above_a_position() {
    let (_dir, store) = live();
    let records = vec![
        put("a", at(1, 1), "1"),
        put("b", at(1, 2), "2"),
        put("a", at(1, 3), "3"),
        tombstone("c", at(1, 4)),
    ];
    store.merge(SLOT, Copy::Live, records, None).unwrap();
    let tail = |from| {
        let cut = store.tail(SLOT, from).unwrap();
        assert_eq!(cut.position, at(1, 4));
        cut.records
            .map(|record| record.unwrap().version.seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(tail(Some(at(1, 2))), [3, 4]);
    assert_eq!(tail(Some(at(1, 4))), [0_u64; 0]);
    assert_eq!(tail(None), [3, 2, 4], "all, in the order of keys");
    assert_eq!(
        tail(Some(at(0, 9))),
        [2, 3, 4],
        "an older reign is below everything"
    );
}

#[test]
fn watermark_reports_a_hole_until_it_is_repaired() {
    let (_dir, store) = live();
    store
        .merge(SLOT, Copy::Live, vec![put("a", at(1, 1), "1")], None)
        .unwrap();
    store
        .merge(SLOT, Copy::Live, vec![put("c", at(1, 3), "3")], None)
        .unwrap();
    let holed = Watermark {
        held: Some(at(1, 1)),
        pending: true,
    };
    assert_eq!(store.watermark(SLOT, Copy::Live).unwrap(), holed);
    assert!(matches!(
        store.digest(SLOT, Copy::Live, None),
        Err(StoreError::Pending { .. })
    ));
    store
        .merge(
            SLOT,
            Copy::Live,
            vec![put("b", at(1, 2), "2")],
            Some(at(1, 2)),
        )
        .unwrap();
    let whole = Watermark {
        held: Some(at(1, 3)),
        pending: false,
    };
    assert_eq!(store.watermark(SLOT, Copy::Live).unwrap(), whole);
    // The first write of a reign waits until the base of that reign is held.
    store
        .merge(SLOT, Copy::Live, vec![put("d", at(5, 1), "4")], None)
        .unwrap();
    assert!(store.watermark(SLOT, Copy::Live).unwrap().pending);
    store.begin_reign(&[(SLOT, Epoch(5))]).unwrap();
    let whole = Watermark {
        held: Some(at(5, 1)),
        pending: false,
    };
    assert_eq!(store.watermark(SLOT, Copy::Live).unwrap(), whole);
}

#[test]
fn digest_at_an_earlier_cut_equals_a_naive_recomputation() {
    let (_dir, store) = live();
    let mut random = fastrand::Rng::with_seed(11);
    let mut model: BTreeMap<Bytes, Record> = BTreeMap::new();
    let mut expected = vec![naive([])];
    for seq in 1..=300 {
        let key = format!("k{}", random.u32(..20));
        let record = match random.u32(..10) {
            0 => tombstone(&key, at(1, seq)),
            _ => put(&key, at(1, seq), &format!("v{seq}")),
        };
        model.insert(record.key.clone(), record.clone());
        expected.push(naive(model.values().cloned()));
        store.merge(SLOT, Copy::Live, vec![record], None).unwrap();
    }
    for (seq, expected) in (0..).zip(&expected) {
        let found = store.digest(SLOT, Copy::Live, Some(at(1, seq))).unwrap();
        assert_eq!(
            (found.cut, &found.digest),
            (at(1, seq), expected),
            "cut {seq}"
        );
    }
    let ahead = store.digest(SLOT, Copy::Live, Some(at(1, 301)));
    assert!(matches!(ahead, Err(StoreError::NotThere { .. })));
    // A new reign's base is one cut; what lies below it cannot be told any more.
    store.begin_reign(&[(SLOT, Epoch(2))]).unwrap();
    let base = store.digest(SLOT, Copy::Live, Some(at(2, 0))).unwrap();
    assert_eq!(&base.digest, expected.last().unwrap());
    let older = store.digest(SLOT, Copy::Live, Some(at(1, 299)));
    assert!(matches!(older, Err(StoreError::CutTrimmed { oldest, .. }) if oldest == at(2, 0)));
}

#[test]
fn an_old_cut_after_a_restart_is_refused_by_name() {
    let (dir, store) = live();
    let records = (1..=5).map(|seq| put("k", at(1, seq), "v")).collect();
    store.merge(SLOT, Copy::Live, records, None).unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let trimmed = store.digest(SLOT, Copy::Live, Some(at(1, 3)));
    assert!(
        matches!(trimmed, Err(StoreError::CutTrimmed { .. })),
        "{trimmed:?}"
    );
    store
        .merge(SLOT, Copy::Live, vec![put("j", at(1, 6), "v")], None)
        .unwrap();
    let told = store.digest(SLOT, Copy::Live, Some(at(1, 5))).unwrap();
    assert_eq!(told.digest, naive([put("k", at(1, 5), "v")]));
}

#[test]
fn everything_acknowledged_is_there_after_a_kill() {
    let (dir, store) = live();
    store.open_staging(SESSION, 3, &[Slot(9)]).unwrap();
    store
        .merge(Slot(9), STAGING, vec![put("s", at(1, 4), "s")], None)
        .unwrap();
    for seq in 1..=50 {
        let record = put(&format!("k{seq}"), at(1, seq), "v");
        store.merge(SLOT, Copy::Live, vec![record], None).unwrap();
    }
    let holdings = store.holdings().unwrap();
    // What a killed process leaves: the file as the system has it, never closed by the engine.
    let image = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join(super::FILE), image.path().join(super::FILE)).unwrap();
    let reopened = Store::open(image.path()).unwrap();
    assert_eq!(reopened.holdings().unwrap(), holdings);
    assert_eq!(reopened.count(SLOT).unwrap(), 50);
    assert_eq!(reopened.last_position(SLOT).unwrap(), at(1, 50));
    let staged = Watermark {
        held: None,
        pending: true,
    };
    assert_eq!(reopened.watermark(Slot(9), STAGING).unwrap(), staged);
    assert_eq!(
        reopened.digest(SLOT, Copy::Live, None).unwrap(),
        store.digest(SLOT, Copy::Live, None).unwrap()
    );
}

#[test]
fn a_second_process_is_refused_and_another_format_named() {
    let (dir, store) = open();
    let second = Store::open(dir.path()).unwrap_err();
    assert!(
        matches!(second, super::OpenError::Engine { .. }),
        "{second}"
    );
    drop(store);
    {
        let database = redb::Database::create(dir.path().join(super::FILE)).unwrap();
        let txn = database.begin_write().unwrap();
        txn.open_table(super::META)
            .unwrap()
            .insert(super::FORMAT_KEY, 99)
            .unwrap();
        txn.commit().unwrap();
    }
    assert!(matches!(
        Store::open(dir.path()),
        Err(super::OpenError::Format { found: 99, .. })
    ));
}

#[test]
fn a_cut_does_not_see_later_writes() {
    let (_dir, store) = live();
    store
        .merge(SLOT, Copy::Live, vec![put("a", at(1, 1), "1")], None)
        .unwrap();
    let cut = store.read_cut(SLOT).unwrap();
    let more = vec![put("a", at(1, 2), "2"), put("b", at(1, 3), "3")];
    store.merge(SLOT, Copy::Live, more, None).unwrap();
    assert_eq!(cut.position, at(1, 1));
    let records: Vec<Record> = cut.records.collect::<Result<_, _>>().unwrap();
    assert_eq!(records, [put("a", at(1, 1), "1")]);
}

#[test]
fn jobs_that_wait_share_a_sync() {
    let (_dir, store) = live();
    let before = (store.stats().commits.get(), store.stats().jobs.get());
    let (answer, answers) = std::sync::mpsc::channel();
    for seq in 1..=1_000 {
        let answer = answer.clone();
        let record = put(&format!("k{seq}"), at(1, seq), "v");
        let done = Box::new(move |result: Result<(), StoreError>| answer.send(result).unwrap());
        store
            .submit(SLOT, Copy::Live, vec![record], Some(at(1, seq - 1)), done)
            .unwrap();
    }
    for _ in 0..1_000 {
        answers.recv().unwrap().unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.jobs.get() - before.1, 1_000);
    assert!(
        stats.commits.get() - before.0 < 500,
        "{} commits",
        stats.commits.get()
    );
    assert_eq!(
        store.standing(SLOT),
        Some((Some(at(1, 1_000)), Some(at(1, 999))))
    );
}

/// redb's row guards do not keep their page from being written over; its own assertions notice.
#[test]
fn reads_beside_writes_never_meet_a_page_that_is_used_again() {
    let (_dir, store) = live();
    let value = "v".repeat(300);
    let keys: Vec<_> = (0..50).map(|key| format!("k{key}")).collect();
    let first = keys
        .iter()
        .zip(1..)
        .map(|(key, seq)| put(key, at(1, seq), &value))
        .collect();
    store.merge(SLOT, Copy::Live, first, None).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for key in &keys {
                        let found = store.get(SLOT, key.as_bytes()).unwrap().unwrap();
                        assert_eq!(found.value.as_deref(), Some(value.as_bytes()));
                        assert_eq!(found.key, key.as_bytes());
                    }
                }
            });
        }
        for round in 1..=150 {
            let again = keys.iter().zip(1..);
            let again = again
                .map(|(key, seq)| put(key, at(1, round * 50 + seq), &value))
                .collect();
            store.merge(SLOT, Copy::Live, again, None).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[tokio::test]
async fn a_writer_that_panics_breaks_the_store_and_says_so() {
    let (_dir, store) = live();
    let failed = store.failed();
    let answer = tokio::task::spawn_blocking({
        let store = store.clone();
        move || store.carry_out(|_| panic!("as an assertion of the engine would"))
    });
    assert!(answer.await.unwrap().is_err());
    let failed = tokio::time::timeout(std::time::Duration::from_secs(10), failed).await;
    assert!(failed.unwrap().to_string().contains("panicked"));
    assert!(matches!(
        store.get(SLOT, b"k"),
        Err(StoreError::Backend { .. })
    ));
}

/// Story F10: what a deposed owner left is replaced by what its successor holds, in one step.
#[test]
fn strays_are_given_up_for_what_the_owner_holds_and_nothing_newer_is() {
    let (dir, store) = live();
    let (kept, stray) = (put("both", at(1, 1), "1"), put("both", at(1, 5), "2"));
    let records = vec![kept.clone(), put("alone", at(1, 4), "2"), stray];
    store.merge(SLOT, Copy::Live, records, None).unwrap();
    store
        .merge(SLOT, Copy::Live, vec![put("raced", at(1, 6), "2")], None)
        .unwrap();
    store.begin_reign(&[(SLOT, Epoch(3))]).unwrap();
    assert_eq!(store.fork(SLOT).unwrap(), Some(at(1, 1)));
    // Written anew in the new reign before the stray was given up.
    let newer = put("raced", at(3, 1), "3");
    store
        .merge(SLOT, Copy::Live, vec![newer.clone()], None)
        .unwrap();
    let stray = |key: &str, seq, instead: Option<&Record>| annulus_agent::store::Stray {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version: at(1, seq),
        instead: instead.cloned(),
    };
    let strays = vec![
        stray("both", 5, Some(&kept)),
        stray("alone", 4, None),
        stray("raced", 6, None),
        stray("never", 9, None),
    ];
    for _ in 0..2 {
        store.give_up(SLOT, Copy::Live, strays.clone()).unwrap();
    }
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(value(&store, "both"), Some(Some(Bytes::from("1"))));
    assert_eq!(value(&store, "alone"), None);
    assert_eq!(value(&store, "raced"), Some(Some(Bytes::from("3"))));
    let digest = store.digest(SLOT, Copy::Live, None).unwrap();
    assert_eq!(digest.digest, naive([kept.clone(), newer.clone()]));
    let versions: Result<Vec<_>, _> = store.versions(SLOT, Copy::Live, None).unwrap().collect();
    let held = [&kept, &newer].map(|record| (record.key.clone(), record.version));
    assert_eq!(versions.unwrap(), held);
    let above: Vec<_> = store
        .versions(SLOT, Copy::Live, Some(at(1, 1)))
        .unwrap()
        .collect();
    assert_eq!(above.len(), 1);
    assert_eq!(store.find(SLOT, b"both").unwrap(), Some(kept));
    assert_eq!(
        store.fork(SLOT).unwrap(),
        Some(at(1, 1)),
        "kept over a restart"
    );
}

#[test]
fn an_earlier_cut_cannot_be_told_after_strays_were_given_up() {
    let (_dir, store) = live();
    store
        .merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "1")], None)
        .unwrap();
    let whole = store.digest(SLOT, Copy::Live, Some(at(1, 1))).unwrap();
    store
        .merge(SLOT, Copy::Live, vec![put("l", at(1, 2), "1")], None)
        .unwrap();
    let earlier = store.digest(SLOT, Copy::Live, Some(at(1, 1))).unwrap();
    assert_eq!(earlier, whole);
    let stray = annulus_agent::store::Stray {
        key: Bytes::from("k"),
        version: at(1, 1),
        instead: None,
    };
    store.give_up(SLOT, Copy::Live, vec![stray]).unwrap();
    let trimmed = store.digest(SLOT, Copy::Live, Some(at(1, 1)));
    assert!(
        matches!(trimmed, Err(StoreError::CutTrimmed { .. })),
        "{trimmed:?}"
    );
    let now = store.digest(SLOT, Copy::Live, None).unwrap();
    assert_eq!(now.digest, naive([put("l", at(1, 2), "1")]));
}
