//! Plans: made by the leader, who has heard what nodes hold; kept by everybody.

use annulus_membership::{
    Change, Held, Plan, PlanId, Rejection, RingCommand, RingState,
    plan::{
        Base, Facts, Load, NodeOutlook, Outlook, PairOutlook, Undo, WayBack, ZoneOutlook, outlook,
    },
    plan_command,
};
use annulus_proto::{
    convert,
    snapshot::{Expect, verify_and_decode},
    v1,
};
use annulus_ring::{Handle, NodeId, Snapshot};

use super::{
    admin::{Admin, answer, request_id_of, unknown_ring},
    changes,
    pass_on::{Call, Place, admin_of, passed},
    status::ApiError,
};

/// Where the row of undoing by a new change stands: step 8, settled, is the end.
const SETTLED: u32 = 8;

impl Admin {
    pub(super) async fn plan(
        &self,
        call: Call,
        request: v1::MakePlanRequest,
    ) -> Result<v1::MutationResponse, ApiError> {
        let request_id = request_id_of(&request.request_id)?;
        let ring = convert::ring_name("ring", &request.ring)?;
        let planned: Vec<Change> = request
            .changes
            .iter()
            .cloned()
            .map(changes::change)
            .collect::<Result<_, _>>()?;
        // The leader has applied everything: what it plans on is what it commits on.
        if let Place::Leader(leader) = call.place(&self.context).await? {
            let mut client = admin_of(&self.context, &leader.endpoint)?;
            let answer = client.make_plan(call.pass_on(request));
            return passed(call, &leader, true, answer).await;
        }
        let base = self.context.node.shared().read(|state, _| {
            if let Some(outcome) = state.answer(request_id) {
                return Err(answer(outcome.clone()));
            }
            // A target takes a while: it is computed beside the log, and refused if that went on.
            let base = state.rings.get(&ring).cloned();
            base.ok_or_else(|| Err(unknown_ring(&ring)))
        });
        let base = match base {
            Ok(base) => base,
            Err(answer) => return answer,
        };
        let name = ring.clone();
        let command = computed(move || plan_command(&name, &base, &planned)).await??;
        self.propose(call, request_id, ring, command).await
    }

    pub(super) async fn end_plan(
        &self,
        call: Call,
        request: v1::PlanRequest,
        command: fn(PlanId) -> RingCommand,
    ) -> Result<v1::MutationResponse, ApiError> {
        let command = command(PlanId(request.plan_id));
        self.change(call, &request.request_id, &request.ring, command)
            .await
    }

    pub(super) async fn plans(
        &self,
        call: Call,
        request: v1::ListPlansRequest,
    ) -> Result<v1::ListPlansResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let freshness = self.freshness(call, request.mode).await?;
        let plans = self.context.node.shared().read(|state, _| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            let plans = ring.plans.iter();
            Ok::<_, ApiError>(plans.map(|(id, plan)| head(ring, *id, plan)).collect())
        })?;
        Ok(v1::ListPlansResponse {
            freshness: Some(freshness),
            plans,
        })
    }

    pub(super) async fn show_plan(
        &self,
        call: Call,
        request: v1::GetPlanRequest,
    ) -> Result<v1::GetPlanResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let (place, freshness) = self.place(call, request.mode).await?;
        if let Place::Leader(leader) = place {
            let mut client = admin_of(&self.context, &leader.endpoint)?;
            let answer = client.get_plan(call.pass_on(request));
            return passed(call, &leader, false, answer).await;
        }
        let id = PlanId(request.plan_id);
        let (ring, kept) = self.context.node.shared().read(|state, shelf| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            let plan = ring
                .plans
                .get(&id)
                .ok_or(Rejection::UnknownPlan { plan: id })?;
            // What the ring has become says nothing of what it was.
            let moved_on = plan.base_layout_epoch != ring.layout_epoch;
            let kept = moved_on.then(|| shelf.get(&name, plan.base_layout_epoch));
            Ok::<_, ApiError>((ring.clone(), kept))
        })?;
        let facts = self
            .context
            .links
            .while_leading(&name, |reports| reports.map(Facts::of));
        let plan = computed(move || {
            let base = kept.map(|bytes| {
                let expect = Expect {
                    cluster_id: None,
                    ring: &name,
                    held: None,
                };
                verify_and_decode(&bytes?, expect).ok()
            });
            status(&ring, id, base.as_ref(), facts.as_ref(), &request)
        })
        .await?;
        Ok(v1::GetPlanResponse {
            freshness: Some(freshness),
            plan,
        })
    }
}

/// Runs what takes the processor for a while.
async fn computed<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::Stopping(error.to_string()))
}

/// What every view of a plan has.
fn head(ring: &RingState, id: PlanId, plan: &Plan) -> v1::PlanStatus {
    v1::PlanStatus {
        id: id.0,
        changes: plan.changes.iter().map(changes::message).collect(),
        base_layout_epoch: plan.base_layout_epoch.0,
        layout_epoch: ring.layout_epoch.0,
        assigner_version: plan.assigner_version,
        created_at_ms: plan.created_at_ms,
        committed: plan.committed.iter().map(|change| change.0).collect(),
        changed_ranges: count(plan.target.len()),
        slot_bits: ring.config.slot_bits.into(),
        ..v1::PlanStatus::default()
    }
}

