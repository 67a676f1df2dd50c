//! The leader's next command: looks at the state and at what nodes reported, and says which step
//! is due. Nothing is owed by `apply`: a new leader looks at the same state and goes on.

pub(crate) mod auto_remove;
pub(crate) mod failover;

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Epoch, Handle, NodeId, RingName, Slot, Step, place};

use crate::{
    Change, ChangeId, Command, CopySet, Evidence, Founder, HandOver, MAX_TICK_MS, MAX_WAVE,
    NodeEvidence, NodeReport, PairEvidence, Rejection, Reports, RingCommand, RingState,
    SlotEvidence, State, TransitionState, Wave, bait, cache, conversion,
    decide::{collected, leaving_owners, may_be_target, soak_left_ms},
    evidence::{Barrier, Proof, RootBuilder},
    fold,
};

/// How long a failover may wait for refusals and tails before another successor is tried, in ms.
pub const FAILOVER_BUDGET_MS: u64 = 5_000;
/// How long a joiner may be down before its transition starts again without it, in ms.
pub const REPLAN_AFTER_MS: u64 = 15 * 60 * 1000;
/// How long a wave may stay sealed before the leader commits its abort, in ms.
pub const SEAL_BUDGET_MS: u64 = 2_000;
/// How long after an aborted wave the next one is tried, in ms.
pub const WAVE_PAUSE_MS: u64 = 1_000;
/// Ticks are proposed about this often while something runs out, in ms.
pub const TICK_MS: u64 = 5_000;
/// A permit waits for this many provable copies, or for all.
const PERMIT_BATCH: usize = 256;
/// Or for this long, in ms.
const PERMIT_PAUSE_MS: u64 = 5_000;
/// Waiting changes that do not go together are tried in up to so many pieces of a size.
const ALL_PIECES: usize = 8;

/// The next command for a ring, if one is due. `now_ms` is the leader's monotonic clock.
pub fn due(
    state: &State,
    name: &RingName,
    reports: &mut Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    let ring = state.rings.get(name)?;
    reports.see(ring, now_ms);
    if let Some(command) = availability(ring, reports) {
        return Some(command);
    }
    if let Some(running) = &ring.conversion {
        // Also while paused: it takes effect or is given up, it does not keep everybody waiting.
        return conversion::due(ring, running, reports, now_ms);
    }
    if let Some(wave) = &ring.wave {
        // Also while paused: a wave ends or is given up, it does not stay sealed.
        return match wave.intent {
            Some(_) => failover::wave_due(ring, wave, reports, now_ms),
            None => wave_due(ring, wave, reports, now_ms),
        };
    }
    // Nor does a pause leave ranges without an owner, or a transition that cannot end.
    if let Some(command) =
        failover::due(ring, reports, now_ms).or_else(|| replan(ring, reports, now_ms))
    {
        return Some(command);
    }
    let flips_back = ring
        .transition
        .as_ref()
        .is_some_and(|transition| transition.step == Step::FlippingBack);
    if ring.paused.is_some() && !flips_back {
        return released(ring, reports);
    }
    if ring.paused.is_none()
        && let Some(wave) = maintenance_wave(ring, reports, now_ms)
    {
        return Some(wave);
    }
    if let Some(transition) = &ring.transition {
        return transition_due(state, ring, transition, reports, now_ms);
    }
    if ring.founded {
        let fold = fold::fold(ring);
        if !fold.accepted.is_empty() || !fold.refused.is_empty() {
            return start(ring, &fold);
        }
    }
    released(ring, reports)
        .or_else(|| auto_remove::due(ring, reports, now_ms))
        .or_else(|| permit(state, ring, reports, now_ms))
        .or_else(|| evening(ring, reports, now_ms))
}

/// The first member that is committed as up and is down, or the other way round.
fn availability(ring: &RingState, reports: &Reports) -> Option<RingCommand> {
    ring.members.values().find_map(|member| {
        let availability = reports.availability(&member.node_id);
        (availability != member.availability).then(|| RingCommand::Availability {
            node: member.node_id.clone(),
            incarnation: member.incarnation,
            availability,
        })
    })
}

