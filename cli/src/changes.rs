//! What changed from one snapshot to a later one, for people and programs.

use std::fmt;

use annulus_ring::{Member, Snapshot, placement};
use serde::Serialize;

use crate::render::Wide;

/// One difference between two snapshots of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Change {
    /// A member that was not there.
    MemberAdded {
        /// Who.
        node: String,
        /// Its zone.
        zone: String,
        /// Its weight.
        weight: u32,
        /// Its state.
        state: &'static str,
    },
    /// A member that is there no more.
    MemberGone {
        /// Who.
        node: String,
        /// Its last state.
        state: &'static str,
    },
    /// A member in another state.
    MemberState {
        /// Who.
        node: String,
        /// Before.
        from: &'static str,
        /// Now.
        to: &'static str,
    },
    /// A member that listens elsewhere.
    MemberMoved {
        /// Who.
        node: String,
        /// Before.
        from: String,
        /// Now.
        to: String,
    },
    /// A member that stands in another zone.
    MemberZone {
        /// Who.
        node: String,
        /// Before.
        from: String,
        /// Now.
        to: String,
    },
    /// A member with another share.
    MemberWeight {
        /// Who.
        node: String,
        /// Before.
        from: u32,
        /// Now.
        to: u32,
    },
    /// A member that is tried last from now on, or no longer.
    MemberAvailability {
        /// Who.
        node: String,
        /// Whether it is taken for down.
        down: bool,
    },
    /// Ranges whose list is another.
    Lists {
        /// How many.
        ranges: usize,
        /// How many of them got another owner.
        owners: usize,
    },
    /// A transition that did not run.
    TransitionBegan {
        /// Its number.
        id: Wide,
        /// Its step.
        step: &'static str,
        /// How many ranges get another list.
        ranges: usize,
        /// How many copies that takes.
        copies: usize,
    },
    /// A transition at another step.
    TransitionStep {
        /// Its number.
        id: Wide,
        /// Before.
        from: &'static str,
        /// Now.
        to: &'static str,
    },
    /// A transition that ran and does no more.
    TransitionEnded {
        /// Its number.
        id: Wide,
        /// The lists are the new ones; else they are the old ones.
        settled: bool,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemberAdded {
                node,
                zone,
                weight,
                state,
            } => {
                write!(
                    f,
                    "{node} is a member: {state}, zone {zone}, weight {weight}"
                )
            }
            Self::MemberGone { node, state } => write!(f, "{node} is gone (was {state})"),
            Self::MemberState { node, from, to } => write!(f, "{node} {from} -> {to}"),
            Self::MemberMoved { node, from, to } => write!(f, "{node} listens at {to}, not {from}"),
            Self::MemberZone { node, from, to } => {
                write!(f, "{node} is in zone {to}, not {from}")
            }
            Self::MemberWeight { node, from, to } => write!(f, "{node} weighs {to}, not {from}"),
            Self::MemberAvailability { node, down: true } => {
                write!(f, "{node} is down: tried last")
            }
            Self::MemberAvailability { node, down: false } => write!(f, "{node} is up again"),
            Self::Lists { ranges, owners } => {
                write!(
                    f,
                    "{ranges} range(s) have a new list, {owners} of them a new owner"
                )
            }
            Self::TransitionBegan {
                id,
                step,
                ranges,
                copies,
            } => {
                write!(
                    f,
                    "transition {id} begins, {step}: {ranges} range(s), {copies} copies"
                )
            }
            Self::TransitionStep { id, from, to } => write!(f, "transition {id} {from} -> {to}"),
            Self::TransitionEnded { id, settled: true } => write!(f, "transition {id} is settled"),
            Self::TransitionEnded { id, settled: false } => {
                write!(
                    f,
                    "transition {id} is withdrawn: the lists are the old ones"
                )
            }
        }
    }
}

