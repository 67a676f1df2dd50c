//! What a range weighs: estimated, since nodes report what they hold all together. A range counts
//! as its holder's bytes divided by its ranges; of a holder that said nothing, as the mean of all.

use std::collections::BTreeMap;

use annulus_ring::{Handle, Incarnation, NodeId};

use super::Base;
use crate::{Held, NodeReport, Reports};

/// What plans need of nodes' reports, by node: small enough to be taken along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<NodeId, Fact>);

/// What one node said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fact {
    incarnation: Incarnation,
    pub linked: bool,
    pub held: Option<Held>,
    /// 0: unknown.
    pub free_bytes: u64,
    /// 0: no limit.
    pub copy_bytes_per_second: u64,
}

impl Facts {
    /// As nodes report now.
    #[must_use]
    pub fn of(reports: &Reports) -> Self {
        let fact = |report: &NodeReport| Fact {
            incarnation: report.incarnation,
            linked: report.linked,
            held: report.held,
            free_bytes: report.free_bytes,
            copy_bytes_per_second: report.copy_bytes_per_second,
        };
        let facts = reports
            .nodes()
            .map(|(node, report)| (node.clone(), fact(report)));
        Self(facts.collect())
    }

    /// What a node said in that very life.
    pub(super) fn get(&self, node: &NodeId, incarnation: Incarnation) -> Option<&Fact> {
        let fact = self.0.get(node)?;
        (fact.incarnation == incarnation).then_some(fact)
    }
}

/// Bytes and keys of ranges, by holder.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    by_node: BTreeMap<NodeId, (Held, u32)>,
    all: Option<(Held, u64)>,
}

impl Estimate {
    /// From what members report and the ranges that they hold.
    pub fn new(base: &Base<'_>, ranges: &BTreeMap<Handle, u32>, facts: Option<&Facts>) -> Self {
        let mut estimate = Self::default();
        for member in base.members.values() {
            let fact = facts.and_then(|facts| facts.get(&member.node_id, member.incarnation));
            let held = fact.and_then(|fact| fact.held);
            let count = ranges.get(&member.handle).copied().unwrap_or(0);
            if let (Some(held), 1..) = (held, count) {
                let node = member.node_id.clone();
                estimate.by_node.insert(node, (held, count));
                let (sum, ranges) = estimate.all.get_or_insert_default();
                *sum = plus(*sum, held);
                *ranges += u64::from(count);
            }
        }
        estimate
    }

    /// What a node says it holds; none where it says nothing.
    pub fn held(&self, node: &NodeId) -> Option<Held> {
        self.by_node.get(node).map(|(held, _)| *held)
    }

    /// So many ranges as `node` holds them; none while nobody says anything.
    pub fn ranges(&self, node: &NodeId, count: u32) -> Option<Held> {
        let (held, of) = match self.by_node.get(node) {
            Some((held, of)) => (*held, u64::from(*of)),
            None => self.all?,
        };
        Some(Held {
            bytes: part(held.bytes, count, of),
            keys: part(held.keys, count, of),
        })
    }
}

/// `count` of `of` equal parts of `whole`; `of` is not 0.
fn part(whole: u64, count: u32, of: u64) -> u64 {
    let part = u128::from(whole) * u128::from(count) / u128::from(of.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Both together.
pub(super) fn plus(one: Held, other: Held) -> Held {
    Held {
        bytes: one.bytes.saturating_add(other.bytes),
        keys: one.keys.saturating_add(other.keys),
    }
}

/// The first without the second.
pub(super) fn minus(one: Held, other: Held) -> Held {
    Held {
        bytes: one.bytes.saturating_sub(other.bytes),
        keys: one.keys.saturating_sub(other.keys),
    }
}

/// All together; none if one is unknown.
pub(super) fn sum(parts: impl Iterator<Item = Option<Held>>) -> Option<Held> {
    parts
        .into_iter()
        .try_fold(Held::default(), |sum, part| Some(plus(sum, part?)))
}
