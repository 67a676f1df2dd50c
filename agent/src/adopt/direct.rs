//! A directive taken in: seals lifted and made, staging of closed sessions wiped.

use annulus_ring::{Epoch, Handle, SessionId, Slot};
use tracing::{info, warn};

use super::{Adopter, Current, StepError};
use crate::{
    bait,
    wire::{Directive, View, Wave},
};

impl Adopter {
    /// Takes in the newest directive, once its epoch is adopted.
    pub(super) async fn direct(&mut self) -> Result<(), StepError> {
        let Some(directive) = self.directive.clone() else {
            return Ok(());
        };
        let Some(Current { view, own }) = self.current.clone() else {
            return Ok(());
        };
        // Without the view that a committed wave made, "over" would look like "aborted".
        if directive.epoch > view.epoch() {
            return Ok(());
        }
        // Its slots are others.
        if directive.epoch < view.converted {
            return Ok(());
        }
        self.lift(&directive, &view, own).await?;
        if let Some(wave) = &directive.wave {
            self.wave(wave, &view, own).await?;
        } else {
            self.work.end_wave();
        }
        self.wipe(&directive).await?;
        self.shared
            .board
            .keep_live(|slot| directive.verify.contains(&slot));
        self.shared.directive.send_if_modified(|known| {
            let news = *known != directive;
            *known = directive;
            news
        });
        Ok(())
    }

    /// Lifts the seals of waves that are over.
    async fn lift(
        &mut self,
        directive: &Directive,
        view: &View,
        own: Option<Handle>,
    ) -> Result<(), StepError> {
        let over = directive.waves_over;
        let known = self.shared.identity.get();
        if known.waves_over >= over {
            return Ok(());
        }
        let lifted = known.seals.keys().any(|wave| *wave <= over);
        self.remember(move |known| {
            known.waves_over = over;
            known.seals.retain(|wave, _| *wave > over);
        })
        .await?;
        if lifted {
            self.quiet = None;
            self.obey(view, own);
            info!(wave = over, epoch = %view.epoch(), "wave over, its seals are lifted");
        }
        if self
            .shared
            .board
            .sealed_wave()
            .is_some_and(|wave| wave <= over)
        {
            self.shared.board.sealed(None);
        }
        if self
            .shared
            .board
            .confirmed_wave()
            .is_some_and(|wave| wave <= over)
        {
            self.shared.board.confirmed(None);
        }
        let board = &self.shared.board;
        if board.fenced_wave().is_some_and(|wave| wave <= over) {
            board.fenced(None);
        }
        if board.succeeded_wave().is_some_and(|wave| wave <= over) {
            board.succeeded(None);
        }
        Ok(())
    }

    async fn wave(
        &mut self,
        wave: &Wave,
        view: &View,
        own: Option<Handle>,
    ) -> Result<(), StepError> {
        let known = self.shared.identity.get();
        if wave.id <= known.waves_over {
            return Ok(());
        }
        if wave.silent {
            self.fence(wave, view, own).await?;
            let fenced = self.shared.board.fenced_wave() == Some(wave.id);
            if fenced && wave.successor == known.node_id && wave.tails.is_some() {
                self.work.succeed(wave);
            }
            return Ok(());
        }
        if wave.owner == known.node_id {
            return self.seal(wave, view, own).await;
        }
        if wave.successor == known.node_id && !wave.sealed.is_empty() {
            self.work.confirm(wave);
        }
        Ok(())
    }

    /// Durably refuses writes of the wave's slots, then waits until none is in flight.
    async fn seal(
        &mut self,
        wave: &Wave,
        view: &View,
        own: Option<Handle>,
    ) -> Result<(), StepError> {
        let known = self.shared.identity.get();
        if self.quiet.is_some() || self.shared.board.sealed_wave() == Some(wave.id) {
            return Ok(());
        }
        let slots = view.reigns.len();
        let owned = wave.slots.iter().all(|slot| {
            slot.index() < slots && own.is_some() && view.lookup.sets(*slot).owner() == own
        });
        if !owned {
            warn!(wave = wave.id, epoch = %view.epoch(), "asked to hand over what it does not own");
            return Ok(());
        }
        if !known.seals.contains_key(&wave.id) {
            let seals: Vec<(Slot, Epoch)> = wave
                .slots
                .iter()
                .map(|slot| (*slot, view.reigns[slot.index()]))
                .collect();
            let id = wave.id;
            self.remember(move |known| {
                known.seals.insert(id, seals);
            })
            .await?;
            self.obey(view, own);
            info!(wave = id, count = wave.slots.len(), epoch = %view.epoch(), "sealed, draining");
        }
        let quiet = self.shared.guard.quiet(wave.slots.clone());
        let wave = wave.clone();
        self.quiet = Some(Box::pin(async move {
            quiet.await;
            wave
        }));
        Ok(())
    }

