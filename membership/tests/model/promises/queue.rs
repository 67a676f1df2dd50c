//! QUEUE: what is taken up can be carried out. No accepted change leaves fewer nodes with weight
//! than rf, or fewer zones, once all accepted ones are done; and no life is taken for another.

use std::collections::BTreeSet;

use annulus_membership::{Change, RingCommand, RingState, fold};
use annulus_ring::Zone;

use super::{Memory, Seen, ensure};

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    match seen.done() {
        Some(RingCommand::Change { change, .. }) if before.founded => {
            let ((nodes, zones), (left, kept)) = (expected(before), expected(after));
            let rf = usize::from(fold::after_queue(after).replication.rf);
            // That fewer zones are left may be accepted.
            let fewer_zones = matches!(change, Change::DrainZone { accept: true, .. });
            let spread = fewer_zones || kept >= zones.min(rf);
            ensure(left >= nodes.min(rf) && spread, || {
                format!("{left} nodes in {kept} zones would be left of {nodes} in {zones}")
            })
        }
        Some(RingCommand::Register(registration)) => {
            let node = &registration.node;
            let life = |ring: &RingState| {
                ring.registered(node)
                    .map(|living| (living.birth, living.incarnation))
            };
            let replaced = life(before) != life(after) && before.members.contains_key(node);
            ensure(!replaced, || {
                format!("{node} is a member and got another life")
            })
        }
        _ => Ok(()),
    }
}

/// Nodes and zones with weight, once every accepted change is done.
fn expected(ring: &RingState) -> (usize, usize) {
    let expected = fold::after_queue(ring);
    let weighty = || expected.members.values().filter(|one| one.1.get() > 0);
    let zones: BTreeSet<&Zone> = weighty().map(|one| &one.0).collect();
    (weighty().count(), zones.len())
}
