//! Layouts: nodes to "who holds this key", ours and what people use instead.
//!
//! ```text
//!   Layout (what was asked for) + nodes [+ what there was] ---> Map ---> list(key)
//! ```
//!
//! `slots` and `redis-slots` start from the map before, as their tables are moved and not
//! computed anew; all others follow from the nodes alone.

use std::{fmt, num::NonZeroU32};

use annulus_ring::{
    Candidate, Handle, Ketama, List, Rendezvous, Slot, SlotTable,
    hash::{SLOTS_OF_CRC16, crc16_hash_tag_slot},
    jump, place, slots, tokens,
};

use crate::{
    InputError,
    cluster::{Node, Nodes},
    error::setting,
    hash::Hash,
};

mod ours;

pub use ours::Ring;

/// Most buckets of modulo, weights unfolded.
const MAX_BUCKETS: u64 = 1 << 22;
const REDIS_SLOTS: usize = SLOTS_OF_CRC16 as usize;

/// How keys are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Ours: 2^`bits` equal ranges, assigned.
    Slots {
        /// k.
        bits: u8,
    },
    /// The classic ring with so many points per unit of weight.
    Tokens {
        /// Points per unit of weight.
        per_weight: u32,
    },
    /// Highest random weight, per key over all nodes.
    Rendezvous,
    /// Numbered buckets.
    Jump,
    /// The ring of memcached's clients.
    Ketama,
    /// Hash modulo the number of nodes.
    Modulo,
    /// 16,384 slots by CRC-16, as Redis Cluster has them.
    RedisSlots,
}

/// How many replicas, and by which hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How keys are laid out.
    pub layout: Layout,
    /// Hash of keys and points; ketama and Redis bring their own.
    pub hash: Hash,
    /// Seed of the hash.
    pub seed: u64,
    /// Replicas of a key.
    pub rf: u8,
}

impl Layout {
    /// All names, as users write them.
    pub const NAMES: [&str; 7] = [
        "slots",
        "tokens",
        "rendezvous",
        "jump",
        "ketama",
        "modulo",
        "redis-slots",
    ];

    /// Reads a name; `bits` and `tokens` go to the layouts that have them.
    ///
    /// # Errors
    /// [`InputError::Setting`] with all names.
    pub fn parse(name: &str, bits: u8, tokens: u32) -> Result<Self, InputError> {
        if !slots::SLOT_BITS.contains(&bits) {
            return Err(setting("--slot-bits", bits, "1 to 20"));
        }
        if tokens == 0 {
            return Err(setting("--tokens", tokens, "at least 1"));
        }
        Ok(match name {
            "slots" => Self::Slots { bits },
            "tokens" => Self::Tokens { per_weight: tokens },
            "rendezvous" => Self::Rendezvous,
            "jump" => Self::Jump,
            "ketama" => Self::Ketama,
            "modulo" => Self::Modulo,
            "redis-slots" => Self::RedisSlots,
            _ => {
                let names = Self::NAMES.join(", ");
                return Err(setting("--layout", format!("{name:?}"), names));
            }
        })
    }

    /// Whether it can place more than one copy, on other zones where there are some.
    #[must_use]
    pub fn replicates(self) -> bool {
        matches!(
            self,
            Self::Slots { .. } | Self::Tokens { .. } | Self::Rendezvous
        )
    }

    /// Whether nodes may differ in weight.
    #[must_use]
    pub fn weighs(self) -> bool {
        self != Self::Jump
    }

    /// The name alone.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slots { .. } => "slots",
            Self::Tokens { .. } => "tokens",
            Self::Rendezvous => "rendezvous",
            Self::Jump => "jump",
            Self::Ketama => "ketama",
            Self::Modulo => "modulo",
            Self::RedisSlots => "redis-slots",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Slots { bits } => format!("slots 2^{bits} (ours)"),
            Self::Tokens { per_weight: 1 } => "ring, 1 token".to_owned(),
            Self::Tokens { per_weight } => format!("ring, {per_weight} tokens"),
            Self::RedisSlots => "redis 16,384 slots".to_owned(),
            layout => layout.name().to_owned(),
        };
        f.pad(&text)
    }
}

