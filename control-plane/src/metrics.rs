//! One server's counters, in a registry of its own: several servers may live in one process.

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicU64};

use annulus_membership::Outcome;
use annulus_ring::{Endpoint, RingName};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use crate::{api, context::Context, raft::ProposeError};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RingLabel {
    ring: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EpochLabel {
    ring: String,
    epoch: u64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProposalLabel {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeaderLabel {
    endpoint: String,
}

type Numbers<L> = Family<L, Gauge<u64, AtomicU64>>;

/// Counters that are raised where things happen, and gauges that are set when they are read.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    /// Observers that hold another snapshot under an epoch of ours.
    pub(crate) forks: Counter,
    /// Reports of data nodes taken in.
    pub(crate) reports: Counter,
    /// Links refused.
    pub(crate) links_refused: Counter,
    proposals: Family<ProposalLabel, Counter>,
    streams: Family<RingLabel, Gauge>,
    snapshots_sent: Family<RingLabel, Counter>,
    sent_bytes: Family<RingLabel, Counter>,
    read: Read,
}

/// Set from the state each time somebody reads.
#[derive(Debug, Default)]
struct Read {
    leader: Numbers<LeaderLabel>,
    leads: Gauge<u64, AtomicU64>,
    term: Gauge<u64, AtomicU64>,
    applied: Gauge<u64, AtomicU64>,
    behind: Gauge<u64, AtomicU64>,
    links: Gauge<u64, AtomicU64>,
    epoch: Numbers<RingLabel>,
    watchers: Numbers<EpochLabel>,
    nodes: Numbers<EpochLabel>,
    to_copy: Numbers<RingLabel>,
    copied: Numbers<RingLabel>,
    verified: Numbers<RingLabel>,
    moved_bytes: Numbers<RingLabel>,
    short: Numbers<RingLabel>,
    retained: Numbers<RingLabel>,
    step: Numbers<RingLabel>,
}

/// An open stream; counted until dropped.
#[derive(Debug)]
pub(crate) struct StreamGauge(Gauge);

impl Drop for StreamGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("annulus")),
            forks: Counter::default(),
            reports: Counter::default(),
            links_refused: Counter::default(),
            proposals: Family::default(),
            streams: Family::default(),
            snapshots_sent: Family::default(),
            sent_bytes: Family::default(),
            read: Read::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let read = &self.read;
        macro_rules! register {
            ($($name:literal, $help:literal, $metric:expr;)*) => {
                $(registry.register($name, $help, $metric.clone());)*
            };
        }
        register! {
            "forks", "Observers with another snapshot under the same epoch: must stay 0", self.forks;
            "link_reports", "Reports of data nodes taken in", self.reports;
            "links_refused", "Links of data nodes refused", self.links_refused;
            "proposals", "Commands proposed by this server, by kind and outcome", self.proposals;
            "watch_streams", "Watch streams open at this server", self.streams;
            "watch_snapshots_sent", "Snapshots sent to watchers", self.snapshots_sent;
            "leader", "1 for the endpoint that leads, as this server knows it", read.leader;
            "leads", "1 if this server leads", read.leads;
            "term", "Raft's term", read.term;
            "applied_index", "Last log index applied here", read.applied;
            "links", "Links of data nodes open here (leader only)", read.links;
            "epoch", "Newest epoch of a ring here", read.epoch;
            "watchers_at_epoch", "Watchers of this server by the epoch they act by; 0: not said", read.watchers;
            "nodes_at_epoch", "Members by the epoch they adopted (leader only); 0: not heard", read.nodes;
            "ranges_to_copy", "Copies that the running transition makes (leader only)", read.to_copy;
            "ranges_copied", "Copies of it that are whole (leader only)", read.copied;
            "ranges_verified", "Copies of it that are verified (leader only)", read.verified;
            "under_replicated_ranges", "Ranges with fewer replicas than they should have", read.short;
            "retained_copies", "Copies that losers keep", read.retained;
            "transition_step", "Step of the running transition; 0: none", read.step;
        }
        registry.register_with_unit(
            "behind",
            "How long this server has not heard of a leader",
            Unit::Other("ms".to_owned()),
            read.behind.clone(),
        );
        registry.register_with_unit(
            "moved",
            "Payload copied by the running transition (leader only)",
            Unit::Bytes,
            read.moved_bytes.clone(),
        );
        registry.register_with_unit(
            "watch_sent",
            "Snapshot bytes sent to watchers",
            Unit::Bytes,
            self.sent_bytes.clone(),
        );
    }

    /// A proposal of this server came back.
    pub(crate) fn proposed(&self, kind: &'static str, answer: &Result<Outcome, ProposeError>) {
        let outcome = match answer {
            Ok(Outcome::Applied(_)) => "applied",
            Ok(Outcome::Rejected(_)) => "rejected",
            Err(ProposeError::Unknown { .. }) => "unknown",
            Err(
                ProposeError::NoLeader { .. }
                | ProposeError::NotInitialised
                | ProposeError::Unavailable { .. }
                | ProposeError::TooLarge { .. }
                | ProposeError::Fatal { .. },
            ) => "unavailable",
        };
        self.proposals
            .get_or_create(&ProposalLabel { kind, outcome })
            .inc();
    }

    /// A watch stream opened.
    pub(crate) fn stream_opened(&self, ring: &RingName) -> StreamGauge {
        let gauge = self.streams.get_or_create(&label(ring)).clone();
        gauge.inc();
        StreamGauge(gauge)
    }

    /// A snapshot went to a watcher.
    pub(crate) fn sent(&self, ring: &RingName, bytes: u64) {
        self.snapshots_sent.get_or_create(&label(ring)).inc();
        self.sent_bytes.get_or_create(&label(ring)).inc_by(bytes);
    }

    /// Everything, in the OpenMetrics text form.
    pub(crate) fn text(&self, context: &Arc<Context>) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.read.refresh(context);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

