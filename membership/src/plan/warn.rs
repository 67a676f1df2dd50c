//! What an operator should know before a plan is committed.

use annulus_ring::{NodeId, place};

use super::{Base, Facts, Outlook, Plan};
use crate::RingState;

/// Sentences, each with what would help where something would.
pub(super) fn warnings(
    outlook: &Outlook,
    base: &Base<'_>,
    plan: &Plan,
    ring: &RingState,
    facts: Option<&Facts>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    layout(outlook, base, &mut warnings);
    disks(outlook, &mut warnings);
    parties(outlook, plan, facts, &mut warnings);
    if let Some(brake) = &ring.paused {
        warnings.push(format!(
            "movement is paused ({}): a commit is refused until `annulus ring resume`",
            brake.reason
        ));
    }
    if let Some(brake) = &ring.held {
        warnings.push(format!(
            "deletion is on hold ({}): losers keep their copies until `annulus ring unhold`",
            brake.reason
        ));
    }
    let is_current = plan.base_layout_epoch == ring.layout_epoch && plan.committed.is_empty();
    let uneven = match is_current {
        true => place::even_owners(&ring.slots, &ring.candidates()).len(),
        false => 0,
    };
    if uneven > 0 {
        warnings.push(format!(
            "{uneven} range(s) are about to be handed over to even the owners out, which makes \
             another layout: plan again when that is done"
        ));
    }
    warnings
}

fn layout(outlook: &Outlook, base: &Base<'_>, warnings: &mut Vec<String>) {
    let spread = &outlook.spread;
    if spread.short_after > 0 {
        warnings.push(format!(
            "{} range(s) will have fewer replicas than they should; {} have now",
            spread.short_after, spread.short_before
        ));
    }
    if spread.unspread_after > 0 {
        warnings.push(format!(
            "{} range(s) will spread over fewer zones than possible; {} do now",
            spread.unspread_after, spread.unspread_before
        ));
    }
    let zones = outlook.zones.iter().filter(|zone| zone.nodes_after > 0);
    let zones = zones.count();
    let rf = usize::from(base.rf);
    if zones < rf {
        warnings.push(format!(
            "zone spread is not met: {zones} zone(s) for rf {rf}; the loss of one may take several \
             copies of a range"
        ));
    }
    let all = u32::try_from(base.slots.slot_count()).unwrap_or(u32::MAX);
    for node in &outlook.nodes {
        if node.gained == all {
            let zone = outlook.zones.iter().find(|zone| zone.zone == node.zone);
            let first = zone.is_some_and(|zone| zone.nodes_before == 0);
            let why = if first {
                format!(", for it is the first node of zone {}", node.zone)
            } else {
                String::new()
            };
            warnings.push(format!(
                "{} will get a copy of everything{why}; bring more nodes in with it",
                node.node
            ));
        }
    }
}

fn disks(outlook: &Outlook, warnings: &mut Vec<String>) {
    for node in outlook.nodes.iter().filter(|node| node.lacking_bytes > 0) {
        warnings.push(format!(
            "the disk of {} does not suffice: it gains about {} bytes and has {} free; make room \
             first",
            node.node,
            node.gained_estimate.unwrap_or_default().bytes,
            node.free_bytes.unwrap_or(0)
        ));
    }
    let unseen: Vec<&NodeId> = outlook
        .nodes
        .iter()
        .filter(|node| node.gained > 0 && node.free_bytes.is_none())
        .map(|node| &node.node)
        .collect();
    if !unseen.is_empty() {
        warnings.push(format!(
            "not yet heard how much room these have for what they gain: {}",
            names(&unseen)
        ));
    }
    if !outlook.unknown.is_empty() {
        let unknown: Vec<&NodeId> = outlook.unknown.iter().collect();
        let meaning = if outlook.copied.is_some() {
            "their ranges are counted as the mean of the others'"
        } else {
            "bytes, keys and time are left out"
        };
        warnings.push(format!(
            "not yet heard of what these hold: {}; {meaning}",
            names(&unknown)
        ));
    }
}

fn parties(outlook: &Outlook, plan: &Plan, facts: Option<&Facts>, warnings: &mut Vec<String>) {
    let Some(facts) = facts else {
        warnings.push(
            "this server does not lead and knows nothing of nodes' data and disks; ask without \
             --local"
                .to_owned(),
        );
        return;
    };
    let moves = |node: &NodeId| {
        let busy = outlook.nodes.iter().find(|known| known.node == *node);
        busy.is_some_and(|node| node.gained > 0 || node.lost > 0)
    };
    for holder in plan.holders.iter().filter(|holder| moves(&holder.node)) {
        let fact = facts.get(&holder.node, holder.incarnation);
        if !fact.is_some_and(|fact| fact.linked) {
            warnings.push(format!(
                "{} is not linked: once committed, the changes wait until its agent runs",
                holder.node
            ));
        }
    }
}

/// Some names, and how many more.
fn names(nodes: &[&NodeId]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<String> = nodes.iter().take(SHOWN).map(ToString::to_string).collect();
    if nodes.len() > SHOWN {
        text.push(format!("{} more", nodes.len() - SHOWN));
    }
    text.join(", ")
}
