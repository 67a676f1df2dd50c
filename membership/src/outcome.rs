//! What became of a command.

use annulus_ring::{Epoch, Incarnation, RingName};
use serde::{Deserialize, Serialize};

use crate::{ChangeId, PlanId, Rejection, WaveId};

/// The answer to one entry; the same on every server, and again for the same request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Done.
    Applied(Applied),
    /// Refused; nothing was touched.
    Rejected(Rejection),
}

/// What a caller learns of an applied command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The ring's epoch after the entry.
    pub epoch: Epoch,
    /// The change that was accepted.
    pub change: Option<ChangeId>,
    /// The wave that was begun.
    pub wave: Option<WaveId>,
    /// The plan that was stored or committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// All changes that a committed plan became, in its order; `change` is the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeId>,
    /// The life that was registered.
    pub incarnation: Option<Incarnation>,
    /// For the operator: shortfalls, "queued behind change 7".
    pub notes: Vec<String>,
}

/// One entry applied: the answer, and the ring of which a new epoch must be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The answer.
    pub outcome: Outcome,
    /// A ring whose epoch rose; at most one, and at most by one.
    pub published: Option<RingName>,
}