/// A tick, while a soak, a warm-up or a grace runs. `since_ms` is how long ago ring time was last raised, on
/// the leader's monotonic clock.
#[must_use]
pub fn tick_due(state: &State, since_ms: u64) -> Option<Command> {
    let left = state.rings.values().flat_map(|ring| {
        let soak = ring
            .transition
            .as_ref()
            .filter(|transition| transition.step == Step::Switched)
            .map(|transition| soak_left_ms(ring, transition, state.ring_time_ms));
        let grace = ring
            .retained
            .iter()
            .filter(|copies| !copies.kept.is_empty())
            .map(|copies| {
                (copies.since_ms + ring.config.grace_ms).saturating_sub(state.ring_time_ms)
            });
        let maintenance = ring.maintenance.values();
        let maintenance = maintenance.map(|one| one.until_ms.saturating_sub(state.ring_time_ms));
        let warm_up = ring
            .transition
            .as_ref()
            .map(|transition| cache::warm_up_left_ms(ring, transition, state.ring_time_ms));
        soak.into_iter()
            .chain(warm_up)
            .chain(grace)
            .chain(maintenance)
            .filter(|left| *left > 0)
    });
    let soonest = left.min()?;
    (since_ms >= soonest.min(TICK_MS)).then_some(Command::Tick {
        elapsed_ms: since_ms.min(MAX_TICK_MS),
    })
}

/// Founders and target for `ring found`. `nodes` empty: all whose join was collected.
///
/// # Errors
/// What `decide` would say, or that a named node has no open link with an empty directory.
pub fn found_command(
    state: &State,
    name: &RingName,
    nodes: &[NodeId],
    reports: &Reports,
    accept: bool,
    now_ms: u64,
) -> Result<RingCommand, Rejection> {
    let ring = state
        .rings
        .get(name)
        .ok_or_else(|| Rejection::UnknownRing { ring: name.clone() })?;
    if ring.founded {
        return Err(Rejection::AlreadyFounded { ring: name.clone() });
    }
    let nodes: BTreeSet<NodeId> = if nodes.is_empty() {
        collected(ring)
    } else {
        nodes.to_vec()
    }
    .into_iter()
    .collect();
    let mut founders = Vec::new();
    for node in &nodes {
        let not_registered = || Rejection::NotRegistered { node: node.clone() };
        let registered = ring.registered(node).ok_or_else(not_registered)?;
        let report = reports.node(node);
        let linked = report.filter(|report| report.linked);
        let linked = linked.ok_or_else(|| Rejection::NotLinked {
            node: node.clone(),
            silent_ms: report.map(|report| now_ms.saturating_sub(report.heard_ms)),
        })?;
        let report = Some(linked).filter(|report| report.empty);
        let report = report.ok_or_else(not_registered)?;
        if report.incarnation != registered.incarnation {
            return Err(not_registered());
        }
        founders.push(Founder {
            node: node.clone(),
            incarnation: registered.incarnation,
        });
    }
    if founders.is_empty() {
        return Err(Rejection::NoFounders);
    }
    let members = fold::new_members(ring, &nodes, annulus_ring::MemberState::Active);
    let candidates: Vec<_> = members
        .iter()
        .map(|member| annulus_ring::Candidate {
            handle: member.handle,
            zone: member.zone.clone(),
            weight: member.weight,
        })
        .collect();
    if candidates
        .iter()
        .all(|candidate| candidate.weight.get() == 0)
    {
        return Err(Rejection::NoWeight);
    }
    let table = place::assign(&ring.slots, &candidates)?;
    let target = annulus_ring::placement::diff(&ring.slots, &table);
    Ok(RingCommand::Found {
        founders,
        accept,
        target,
    })
}

/// The running transition gives ranges to a joiner that was down for [`REPLAN_AFTER_MS`], or leaves
/// some to a member that is taken for dead: it starts again without it.
fn replan(ring: &RingState, reports: &Reports, now_ms: u64) -> Option<RingCommand> {
    let transition = ring.transition.as_ref()?;
    if transition.step >= Step::Switched {
        return None;
    }
    let gone = ring.members.values().find(|member| {
        let down_ms = reports.down_ms(&member.node_id, now_ms);
        let silent = transition.joining.contains(&member.node_id)
            && down_ms.is_some_and(|down| down >= REPLAN_AFTER_MS);
        member.availability == annulus_ring::Availability::Down
            && (silent || ring.buried(&member.node_id))
            && transition.lists(member.handle)
    })?;
    Some(RingCommand::Replan {
        transition: transition.id,
        without: gone.node_id.clone(),
    })
}

