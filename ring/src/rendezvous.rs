//! The `rendezvous` layout: for each key every node bids, and the best bids win.
//!
//! ```text
//!   node hash   the layout's hash, under its seed, of: 1 byte length of id, id
//!   bid         mix64(hash of the key XOR node hash)
//!   cost        (64 - log2(bid)) / weight, in fixed point (see `log`); the least wins
//! ```
//!
//! `64 - log2` of an even draw is distributed exponentially, so dividing by the weight makes the
//! least of several fall on each node in proportion to its weight; and as a bid hangs on nothing
//! but key and node, a change of one node moves keys to it or from it and no others.
//! Costs are compared by multiplying crosswise in 128 bits, without dividing; of equal ones the
//! first node id wins. Zones cap a list as in [`crate::tokens`].
//!
//! (Thaler, Ravishankar: Using name-based mappings to increase hit rates, 1998; the weighting by
//! the logarithm: Schindelhauer, Schomaker: Weighted distributed hash tables, 2005.)
//!
//! No ranges follow from it, so there is nothing to copy: for caches only.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::{
    Handle, HashName, List, NodeId, Weight, Zone,
    hash::mix64,
    log,
    slots::MAX_RF,
    tokens::{TokensError, named_bytes},
    zones::{Shortage, Zones},
};

/// A member that may hold keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RendezvousNode {
    /// Its name, from which its bids follow.
    pub node_id: NodeId,
    /// Its number.
    pub handle: Handle,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
}

/// Nodes that bid for keys. Memory: 32 bytes per node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    hash: HashName,
    seed: u64,
    zones: Zones,
    /// Eligible nodes in the order of their ids.
    nodes: Vec<Bidder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bidder {
    hash: u64,
    handle: Handle,
    weight: u32,
    zone: usize,
}

/// Who holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Owner first; never empty.
    pub list: List,
    /// What it lacks.
    pub shortage: Shortage,
}

#[derive(Clone, Copy)]
struct Bid {
    node: u16,
    cost: u64,
    weight: u32,
    zone: usize,
}

impl Rendezvous {
    /// Nodes by name; their order has no part in it.
    ///
    /// # Errors
    /// [`TokensError::NoEligibleNode`], [`TokensError::Handle`], [`TokensError::Twice`].
    ///
    /// # Panics
    /// If `rf` is outside 1 to 7: the caller checks input.
    pub fn new(
        hash: HashName,
        seed: u64,
        rf: u8,
        nodes: &[RendezvousNode],
    ) -> Result<Self, TokensError> {
        assert!((1..=MAX_RF).contains(&rf), "rf {rf}");
        let mut handles: Vec<_> = nodes.iter().map(|node| node.handle).collect();
        crate::tokens::distinct(&mut handles)?;
        let mut sorted: Vec<_> = nodes.iter().collect();
        sorted.sort_unstable_by(|a, b| a.node_id.cmp(&b.node_id));
        if let Some(pair) = sorted
            .windows(2)
            .find(|pair| pair[0].node_id == pair[1].node_id)
        {
            let node = pair[0].node_id.clone();
            return Err(TokensError::Twice { node });
        }
        sorted.retain(|node| node.weight.get() > 0);
        if sorted.is_empty() {
            return Err(TokensError::NoEligibleNode);
        }
        let (zones, numbers) = Zones::number(rf, sorted.iter().map(|node| &node.zone));
        let bidder = |(node, zone): (&&RendezvousNode, usize)| Bidder {
            hash: node_hash(hash, seed, &node.node_id),
            handle: node.handle,
            weight: node.weight.get(),
            zone,
        };
        Ok(Self {
            hash,
            seed,
            zones,
            nodes: sorted.iter().zip(numbers).map(bidder).collect(),
        })
    }

    /// Who holds `key`. O(nodes x rf), once more for each round that zones make necessary.
    #[must_use]
    pub fn choose(&self, key: &[u8]) -> Choice {
        self.choose_hash(self.hash.hash(self.seed, key))
    }

    /// The same for a key's hash.
    #[must_use]
    pub fn choose_hash(&self, key: u64) -> Choice {
        let mut chosen: SmallVec<[Bid; MAX_RF as usize]> = SmallVec::new();
        let mut cap = self.zones.first_cap();
        while chosen.len() < self.zones.length() {
            // What earlier rounds took stays in front.
            let kept = chosen.len();
            for (node, bidder) in (0..).zip(&self.nodes) {
                if chosen[..kept].iter().any(|bid| bid.node == node) {
                    continue;
                }
                let bid = Bid {
                    node,
                    cost: log::cost(mix64(key ^ bidder.hash)),
                    weight: bidder.weight,
                    zone: bidder.zone,
                };
                self.offer(&mut chosen, kept, cap, bid);
            }
            cap += 1;
        }
        let handle = |bid: &Bid| self.nodes[usize::from(bid.node)].handle;
        Choice {
            list: chosen.iter().map(handle).collect(),
            shortage: self.zones.shortage(chosen.iter().map(|bid| bid.zone)),
        }
    }

    /// Keeps `chosen[kept..]` the best bids of those offered, by cost, within rf and the cap.
    fn offer(
        &self,
        chosen: &mut SmallVec<[Bid; MAX_RF as usize]>,
        kept: usize,
        cap: usize,
        bid: Bid,
    ) {
        let of_zone = chosen.iter().filter(|other| other.zone == bid.zone).count();
        // The one that goes when the new one comes: the worst of a full zone, else of a full list.
        let worst = if of_zone >= cap {
            let same = chosen[kept..]
                .iter()
                .rposition(|other| other.zone == bid.zone);
            match same {
                Some(at) => Some(kept + at),
                None => return,
            }
        } else if chosen.len() == self.zones.rf {
            Some(chosen.len() - 1)
        } else {
            None
        };
        if let Some(at) = worst {
            if order(&bid, &chosen[at]) != Ordering::Less {
                return;
            }
            chosen.remove(at);
        }
        let place =
            kept + chosen[kept..].partition_point(|other| order(other, &bid) == Ordering::Less);
        chosen.insert(place, bid);
    }
}

/// What a node's bids are mixed from.
#[must_use]
pub fn node_hash(hash: HashName, seed: u64, node: &NodeId) -> u64 {
    hash.hash(seed, &named_bytes(node))
}

/// The better bid is less.
fn order(one: &Bid, other: &Bid) -> Ordering {
    // cost < 2^64 and weight < 2^32: the products fit.
    let left = u128::from(one.cost) * u128::from(other.weight);
    let right = u128::from(other.cost) * u128::from(one.weight);
    left.cmp(&right).then(one.node.cmp(&other.node))
}
