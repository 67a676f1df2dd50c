//! How many replicas of one range each zone gets.

use super::work::Node;

/// Bounds per list and zone that make every list as even over zones as their sizes allow.
///
/// A level rises from 0 until zones, none giving more nodes than it has, fill a list. Below the
/// level every zone gives all it can; at the level some do. So no zone has two replicas of a
/// range while another with a node to give has none: the cap is ceil(rf / zones), and higher
/// only where small zones leave a list short.
///
/// ```text
///   rf 3, zones of 1, 1 and 4 nodes: level 1, each zone exactly one
///   rf 5, the same:                  level 3, the third zone three
///   rf 4, zones of 4, 4 and 4:       level 2, each zone one or two
/// ```
pub(super) struct Spread {
    /// Replicas that a list should have.
    pub rf: usize,
    /// Length of every list: min(rf, nodes), or less where zones are capped.
    pub length: usize,
    /// Per zone.
    pub zones: Vec<Bounds>,
    /// Zones with a lower bound above 0. Fewer than `length`, as all their bounds fit a list.
    musts: Vec<usize>,
}

/// How many replicas of one list may be in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub least: usize,
    pub most: usize,
}

impl Spread {
    pub fn of(nodes: &[Node], rf: usize) -> Self {
        Self::up_to(nodes, rf, usize::MAX)
    }

    /// Never two of one zone, however short that leaves lists.
    pub fn hard(nodes: &[Node], rf: usize) -> Self {
        Self::up_to(nodes, rf, 1)
    }

    /// With at most `cap` replicas of a list in one zone.
    fn up_to(nodes: &[Node], rf: usize, cap: usize) -> Self {
        let zones = nodes.iter().map(|node| node.zone + 1).max().unwrap_or(0);
        let mut sizes = vec![0_usize; zones];
        for node in nodes {
            sizes[node.zone] += 1;
        }
        sizes.iter_mut().for_each(|size| *size = cap.min(*size));
        let length = rf.min(sizes.iter().sum());
        let filled = |level: usize| sizes.iter().map(|size| (*size).min(level)).sum::<usize>();
        let level = (0..length)
            .find(|level| filled(*level) >= length)
            .unwrap_or(length);
        let bounds = |size: &usize| Bounds {
            least: (*size).min(level.saturating_sub(1)),
            most: (*size).min(level),
        };
        let zones: Vec<_> = sizes.iter().map(bounds).collect();
        let musts = (0..zones.len())
            .filter(|zone| zones[*zone].least > 0)
            .collect();
        Self {
            rf,
            length,
            zones,
            musts,
        }
    }

    /// Replicas of `row` in a zone.
    fn count(nodes: &[Node], row: &[u16], zone: usize) -> usize {
        row.iter()
            .filter(|node| nodes[usize::from(**node)].zone == zone)
            .count()
    }

    /// Replicas that zones still must have.
    fn missing(&self, nodes: &[Node], row: &[u16]) -> usize {
        let missing = |zone: &usize| {
            self.zones[*zone]
                .least
                .saturating_sub(Self::count(nodes, row, *zone))
        };
        self.musts.iter().map(missing).sum()
    }

    /// Whether a list that is not full may take one more of `zone` and still be completed.
    pub fn room(&self, nodes: &[Node], row: &[u16], zone: usize) -> bool {
        let count = Self::count(nodes, row, zone);
        let Bounds { least, most } = self.zones[zone];
        count < most && (count < least || row.len() + 1 + self.missing(nodes, row) <= self.length)
    }

    /// Whether a zone gives `row` more than it may, so that one of its members must go before
    /// the row can be completed.
    pub fn excess(&self, nodes: &[Node], row: &[u16], zone: usize) -> bool {
        let count = Self::count(nodes, row, zone);
        let Bounds { least, most } = self.zones[zone];
        count > most || (count > least && row.len() + self.missing(nodes, row) > self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;

    fn bounds(sizes: &[usize], rf: usize) -> Vec<(usize, usize)> {
        let zones = sizes
            .iter()
            .enumerate()
            .flat_map(|(zone, size)| vec![zone; *size]);
        let nodes: Vec<_> = (0..)
            .zip(zones)
            .map(|(at, zone)| Node {
                handle: Handle(at),
                zone,
                weight: 1,
            })
            .collect();
        let spread = Spread::of(&nodes, rf);
        spread
            .zones
            .iter()
            .map(|bounds| (bounds.least, bounds.most))
            .collect()
    }

    #[test]
    fn lists_are_as_even_over_zones_as_sizes_allow() {
        assert_eq!(bounds(&[1, 1, 4], 3), [(0, 1), (0, 1), (0, 1)]);
        assert_eq!(bounds(&[1, 1, 4], 5), [(1, 1), (1, 1), (2, 3)]);
        assert_eq!(bounds(&[4, 4, 4], 4), [(1, 2), (1, 2), (1, 2)]);
        assert_eq!(bounds(&[5, 1], 3), [(1, 2), (1, 1)]);
        assert_eq!(bounds(&[3], 3), [(2, 3)]);
        assert_eq!(bounds(&[1, 1], 3), [(0, 1), (0, 1)]);
        assert_eq!(bounds(&[2, 2, 2, 2], 3), [(0, 1), (0, 1), (0, 1), (0, 1)]);
    }
}
