//! State and soft state as operators see them.

use std::collections::BTreeMap;

use annulus_membership::{
    ChangePhase, ChangeRecord, NodeReport, PinKind, Reports, RingCommand, RingState, Spans, State,
    TransitionState, waiting_for,
};
use annulus_proto::{convert, v1};
use annulus_ring::{NodeId, RingName, Slot, Step};

use crate::context::Context;

/// One ring. What only the leader knows is absent elsewhere.
pub(super) fn ring(
    context: &Context,
    state: &State,
    name: &RingName,
    ring: &RingState,
    freshness: v1::Freshness,
) -> v1::RingStatus {
    let now_ms = context.clock.now_ms();
    context.links.while_leading(name, |reports| {
        // Before it is founded nothing is missing: no list was ever made.
        let shortfall = if ring.founded {
            ring.shortfall()
        } else {
            annulus_ring::place::Shortfall::default()
        };
        let replication = ring.config.replication;
        let waiting = reports.map(|reports| waiting_for(state, ring, reports, now_ms));
        let mut warnings = ring.warnings();
        if ring.transition.is_none() {
            // A wave without a transition evens the owners out; it has no other place to show.
            warnings.extend(waiting.clone().unwrap_or_default());
        }
        v1::RingStatus {
            ring: name.to_string(),
            generation: ring.generation.0,
            epoch: ring.epoch.0,
            layout_epoch: ring.layout_epoch.0,
            checksum: convert::checksum_bytes(ring.checksum),
            slot_bits: ring.config.slot_bits.into(),
            hash: ring.config.hash.to_string(),
            seed: ring.config.seed,
            rf: replication.rf.into(),
            w: replication.w.into(),
            r: replication.r.into(),
            founded: ring.founded,
            nodes: nodes(ring, state.ring_time_ms, reports, now_ms),
            changes: ring
                .changes
                .iter()
                .map(|(id, record)| change(id.0, record))
                .collect(),
            transition: ring
                .transition
                .as_ref()
                .map(|running| transition(ring, running, reports, waiting.unwrap_or_default())),
            wave: ring.wave.as_ref().map(|wave| v1::WaveStatus {
                id: wave.id.0,
                owner: wave.owner.to_string(),
                successor: wave.successor.to_string(),
                ranges: count(wave.slots.len()),
            }),
            short_ranges: shortfall.short,
            unspread_ranges: shortfall.unspread,
            warnings,
            freshness: Some(freshness),
            retained_copies: count(
                ring.retained
                    .iter()
                    .map(|held| held.kept.len() + held.permitted.len())
                    .sum(),
            ),
            watchers_at: context
                .watchers
                .by_epoch(name)
                .into_iter()
                .map(|(epoch, count)| v1::EpochCount {
                    epoch: epoch.0,
                    count,
                })
                .collect(),
            nodes_at: nodes_at(ring, reports),
            soak_ms: ring.config.soak_ms,
            grace_ms: ring.config.grace_ms,
            paused: ring.paused.as_ref().map(|brake| brake.reason.clone()),
            held: ring.held.as_ref().map(|brake| brake.reason.clone()),
            pins: pins(ring),
            kind: ring.config.kind.to_string(),
            warm_up: (!ring.config.warm_up.is_none()).then(|| v1::WarmUp {
                limit_ms: ring.config.warm_up.limit_ms(),
                hit_ratio_permille: ring
                    .config
                    .warm_up
                    .hit_ratio_permille()
                    .map_or(0, u32::from),
            }),
            serve_when_isolated: ring.config.serve_when_isolated,
            converting_since_epoch: ring.conversion.as_ref().map_or(0, |one| one.begun.0),
            converted_epoch: ring.converted.0,
        }
    })
}

fn pins(ring: &RingState) -> Vec<v1::PinStatus> {
    let status = |((node, kind), slots): ((&NodeId, PinKind), Spans)| v1::PinStatus {
        node: node.to_string(),
        owner: kind == PinKind::Owner,
        slots: slots
            .0
            .iter()
            .map(|(first, last)| v1::SlotSpan {
                first: first.0,
                last: last.0,
            })
            .collect(),
    };
    ring.pins.by_node().into_iter().map(status).collect()
}

/// Members by the epoch they adopted, sorted; 0: nothing said on a link to this leader.
pub(crate) fn adopted(ring: &RingState, reports: &Reports) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for member in ring.members.values() {
        let report = reports.node(&member.node_id);
        let report = report.filter(|report| report.incarnation == member.incarnation);
        *counts
            .entry(report.map_or(0, |report| report.adopted.0))
            .or_default() += 1;
    }
    counts
}

