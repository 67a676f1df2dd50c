//! What this node has to say to the leader: durable facts, and which of them are news.
//!
//! Everything on the board was made durable before it was put there. A new link gets the whole
//! board, an open one what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use annulus_ring::{Epoch, NodeId, Position, SessionId, Slot};
use tokio::sync::Notify;

use crate::store::{DigestAt, Held};

/// The session that stands for live copies.
pub(crate) const LIVE: SessionId = SessionId(0);

/// One copy's standing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub attempt: u32,
    pub staged: bool,
    pub copied: Option<Position>,
    pub watermark: Option<Position>,
    pub digest: Option<DigestAt>,
    pub joint: Option<Position>,
}

/// A report, whole or what changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub adopted: Epoch,
    pub slots: Vec<((SessionId, Slot), Standing)>,
    pub source_digests: Vec<((SessionId, Slot, NodeId), DigestAt)>,
    pub sealed: Option<(u64, Vec<Position>)>,
    pub confirmed: Option<(u64, Vec<Position>)>,
    pub released: Vec<(SessionId, Vec<Slot>)>,
    pub retained: BTreeMap<SessionId, BTreeSet<Slot>>,
    pub copied_bytes: u64,
    pub free_bytes: u64,
    pub held: Option<Held>,
    pub copy_bytes_per_second: u64,
    pub unheld: u32,
    pub behind: u32,
    pub fenced: Option<u64>,
    pub succeeded: Option<(u64, Vec<NodeId>)>,
    pub hits: Option<(SessionId, u16)>,
}

#[derive(Debug, Default)]
struct Facts {
    adopted: Epoch,
    slots: BTreeMap<(SessionId, Slot), Standing>,
    source_digests: BTreeMap<(SessionId, Slot, NodeId), DigestAt>,
    sealed: Option<(u64, Vec<Position>)>,
    confirmed: Option<(u64, Vec<Position>)>,
    released: BTreeMap<SessionId, BTreeSet<Slot>>,
    retained: BTreeMap<SessionId, BTreeSet<Slot>>,
    copied_bytes: u64,
    free_bytes: u64,
    held: Option<Held>,
    copy_bytes_per_second: u64,
    unheld: u32,
    behind: u32,
    fenced: Option<u64>,
    succeeded: Option<(u64, Vec<NodeId>)>,
    hits: Option<(SessionId, u16)>,
    // What the open link has not been told.
    new_slots: BTreeSet<(SessionId, Slot)>,
    new_digests: BTreeSet<(SessionId, Slot, NodeId)>,
    news: bool,
    /// Some of the news ends a time in which a range takes no writes.
    pressing: bool,
}

/// The facts, shared by everyone who makes some and the link, which tells them.
#[derive(Debug, Default)]
pub(crate) struct Board {
    facts: Mutex<Facts>,
    changed: Notify,
}

impl Board {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> T {
        let done = {
            let mut facts = self.facts();
            facts.news = true;
            change(&mut facts)
        };
        self.changed.notify_one();
        done
    }

    /// Like [`Board::change`], of what a range that takes no writes waits for.
    fn press(&self, change: impl FnOnce(&mut Facts)) {
        self.change(|facts| {
            facts.pressing = true;
            change(facts);
        });
    }

    /// Done when something changed since the last news was taken; with `known`, news that may
    /// wait, when something changed that may not. Whether it may wait. One listener.
    pub(crate) async fn changed(&self, known: bool) -> bool {
        loop {
            let changed = self.changed.notified();
            let (news, pressing) = {
                let facts = self.facts();
                (facts.news, facts.pressing)
            };
            if pressing || (news && !known) {
                return !pressing;
            }
            changed.await;
        }
    }

    pub(crate) fn adopted(&self, epoch: Epoch) {
        self.change(|facts| facts.adopted = facts.adopted.max(epoch));
    }

    /// Changes one copy's standing; nothing is said when nothing changed.
    pub(crate) fn stand(&self, session: SessionId, slot: Slot, change: impl FnOnce(&mut Standing)) {
        let mut facts = self.facts();
        let standing = facts.slots.entry((session, slot)).or_default();
        let before = standing.clone();
        change(standing);
        if *standing != before {
            facts.new_slots.insert((session, slot));
            facts.news = true;
            drop(facts);
            self.changed.notify_one();
        }
    }

    pub(crate) fn source_digest(
        &self,
        session: SessionId,
        slot: Slot,
        peer: NodeId,
        digest: DigestAt,
    ) {
        self.change(|facts| {
            let key = (session, slot, peer);
            facts.new_digests.insert(key.clone());
            facts.source_digests.insert(key, digest);
        });
    }

