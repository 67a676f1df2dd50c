//! Calls about plans, and about why things are as they are.

use annulus_proto::v1::{self, explain_range_request::What};
use annulus_ring::{NodeId, RingName};

use super::{Accepted, Admin, Read};
use crate::exit::{Failure, Result};

impl Admin {
    /// Has a plan made and kept.
    pub async fn make_plan(
        &self,
        ring: &RingName,
        changes: Vec<v1::PlannedChange>,
    ) -> Result<Accepted> {
        let request = v1::MakePlanRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            changes,
        };
        self.mutated(self.client.make_plan(request).await).await
    }

    /// Commits a plan.
    pub async fn commit_plan(&self, ring: &RingName, plan: u64) -> Result<Accepted> {
        let request = self.of_plan(ring, plan);
        self.mutated(self.client.commit_plan(request).await).await
    }

    /// Drops a plan.
    pub async fn drop_plan(&self, ring: &RingName, plan: u64) -> Result<Accepted> {
        let request = self.of_plan(ring, plan);
        self.mutated(self.client.drop_plan(request).await).await
    }

    fn of_plan(&self, ring: &RingName, plan_id: u64) -> v1::PlanRequest {
        v1::PlanRequest {
            request_id: self.client.request_id(),
            ring: ring.to_string(),
            plan_id,
        }
    }

    /// The kept plans.
    pub async fn plans(&self, ring: &RingName, read: Read) -> Result<Vec<v1::PlanStatus>> {
        let request = v1::ListPlansRequest {
            ring: ring.to_string(),
            mode: mode(read),
        };
        let answer = self.client.plans(request).await;
        Ok(self.explained(answer).await?.plans)
    }

    /// One plan, with its lists where asked.
    pub async fn plan(
        &self,
        ring: &RingName,
        plan_id: u64,
        throttle: Option<u64>,
        lists: bool,
        read: Read,
    ) -> Result<v1::PlanStatus> {
        let request = v1::GetPlanRequest {
            ring: ring.to_string(),
            mode: mode(read),
            plan_id,
            copy_bytes_per_second: throttle,
            lists,
        };
        let answer = self.explained(self.client.plan(request).await).await?;
        answer.plan.ok_or_else(|| incomplete("plan"))
    }

    /// Where a key or a range lives, and why.
    pub async fn explain_range(
        &self,
        ring: &RingName,
        what: What,
        read: Read,
    ) -> Result<v1::ExplainRangeResponse> {
        let request = v1::ExplainRangeRequest {
            ring: ring.to_string(),
            mode: mode(read),
            what: Some(what),
        };
        self.explained(self.client.explain_range(request).await)
            .await
    }

    /// How far a change is, and why.
    pub async fn explain_change(
        &self,
        ring: &RingName,
        change_id: u64,
        read: Read,
    ) -> Result<v1::ExplainChangeResponse> {
        let request = v1::ExplainChangeRequest {
            ring: ring.to_string(),
            mode: mode(read),
            change_id,
        };
        self.explained(self.client.explain_change(request).await)
            .await
    }

    /// What kept copies wait for.
    pub async fn why_kept(
        &self,
        ring: &RingName,
        node: Option<&NodeId>,
        slot: Option<u32>,
    ) -> Result<Vec<v1::KeptCopies>> {
        let request = v1::WhyKeptRequest {
            ring: ring.to_string(),
            mode: mode(Read::Leader),
            node: node.map(ToString::to_string),
            slot,
        };
        let answer = self.client.why_kept(request).await;
        Ok(self.explained(answer).await?.copies)
    }
}

fn mode(read: Read) -> i32 {
    annulus_client::admin::Read::from(read).into()
}

/// A server that answers without what was asked for.
fn incomplete(what: &str) -> Failure {
    Failure::failed(
        format!("the answer has no {what}"),
        "ask another server with --endpoints, and report this",
    )
}
