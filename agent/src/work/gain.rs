//! One gained range: copy, catch up, verify, merge up to J.
//!
//! ```text
//!   staged --step 3--> pull --> complete --step 4--> repair holes --> digests equal?
//!      ^          or seed, where this node kept the range    ^          | no: mend once,
//!      |                                                     '----------| then a new attempt
//!      '----------------------------------------------------------------'
//!   step 6: repair until the watermark is at J
//! ```

use std::{sync::Arc, time::Duration};

use annulus_ring::{Epoch, Position, SessionId, Slot, Step};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::{
    bait,
    fetch::FetchError,
    mend::Mended,
    shared::{Pauses, Shared},
    store::{Copy, Holding, StoreError},
};

/// Pauses between tries at a range that failed.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Pauses between verifications of a range while the step lasts: a source that restarted has
/// forgotten its side of the evidence, and only the gainer can make it say it again.
const VERIFY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// When to look again at what is a matter of one more write or acknowledgement.
const SOON: Duration = Duration::from_millis(20);

pub(super) struct Gain {
    shared: Arc<Shared>,
    session: SessionId,
    slot: Slot,
    attempt: u32,
    /// The owner's reign when the attempt began, as far as that is known: what it was fed in
    /// another may be a deposed owner's.
    reign: Option<Epoch>,
    complete: bool,
    /// The session of a retained copy to begin with, until that was tried.
    kept: Option<SessionId>,
    /// What differed in this attempt was mended already.
    mended: bool,
    retry: Pauses,
    verify: Pauses,
    verify_at: Instant,
}

/// What to do next.
enum Next {
    /// Look again when the view or the directive changes.
    Wait,
    /// Look again then, or when they change.
    Until(Instant),
    /// Look again at once.
    Now,
}

impl Gain {
    pub(super) fn new(
        shared: Arc<Shared>,
        session: SessionId,
        slot: Slot,
        holding: Option<&Holding>,
        kept: Option<SessionId>,
    ) -> Self {
        let attempt = holding.map_or(1, |holding| holding.attempt.max(1));
        let complete = holding.is_some_and(|holding| holding.complete);
        // After a restart the cut itself is forgotten; the watermark is not older than it.
        let copied = holding
            .filter(|holding| holding.complete)
            .and_then(|one| one.watermark);
        shared.metrics.ranges_left.inc_by(i64::from(!complete));
        shared.board.stand(session, slot, |standing| {
            standing.attempt = attempt;
            standing.staged = true;
            if standing.copied.is_none() {
                standing.copied = copied;
            }
        });
        let reign = holding.is_none().then(|| shared.guard.view().reign(slot));
        Self {
            shared,
            session,
            slot,
            attempt,
            reign,
            complete,
            kept,
            mended: false,
            retry: Pauses::new(RETRY.0, RETRY.1),
            verify: Pauses::new(VERIFY.0, VERIFY.1),
            verify_at: Instant::now(),
        }
    }

    fn copy(&self) -> Copy {
        Copy::Staging(self.session)
    }