    pub(crate) fn sealed(&self, sealed: Option<(u64, Vec<Position>)>) {
        self.press(|facts| facts.sealed = sealed);
    }

    pub(crate) fn confirmed(&self, confirmed: Option<(u64, Vec<Position>)>) {
        self.press(|facts| facts.confirmed = confirmed);
    }

    pub(crate) fn confirmed_wave(&self) -> Option<u64> {
        self.facts().confirmed.as_ref().map(|(wave, _)| *wave)
    }

    pub(crate) fn sealed_wave(&self) -> Option<u64> {
        self.facts().sealed.as_ref().map(|(wave, _)| *wave)
    }

    pub(crate) fn released(&self, session: SessionId, slots: &[Slot]) {
        self.change(|facts| {
            facts.released.entry(session).or_default().extend(slots);
            if let Some(kept) = facts.retained.get_mut(&session) {
                kept.retain(|slot| !slots.contains(slot));
            }
            facts.retained.retain(|_, kept| !kept.is_empty());
        });
    }

    pub(crate) fn retained(&self, retained: BTreeMap<SessionId, BTreeSet<Slot>>) {
        if self.facts().retained != retained {
            self.change(|facts| facts.retained = retained);
        }
    }

    pub(crate) fn kept(&self, session: SessionId) -> BTreeSet<Slot> {
        self.facts()
            .retained
            .get(&session)
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) fn copied(&self, bytes: u64) {
        let mut facts = self.facts();
        facts.copied_bytes += bytes;
        facts.news = true;
        drop(facts);
        self.changed.notify_one();
    }

    pub(crate) fn free_bytes(&self, bytes: u64) {
        // Not news by itself: it goes along with the next report.
        self.facts().free_bytes = bytes;
    }

    /// How fast this node copies at most; 0: as fast as it goes. Said once, at the start.
    pub(crate) fn limit(&self, copy_bytes_per_second: u64) {
        self.facts().copy_bytes_per_second = copy_bytes_per_second;
    }

    /// What live copies hold, and the room beside them. Only the first is news.
    pub(crate) fn weighed(&self, held: Option<Held>, free_bytes: u64) {
        self.free_bytes(free_bytes);
        if self.facts().held != held {
            self.change(|facts| facts.held = held);
        }
    }

    /// Ranges that list this node and of which it holds no copy.
    pub(crate) fn unheld(&self, ranges: u32) {
        let mut facts = self.facts();
        if facts.unheld != ranges {
            facts.unheld = ranges;
            facts.news = true;
            drop(facts);
            self.changed.notify_one();
        }
    }

    /// Ranges that list this node, that another owns, and of which something is missing here.
    pub(crate) fn behind(&self, ranges: u32) {
        let mut facts = self.facts();
        if facts.behind != ranges {
            facts.behind = ranges;
            facts.news = true;
            drop(facts);
            self.changed.notify_one();
        }
    }

    /// The failover whose owner is refused here, with nothing older in flight.
    pub(crate) fn fenced(&self, wave: Option<u64>) {
        self.press(|facts| facts.fenced = wave);
    }

    /// The failover of [`Board::fenced`].
    pub(crate) fn fenced_wave(&self) -> Option<u64> {
        self.facts().fenced
    }

    /// The failover for which the tails of these nodes are stored.
    pub(crate) fn succeeded(&self, succeeded: Option<(u64, Vec<NodeId>)>) {
        self.press(|facts| facts.succeeded = succeeded);
    }

    /// The failover of [`Board::succeeded`].
    pub(crate) fn succeeded_wave(&self) -> Option<u64> {
        self.facts().succeeded.as_ref().map(|(wave, _)| *wave)
    }

    /// As gainer of a cache ring: hits of 1,000 lookups.
    pub(crate) fn hits(&self, hits: Option<(SessionId, u16)>) {
        if self.facts().hits != hits {
            self.change(|facts| facts.hits = hits);
        }
    }

    /// Forgets what was said of sessions that are over, so that memory stays bounded, and starts
    /// the count of copied bytes anew.
    pub(crate) fn session(&self, running: Option<SessionId>) {
        let mut facts = self.facts();
        let keep = |session: SessionId| session == LIVE || Some(session) == running;
        facts.slots.retain(|(session, _), _| keep(*session));
        facts
            .source_digests
            .retain(|(session, _, _), _| keep(*session));
        facts.new_slots.retain(|(session, _)| keep(*session));
        facts.new_digests.retain(|(session, _, _)| keep(*session));
        facts.copied_bytes = 0;
        facts.hits = facts.hits.filter(|(session, _)| keep(*session));
    }

