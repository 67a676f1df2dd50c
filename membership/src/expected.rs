//! A ring as it will be after some changes.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{NodeId, Replication, Weight, Zone};

use crate::Pins;

/// A ring as it will be after some changes: what preflight looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Members that may hold ranges, by id.
    pub members: BTreeMap<NodeId, (Zone, Weight)>,
    /// As configured.
    pub replication: Replication,
    /// Who must be in which list.
    pub pins: Pins,
}

impl Expected {
    /// Members of a zone, by id.
    pub(crate) fn standing_in<'a>(&'a self, zone: &'a Zone) -> impl Iterator<Item = &'a NodeId> {
        let inside = self.members.iter().filter(move |(_, one)| one.0 == *zone);
        inside.map(|(node, _)| node)
    }

    /// Zones in which somebody has weight.
    pub(crate) fn zones(&self) -> BTreeSet<&Zone> {
        let weighty = self.members.values().filter(|one| one.1.get() > 0);
        weighty.map(|one| &one.0).collect()
    }

    /// Members with weight.
    pub(crate) fn weighty(&self) -> usize {
        self.members.values().filter(|one| one.1.get() > 0).count()
    }

    /// Over how many zones the best list of `rf` replicas spreads.
    pub(crate) fn spread(&self, rf: u8) -> usize {
        usize::from(rf).min(self.zones().len())
    }

    /// Whether a copy of every range has to be at `node`.
    pub(crate) fn carries_all(&self, node: &NodeId, rf: u8) -> bool {
        let Some((zone, weight)) = self.members.get(node) else {
            return false;
        };
        let mut neighbours = self.standing_in(zone).filter(|other| *other != node);
        let alone = neighbours.all(|other| self.members[other].1.get() == 0);
        let rf = usize::from(rf);
        weight.get() > 0 && (self.weighty() <= rf || (alone && self.zones().len() <= rf))
    }
}
