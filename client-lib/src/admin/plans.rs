//! Plans, and why things are as they are.

use annulus_proto::v1;

use super::{AdminClient, AdminError, wire};

impl AdminClient {
    /// Computes what a set of changes would make of a ring, and keeps it; the answer has its number.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn make_plan(
        &self,
        mut request: v1::MakePlanRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::make_plan).await
    }

    /// Commits a plan: all of its changes, to its very target, or nothing.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn commit_plan(
        &self,
        mut request: v1::PlanRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::commit_plan).await
    }

    /// Keeps a plan no longer.
    ///
    /// # Errors
    /// As [`Self::create_ring`].
    pub async fn drop_plan(
        &self,
        mut request: v1::PlanRequest,
    ) -> Result<v1::MutationResponse, AdminError> {
        self.draw(&mut request.request_id);
        self.mutate(request, wire::drop_plan).await
    }

    /// The kept plans of a ring.
    ///
    /// # Errors
    /// As [`Self::ring`].
    pub async fn plans(
        &self,
        request: v1::ListPlansRequest,
    ) -> Result<v1::ListPlansResponse, AdminError> {
        self.read(request, wire::list_plans).await
    }

    /// One plan with what it would do.
    ///
    /// # Errors
    /// As [`Self::ring`]; [`AdminError::Refused`] for a plan that is not kept.
    pub async fn plan(
        &self,
        request: v1::GetPlanRequest,
    ) -> Result<v1::GetPlanResponse, AdminError> {
        self.read(request, wire::get_plan).await
    }

    /// Where a key or a range lives, since when, and what moved it.
    ///
    /// # Errors
    /// As [`Self::ring`].
    pub async fn explain_range(
        &self,
        request: v1::ExplainRangeRequest,
    ) -> Result<v1::ExplainRangeResponse, AdminError> {
        self.read(request, wire::explain_range).await
    }

    /// What a change moves, where it is, what it waits for.
    ///
    /// # Errors
    /// As [`Self::ring`]; [`AdminError::Refused`] for a change that is not remembered.
    pub async fn explain_change(
        &self,
        request: v1::ExplainChangeRequest,
    ) -> Result<v1::ExplainChangeResponse, AdminError> {
        self.read(request, wire::explain_change).await
    }

    /// What copies that losers keep still wait for.
    ///
    /// # Errors
    /// As [`Self::ring`].
    pub async fn why_kept(
        &self,
        request: v1::WhyKeptRequest,
    ) -> Result<v1::WhyKeptResponse, AdminError> {
        self.read(request, wire::why_kept).await
    }
}
