//! Small rings for tests, and every way in which the bytes of one can be wrong.

use annulus_proto::{snapshot::encode, v1};
use annulus_ring::{
    Availability, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, HashName, Incarnation,
    Layout, List, Member, MemberState, NodeId, Replication, RingName, Slot, SlotChange, SlotTable,
    Snapshot, Step, Transition, TransitionId, Weight, Zone, snapshot::FORMAT,
};
use prost::Message as _;
use sha2::{Digest, Sha256};

pub const RING: &str = "cache";
pub const BITS: u8 = 2;

/// Nodes a, b and c; every slot has two replicas and the owner that `epoch` picks, so that
/// neighbouring epochs agree on no list. Every member's zone names the epoch.
pub fn ring(epoch: u64) -> Snapshot {
    let mut slots = SlotTable::empty(BITS, 2);
    for slot in slots.slots() {
        let at = |shift: u64| Handle(((u64::from(slot.0) + epoch + shift) % 3) as u16);
        slots.set(slot, &[at(0), at(1)]);
    }
    Snapshot {
        format: FORMAT,
        cluster_id: ClusterId(7),
        ring: RingName::new(RING).unwrap(),
        generation: Generation(0),
        epoch: Epoch(epoch),
        previous_checksum: Checksum::default(),
        created_at_ms: 0,
        layout: Layout {
            placement_version: 1,
            hash: HashName::Xxh3_64,
            seed: 0,
            replication: Replication { rf: 2, w: 2, r: 1 },
            slots,
        },
        members: (0..3).map(|handle| member(handle, epoch)).collect(),
        transition: None,
    }
}

fn member(handle: u16, epoch: u64) -> Member {
    let letter = char::from(b'a' + handle as u8);
    Member {
        node_id: NodeId::new(letter.to_string()).unwrap(),
        incarnation: Incarnation(1),
        handle: Handle(handle),
        zone: Zone::new(format!("z{epoch}")).unwrap(),
        weight: Weight::new(1).unwrap(),
        endpoint: Endpoint::new(format!("{letter}.example:7000")).unwrap(),
        state: MemberState::Active,
        availability: Availability::Up,
    }
}

/// The bytes of [`ring`] at `epoch`, chained from epoch 1 on.
pub fn bytes(epoch: u64) -> v1::SnapshotBytes {
    (&encode(&chained(epoch))).into()
}

/// [`ring`] at `epoch` with its predecessor's checksum.
pub fn chained(epoch: u64) -> Snapshot {
    let mut previous = Checksum::default();
    for before in 1..epoch {
        previous = encode(&Snapshot {
            previous_checksum: previous,
            ..ring(before)
        })
        .checksum;
    }
    Snapshot {
        previous_checksum: previous,
        ..ring(epoch)
    }
}

pub fn seal(snapshot: &Snapshot) -> v1::SnapshotBytes {
    (&encode(snapshot)).into()
}

/// Puts the right checksum on changed sections, as a server with a bug would.
pub fn reseal(mut message: v1::SnapshotBytes) -> v1::SnapshotBytes {
    let mut hasher = Sha256::new();
    hasher.update(b"annulus snapshot\0");
    hasher.update(message.format.to_be_bytes());
    hasher.update((message.sections.len() as u32).to_be_bytes());
    for section in &message.sections {
        hasher.update((section.len() as u64).to_be_bytes());
        hasher.update(Sha256::digest(section));
    }
    message.checksum = hasher.finalize().to_vec().into();
    message
}

/// C46, steps 1 and 3: what must be refused in place of [`bytes`] at `epoch`, with the word by
/// which the refusal is known.
pub fn damaged(epoch: u64) -> Vec<(&'static str, v1::SnapshotBytes, &'static str)> {
    let good = || bytes(epoch);
    let changed = |change: fn(&mut Snapshot)| {
        let mut snapshot = chained(epoch);
        change(&mut snapshot);
        seal(&snapshot)
    };
    let header = |change: fn(&mut v1::SnapshotHeader)| {
        let mut message = good();
        let mut header = v1::SnapshotHeader::decode(message.sections[0].clone()).unwrap();
        change(&mut header);
        message.sections[0] = header.encode_to_vec().into();
        reseal(message)
    };

    let mut flipped = good();
    let last = flipped.sections.len() - 1;
    let mut section = flipped.sections[last].to_vec();
    *section.last_mut().unwrap() ^= 1;
    flipped.sections[last] = section.into();

    let mut other_checksum = good();
    other_checksum.checksum = bytes(epoch + 1).checksum;

    let mut no_checksum = good();
    no_checksum.checksum.clear();

    let mut truncated = good();
    truncated.sections.pop();

    let mut cut = good();
    let half = cut.sections[last].len() / 2;
    cut.sections[last].truncate(half);

    let mut without_slots = good();
    without_slots.sections.pop();

    let mut hollow = good();
    hollow.sections.clear();

    let mut surplus = good();
    surplus.sections.push(surplus.sections[1].clone());

    vec![
        ("one byte flipped", flipped, "hash to"),
        ("checksum of another epoch", other_checksum, "hash to"),
        ("no checksum", no_checksum, "hash to"),
        ("truncated", truncated, "hash to"),
        ("last section cut", cut, "hash to"),
        ("no sections", hollow, "0 sections"),
        (
            "slots missing, checksum right",
            reseal(without_slots),
            "section",
        ),
        (
            "a section too many, checksum right",
            reseal(surplus),
            "section",
        ),
        (
            "duplicate node id",
            changed(|ring| ring.members[1].node_id = ring.members[0].node_id.clone()),
            "listed twice",
        ),
        (
            "unsorted members",
            changed(|ring| ring.members.swap(0, 1)),
            "out of order",
        ),
        (
            "unsorted target",
            changed(|ring| {
                let change = |slot| SlotChange {
                    slot: Slot(slot),
                    to: list(),
                };
                let target = vec![change(2), change(1)];
                let (id, step) = (TransitionId(1), Step::Copying);
                ring.transition = Some(Transition {
                    id,
                    step,
                    target,
                    replication: None,
                });
            }),
            "out of order",
        ),
        (
            "a slot of an unknown node",
            changed(|ring| ring.layout.slots.set(Slot(1), &[Handle(0), Handle(9)])),
            "no member has",
        ),
        (
            "a node twice in a list",
            changed(|ring| {
                ring.layout.slots.set(Slot(1), &[Handle(1), Handle(1)]);
            }),
            "twice",
        ),
        (
            "no nodes at all",
            changed(|ring| ring.members.clear()),
            "no member has",
        ),
        (
            "unknown hash",
            header(|header| header.hash = "fnv1a".into()),
            "unknown hash",
        ),
        (
            "unknown layout",
            header(|header| header.layout = 9),
            "layout 9",
        ),
        (
            "unknown format",
            header(|header| header.format = 9),
            "format 9",
        ),
        (
            "absurd slot bits",
            header(|header| header.slot_bits = 63),
            "slot_bits",
        ),
        (
            "another cluster",
            changed(|ring| ring.cluster_id = ClusterId(8)),
            "cluster",
        ),
        (
            "another ring",
            changed(|ring| ring.ring = RingName::new("other").unwrap()),
            "ring other",
        ),
    ]
}

fn list() -> List {
    List::from_slice(&[Handle(0), Handle(2)])
}
