//! The store in memory, and what a bug makes of it.

use std::sync::{
    Arc, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use annulus_agent::{
    Copy, Cut, DigestAt, Holding, RangeStore, Record, Records, SlotOf, StoreError, Stray, Versions,
    Watermark, digest,
};
use annulus_ring::{Epoch, Position, SessionId, Slot};
use bytes::Bytes;

use crate::{
    bug::Bug,
    lab::{Bent, Disk},
    memory::MemoryStore,
};

/// A store in memory with at most one bug.
pub struct Broken {
    pub bug: Option<Bug>,
    pub disk: Arc<Disk>,
    /// Writes that its disk still takes.
    pub writes: AtomicU64,
}

/// Who may go on with a call.
enum Leave {
    All,
    /// Half of it reached the disk.
    Half,
    /// None of it did, and nobody was told.
    Unnoticed,
}

impl Broken {
    pub fn store(&self) -> &MemoryStore {
        &self.disk.store
    }

    pub fn bent(&self) -> MutexGuard<'_, Bent> {
        self.disk.bent.lock().unwrap()
    }

    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether a call that is one write to disk is made; an error where the disk is gone.
    fn begun(&self) -> Result<bool, StoreError> {
        Ok(matches!(self.spend(false)?, Leave::All))
    }

    /// One write to disk, after which everything is done at once; two, where a bug splits it.
    fn spend(&self, split: bool) -> Result<Leave, StoreError> {
        let cost = if split { 2 } else { 1 };
        let left = self.writes.load(Ordering::SeqCst);
        self.writes
            .store(left.saturating_sub(cost), Ordering::SeqCst);
        match left {
            0 if self.has(Bug::AnswersBeforeTheDisk) => Ok(Leave::Unnoticed),
            0 => Err(off()),
            left if left < cost => Ok(Leave::Half),
            _ => Ok(Leave::All),
        }
    }

    pub fn keys(&self, slot: Slot, copy: Copy) -> Vec<Bytes> {
        let pairs = self.store().newest(slot, copy).into_iter();
        pairs
            .filter(|(_, (_, value))| value.is_some())
            .map(|(key, _)| key)
            .collect()
    }

    /// The copy that is shown of a slot: the live one, or what the bug shows in its absence.
    pub fn shown(&self, slot: Slot, staging: Bug) -> Result<Copy, StoreError> {
        let copies = self.store().copies();
        let of_slot = || copies.iter().filter(|(of, _)| *of == slot);
        let other = || {
            of_slot().map(|(_, copy)| *copy).find(|copy| match copy {
                Copy::Live => false,
                Copy::Staging(_) => self.has(staging),
                Copy::Retained(_) => staging == Bug::ReadsStaging && self.has(Bug::ServesRetained),
            })
        };
        let live = of_slot().any(|(_, copy)| *copy == Copy::Live);
        let copy = Copy::Live;
        let shown = if live { Some(copy) } else { other() };
        shown.ok_or(StoreError::Missing { slot, copy })
    }

    fn staged(&self, slot: Slot) -> Option<(SessionId, u32)> {
        let holdings = self.store().holdings().unwrap();
        holdings.iter().find_map(|holding| match holding.copy {
            Copy::Staging(session) if holding.slot == slot => Some((session, holding.attempt)),
            _ => None,
        })
    }

    /// Notes what a bug tells of records later on.
    fn bend(&self, slot: Slot, copy: Copy, records: &mut [Record]) {
        let mut bent = self.bent();
        for record in records {
            if self.has(Bug::TrimsKeys) {
                record.key = Bytes::copy_from_slice(record.key.trim_ascii_end());
            }
            let newest = self.store().newest(slot, copy);
            let late = newest.values().any(|(at, _)| *at > record.version);
            let again = newest
                .get(&record.key)
                .is_some_and(|(at, _)| *at == record.version);
            if late && !again {
                bent.disordered.insert((slot, copy));
            }
            let Some((at, value)) = newest.get(&record.key) else {
                continue;
            };
            let returns = match value {
                Some(_) => self.has(Bug::LastArrivalWins),
                None => self.has(Bug::LatePutReturns),
            };
            if returns && *at > record.version {
                bent.values
                    .insert((slot, record.key.clone()), record.value.clone());
            }
        }
    }

    /// A digest over these records.
    fn digest_of<'a>(
        cut: Position,
        records: impl Iterator<Item = (&'a Bytes, Position, Option<&'a [u8]>)>,
    ) -> DigestAt {
        let mut sum = digest::Sum::new();
        for (key, version, value) in records {
            sum.add(digest::hash_parts(key, version, value));
        }
        DigestAt {
            cut,
            digest: sum.to_bytes(),
            records: sum.records,
        }
    }
}

