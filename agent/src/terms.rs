//! What a ring's settings ask of a data node, besides what follows from its snapshot.

use std::{sync::Arc, time::Duration};

use annulus_proto::v1;
use annulus_ring::{RingKind, Step};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::shared::Shared;

/// The settings that a node obeys. Those of a durable ring where the control plane says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub kind: RingKind,
    /// Entries are copied into gainers before the switch; of a cache ring they may not be.
    pub copies: bool,
    /// A node that hears nothing from the control plane goes on serving clients.
    pub serves_when_isolated: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            kind: RingKind::Durable,
            copies: true,
            serves_when_isolated: true,
        }
    }
}

impl Terms {
    pub(crate) fn is_cache(self) -> bool {
        self.kind == RingKind::Cache
    }

    /// As a view says; an unknown kind is none that this node could serve rightly.
    pub(crate) fn read(message: Option<&v1::RingTerms>) -> Result<Self, annulus_ring::UnknownKind> {
        let Some(message) = message else {
            return Ok(Self::default());
        };
        Ok(Self {
            kind: message.kind.parse()?,
            copies: message.copies,
            serves_when_isolated: message.serves_when_isolated,
        })
    }
}

/// Notes in the guard when no leader was linked for the link's silence, and when one is again.
pub(crate) async fn notice_isolation(shared: Arc<Shared>) {
    let mut leader = shared.leader.subscribe();
    let silence = shared.config.silence;
    let mut alone_at = Some(Instant::now() + silence);
    loop {
        let timer = async {
            match alone_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            changed = leader.changed() => {
                if changed.is_err() {
                    return;
                }
                let linked = leader.borrow_and_update().is_some();
                if linked {
                    alone_at = None;
                    if shared.guard.isolate(false) {
                        info!(epoch = %shared.guard.view().epoch(), "linked again");
                    }
                } else {
                    alone_at.get_or_insert(Instant::now() + silence);
                }
            }
            () = timer => {
                alone_at = None;
                if !shared.guard.isolate(true) && !shared.guard.terms().serves_when_isolated {
                    let epoch = shared.guard.view().epoch();
                    warn!(%epoch, ?silence, "no leader is heard; its ring asks to serve nobody until one is");
                }
            }
        }
    }
}

/// While a cache is warmed up: what share of the lookups at this gainer found their entry.
pub(crate) async fn tell_hits(shared: Arc<Shared>) {
    let pause = shared.config.tend.max(Duration::from_millis(10));
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let view = shared.guard.view();
        let (Some(session), Some(Step::Copying)) = (view.session(), view.step()) else {
            continue;
        };
        if !shared.guard.terms().is_cache() {
            continue;
        }
        match shared
            .store
            .call(move |store| store.hit_permille(session))
            .await
        {
            Ok(permille) => shared
                .board
                .hits(permille.map(|permille| (session, permille))),
            Err(error) => warn!(%error, %session, "the hits of the warm-up are not known"),
        }
    }
}
