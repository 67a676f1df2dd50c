//! The assigner of the `slots` layout: members, zones and weights to lists.

use crate::{Handle, Slot, SlotTable, Weight, Zone};

/// Version of this algorithm, carried with every target so that people know what made it.
pub const ASSIGNER_VERSION: u32 = 1;

/// A member that may hold ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub handle: Handle,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
}

/// Why no table can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// Nobody has weight.
    #[error("no eligible node: every weight is 0")]
    NoEligibleNode,
}

/// How far a table is from what its members allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Slots with fewer than rf replicas.
    pub short: u32,
    /// Slots that spread over fewer zones than min(rf, zones with weight).
    pub unspread: u32,
}

/// Gives every slot a list from `candidates`, staying as near to `current` as balance allows.
///
/// # Errors
/// [`AssignError::NoEligibleNode`] when every weight is 0.
pub fn assign(current: &SlotTable, candidates: &[Candidate]) -> Result<SlotTable, AssignError> {
    let _ = (current, candidates);
    Err(AssignError::NoEligibleNode)
}

/// Hand-overs that would even the owners out inside unchanged lists: (slot, successor), in order.
#[must_use]
pub fn even_owners(table: &SlotTable, candidates: &[Candidate]) -> Vec<(Slot, Handle)> {
    let _ = (table, candidates);
    Vec::new()
}

/// Compares a table with the best its candidates allow.
#[must_use]
pub fn shortfall(table: &SlotTable, candidates: &[Candidate]) -> Shortfall {
    let _ = (table, candidates);
    Shortfall::default()
}