fn nodes_at(ring: &RingState, reports: Option<&Reports>) -> Vec<v1::EpochCount> {
    let counts = reports
        .map(|reports| adopted(ring, reports))
        .unwrap_or_default();
    counts
        .into_iter()
        .map(|(epoch, count)| v1::EpochCount { epoch, count })
        .collect()
}

/// Registered nodes and members, by id.
fn nodes(
    ring: &RingState,
    ring_time_ms: u64,
    reports: Option<&Reports>,
    now_ms: u64,
) -> Vec<v1::NodeStatus> {
    let left_ms = |node: &NodeId| {
        let maintenance = ring.maintenance.get(node)?;
        Some(maintenance.until_ms.saturating_sub(ring_time_ms))
    };
    let shares = ring.shares();
    let mut nodes: Vec<v1::NodeStatus> = ring
        .members
        .values()
        .map(|member| {
            let (replicas, owned) = shares.get(&member.node_id).copied().unwrap_or_default();
            v1::NodeStatus {
                node_id: member.node_id.to_string(),
                incarnation: member.incarnation.0,
                zone: member.zone.to_string(),
                weight: member.weight.get(),
                endpoint: member.endpoint.to_string(),
                state: v1::MemberState::from(member.state).into(),
                availability: v1::Availability::from(member.availability).into(),
                member: true,
                replica_ranges: replicas,
                owned_ranges: owned,
                maintenance_left_ms: left_ms(&member.node_id),
                ..v1::NodeStatus::default()
            }
        })
        .collect();
    let strangers = ring
        .roster
        .iter()
        .filter(|(node, _)| !ring.members.contains_key(*node));
    nodes.extend(strangers.filter_map(|(node, entry)| {
        let registered = entry.registered.as_ref()?;
        Some(v1::NodeStatus {
            node_id: node.to_string(),
            incarnation: registered.incarnation.0,
            zone: registered.zone.to_string(),
            weight: registered.weight.get(),
            endpoint: registered.endpoint.to_string(),
            ..v1::NodeStatus::default()
        })
    }));
    nodes.sort_by(|a, b| a.node_id.cmp(&b.node_id));
    if let Some(reports) = reports {
        for node in &mut nodes {
            let report = NodeId::new(&node.node_id)
                .ok()
                .and_then(|id| reports.node(&id));
            let report = report.filter(|report| report.incarnation.0 == node.incarnation);
            node.linked = Some(report.is_some_and(|report| report.linked));
            node.heard_ms_ago = report.map(|report| now_ms.saturating_sub(report.heard_ms));
            node.adopted_epoch = report.map(|report| report.adopted.0);
            let member = ring
                .members
                .values()
                .find(|member| member.node_id.as_str() == node.node_id);
            node.word = member.map(|member| {
                let word = reports.word(member, now_ms).as_str();
                let maintained = ring.maintenance.contains_key(&member.node_id);
                if maintained { "maintenance" } else { word }.to_owned()
            });
        }
    }
    nodes
}

pub(super) fn change(id: u64, record: &ChangeRecord) -> v1::ChangeStatus {
    let (state, reason) = match &record.phase {
        ChangePhase::Queued => (v1::ChangeState::Queued, String::new()),
        ChangePhase::Running(_) => (v1::ChangeState::Running, String::new()),
        ChangePhase::Done => (v1::ChangeState::Done, String::new()),
        ChangePhase::Aborted => (v1::ChangeState::Aborted, String::new()),
        ChangePhase::Refused(rejection) => (v1::ChangeState::Refused, rejection.to_string()),
    };
    v1::ChangeStatus {
        id,
        kind: record.change.kind().to_owned(),
        node: record
            .change
            .node()
            .map(ToString::to_string)
            .unwrap_or_default(),
        about: record.change.about(),
        state: state.into(),
        reason,
    }
}

pub(super) fn transition(
    ring: &RingState,
    running: &TransitionState,
    reports: Option<&Reports>,
    waiting_for: Vec<String>,
) -> v1::TransitionStatus {
    let progress = progress(ring, running, reports);
    v1::TransitionStatus {
        id: running.id.0,
        step: running.step.number().into(),
        changed_ranges: count(running.target.len()),
        copies: progress.copies,
        copied: progress.copied,
        verified: progress.verified,
        copied_bytes: progress.copied_bytes,
        waiting_for,
        changes: running.changes.iter().map(|change| change.0).collect(),
    }
}

/// How far the copying of a transition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// One per gainer and range.
    pub(crate) copies: u32,
    /// With a complete-copy marker.
    pub(crate) copied: u32,
    /// With the source's digest at the same cut.
    pub(crate) verified: u32,
    /// Payload, in bytes.
    pub(crate) copied_bytes: u64,
}