/// The differences from `old` to `new`, members by name first.
#[must_use]
pub fn between(old: &Snapshot, new: &Snapshot) -> Vec<Change> {
    let mut changes = Vec::new();
    members(old, new, &mut changes);
    lists(old, new, &mut changes);
    transition(old, new, &mut changes);
    changes
}

fn members(old: &Snapshot, new: &Snapshot, changes: &mut Vec<Change>) {
    for member in &new.members {
        match old.member(&member.node_id) {
            // Another incarnation under the same name is another member.
            Some(before) if before.incarnation == member.incarnation => {
                one_member(before, member, changes);
            }
            _ => changes.push(Change::MemberAdded {
                node: member.node_id.to_string(),
                zone: member.zone.to_string(),
                weight: member.weight.get(),
                state: member.state.as_str(),
            }),
        }
    }
    for gone in old
        .members
        .iter()
        .filter(|member| new.member(&member.node_id).is_none())
    {
        let (node, state) = (gone.node_id.to_string(), gone.state.as_str());
        changes.push(Change::MemberGone { node, state });
    }
}

fn one_member(before: &Member, now: &Member, changes: &mut Vec<Change>) {
    let node = || now.node_id.to_string();
    if before.state != now.state {
        let (from, to) = (before.state.as_str(), now.state.as_str());
        changes.push(Change::MemberState {
            node: node(),
            from,
            to,
        });
    }
    if before.endpoint != now.endpoint {
        let (from, to) = (before.endpoint.to_string(), now.endpoint.to_string());
        changes.push(Change::MemberMoved {
            node: node(),
            from,
            to,
        });
    }
    if before.zone != now.zone {
        let (from, to) = (before.zone.to_string(), now.zone.to_string());
        changes.push(Change::MemberZone {
            node: node(),
            from,
            to,
        });
    }
    if before.weight != now.weight {
        let (from, to) = (before.weight.get(), now.weight.get());
        changes.push(Change::MemberWeight {
            node: node(),
            from,
            to,
        });
    }
    if before.availability != now.availability {
        let down = now.availability == annulus_ring::Availability::Down;
        changes.push(Change::MemberAvailability { node: node(), down });
    }
}

fn lists(old: &Snapshot, new: &Snapshot, changes: &mut Vec<Change>) {
    let table = &new.layout.slots;
    let before = &old.layout.slots;
    let (ranges, owners) = if before.bits() == table.bits() {
        let diff = placement::diff(before, table);
        let owner = |change: &&annulus_ring::SlotChange| {
            before.list(change.slot).first() != change.to.first()
        };
        (diff.len(), diff.iter().filter(owner).count())
    } else {
        // A restored backup may cut the circle otherwise: then every range is another.
        let owned = table
            .slots()
            .filter(|slot| !table.list(*slot).is_empty())
            .count();
        (owned, owned)
    };
    if ranges > 0 {
        changes.push(Change::Lists { ranges, owners });
    }
}