/// As many of the waiting changes as one transition can carry out. Together they may leave a range
/// without a member that held it (a pin, a zone and a smaller rf); one after the other they do not,
/// the dead first, and the rest waits. O(log(waiting)) targets are tried.
fn start(ring: &RingState, fold: &fold::Fold) -> Option<RingCommand> {
    let start = |changes: &[ChangeId], target| RingCommand::Start {
        changes: changes.to_vec(),
        base_layout_epoch: ring.layout_epoch,
        assigner_version: annulus_ring::ASSIGNER_VERSION,
        target,
    };
    let refusals_only = || start(&[], Vec::new());
    if fold.accepted.is_empty() {
        return Some(refusals_only());
    }
    let parts = parts(ring, &fold.accepted).into_iter().filter_map(|part| {
        let fold = fold::fold_only(ring, &part);
        (fold.accepted == part).then_some(fold)
    });
    for fold in std::iter::once(fold.clone()).chain(parts) {
        // No table at all cannot be: preflight keeps at least rf nodes with weight.
        let target = fold.target(ring).ok()?;
        if keeps_the_dead(ring, &target) {
            continue;
        }
        if fold.accepted.len() == 1 || may_be_target(ring, &fold, &target).is_ok() {
            return Some(start(&fold.accepted, target));
        }
    }
    // A removal that is refused is what the others wait for.
    (!fold.refused.is_empty()).then(refusals_only)
}

/// Parts of these changes in the order in which they are tried: with the dead before without them;
/// what makes room beside less and less of what takes it, before less and less of all.
fn parts(ring: &RingState, accepted: &[ChangeId]) -> Vec<Vec<ChangeId>> {
    let change = |id: &&ChangeId| ring.changes.get(id).map(|record| &record.change);
    let buries = |id: &&ChangeId| change(id).is_some_and(|change| change.buries().is_some());
    let eases = |id: &&ChangeId| match change(id) {
        Some(Change::Join { .. } | Change::Unpin { .. }) => true,
        Some(Change::Weight { weight, .. }) => weight.get() > 0,
        _ => false,
    };
    let (burials, others): (Vec<ChangeId>, Vec<ChangeId>) = accepted.iter().partition(buries);
    let (easing, taking): (Vec<ChangeId>, Vec<ChangeId>) = others.iter().partition(eases);
    let mut parts: Vec<Vec<ChangeId>> = Vec::new();
    for first in [&burials[..], &[]] {
        parts.extend(pieces(&taking).map(|piece| [first, &easing, piece].concat()));
        parts.extend(pieces(&others).map(|piece| [first, piece].concat()));
    }
    for part in &mut parts {
        part.sort_unstable();
    }
    let mut tried = BTreeSet::from([accepted.to_vec(), Vec::new()]);
    parts.retain(|part| tried.insert(part.clone()));
    parts
}

/// All, both halves, all quarters, all eighths, then the first of less and less, at last none.
fn pieces(changes: &[ChangeId]) -> impl Iterator<Item = &[ChangeId]> {
    let halved = |size: &usize| (*size > 1).then_some(size.div_ceil(2));
    let sizes = std::iter::successors(Some(changes.len().max(1)), halved);
    let of_size = move |size: usize| {
        let all = changes.len().div_ceil(size) <= ALL_PIECES;
        changes.chunks(size).take(if all { ALL_PIECES } else { 1 })
    };
    sizes.flat_map(of_size).chain([&changes[..0]])
}

/// Whether somebody who is taken for dead would be in a new list: all would be planned anew.
fn keeps_the_dead(ring: &RingState, target: &[annulus_ring::SlotChange]) -> bool {
    let dead: BTreeSet<Handle> = ring
        .burials()
        .filter_map(|(node, _)| Some(ring.members.get(node)?.handle))
        .collect();
    let mut lists = target.iter().map(|change| &change.to);
    lists.any(|list| list.iter().any(|handle| dead.contains(handle)))
}

fn transition_due(
    state: &State,
    ring: &RingState,
    transition: &TransitionState,
    reports: &Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    if transition.step == Step::Prepared && leaving_owners(ring, transition) > 0 {
        return leaving_wave(ring, transition, reports, now_ms);
    }
    if transition.step == Step::Switched && soak_left_ms(ring, transition, state.ring_time_ms) > 0 {
        return None;
    }
    let (evidence, gaps) = gather(ring, transition, reports, state.ring_time_ms);
    gaps.is_empty().then(|| RingCommand::Advance {
        transition: transition.id,
        from_step: transition.step,
        evidence,
    })
}