/// Who holds which key: a layout laid out over nodes, immutable.
#[derive(Debug)]
pub enum Map {
    /// See [`Layout::Slots`].
    Slots {
        /// Hash of keys.
        hash: Hash,
        /// Its seed.
        seed: u64,
        /// The assigned lists.
        table: SlotTable,
    },
    /// See [`Layout::Tokens`].
    Ring(Ring),
    /// See [`Layout::Rendezvous`].
    Rendezvous(Rendezvous),
    /// See [`Layout::Ketama`].
    Ketama(Ketama),
    /// [`Layout::Jump`] and [`Layout::Modulo`]: nodes by number.
    Numbered {
        /// Hash of keys.
        hash: Hash,
        /// Its seed.
        seed: u64,
        /// Jump, not modulo.
        jump: bool,
        /// Nodes in order of joining; with modulo, each as often as its weight says.
        handles: Vec<Handle>,
    },
    /// See [`Layout::RedisSlots`].
    Redis(Vec<Handle>),
}

impl Map {
    /// Lays the nodes out; `previous` is where a table starts from.
    ///
    /// # Errors
    /// [`InputError::Layout`] when the layout cannot do what the nodes or the settings ask.
    pub fn build(
        settings: Settings,
        nodes: &Nodes,
        previous: Option<&Self>,
    ) -> Result<Self, InputError> {
        let Settings {
            layout,
            hash,
            seed,
            rf,
        } = settings;
        let refused = |problem: String| InputError::Layout {
            layout: layout.name().to_owned(),
            problem,
        };
        if !(1..=slots::MAX_RF).contains(&rf) {
            return Err(setting("--rf", rf, "1 to 7"));
        }
        if rf > 1 && !layout.replicates() {
            return Err(refused(format!(
                "it places one copy of a key, not {rf}; say --rf 1"
            )));
        }
        if nodes.iter().all(|node| node.weight.get() == 0) {
            return Err(refused(
                "every weight is 0, nobody can own a key".to_owned(),
            ));
        }
        Ok(match layout {
            Layout::Slots { bits } => {
                let current = match previous {
                    Some(Self::Slots { table, .. }) if (table.bits(), table.rf()) == (bits, rf) => {
                        table.clone()
                    }
                    _ => SlotTable::empty(bits, rf),
                };
                let table = assign(&current, nodes).map_err(|error| refused(error.to_string()))?;
                Self::Slots { hash, seed, table }
            }
            Layout::Tokens { per_weight } => {
                let points: u64 = nodes
                    .iter()
                    .map(|node| u64::from(node.weight.get()) * u64::from(per_weight))
                    .sum();
                // Before any is made: one by one they could fill the memory.
                if points > tokens::MAX_TOKENS as u64 {
                    return Err(refused(format!(
                        "{points} tokens, at most {} are allowed; lower --tokens or the weights",
                        tokens::MAX_TOKENS
                    )));
                }
                let per_weight = NonZeroU32::new(per_weight)
                    .ok_or_else(|| setting("--tokens", per_weight, "at least 1"))?;
                let ring = Ring::new(nodes, per_weight, hash, seed, rf);
                Self::Ring(ring.map_err(|error| refused(error.to_string()))?)
            }
            Layout::Rendezvous => {
                let Hash::Named(name) = hash else {
                    return Err(refused(format!("it does not take the hash {hash}")));
                };
                let rendezvous = ours::rendezvous(nodes, name, seed, rf);
                Self::Rendezvous(rendezvous.map_err(|error| refused(error.to_string()))?)
            }
            Layout::Ketama => {
                let ketama = ours::ketama(nodes);
                Self::Ketama(ketama.map_err(|error| refused(error.to_string()))?)
            }
            Layout::Jump => {
                let weights: std::collections::BTreeSet<_> =
                    nodes.iter().map(|node| node.weight).collect();
                if weights.len() > 1 {
                    return Err(refused(
                        "its buckets are all alike; give every node one weight".into(),
                    ));
                }
                let handles = nodes.iter().map(|node| node.handle).collect();
                Self::Numbered {
                    hash,
                    seed,
                    jump: true,
                    handles,
                }
            }
            Layout::Modulo => {
                let unit = nodes
                    .iter()
                    .fold(0, |unit, node| gcd(unit, node.weight.get()));
                let count: u64 = nodes
                    .iter()
                    .map(|node| u64::from(node.weight.get() / unit))
                    .sum();
                if count > MAX_BUCKETS {
                    return Err(refused("the weights have no small common measure".into()));
                }
                let handles = nodes
                    .iter()
                    .flat_map(|node| {
                        std::iter::repeat_n(node.handle, (node.weight.get() / unit) as usize)
                    })
                    .collect();
                Self::Numbered {
                    hash,
                    seed,
                    jump: false,
                    handles,
                }
            }
            Layout::RedisSlots => {
                let current = match previous {
                    Some(Self::Redis(table)) => Some(table),
                    _ => None,
                };
                Self::Redis(rebalance(current, nodes))
            }
        })
    }

