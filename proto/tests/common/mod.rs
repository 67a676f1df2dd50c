//! Snapshots to test with, and the checksum as its documentation says it.
// Each test binary uses some of it.
#![allow(dead_code)]

use annulus_proto::v1;
use annulus_ring::{
    Availability, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, HashName, Incarnation,
    Layout, List, Member, MemberState, NodeId, Replication, RingName, Slot, SlotChange, SlotTable,
    Snapshot, Step, Transition, TransitionId, Weight, Zone, node::MAX_WEIGHT,
};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::subsequence};
use sha2::{Digest, Sha256};

/// docs/decisions/0002-snapshot-bytes.md, written down a second time.
pub fn checksum_of(message: &v1::SnapshotBytes) -> Bytes {
    let mut hashed = b"annulus snapshot\0".to_vec();
    hashed.extend(message.format.to_be_bytes());
    hashed.extend((message.sections.len() as u32).to_be_bytes());
    for section in &message.sections {
        hashed.extend((section.len() as u64).to_be_bytes());
        hashed.extend(Sha256::digest(section));
    }
    Bytes::copy_from_slice(&Sha256::digest(&hashed))
}

pub fn member(id: &str, handle: u16) -> Member {
    Member {
        node_id: NodeId::new(id).unwrap(),
        incarnation: Incarnation(1),
        handle: Handle(handle),
        zone: Zone::new(format!("z{}", handle % 3)).unwrap(),
        weight: Weight::new(100).unwrap(),
        endpoint: Endpoint::new(format!("127.0.0.1:{}", 7_000 + handle)).unwrap(),
        state: MemberState::Active,
        availability: Availability::Up,
    }
}

/// Three members, four slots, one slot changing. Fixed for ever: the fixtures are made of it.
pub fn small() -> Snapshot {
    let list = |handles: &[u16]| -> List { handles.iter().copied().map(Handle).collect() };
    let mut slots = SlotTable::empty(2, 3);
    for (slot, handles) in [
        (0, &[0, 1, 2][..]),
        (1, &[1, 0]),
        (2, &[2, 0, 1]),
        (3, &[0]),
    ] {
        slots.set(Slot(slot), &list(handles));
    }
    Snapshot {
        format: 1,
        cluster_id: ClusterId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        ring: RingName::new("orders").unwrap(),
        generation: Generation(1),
        epoch: Epoch(7),
        previous_checksum: Checksum([0xa5; 32]),
        created_at_ms: 1_700_000_000_000,
        layout: Layout {
            placement_version: 1,
            hash: HashName::Xxh3_64,
            seed: 42,
            replication: Replication { rf: 3, w: 2, r: 2 },
            slots,
        },
        members: vec![member("a", 0), member("b", 1), member("c", 2)],
        transition: Some(Transition {
            replication: None,
            id: TransitionId(1),
            step: Step::Writing,
            target: vec![SlotChange {
                slot: Slot(3),
                to: list(&[0, 2]),
            }],
        }),
    }
}