/// What the evidence for the next step still lacks, one per node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Who owes something.
    pub node: NodeId,
    /// What.
    pub what: Missing,
}

/// What a node still owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is not heard at all, or not in the member's life.
    Link,
    /// It has not adopted this epoch.
    Ack(Epoch),
    /// So many ranges do not have their proof.
    Ranges(usize, Proof),
}

/// Builds the evidence for the next step from what was reported, and says what is missing.
/// `ring_time_ms` is ring time.
pub(crate) fn gather(
    ring: &RingState,
    transition: &TransitionState,
    reports: &Reports,
    ring_time_ms: u64,
) -> (Evidence, Vec<Gap>) {
    let session_hits = |node: &NodeId| {
        let asked =
            transition.step == Step::Copying && ring.config.warm_up.hit_ratio_permille().is_some();
        let report = current(ring, reports, node).filter(|_| asked)?;
        report
            .hits
            .filter(|(session, _)| *session == transition.session())
    };
    let hits = |node: &NodeId| session_hits(node).map(|(_, permille)| permille);
    let barrier = cache::barrier(ring, transition, ring_time_ms, hits);
    let session = transition.session();
    let mut evidence = Evidence::default();
    let mut gaps = Vec::new();
    for (node, wanted) in &barrier.nodes {
        let mut gap = |what| {
            gaps.push(Gap {
                node: node.clone(),
                what,
            })
        };
        let Some(report) = current(ring, reports, node) else {
            gap(Missing::Link);
            continue;
        };
        if transition.step == Step::Switched && !report.linked {
            // The end wants all of N up: the old copies are the way back until then.
            gap(Missing::Link);
        }
        if report.adopted < *wanted {
            gap(Missing::Ack(*wanted));
        }
        evidence.nodes.push(NodeEvidence {
            node: node.clone(),
            incarnation: report.incarnation,
            session,
            acked_epoch: report.adopted,
            hit_permille: hits(node),
        });
    }
    if barrier.proof != Proof::Nothing {
        pairs(
            ring,
            transition,
            reports,
            &barrier,
            &mut evidence,
            &mut gaps,
        );
    }
    (evidence, gaps)
}

fn pairs(
    ring: &RingState,
    transition: &TransitionState,
    reports: &Reports,
    barrier: &Barrier,
    evidence: &mut Evidence,
    gaps: &mut Vec<Gap>,
) {
    let silent = NodeReport::default();
    for ((source, gainer), slots) in &barrier.pairs {
        let from = current(ring, reports, source).unwrap_or(&silent);
        let to = current(ring, reports, gainer).unwrap_or(&silent);
        let mut source_root = RootBuilder::default();
        let mut gainer_root = RootBuilder::default();
        let mut missing = 0;
        for slot in slots {
            let proven = prove(
                ring,
                transition,
                reports,
                *slot,
                barrier.proof,
                from,
                to,
                gainer,
            );
            match proven {
                Some((position, digest)) => {
                    source_root.add(*slot, position, digest.as_ref());
                    gainer_root.add(*slot, position, digest.as_ref());
                }
                None => missing += 1,
            }
        }
        if missing > 0 {
            // One word for a node, however many sources its ranges come from.
            let said = gaps.iter_mut().find_map(|gap| match &mut gap.what {
                Missing::Ranges(count, _) if gap.node == *gainer => Some(count),
                _ => None,
            });
            match said {
                Some(count) => *count += missing,
                None => gaps.push(Gap {
                    node: gainer.clone(),
                    what: Missing::Ranges(missing, barrier.proof),
                }),
            }
        }
        evidence.pairs.push(PairEvidence {
            source: source.clone(),
            gainer: gainer.clone(),
            ranges: u32::try_from(slots.len()).unwrap_or(u32::MAX),
            source_root: barrier.proof.both_sides().then(|| source_root.finish()),
            gainer_root: gainer_root.finish(),
        });
    }
}

type Proven = (Option<annulus_ring::Position>, Option<[u8; 32]>);