/// Counts copies; without reports only what the step implies.
pub(crate) fn progress(
    ring: &RingState,
    running: &TransitionState,
    reports: Option<&Reports>,
) -> Progress {
    let mut progress = Progress::default();
    let speaks = |node: &NodeId| -> Option<&NodeReport> {
        let report = reports?.node(node)?;
        let member = ring.members.get(node)?;
        (report.incarnation == member.incarnation).then_some(report)
    };
    for slot in running.target.keys() {
        let sets = ring.sets(*slot);
        let source = sets.old.first().and_then(|owner| ring.by_handle(*owner));
        for gainer in sets.gainers() {
            progress.copies += 1;
            let Some(gainer) = ring.by_handle(gainer) else {
                continue;
            };
            let there = speaks(&gainer.node_id);
            let from = source.and_then(|source| speaks(&source.node_id));
            progress.copied +=
                u32::from(running.step > Step::Copying || is_copied(running, there, *slot));
            progress.verified += u32::from(
                running.step >= Step::Verified
                    || is_verified(running, there, from, *slot, &gainer.node_id),
            );
        }
    }
    for report in ring.members.keys().filter_map(speaks) {
        progress.copied_bytes += report.copied_bytes;
    }
    progress
}

fn is_copied(running: &TransitionState, gainer: Option<&NodeReport>, slot: Slot) -> bool {
    let standing = gainer.and_then(|report| report.slots.get(&(running.session(), slot)));
    standing.is_some_and(|standing| standing.copied.is_some())
}

fn is_verified(
    running: &TransitionState,
    gainer: Option<&NodeReport>,
    source: Option<&NodeReport>,
    slot: Slot,
    node: &NodeId,
) -> bool {
    let session = running.session();
    let (Some(gainer), Some(source)) = (gainer, source) else {
        return false;
    };
    let here = gainer
        .slots
        .get(&(session, slot))
        .and_then(|standing| standing.digest.as_ref());
    let there = source.source_digests.get(&(session, slot, node.clone()));
    match (here, there) {
        (Some(here), Some(there)) => here.cut == there.cut && here.digest == there.digest,
        _ => false,
    }
}

/// The whole cluster, as this server sees it; `troubles` by server id.
pub(super) fn cluster(
    context: &Context,
    rings: Vec<v1::RingStatus>,
    freshness: v1::Freshness,
    mut troubles: BTreeMap<u64, String>,
) -> v1::ClusterStatus {
    let standing = context.node.standing();
    let answered = context.node.answered();
    let cluster_id = context.node.shared().read(|state, _| state.cluster_id);
    let leader = standing.leader.as_ref();
    v1::ClusterStatus {
        freshness: Some(freshness),
        cluster_id: cluster_id
            .map(|id| convert::id128_bytes(id.0))
            .unwrap_or_default(),
        leader_id: leader.map_or(0, |leader| leader.id),
        leader_endpoint: leader
            .map(|leader| leader.endpoint.clone())
            .unwrap_or_default(),
        term: standing.term,
        servers: standing
            .servers
            .iter()
            .map(|(id, server)| v1::cluster_status::Server {
                id: *id,
                endpoint: server.endpoint.clone(),
                voter: server.voter,
                matched_index: server.matched,
                heard_ms_ago: answered
                    .get(id)
                    .map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
                trouble: troubles.remove(id),
            })
            .collect(),
        rings,
        last_log_index: standing.last_log_index.unwrap_or(0),
        watchers: context.watchers.count(),
    }
}

/// A command's name, for logs and counters.
pub(crate) fn kind(command: &RingCommand) -> &'static str {
    match command {
        RingCommand::Create { .. } => "create",
        RingCommand::Found { .. } => "found",
        RingCommand::Register(_) => "register",
        RingCommand::SetEndpoint { .. } => "set_endpoint",
        RingCommand::Change { change, .. } => change.kind(),
        RingCommand::ChangeBySteps { change, .. } => change.kind(),
        RingCommand::Convert { .. } => "convert",
        RingCommand::FinishConversion { .. } => "finish_conversion",
        RingCommand::AbortConversion { .. } => "abort_conversion",
        RingCommand::Start { .. } => "start",
        RingCommand::Advance { .. } => "advance",
        RingCommand::HandOver(_) => "hand_over",
        RingCommand::Abort { .. } => "abort",
        RingCommand::Availability { .. } => "availability",
        RingCommand::Maintain { .. } => "maintain",
        RingCommand::Pause { .. } => "pause",
        RingCommand::Hold { .. } => "hold",
        RingCommand::AutoRemove { .. } => "auto_remove",
        RingCommand::Settle => "settle",
        RingCommand::Replan { .. } => "replan",
        RingCommand::Permit { .. } => "permit",
        RingCommand::Released { .. } => "released",
        RingCommand::StorePlan { .. } => "store_plan",
        RingCommand::CommitPlan { .. } => "commit_plan",
        RingCommand::DropPlan { .. } => "drop_plan",
    }
}

fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
