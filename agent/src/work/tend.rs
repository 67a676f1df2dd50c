//! Live copies as a member that does not own them: no holes, the base of the present reign, and
//! the comparison with the owner that a delete permit asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use annulus_ring::{Position, Slot};
use futures::StreamExt;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::{
    bait,
    board::LIVE,
    fetch::FetchError,
    shared::{Pauses, Shared},
    store::{Copy, StoreError, Watermark},
};

/// Copies repaired or compared at once.
const AT_ONCE: usize = 8;
/// Pauses between comparisons of a copy while the leader asks for it.
const VERIFY: (std::time::Duration, std::time::Duration) = (
    std::time::Duration::from_secs(2),
    std::time::Duration::from_secs(60),
);

/// Looks after live copies until the agent stops: at every change of the view, when the store
/// asks for it, and periodically.
pub(crate) async fn tend(shared: Arc<Shared>) {
    let mut views = shared.guard.changes();
    let mut directives = shared.directive.subscribe();
    // Holes seen by the last look: a write that merely arrives out of order is not repaired.
    let mut seen = BTreeMap::new();
    let mut compared: BTreeMap<Slot, (Instant, Pauses)> = BTreeMap::new();
    loop {
        let next_look = Instant::now() + shared.config.tend;
        views.mark_unchanged();
        directives.mark_unchanged();
        let round = async {
            look_after(&shared, &mut seen).await;
            compare(&shared, &mut compared).await;
        };
        if shared.coordinates.meanwhile(round).await.is_none() {
            // What was remembered is of slots that have other names now.
            (seen, compared) = (BTreeMap::new(), BTreeMap::new());
            continue;
        }
        // A directive wakes only for slots that were not compared yet.
        let wake = async {
            loop {
                if directives.changed().await.is_err() {
                    return;
                }
                let fresh = |slot: &Slot| !compared.contains_key(slot);
                if directives.borrow_and_update().verify.iter().any(fresh) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            changed = views.changed() => if changed.is_err() { return },
            () = shared.wanted_changed.notified() => {}
            () = wake => {}
            () = tokio::time::sleep_until(next_look) => {}
        }
    }
}

/// One round of repairs.
async fn look_after(shared: &Arc<Shared>, seen: &mut BTreeMap<Slot, Watermark>) {
    let wanted = shared.take_wanted();
    let due = match look(shared, &wanted, seen).await {
        Ok(due) => due,
        Err(error) => return warn!(%error, "live copies could not be looked at"),
    };
    let count = due.len();
    shared
        .metrics
        .lagging
        .set(i64::try_from(count).unwrap_or(i64::MAX));
    shared
        .board
        .behind(u32::try_from(count).unwrap_or(u32::MAX));
    let left = futures::stream::iter(due)
        .map(|(slot, from)| async move { repair(shared, slot, from).await })
        .buffer_unordered(AT_ONCE)
        .filter(|repaired| std::future::ready(!repaired))
        .count()
        .await;
    shared.board.behind(u32::try_from(left).unwrap_or(u32::MAX));
}

/// Copies that need repair, with the watermark to repair from.
async fn look(
    shared: &Arc<Shared>,
    wanted: &BTreeSet<Slot>,
    seen: &mut BTreeMap<Slot, Watermark>,
) -> Result<Vec<(Slot, Option<Position>)>, StoreError> {
    let view = shared.guard.view();
    // A cache has no order of writes that a hole could be seen in.
    let Some(own) = view.own.filter(|_| !shared.guard.terms().is_cache()) else {
        return Ok(Vec::new());
    };
    let members = (0..view.slot_count())
        .filter_map(|index| u32::try_from(index).ok())
        .map(Slot);
    // Everybody in the write set but the owner and gainers, whose own task looks after them.
    let slots: Vec<Slot> = members
        .filter(|slot| {
            let sets = view.sets(*slot);
            let switched = sets.step == Some(annulus_ring::Step::Switched);
            let holds = sets.old.contains(&own) || (switched && sets.new.contains(&own));
            holds && sets.owner() != Some(own) && !view.unheld.contains(slot)
        })
        .collect();
    let marks = shared
        .store
        .call(move |store| {
            let mut marks = Vec::new();
            for slot in slots {
                match store.watermark(slot, Copy::Live) {
                    Ok(mark) => marks.push((slot, mark)),
                    // Promoted or retained in between.
                    Err(StoreError::Missing { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(marks)
        })
        .await?;
    let mut due = Vec::new();
    let mut holes = BTreeMap::new();
    for (slot, mark) in marks {
        let base = mark.held.is_some_and(|held| held.reign >= view.reign(slot));
        let stuck = mark.pending && seen.get(&slot) == Some(&mark);
        if !base || stuck || (mark.pending && wanted.contains(&slot)) {
            due.push((slot, mark.held));
        } else if mark.pending {
            holes.insert(slot, mark);
        }
    }
    *seen = holes;
    Ok(due)
}

/// Whether nothing is missing any more.
async fn repair(shared: &Arc<Shared>, slot: Slot, from: Option<Position>) -> bool {
    let epoch = shared.guard.view().epoch();
    match shared.repair(slot, Copy::Live, from).await {
        Ok(cut) => debug!(%slot, %epoch, ?from, %cut, "live copy repaired"),
        // It became the owner's in between.
        Err(FetchError::OwnOwner { .. }) => {}
        Err(error) => {
            warn!(%error, %slot, %epoch, "repair failed, trying again");
            return false;
        }
    }
    true
}

/// Compares the copies that the leader asks about, each now and again while it asks.
async fn compare(shared: &Arc<Shared>, compared: &mut BTreeMap<Slot, (Instant, Pauses)>) {
    let verify = shared.directive.borrow().verify.clone();
    compared.retain(|slot, _| verify.contains(slot));
    let now = Instant::now();
    let due: Vec<Slot> = verify
        .into_iter()
        .filter(|slot| compared.get(slot).is_none_or(|(at, _)| *at <= now))
        .collect();
    let done: Vec<(Slot, Result<bool, FetchError>)> = futures::stream::iter(due)
        .map(|slot| async move { (slot, compare_one(shared, slot).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for (slot, done) in done {
        match done {
            Ok(true) => {
                let (_, mut pauses) = compared
                    .remove(&slot)
                    .unwrap_or_else(|| (now, Pauses::new(VERIFY.0, VERIFY.1)));
                let at = Instant::now() + pauses.next();
                compared.insert(slot, (at, pauses));
            }
            // Not comparable just now: at the next look.
            Ok(false) => {}
            Err(error) => debug!(%error, %slot, "comparison failed, trying again"),
        }
    }
}

/// Whether the comparison was made and both sides are equal.
async fn compare_one(shared: &Arc<Shared>, slot: Slot) -> Result<bool, FetchError> {
    let adopted = shared.board.adopted_epoch();
    // A member that missed the last writes has no hole that would show it: at its own watermark it
    // would equal the owner, and lack what was acknowledged without it.
    if !bait::on(bait::COMPARED_WITHOUT_TAIL) {
        let held = shared
            .store
            .call(move |store| store.watermark(slot, Copy::Live))
            .await?
            .held;
        shared.repair(slot, Copy::Live, held).await?;
    }
    let scan = shared.scans.acquire().await;
    let here = shared
        .store
        .call(move |store| store.digest(slot, Copy::Live, None))
        .await;
    drop(scan);
    let here = match here {
        Ok(here) => here,
        Err(StoreError::Pending { .. }) => {
            shared.want_repair(slot);
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let there = match shared.digest_of_owner(slot, LIVE, 0, here.cut).await {
        Ok(there) => there,
        Err(error) if error.asks_for_another_cut() => return Ok(false),
        Err(error) => return Err(error),
    };
    if here != there {
        let epoch = shared.guard.view().epoch();
        error!(
            %slot, %epoch, cut = %here.cut,
            records = here.records, owner_records = there.records,
            "a live copy differs from the owner's at the same cut"
        );
        shared.metrics.digests_differed.inc();
        match shared.mend(slot, Copy::Live).await? {
            Some(mended) => warn!(%slot, %epoch, fetched = mended.fetched,
                given_up = mended.given_up, keys = ?mended.named, "what differed was put right"),
            // All of it, which does not take out what the owner lacks of this reign.
            None => drop(shared.repair(slot, Copy::Live, None).await?),
        }
        return Ok(false);
    }
    if shared.board.adopted_epoch() != adopted {
        // Begun under an older epoch than the report would say.
        return Ok(false);
    }
    shared.board.stand(LIVE, slot, |standing| {
        standing.digest = Some(here);
        standing.watermark = standing.watermark.max(Some(here.cut));
    });
    Ok(true)
}
