//! Geometry of the ring: names, the circle, placement, and the lookup of a key.
//!
//! Used by both sides: the control plane decides with it, clients and data nodes route with
//! it. It knows no I/O, no clock, no chance, no floats and no map order, so that equal
//! snapshots give equal answers on every machine (PLACE-PURE).
//!
//! A worked ring of three nodes, two slots (k = 1), two replicas:
//!
//! ```text
//!            hash 0                 2^63                2^64 - 1
//!              |-------- slot 0 ------|-------- slot 1 -----|
//!   lists            [a, b]                  [c, a]
//!   owner            a                       c
//! ```
//!
//! Read on in [`token`] (the circle), [`slots`] (who holds each piece), [`place`] (how that is
//! chosen), [`snapshot`] (what is published) and [`lookup`] (the hot path).
//!
//! The other layouts: [`tokens`] (ranges that follow from names), and for caches [`rendezvous`],
//! [`jump`] and [`ketama`]; [`bounded`] chooses among the members of any list. Whatever has ranges
//! becomes a [`RangeTable`], and [`mod@diff`] says what lies between two of them.

pub mod bounded;
pub mod diff;
pub mod epoch;
pub mod hash;
pub mod jump;
pub mod ketama;
pub mod kind;
pub mod log;
pub mod lookup;
pub mod name;
pub mod node;
pub mod place;
pub mod placement;
pub mod range_set;
pub mod ranges;
pub mod rendezvous;
mod rounding;
pub mod sets;
pub mod slots;
pub mod snapshot;
pub mod token;
pub mod tokens;
mod zones;

pub use bounded::Bound;
pub use diff::RangeChange;
pub use epoch::{Epoch, Generation, Incarnation, Position, SessionId, TransitionId};
pub use hash::HashName;
pub use jump::Jump;
pub use ketama::Ketama;
pub use kind::{RingKind, UnknownKind};
pub use lookup::{Lookup, LookupError, Route, TokenIndex};
pub use name::{Endpoint, NameError, NodeId, RingName, Zone};
pub use node::{Availability, Handle, Member, MemberState, Weight};
pub use place::{ASSIGNER_VERSION, AssignError, Candidate};
pub use placement::{Move, SlotChange};
pub use range_set::RangeSet;
pub use ranges::{RangeTable, RangeTableError};
pub use rendezvous::Rendezvous;
pub use sets::{Group, Groups, Quorums, RangeSets, Step};
pub use slots::{List, Replication, ReplicationError, Slot, SlotTable};
pub use snapshot::{Checksum, ClusterId, Layout, Snapshot, SnapshotError, Transition};
pub use token::{Token, TokenRange};
pub use tokens::{TokenNode, TokenTable, TokensError};
pub use zones::Shortage;
