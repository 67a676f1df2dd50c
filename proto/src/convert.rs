//! Between messages and domain types: `TryFrom` or a checked function inwards, `From` outwards.
//!
//! Enum zero is refused. Everything that may be absent says so by its type.

use annulus_ring::{
    Availability, Checksum, ClusterId, Endpoint, Epoch, Generation, Incarnation, Member,
    MemberState, NameError, NodeId, Position, RingName, SessionId, Slot, Weight, Zone,
};
use bytes::Bytes;

use crate::v1;

/// Longest free text that a watcher gives of itself, in bytes.
pub const MAX_WATCHER_BYTES: usize = 128;

/// Why a message is not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A field that must be there is not.
    #[error("field {field} is missing")]
    Missing {
        /// Which field.
        field: &'static str,
    },
    /// Bytes of a fixed length have another.
    #[error("field {field} has {found} bytes, expected {expected}")]
    Length {
        /// Which field.
        field: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// A name breaks its rules.
    #[error("field {field}: {source}")]
    Name {
        /// Which field.
        field: &'static str,
        /// Which rule.
        source: NameError,
    },
    /// A number that means nothing here: an unspecified or unknown enum value, or too large.
    #[error("field {field} is {found}, expected {expected}")]
    Value {
        /// Which field.
        field: &'static str,
        /// As found.
        found: u64,
        /// What would do.
        expected: &'static str,
    },
    /// Numbers that must rise do not.
    #[error("field {field} has {found} out of order or twice")]
    Order {
        /// Which field.
        field: &'static str,
        /// The first that does not rise.
        found: u32,
    },
}

fn name<T>(field: &'static str, value: Result<T, NameError>) -> Result<T, ConvertError> {
    value.map_err(|source| ConvertError::Name { field, source })
}

/// A ring's name.
///
/// # Errors
/// [`ConvertError::Name`].
pub fn ring_name(field: &'static str, value: &str) -> Result<RingName, ConvertError> {
    name(field, RingName::new(value))
}

/// A node's id.
///
/// # Errors
/// [`ConvertError::Name`].
pub fn node_id(field: &'static str, value: &str) -> Result<NodeId, ConvertError> {
    name(field, NodeId::new(value))
}

/// A zone.
///
/// # Errors
/// [`ConvertError::Name`].
pub fn zone(field: &'static str, value: &str) -> Result<Zone, ConvertError> {
    name(field, Zone::new(value))
}

/// An endpoint.
///
/// # Errors
/// [`ConvertError::Name`].
pub fn endpoint(field: &'static str, value: &str) -> Result<Endpoint, ConvertError> {
    name(field, Endpoint::new(value))
}

/// A weight.
///
/// # Errors
/// [`ConvertError::Value`] above [`annulus_ring::node::MAX_WEIGHT`].
pub fn weight(field: &'static str, value: u32) -> Result<Weight, ConvertError> {
    let expected = "0 to 1000000";
    Weight::new(value).ok_or(ConvertError::Value {
        field,
        found: value.into(),
        expected,
    })
}

/// A message that must be there.
///
/// # Errors
/// [`ConvertError::Missing`].
pub fn required<T>(field: &'static str, value: Option<T>) -> Result<T, ConvertError> {
    value.ok_or(ConvertError::Missing { field })
}

fn array<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], ConvertError> {
    let wrong = ConvertError::Length {
        field,
        found: bytes.len(),
        expected: N,
    };
    bytes.try_into().map_err(|_| wrong)
}

/// A number of 128 bits (cluster id, birth, boot, request id) from its 16 bytes, big-endian.
///
/// # Errors
/// [`ConvertError::Length`].
pub fn id128(field: &'static str, bytes: &[u8]) -> Result<u128, ConvertError> {
    array(field, bytes).map(u128::from_be_bytes)
}

/// The 16 bytes of a number of 128 bits, big-endian.
#[must_use]
pub fn id128_bytes(id: u128) -> Bytes {
    Bytes::copy_from_slice(&id.to_be_bytes())
}