    /// Writes the replicas of `key` into `list`, owner first; never empty.
    #[inline]
    pub fn list(&self, key: &[u8], list: &mut List) {
        list.clear();
        match self {
            Self::Slots { hash, seed, table } => {
                let slot = Slot::of(hash.hash(*seed, key), table.bits());
                list.extend_from_slice(table.list(slot));
            }
            Self::Ring(ring) => list.extend_from_slice(ring.list(key)),
            Self::Rendezvous(rendezvous) => *list = rendezvous.choose(key).list,
            Self::Ketama(ketama) => list.push(ketama.owner(key)),
            Self::Numbered {
                hash,
                seed,
                jump,
                handles,
            } => {
                let hash = hash.hash(*seed, key);
                let at = if *jump {
                    jump::bucket(hash, handles.len() as u32).unwrap_or(0) as usize
                } else {
                    (hash % handles.len() as u64) as usize
                };
                list.push(handles[at]);
            }
            Self::Redis(table) => {
                list.push(table[usize::from(crc16_hash_tag_slot(key))]);
            }
        }
    }

    /// How many bytes a client must have to look up by itself: an estimate from what the layout
    /// carries (handles of the smallest width, 8 bytes a token, 48 bytes a node), not the
    /// encoder's own count.
    #[must_use]
    pub fn snapshot_bytes(&self, nodes: &Nodes) -> u64 {
        let width = handle_bits(nodes);
        let carried = match self {
            Self::Slots { table, .. } => {
                (table.slot_count() as u64 * u64::from(table.rf()) * width).div_ceil(8)
            }
            Self::Ring(ring) => ring.token_count() as u64 * 8,
            Self::Redis(table) => (table.len() as u64 * width).div_ceil(8),
            Self::Rendezvous(_) | Self::Ketama(_) | Self::Numbered { .. } => 0,
        };
        carried + NODE_BYTES * nodes.len() as u64
    }