fn transition(old: &Snapshot, new: &Snapshot, changes: &mut Vec<Change>) {
    let before = old.transition.as_ref();
    let now = new.transition.as_ref();
    if let Some(before) = before
        && now.is_none_or(|now| now.id != before.id)
    {
        let table = &new.layout.slots;
        let settled = before
            .target
            .iter()
            .all(|change| table.list(change.slot) == &change.to[..]);
        changes.push(Change::TransitionEnded {
            id: Wide(before.id.0),
            settled,
        });
    }
    let Some(now) = now else { return };
    let (id, to) = (Wide(now.id.0), now.step.as_str());
    match before.filter(|before| before.id == now.id) {
        Some(before) if before.step == now.step => {}
        Some(before) => {
            changes.push(Change::TransitionStep {
                id,
                from: before.step.as_str(),
                to,
            });
        }
        None => {
            let gainers = |change: &annulus_ring::SlotChange| {
                let old = new.layout.slots.list(change.slot);
                placement::movement(change.slot, old, &change.to)
                    .gainers
                    .len()
            };
            let copies = now.target.iter().map(gainers).sum();
            let ranges = now.target.len();
            changes.push(Change::TransitionBegan {
                id,
                step: to,
                ranges,
                copies,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use annulus_ring::{
        Availability, Checksum, ClusterId, Epoch, Generation, Handle, HashName, Incarnation,
        Layout, List, MemberState, Replication, Slot, SlotChange, SlotTable, Step, Transition,
        TransitionId, Weight,
    };

    use super::*;

    fn member(handle: u16, state: MemberState) -> Member {
        Member {
            node_id: format!("n{handle}").parse().expect("a name"),
            incarnation: Incarnation(1),
            handle: Handle(handle),
            zone: "z1".parse().expect("a name"),
            weight: Weight::new(100).expect("in range"),
            endpoint: format!("127.0.0.1:{}", 9000 + handle)
                .parse()
                .expect("an endpoint"),
            state,
            availability: Availability::Up,
        }
    }

    /// Two slots, lists [0, 1] and [1, 0].
    fn snapshot(epoch: u64) -> Snapshot {
        let mut slots = SlotTable::empty(1, 2);
        slots.set(Slot(0), &[Handle(0), Handle(1)]);
        slots.set(Slot(1), &[Handle(1), Handle(0)]);
        Snapshot {
            format: annulus_ring::snapshot::FORMAT,
            cluster_id: ClusterId::default(),
            ring: "users".parse().expect("a name"),
            generation: Generation(1),
            epoch: Epoch(epoch),
            previous_checksum: Checksum::default(),
            created_at_ms: 0,
            layout: Layout {
                placement_version: 1,
                hash: HashName::Xxh3_64,
                seed: 0,
                replication: Replication { rf: 2, w: 2, r: 1 },
                slots,
            },
            members: vec![
                member(0, MemberState::Active),
                member(1, MemberState::Active),
            ],
            transition: None,
        }
    }

    fn moving(epoch: u64, step: Step) -> Snapshot {
        let mut new = snapshot(epoch);
        new.members.push(member(2, MemberState::Copying));
        let to = List::from_slice(&[Handle(0), Handle(2)]);
        let target = vec![SlotChange { slot: Slot(0), to }];
        new.transition = Some(Transition {
            replication: None,
            id: TransitionId(4),
            step,
            target,
        });
        new
    }

    fn told(old: &Snapshot, new: &Snapshot) -> Vec<String> {
        between(old, new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_equal_snapshot_has_no_changes() {
        assert_eq!(told(&snapshot(1), &snapshot(2)), Vec::<String>::new());
    }

    #[test]
    fn a_transition_is_told_from_begin_to_end() {
        assert_eq!(
            told(&snapshot(1), &moving(2, Step::Prepared)),
            [
                "n2 is a member: copying, zone z1, weight 100",
                "transition 4 begins, prepared: 1 range(s), 1 copies",
            ]
        );
        assert_eq!(
            told(&moving(2, Step::Prepared), &moving(3, Step::Writing)),
            ["transition 4 prepared -> writing"]
        );
        let mut settled = snapshot(9);
        settled.members.push(member(2, MemberState::Active));
        settled.layout.slots.set(Slot(0), &[Handle(0), Handle(2)]);
        assert_eq!(
            told(&moving(8, Step::Switched), &settled),
            [
                "n2 copying -> active",
                "1 range(s) have a new list, 0 of them a new owner",
                "transition 4 is settled",
            ]
        );
        assert_eq!(
            told(&moving(8, Step::Copying), &snapshot(9)),
            [
                "n2 is gone (was copying)",
                "transition 4 is withdrawn: the lists are the old ones",
            ]
        );
    }

    #[test]
    fn a_hand_over_changes_owners() {
        let mut new = snapshot(2);
        new.layout.slots.set(Slot(0), &[Handle(1), Handle(0)]);
        let expected = ["1 range(s) have a new list, 1 of them a new owner"];
        assert_eq!(told(&snapshot(1), &new), expected);
    }
}