/// A cluster id from its 16 bytes.
///
/// # Errors
/// [`ConvertError::Length`].
pub fn cluster_id(field: &'static str, bytes: &[u8]) -> Result<ClusterId, ConvertError> {
    id128(field, bytes).map(ClusterId)
}

/// A checksum from its 32 bytes.
///
/// # Errors
/// [`ConvertError::Length`].
pub fn checksum(field: &'static str, bytes: &[u8]) -> Result<Checksum, ConvertError> {
    digest(field, bytes).map(Checksum)
}

/// A digest from its 32 bytes.
///
/// # Errors
/// [`ConvertError::Length`].
pub fn digest(field: &'static str, bytes: &[u8]) -> Result<[u8; 32], ConvertError> {
    array(field, bytes)
}

/// The bytes of a checksum.
#[must_use]
pub fn checksum_bytes(checksum: Checksum) -> Bytes {
    Bytes::copy_from_slice(&checksum.0)
}

/// Slots that must be sorted, each once. Whether they are of a table is the table's business.
///
/// # Errors
/// [`ConvertError::Order`] at the first that does not rise.
pub fn sorted_slots(field: &'static str, slots: &[u32]) -> Result<Vec<Slot>, ConvertError> {
    if let Some(pair) = slots.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(ConvertError::Order {
            field,
            found: pair[1],
        });
    }
    Ok(slots.iter().copied().map(Slot).collect())
}

/// Copies of one session.
///
/// # Errors
/// [`ConvertError::Order`].
pub fn slot_set(set: &v1::SlotSet) -> Result<(SessionId, Vec<Slot>), ConvertError> {
    Ok((SessionId(set.session), sorted_slots("slots", &set.slots)?))
}

/// Copies of one session, as a message.
#[must_use]
pub fn slot_set_message(session: SessionId, slots: &[Slot]) -> v1::SlotSet {
    v1::SlotSet {
        session: session.0,
        slots: slots.iter().map(|slot| slot.0).collect(),
    }
}

impl From<Position> for v1::Position {
    fn from(position: Position) -> Self {
        Self {
            reign: position.reign.0,
            seq: position.seq,
        }
    }
}

impl From<v1::Position> for Position {
    fn from(position: v1::Position) -> Self {
        Self::new(Epoch(position.reign), position.seq)
    }
}

impl From<(Slot, Position)> for v1::SlotPosition {
    fn from((slot, position): (Slot, Position)) -> Self {
        Self {
            slot: slot.0,
            position: Some(position.into()),
        }
    }
}

impl TryFrom<v1::SlotPosition> for (Slot, Position) {
    type Error = ConvertError;
    fn try_from(message: v1::SlotPosition) -> Result<Self, ConvertError> {
        Ok((
            Slot(message.slot),
            required("position", message.position)?.into(),
        ))
    }
}

/// A reader's place in a ring's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRef {
    /// Rises when a backup is restored.
    pub generation: Generation,
    /// Which snapshot.
    pub epoch: Epoch,
    /// Its checksum.
    pub checksum: Checksum,
}

impl From<EpochRef> for v1::EpochRef {
    fn from(place: EpochRef) -> Self {
        Self {
            generation: place.generation.0,
            epoch: place.epoch.0,
            checksum: checksum_bytes(place.checksum),
        }
    }
}

impl TryFrom<v1::EpochRef> for EpochRef {
    type Error = ConvertError;
    fn try_from(message: v1::EpochRef) -> Result<Self, ConvertError> {
        Ok(Self {
            generation: Generation(message.generation),
            epoch: Epoch(message.epoch),
            checksum: checksum("checksum", &message.checksum)?,
        })
    }
}

