//! What any placement must move, from integer quotas alone: knows nothing of the assigner.
//!
//! A node's share is its zone's share times its part of the zone's weight; a zone's share is by
//! weight, but no more than one replica of every slot (rf is at most the number of zones here).
//! A table is balanced when every node holds its share rounded down or up. The least that must
//! be copied to get there follows from the counts before: nobody can gain less than it lacks.

/// A node as (handle, zone, weight).
pub type Spec = (u16, u8, u32);

/// An exact share of slots: `whole + part / of`, `part < of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whole slots.
    pub whole: u64,
    /// Whether a fraction of one more is due.
    pub fraction: bool,
    numerator: u128,
    denominator: u128,
}

impl Share {
    fn new(numerator: u128, denominator: u128) -> Self {
        Self {
            whole: (numerator / denominator) as u64,
            fraction: !numerator.is_multiple_of(denominator),
            numerator,
            denominator,
        }
    }

    /// The share as a number, for printing and ratios.
    pub fn value(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// Share of replicas per node, in the order of `specs`.
///
/// # Panics
/// If there are fewer zones than `rf`: then a zone gives more than one replica of a slot.
pub fn replicas(specs: &[Spec], slots: u64, rf: u64) -> Vec<Share> {
    let zones = specs
        .iter()
        .map(|spec| usize::from(spec.1) + 1)
        .max()
        .unwrap_or(0);
    let mut weight = vec![0_u128; zones];
    for spec in specs {
        weight[usize::from(spec.1)] += u128::from(spec.2);
    }
    assert!(
        weight.iter().filter(|weight| **weight > 0).count() as u64 >= rf,
        "this bound is for rf up to the number of zones"
    );
    // Zones whose share by weight is above one replica of every slot hold exactly that.
    let mut full = vec![false; zones];
    let (total, of) = loop {
        let rest = u128::from(slots)
            * (u128::from(rf) - full.iter().filter(|full| **full).count() as u128);
        let open: u128 = (0..zones)
            .filter(|zone| !full[*zone])
            .map(|zone| weight[zone])
            .sum();
        let above = |zone: &usize| !full[*zone] && weight[*zone] * rest > u128::from(slots) * open;
        let above: Vec<_> = (0..zones).filter(above).collect();
        if above.is_empty() {
            break (rest, open);
        }
        above.into_iter().for_each(|zone| full[zone] = true);
    };
    let share = |spec: &Spec| {
        let (zone, own) = (usize::from(spec.1), u128::from(spec.2));
        if full[zone] {
            Share::new(u128::from(slots) * own, weight[zone])
        } else {
            Share::new(total * own, of.max(1))
        }
    };
    specs.iter().map(share).collect()
}

/// Share of owned slots per node: by weight over all, but no more than `held` of replicas.
pub fn owners(specs: &[Spec], slots: u64, held: &[u64]) -> Vec<Share> {
    let mut full = vec![false; specs.len()];
    let (rest, open) = loop {
        let given: u128 = (0..specs.len())
            .filter(|at| full[*at])
            .map(|at| u128::from(held[at]))
            .sum();
        let rest = u128::from(slots) - given;
        let open: u128 = (0..specs.len())
            .filter(|at| !full[*at])
            .map(|at| u128::from(specs[at].2))
            .sum();
        let above = |at: &usize| {
            !full[*at] && u128::from(specs[*at].2) * rest > u128::from(held[*at]) * open
        };
        let above: Vec<_> = (0..specs.len()).filter(above).collect();
        if above.is_empty() {
            break (rest, open);
        }
        above.into_iter().for_each(|at| full[at] = true);
    };
    let share = |at: usize| {
        if full[at] {
            Share::new(held[at].into(), 1)
        } else {
            Share::new(rest * u128::from(specs[at].2), open.max(1))
        }
    };
    (0..specs.len()).map(share).collect()
}

/// The least that must be gained so that each holds its share rounded down or up and all hold
/// `total`; `held` is what each has before.
pub fn least_gain(shares: &[Share], held: &[u64], total: u64) -> u64 {
    let floor: u64 = shares.iter().map(|share| share.whole).sum();
    let lacking: u64 = shares
        .iter()
        .zip(held)
        .map(|(share, held)| share.whole.saturating_sub(*held))
        .sum();
    let free = shares
        .iter()
        .zip(held)
        .filter(|(share, held)| share.fraction && **held > share.whole)
        .count() as u64;
    lacking + (total - floor).saturating_sub(free)
}

/// One zone's owners: what evening costs it, by how many of its shares are rounded up.
#[derive(Default)]
struct ZoneOwners {
    /// Sum of distances from the shares rounded down.
    apart: u64,
    /// Shares that come one nearer when rounded up, and those that go one further.
    nearer: u64,
    further: u64,
}

impl ZoneOwners {
    fn cost(&self, up: u64) -> u64 {
        self.apart - up.min(self.nearer) + up.saturating_sub(self.nearer)
    }
}

/// The least hand-overs that can even owners out, for lists of at most one member per zone: a
/// hand-over inside a list then goes from one zone to another, so those to a zone's lacking
/// nodes and those from its nodes that own too much are all different ones. The least over all
/// ways to round shares.
pub fn least_hand_overs(specs: &[Spec], shares: &[Share], owned: &[u64], total: u64) -> u64 {
    let count = specs
        .iter()
        .map(|spec| usize::from(spec.1) + 1)
        .max()
        .unwrap_or(0);
    let mut zones: Vec<ZoneOwners> = (0..count).map(|_| ZoneOwners::default()).collect();
    for ((spec, share), owned) in specs.iter().zip(shares).zip(owned) {
        let zone = &mut zones[usize::from(spec.1)];
        zone.apart += owned.abs_diff(share.whole);
        if share.fraction && *owned > share.whole {
            zone.nearer += 1;
        } else if share.fraction {
            zone.further += 1;
        }
    }
    let up = total - shares.iter().map(|share| share.whole).sum::<u64>();
    let feasible = |limit: u64| {
        // Per zone: the fewest and the most shares rounded up at a cost within the limit.
        let (mut fewest, mut near, mut most) = (0, 0, 0);
        for zone in &zones {
            let Some(slack) = limit.checked_sub(zone.cost(zone.nearer)) else {
                return false;
            };
            fewest += zone.nearer.saturating_sub(slack);
            near += zone.nearer;
            most += zone.nearer + slack.min(zone.further);
        }
        // Every hand-over takes from one node and gives to another: both are in the costs.
        let apart: u64 = zones.iter().map(|zone| zone.apart).sum();
        let all = apart - up.min(near) + up.saturating_sub(near);
        (fewest..=most).contains(&up) && all <= 2 * limit
    };
    (least_gain(shares, owned, total)..=total)
        .find(|limit| feasible(*limit))
        .unwrap_or(total)
}