fn off() -> StoreError {
    StoreError::Backend {
        doing: "write",
        source: "the disk is gone".into(),
    }
}

impl RangeStore for Broken {
    fn holdings(&self) -> Result<Vec<Holding>, StoreError> {
        let mut holdings = self.store().holdings()?;
        let bent = self.bent();
        for holding in &mut holdings {
            if self.has(Bug::ForgetsAttempts) {
                holding.attempt = 0;
            }
            if let Copy::Staging(session) = holding.copy
                && bent.unmarked.contains(&(holding.slot, session))
            {
                holding.complete = false;
            }
        }
        Ok(holdings)
    }

    fn open_live(&self, slots: &[Slot]) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        if self.has(Bug::OpensLiveAnew) {
            let (gone, never) = (SessionId(u64::MAX), slots);
            self.store().retain(gone, never)?;
            self.store().drop_retained(gone, never)?;
        }
        self.store().open_live(slots)
    }

    fn open_staging(
        &self,
        session: SessionId,
        attempt: u32,
        slots: &[Slot],
    ) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        for slot in slots {
            let Some((held, of)) = self.staged(*slot) else {
                continue;
            };
            let anew = (self.has(Bug::LateAttemptWins) && held == session && of > attempt)
                || (self.has(Bug::LateSessionWins) && held > session)
                || (self.has(Bug::OpensStagingAnew) && (held, of) == (session, attempt));
            if anew {
                self.store().drop_staging(held)?;
            }
            if self.has(Bug::NewAttemptKeepsRecords) && (held, of) < (session, attempt) {
                let kept = self.store().newest(*slot, Copy::Staging(held));
                self.store().open_staging(session, attempt, &[*slot])?;
                let kept = kept.into_iter().map(|(key, (version, value))| Record {
                    key,
                    version,
                    value,
                });
                let copy = Copy::Staging(session);
                self.store().merge(*slot, copy, kept.collect(), None)?;
            }
        }
        self.store().open_staging(session, attempt, slots)
    }

    fn fork(&self, slot: Slot) -> Result<Option<Position>, StoreError> {
        let fork = self.store().fork(slot)?;
        if self.has(Bug::ForksAtTheBase) && fork.is_some() {
            return Ok(self.store().watermark(slot, Copy::Live)?.held);
        }
        Ok(fork)
    }

    fn find(&self, slot: Slot, key: &[u8]) -> Result<Option<Record>, StoreError> {
        let found = self.store().find(slot, key)?;
        Ok(found.filter(|record| record.value.is_some() || !self.has(Bug::FindsOnlyValues)))
    }

    fn versions(
        &self,
        slot: Slot,
        copy: Copy,
        from: Option<Position>,
    ) -> Result<Versions, StoreError> {
        let versions = self.store().versions(slot, copy, from)?;
        if !self.has(Bug::ListsNoTombstones) {
            return Ok(versions);
        }
        let keys = self.keys(slot, copy);
        let has_value = move |found: &Result<(Bytes, Position), StoreError>| {
            found.as_ref().is_ok_and(|(key, _)| keys.contains(key))
        };
        Ok(Box::new(versions.filter(has_value)))
    }

    fn records(&self, slot: Slot, copy: Copy) -> Result<Option<Records>, StoreError> {
        let records = self.store().records(slot, copy)?;
        if self.has(Bug::ListsRecordsOfLiveCopiesAlone) && copy != Copy::Live {
            return Ok(Some(Box::new(std::iter::empty())));
        }
        Ok(records)
    }

    fn give_up(&self, slot: Slot, copy: Copy, mut strays: Vec<Stray>) -> Result<(), StoreError> {
        let leave = self.spend(self.has(Bug::GivesUpInPieces))?;
        match leave {
            Leave::All => {}
            Leave::Half => {
                strays.iter_mut().for_each(|stray| stray.instead = None);
                self.store().give_up(slot, copy, strays)?;
                return Err(off());
            }
            Leave::Unnoticed => return Ok(()),
        }
        if self.has(Bug::GivesUpAnyVersion) {
            let newest = self.store().newest(slot, copy);
            for stray in &mut strays {
                if let Some((version, _)) = newest.get(&stray.key) {
                    stray.version = *version;
                }
            }
        }
        self.store().give_up(slot, copy, strays)
    }

    fn read_cut(&self, slot: Slot) -> Result<Cut, StoreError> {
        self.tail(slot, None)
    }

    fn tail(&self, slot: Slot, from: Option<Position>) -> Result<Cut, StoreError> {
        if self.has(Bug::CopiesStaging) && self.shown(slot, Bug::CopiesStaging)? != Copy::Live {
            return Ok(Cut {
                position: Position::default(),
                records: Box::new(std::iter::empty()),
            });
        }
        let start = from.filter(|from| self.has(Bug::TailsFromTheStart) && from.seq > 0);
        let from = start
            .map(|from| Position::new(from.reign, from.seq - 1))
            .or(from);
        let cut = self.store().tail(slot, from)?;
        let position = match self.has(Bug::CutsAtTheBase) {
            true => Position::new(cut.position.reign, 0),
            false => cut.position,
        };
        if self.has(Bug::CutsLazily) {
            let disk = self.disk.clone();
            let records = std::iter::once_with(move || disk.store.tail(slot, from).unwrap());
            let records = Box::new(records.flat_map(|cut| cut.records));
            return Ok(Cut { position, records });
        }
        let drops = from.is_some() && self.has(Bug::TailsNoTombstones);
        let kept = cut
            .records
            .filter(move |record| !drops || record.as_ref().unwrap().value.is_some());
        Ok(Cut {
            position,
            records: Box::new(kept),
        })
    }

    fn merge(
        &self,
        slot: Slot,
        copy: Copy,
        mut records: Vec<Record>,
        through: Option<Position>,
    ) -> Result<(), StoreError> {
        match self.spend(self.has(Bug::MergesInPieces))? {
            Leave::All => {}
            Leave::Half => {
                records.truncate(1);
                self.store().merge(slot, copy, records, None)?;
                return Err(off());
            }
            Leave::Unnoticed => return Ok(()),
        }
        self.bend(slot, copy, &mut records);
        let held = self.store().watermark(slot, copy).ok();
        let held = held.and_then(|mark| mark.held);
        let mut through = through;
        match self.bug {
            Some(Bug::AwaitsNoBase) => {
                let newest = records.iter().map(|record| record.version).max();
                let newer = held.is_some_and(|held| newest.is_some_and(|at| at.reign > held.reign));
                through = through.max(newest.filter(|_| newer));
            }
            Some(Bug::LowersTheWatermark) => {
                let older = through.filter(|at| held.is_some_and(|held| at.reign < held.reign));
                if older.is_some() {
                    self.bent().marks.insert((slot, copy), older);
                }
            }
            Some(Bug::NeedsRecordsToMove) if records.is_empty() => through = None,
            Some(Bug::LateRecordOpens) => {
                if let (Copy::Staging(session), None) = (copy, self.staged(slot)) {
                    self.store().open_staging(session, 1, &[slot])?;
                }
            }
            Some(Bug::PromotesWithoutWatermark) => {
                self.bent().marks.remove(&(slot, copy));
            }
            _ => {}
        }
        self.store().merge(slot, copy, records, through)
    }

    fn mark_complete(
        &self,
        slot: Slot,
        session: SessionId,
        cut: Position,
    ) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        if self.has(Bug::LateMarkerOpens) && self.staged(slot).is_none() {
            self.store().open_staging(session, 1, &[slot])?;
        }
        let copy = Copy::Staging(session);
        if self.has(Bug::MarkerMovesNothing) {
            let held = self.watermark(slot, copy)?.held;
            self.bent().marks.insert((slot, copy), held);
        }
        self.bent().unmarked.remove(&(slot, session));
        self.store().mark_complete(slot, session, cut)
    }

    fn digest(
        &self,
        slot: Slot,
        copy: Copy,
        cut: Option<Position>,
    ) -> Result<DigestAt, StoreError> {
        if self.has(Bug::DigestsNowForThen)
            && let Some(cut) = cut
            && self.store().watermark(slot, copy)?.held >= Some(cut)
        {
            let now = self.store().digest(slot, copy, None)?;
            return Ok(DigestAt { cut, ..now });
        }
        let true_one = self.store().digest(slot, copy, cut);
        let pairs = self.store().newest(slot, copy);
        let parts = || {
            pairs
                .iter()
                .map(|(key, (at, value))| (key, *at, value.as_deref()))
        };
        if self.has(Bug::DigestsAhead) && matches!(true_one, Err(StoreError::NotThere { .. })) {
            return Ok(Self::digest_of(cut.unwrap(), parts()));
        }
        if self.has(Bug::DigestsOverHoles) && matches!(true_one, Err(StoreError::Pending { .. })) {
            let held = self.store().watermark(slot, copy)?.held;
            return Ok(Self::digest_of(held.unwrap_or_default(), parts()));
        }
        let mut told = true_one?;
        if cut.is_some() {
            return Ok(told);
        }
        match self.bug {
            Some(Bug::DigestsAllButTheLast) if pairs.len() > 1 => {
                told = Self::digest_of(told.cut, parts().take(pairs.len() - 1));
            }
            Some(Bug::DigestsTheArrival) if self.bent().disordered.contains(&(slot, copy)) => {
                told.digest[0] ^= 1
            }
            Some(Bug::DigestsTheBeginning) => {
                let beginnings = parts().map(|(key, at, value)| {
                    (key, at, value.map(|value| &value[..value.len().min(100)]))
                });
                told = Self::digest_of(told.cut, beginnings);
            }
            Some(Bug::DigestsTombstonesAsEmpty) => {
                let filled = parts().map(|(key, at, value)| (key, at, value.or(Some(&[][..]))));
                told = Self::digest_of(told.cut, filled);
            }
            Some(Bug::DigestsLiveOnly) if copy != Copy::Live => {
                told = Self::digest_of(told.cut, std::iter::empty());
            }
            _ => {}
        }
        Ok(told)
    }

    fn watermark(&self, slot: Slot, copy: Copy) -> Result<Watermark, StoreError> {
        let mut mark = self.store().watermark(slot, copy)?;
        if let Some(told) = self.bent().marks.get(&(slot, copy)) {
            mark.held = *told;
        }
        if self.has(Bug::HidesHoles) {
            mark.pending = false;
        }
        if self.has(Bug::JumpsOverHoles)
            && let Some(held) = mark.held
        {
            let newest = self.store().newest(slot, copy);
            let positions = newest.values().map(|(at, _)| *at);
            mark.held = positions
                .filter(|at| at.reign == held.reign)
                .max()
                .max(mark.held);
        }
        Ok(mark)
    }

    fn begin_reign(&self, slots: &[(Slot, Epoch)]) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        for (slot, reign) in slots {
            let held = self.store().watermark(*slot, Copy::Live)?.held;
            let again = held.is_some_and(|held| held.reign == *reign);
            let mut bent = self.bent();
            bent.marks.remove(&(*slot, Copy::Live));
            if again && self.has(Bug::BeginsAReignTwice) {
                let base = Some(Position::new(*reign, 0));
                bent.marks.insert((*slot, Copy::Live), base);
            }
        }
        self.store().begin_reign(slots)
    }

    fn promote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        match self.spend(self.has(Bug::PromotesInPieces))? {
            Leave::All => {}
            Leave::Half => {
                self.store().promote(session, &slots[..1])?;
                return Err(off());
            }
            Leave::Unnoticed => return Ok(()),
        }
        let held = |slot: &Slot| self.store().copies().iter().any(|(of, _)| of == slot);
        if self.has(Bug::PromotesNothing) && !slots.iter().any(held) {
            return Ok(());
        }
        for slot in slots {
            let copy = Copy::Staging(session);
            let gone = !self.store().copies().contains(&(*slot, copy));
            if gone && self.has(Bug::PromotesOnlyOnce) {
                return Err(StoreError::Missing { slot: *slot, copy });
            }
            let mut bent = self.bent();
            bent.marks.remove(&(*slot, copy));
            bent.unmarked.remove(&(*slot, session));
            if self.has(Bug::PromotesWithoutWatermark) {
                bent.marks.insert((*slot, Copy::Live), None);
            }
        }
        self.store().promote(session, slots)
    }

    fn demote(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        if self.has(Bug::DemotesToIncomplete) {
            let hidden = slots.iter().map(|slot| (*slot, session));
            self.bent().unmarked.extend(hidden);
        }
        self.store().demote(session, slots)
    }

    fn retain(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        if self.has(Bug::RetainsWithoutWatermark) {
            let copies = slots.iter().map(|slot| (*slot, Copy::Retained(session)));
            self.bent().marks.extend(copies.map(|copy| (copy, None)));
        }
        self.store().retain(session, slots)
    }

    fn split(&self, bits: u8, slot_of: SlotOf) -> Result<(), StoreError> {
        let store = self.store();
        match self.spend(self.has(Bug::SplitsInPieces))? {
            Leave::All => {}
            // In pieces: one half of the slot was not written any more.
            Leave::Half => {
                store.split(bits, slot_of)?;
                let odd: Vec<Slot> = store.copies().iter().map(|(slot, _)| *slot).collect();
                let odd: Vec<Slot> = odd.into_iter().filter(|slot| slot.0 % 2 == 1).collect();
                store.retain(SessionId(u64::MAX), &odd)?;
                store.drop_retained(SessionId(u64::MAX), &odd)?;
                return Err(off());
            }
            // Another check tells that.
            Leave::Unnoticed => return Err(off()),
        }
        if self.has(Bug::SplitsAgain) {
            store.forget_slot_bits(bits);
        }
        if self.has(Bug::SplitsLiveCopiesAlone) {
            for (slot, copy) in store.copies() {
                if let Copy::Retained(session) = copy {
                    store.drop_retained(session, &[slot])?;
                }
            }
        }
        if self.has(Bug::SplitsBlindly) {
            return store.split(bits, Arc::new(move |key| Slot(slot_of(key).0 & !1)));
        }
        store.split(bits, slot_of)
    }

    fn drop_staging(&self, session: SessionId) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        if self.has(Bug::DropsWhatIsRetained) {
            let slots: Vec<Slot> = self
                .store()
                .copies()
                .iter()
                .map(|(slot, _)| *slot)
                .collect();
            self.store().drop_retained(session, &slots)?;
        }
        self.store().drop_staging(session)
    }

    fn drop_retained(&self, session: SessionId, slots: &[Slot]) -> Result<(), StoreError> {
        if !self.begun()? {
            return Ok(());
        }
        for slot in slots {
            let copies = self.store().copies();
            let mut retained = copies.iter().filter_map(|(of, copy)| match copy {
                Copy::Retained(session) if of == slot => Some(*session),
                _ => None,
            });
            if self.has(Bug::PermitFitsAnySession)
                && let Some(other) = retained.clone().next()
            {
                self.store().drop_retained(other, &[*slot])?;
            }
            if self.has(Bug::PermitTakesLiveCopies) && retained.all(|one| one != session) {
                self.store().retain(session, &[*slot])?;
            }
        }
        self.store().drop_retained(session, slots)
    }

    fn last_position(&self, slot: Slot) -> Result<Position, StoreError> {
        if self.has(Bug::CopiesStaging) && self.shown(slot, Bug::CopiesStaging)? != Copy::Live {
            return Ok(Position::default());
        }
        let last = self.store().last_position(slot)?;
        Ok(match self.bent().restarted {
            true => Position::new(last.reign, 0),
            false => last,
        })
    }
}