fn label(ring: &RingName) -> RingLabel {
    RingLabel {
        ring: ring.to_string(),
    }
}

impl Read {
    fn refresh(&self, context: &Context) {
        let standing = context.node.standing();
        let leader = standing
            .leader
            .as_ref()
            .and_then(|one| Endpoint::new(&one.endpoint).ok());
        self.leader.clear();
        if let Some(leader) = leader {
            self.leader
                .get_or_create(&LeaderLabel {
                    endpoint: leader.to_string(),
                })
                .set(1);
        }
        self.leads.set(u64::from(standing.is_leader()));
        self.term.set(standing.term);
        self.applied.set(standing.applied_index.unwrap_or(0));
        self.behind.set(context.behind_ms());
        self.links.set(context.links.count() as u64);
        // What ended must not go on being shown.
        self.watchers.clear();
        self.nodes.clear();
        context.node.shared().read(|state, _| {
            for (name, ring) in &state.rings {
                let ring_label = label(name);
                let set = |family: &Numbers<RingLabel>, value: u64| {
                    family.get_or_create(&ring_label).set(value);
                };
                let at = |family: &Numbers<EpochLabel>, epoch: u64, count: u32| {
                    let label = EpochLabel {
                        ring: name.to_string(),
                        epoch,
                    };
                    family.get_or_create(&label).set(count.into());
                };
                set(&self.epoch, ring.epoch.0);
                set(&self.short, ring.shortfall().short.into());
                let retained = ring.retained.iter();
                let retained = retained.map(|held| held.kept.len() + held.permitted.len());
                set(&self.retained, retained.sum::<usize>() as u64);
                for (epoch, count) in context.watchers.by_epoch(name) {
                    at(&self.watchers, epoch.0, count);
                }
                let progress = context.links.while_leading(name, |reports| {
                    for (epoch, count) in reports
                        .map(|one| api::adopted(ring, one))
                        .unwrap_or_default()
                    {
                        at(&self.nodes, epoch, count);
                    }
                    ring.transition
                        .as_ref()
                        .map(|running| api::progress(ring, running, reports))
                });
                let step = ring
                    .transition
                    .as_ref()
                    .map_or(0, |running| running.step.number());
                set(&self.step, step.into());
                let progress = progress.unwrap_or_default();
                set(&self.to_copy, progress.copies.into());
                set(&self.copied, progress.copied.into());
                set(&self.verified, progress.verified.into());
                set(&self.moved_bytes, progress.copied_bytes);
            }
        });
    }
}
