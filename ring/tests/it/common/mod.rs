//! Small rings to test with.
// Each test binary uses some of it.
#![allow(dead_code)]

use std::{collections::BTreeMap, sync::Arc};

use annulus_ring::{
    Availability, Candidate, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, HashName,
    Incarnation, Layout, Lookup, Member, MemberState, NodeId, Replication, RingName, Slot,
    SlotTable, Snapshot, Weight, Zone,
};

/// A node as (handle, zone, weight).
pub type Spec = (u16, u8, u32);

pub fn candidate((handle, zone, weight): Spec) -> Candidate {
    Candidate {
        handle: Handle(handle),
        zone: Zone::new(format!("z{zone}")).unwrap(),
        weight: Weight::new(weight).unwrap(),
    }
}

pub fn candidates(specs: &[Spec]) -> Vec<Candidate> {
    specs.iter().copied().map(candidate).collect()
}

/// `per_zone` equal nodes in each of `zones` zones, numbered round the zones.
pub fn equal(zones: u8, per_zone: u16) -> Vec<Spec> {
    (0..per_zone * u16::from(zones))
        .map(|at| (at, (at % u16::from(zones)) as u8, 1))
        .collect()
}

/// Assigns from `current`, in the given order of nodes.
pub fn assign(current: &SlotTable, specs: &[Spec]) -> SlotTable {
    annulus_ring::place::assign(current, &candidates(specs)).unwrap()
}

pub fn founded(bits: u8, rf: u8, specs: &[Spec]) -> SlotTable {
    assign(&SlotTable::empty(bits, rf), specs)
}

/// Replicas per handle.
pub fn replicas(table: &SlotTable) -> BTreeMap<u16, u32> {
    let mut counts = BTreeMap::new();
    for slot in table.slots() {
        table
            .list(slot)
            .iter()
            .for_each(|handle| *counts.entry(handle.0).or_default() += 1);
    }
    counts
}

/// Owned ranges per handle.
pub fn owners(table: &SlotTable) -> BTreeMap<u16, u32> {
    let mut counts = BTreeMap::new();
    for slot in table.slots() {
        if let Some(owner) = table.list(slot).first() {
            *counts.entry(owner.0).or_default() += 1;
        }
    }
    counts
}

/// Replicas that must be copied to get from one table to the other.
pub fn moved(old: &SlotTable, new: &SlotTable) -> u32 {
    let changes = annulus_ring::placement::diff(old, new);
    let gains = changes.iter().map(|change| {
        annulus_ring::placement::movement(change.slot, old.list(change.slot), &change.to)
            .gainers
            .len() as u32
    });
    gains.sum()
}

