//! The rule by which `tokens` and `rendezvous` spread a list over zones.

use crate::{Zone, slots::MAX_RF};

/// Zones by number and how many replicas of one list each may give.
///
/// The rule (design, "tokens"): take nodes in the order of preference, each at most once and at
/// most `ceil(rf / zones)` of one zone; when all were asked and the list is short, raise the cap
/// by one and ask again from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zones {
    pub rf: usize,
    /// Eligible nodes per zone, none 0; zones are numbered in the order of their names.
    pub sizes: Vec<usize>,
}

/// How far one list is from the best that the members allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Replicas missing up to rf.
    pub replicas: u8,
    /// Zones missing up to the smaller of rf and the number of zones with an eligible node. Not 0
    /// where zones are too many for a share each under the cap (rf 4 over three zones gives two
    /// of them two replicas each, if their nodes come first).
    pub zones: u8,
}

impl Shortage {
    /// Whether the list is as good as can be.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl Zones {
    /// Numbers the zones of eligible nodes and gives each node its zone's number, in order.
    pub fn number<'a>(rf: u8, zones: impl Iterator<Item = &'a Zone>) -> (Self, Vec<usize>) {
        let zones: Vec<_> = zones.collect();
        let mut names = zones.clone();
        names.sort_unstable();
        names.dedup();
        let mut sizes = vec![0; names.len()];
        let number = |zone: &&Zone| {
            let number = names.partition_point(|name| name < zone);
            sizes[number] += 1;
            number
        };
        let numbers = zones.iter().map(number).collect();
        let rf = usize::from(rf);
        (Self { rf, sizes }, numbers)
    }

    /// Most replicas of one zone in the first round.
    pub fn first_cap(&self) -> usize {
        self.rf.div_ceil(self.sizes.len().max(1))
    }

    /// Length of every list: min(rf, nodes).
    pub fn length(&self) -> usize {
        self.sizes.iter().sum::<usize>().min(self.rf)
    }

    /// What a list lacks, given the zones of its members.
    pub fn shortage(&self, zones: impl Iterator<Item = usize>) -> Shortage {
        let mut found: smallvec::SmallVec<[usize; MAX_RF as usize]> = zones.collect();
        let replicas = self.rf.saturating_sub(found.len());
        found.sort_unstable();
        found.dedup();
        let best = self.rf.min(self.sizes.len());
        // Both are at most rf, which is at most MAX_RF.
        Shortage {
            replicas: replicas as u8,
            zones: best.saturating_sub(found.len()) as u8,
        }
    }
}
