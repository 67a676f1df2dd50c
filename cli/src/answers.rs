//! From the admin service's answers to the forms that are printed.

use annulus_proto::{convert, v1};

use crate::{
    args::slots,
    views::{
        ChangeView, ClusterView, EpochCountView, FreshnessView, NodeView, PinView, RingView,
        ServerView, TransitionView, WarmUpView, WaveView,
    },
};

impl From<v1::Freshness> for FreshnessView {
    fn from(freshness: v1::Freshness) -> Self {
        let v1::Freshness {
            server_id,
            applied_index,
            age_ms,
            linearizable,
        } = freshness;
        Self {
            server_id: server_id.into(),
            applied_index: applied_index.into(),
            linearizable,
            age_ms: age_ms.into(),
        }
    }
}

impl From<v1::ClusterStatus> for ClusterView {
    fn from(status: v1::ClusterStatus) -> Self {
        let led = status.leader_id != 0;
        let server = |server: v1::cluster_status::Server| ServerView {
            id: server.id.into(),
            endpoint: server.endpoint,
            voter: server.voter,
            matched_index: server.matched_index.map(Into::into),
            heard_ms_ago: server.heard_ms_ago.map(Into::into),
            trouble: server.trouble,
        };
        Self {
            cluster_id: hex::encode(&status.cluster_id),
            freshness: status.freshness.unwrap_or_default().into(),
            leader_id: led.then(|| status.leader_id.into()),
            leader_endpoint: Some(status.leader_endpoint).filter(|endpoint| !endpoint.is_empty()),
            term: status.term.into(),
            last_log_index: status.last_log_index.into(),
            watchers: status.watchers,
            servers: status.servers.into_iter().map(server).collect(),
            rings: status.rings.into_iter().map(RingView::from).collect(),
        }
    }
}

impl From<v1::RingStatus> for RingView {
    fn from(ring: v1::RingStatus) -> Self {
        let counts = |counts: Vec<v1::EpochCount>| {
            let view = |at: v1::EpochCount| EpochCountView {
                epoch: at.epoch.into(),
                count: at.count,
            };
            counts.into_iter().map(view).collect()
        };
        Self {
            ring: ring.ring,
            generation: ring.generation.into(),
            epoch: ring.epoch.into(),
            layout_epoch: ring.layout_epoch.into(),
            checksum: hex::encode(&ring.checksum),
            slot_bits: ring.slot_bits,
            hash: ring.hash,
            seed: ring.seed.into(),
            rf: ring.rf,
            w: ring.w,
            r: ring.r,
            kind: ring.kind,
            warm_up: ring.warm_up.map(|one| WarmUpView {
                limit_ms: one.limit_ms.into(),
                hit_ratio_permille: one.hit_ratio_permille,
            }),
            serve_when_isolated: ring.serve_when_isolated,
            converting_since_epoch: ring.converting_since_epoch.into(),
            converted_epoch: ring.converted_epoch.into(),
            soak_ms: ring.soak_ms.into(),
            paused: ring.paused,
            held: ring.held,
            grace_ms: ring.grace_ms.into(),
            pins: ring.pins.into_iter().map(PinView::from).collect(),
            founded: ring.founded,
            nodes: ring.nodes.into_iter().map(NodeView::from).collect(),
            changes: ring.changes.into_iter().map(ChangeView::from).collect(),
            transition: ring.transition.map(TransitionView::from),
            wave: ring.wave.map(WaveView::from),
            short_ranges: ring.short_ranges,
            unspread_ranges: ring.unspread_ranges,
            retained_copies: ring.retained_copies,
            warnings: ring.warnings,
            watchers_at: counts(ring.watchers_at),
            nodes_at: counts(ring.nodes_at),
        }
    }
}

impl From<v1::NodeStatus> for NodeView {
    fn from(node: v1::NodeStatus) -> Self {
        let state = match (node.member, convert::member_state("state", node.state)) {
            (false, _) => "registered",
            (true, Ok(Some(state))) => state.as_str(),
            // A server newer than this command: it is something, and not serving.
            (true, Ok(None) | Err(_)) => "unknown",
        };
        Self {
            state: state.to_owned(),
            down: node.availability == i32::from(v1::Availability::Down),
            node: node.node_id,
            incarnation: node.incarnation.into(),
            zone: node.zone,
            weight: node.weight,
            endpoint: node.endpoint,
            member: node.member,
            replica_ranges: node.replica_ranges,
            owned_ranges: node.owned_ranges,
            linked: node.linked,
            heard_ms_ago: node.heard_ms_ago.map(Into::into),
            adopted_epoch: node.adopted_epoch.map(Into::into),
            word: node.word,
            maintenance_left_ms: node.maintenance_left_ms.map(Into::into),
        }
    }
}

impl From<v1::ChangeStatus> for ChangeView {
    fn from(change: v1::ChangeStatus) -> Self {
        let state = match v1::ChangeState::try_from(change.state) {
            Ok(v1::ChangeState::Queued) => "queued",
            Ok(v1::ChangeState::Running) => "running",
            Ok(v1::ChangeState::Done) => "done",
            Ok(v1::ChangeState::Aborted) => "aborted",
            Ok(v1::ChangeState::Refused) => "refused",
            Ok(v1::ChangeState::Unspecified) | Err(_) => "unknown",
        };
        let v1::ChangeStatus {
            id,
            kind,
            node,
            reason,
            about,
            ..
        } = change;
        Self {
            id: id.into(),
            kind,
            node,
            about,
            state,
            reason,
        }
    }
}

impl From<v1::PinStatus> for PinView {
    fn from(pin: v1::PinStatus) -> Self {
        let v1::PinStatus { node, owner, slots } = pin;
        let slots = slots::told(&slots);
        Self { node, owner, slots }
    }
}

impl From<v1::TransitionStatus> for TransitionView {
    fn from(transition: v1::TransitionStatus) -> Self {
        Self {
            id: transition.id.into(),
            step: transition.step,
            step_name: Self::name_of(transition.step),
            changed_ranges: transition.changed_ranges,
            copies: transition.copies,
            copied: transition.copied,
            verified: transition.verified,
            copied_bytes: transition.copied_bytes.into(),
            waiting_for: transition.waiting_for.into_iter().map(object).collect(),
            changes: transition.changes.into_iter().map(Into::into).collect(),
        }
    }
}

/// What is waited for: the label or the sentence around it already says "waits for".
fn object(sentence: String) -> String {
    sentence
        .strip_prefix("waiting for ")
        .map_or(sentence.clone(), str::to_owned)
}

impl From<v1::WaveStatus> for WaveView {
    fn from(wave: v1::WaveStatus) -> Self {
        let v1::WaveStatus {
            id,
            owner,
            successor,
            ranges,
        } = wave;
        Self {
            id: id.into(),
            owner,
            successor,
            ranges,
        }
    }
}
