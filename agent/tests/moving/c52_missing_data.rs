//! C52: "complete", but data is missing; and C53, step 2: a range that always fails keeps no other
//! waiting. What a node says without having it, (e) and (f), is asked of a real leader in
//! `tests/it/c52_words_without_data.rs`.
//!
//! Both slots move: `[a, b]` to `[a, g]`, and `[b, a]` to `[b, g]`.

use annulus_agent::Copy;
use annulus_ring::{SessionId, Slot, Step};

use crate::{
    OTHER, SLOT,
    leader::Reported,
    memory::MemoryStore,
    node::live,
    ring::{Ring, eventually},
};

const SESSION: SessionId = SessionId(1);
const KEYS: usize = 100;

/// Both slots are written, and g has opened staging for both.
async fn both_move() -> Ring {
    let ring = Ring::founded(&["a", "b", "g"]).await;
    ring.leader.publish(|script| {
        script.members = vec!["a", "b", "g"];
        script.other = Some(vec!["b", "g"]);
    });
    for n in 0..KEYS {
        let key = format!("k{n}");
        ring.nodes.write("a", SLOT, &key, Some("x")).await.unwrap();
        ring.nodes.write("b", OTHER, &key, Some("x")).await.unwrap();
    }
    ring
}

fn attempt(reported: &Reported, slot: Slot) -> u32 {
    let standing = reported.slots.get(&(SESSION.0, slot.0));
    standing.map_or(0, |standing| standing.attempt)
}

fn is_copied(reported: &Reported, slot: Slot) -> bool {
    let standing = reported.slots.get(&(SESSION.0, slot.0));
    standing.is_some_and(|standing| standing.copied.is_some())
}

fn is_verified(reported: &Reported, slot: Slot) -> bool {
    let standing = reported.slots.get(&(SESSION.0, slot.0));
    standing.is_some_and(|standing| standing.digest.is_some())
}

type Fault = fn(&MemoryStore, Slot, Copy) -> bool;
const FAULTS: [(&str, Fault); 3] = [
    ("a record is lost", MemoryStore::damage),
    ("a value is altered", MemoryStore::alter),
    ("a record is extra", MemoryStore::slip_in),
];

/// Both copies are complete, and that of one slot has the fault. A ring in which the copies are
/// compared next.
async fn faulty(what: &str, fault: Fault) -> Ring {
    let ring = both_move().await;
    ring.walk(1, "g", Step::Copying).await;
    ring.leader
        .until("g", "the other copy", |one| is_copied(one, OTHER))
        .await;
    let store = &ring.node("g").store;
    assert!(fault(store, SLOT, Copy::Staging(SESSION)), "{what}");
    let staged = store.newest(SLOT, Copy::Staging(SESSION));
    assert_ne!(staged, live(ring.node("a"), SLOT), "{what}");
    ring
}

fn copies_are_equal(ring: &Ring, what: &str) {
    for (slot, owner) in [(SLOT, "a"), (OTHER, "b")] {
        let staged = ring.node("g").store.newest(slot, Copy::Staging(SESSION));
        assert!(
            staged == live(ring.node(owner), slot),
            "{what}: slot {slot}"
        );
    }
}

/// (a), (c), (d): each is found by the digest, said of no attempt that has it, and mended by
/// copying that very range again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c52_a_copy_with_a_lost_altered_or_extra_record_is_copied_again_alone() {
    for (what, fault) in FAULTS {
        let ring = faulty(what, fault).await;
        ring.node("g").store.list_nothing();
        ring.leader.step(1, Step::CatchingUp, &["a", "g"]);
        let verified = ring
            .leader
            .until("g", what, |one| {
                // Evidence of the first attempt would let the faulty copy through to the switch.
                assert!(
                    !is_verified(one, SLOT) || attempt(one, SLOT) > 1,
                    "{what}: verified as it was"
                );
                is_verified(one, SLOT) && is_verified(one, OTHER)
            })
            .await;
        assert_eq!(attempt(&verified, SLOT), 2, "{what}");
        assert_eq!(
            attempt(&verified, OTHER),
            1,
            "{what}: the other range was copied again"
        );
        copies_are_equal(&ring, what);
    }
}

/// (a), (c), (d), where the store can say what a copy holds: nothing but the record is fetched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c52_of_a_copy_with_a_lost_altered_or_extra_record_that_record_alone_is_mended() {
    for (what, fault) in FAULTS {
        let ring = faulty(what, fault).await;
        let metrics = ring.node("g").agent.metrics();
        let before = metrics.copied_bytes.get();
        ring.leader.step(1, Step::CatchingUp, &["a", "g"]);
        let verified = ring
            .leader
            .until("g", what, |one| {
                is_verified(one, SLOT) && is_verified(one, OTHER)
            })
            .await;
        assert_eq!(attempt(&verified, SLOT), 1, "{what}");
        assert_eq!(metrics.mended.get(), 1, "{what}");
        let fetched = metrics.copied_bytes.get() - before;
        assert!(
            fetched <= 4,
            "{what}: {fetched} bytes, of a key and a value"
        );
        copies_are_equal(&ring, what);
    }
}

/// (b), and C53, step 2: an error for one range and success for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c52_a_range_that_fails_is_never_said_to_be_copied_and_keeps_no_other_waiting() {
    let ring = both_move().await;
    ring.walk(1, "g", Step::Writing).await;
    let store = &ring.node("g").store;
    store.break_slot(Some(SLOT));
    let copying = ring.leader.step(1, Step::Copying, &["a", "g"]);
    ring.leader.adopted(&["a", "b", "g"], copying).await;
    let tried = ring
        .leader
        .until("g", "the other copy, and a third try at this one", |one| {
            assert!(!is_copied(one, SLOT), "nothing of it is stored");
            is_copied(one, OTHER) && attempt(one, SLOT) >= 3
        })
        .await;
    assert_eq!(attempt(&tried, OTHER), 1);

    store.break_slot(None);
    ring.leader
        .until("g", "the copy that failed", |one| is_copied(one, SLOT))
        .await;
    ring.leader.step(1, Step::CatchingUp, &["a", "g"]);
    ring.verified(1, "g").await;
    eventually("equal copies", || {
        store.newest(SLOT, Copy::Staging(SESSION)) == live(ring.node("a"), SLOT)
    })
    .await;
}
