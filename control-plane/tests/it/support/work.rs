//! What a data node that holds nothing would report: every range is empty, so every position is
//! the reign's first, every digest is the same, and every copy is made at once.

use std::collections::{BTreeMap, BTreeSet};

use annulus_proto::{
    snapshot::{Expect, verify_and_decode},
    v1,
};
use annulus_ring::{Handle, RangeSets, RingName, Slot, SlotChange, Snapshot, Step};
use bytes::Bytes;

/// One node's memory.
#[derive(Debug, Default)]
pub struct Work {
    view: Option<(Snapshot, Vec<u64>)>,
    directive: v1::Directive,
    /// By session.
    retained: BTreeMap<u64, BTreeSet<u32>>,
}

impl Work {
    /// Takes in a view; gives its epoch.
    pub fn view(&mut self, node: &str, view: &v1::View) -> u64 {
        let bytes = view.snapshot.as_ref().expect("a view has a snapshot");
        let ring = RingName::new("r").expect("a name");
        let expect = Expect {
            cluster_id: None,
            ring: &ring,
            held: None,
        };
        let now = verify_and_decode(bytes, expect).expect("a whole snapshot");
        let epoch = now.epoch.0;
        if let Some((before, _)) = self.view.take() {
            assert!(
                before.epoch <= now.epoch,
                "views never fall, across leaders too"
            );
            self.retain(node, &before, &now);
        }
        self.view = Some((now, view.reigns.clone()));
        epoch
    }

    /// A transition that ended with its new lists leaves the losers' copies behind.
    fn retain(&mut self, node: &str, before: &Snapshot, now: &Snapshot) {
        let (Some(ended), None) = (&before.transition, &now.transition) else {
            return;
        };
        let Some(me) = handle(before, node) else {
            return;
        };
        for SlotChange { slot, to } in &ended.target {
            let old = before.layout.slots.list(*slot);
            let settled = now.layout.slots.list(*slot) == to.as_slice();
            if settled && old.contains(&me) && !to.contains(&me) {
                self.retained.entry(ended.id.0).or_default().insert(slot.0);
            }
        }
    }

    /// Takes in what is wanted; deletes what may be.
    pub fn directive(&mut self, directive: v1::Directive) {
        for permit in &directive.permits {
            if let Some(kept) = self.retained.get_mut(&permit.session) {
                permit.slots.iter().for_each(|slot| {
                    kept.remove(slot);
                });
            }
        }
        self.directive = directive;
    }

    /// The whole report.
    pub fn report(&self, node: &str) -> v1::Report {
        let Some((snapshot, reigns)) = &self.view else {
            return v1::Report::default();
        };
        let mut report = v1::Report {
            adopted_epoch: snapshot.epoch.0,
            retained: self
                .retained
                .iter()
                .map(|(session, slots)| v1::SlotSet {
                    session: *session,
                    slots: slots.iter().copied().collect(),
                })
                .collect(),
            ..v1::Report::default()
        };
        let Some(me) = handle(snapshot, node) else {
            return report;
        };
        // A range weighs 1,000 bytes and has 10 keys, wherever it is.
        let table = &snapshot.layout.slots;
        let held = table.slots().filter(|slot| table.list(*slot).contains(&me));
        let held = held.count() as u64;
        report.held_bytes = Some(1_000 * held);
        report.held_keys = Some(10 * held);
        let at = |slot: u32| v1::Position {
            reign: reigns[slot as usize],
            seq: 0,
        };
        if let Some(wave) = &self.directive.wave {
            let positions = wave.slots.iter().map(|slot| at(*slot)).collect();
            let said = v1::WaveReport {
                wave: wave.id,
                positions,
            };
            if wave.owner == node {
                report.sealed = Some(said);
            } else if !wave.sealed.is_empty() {
                report.confirmed = Some(said);
            }
        }
        for slot in snapshot.layout.slots.slots() {
            let sets = snapshot.sets(slot);
            let session = snapshot.transition.as_ref().map(|running| running.id.0);
            match (sets.step, session) {
                (Some(step), Some(session)) => {
                    moving(
                        &mut report,
                        snapshot,
                        me,
                        slot,
                        &sets,
                        step,
                        session,
                        at(slot.0),
                    );
                    // Those that stay may be asked to compare themselves, too.
                    steady(&mut report, snapshot, me, slot, at(slot.0));
                }
                _ => steady(&mut report, snapshot, me, slot, at(slot.0)),
            }
        }
        report
    }
}

fn handle(snapshot: &Snapshot, node: &str) -> Option<Handle> {
    let member = snapshot
        .members
        .iter()
        .find(|member| member.node_id.as_str() == node)?;
    Some(member.handle)
}

fn name(snapshot: &Snapshot, handle: Handle) -> String {
    snapshot
        .member_by_handle(handle)
        .expect("a member")
        .node_id
        .to_string()
}

fn digest(cut: v1::Position, peer: String) -> Option<v1::SlotDigest> {
    Some(v1::SlotDigest {
        cut: Some(cut),
        digest: Bytes::from(vec![0; 32]),
        peer,
        records: 0,
    })
}

#[allow(clippy::too_many_arguments, reason = "one slot's facts")]
fn moving(
    report: &mut v1::Report,
    snapshot: &Snapshot,
    me: Handle,
    slot: Slot,
    sets: &RangeSets<'_>,
    step: Step,
    session: u64,
    at: v1::Position,
) {
    let blank = v1::SlotReport {
        slot: slot.0,
        session,
        attempt: 1,
        ..Default::default()
    };
    let copying = step >= Step::Copying;
    if sets.gainers().any(|gainer| gainer == me) {
        report.slots.push(v1::SlotReport {
            staged: true,
            copied: copying.then_some(at),
            watermark: copying.then_some(at),
            digest: copying
                .then(|| digest(at, name(snapshot, sets.old[0])))
                .flatten(),
            ..blank
        });
    } else if sets.old.first() == Some(&me) {
        for gainer in sets.gainers().filter(|_| copying) {
            report.slots.push(v1::SlotReport {
                digest: digest(at, name(snapshot, gainer)),
                ..blank.clone()
            });
        }
        if step == Step::Joint {
            report.slots.push(v1::SlotReport {
                joint: Some(at),
                ..blank
            });
        }
    }
}

/// Every list's members compare themselves with their owner, whether asked or not.
fn steady(report: &mut v1::Report, snapshot: &Snapshot, me: Handle, slot: Slot, at: v1::Position) {
    let list = snapshot.layout.slots.list(slot);
    let blank = v1::SlotReport {
        slot: slot.0,
        ..Default::default()
    };
    if list.first() == Some(&me) {
        for member in &list[1..] {
            let digest = digest(at, name(snapshot, *member));
            report.slots.push(v1::SlotReport {
                digest,
                ..blank.clone()
            });
        }
    } else if list.contains(&me) {
        let digest = digest(at, name(snapshot, list[0]));
        report.slots.push(v1::SlotReport {
            digest,
            watermark: Some(at),
            ..blank
        });
    }
}
