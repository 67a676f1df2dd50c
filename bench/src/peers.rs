//! What others offer, each used as its documentation says, and once more with our hash.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{BuildHasher, Hash, Hasher},
};

use maglev::ConsistentHasher as _;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    bound::Spec,
    timing::{Contender, Key, contender},
};

/// Points per node of ring peers, as many as our tokens.
const POINTS: usize = 256;

/// A node as peers hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    id: u16,
    zone: u8,
}

/// A point of a ring of points.
#[derive(Clone, Copy, Debug, Hash)]
struct Point {
    node: Node,
    number: u32,
}

/// The hash that our layouts use, for peers that take a hasher.
#[derive(Clone, Copy, Debug, Default)]
struct Ours;

struct OneShot(u64);

impl BuildHasher for Ours {
    type Hasher = OneShot;
    fn build_hasher(&self) -> OneShot {
        OneShot(0)
    }
}

impl Hasher for OneShot {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }
    #[inline]
    fn write_usize(&mut self, _length: usize) {}
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

fn default_hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn nodes(specs: &[Spec]) -> Vec<Node> {
    specs
        .iter()
        .map(|spec| Node {
            id: spec.0,
            zone: spec.1,
        })
        .collect()
}

fn tree(nodes: &[Node], hash: impl Fn(&Point) -> u64) -> BTreeMap<u64, Node> {
    let points = |node: &Node| {
        let node = *node;
        (0..POINTS as u32).map(move |number| Point { node, number })
    };
    nodes
        .iter()
        .flat_map(points)
        .map(|point| (hash(&point), point.node))
        .collect()
}

fn sum(keys: &[Key], mut find: impl FnMut(&Key) -> u64) -> u64 {
    keys.iter().fold(0, |sum, key| sum.wrapping_add(find(key)))
}

// Keys of a pass, by how long a lookup takes: a pass is over before another program is let in.
const MANY: usize = 1 << 13;
const SOME: usize = 1 << 10;
const FEW: usize = 1 << 5;

/// Peers that name one owner.
pub fn single(specs: &[Spec]) -> Vec<Contender<'static>> {
    let nodes = nodes(specs);
    let id = |node: Option<&Node>| node.map_or(0, |node| u64::from(node.id));
    let capacity = nodes.len() as u16 * 2;

    let anchor = anchorhash::Builder::default()
        .with_resources(nodes.clone())
        .build::<Key>(capacity);
    let anchor_ours = anchorhash::Builder::with_hasher(Ours)
        .with_resources(nodes.clone())
        .build::<Key>(capacity);
    let table = maglev::Maglev::new(nodes.clone());
    let table_ours = maglev::Maglev::with_hasher(nodes.clone(), Ours);
    let mut ring = hashring::HashRing::new();
    let points = nodes.iter().flat_map(|node| {
        let node = *node;
        (0..POINTS as u32).map(move |number| Point { node, number })
    });
    ring.batch_add(points.collect());
    let consistent = consistent_hash_ring::RingBuilder::default()
        .vnodes(POINTS)
        .nodes(&nodes)
        .build();
    let jump = jumphash::JumpHasher::new_with_keys(1, 2);
    let jump_nodes = nodes.clone();
    let mut rendezvous = rendezvous_hash::RendezvousNodes::default();
    for node in &nodes {
        rendezvous.insert(rendezvous_hash::IdNode::new(*node));
    }
    let tree_default = tree(&nodes, default_hash);
    let tree_ours = tree(&nodes, |point| Ours.hash_one(point));

    let walk = |tree: &BTreeMap<u64, Node>, hash: u64| {
        tree.range(hash..)
            .chain(tree)
            .next()
            .map_or(0, |(_, node)| u64::from(node.id))
    };
    vec![
        contender("anchorhash", SOME, move |keys| {
            sum(keys, |key| id(anchor.get_resource(*key)))
        }),
        contender("anchorhash, xxh3", SOME, move |keys| {
            sum(keys, |key| id(anchor_ours.get_resource(*key)))
        }),
        contender("maglev", MANY, move |keys| {
            sum(keys, |key| id(table.get(key)))
        }),
        contender("maglev, xxh3", MANY, move |keys| {
            sum(keys, |key| id(table_ours.get(key)))
        }),
        contender("hashring", SOME, move |keys| {
            sum(keys, |key| {
                ring.get(key).map_or(0, |point| u64::from(point.node.id))
            })
        }),
        contender("consistent_hash_ring", SOME, move |keys| {
            sum(keys, |key| id(consistent.try_get(key)))
        }),
        contender("jumphash", SOME, move |keys| {
            let count = jump_nodes.len() as u32;
            sum(keys, |key| {
                u64::from(jump_nodes[jump.slot(key, count) as usize].id)
            })
        }),
        contender("rendezvous_hash", FEW, move |keys| {
            sum(keys, |key| {
                rendezvous
                    .calc_candidates(key)
                    .next()
                    .map_or(0, |node| u64::from(node.id))
            })
        }),
        contender("BTreeMap ring", SOME, move |keys| {
            sum(keys, |key| walk(&tree_default, default_hash(key)))
        }),
        contender("BTreeMap ring, xxh3", SOME, move |keys| {
            sum(keys, |key| walk(&tree_ours, xxh3_64_with_seed(key, 0)))
        }),
    ]
}

