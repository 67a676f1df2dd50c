//! What the leader wants of each data node, and what a change waits for, in words.

use std::collections::BTreeMap;

use annulus_ring::{Epoch, Handle, NodeId, Position, SessionId, Slot, Step};

use crate::{
    NodeReport, Reports, RingState, State, TransitionState, Wave, WaveId,
    cache::warm_up_left_ms,
    decide::{leaving_owners, soak_left_ms},
    due::{Missing, current, gather, grace_over},
    evidence::Proof,
};

/// The whole wanted set for one node; what follows from the snapshot itself is not repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directive {
    /// Every member has adopted at least this epoch.
    pub everyone_adopted: Epoch,
    /// The wave this node takes part in, and F of its slots once the owner sealed.
    pub wave: Option<(Wave, Vec<Position>)>,
    /// Waves up to this one are over.
    pub waves_over: WaveId,
    /// As gainer: merge up to J.
    pub joint: Vec<(Slot, Position)>,
    /// Compare these live copies with their owner's.
    pub verify: Vec<Slot>,
    /// Copies that may be deleted.
    pub permits: Vec<(SessionId, Vec<Slot>)>,
    /// Copy nothing for now; writes and repairs go on.
    pub paused: bool,
}

/// What `node` should do, besides what its view tells it.
#[must_use]
pub fn directive(state: &State, ring: &RingState, reports: &Reports, node: &NodeId) -> Directive {
    let everyone_adopted = ring
        .members
        .keys()
        .map(|member| current(ring, reports, member).map_or(Epoch(0), |report| report.adopted))
        .min()
        .unwrap_or(ring.epoch);
    // A cache's wave asks nothing of nodes: no seal, no F.
    let sealing = ring.wave.as_ref().filter(|_| !ring.config.is_cache());
    let wave = sealing
        .filter(|wave| wave.owner == *node || wave.successor == *node)
        .map(|wave| {
            let sealed = current(ring, reports, &wave.owner)
                .and_then(|report| report.sealed.as_ref())
                .filter(|(id, _)| *id == wave.id)
                .map(|(_, positions)| positions.clone());
            (wave.clone(), sealed.unwrap_or_default())
        });
    let waves_over = match &ring.wave {
        Some(running) => WaveId(running.id.0 - 1),
        None => ring.last_wave,
    };
    Directive {
        everyone_adopted,
        wave,
        waves_over,
        joint: joint(ring, reports, node),
        verify: verify(state, ring, node),
        permits: ring
            .retained
            .iter()
            .filter(|copies| copies.node == *node && !copies.permitted.is_empty())
            .map(|copies| (copies.session, copies.permitted.iter().copied().collect()))
            .collect(),
        paused: ring.paused.is_some(),
    }
}

fn joint(ring: &RingState, reports: &Reports, node: &NodeId) -> Vec<(Slot, Position)> {
    let Some(transition) = &ring.transition else {
        return Vec::new();
    };
    let Some(member) = ring.members.get(node) else {
        return Vec::new();
    };
    if transition.step != Step::Joint {
        return Vec::new();
    }
    let session = transition.session();
    let gained = transition.target.keys().filter(|slot| {
        ring.sets(**slot)
            .gainers()
            .any(|gainer| gainer == member.handle)
    });
    gained
        .filter_map(|slot| {
            let owner = ring.by_handle(*ring.slots.list(*slot).first()?)?;
            let report = current(ring, reports, &owner.node_id)?;
            let joint = report.slots.get(&(session, *slot))?.joint?;
            (joint.reign == ring.reigns[slot.index()]).then_some((*slot, joint))
        })
        .collect()
}

