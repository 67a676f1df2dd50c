//! Rings and keys to measure with; the same ones in every run.

use annulus_ring::{
    Availability, Candidate, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, HashName,
    Incarnation, Layout, Member, MemberState, NodeId, Replication, RingName, SlotTable, Snapshot,
    Weight, Zone,
};

use crate::{bound::Spec, place::candidate};

/// `count` equal nodes, dealt round `zones` zones.
pub fn equal(zones: u8, count: u16) -> Vec<Spec> {
    (0..count)
        .map(|at| (at, (at % u16::from(zones)) as u8, 1))
        .collect()
}

pub fn candidates(specs: &[Spec]) -> Vec<Candidate> {
    specs.iter().copied().map(candidate).collect()
}

/// splitmix64 (Guy Steele, Doug Lea, Christine Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014): a fixed sequence.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A table of three random nodes in three zones per slot, for sizes that take long to balance.
pub fn scattered(bits: u8, specs: &[Spec]) -> SlotTable {
    let mut state = 5;
    let mut table = SlotTable::empty(bits, 3);
    let per_zone = specs.len() as u64 / 3;
    for slot in table.slots() {
        // Nodes are dealt round the zones.
        let mut node =
            |zone: u64| Handle(specs[(next(&mut state) % per_zone * 3 + zone) as usize].0);
        table.set(slot, &[node(0), node(1), node(2)]);
    }
    table
}

/// A published epoch of that table.
pub fn snapshot(table: SlotTable, specs: &[Spec], seed: u64) -> Snapshot {
    let member = |spec: &Spec| Member {
        node_id: NodeId::new(format!("node-{:05}", spec.0)).expect("a short name"),
        incarnation: Incarnation(1),
        handle: Handle(spec.0),
        zone: Zone::new(format!("z{}", spec.1)).expect("a short name"),
        weight: Weight::new(spec.2).expect("a small weight"),
        endpoint: Endpoint::new(format!("10.0.{}.{}:7000", spec.0 / 250, spec.0 % 250))
            .expect("an address"),
        state: MemberState::Active,
        availability: Availability::Up,
    };
    let mut members: Vec<_> = specs.iter().map(member).collect();
    members.sort_by(|a, b| a.node_id.cmp(&b.node_id));
    Snapshot {
        format: annulus_ring::snapshot::FORMAT,
        cluster_id: ClusterId(7),
        ring: RingName::new("bench").expect("a short name"),
        generation: Generation(1),
        epoch: Epoch(10),
        previous_checksum: Checksum([9; 32]),
        created_at_ms: 1_700_000_000_000,
        layout: Layout {
            placement_version: annulus_ring::ASSIGNER_VERSION,
            hash: HashName::Xxh3_64,
            seed,
            replication: Replication { rf: 3, w: 2, r: 2 },
            slots: table,
        },
        members,
        transition: None,
    }
}