/// The first three nodes in three zones of a walk.
fn three(walk: impl Iterator<Item = Node>) -> u64 {
    let mut found = [Node::default(); 3];
    let mut count = 0;
    for node in walk {
        if found[..count].iter().all(|other| other.zone != node.zone) {
            found[count] = node;
            count += 1;
            if count == 3 {
                break;
            }
        }
    }
    found.iter().map(|node| u64::from(node.id)).sum()
}

/// Ways to three replicas in three zones that a user can put together from peers.
pub fn triple(specs: &[Spec]) -> Vec<Contender<'static>> {
    let all = nodes(specs);
    let zones: Vec<Vec<Node>> = (0..3)
        .map(|zone| {
            all.iter()
                .copied()
                .filter(|node| node.zone == zone)
                .collect()
        })
        .collect();
    let consistent = consistent_hash_ring::RingBuilder::default()
        .vnodes(POINTS)
        .nodes(&all)
        .build();
    let tree_default = tree(&all, default_hash);
    let tree_ours = tree(&all, |point| Ours.hash_one(point));
    let mut rendezvous = rendezvous_hash::RendezvousNodes::default();
    for node in &all {
        rendezvous.insert(rendezvous_hash::IdNode::new(*node));
    }
    let tables: Vec<_> = zones
        .iter()
        .map(|zone| maglev::Maglev::new(zone.clone()))
        .collect();
    let tables_ours: Vec<_> = zones
        .iter()
        .map(|zone| maglev::Maglev::with_hasher(zone.clone(), Ours))
        .collect();
    let anchors: Vec<_> = zones
        .iter()
        .map(|zone| {
            anchorhash::Builder::default()
                .with_resources(zone.clone())
                .build::<Key>(zone.len() as u16 * 2)
        })
        .collect();
    let id = |node: Option<&Node>| node.map_or(0, |node| u64::from(node.id));
    vec![
        contender("consistent_hash_ring, walk", SOME, move |keys| {
            sum(keys, |key| three(consistent.replicas(key).copied()))
        }),
        contender("BTreeMap ring, walk", SOME, move |keys| {
            sum(keys, |key| {
                three(
                    tree_default
                        .range(default_hash(key)..)
                        .chain(&tree_default)
                        .map(|(_, node)| *node),
                )
            })
        }),
        contender("BTreeMap ring, walk, xxh3", SOME, move |keys| {
            sum(keys, |key| {
                three(
                    tree_ours
                        .range(xxh3_64_with_seed(key, 0)..)
                        .chain(&tree_ours)
                        .map(|(_, node)| *node),
                )
            })
        }),
        contender("rendezvous_hash, walk", FEW, move |keys| {
            sum(keys, |key| {
                three(rendezvous.calc_candidates(key).map(|node| **node))
            })
        }),
        contender("maglev, one per zone", SOME, move |keys| {
            sum(keys, |key| {
                tables.iter().map(|table| id(table.get(key))).sum()
            })
        }),
        contender("maglev, one per zone, xxh3", SOME, move |keys| {
            sum(keys, |key| {
                tables_ours.iter().map(|table| id(table.get(key))).sum()
            })
        }),
        contender("anchorhash, one per zone", SOME, move |keys| {
            sum(keys, |key| {
                anchors
                    .iter()
                    .map(|anchor| id(anchor.get_resource(*key)))
                    .sum()
            })
        }),
    ]
}
