//! A snapshot's sections to its value, after their bytes were verified.

use annulus_ring::{
    Checksum, ClusterId, Epoch, Generation, Handle, HashName, Incarnation, Layout, List, Member,
    MemberState, NodeId, Replication, Slot, SlotChange, SlotTable, Snapshot, Step, Transition,
    TransitionId,
    node::MAX_MEMBERS,
    slots::{MAX_RF, SLOT_BITS},
    snapshot::FORMAT,
};
use prost::Message;

use super::{DecodeError, SLOTS_PER_SECTION};
use crate::{
    convert::{self, ConvertError},
    packing::{self, Damage},
    v1,
};

/// Whether this build reads the format.
pub(super) fn format(found: u32) -> Result<(), DecodeError> {
    if found == FORMAT {
        Ok(())
    } else {
        Err(DecodeError::Format {
            found,
            expected: FORMAT,
        })
    }
}

/// Names the section of a bad field.
pub(super) fn field<T>(section: usize, value: Result<T, ConvertError>) -> Result<T, DecodeError> {
    value.map_err(|source| DecodeError::Field { section, source })
}

/// The message in one section.
pub(super) fn section<M: Message + Default>(
    message: &v1::SnapshotBytes,
    at: usize,
) -> Result<M, DecodeError> {
    let Some(bytes) = message.sections.get(at) else {
        return Err(DecodeError::Shape {
            section: at,
            what: "missing",
        });
    };
    M::decode(bytes.clone()).map_err(|source| DecodeError::Section {
        section: at,
        source,
    })
}

/// The predecessor that a header names.
pub(super) fn previous_checksum(header: &v1::SnapshotHeader) -> Result<Checksum, DecodeError> {
    field(
        0,
        convert::checksum("previous_checksum", &header.previous_checksum),
    )
}

/// Lists that need not be unpacked: the sections were packed from them.
pub(crate) struct Known {
    pub slots: SlotTable,
    /// Of the transition that the header tells of, if any.
    pub target: Vec<SlotChange>,
}

/// Decodes the sections behind an already verified header.
pub(super) fn decode(
    message: &v1::SnapshotBytes,
    header: v1::SnapshotHeader,
    known: Option<Known>,
) -> Result<Snapshot, DecodeError> {
    let epoch = Epoch(header.epoch);
    let layout = empty_layout(&header, epoch)?;
    let mut reader = Reader {
        message,
        next: 1,
        rf: layout.replication.rf.into(),
    };

    let (members, strangers) = reader.members(&header)?;
    let (slots, mut target) = match known {
        Some(known) => {
            reader.next += known.slots.slot_count().div_ceil(SLOTS_PER_SECTION);
            reader.next += known.target.len().div_ceil(SLOTS_PER_SECTION);
            (known.slots, Some(known.target))
        }
        None => (reader.slots(layout.slots)?, None),
    };
    let transition = match &header.transition {
        Some(transition) => Some(reader.transition(transition, slots.slot_count(), &mut target)?),
        None => None,
    };
    if reader.next != message.sections.len() {
        return Err(DecodeError::Shape {
            section: reader.next,
            what: "nothing belongs here",
        });
    }

    let snapshot = Snapshot {
        format: header.format,
        cluster_id: ClusterId(field(0, convert::id128("cluster_id", &header.cluster_id))?),
        ring: field(0, convert::ring_name("ring", &header.ring))?,
        generation: Generation(header.generation),
        epoch,
        previous_checksum: previous_checksum(&header)?,
        created_at_ms: header.created_at_ms,
        layout: Layout { slots, ..layout },
        members,
        transition,
    };
    for stranger in strangers {
        stranger.must_not_serve(&snapshot)?;
    }
    Ok(snapshot)
}

/// The layout that a header tells of, its lists still empty.
fn empty_layout(header: &v1::SnapshotHeader, epoch: Epoch) -> Result<Layout, DecodeError> {
    match v1::LayoutKind::try_from(header.layout) {
        Ok(v1::LayoutKind::Slots) => {}
        Ok(v1::LayoutKind::Unspecified | v1::LayoutKind::Tokens) | Err(_) => {
            return Err(DecodeError::UnknownLayout {
                epoch,
                found: header.layout,
            });
        }
    }
    let hash: HashName = header
        .hash
        .parse()
        .map_err(|source| DecodeError::UnknownHash { epoch, source })?;
    let replication = replication(header.rf, header.w, header.r)?;
    let bits = small("slot_bits", header.slot_bits, "1 to 20", *SLOT_BITS.end())?;
    Ok(Layout {
        placement_version: header.placement_version,
        hash,
        seed: header.seed,
        replication,
        slots: SlotTable::empty(bits, replication.rf),
    })
}

/// A member in a state that this build does not know.
struct Stranger {
    handle: Handle,
    node: NodeId,
    state: i32,
}

impl Stranger {
    /// Such a member counts as not serving, so no read set may name it: then the snapshot is
    /// refused, for a client must not route around a member by its own opinion.
    fn must_not_serve(self, snapshot: &Snapshot) -> Result<(), DecodeError> {
        let reads = |slot: &Slot| snapshot.sets(*slot).read_set().contains(&self.handle);
        match snapshot.layout.slots.slots().find(reads) {
            None => Ok(()),
            Some(slot) => {
                let (epoch, node, found) = (snapshot.epoch, self.node, self.state);
                Err(DecodeError::UnknownState {
                    epoch,
                    slot,
                    node,
                    found,
                })
            }
        }
    }
}

/// Walks the sections in order.
struct Reader<'a> {
    message: &'a v1::SnapshotBytes,
    next: usize,
    rf: usize,
}

