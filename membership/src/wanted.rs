//! What the leader wants of each data node, and what a change waits for, in words.

use std::collections::BTreeMap;

use annulus_ring::{Epoch, Handle, NodeId, Position, SessionId, Slot, Step};

use crate::{
    NodeReport, Reports, RingState, State, TransitionState, Wave, WaveId,
    cache::warm_up_left_ms,
    conversion,
    decide::{leaving_owners, soak_left_ms},
    due::{Missing, auto_remove, current, failover, gather, grace_over},
    evidence::Proof,
};

/// The whole wanted set for one node; what follows from the snapshot itself is not repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directive {
    /// Every member has adopted at least this epoch.
    pub everyone_adopted: Epoch,
    /// The wave this node takes part in, and F of its slots once the owner sealed.
    pub wave: Option<(Wave, Vec<Position>)>,
    /// To the running failover's successor, once enough members refuse the owner: store the tails
    /// of these others. They may be none, where the successor alone is enough.
    pub tails: Option<Vec<NodeId>>,
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
        .filter(|wave| takes_part(ring, wave, node))
        .map(|wave| {
            let sealed = current(ring, reports, &wave.owner)
                .and_then(|report| report.sealed.as_ref())
                .filter(|(id, _)| *id == wave.id)
                .map(|(_, positions)| positions.clone());
            (wave.clone(), sealed.unwrap_or_default())
        });
    let tails = match &ring.wave {
        Some(wave) if wave.successor == *node => failover::tails(ring, reports, wave),
        _ => None,
    };
    let waves_over = match &ring.wave {
        Some(running) => WaveId(running.id.0 - 1),
        None => ring.last_wave,
    };
    Directive {
        everyone_adopted,
        wave,
        tails,
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

/// Owner and successor; in a failover every member of the lists, which is to refuse the owner.
fn takes_part(ring: &RingState, wave: &Wave, node: &NodeId) -> bool {
    if wave.owner == *node || wave.successor == *node {
        return true;
    }
    let Some(member) = ring.members.get(node).filter(|_| wave.intent.is_some()) else {
        return false;
    };
    let listed = |slot: &Slot| ring.slots.list(*slot).contains(&member.handle);
    wave.slots.iter().any(listed)
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

/// Slots with a retained copy somewhere whose grace is over: their members are to be compared;
/// so are those that stay in lists of other quorums.
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
    slots.extend(staying(ring, member.handle));
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// At the joint step: slots in which this member stays and has to prove that it holds everything
/// up to J.
fn staying(ring: &RingState, own: Handle) -> Vec<Slot> {
    let joint = |transition: &&TransitionState| transition.step == Step::Joint;
    let Some(transition) = ring.transition.as_ref().filter(joint) else {
        return Vec::new();
    };
    let quorums = ring.quorums();
    let proves = |slot: &Slot| {
        let sets = ring.sets(*slot);
        let stays = sets.owner() != Some(own) && sets.old.contains(&own) && sets.new.contains(&own);
        stays && sets.stayers_must_prove(quorums)
    };
    transition.target.keys().copied().filter(proves).collect()
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
    if let Some(running) = &ring.conversion {
        let owing = conversion::gather(ring, running, reports).1;
        let nodes: Vec<&str> = owing.iter().map(|gap| gap.node.as_str()).collect();
        let seconds = conversion::CONVERSION_BUDGET_MS / 1000;
        sentences.push(match nodes[..] {
            [] => "the ring is being converted".to_owned(),
            [..] => format!(
                "the ring is being converted: waiting for {} to stop serving; if that takes longer \
                 than {seconds} s, all goes on as before",
                nodes.join(", ")
            ),
        });
    }
    if let Some(brake) = &ring.held {
        sentences.push(format!(
            "deletion is on hold ({}); `annulus ring unhold` allows it again",
            brake.reason
        ));
    }
    for (node, maintenance) in &ring.maintenance {
        let left_ms = maintenance.until_ms.saturating_sub(state.ring_time_ms);
        let owned = owned(ring, node);
        let what = if owned > 0 {
            format!("{owned} range(s) are still to be handed over")
        } else {
            "it owns nothing and can be stopped".to_owned()
        };
        sentences.push(format!(
            "{node} is in maintenance for {} s more: {what}; `annulus node maintain .. --end` \
             ends it",
            left_ms.div_ceil(1000)
        ));
    }
    if ring.auto_remove_ms.is_some() && auto_remove::frozen(ring) {
        sentences.push(
            "too many members are down to remove any by itself; look at the network first, then \
             `annulus node remove --dead`"
                .to_owned(),
        );
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
        let (id, owner, ranges, successor) =
            (wave.id, &wave.owner, wave.slots.len(), &wave.successor);
        sentences.push(match wave.intent {
            None => format!("wave {id}: {owner} hands {ranges} range(s) over to {successor}"),
            Some(_) => format!(
                "wave {id}: {successor} takes {ranges} range(s) over from {owner}, which is silent"
            ),
        });
    }
    for owner in failover::silent_owners(ring, reports, now_ms) {
        let stuck = failover::orphans(ring, reports, owner).stuck.len();
        if stuck > 0 {
            let owner = &owner.node_id;
            sentences.push(format!(
                "{stuck} range(s) of {owner}, which is down, take no writes: too few other members \
                 of their lists are up to take over; start {owner} or one of those members again"
            ));
        }
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
        if ring.buried(node) {
            sentences.push(format!(
                "{node} is taken for dead, but too few others are left to refuse reads of before in \
                 its place: withdraw its removal, and ask for it again with `--stopped`"
            ));
            continue;
        }
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

/// How many ranges a member is the owner of now.
fn owned(ring: &RingState, node: &NodeId) -> usize {
    let Some(member) = ring.members.get(node) else {
        return 0;
    };
    let owner = |slot: &Slot| ring.sets(*slot).owner() == Some(member.handle);
    ring.slots.slots().filter(owner).count()
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
