//! The `tokens` layout: the classic ring of virtual nodes, for those who need a map that follows
//! from names alone.
//!
//! Token i of a node is the layout's hash, under the layout's seed, of these bytes:
//!
//! ```text
//!    1 byte        1 to 63 bytes    4 bytes
//!    length of id  node id          i, little-endian, from 0
//! ```
//!
//! so that no two (id, i) give the same bytes. A node has `tokens_per_weight` x weight of them:
//! a smaller weight takes the last ones away and a larger one adds some, and the rest stay.
//!
//! A hash belongs to the first token at or after it. Its list is found by walking clockwise from
//! there: take a node at most once and at most `ceil(rf / zones)` nodes of one zone; when the
//! walk has come round and the list is short, raise that cap by one and walk on.
//!
//! ```text
//!   rf 2, a and b in z1, c in z2:      tokens  a@100  b@200  c@300  a@400
//!     (400,100] a c    (100,200] b c    (200,300] c a    (300,400] a c
//! ```
//!
//! (Karger, Lehman, Leighton, Panigrahy, Levine, Lewin: Consistent Hashing and Random Trees,
//! 1997; virtual nodes and preference lists: DeCandia et al., Dynamo, 2007, section 4.)

use std::num::NonZeroU32;

use smallvec::SmallVec;

use crate::{
    Handle, HashName, List, NodeId, RangeTable, Token, Weight, Zone,
    place::Shortfall,
    ranges::bad_handle,
    zones::{Shortage, Zones},
};

mod walk;

/// Most tokens of one ring; a table of them takes about 100 MB at rf 3 while it is made.
pub const MAX_TOKENS: usize = 1 << 22;

/// A member with its tokens, as a snapshot carries them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenNode {
    /// Its name; decides between equal tokens.
    pub node_id: NodeId,
    /// Its number.
    pub handle: Handle,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share. A node of weight 0 owns nothing, and its tokens count for nothing.
    pub weight: Weight,
    /// Its tokens, by i; need not be sorted or distinct.
    pub tokens: Vec<Token>,
}

/// A token and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Where.
    pub token: Token,
    /// Whose.
    pub handle: Handle,
}

/// Who holds each range of the circle, by the tokens of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTable {
    /// Sorted by (token, node id, i).
    points: Vec<Point>,
    /// Distinct tokens with their lists, hand-overs applied.
    ranges: RangeTable,
    /// Lists that a hand-over reordered, sorted by token, each once.
    overrides: Vec<Override>,
    shortfall: Shortfall,
    zones: Zones,
    /// Zone number by handle, for eligible nodes.
    zone_of: Vec<Option<u16>>,
}

/// A list that a hand-over put in another order than the walk's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Closes the range.
    pub token: Token,
    /// The list in force.
    pub list: List,
    /// What the walk gives: the same members.
    walked: List,
}

/// Why there is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokensError {
    /// Nobody has weight.
    #[error("no eligible node: every weight is 0; join a node with weight")]
    NoEligibleNode,
    /// Two nodes have one handle, or one has the handle that pads lists.
    #[error("handle {handle} is given to two nodes, or reserved")]
    Handle {
        /// The offending handle.
        handle: u16,
    },
    /// Two nodes have one name.
    #[error("node {node} is listed twice")]
    Twice {
        /// The offending name.
        node: NodeId,
    },
    /// A node with weight has no token.
    #[error("node {node} has weight {weight} and no tokens")]
    NoTokens {
        /// The node.
        node: NodeId,
        /// Its weight.
        weight: Weight,
    },
    /// More tokens than a ring may have.
    #[error("{found} tokens, at most {MAX_TOKENS} are allowed; lower tokens_per_weight or weights")]
    TooMany {
        /// Tokens found, or asked for.
        found: u64,
    },
}

/// Why a list was not reordered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// No range ends there.
    #[error("no range ends at token {:016x}", .token.0)]
    NoSuchToken {
        /// As given.
        token: Token,
    },
    /// A hand-over changes the order of a list and nothing else.
    #[error("the list of token {:016x} has other members than the one given", .token.0)]
    OtherMembers {
        /// The range's token.
        token: Token,
    },
}

