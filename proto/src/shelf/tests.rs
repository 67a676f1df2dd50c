use annulus_ring::{
    ClusterId, HashName, Layout, Replication, Slot, SlotChange, SlotTable, Snapshot, Step,
    Transition,
};

use super::*;
use crate::snapshot::encode;

fn ring(name: &str) -> RingName {
    RingName::new(name).unwrap()
}

/// An empty ring of 2^11 slots, two sections of them, at an epoch.
fn snapshot(epoch: u64, transition: Option<u64>) -> Snapshot {
    Snapshot {
        format: 1,
        cluster_id: ClusterId(1),
        ring: ring("r"),
        generation: Generation(1),
        epoch: Epoch(epoch),
        previous_checksum: Checksum::default(),
        created_at_ms: 0,
        layout: Layout {
            placement_version: 1,
            hash: HashName::Xxh3_64,
            seed: 0,
            replication: Replication { rf: 3, w: 2, r: 2 },
            slots: SlotTable::empty(11, 3),
        },
        members: Vec::new(),
        transition: transition.map(|id| Transition {
            replication: None,
            id: TransitionId(id),
            step: Step::Prepared,
            target: vec![SlotChange {
                slot: Slot(0),
                to: annulus_ring::List::new(),
            }],
        }),
    }
}

struct Limits {
    epochs: usize,
    bytes: usize,
}

const WIDE: Limits = Limits {
    epochs: 1_000,
    bytes: usize::MAX,
};

fn push(shelf: &mut Shelf, name: &str, epoch: u64, transition: Option<u64>, limits: &Limits) {
    let encoded = encode(&snapshot(epoch, transition));
    let (generation, epoch) = (Generation(1), Epoch(epoch));
    shelf.push_within(
        &ring(name),
        generation,
        epoch,
        &encoded,
        limits.epochs,
        limits.bytes,
    );
}

fn kept(shelf: &Shelf, name: &str) -> Vec<u64> {
    shelf
        .epochs(&ring(name))
        .into_iter()
        .map(|(_, epoch, _)| epoch.0)
        .collect()
}

#[test]
fn what_was_pushed_comes_back_and_sections_are_stored_once() {
    let mut shelf = Shelf::default();
    for epoch in 1..=5 {
        push(&mut shelf, "r", epoch, None, &WIDE);
    }
    let encoded = encode(&snapshot(3, None));
    assert_eq!(shelf.get(&ring("r"), Epoch(3)), Some(encoded.message()));
    assert_eq!(
        shelf.newest(&ring("r")),
        Some(encode(&snapshot(5, None)).message())
    );
    assert_eq!(
        shelf.epochs(&ring("r"))[2],
        (Generation(1), Epoch(3), encoded.checksum)
    );
    assert_eq!(shelf.get(&ring("r"), Epoch(6)), None);
    assert_eq!(shelf.newest(&ring("other")), None);
    assert!(shelf.epochs(&ring("other")).is_empty());
    // Five headers and the two sections of slots.
    let header = encoded.sections[0].len();
    let slots: usize = encoded.sections[1..].iter().map(Bytes::len).sum();
    assert_eq!(shelf.bytes(), 5 * header + slots);
}

#[test]
fn a_repeated_or_older_push_changes_nothing() {
    let mut shelf = Shelf::default();
    push(&mut shelf, "r", 2, None, &WIDE);
    let before = shelf.clone();
    push(&mut shelf, "r", 2, None, &WIDE);
    push(&mut shelf, "r", 1, Some(1), &WIDE);
    assert_eq!(shelf, before);
}

#[test]
fn the_oldest_go_first_and_their_sections_with_them() {
    let limits = Limits { epochs: 3, ..WIDE };
    let mut shelf = Shelf::default();
    for epoch in 1..=10 {
        push(&mut shelf, "r", epoch, None, &limits);
    }
    assert_eq!(kept(&shelf, "r"), [8, 9, 10]);
    let mut fresh = Shelf::default();
    for epoch in 8..=10 {
        push(&mut fresh, "r", epoch, None, &limits);
    }
    assert_eq!(shelf, fresh, "nothing is left of the trimmed ones");
}

#[test]
fn the_base_of_the_running_transition_is_kept() {
    let limits = Limits { epochs: 3, ..WIDE };
    let mut shelf = Shelf::default();
    push(&mut shelf, "r", 1, None, &limits);
    push(&mut shelf, "r", 2, None, &limits);
    for epoch in 3..=9 {
        push(&mut shelf, "r", epoch, Some(1), &limits);
    }
    assert_eq!(kept(&shelf, "r"), [2, 8, 9]);
    push(&mut shelf, "r", 10, None, &limits);
    push(&mut shelf, "r", 11, None, &limits);
    assert_eq!(
        kept(&shelf, "r"),
        [9, 10, 11],
        "over: it goes like any other"
    );
}

#[test]
fn bytes_are_taken_from_the_ring_that_uses_most() {
    let mut shelf = Shelf::default();
    push(&mut shelf, "small", 1, None, &WIDE);
    push(&mut shelf, "small", 2, None, &WIDE);
    for epoch in 1..=20 {
        push(&mut shelf, "large", epoch, None, &WIDE);
    }
    let limits = Limits {
        bytes: shelf.bytes(),
        ..WIDE
    };
    for epoch in 21..=30 {
        push(&mut shelf, "large", epoch, None, &limits);
        assert!(shelf.bytes() <= limits.bytes);
    }
    assert_eq!(kept(&shelf, "small"), [1, 2]);
    assert_eq!(kept(&shelf, "large"), (11..=30).collect::<Vec<_>>());
}