impl From<MemberState> for v1::MemberState {
    fn from(state: MemberState) -> Self {
        match state {
            MemberState::Joining => Self::Joining,
            MemberState::Copying => Self::Copying,
            MemberState::CatchingUp => Self::CatchingUp,
            MemberState::Active => Self::Active,
            MemberState::Draining => Self::Draining,
            MemberState::Removed => Self::Removed,
        }
    }
}

/// A member's state; `None` for one that this build does not know.
///
/// # Errors
/// [`ConvertError::Value`] when it is unspecified.
pub fn member_state(field: &'static str, found: i32) -> Result<Option<MemberState>, ConvertError> {
    Ok(match v1::MemberState::try_from(found) {
        Ok(v1::MemberState::Unspecified) => {
            return Err(ConvertError::Value {
                field,
                found: 0,
                expected: "a state",
            });
        }
        Ok(v1::MemberState::Joining) => Some(MemberState::Joining),
        Ok(v1::MemberState::Copying) => Some(MemberState::Copying),
        Ok(v1::MemberState::CatchingUp) => Some(MemberState::CatchingUp),
        Ok(v1::MemberState::Active) => Some(MemberState::Active),
        Ok(v1::MemberState::Draining) => Some(MemberState::Draining),
        Ok(v1::MemberState::Removed) => Some(MemberState::Removed),
        Err(_) => None,
    })
}

impl From<Availability> for v1::Availability {
    fn from(availability: Availability) -> Self {
        match availability {
            Availability::Up => Self::Up,
            Availability::Down => Self::Down,
        }
    }
}

/// A member's availability. One that this build does not know counts as down: such a member is
/// tried last, which is never wrong.
///
/// # Errors
/// [`ConvertError::Value`] when it is unspecified.
pub fn availability(field: &'static str, found: i32) -> Result<Availability, ConvertError> {
    match v1::Availability::try_from(found) {
        Ok(v1::Availability::Unspecified) => Err(ConvertError::Value {
            field,
            found: 0,
            expected: "an availability",
        }),
        Ok(v1::Availability::Up) => Ok(Availability::Up),
        Ok(v1::Availability::Down) | Err(_) => Ok(Availability::Down),
    }
}

impl From<&Member> for v1::MemberSection {
    fn from(member: &Member) -> Self {
        Self {
            node_id: member.node_id.to_string(),
            incarnation: member.incarnation.0,
            handle: member.handle.0.into(),
            zone: member.zone.to_string(),
            weight: member.weight.get(),
            endpoint: member.endpoint.to_string(),
            state: v1::MemberState::from(member.state).into(),
            availability: v1::Availability::from(member.availability).into(),
            tokens: Vec::new(),
        }
    }
}

/// What an agent says first on its link, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which ring it wants to serve.
    pub ring: RingName,
    /// Its name.
    pub node_id: NodeId,
    /// Drawn and synced with its directory.
    pub birth: u128,
    /// 0 = none given yet.
    pub incarnation: Incarnation,
    /// Drawn at each start of the process.
    pub boot: u128,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its zone.
    pub zone: Zone,
    /// Its share.
    pub weight: Weight,
    /// The directory holds no record of this ring.
    pub empty: bool,
    /// What it has adopted durably; 0 = nothing.
    pub adopted_epoch: Epoch,
}

impl From<Hello> for v1::Hello {
    fn from(hello: Hello) -> Self {
        Self {
            ring: hello.ring.into(),
            node_id: hello.node_id.into(),
            birth: id128_bytes(hello.birth),
            incarnation: hello.incarnation.0,
            boot: id128_bytes(hello.boot),
            endpoint: hello.endpoint.into(),
            zone: hello.zone.into(),
            weight: hello.weight.get(),
            empty: hello.empty,
            adopted_epoch: hello.adopted_epoch.0,
        }
    }
}

