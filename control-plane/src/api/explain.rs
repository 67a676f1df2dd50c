//! Why things are as they are: where a key lives and what moved it, how far a change is, and why
//! a copy is still kept. Told from the state, the kept epochs and, at the leader, what nodes said.

use std::collections::BTreeSet;

use annulus_membership::{
    Change, ChangeId, ChangePhase, Kept, Rejection, RingState, change_waits, moved, why_kept,
};
use annulus_proto::{
    convert,
    shelf::KeptList,
    snapshot::{Expect, verify_and_decode},
    v1::{self, explain_range_request::What},
};
use annulus_ring::{Handle, NodeId, RingName, Slot, TransitionId};

use super::{
    admin::{Admin, unknown_ring},
    pass_on::{Call, Place, admin_of, passed},
    show,
    status::ApiError,
};

impl Admin {
    pub(super) async fn range_story(
        &self,
        call: Call,
        request: v1::ExplainRangeRequest,
    ) -> Result<v1::ExplainRangeResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let what = convert::required("what", request.what)?;
        let freshness = self.freshness(call, request.mode).await?;
        self.context.node.shared().read(|state, shelf| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            let (hash, slot) = match &what {
                What::Key(key) => {
                    let hash = ring.config.hash.hash(ring.config.seed, key);
                    (Some(hash), Slot::of(hash, ring.config.slot_bits))
                }
                What::Slot(slot) => (None, known_slot(ring, "slot", *slot)?),
            };
            let lists = shelf.lists(&name, slot);
            let oldest = shelf.epochs(&name).first().map_or(0, |kept| kept.1.0);
            let sets = ring.sets(slot);
            let running = ring.transition.as_ref().filter(|_| sets.step.is_some());
            let list = |list: &[Handle]| {
                if running.is_some() {
                    names(ring, list)
                } else {
                    Vec::new()
                }
            };
            Ok(v1::ExplainRangeResponse {
                freshness: Some(freshness),
                epoch: ring.epoch.0,
                hash,
                slot: slot.0,
                slot_bits: ring.config.slot_bits.into(),
                replicas: names(ring, sets.read_set()),
                reign: ring.reigns[slot.index()].0,
                last_change: ring.last_changes[slot.index()].0,
                transition: running.map(|running| running.id.0),
                step: sets.step.map_or(0, |step| step.number().into()),
                old_list: list(sets.old),
                new_list: list(sets.new),
                history: history(ring, &lists),
                oldest_epoch: oldest,
            })
        })
    }

    pub(super) async fn change_story(
        &self,
        call: Call,
        request: v1::ExplainChangeRequest,
    ) -> Result<v1::ExplainChangeResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let (place, freshness) = self.place(call, request.mode).await?;
        if let Place::Leader(leader) = place {
            let mut client = admin_of(&self.context, &leader.endpoint)?;
            let answer = client.explain_change(call.pass_on(request));
            return passed(call, &leader, false, answer).await;
        }
        let id = ChangeId(request.change_id);
        let now_ms = self.context.clock.now_ms();
        let (mut answer, nodes, began) = self.context.node.shared().read(|state, shelf| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            let record = ring
                .changes
                .get(&id)
                .ok_or(Rejection::UnknownChange { change: id })?;
            let runs = matches!(record.phase, ChangePhase::Running(_));
            let running = ring.transition.as_ref().filter(|_| runs);
            let links = &self.context.links;
            let (waiting_for, running) = links.while_leading(&name, |reports| {
                let waits = reports.map(|reports| change_waits(state, ring, reports, id, now_ms));
                let waits = waits.unwrap_or_default();
                // Its sentences are told once, for the change.
                let running =
                    running.map(|running| show::transition(ring, running, reports, Vec::new()));
                (waits, running)
            });
            let (first, end) = match record.transition {
                Some(transition) => shelf.transition(&name, transition),
                None => (None, None),
            };
            let answer = v1::ExplainChangeResponse {
                freshness: Some(freshness),
                change: Some(show::change(id.0, record)),
                transition: record.transition.map(|transition| transition.0),
                together_with: together(ring, record.transition, id),
                running,
                moves: Vec::new(),
                first_epoch: first.map(|epoch| epoch.0),
                end_epoch: end.map(|epoch| epoch.0),
                behind: behind(ring, id, &record.phase),
                waiting_for,
            };
            let began = first.and_then(|epoch| shelf.get(&name, epoch));
            Ok::<_, ApiError>((answer, nodes_of(&record.change), began))
        })?;
        // Its first epoch has the lists of before and those to be.
        if let Some(bytes) = began {
            answer.moves = moves(&name, &bytes, &nodes);
        }
        Ok(answer)
    }

    pub(super) async fn kept_story(
        &self,
        call: Call,
        request: v1::WhyKeptRequest,
    ) -> Result<v1::WhyKeptResponse, ApiError> {
        let name = convert::ring_name("ring", &request.ring)?;
        let node = request.node.as_deref();
        let node = node
            .map(|node| convert::node_id("node", node))
            .transpose()?;
        let (place, freshness) = self.place(call, request.mode).await?;
        if let Place::Leader(leader) = place {
            let mut client = admin_of(&self.context, &leader.endpoint)?;
            let answer = client.why_kept(call.pass_on(request));
            return passed(call, &leader, false, answer).await;
        }
        let copies = self.context.node.shared().read(|state, _| {
            let ring = state.rings.get(&name).ok_or_else(|| unknown_ring(&name))?;
            let slot = request
                .slot
                .map(|slot| known_slot(ring, "slot", slot))
                .transpose()?;
            // Without reports every member counts as not linked, which a local answer says.
            let silent = annulus_membership::Reports::default();
            Ok::<_, ApiError>(self.context.links.while_leading(&name, |reports| {
                let reports = reports.unwrap_or(&silent);
                why_kept(state, ring, reports, node.as_ref(), slot)
            }))
        })?;
        Ok(v1::WhyKeptResponse {
            freshness: Some(freshness),
            copies: copies.into_iter().map(kept).collect(),
        })
    }
}

