//! Another hash, or twice as many slots: every copy gets another name while nobody serves.
//!
//! ```text
//!   nobody is served, nothing is in flight --> tasks end, names are let go
//!     --> the store splits its copies (or drops them) --> the new cut is remembered --> the view
//! ```
//!
//! A step that failed, or that a restart cut short, is done again: the store knows whether it did
//! its part, and the new view is obeyed only after all of it.

use std::sync::Arc;

use annulus_ring::{SessionId, Slot};
use tracing::info;

use super::{Adopter, StepError};
use crate::{
    identity::CircleCut,
    plan::Held,
    store::{RangeStore, StoreError},
    view::NodeView,
    wire::{Directive, View},
};

/// The session under which a cache drops what it cannot find any more. No transition has its number.
const COLD: SessionId = SessionId(u64::MAX);

fn cut(view: &View) -> CircleCut {
    let layout = &view.lookup.snapshot().layout;
    CircleCut {
        hash: layout.hash.to_string(),
        slot_bits: layout.slots.bits(),
    }
}

impl Adopter {
    /// Whether the copies here are named otherwise than in the view.
    pub(super) fn must_convert(&self, view: &View) -> bool {
        let known = self.shared.identity.get().cut;
        known.is_some_and(|known| known != cut(view))
    }

    /// Remembers how slots are named, before the first copy is opened.
    pub(super) async fn remember_cut(&mut self, view: &View) -> Result<(), StepError> {
        let cut = cut(view);
        if self.shared.identity.get().cut.as_ref() == Some(&cut) {
            return Ok(());
        }
        self.remember(|known| known.cut = Some(cut)).await?;
        Ok(())
    }

    /// Takes in a view under which slots have other names.
    pub(super) async fn convert(&mut self, view: &View) -> Result<(), StepError> {
        self.serve_nobody().await;
        self.work.stop().await;
        (self.drain, self.quiet, self.fencing) = (None, None, None);
        let _alone = self.shared.coordinates.change().await;
        let (from, to) = (self.shared.identity.get().cut, cut(view));
        let Some(from) = from else {
            return self.swap(view).await;
        };
        if from.hash != to.hash {
            self.shared.store.call_alone(drop_all).await?;
        } else if from.slot_bits > to.slot_bits {
            return Err(StepError::Merged {
                from: from.slot_bits,
                to: to.slot_bits,
            });
        }
        if from.hash == to.hash {
            let lookup = view.lookup.clone();
            let split = move |store: &dyn RangeStore| {
                (from.slot_bits + 1..=to.slot_bits).try_for_each(|bits| {
                    let lookup = lookup.clone();
                    store.split(bits, Arc::new(move |key| Slot::of(lookup.hash(key), bits)))
                })
            };
            self.shared.store.call_alone(split).await?;
        }
        info!(epoch = %view.epoch(), hash = to.hash, slot_bits = to.slot_bits, "copies are renamed");
        // Seals are of reigns that are over, and of slots that are no more.
        self.remember(|known| {
            known.cut = Some(to);
            known.seals.clear();
        })
        .await?;
        self.shared.board.forget_slots();
        self.directive = None;
        self.shared
            .directive
            .send_replace(Arc::new(Directive::default()));
        self.gone.clear();
        (self.session, self.renamed) = (None, true);
        self.swap(view).await
    }

    /// Nothing is admitted for a client, and nothing that was is in flight.
    async fn serve_nobody(&mut self) {
        let guard = &self.shared.guard;
        let now = guard.view();
        let slots = (0..now.slot_count()).filter_map(|slot| u32::try_from(slot).ok());
        let slots: Vec<Slot> = slots.map(Slot).collect();
        let closed = guard.adopt(NodeView {
            converting: true,
            seals: now.seals.clone(),
            unheld: now.unheld.clone(),
            reigns: now.reigns.clone(),
            last_changes: now.last_changes.clone(),
            lookup: now.lookup.clone(),
            ring: now.ring.clone(),
            node: now.node.clone(),
            ..*now
        });
        guard.drained(slots, closed.seq).await;
    }
}

/// Entries of a cache whose keys are looked for elsewhere now.
fn drop_all(store: &dyn RangeStore) -> Result<(), StoreError> {
    let held = Held::from(store.holdings()?);
    for session in held.sessions() {
        store.drop_staging(session)?;
    }
    let live: Vec<Slot> = held.live.keys().copied().collect();
    store.retain(COLD, &live)?;
    let held = Held::from(store.holdings()?);
    for (session, slots) in held.retained {
        let slots: Vec<Slot> = slots.into_iter().collect();
        store.drop_retained(session, &slots)?;
    }
    Ok(())
}