    /// How many bytes tell a client that has `before` what is new, estimated likewise: changed
    /// slots with their lists, the tokens of new nodes, one node's section per changed node.
    #[must_use]
    pub fn delta_bytes(&self, before: &Self, nodes: (&Nodes, &Nodes)) -> u64 {
        let changed = changed(nodes.0, nodes.1);
        let width = handle_bits(nodes.1);
        let carried = match (before, self) {
            (Self::Slots { table: old, .. }, Self::Slots { table: new, .. }) => {
                let slots = annulus_ring::placement::diff(old, new).len() as u64;
                // A changed slot is named by its distance from the one before: a byte or two.
                slots * 2 + (slots * u64::from(new.rf()) * width).div_ceil(8)
            }
            (Self::Redis(old), Self::Redis(new)) => {
                let slots = old.iter().zip(new).filter(|(old, new)| old != new).count() as u64;
                slots * 2 + (slots * width).div_ceil(8)
            }
            (Self::Ring(old), Self::Ring(new)) => {
                8 * (new.token_count() as u64).saturating_sub(old.token_count() as u64)
            }
            _ => 0,
        };
        carried + NODE_BYTES * changed
    }
}

/// A node's name, zone, weight, address and state in a snapshot, roughly.
const NODE_BYTES: u64 = 48;

fn handle_bits(nodes: &Nodes) -> u64 {
    let highest = nodes.iter().map(|node| node.handle.0).max().unwrap_or(0);
    u64::from(16 - (highest + 1).leading_zeros()).max(1)
}

fn changed(before: &Nodes, after: &Nodes) -> u64 {
    let missing = |from: &Nodes, other: &Nodes| {
        from.iter().filter(|node| !other.contains(node)).count() as u64
    };
    missing(before, after).max(missing(after, before))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The assigner of the control plane, then the hand-overs that even the owners out.
fn assign(current: &SlotTable, nodes: &Nodes) -> Result<SlotTable, place::AssignError> {
    let candidates: Vec<Candidate> = nodes
        .iter()
        .map(|node| Candidate {
            handle: node.handle,
            zone: node.zone.clone(),
            weight: node.weight,
        })
        .collect();
    let mut table = place::assign(current, &candidates)?;
    for (slot, successor) in place::even_owners(&table, &candidates) {
        let mut list = List::from_slice(table.list(slot));
        list.retain(|handle| *handle != successor);
        list.insert(0, successor);
        table.set(slot, &list);
    }
    Ok(table)
}

/// Redis Cluster's way: contiguous slots at first (`redis-cli --cluster create`); then those
/// above their share give their first slots to those below (`--cluster rebalance`).
fn rebalance(current: Option<&Vec<Handle>>, nodes: &[Node]) -> Vec<Handle> {
    let shares = quotas(nodes, REDIS_SLOTS);
    let Some(current) = current else {
        let parts = nodes.iter().zip(&shares);
        return parts
            .flat_map(|(node, share)| std::iter::repeat_n(node.handle, *share))
            .collect();
    };
    let place = |handle: Handle| nodes.iter().position(|node| node.handle == handle);
    let mut held = vec![0; nodes.len()];
    let places: Vec<Option<usize>> = current.iter().map(|handle| place(*handle)).collect();
    for at in places.iter().flatten() {
        held[*at] += 1;
    }
    let mut table = current.clone();
    let mut poor = 0;
    for (slot, at) in places.into_iter().enumerate() {
        if at.is_some_and(|at| held[at] <= shares[at]) {
            continue;
        }
        while held[poor] >= shares[poor] {
            poor += 1;
        }
        if let Some(at) = at {
            held[at] -= 1;
        }
        held[poor] += 1;
        table[slot] = nodes[poor].handle;
    }
    table
}

/// Whole slots by weight that add up: the largest remainders are rounded up.
fn quotas(nodes: &[Node], slots: usize) -> Vec<usize> {
    let total: u64 = nodes.iter().map(|node| u64::from(node.weight.get())).sum();
    let part = |node: &Node| u64::from(node.weight.get()) * slots as u64;
    let mut shares: Vec<usize> = nodes
        .iter()
        .map(|node| (part(node) / total) as usize)
        .collect();
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(part(&nodes[*at]) % total), *at));
    let missing = slots - shares.iter().sum::<usize>();
    for at in order.into_iter().take(missing) {
        shares[at] += 1;
    }
    shares
}