/// The fewest replicas that must be copied to get from `old` to any table that is as even over
/// zones as `new` and in which every member holds as many ranges as in `new`: a cheapest flow
/// node -> (slot, zone) -> slot, found by Bellman and Ford. Slow, and nothing like the assigner.
pub fn least(old: &SlotTable, new: &SlotTable, specs: &[Spec]) -> u32 {
    let zones: Vec<u8> = specs
        .iter()
        .map(|spec| spec.1)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let (nodes, slots) = (specs.len(), old.slot_count());
    let cell = |slot: usize, zone: usize| nodes + slot * zones.len() + zone;
    let sink = cell(slots, 0) + slots;
    let slot_at = |slot: usize| cell(slots, 0) + slot;
    // (from, to, capacity, cost), each followed by its reverse.
    let mut edges: Vec<(usize, usize, i64, i64)> = Vec::new();
    let mut edge = |from, to, capacity, cost| {
        if capacity > 0 {
            edges.push((from, to, capacity, cost));
            edges.push((to, from, 0, -cost));
        }
    };
    let all: Vec<_> = new
        .slots()
        .map(|slot| zones_of(new.list(slot), specs))
        .collect();
    let source = sink + 1;
    let counts = replicas(new);
    for (at, spec) in specs.iter().enumerate() {
        edge(
            source,
            at,
            counts.get(&spec.0).copied().unwrap_or(0).into(),
            0,
        );
        let zone = zones.iter().position(|zone| *zone == spec.1).unwrap();
        for slot in new.slots() {
            let held = old.list(slot).contains(&Handle(spec.0));
            edge(at, cell(slot.index(), zone), 1, i64::from(!held));
        }
    }
    for slot in 0..slots {
        for (at, zone) in zones.iter().enumerate() {
            let count = |list: &Vec<u8>| list.iter().filter(|other| *other == zone).count() as i64;
            let (least, most) = (
                all.iter().map(count).min().unwrap(),
                all.iter().map(count).max().unwrap(),
            );
            // What must be there is worth more than any number of moves.
            edge(cell(slot, at), slot_at(slot), least, -1_000_000);
            edge(cell(slot, at), slot_at(slot), most - least, 0);
        }
        edge(slot_at(slot), sink, all[slot].len() as i64, 0);
    }

    let mut cost = 0;
    loop {
        let mut reached: Vec<Option<(i64, usize)>> = vec![None; source + 1];
        reached[source] = Some((0, usize::MAX));
        let mut changed = true;
        while changed {
            changed = false;
            for (at, (from, to, capacity, price)) in edges.iter().enumerate() {
                if let Some((so_far, _)) = reached[*from]
                    && *capacity > 0
                    && reached[*to].is_none_or(|(known, _)| so_far + price < known)
                {
                    reached[*to] = Some((so_far + price, at));
                    changed = true;
                }
            }
        }
        let Some((price, _)) = reached[sink] else {
            break;
        };
        cost += price;
        let mut at = sink;
        while at != source {
            let edge = reached[at].unwrap().1;
            edges[edge].2 -= 1;
            edges[edge ^ 1].2 += 1;
            at = edges[edge].0;
        }
    }
    cost.rem_euclid(1_000_000) as u32
}

/// Zones of a list, each as often as it has members there.
pub fn zones_of(list: &[Handle], specs: &[Spec]) -> Vec<u8> {
    let zone = |handle: &Handle| specs.iter().find(|spec| spec.0 == handle.0).unwrap().1;
    let mut zones: Vec<_> = list.iter().map(zone).collect();
    zones.sort_unstable();
    zones
}

pub fn member((handle, zone, weight): Spec) -> Member {
    Member {
        node_id: NodeId::new(format!("n{handle:05}")).unwrap(),
        incarnation: Incarnation(1),
        handle: Handle(handle),
        zone: Zone::new(format!("z{zone}")).unwrap(),
        weight: Weight::new(weight).unwrap(),
        endpoint: Endpoint::new(format!("127.0.0.1:{}", 7_000 + handle)).unwrap(),
        state: MemberState::Active,
        availability: Availability::Up,
    }
}

pub fn snapshot(table: SlotTable, specs: &[Spec]) -> Snapshot {
    let mut members: Vec<_> = specs.iter().copied().map(member).collect();
    members.sort_by(|a, b| a.node_id.cmp(&b.node_id));
    let rf = table.rf();
    Snapshot {
        format: annulus_ring::snapshot::FORMAT,
        cluster_id: ClusterId(1),
        ring: RingName::new("r").unwrap(),
        generation: Generation(1),
        epoch: Epoch(2),
        previous_checksum: Checksum::default(),
        created_at_ms: 0,
        layout: Layout {
            placement_version: annulus_ring::ASSIGNER_VERSION,
            hash: HashName::Xxh3_64,
            seed: 0,
            replication: Replication {
                rf,
                w: rf / 2 + 1,
                r: rf / 2 + 1,
            },
            slots: table,
        },
        members,
        transition: None,
    }
}

pub fn lookup(table: SlotTable, specs: &[Spec]) -> Lookup {
    Lookup::compile(Arc::new(snapshot(table, specs))).unwrap()
}

/// A list, by numbers.
pub fn list(table: &SlotTable, slot: u32) -> Vec<u16> {
    table
        .list(Slot(slot))
        .iter()
        .map(|handle| handle.0)
        .collect()
}