impl Reader<'_> {
    fn take<M: Message + Default>(&mut self) -> Result<(usize, M), DecodeError> {
        let at = self.next;
        self.next += 1;
        Ok((at, section(self.message, at)?))
    }

    fn members(
        &mut self,
        header: &v1::SnapshotHeader,
    ) -> Result<(Vec<Member>, Vec<Stranger>), DecodeError> {
        let count = header.member_count as usize;
        if count > MAX_MEMBERS || count >= self.message.sections.len() {
            return Err(DecodeError::Shape {
                section: 0,
                what: "more members than sections",
            });
        }
        let (mut members, mut strangers) = (Vec::with_capacity(count), Vec::new());
        for _ in 0..count {
            let (at, found) = self.take::<v1::MemberSection>()?;
            let (member, known) = member(at, &found)?;
            if !known {
                let (handle, node) = (member.handle, member.node_id.clone());
                strangers.push(Stranger {
                    handle,
                    node,
                    state: found.state,
                });
            }
            members.push(member);
        }
        Ok((members, strangers))
    }

    fn slots(&mut self, mut table: SlotTable) -> Result<SlotTable, DecodeError> {
        let mut first = 0;
        while first < table.slot_count() {
            let (at, found) = self.take::<v1::SlotSection>()?;
            let count = SLOTS_PER_SECTION.min(table.slot_count() - first);
            if (found.first as usize, found.count as usize) != (first, count) {
                return Err(DecodeError::Shape {
                    section: at,
                    what: "not the slots expected here",
                });
            }
            let mut slot = Slot(found.first);
            lists(at, &found.handles, (found.bits, self.rf), count, |list| {
                table.set(slot, &list);
                slot.0 += 1;
            })?;
            first += count;
        }
        Ok(table)
    }

    fn transition(
        &mut self,
        header: &v1::TransitionHeader,
        slot_count: usize,
        known: &mut Option<Vec<SlotChange>>,
    ) -> Result<Transition, DecodeError> {
        let step = u8::try_from(header.step).ok().and_then(Step::from_number);
        let wrong = ConvertError::Value {
            field: "transition.step",
            found: header.step.into(),
            expected: "1 to 7",
        };
        let step = field(0, step.ok_or(wrong))?;
        let replication = match &header.replication {
            Some(new) => Some(replication(new.rf, new.w, new.r)?),
            None => None,
        };
        let changed = header.changed_slots as usize;
        if changed > slot_count {
            return Err(DecodeError::Shape {
                section: 0,
                what: "more changed slots than slots",
            });
        }
        if let Some(target) = known.take() {
            if target.len() != changed {
                let what = "another number of changed slots than the header says";
                return Err(DecodeError::Shape { section: 0, what });
            }
            let id = TransitionId(header.id);
            return Ok(Transition {
                id,
                step,
                target,
                replication,
            });
        }
        let mut target = Vec::with_capacity(changed);
        while target.len() < changed {
            let (at, found) = self.take::<v1::TargetSection>()?;
            let count = SLOTS_PER_SECTION.min(changed - target.len());
            if found.slots.len() != count {
                let what = "not as many changed slots as expected here";
                return Err(DecodeError::Shape { section: at, what });
            }
            let mut slots = found.slots.iter();
            let rf = replication.map_or(self.rf, |new| new.rf.into());
            lists(at, &found.handles, (found.bits, rf), count, |to| {
                target.extend(slots.next().map(|slot| SlotChange {
                    slot: Slot(*slot),
                    to,
                }));
            })?;
        }
        Ok(Transition {
            id: TransitionId(header.id),
            step,
            target,
            replication,
        })
    }
}

/// Unpacks lists, given bits of a handle and rf.
fn lists(
    section: usize,
    handles: &[u8],
    (bits, rf): (u32, usize),
    count: usize,
    take: impl FnMut(List),
) -> Result<(), DecodeError> {
    packing::unpack(handles, bits, rf, count, take).map_err(|damage: Damage| DecodeError::Shape {
        section,
        what: damage.as_str(),
    })
}

/// Bounded before anything is allocated by them.
fn replication(rf: u32, w: u32, r: u32) -> Result<Replication, DecodeError> {
    Ok(Replication {
        rf: small("rf", rf, "1 to 7", MAX_RF)?,
        w: small("w", w, "1 to 7", MAX_RF)?,
        r: small("r", r, "1 to 7", MAX_RF)?,
    })
}

fn small(
    field: &'static str,
    found: u32,
    expected: &'static str,
    limit: u8,
) -> Result<u8, DecodeError> {
    let value = u8::try_from(found)
        .ok()
        .filter(|value| (1..=limit).contains(value));
    let wrong = ConvertError::Value {
        field,
        found: found.into(),
        expected,
    };
    self::field(0, value.ok_or(wrong))
}

/// A member, and whether its state is known here.
fn member(at: usize, found: &v1::MemberSection) -> Result<(Member, bool), DecodeError> {
    let state = field(at, convert::member_state("state", found.state))?;
    let handle = u16::try_from(found.handle)
        .map(Handle)
        .map_err(|_| ConvertError::Value {
            field: "handle",
            found: found.handle.into(),
            expected: "0 to 65534",
        });
    let member = Member {
        node_id: field(at, convert::node_id("node_id", &found.node_id))?,
        incarnation: Incarnation(found.incarnation),
        handle: field(at, handle)?,
        zone: field(at, convert::zone("zone", &found.zone))?,
        weight: field(at, convert::weight("weight", found.weight))?,
        endpoint: field(at, convert::endpoint("endpoint", &found.endpoint))?,
        // `Joining` is the state in which a member serves nothing and nothing is sent to it.
        state: state.unwrap_or(MemberState::Joining),
        availability: field(
            at,
            convert::availability("availability", found.availability),
        )?,
    };
    Ok((member, state.is_some()))
}
