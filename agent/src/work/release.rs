//! Deleting retained copies, under a permit that is read at the leader right before (LAST-COPY).

use std::{sync::Arc, time::Duration};

use annulus_proto::{convert, v1, v1::link_client::LinkClient};
use annulus_ring::{SessionId, Slot};
use tracing::{info, warn};

use crate::{
    bait,
    shared::{Pauses, Shared},
    store::StoreError,
};

const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How long the leader may take to answer.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error("no leader is linked")]
    NoLeader,
    #[error("the leader answered {code:?}: {message}")]
    Answer { code: tonic::Code, message: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Deletes what is permitted until the agent stops. The only place that deletes a retained copy.
pub(crate) async fn release(shared: Arc<Shared>) {
    let mut directives = shared.directive.subscribe();
    let mut leaders = shared.leader.subscribe();
    let mut pauses = Pauses::new(RETRY.0, RETRY.1);
    loop {
        directives.mark_unchanged();
        leaders.mark_unchanged();
        let permits = shared.directive.borrow().permits.clone();
        let mut failed = false;
        for (session, slots) in permits {
            let kept = shared.board.kept(session);
            let slots: Vec<Slot> = slots
                .into_iter()
                .filter(|slot| kept.contains(slot))
                .collect();
            if slots.is_empty() {
                continue;
            }
            let deleted = delete(&shared, session, slots);
            match shared.coordinates.meanwhile(deleted).await {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    warn!(%error, %session, "retained copies are not deleted yet");
                    failed = true;
                }
                // Their slots have other names now; the next directive says them.
                None => {}
            }
        }
        let again = async {
            if failed {
                tokio::time::sleep(pauses.next()).await;
            } else {
                pauses.reset();
                std::future::pending().await
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            changed = directives.changed() => if changed.is_err() { return },
            changed = leaders.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

async fn delete(shared: &Shared, session: SessionId, slots: Vec<Slot>) -> Result<(), ReleaseError> {
    let leader = shared
        .leader
        .borrow()
        .clone()
        .ok_or(ReleaseError::NoLeader)?;
    let mut request = tonic::Request::new(v1::ConfirmPermitRequest {
        ring: shared.config.ring.to_string(),
        node_id: shared.config.node_id.to_string(),
        incarnation: shared.identity.get().incarnation.0,
        copies: Some(convert::slot_set_message(session, &slots)),
        converted_epoch: shared.guard.view().converted.0,
    });
    request.set_timeout(CONFIRM_TIMEOUT);
    let answer = LinkClient::new(leader.channel)
        .confirm_permit(request)
        .await;
    let answer = answer.map_err(|status| ReleaseError::Answer {
        code: status.code(),
        message: status.message().to_owned(),
    })?;
    // Only what was asked for and granted, whatever the answer says.
    let granted = answer.into_inner().slots;
    let slots: Vec<Slot> = slots
        .into_iter()
        .filter(|slot| granted.contains(&slot.0) || bait::on(bait::DELETE_WITHOUT_PERMIT))
        .collect();
    if slots.is_empty() {
        return Ok(());
    }
    let dropped = slots.clone();
    shared
        .store
        .call(move |store| store.drop_retained(session, &dropped))
        .await?;
    info!(%session, count = slots.len(), leader = %leader.endpoint, "retained copies deleted under their permit");
    shared.board.released(session, &slots);
    Ok(())
}