/// The bytes that token `index` of a node is hashed from, 6 to 68 of them.
#[must_use]
pub fn token_bytes(node: &NodeId, index: u32) -> SmallVec<[u8; 68]> {
    let mut bytes = named_bytes(node);
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes
}

/// The length of a node's id and the id.
pub(crate) fn named_bytes(node: &NodeId) -> SmallVec<[u8; 68]> {
    let name = node.as_str().as_bytes();
    let length = u8::try_from(name.len()).expect("a node id has at most 63 bytes");
    let mut bytes = SmallVec::new();
    bytes.push(length);
    bytes.extend_from_slice(name);
    bytes
}

/// Token `index` of a node. One hash of at most 68 bytes.
#[must_use]
pub fn token(hash: HashName, seed: u64, node: &NodeId, index: u32) -> Token {
    Token(hash.hash(seed, &token_bytes(node, index)))
}

/// All tokens of a node of this weight, by i; none for weight 0.
///
/// # Errors
/// [`TokensError::TooMany`] when one node alone would have more than [`MAX_TOKENS`].
pub fn tokens(
    hash: HashName,
    seed: u64,
    node: &NodeId,
    tokens_per_weight: NonZeroU32,
    weight: Weight,
) -> Result<Vec<Token>, TokensError> {
    let found = u64::from(tokens_per_weight.get()) * u64::from(weight.get());
    if found > MAX_TOKENS as u64 {
        return Err(TokensError::TooMany { found });
    }
    let count = found as u32; // at most MAX_TOKENS
    Ok((0..count)
        .map(|index| token(hash, seed, node, index))
        .collect())
}

impl TokenTable {
    /// Every range's list. The order of `nodes` has no part in it.
    ///
    /// Cost: O(tokens x log tokens + tokens x rf x min(rf, zones)).
    ///
    /// # Errors
    /// The first [`TokensError`] found.
    ///
    /// # Panics
    /// If `rf` is outside 1 to 7: the caller checks input.
    pub fn place(rf: u8, nodes: &[TokenNode]) -> Result<Self, TokensError> {
        let nodes = sorted(nodes)?;
        let (zones, numbers) = Zones::number(rf, nodes.iter().map(|node| &node.zone));
        let mut points: Vec<(Token, u16)> = Vec::new();
        for (at, node) in (0..).zip(&nodes) {
            points.extend(node.tokens.iter().map(|token| (*token, at)));
        }
        // Nodes are in the order of their ids, and tokens that differ in i alone are one.
        points.sort_unstable();

        let mut ranges = RangeTable::empty(rf);
        let mut shortfall = Shortfall::default();
        let zone = |node: u16| numbers[usize::from(node)];
        let handle = |node: u16| nodes[usize::from(node)].handle;
        for (token, row) in walk::lists(&points, &numbers, &zones) {
            let short = zones.shortage(row.iter().copied().map(zone));
            shortfall.short += u32::from(short.replicas > 0);
            shortfall.unspread += u32::from(short.zones > 0);
            let list: List = row.iter().copied().map(handle).collect();
            ranges.push(token, &list);
        }
        let highest = nodes.iter().map(|node| node.handle.index()).max();
        let mut zone_of = vec![None; highest.map_or(0, |highest| highest + 1)];
        for (node, number) in nodes.iter().zip(&numbers) {
            zone_of[node.handle.index()] = u16::try_from(*number).ok();
        }
        let point = |(token, node)| Point {
            token,
            handle: handle(node),
        };
        Ok(Self {
            points: points.into_iter().map(point).collect(),
            ranges,
            overrides: Vec::new(),
            shortfall,
            zones,
            zone_of,
        })
    }

    /// All tokens of eligible nodes, sorted by (token, node id, i); equal ones are all there.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Distinct tokens and their lists, owner first, with hand-overs applied.
    #[must_use]
    pub fn ranges(&self) -> &RangeTable {
        &self.ranges
    }

