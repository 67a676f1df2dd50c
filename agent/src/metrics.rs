//! What the agent counts, in a registry that the process owns.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Why {
    /// [`crate::guard::Refusal::kind`].
    pub reason: &'static str,
}

/// The agent's counters and gauges. One per process; cheap to clone parts of.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Epoch adopted durably.
    pub epoch: Gauge,
    /// Adoptions since the process started.
    pub adoptions: Counter,
    /// Requests refused, by reason.
    pub refused: Family<Why, Counter>,
    /// Requests that the store forwarded to the owner.
    pub forwarded: Counter,
    /// Copies of ranges completed here.
    pub ranges_copied: Counter,
    /// Ranges of the running session that this node still has to copy.
    pub ranges_left: Gauge,
    /// Payload bytes copied in.
    pub copied_bytes: Counter<u64, AtomicU64>,
    /// Payload bytes sent to gainers and repairing members.
    pub served_bytes: Counter<u64, AtomicU64>,
    /// Tries at a range that failed or were found different.
    pub attempts_failed: Counter,
    /// Digests that differed from the owner's.
    pub digests_differed: Counter,
    /// 1 while copies go slower because this node's own requests suffer.
    pub eased: Gauge,
    /// Records fetched or given up after leaves were compared.
    pub mended: Counter,
    /// Copies that began with what this node kept of the range.
    pub seeded: Counter,
    /// Records of deposed owners that were given up.
    pub strays: Counter,
    /// Copies with a hole, or without the base of the present reign.
    pub lagging: Gauge,
    /// Listed slots of which this node holds no copy.
    pub unheld: Gauge,
    /// 1 while the link to a leader is open.
    pub linked: Gauge,
}

impl Metrics {
    /// Registers everything under the prefix `annulus_agent`.
    pub fn register(&self, registry: &mut Registry) {
        let of = registry.sub_registry_with_prefix("annulus_agent");
        of.register("epoch", "Epoch adopted durably", self.epoch.clone());
        of.register(
            "adoptions",
            "Epochs adopted since the start",
            self.adoptions.clone(),
        );
        of.register(
            "refused_requests",
            "Requests refused, by reason",
            self.refused.clone(),
        );
        of.register(
            "forwarded_requests",
            "Requests sent on to the owner",
            self.forwarded.clone(),
        );
        of.register(
            "ranges_copied",
            "Copies of ranges completed here",
            self.ranges_copied.clone(),
        );
        of.register(
            "ranges_left",
            "Ranges of the session to copy",
            self.ranges_left.clone(),
        );
        let bytes = Unit::Bytes;
        let (copied, served) = (self.copied_bytes.clone(), self.served_bytes.clone());
        of.register_with_unit("copied", "Payload copied in", bytes.clone(), copied);
        of.register_with_unit("served", "Payload sent to other nodes", bytes, served);
        of.register(
            "attempts_failed",
            "Tries at a range that failed",
            self.attempts_failed.clone(),
        );
        of.register(
            "strays",
            "Records of deposed owners given up",
            self.strays.clone(),
        );
        of.register(
            "copies_eased",
            "1 while copies go slower for the sake of requests",
            self.eased.clone(),
        );
        of.register(
            "mended_records",
            "Records put right after a comparison with the owner",
            self.mended.clone(),
        );
        of.register(
            "ranges_seeded",
            "Copies begun with what was kept of the range",
            self.seeded.clone(),
        );
        of.register(
            "digests_differed",
            "Digests unlike the owner's",
            self.digests_differed.clone(),
        );
        of.register(
            "lagging_copies",
            "Copies with a hole or an old base",
            self.lagging.clone(),
        );
        of.register(
            "unheld_ranges",
            "Listed ranges without a copy here",
            self.unheld.clone(),
        );
        of.register("linked", "1 while a leader is linked", self.linked.clone());
    }

    pub(crate) fn count_refusal(&self, reason: &'static str) {
        self.refused.get_or_create(&Why { reason }).inc();
    }
}