    /// The sealed slots are quiet: F.
    pub(super) async fn sealed(&mut self, wave: Wave) -> Result<(), StepError> {
        let positions = self.positions(wave.slots.clone()).await?;
        if self.shared.identity.get().seals.contains_key(&wave.id) {
            info!(
                wave = wave.id,
                count = positions.len(),
                "sealed and drained"
            );
            self.shared.board.sealed(Some((wave.id, positions)));
            if bait::on(bait::SEAL_ENDS_BY_ITSELF) {
                self.lift_baited(wave.id).await?;
            }
        }
        Ok(())
    }

    /// What no timer may do.
    async fn lift_baited(&mut self, wave: u64) -> Result<(), StepError> {
        self.remember(move |known| {
            known.seals.remove(&wave);
        })
        .await?;
        if let Some(Current { view, own }) = self.current.clone() {
            self.obey(&view, own);
        }
        Ok(())
    }

    /// A failover: refuses the owner's reign in every range of the wave that lists this node,
    /// durably, and says so once nothing that was admitted before is in flight. Also as the owner,
    /// should it hear of it.
    async fn fence(
        &mut self,
        wave: &Wave,
        view: &View,
        own: Option<Handle>,
    ) -> Result<(), StepError> {
        let board = &self.shared.board;
        if self.fencing.is_some() || board.fenced_wave() == Some(wave.id) {
            return Ok(());
        }
        let slots = view.reigns.len();
        let fences: Vec<(Slot, Epoch)> = wave
            .slots
            .iter()
            .filter(|slot| slot.index() < slots)
            .filter(|slot| own.is_some_and(|own| view.lookup.sets(**slot).old.contains(&own)))
            .map(|slot| (*slot, view.reigns[slot.index()]))
            .collect();
        if fences.is_empty() {
            return Ok(());
        }
        let (id, fenced) = (wave.id, fences.iter().map(|(slot, _)| *slot).collect());
        if !self.shared.identity.get().seals.contains_key(&id) {
            let count = fences.len();
            self.remember(move |known| {
                known.seals.insert(id, fences);
            })
            .await?;
            info!(wave = id, count, epoch = %view.epoch(), owner = %wave.owner, "owner is refused");
        }
        let obeyed = self.obey(view, own);
        let drained = self.shared.guard.drained(fenced, obeyed.seq);
        self.fencing = Some(Box::pin(async move {
            drained.await;
            id
        }));
        Ok(())
    }

    /// Nothing admitted before the refusal is in flight any more: from here on this node's tail
    /// holds all that it will ever have of the refused reign.
    pub(super) async fn fenced(&mut self, wave: u64) -> Result<(), StepError> {
        if self.shared.identity.get().seals.contains_key(&wave) {
            self.shared.board.fenced(Some(wave));
        }
        self.direct().await
    }

    /// Deletes the staging copies of sessions that are over, once nobody sends to them any more.
    async fn wipe(&mut self, directive: &Directive) -> Result<(), StepError> {
        let due: Vec<SessionId> = self
            .gone
            .iter()
            .filter(|(_, seen)| {
                directive.everyone_adopted >= **seen || bait::on(bait::WIPE_BEFORE_BARRIER)
            })
            .map(|(session, _)| *session)
            .collect();
        for session in due {
            self.shared
                .store
                .call(move |store| store.drop_staging(session))
                .await?;
            self.gone.remove(&session);
            info!(%session, everyone = %directive.everyone_adopted, "staging of a closed session dropped");
        }
        Ok(())
    }
}
