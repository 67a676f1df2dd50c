//! Bounded load: a choice among the members of any list, so that nobody gets far more than the
//! mean.
//!
//! No node takes more than `ceil(c x total / nodes)`; a request goes to the first of its list
//! that is below. (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2018,
//! where the list is the whole ring.) Loads are the caller's: requests in flight, say.

use crate::Handle;

/// c, as a fraction of at least 1: 5/4 lets a node have a quarter more than the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    numerator: u32,
    denominator: u32,
}

impl Bound {
    /// The fraction, or nothing where it is below 1 (not everything would find a place) or no
    /// fraction.
    #[must_use]
    pub fn new(numerator: u32, denominator: u32) -> Option<Self> {
        (denominator > 0 && numerator >= denominator).then_some(Self {
            numerator,
            denominator,
        })
    }

    /// Most that a node may have: `ceil(c x total / nodes)`, `total` being the loads of all
    /// `nodes` and the request to be placed. 0 among no nodes; `u64::MAX` where it does not fit.
    #[must_use]
    pub fn capacity(self, total: u64, nodes: u64) -> u64 {
        self.share(total, 1, nodes)
    }

    /// The same by weight: `ceil(c x total x weight / weights)`.
    #[must_use]
    pub fn share(self, total: u64, weight: u32, weights: u64) -> u64 {
        // 2^64 x 2^32 x 2^32 is the one product that does not fit; it saturates.
        let parts =
            (u128::from(total) * u128::from(self.numerator)).saturating_mul(u128::from(weight));
        let whole = u128::from(self.denominator) * u128::from(weights);
        match whole {
            0 => 0,
            whole => u64::try_from(parts.div_ceil(whole)).unwrap_or(u64::MAX),
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// To whom.
    pub handle: Handle,
    /// Nobody of the list was below its capacity, and this is the least loaded against it.
    pub over: bool,
}

/// The first of `list` whose load is below its capacity; where there is none, the one whose load
/// is the smallest part of its capacity, the first of equals. `None` for an empty list.
///
/// `load` and `capacity` are asked once per member, in order, until one has room.
#[must_use]
pub fn choose(
    list: &[Handle],
    load: impl Fn(Handle) -> u64,
    capacity: impl Fn(Handle) -> u64,
) -> Option<Placed> {
    let mut least: Option<(Handle, u64, u64)> = None;
    for handle in list.iter().copied() {
        let (load, capacity) = (load(handle), capacity(handle));
        if load < capacity {
            let over = false;
            return Some(Placed { handle, over });
        }
        let less = least.is_none_or(|(_, other, of)| {
            // load / capacity, crosswise; nothing is fuller than a capacity of 0.
            let crosswise =
                u128::from(load) * u128::from(of) < u128::from(other) * u128::from(capacity);
            capacity > 0 && (of == 0 || crosswise)
        });
        if less {
            least = Some((handle, load, capacity));
        }
    }
    least.map(|(handle, ..)| Placed { handle, over: true })
}