    /// Lists that differ from the walk's in order, sorted by token.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// How many ranges are short of replicas, or spread worse than zones would allow.
    #[must_use]
    pub fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    /// The list of a hash, owner first, never empty, and what it lacks. A binary search.
    #[must_use]
    pub fn lookup(&self, hash: u64) -> (&[Handle], Shortage) {
        let list = self.ranges.lookup(hash);
        let zones = list
            .iter()
            .filter_map(|handle| self.zone_of.get(handle.index()).copied().flatten());
        (list, self.zones.shortage(zones.map(usize::from)))
    }

    /// Puts the list of the range that `token` closes in another order, as a hand-over does. The
    /// walk's own order takes the override away again.
    ///
    /// # Errors
    /// [`OverrideError`] when there is no such range or the members differ; nothing changes then.
    pub fn reorder(&mut self, token: Token, list: &[Handle]) -> Result<(), OverrideError> {
        let Ok(at) = self.ranges.tokens().binary_search(&token) else {
            return Err(OverrideError::NoSuchToken { token });
        };
        let now = self.ranges.list(at);
        if !same_members(now, list) {
            return Err(OverrideError::OtherMembers { token });
        }
        match self
            .overrides
            .binary_search_by_key(&token, |entry| entry.token)
        {
            Ok(place) if self.overrides[place].walked.as_slice() == list => {
                self.overrides.remove(place);
            }
            Ok(place) => self.overrides[place].list = List::from_slice(list),
            Err(_) if now == list => {}
            Err(place) => {
                let (list, walked) = (List::from_slice(list), List::from_slice(now));
                let entry = Override {
                    token,
                    list,
                    walked,
                };
                self.overrides.insert(place, entry);
            }
        }
        self.ranges.set(at, list);
        Ok(())
    }

    /// Takes over the overrides of the table before, where the range still ends at the same token
    /// and its list has the same members. Returns how many were left behind.
    pub fn keep_overrides(&mut self, before: &Self) -> usize {
        let mut left = 0;
        for Override { token, list, .. } in &before.overrides {
            left += usize::from(self.reorder(*token, list).is_err());
        }
        left
    }
}

/// Nodes with weight, by id; every name and handle once.
fn sorted(nodes: &[TokenNode]) -> Result<Vec<&TokenNode>, TokensError> {
    let mut handles: Vec<_> = nodes.iter().map(|node| node.handle).collect();
    distinct(&mut handles)?;
    let mut sorted: Vec<_> = nodes.iter().collect();
    sorted.sort_unstable_by(|a, b| a.node_id.cmp(&b.node_id));
    let twice = sorted
        .windows(2)
        .find(|pair| pair[0].node_id == pair[1].node_id);
    if let Some(pair) = twice {
        let node = pair[0].node_id.clone();
        return Err(TokensError::Twice { node });
    }
    sorted.retain(|node| node.weight.get() > 0);
    if let Some(bare) = sorted.iter().find(|node| node.tokens.is_empty()) {
        let (node, weight) = (bare.node_id.clone(), bare.weight);
        return Err(TokensError::NoTokens { node, weight });
    }
    let found = sorted.iter().map(|node| node.tokens.len() as u64).sum();
    if found > MAX_TOKENS as u64 {
        return Err(TokensError::TooMany { found });
    }
    if sorted.is_empty() {
        return Err(TokensError::NoEligibleNode);
    }
    Ok(sorted)
}

/// Every handle once, none the padding.
pub(crate) fn distinct(handles: &mut [Handle]) -> Result<(), TokensError> {
    handles.sort_unstable();
    let twice = handles.windows(2).find(|pair| pair[0] == pair[1]);
    let last = handles.last().filter(|last| **last == Handle::NONE);
    match twice.map(|pair| pair[0]).or(last.copied()) {
        Some(handle) => Err(TokensError::Handle { handle: handle.0 }),
        None => Ok(()),
    }
}

fn same_members(one: &[Handle], other: &[Handle]) -> bool {
    one.len() == other.len()
        && bad_handle(other).is_none()
        && other.iter().all(|handle| one.contains(handle))
}