/// `moved_on`: the ring has another layout by now; its snapshot of the plan's, if that is kept.
fn status(
    ring: &RingState,
    id: PlanId,
    moved_on: Option<&Option<Snapshot>>,
    facts: Option<&Facts>,
    request: &v1::GetPlanRequest,
) -> Option<v1::PlanStatus> {
    let plan = ring.plans.get(&id)?;
    let base = match moved_on {
        None => Some(Base::of(ring)),
        Some(kept) => kept.as_ref().map(Base::of_snapshot),
    };
    let limit = request.copy_bytes_per_second.filter(|limit| *limit > 0);
    let outlook = base
        .as_ref()
        .map(|base| outlook(base, plan, ring, facts, limit));
    Some(v1::PlanStatus {
        outlook: outlook.map(|outlook| outlook_message(ring, outlook)),
        lists: if request.lists {
            lists(plan, base.as_ref())
        } else {
            Vec::new()
        },
        ..head(ring, id, plan)
    })
}

fn lists(plan: &Plan, base: Option<&Base<'_>>) -> Vec<v1::PlannedList> {
    let name = |handle: &Handle| -> String {
        let holder = plan.holders.iter().find(|holder| holder.handle == *handle);
        let holder = holder.map(|holder| &holder.node);
        let node: Option<&NodeId> = holder.or_else(|| base?.node(*handle));
        node.map(ToString::to_string).unwrap_or_default()
    };
    let change = |change: &annulus_ring::SlotChange| v1::PlannedList {
        slot: change.slot.0,
        before: base
            .map(|base| base.list(change.slot).iter().map(name).collect())
            .unwrap_or_default(),
        after: change.to.iter().map(name).collect(),
    };
    plan.target.iter().map(change).collect()
}

fn outlook_message(ring: &RingState, outlook: Outlook) -> v1::PlanOutlook {
    v1::PlanOutlook {
        changed_ranges: outlook.changed_ranges,
        copies: outlook.copies,
        copied: outlook.copied.map(amount),
        pairs: outlook.pairs.into_iter().map(pair).collect(),
        nodes: outlook.nodes.into_iter().map(node).collect(),
        zones: outlook.zones.into_iter().map(zone).collect(),
        short_ranges_before: outlook.spread.short_before,
        short_ranges_after: outlook.spread.short_after,
        unspread_ranges_before: outlook.spread.unspread_before,
        unspread_ranges_after: outlook.spread.unspread_after,
        leaving_hand_overs: outlook.hand_overs.leaving,
        leaving_waves: outlook.hand_overs.leaving_waves,
        evening_hand_overs: outlook.hand_overs.evening,
        copy_ms: outlook.copy_ms,
        soak_ms: ring.config.soak_ms,
        grace_ms: ring.config.grace_ms,
        undo: outlook.undo.into_iter().map(undo).collect(),
        unknown: outlook.unknown.iter().map(ToString::to_string).collect(),
        warnings: outlook.warnings,
    }
}

fn amount(held: Held) -> v1::Amount {
    v1::Amount {
        bytes: held.bytes,
        keys: held.keys,
    }
}

fn pair(pair: PairOutlook) -> v1::PlanPair {
    v1::PlanPair {
        source: pair.source.to_string(),
        gainer: pair.gainer.to_string(),
        ranges: pair.ranges,
        amount: pair.estimate.map(amount),
        crosses_zones: pair.crosses_zones,
    }
}

fn load(load: Load) -> v1::PlanLoad {
    v1::PlanLoad {
        ranges: load.ranges,
        owned: load.owned,
        share_ppm: load.share_ppm,
        held: load.held.map(amount),
    }
}

fn node(node: NodeOutlook) -> v1::PlanNode {
    v1::PlanNode {
        node: node.node.to_string(),
        zone: node.zone.to_string(),
        weight_before: node.weight_before,
        weight_after: node.weight_after,
        before: Some(load(node.before)),
        after: Some(load(node.after)),
        gained: node.gained,
        gained_amount: node.gained_estimate.map(amount),
        lost: node.lost,
        retained: node.retained,
        peak_bytes: node.peak_bytes,
        free_bytes: node.free_bytes,
        lacking_bytes: node.lacking_bytes,
        copy_bytes_per_second: node.copy_bytes_per_second,
        copy_ms: node.copy_ms,
    }
}

fn zone(zone: ZoneOutlook) -> v1::PlanZone {
    v1::PlanZone {
        zone: zone.zone.to_string(),
        nodes_before: zone.nodes_before,
        nodes_after: zone.nodes_after,
        weight_before: zone.weight_before,
        weight_after: zone.weight_after,
        ranges_before: zone.ranges_before,
        ranges_after: zone.ranges_after,
        copies_in: zone.copies_in,
    }
}

fn undo(undo: Undo) -> v1::PlanUndo {
    let step = match (undo.step, undo.way) {
        (Some(step), _) => u32::from(step.number()),
        (None, WayBack::NewChange) => SETTLED,
        (None, WayBack::Drop | WayBack::Abort | WayBack::FlipBack) => 0,
    };
    v1::PlanUndo {
        step,
        way: undo.way.as_str().to_owned(),
        copies: undo.copies,
        wasted: undo.wasted.map(amount),
        words: undo.words,
    }
}

fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
