//! Layouts of `annulus-ring` laid out for the one thing that is asked here: whose is this key?

use std::{collections::BTreeMap, num::NonZeroU32};

use annulus_ring::{
    Handle, Ketama, Rendezvous, Token, TokenNode, TokenTable,
    ketama::{KetamaClient, KetamaServer},
    rendezvous::RendezvousNode,
    tokens,
};

use crate::{cluster::Node, hash::Hash};

/// The classic ring with a bucket index instead of a search.
#[derive(Debug)]
pub struct Ring {
    hash: Hash,
    seed: u64,
    table: TokenTable,
    /// Bits of the bucket number.
    bits: u32,
    /// Per bucket the first token at or after its start.
    buckets: Vec<u32>,
}

impl Ring {
    pub(super) fn new(
        nodes: &[Node],
        per_weight: NonZeroU32,
        hash: Hash,
        seed: u64,
        rf: u8,
    ) -> Result<Self, tokens::TokensError> {
        let one = |node: &Node| -> Result<TokenNode, tokens::TokensError> {
            let points = match hash {
                Hash::Named(name) => {
                    tokens::tokens(name, seed, &node.name, per_weight, node.weight)?
                }
                // A hash that no layout may name, over the text that everybody uses.
                Hash::Fnv1a => {
                    let count = u64::from(per_weight.get()) * u64::from(node.weight.get());
                    let point = |i| Token(hash.hash(seed, format!("{}-{i}", node.name).as_bytes()));
                    (0..count).map(point).collect()
                }
            };
            Ok(TokenNode {
                node_id: node.name.clone(),
                handle: node.handle,
                zone: node.zone.clone(),
                weight: node.weight,
                tokens: points,
            })
        };
        let nodes: Vec<TokenNode> = nodes.iter().map(one).collect::<Result<_, _>>()?;
        let table = TokenTable::place(rf, &nodes)?;
        let points = table.ranges().tokens();
        // About one token a bucket.
        let bits = points.len().next_power_of_two().trailing_zeros().max(1);
        let mut buckets = Vec::with_capacity(1 << bits);
        let mut at = 0_u32;
        for bucket in 0..1_u64 << bits {
            let start = bucket << (64 - bits);
            while points.get(at as usize).is_some_and(|point| point.0 < start) {
                at += 1;
            }
            buckets.push(at);
        }
        Ok(Self {
            hash,
            seed,
            table,
            bits,
            buckets,
        })
    }

    /// Tokens of all nodes.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.table.points().len()
    }

    /// The list of `key`, owner first.
    #[must_use]
    #[inline]
    pub fn list(&self, key: &[u8]) -> &[Handle] {
        let hash = self.hash.hash(self.seed, key);
        let points = self.table.ranges().tokens();
        let mut at = self.buckets[(hash >> (64 - self.bits)) as usize] as usize;
        while points.get(at).is_some_and(|point| point.0 < hash) {
            at += 1;
        }
        self.table
            .ranges()
            .list(if at == points.len() { 0 } else { at })
    }

    /// Share of the circle that each node owns, by its place among `nodes`: exact, without keys.
    #[must_use]
    pub fn shares(&self, nodes: &[Node]) -> Vec<f64> {
        let place: BTreeMap<_, _> = nodes.iter().map(|node| node.handle).zip(0..).collect();
        let mut shares = vec![0.0; nodes.len()];
        let ranges = self.table.ranges();
        let points = ranges.tokens();
        for (at, point) in points.iter().enumerate() {
            let before = points[if at == 0 { points.len() - 1 } else { at - 1 }];
            let length = annulus_ring::TokenRange::new(before, *point).len();
            let owner: usize = place[&ranges.list(at)[0]];
            shares[owner] += length as f64 / 2_f64.powi(64);
        }
        shares
    }
}

pub(super) fn rendezvous(
    nodes: &[Node],
    hash: annulus_ring::HashName,
    seed: u64,
    rf: u8,
) -> Result<Rendezvous, tokens::TokensError> {
    let node = |node: &Node| RendezvousNode {
        node_id: node.name.clone(),
        handle: node.handle,
        zone: node.zone.clone(),
        weight: node.weight,
    };
    let nodes: Vec<_> = nodes.iter().map(node).collect();
    Rendezvous::new(hash, seed, rf, &nodes)
}

pub(super) fn ketama(nodes: &[Node]) -> Result<Ketama, annulus_ring::ketama::KetamaError> {
    let server = |node: &Node| KetamaServer {
        name: node.name.to_string(),
        handle: node.handle,
        weight: node.weight,
    };
    let servers: Vec<_> = nodes.iter().map(server).collect();
    Ketama::new(KetamaClient::Libmemcached, &servers)
}