#[test]
fn the_newest_is_never_trimmed() {
    let limits = Limits {
        epochs: 1,
        bytes: 0,
    };
    let mut shelf = Shelf::default();
    push(&mut shelf, "r", 1, None, &limits);
    push(&mut shelf, "s", 1, None, &limits);
    push(&mut shelf, "r", 2, None, &limits);
    assert_eq!((kept(&shelf, "r"), kept(&shelf, "s")), (vec![2], vec![1]));
    assert!(shelf.newest(&ring("r")).is_some());
}

#[test]
fn a_log_snapshot_gives_the_same_shelf_and_the_same_bytes() {
    let mut shelf = Shelf::default();
    for epoch in 1..=4 {
        push(&mut shelf, "r", epoch, (epoch > 2).then_some(1), &WIDE);
        push(&mut shelf, "s", epoch, None, &WIDE);
    }
    let text = serde_json::to_string(&shelf).unwrap();
    let back: Shelf = serde_json::from_str(&text).unwrap();
    assert_eq!(back, shelf);
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    assert_eq!(
        serde_json::from_slice::<Shelf>(text.as_bytes()).unwrap(),
        shelf
    );
    assert_eq!(
        serde_json::from_reader::<_, Shelf>(text.as_bytes()).unwrap(),
        shelf
    );
}

#[test]
fn damage_in_a_log_snapshot_is_named() {
    let mut shelf = Shelf::default();
    push(&mut shelf, "r", 1, None, &WIDE);
    let text = serde_json::to_string(&shelf).unwrap();
    let section = hex::encode(&encode(&snapshot(1, None)).sections[1]);
    let bent = text.replace(&section, &section.replace('f', "e"));
    let error = serde_json::from_str::<Shelf>(&bent)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("shelf of ring r, epoch 1: hashes to "),
        "{error}"
    );
    let bent = text.replace("\"sections\":[", "\"sections\":[\"00\",");
    assert!(serde_json::from_str::<Shelf>(&bent).is_err());
}

/// A ring of two members at an epoch, slot 1,500 as given.
fn with_list(epoch: u64, list: &[u16], transition: Option<u64>) -> Snapshot {
    let mut snapshot = snapshot(epoch, transition);
    let member = |handle: u16| annulus_ring::Member {
        node_id: format!("n{handle}").parse().unwrap(),
        incarnation: annulus_ring::Incarnation(1),
        handle: annulus_ring::Handle(handle),
        zone: "z1".parse().unwrap(),
        weight: annulus_ring::Weight::new(1).unwrap(),
        endpoint: "h:1".parse().unwrap(),
        state: annulus_ring::MemberState::Active,
        availability: annulus_ring::Availability::Up,
    };
    snapshot.members = vec![member(0), member(1), member(2)];
    let list: Vec<_> = list.iter().copied().map(annulus_ring::Handle).collect();
    snapshot.layout.slots.set(Slot(1_500), &list);
    snapshot.created_at_ms = epoch * 10;
    snapshot
}

#[test]
fn a_ranges_lists_are_told_with_the_transition_that_ended_with_each() {
    let mut shelf = Shelf::default();
    let epochs = [
        with_list(1, &[], None),
        with_list(2, &[0, 1], None),
        with_list(3, &[0, 1], Some(4)),
        with_list(4, &[1, 0], Some(4)),
        with_list(5, &[1, 2], None),
        with_list(6, &[1, 2], None),
    ];
    for snapshot in &epochs {
        let encoded = encode(snapshot);
        shelf.push(&ring("r"), snapshot.generation, snapshot.epoch, &encoded);
    }
    let lists: Vec<_> = shelf
        .lists(&ring("r"), Slot(1_500))
        .into_iter()
        .map(|kept| {
            let names: Vec<_> = kept.nodes.iter().map(ToString::to_string).collect();
            let number = |id: Option<TransitionId>| id.map(|id| id.0);
            let around = (number(kept.transition_before), number(kept.transition));
            (kept.epoch.0, kept.created_at_ms, names.join(" "), around)
        })
        .collect();
    assert_eq!(
        lists,
        [
            (1, 10, String::new(), (None, None)),
            (2, 20, "n0 n1".to_owned(), (None, None)),
            (4, 40, "n1 n0".to_owned(), (Some(4), Some(4))),
            (5, 50, "n1 n2".to_owned(), (Some(4), None)),
        ]
    );
    // Another slot of the same chunk, and one of another, never had a list.
    for slot in [0, 1_501] {
        let lists = shelf.lists(&ring("r"), Slot(slot));
        assert!(lists.len() == 1 && lists[0].nodes.is_empty(), "{lists:?}");
    }
    assert_eq!(shelf.lists(&ring("other"), Slot(0)), []);
    assert_eq!(shelf.lists(&ring("r"), Slot(1 << 11)), []);

    let of = |id| shelf.transition(&ring("r"), TransitionId(id));
    assert_eq!(of(4), (Some(Epoch(3)), Some(Epoch(5))));
    assert_eq!(of(5), (None, None));
}