/// Any snapshot that makes sense.
pub fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let handles = subsequence((0..40_u16).chain(65_530..65_535).collect::<Vec<_>>(), 0..=9);
    let shape = (handles.prop_shuffle(), 1..=6_u8, 1..=4_u8);
    shape.prop_flat_map(|(handles, bits, rf)| {
        let most = handles.len().min(rf.into());
        let list = subsequence(handles.clone(), 0..=most).prop_shuffle();
        let slots = 1_usize << bits;
        let given = handles.clone();
        // Of every slot, by another rf, or of some.
        let new_rf = prop_oneof![2 => Just(None), 1 => (1..=7_u8).prop_map(Some)];
        let transition = new_rf.prop_flat_map(move |new_rf| {
            let new_rf = new_rf.filter(|_| !given.is_empty());
            any_transition(given.clone(), slots, rf, new_rf)
        });
        let members: Vec<_> = handles.iter().copied().map(any_member).collect();
        let numbers = (
            any::<u128>(),
            any::<u64>(),
            1..u64::MAX,
            any::<[u8; 32]>(),
            any::<u64>(),
        );
        let layout = (any::<u32>(), any::<u64>(), 1..=rf, 1..=rf, vec(list, slots));
        (numbers, layout, members, proptest::option::of(transition)).prop_map(
            move |(numbers, (placement_version, seed, w, r, lists), mut members, transition)| {
                members.sort_by(|a, b| a.node_id.cmp(&b.node_id));
                let (cluster, generation, epoch, previous, created_at_ms) = numbers;
                let mut slots = SlotTable::empty(bits, rf);
                for (slot, list) in (0..).map(Slot).zip(lists) {
                    let list: List = list.into_iter().map(Handle).collect();
                    slots.set(slot, &list);
                }
                Snapshot {
                    format: 1,
                    cluster_id: ClusterId(cluster),
                    ring: RingName::new("orders").unwrap(),
                    generation: Generation(generation),
                    epoch: Epoch(epoch),
                    previous_checksum: Checksum(previous),
                    created_at_ms,
                    layout: Layout {
                        placement_version,
                        hash: HashName::Xxh3_64,
                        seed,
                        replication: Replication { rf, w, r },
                        slots,
                    },
                    members,
                    transition,
                }
            },
        )
    })
}

fn any_transition(
    handles: Vec<u16>,
    slots: usize,
    rf: u8,
    new_rf: Option<u8>,
) -> impl Strategy<Value = Transition> {
    let most = handles.len().min(new_rf.unwrap_or(rf).into());
    let changed = match new_rf {
        Some(_) => slots..=slots,
        None if handles.is_empty() => 0..=0,
        None => 0..=slots,
    };
    let change = subsequence(handles, most.min(1)..=most).prop_shuffle();
    let numbers: Vec<_> = (0..slots as u32).collect();
    let target = subsequence(numbers, changed).prop_flat_map(move |slots| {
        vec(change.clone(), slots.len()).prop_map(move |lists| {
            let to = |list: Vec<u16>| -> List { list.into_iter().map(Handle).collect() };
            let pairs = slots.iter().zip(lists);
            let change = |(slot, list): (&u32, _)| SlotChange {
                slot: Slot(*slot),
                to: to(list),
            };
            pairs.map(change).collect()
        })
    });
    let quorum = 1..=new_rf.unwrap_or(1);
    (any::<u64>(), 1..=7_u8, target, quorum.clone(), quorum).prop_map(
        move |(id, step, target, w, r)| Transition {
            replication: new_rf.map(|rf| Replication { rf, w, r }),
            id: TransitionId(id),
            step: Step::from_number(step).unwrap(),
            target,
        },
    )
}

fn any_member(handle: u16) -> impl Strategy<Value = Member> {
    use MemberState::{Active, CatchingUp, Copying, Draining, Joining};
    let states = prop::sample::select(vec![Joining, Copying, CatchingUp, Active, Draining]);
    let words = (
        "[a-z0-9]",
        "[A-Za-z0-9][A-Za-z0-9._-]{0,20}",
        "[a-z0-9.]{1,30}:[1-9][0-9]{0,3}",
    );
    (words, any::<u64>(), 0..=MAX_WEIGHT, states, any::<bool>()).prop_map(
        move |((id, zone, endpoint), incarnation, weight, state, down)| Member {
            // The handle makes the id unique.
            node_id: NodeId::new(format!("{id}-{handle}")).unwrap(),
            incarnation: Incarnation(incarnation),
            handle: Handle(handle),
            zone: Zone::new(zone).unwrap(),
            weight: Weight::new(weight).unwrap(),
            endpoint: Endpoint::new(endpoint).unwrap(),
            state,
            availability: if down {
                Availability::Down
            } else {
                Availability::Up
            },
        },
    )
}