/// What both ends say of one slot, if that is enough and of the present reign.
#[allow(
    clippy::too_many_arguments,
    reason = "one slot's facts, from five places"
)]
fn prove(
    ring: &RingState,
    transition: &TransitionState,
    reports: &Reports,
    slot: Slot,
    proof: Proof,
    from: &NodeReport,
    to: &NodeReport,
    gainer: &NodeId,
) -> Option<Proven> {
    let key = (transition.session(), slot);
    let reign = ring.reigns[slot.index()];
    match proof {
        Proof::Nothing => Some((None, None)),
        Proof::Staged => to.slots.get(&key)?.staged.then_some((None, None)),
        Proof::Copied => {
            let cut = to.slots.get(&key)?.copied?;
            Some((Some(cut), None))
        }
        Proof::Digests => {
            let standing = to.slots.get(&key)?;
            let here = standing.digest.as_ref()?;
            let there = from.source_digests.get(&(key.0, slot, gainer.clone()))?;
            let same = here.cut == there.cut
                && here.digest == there.digest
                && here.records == there.records
                || bait::on("digests-not-compared");
            // Not older than the copy, of the present reign, and without holes up to it.
            let old = here.cut < standing.copied? && !bait::on("digest-older-than-the-copy");
            let good = !old && here.cut.reign == reign && standing.watermark? >= here.cut;
            (same && good).then_some((Some(here.cut), Some(here.digest)))
        }
        Proof::Joint => {
            if reports.skips_joint() {
                return Some((None, None));
            }
            let joint = from.slots.get(&key)?.joint?;
            let gains = |handle| {
                ring.sets(slot)
                    .gainers()
                    .any(|one: annulus_ring::Handle| one == handle)
            };
            let holds = if gains(ring.members.get(gainer)?.handle) {
                to.slots.get(&key)?.watermark? >= joint
            } else {
                let since = transition.step_epoch;
                equal_live(from, to, gainer, slot, since)? >= joint
            };
            (joint.reign == reign && holds).then_some((Some(joint), None))
        }
    }
}

/// The cut at which a member's live copy equalled its owner's, both younger than `since`.
fn equal_live(
    owner: &NodeReport,
    member: &NodeReport,
    node: &NodeId,
    slot: Slot,
    since: Epoch,
) -> Option<annulus_ring::Position> {
    let live = annulus_ring::SessionId(0);
    let here = member.slots.get(&(live, slot))?.digest.as_ref()?;
    let there = owner.source_digests.get(&(live, slot, node.clone()))?;
    let young = here.adopted >= since && there.adopted >= since;
    let same = here.cut == there.cut && here.digest == there.digest;
    (young && same).then_some(here.cut)
}

/// A member's report, if it speaks in the member's life.
pub(crate) fn current<'a>(
    ring: &RingState,
    reports: &'a Reports,
    node: &NodeId,
) -> Option<&'a NodeReport> {
    let member = ring.members.get(node)?;
    reports
        .node(node)
        .filter(|report| report.incarnation == member.incarnation)
}

fn wave_due(
    ring: &RingState,
    wave: &Wave,
    reports: &mut Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    if ring.config.is_cache() {
        let life = |node| Some(ring.members.get(node)?.incarnation);
        return Some(RingCommand::HandOver(HandOver::Commit {
            wave: wave.id,
            sealed: Vec::new(),
            confirmed: Vec::new(),
            owner_incarnation: life(&wave.owner)?,
            successor_incarnation: life(&wave.successor)?,
        }));
    }
    let sealed = current(ring, reports, &wave.owner)
        .and_then(|report| {
            report
                .sealed
                .as_ref()
                .map(|sealed| (report.incarnation, sealed))
        })
        .filter(|(_, (id, _))| *id == wave.id);
    let confirmed = current(ring, reports, &wave.successor)
        .and_then(|report| {
            report
                .confirmed
                .as_ref()
                .map(|held| (report.incarnation, held))
        })
        .filter(|(_, (id, _))| *id == wave.id);
    if let (Some((owner_life, (_, sealed))), Some((successor_life, (_, confirmed)))) =
        (sealed, confirmed)
        && sealed == confirmed
    {
        return Some(RingCommand::HandOver(HandOver::Commit {
            wave: wave.id,
            sealed: sealed.clone(),
            confirmed: confirmed.clone(),
            owner_incarnation: owner_life,
            successor_incarnation: successor_life,
        }));
    }
    reports
        .wave_ran_out(wave.id, SEAL_BUDGET_MS, now_ms)
        .then_some(RingCommand::HandOver(HandOver::Abort { wave: wave.id }))
}