impl TryFrom<v1::Hello> for Hello {
    type Error = ConvertError;
    fn try_from(message: v1::Hello) -> Result<Self, ConvertError> {
        Ok(Self {
            ring: ring_name("ring", &message.ring)?,
            node_id: node_id("node_id", &message.node_id)?,
            birth: id128("birth", &message.birth)?,
            incarnation: Incarnation(message.incarnation),
            boot: id128("boot", &message.boot)?,
            endpoint: endpoint("endpoint", &message.endpoint)?,
            zone: zone("zone", &message.zone)?,
            weight: weight("weight", message.weight)?,
            empty: message.empty,
            adopted_epoch: Epoch(message.adopted_epoch),
        })
    }
}

/// Under which epoch one data node speaks to another, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStamp {
    /// Which ring.
    pub ring: RingName,
    /// Rises when a backup is restored.
    pub generation: Generation,
    /// The caller's epoch.
    pub epoch: Epoch,
    /// The reign that the caller believes the asked owner to be in.
    pub reign: Epoch,
    /// The caller.
    pub node_id: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
}

impl From<PeerStamp> for v1::PeerStamp {
    fn from(stamp: PeerStamp) -> Self {
        Self {
            ring: stamp.ring.into(),
            generation: stamp.generation.0,
            epoch: stamp.epoch.0,
            reign: stamp.reign.0,
            node_id: stamp.node_id.into(),
            incarnation: stamp.incarnation.0,
        }
    }
}

impl TryFrom<v1::PeerStamp> for PeerStamp {
    type Error = ConvertError;
    fn try_from(message: v1::PeerStamp) -> Result<Self, ConvertError> {
        Ok(Self {
            ring: ring_name("stamp.ring", &message.ring)?,
            generation: Generation(message.generation),
            epoch: Epoch(message.epoch),
            reign: Epoch(message.reign),
            node_id: node_id("stamp.node_id", &message.node_id)?,
            incarnation: Incarnation(message.incarnation),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            ring: RingName::new("r").unwrap(),
            node_id: NodeId::new("a").unwrap(),
            birth: u128::MAX - 1,
            incarnation: Incarnation(0),
            boot: 7,
            endpoint: Endpoint::new("h:1").unwrap(),
            zone: Zone::new("z1").unwrap(),
            weight: Weight::new(3).unwrap(),
            empty: true,
            adopted_epoch: Epoch(9),
        }
    }

    #[test]
    fn a_hello_comes_back_as_it_went() {
        assert_eq!(Hello::try_from(v1::Hello::from(hello())), Ok(hello()));
    }

    #[test]
    fn what_is_wrong_with_a_hello_is_named() {
        let bent = |bend: fn(&mut v1::Hello)| {
            let mut message = v1::Hello::from(hello());
            bend(&mut message);
            Hello::try_from(message).unwrap_err().to_string()
        };
        assert_eq!(
            bent(|m| m.birth = Bytes::new()),
            "field birth has 0 bytes, expected 16"
        );
        assert_eq!(bent(|m| m.zone.clear()), "field zone: zone is empty");
        assert_eq!(
            bent(|m| m.weight = 1_000_001),
            "field weight is 1000001, expected 0 to 1000000"
        );
    }

    #[test]
    fn slots_of_a_set_rise() {
        let set = |slots: &[u32]| {
            slot_set(&v1::SlotSet {
                session: 4,
                slots: slots.to_vec(),
            })
        };
        assert_eq!(set(&[1, 5]), Ok((SessionId(4), vec![Slot(1), Slot(5)])));
        assert_eq!(
            set(&[5, 5]),
            Err(ConvertError::Order {
                field: "slots",
                found: 5
            })
        );
        assert_eq!(
            set(&[5, 1]),
            Err(ConvertError::Order {
                field: "slots",
                found: 1
            })
        );
    }

    #[test]
    fn enum_zero_is_refused() {
        assert!(member_state("state", 0).is_err());
        assert_eq!(member_state("state", 99), Ok(None));
        assert!(availability("availability", 0).is_err());
        assert_eq!(availability("availability", 99), Ok(Availability::Down));
    }
}
