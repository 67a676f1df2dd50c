//! What a data node counts, in a registry that the process owns.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::store::StoreStats;

/// Which request, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Request {
    /// get, put, delete, batch.
    pub op: &'static str,
    /// ok, or [`crate::refused::Cause::kind`].
    pub result: &'static str,
}

/// The data plane's counters.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests by kind and result; each write of a batch counts.
    pub requests: Family<Request, Counter>,
    /// Writes that wait for their acknowledgement.
    pub pending: Gauge,
    /// Writes that wait in queues to other members.
    pub backlog: Gauge,
    /// Writes sent to other members, repetitions included.
    pub replicated: Counter,
    /// Of these, refused by the member.
    pub replicate_refused: Counter,
    /// Messages that asked a member about reigns.
    pub confirm_rounds: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, store: &StoreStats, registry: &mut Registry) {
        let of = registry.sub_registry_with_prefix("annulus_kv");
        of.register(
            "requests",
            "Requests by kind and result",
            self.requests.clone(),
        );
        of.register(
            "pending_writes",
            "Writes not acknowledged yet",
            self.pending.clone(),
        );
        of.register(
            "replication_backlog",
            "Writes in queues to members",
            self.backlog.clone(),
        );
        of.register(
            "replicated_writes",
            "Writes sent to members",
            self.replicated.clone(),
        );
        of.register(
            "replication_refused",
            "Writes refused",
            self.replicate_refused.clone(),
        );
        of.register(
            "confirm_rounds",
            "Messages about reigns",
            self.confirm_rounds.clone(),
        );
        of.register(
            "commits",
            "Synced commits of the store",
            store.commits.clone(),
        );
        of.register("commit_jobs", "Jobs in them", store.jobs.clone());
    }

    pub(crate) fn count(&self, op: &'static str, result: &'static str) {
        self.requests.get_or_create(&Request { op, result }).inc();
    }
}