/// The next wave of a transition whose owners leave: one owner, one successor.
fn leaving_wave(
    ring: &RingState,
    transition: &TransitionState,
    reports: &Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    let hand_overs = transition.target.iter().filter_map(|(slot, new)| {
        let owner = ring.slots.list(*slot).first()?;
        (!new.contains(owner)).then(|| (*slot, *owner, new[0]))
    });
    next_wave(ring, reports, now_ms, hand_overs)
}

fn next_wave(
    ring: &RingState,
    reports: &Reports,
    now_ms: u64,
    hand_overs: impl Iterator<Item = (Slot, Handle, Handle)>,
) -> Option<RingCommand> {
    if !reports.may_begin_wave(now_ms) {
        return None;
    }
    let mut by_pair: BTreeMap<(Handle, Handle), Vec<Slot>> = BTreeMap::new();
    for (slot, owner, successor) in hand_overs {
        let slots = by_pair.entry((owner, successor)).or_default();
        if slots.len() < MAX_WAVE {
            slots.push(slot);
        }
    }
    by_pair.into_iter().find_map(|((owner, successor), slots)| {
        let (owner, successor) = (ring.by_handle(owner)?, ring.by_handle(successor)?);
        // A silent owner does not seal, whatever its link looks like: that is a failover.
        let up = annulus_ring::Availability::Up;
        if owner.availability != up || successor.availability != up {
            return None;
        }
        let (owner, successor) = (owner.node_id.clone(), successor.node_id.clone());
        let linked = |node| current(ring, reports, node).is_some_and(|report| report.linked);
        // Or the seal would last as long as its repair.
        let ready = current(ring, reports, &successor)
            .is_some_and(|report| report.behind == 0 && report.unheld == 0);
        (linked(&owner) && linked(&successor) && ready).then_some(RingCommand::HandOver(
            HandOver::Begin {
                owner,
                successor,
                slots,
            },
        ))
    })
}

/// Hand-overs that even the owners out: (slot, successor). Who is in maintenance owns nothing where
/// its lists name anybody else.
fn even_owners(ring: &RingState) -> Vec<(Slot, Handle)> {
    let away = |handle: Handle| {
        let mut maintained = ring.maintenance.keys();
        maintained.any(|node| {
            ring.members
                .get(node)
                .is_some_and(|one| one.handle == handle)
        })
    };
    // Whoever is down is given nothing; once it is up again, owners are evened out anew.
    let up = |handle: Handle| {
        let member = ring.by_handle(handle);
        member.is_some_and(|member| member.availability == annulus_ring::Availability::Up)
    };
    let mut candidates = ring.candidates();
    candidates.retain(|candidate| !away(candidate.handle) && up(candidate.handle));
    let mut pinned = ring.rules().owners;
    pinned.retain(|pin| !away(pin.handle) && up(pin.handle));
    place::even_owners_with(&ring.slots, &candidates, &pinned)
}

/// The next wave that takes ranges from a member in maintenance: it does not wait for a transition,
/// but leaves alone what that moves.
fn maintenance_wave(ring: &RingState, reports: &Reports, now_ms: u64) -> Option<RingCommand> {
    if ring.maintenance.is_empty() || !ring.founded {
        return None;
    }
    let leads = |slot: Slot| ring.slots.list(slot).first().copied();
    let maintained: BTreeSet<Handle> = ring
        .maintenance
        .keys()
        .filter_map(|node| Some(ring.members.get(node)?.handle))
        .collect();
    let leaves = |slot: Slot| {
        let owned = leads(slot).is_some_and(|owner| maintained.contains(&owner));
        owned && ring.sets(slot).step.is_none()
    };
    // Cheap, and all that is looked at while the rest moves.
    if !ring.slots.slots().any(leaves) {
        return None;
    }
    let hand_overs = even_owners(ring)
        .into_iter()
        .filter(|(slot, _)| leaves(*slot))
        .filter_map(|(slot, successor)| Some((slot, leads(slot)?, successor)));
    next_wave(ring, reports, now_ms, hand_overs)
}

/// Evens the owners out when nothing else runs: hand-overs inside unchanged lists.
fn evening(ring: &RingState, reports: &mut Reports, now_ms: u64) -> Option<RingCommand> {
    if !ring.founded || reports.is_even(ring) {
        return None;
    }
    let wanted = even_owners(ring);
    if wanted.is_empty() {
        reports.note_even(ring);
        return None;
    }
    let hand_overs = wanted
        .into_iter()
        .filter_map(|(slot, successor)| Some((slot, *ring.slots.list(slot).first()?, successor)));
    next_wave(ring, reports, now_ms, hand_overs)
}