    /// Comparisons of live copies made before an epoch that changed the slots: they prove nothing
    /// of what came after, and would be taken for new ones by the next leader.
    pub(crate) fn outlive(&self, changed: &BTreeSet<Slot>) {
        let mut facts = self.facts();
        let keep = |session: SessionId, slot| session != LIVE || !changed.contains(&slot);
        facts
            .slots
            .retain(|(session, slot), _| keep(*session, *slot));
        facts
            .source_digests
            .retain(|(session, slot, _), _| keep(*session, *slot));
        facts
            .new_slots
            .retain(|(session, slot)| keep(*session, *slot));
        facts
            .new_digests
            .retain(|(session, slot, _)| keep(*session, *slot));
    }

    /// Slots have other names now: whatever was said of them is forgotten.
    pub(crate) fn forget_slots(&self) {
        self.change(|facts| {
            facts.slots.clear();
            facts.source_digests.clear();
            facts.new_slots.clear();
            facts.new_digests.clear();
            facts.released.clear();
            facts.retained.clear();
            (facts.sealed, facts.confirmed) = (None, None);
            (facts.fenced, facts.succeeded, facts.hits) = (None, None, None);
        });
    }

    /// The adopted epoch that the next report speaks of.
    pub(crate) fn adopted_epoch(&self) -> Epoch {
        self.facts().adopted
    }

    /// What is left of live comparisons that the leader no longer asks for.
    pub(crate) fn keep_live(&self, keep: impl Fn(Slot) -> bool) {
        let mut facts = self.facts();
        facts
            .slots
            .retain(|(session, slot), _| *session != LIVE || keep(*slot));
        facts
            .new_slots
            .retain(|(session, slot)| *session != LIVE || keep(*slot));
    }

    /// The next report. `whole`: for a link that was just opened.
    pub(crate) fn take(&self, whole: bool) -> News {
        let mut facts = self.facts();
        let facts = &mut *facts;
        let mut news = News {
            adopted: facts.adopted,
            sealed: facts.sealed.clone(),
            confirmed: facts.confirmed.clone(),
            released: facts
                .released
                .iter()
                .map(|(session, slots)| (*session, slots.iter().copied().collect()))
                .collect(),
            retained: facts.retained.clone(),
            copied_bytes: facts.copied_bytes,
            free_bytes: facts.free_bytes,
            held: facts.held,
            copy_bytes_per_second: facts.copy_bytes_per_second,
            unheld: facts.unheld,
            behind: facts.behind,
            fenced: facts.fenced,
            succeeded: facts.succeeded.clone(),
            hits: facts.hits,
            ..News::default()
        };
        // Deletions were told once the link took the report; a lost one is made up for by the
        // whole list of retained copies in every report.
        facts.released.clear();
        let new_slots = std::mem::take(&mut facts.new_slots);
        let new_digests = std::mem::take(&mut facts.new_digests);
        facts.news = false;
        facts.pressing = false;
        let clone = |(key, standing): (&(SessionId, Slot), &Standing)| (*key, standing.clone());
        if whole {
            news.slots = facts.slots.iter().map(clone).collect();
            news.source_digests = facts
                .source_digests
                .iter()
                .map(|(key, at)| (key.clone(), *at))
                .collect();
        } else {
            news.slots = new_slots
                .iter()
                .filter_map(|key| facts.slots.get_key_value(key))
                .map(clone)
                .collect();
            news.source_digests = new_digests
                .into_iter()
                .filter_map(|key| facts.source_digests.get(&key).map(|at| (key, *at)))
                .collect();
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_new_link_is_told_everything_and_an_open_one_the_news() {
        let board = Board::default();
        let session = SessionId(3);
        board.stand(session, Slot(1), |standing| standing.staged = true);
        board.adopted(Epoch(5));
        assert_eq!(board.take(false).slots.len(), 1);
        assert_eq!(board.take(false).slots.len(), 0);
        board.stand(session, Slot(2), |standing| standing.staged = true);
        let news = board.take(false);
        assert_eq!((news.adopted, news.slots.len()), (Epoch(5), 1));
        assert_eq!(board.take(true).slots.len(), 2);
        board.session(None);
        assert_eq!(board.take(true).slots.len(), 0);
    }

    #[test]
    fn what_ends_a_pause_in_writes_does_not_wait_for_other_news() {
        let board = Board::default();
        let now = |known| board.changed(known).now_or_never();
        assert_eq!(now(false), None);
        board.copied(1);
        assert_eq!((now(false), now(true)), (Some(true), None));
        board.sealed(Some((1, Vec::new())));
        assert_eq!((now(false), now(true)), (Some(false), Some(false)));
        board.take(false);
        assert_eq!((now(false), now(true)), (None, None));
    }
}