    pub(super) async fn run(mut self) {
        let mut views = self.shared.guard.changes();
        let mut directives = self.shared.directive.subscribe();
        loop {
            views.mark_unchanged();
            directives.mark_unchanged();
            let view = self.shared.guard.view();
            let running = view.session() == Some(self.session);
            let step = view.step().filter(|step| running && *step < Step::Switched);
            let Some(step) = step else { return };
            let paused = self.shared.directive.borrow().paused;
            let terms = self.shared.guard.terms();
            let done = if step < Step::Copying || (paused && !self.complete) {
                Ok(Next::Wait)
            } else if terms.is_cache() {
                // Warmed up while the step lasts; nothing is compared, and nothing merged up to.
                if self.complete || !terms.copies || step > Step::Copying {
                    Ok(Next::Wait)
                } else {
                    self.pull().await
                }
            } else if !self.complete {
                self.pull().await
            } else {
                self.follow(step).await
            };
            let next = match done {
                Ok(next) => {
                    self.retry.reset();
                    next
                }
                Err(error) => {
                    let pause = self.retry.next();
                    let (slot, session, attempt) = (self.slot, self.session, self.attempt);
                    warn!(%error, %slot, %session, attempt, ?step, ?pause, "gaining a range failed, trying again");
                    self.shared.metrics.attempts_failed.inc();
                    Next::Until(Instant::now() + pause)
                }
            };
            let until = match next {
                Next::Now => continue,
                Next::Until(at) => Some(at),
                Next::Wait => None,
            };
            let timer = async {
                match until {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = views.changed() => if changed.is_err() { return },
                changed = directives.changed() => if changed.is_err() { return },
                () = timer => {}
            }
        }
    }

    /// The whole copy; a try that fails opens the next attempt.
    async fn pull(&mut self) -> Result<Next, FetchError> {
        if self.reign != Some(self.shared.guard.view().reign(self.slot)) {
            self.begin_anew().await?;
        }
        let copied = match self.kept.take() {
            Some(kept) if !self.shared.guard.terms().is_cache() => self.seed(kept).await?,
            Some(_) | None => None,
        };
        let copied = match copied {
            Some(cut) => Ok(cut),
            None => {
                let pull = self.shared.pull(self.slot, self.session, self.attempt);
                pull.await
            }
        };
        match copied {
            Ok(cut) => {
                self.complete = true;
                self.shared.metrics.ranges_copied.inc();
                self.shared.metrics.ranges_left.dec();
                self.shared
                    .board
                    .stand(self.session, self.slot, |standing| {
                        standing.copied = Some(cut);
                        standing.watermark = standing.watermark.max(Some(cut));
                    });
                debug!(slot = %self.slot, session = %self.session, %cut, "range copied");
                Ok(Next::Now)
            }
            Err(error) => {
                if error.spoils_attempt() {
                    self.begin_anew().await?;
                }
                Err(error)
            }
        }
    }

    /// Begins with what this node kept of the range; none, where it cannot.
    async fn seed(&mut self, kept: SessionId) -> Result<Option<Position>, FetchError> {
        let (slot, session) = (self.slot, self.session);
        match self.shared.seed(slot, session, kept).await {
            Ok(seeded) => Ok(seeded.map(|(cut, mended)| {
                let Mended { fetched, given_up, .. } = mended;
                info!(%slot, %session, %kept, %cut, fetched, given_up, "range begun with a retained copy");
                cut
            })),
            Err(error) => {
                // What is kept may hold what the owner does not: nothing of it may stay.
                self.begin_anew().await?;
                Err(error)
            }
        }
    }

    /// Opens the next attempt: an empty staging copy, which writes go on feeding.
    async fn begin_anew(&mut self) -> Result<(), StoreError> {
        let (session, slot, attempt) = (self.session, self.slot, self.attempt + 1);
        let reign = self.shared.guard.view().reign(slot);
        self.shared
            .store
            .call(move |store| store.open_staging(session, attempt, &[slot]))
            .await?;
        self.attempt = attempt;
        self.reign = Some(reign);
        self.shared
            .metrics
            .ranges_left
            .inc_by(i64::from(self.complete));
        self.complete = false;
        self.mended = false;
        self.verify_at = Instant::now();
        self.verify.reset();
        self.shared.board.stand(session, slot, |standing| {
            *standing = crate::board::Standing {
                attempt,
                staged: true,
                ..Default::default()
            };
        });
        Ok(())
    }

    /// After the copy: no holes, equal digests, everything up to J.
    async fn follow(&mut self, step: Step) -> Result<Next, FetchError> {
        let now = Instant::now();
        let verify = step == Step::CatchingUp && now >= self.verify_at;
        let joint = match step {
            Step::Joint => self
                .shared
                .directive
                .borrow()
                .joint
                .get(&self.slot)
                .copied(),
            _ => None,
        };
        let (slot, copy) = (self.slot, self.copy());
        let mark = self
            .shared
            .store
            .call(move |store| store.watermark(slot, copy))
            .await?;
        let reign = self.shared.guard.view().reign(slot);
        let mark = bait::watermark(&self.shared.store, slot, copy, mark, reign).await?;
        let base_missing = mark.held.is_none_or(|held| held.reign < reign);
        let short = joint.is_some_and(|joint| mark.held.is_none_or(|held| held < joint));
        if base_missing || short || (mark.pending && verify) {
            self.shared.repair(slot, copy, mark.held).await?;
            let mark = self
                .shared
                .store
                .call(move |store| store.watermark(slot, copy))
                .await?;
            self.told(mark.held);
            let still_short = joint.is_some_and(|joint| mark.held.is_none_or(|held| held < joint));
            if still_short {
                // J of a reign that is over, or a write still on its way: look again soon.
                return Ok(Next::Until(now + SOON));
            }
        } else {
            self.told(mark.held);
        }
        if verify {
            return self.verify().await;
        }
        Ok(match step {
            Step::CatchingUp => Next::Until(self.verify_at),
            _ => Next::Wait,
        })
    }

    fn told(&self, watermark: Option<Position>) {
        self.shared
            .board
            .stand(self.session, self.slot, |standing| {
                standing.watermark = standing.watermark.max(watermark);
            });
    }

    /// Fetches what differs from the owner's copy, once an attempt. False: it must be copied anew.
    async fn mend(&mut self) -> Result<bool, FetchError> {
        if std::mem::replace(&mut self.mended, true) {
            return Ok(false);
        }
        let (slot, session) = (self.slot, self.session);
        match self.shared.mend(slot, self.copy()).await {
            Ok(Some(mended)) => {
                warn!(%slot, %session, fetched = mended.fetched, given_up = mended.given_up,
                    keys = ?mended.named, "what differed was put right");
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                warn!(%error, %slot, %session, "what differs cannot be told; copying the range again");
                Ok(false)
            }
        }
    }

    /// Compares this copy with the owner's at this copy's own clean watermark.
    async fn verify(&mut self) -> Result<Next, FetchError> {
        let (slot, copy) = (self.slot, self.copy());
        let soon = Instant::now() + SOON;
        let scan = self.shared.scans.acquire().await;
        let here = self
            .shared
            .store
            .call(move |store| store.digest(slot, copy, None))
            .await;
        drop(scan);
        let here = match here {
            Ok(here) => here,
            // A write is on its way; the next look repairs what is not.
            Err(StoreError::Pending { .. }) => return Ok(Next::Until(soon)),
            Err(error) => return Err(error.into()),
        };
        let there = self
            .shared
            .digest_of_owner(slot, self.session, self.attempt, here.cut)
            .await;
        let there = match there {
            Ok(there) => there,
            Err(error) if error.asks_for_another_cut() => return Ok(Next::Until(soon)),
            Err(error) => return Err(error),
        };
        if here != there {
            let (session, attempt) = (self.session, self.attempt);
            error!(
                %slot, %session, attempt, cut = %here.cut,
                records = here.records, owner_records = there.records,
                "the copy differs from the owner's at the same cut"
            );
            self.shared.metrics.digests_differed.inc();
            if !self.mend().await? {
                self.begin_anew().await?;
            }
            return Ok(Next::Now);
        }
        self.shared.board.stand(self.session, slot, |standing| {
            standing.digest = Some(here);
            standing.watermark = standing.watermark.max(Some(here.cut));
        });
        self.verify_at = Instant::now() + self.verify.next();
        Ok(Next::Until(self.verify_at))
    }
}