/// Copies that were permitted and that their node no longer keeps.
fn released(ring: &RingState, reports: &Reports) -> Option<RingCommand> {
    ring.retained.iter().find_map(|copies| {
        let report = current(ring, reports, &copies.node)?;
        let kept = report.retained.as_ref()?;
        if report.adopted < copies.since_epoch || report.incarnation != copies.incarnation {
            return None;
        }
        let still: BTreeSet<Slot> = kept
            .get(&copies.session)
            .into_iter()
            .flatten()
            .copied()
            .collect();
        let slots: Vec<Slot> = copies.permitted.difference(&still).copied().collect();
        (!slots.is_empty()).then(|| RingCommand::Released {
            copies: copy_set(copies, slots),
        })
    })
}

fn copy_set(copies: &crate::RetainedCopies, slots: Vec<Slot>) -> CopySet {
    CopySet {
        node: copies.node.clone(),
        incarnation: copies.incarnation,
        session: copies.session,
        slots,
    }
}

/// Copies whose grace is over and whose read set has proven to hold the range.
fn permit(
    state: &State,
    ring: &RingState,
    reports: &mut Reports,
    now_ms: u64,
) -> Option<RingCommand> {
    for copies in &ring.retained {
        if copies.kept.is_empty() || !grace_over(state, ring, copies) {
            continue;
        }
        if ring.config.is_cache() && ring.held.is_none() {
            return Some(RingCommand::Permit {
                copies: copy_set(copies, copies.kept.iter().copied().collect()),
                evidence: Vec::new(),
            });
        }
        let proofs: Vec<SlotEvidence> = copies
            .kept
            .iter()
            .filter_map(|slot| verified(ring, reports, *slot, copies.since_epoch))
            .collect();
        let enough = proofs.len() == copies.kept.len() || proofs.len() >= PERMIT_BATCH;
        if ring.held.is_some()
            || proofs.is_empty()
            || !(enough || reports.permit_waited(now_ms, PERMIT_PAUSE_MS))
        {
            continue;
        }
        reports.note_permit(now_ms);
        let slots = proofs.iter().map(|proof| proof.slot).collect();
        return Some(RingCommand::Permit {
            copies: copy_set(copies, slots),
            evidence: proofs,
        });
    }
    None
}

pub(crate) fn grace_over(state: &State, ring: &RingState, copies: &crate::RetainedCopies) -> bool {
    copies.since_ms + ring.config.grace_ms <= state.ring_time_ms
}

/// Whether a member's copy was not found equal to its owner's since `since`. The owner's own is.
pub(crate) fn differs(
    ring: &RingState,
    reports: &Reports,
    slot: Slot,
    node: &NodeId,
    since: Epoch,
) -> bool {
    let equal = || {
        let owner = ring.by_handle(*ring.slots.list(slot).first()?)?;
        if owner.node_id == *node {
            return Some(true);
        }
        let report = current(ring, reports, node)?;
        let of_owner = current(ring, reports, &owner.node_id)?;
        let cut = equal_live(of_owner, report, node, slot, since)?;
        Some(cut.reign == ring.reigns[slot.index()])
    };
    equal() != Some(true)
}

/// The read set's proof that it holds a slot, younger than `since`.
fn verified(ring: &RingState, reports: &Reports, slot: Slot, since: Epoch) -> Option<SlotEvidence> {
    let list = ring.slots.list(slot);
    if ring.sets(slot).step.is_some() || list.is_empty() {
        return None;
    }
    let mut members = Vec::new();
    for handle in list {
        let member = ring.by_handle(*handle)?;
        let report = current(ring, reports, &member.node_id)?;
        if !report.linked || report.adopted < since {
            return None;
        }
        if differs(ring, reports, slot, &member.node_id, since) {
            return None;
        }
        members.push(NodeEvidence {
            node: member.node_id.clone(),
            incarnation: member.incarnation,
            session: annulus_ring::SessionId(0),
            acked_epoch: report.adopted,
            hit_permille: None,
        });
    }
    members.sort_by(|one, other| one.node.cmp(&other.node));
    Some(SlotEvidence { slot, members })
}