/// Slots with a retained copy somewhere whose grace is over: their members are to be compared.
fn verify(state: &State, ring: &RingState, node: &NodeId) -> Vec<Slot> {
    if ring.config.is_cache() {
        return Vec::new();
    }
    let Some(member) = ring.members.get(node) else {
        return Vec::new();
    };
    let mut slots: Vec<Slot> = ring
        .retained
        .iter()
        .filter(|copies| grace_over(state, ring, copies))
        .flat_map(|copies| &copies.kept)
        .copied()
        .filter(|slot| {
            let list = ring.slots.list(*slot);
            ring.sets(*slot).step.is_none() && list[1..].contains(&member.handle)
        })
        .collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// What the ring waits for: one sentence each, with the command that would help where one would.
/// Empty when nothing is waited for.
#[must_use]
pub fn waiting_for(state: &State, ring: &RingState, reports: &Reports, now_ms: u64) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(brake) = &ring.paused {
        sentences.push(format!(
            "movement is paused ({}); `annulus ring resume` lets it go on",
            brake.reason
        ));
    }
    if let Some(brake) = &ring.held {
        sentences.push(format!(
            "deletion is on hold ({}); `annulus ring unhold` allows it again",
            brake.reason
        ));
    }
    for node in ring.members.keys() {
        let lost = current(ring, reports, node).map_or(0, |report| report.unheld);
        if lost > 0 {
            sentences.push(format!(
                "{node} holds no copy of {lost} range(s) that list it: its data was lost, and it \
                 serves none of them; bring its disk back, or look at its log"
            ));
        }
    }
    if let Some(wave) = &ring.wave {
        sentences.push(format!(
            "wave {}: {} hands {} range(s) over to {}",
            wave.id,
            wave.owner,
            wave.slots.len(),
            wave.successor
        ));
    }
    let Some(transition) = &ring.transition else {
        return sentences;
    };
    if transition.step == Step::Prepared && leaving_owners(ring, transition) > 0 {
        sentences.extend(leaving(ring, transition, reports, now_ms));
        return sentences;
    }
    if transition.step == Step::Switched {
        let left_ms = soak_left_ms(ring, transition, state.ring_time_ms);
        if left_ms > 0 {
            sentences.push(format!(
                "soak: {} s of ring time left; `annulus node settle` ends it now",
                left_ms.div_ceil(1000)
            ));
        }
    }
    let left_ms = warm_up_left_ms(ring, transition, state.ring_time_ms);
    if left_ms > 0 {
        sentences.push(format!(
            "warm-up: {} s of ring time left",
            left_ms.div_ceil(1000)
        ));
    }
    let (_, gaps) = gather(ring, transition, reports, state.ring_time_ms);
    for gap in gaps {
        let heard = heard(reports.node(&gap.node), now_ms);
        let node = &gap.node;
        sentences.push(match gap.what {
            Missing::Link => format!("waiting for {node} to report, {heard}; check its agent"),
            Missing::Ack(epoch) => format!("waiting for {node} to ack epoch {epoch}, {heard}"),
            Missing::Ranges(count, proof) => {
                let what = match proof {
                    Proof::Nothing => "report",
                    Proof::Staged => "open staging for",
                    Proof::Copied => "copy",
                    Proof::Digests => "verify",
                    Proof::Joint => "merge the last writes of",
                };
                format!("waiting for {node} to {what} {count} range(s), {heard}")
            }
        });
    }
    sentences
}

/// One sentence for each owner that leaves and each of its successors; who is not linked is named
/// with what to do, for without it nothing goes on.
fn leaving(
    ring: &RingState,
    transition: &TransitionState,
    reports: &Reports,
    now_ms: u64,
) -> Vec<String> {
    let mut pairs: BTreeMap<(Handle, Handle), usize> = BTreeMap::new();
    for (slot, new) in &transition.target {
        let Some(owner) = ring.slots.list(*slot).first() else {
            continue;
        };
        if !new.contains(owner) {
            *pairs.entry((*owner, new[0])).or_default() += 1;
        }
    }
    let name = |handle| ring.by_handle(handle).map(|member| &member.node_id);
    let sentence = |((owner, successor), ranges): ((Handle, Handle), usize)| {
        let (owner, successor) = (name(owner)?, name(successor)?);
        let linked = |node: &NodeId| current(ring, reports, node).is_some_and(|r| r.linked);
        let silent = [owner, successor].into_iter().find(|node| !linked(node));
        Some(match silent {
            None => format!("waiting for {owner} to hand {ranges} range(s) over to {successor}"),
            Some(silent) => format!(
                "waiting for {silent} to be linked, so that {owner} hands {ranges} range(s) over to \
                 {successor}; {silent}: {}; start its agent again, or withdraw the change with \
                 `annulus node abort`",
                heard(reports.node(silent), now_ms)
            ),
        })
    };
    pairs.into_iter().filter_map(sentence).collect()
}

fn heard(report: Option<&NodeReport>, now_ms: u64) -> String {
    match report {
        None => "never heard by this leader".to_owned(),
        Some(report) => {
            let seconds = now_ms.saturating_sub(report.heard_ms) / 1000;
            let link = if report.linked { "" } else { "no link, " };
            format!("{link}last heard {seconds} s ago")
        }
    }
}