fn known_slot(ring: &RingState, field: &'static str, slot: u32) -> Result<Slot, ApiError> {
    let limit = ring.slots.slot_count();
    if (slot as usize) < limit {
        return Ok(Slot(slot));
    }
    Err(ApiError::field(
        field,
        format!("{slot}, the ring has {limit} ranges, numbered from 0"),
    ))
}

fn names(ring: &RingState, list: &[Handle]) -> Vec<String> {
    let members = list.iter().filter_map(|handle| ring.by_handle(*handle));
    members.map(|member| member.node_id.to_string()).collect()
}

/// What made each list, as far as that is kept.
fn history(ring: &RingState, lists: &[KeptList]) -> Vec<v1::RangeEvent> {
    let mut before: Option<&KeptList> = None;
    let mut events = Vec::new();
    for kept in lists {
        let (cause, transition) = cause(before, kept);
        let was = before.replace(kept);
        // Before founding nobody holds anything, which is no list.
        if kept.nodes.is_empty() && was.is_none() {
            continue;
        }
        events.push(v1::RangeEvent {
            generation: kept.generation.0,
            epoch: kept.epoch.0,
            created_at_ms: kept.created_at_ms,
            replicas: kept.nodes.iter().map(ToString::to_string).collect(),
            cause: cause.into(),
            transition: transition.map(|transition| transition.0),
            changes: changes_of(ring, transition),
        });
    }
    events
}

fn cause(before: Option<&KeptList>, kept: &KeptList) -> (v1::RangeCause, Option<TransitionId>) {
    let Some(before) = before else {
        return (v1::RangeCause::OldestKept, None);
    };
    if before.nodes.is_empty() {
        return (v1::RangeCause::Founded, None);
    }
    let set = |list: &KeptList| list.nodes.iter().cloned().collect::<BTreeSet<NodeId>>();
    if set(before) == set(kept) {
        (v1::RangeCause::HandOver, kept.transition)
    } else {
        (v1::RangeCause::Transition, kept.transition_before)
    }
}

fn changes_of(ring: &RingState, transition: Option<TransitionId>) -> Vec<v1::ChangeStatus> {
    let Some(transition) = transition else {
        return Vec::new();
    };
    let its = ring
        .changes
        .iter()
        .filter(|(_, record)| record.transition == Some(transition));
    its.map(|(id, record)| show::change(id.0, record)).collect()
}

fn together(ring: &RingState, transition: Option<TransitionId>, id: ChangeId) -> Vec<u64> {
    let Some(transition) = transition else {
        return Vec::new();
    };
    ring.changes
        .iter()
        .filter(|(other, record)| **other != id && record.transition == Some(transition))
        .map(|(other, _)| other.0)
        .collect()
}

/// Changes that go before a queued one, or with it.
fn behind(ring: &RingState, id: ChangeId, phase: &ChangePhase) -> Vec<u64> {
    if *phase != ChangePhase::Queued {
        return Vec::new();
    }
    ring.changes
        .iter()
        .filter(|(other, record)| match record.phase {
            ChangePhase::Running(_) => true,
            ChangePhase::Queued => **other < id,
            ChangePhase::Done | ChangePhase::Aborted | ChangePhase::Refused(_) => false,
        })
        .map(|(other, _)| other.0)
        .collect()
}

fn nodes_of(change: &Change) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = change.node().into_iter().cloned().collect();
    let joiner = change
        .joiner()
        .filter(|joiner| !nodes.contains(joiner))
        .cloned();
    nodes.extend(joiner);
    nodes
}

fn moves(name: &RingName, bytes: &v1::SnapshotBytes, nodes: &[NodeId]) -> Vec<v1::NodeMoves> {
    let expect = Expect {
        cluster_id: None,
        ring: name,
        held: None,
    };
    let Ok(snapshot) = verify_and_decode(bytes, expect) else {
        return Vec::new();
    };
    let Some(transition) = &snapshot.transition else {
        return Vec::new();
    };
    let of = |node: &NodeId| {
        let handle = snapshot.member(node)?.handle;
        let target = transition
            .target
            .iter()
            .map(|change| (change.slot, &change.to));
        let moved = moved(&snapshot.layout.slots, target, handle);
        Some(v1::NodeMoves {
            node: node.to_string(),
            gained: moved.gained,
            lost: moved.lost,
            handed_over: moved.handed_over,
            taken_over: moved.taken_over,
        })
    };
    nodes.iter().filter_map(of).collect()
}

fn kept(kept: Kept) -> v1::KeptCopies {
    v1::KeptCopies {
        node: kept.node.to_string(),
        session: kept.session.0,
        since_epoch: kept.since_epoch.0,
        age_ms: kept.age_ms,
        grace_left_ms: kept.grace_left_ms,
        kept: kept.kept,
        permitted: kept.permitted,
        waits: kept
            .waits
            .into_iter()
            .map(|(lack, ranges)| v1::KeptFor {
                name: lack.name().to_owned(),
                words: lack.words(),
                ranges,
            })
            .collect(),
    }
}
