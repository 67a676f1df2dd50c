//! An honest data node, with positions instead of data: what it holds is the truth that promises
//! are checked against. It makes everything durable before it says it.

use std::collections::{BTreeMap, BTreeSet};

use annulus_membership::{
    Birth, Directive, Hello, Registration, Report, RingState, SlotReport, TransitionState, WaveId,
};
use annulus_ring::{Epoch, Handle, Incarnation, NodeId, Position, SessionId, Slot, Step};

/// A copy in staging.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    pub attempt: u32,
    /// Cut of the complete copy.
    pub cut: Option<Position>,
    /// Held without holes up to here.
    pub mark: Option<Position>,
    /// A record was dropped on the way: only a digest can tell.
    pub damaged: bool,
}

/// What a node can see of a range's owner while that owner runs.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Its last write.
    pub at: Position,
    /// Where it made its last digest.
    pub cut: Option<Position>,
}

/// Whose tails a failover's successor reads, and the highest position in them, by the wave's slots.
pub type Tails = (Vec<NodeId>, Vec<Position>);

#[derive(Clone, Debug)]
pub struct Node {
    pub registration: Registration,
    pub incarnation: Incarnation,
    /// Its process runs.
    pub runs: bool,
    /// It has a link to the present leader.
    pub linked: bool,
    pub adopted: Epoch,
    /// Ranges held whole, served, and up to where.
    pub live: BTreeMap<Slot, Position>,
    pub staging: BTreeMap<(SessionId, Slot), Staged>,
    /// Copies kept after their range was lost.
    pub kept: BTreeMap<SessionId, BTreeSet<Slot>>,
    /// The wave sealed here, with F.
    pub sealed: Option<(WaveId, Vec<Position>)>,
    /// The ranges under that seal.
    sealed_slots: Vec<Slot>,
    confirmed: Option<(WaveId, Vec<Position>)>,
    /// The failover whose owner is refused here, and its ranges: their tails stay as they are.
    pub fenced: Option<(WaveId, Vec<Slot>)>,
    /// The failover whose tails it stored, and whose they were.
    succeeded: Option<(WaveId, Vec<NodeId>)>,
    /// J of the ranges it owns, by session.
    pub joint: BTreeMap<(SessionId, Slot), Position>,
    /// Ranges it owns as far as it knows.
    owned: Vec<Slot>,
    cuts: BTreeMap<Slot, Position>,
    last_session: SessionId,
    /// The next copy drops a record.
    pub drops_a_record: bool,
    /// What it said last: durable, so a new link opens with it.
    pub report: Report,
    /// The directory it had before its disk was emptied.
    pub aside: Option<Box<Node>>,
}

impl Node {
    pub fn new(registration: Registration) -> Self {
        Self {
            registration,
            incarnation: Incarnation(0),
            runs: true,
            linked: false,
            adopted: Epoch(0),
            live: BTreeMap::new(),
            staging: BTreeMap::new(),
            kept: BTreeMap::new(),
            sealed: None,
            sealed_slots: Vec::new(),
            confirmed: None,
            fenced: None,
            succeeded: None,
            joint: BTreeMap::new(),
            owned: Vec::new(),
            cuts: BTreeMap::new(),
            last_session: SessionId(0),
            drops_a_record: false,
            report: Report::default(),
            aside: None,
        }
    }

    pub fn id(&self) -> &NodeId {
        &self.registration.node
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.staging.is_empty() && self.kept.is_empty()
    }

    pub fn hello(&self) -> Hello {
        Hello {
            registration: self.registration.clone(),
            incarnation: self.incarnation,
            empty: self.is_empty(),
        }
    }

    /// Draws a new birth for a new directory, as an agent does when it is told `discard`.
    pub fn start_anew(&mut self, birth: Birth) {
        let registration = Registration {
            birth,
            ..self.registration.clone()
        };
        let aside = self.aside.take();
        *self = Self::new(registration);
        self.aside = aside;
    }

    /// The disk is emptied; somebody kept the directory with the `living` birth, or the last one.
    pub fn empty_disk(&mut self, birth: Birth, living: Option<Birth>) {
        let mut old = self.clone();
        let older = old.aside.take();
        self.start_anew(birth);
        let lives = |node: &Self| Some(node.registration.birth) == living;
        self.aside = older
            .filter(|older| lives(older) && !lives(&old))
            .or_else(|| Some(Box::new(old)));
    }

    /// The old disk is put back, and this one set aside.
    pub fn restore(&mut self) {
        if let Some(old) = self.aside.take() {
            let new = std::mem::replace(self, *old);
            self.linked = false;
            self.runs = true;
            self.aside = Some(Box::new(new));
        }
    }

    /// This directory or the one set aside, whichever is of that life.
    pub fn life(&self, incarnation: Incarnation) -> Option<&Self> {
        if self.incarnation == incarnation {
            return Some(self);
        }
        self.aside
            .as_deref()
            .filter(|aside| aside.incarnation == incarnation)
    }

    /// Every copy becomes copies of the two halves of its range, here and in the directory set aside.
    pub fn split(&mut self) {
        let halves = |slot: Slot| [Slot(2 * slot.0), Slot(2 * slot.0 + 1)];
        let live = std::mem::take(&mut self.live).into_iter();
        self.live = live
            .flat_map(|(slot, at)| halves(slot).map(|half| (half, at)))
            .collect();
        for slots in self.kept.values_mut() {
            *slots = slots.iter().copied().flat_map(halves).collect();
        }
        self.staging.clear();
        self.joint.clear();
        self.cuts.clear();
        self.owned.clear();
        self.sealed_slots.clear();
        (self.sealed, self.confirmed) = (None, None);
        (self.fenced, self.succeeded) = (None, None);
        if let Some(aside) = &mut self.aside {
            aside.split();
        }
    }

    /// One write to each range it owns and has not sealed.
    pub fn write(&mut self) {
        for slot in &self.owned {
            let refused = |(_, slots): &(WaveId, Vec<Slot>)| slots.contains(slot);
            if !self.sealed_slots.contains(slot)
                && !self.fenced.as_ref().is_some_and(refused)
                && let Some(at) = self.live.get_mut(slot)
            {
                at.seq += 1;
            }
        }
    }

    /// Where it stands in a range that it may be read for.
    pub fn head(&self, slot: Slot) -> Option<Head> {
        let at = *self.live.get(&slot)?;
        let cut = self.cuts.get(&slot).copied();
        Some(Head { at, cut })
    }

    /// Adopts the newest epoch and does what it and the directive ask. Answers with the retained
    /// copies that were deleted under a permit.
    pub fn act(
        &mut self,
        ring: &RingState,
        directive: &Directive,
        heads: &[Option<Head>],
        tails: Option<&Tails>,
    ) -> Vec<Slot> {
        // Refused first: what it then adopts of a silent owner's writes is none.
        self.refuse(directive);
        self.adopted = self.adopted.max(ring.epoch);
        self.owned.clear();
        let me = self.handle(ring);
        let session = ring.transition.as_ref().map(TransitionState::session);
        if let Some(me) = me {
            for slot in ring.slots.slots() {
                self.adopt(ring, slot, me, heads[slot.index()]);
            }
        }
        if ring.conversion.is_some() {
            // It serves nobody.
            self.owned.clear();
        }
        if let Some(session) = session {
            self.last_session = session;
        }
        if directive.everyone_adopted >= ring.epoch {
            self.staging.retain(|(of, _), _| Some(*of) == session);
        }
        self.joint.retain(|(of, _), _| Some(*of) == session);
        self.hand_over(directive);
        self.succeed(directive, tails);
        let mut deleted = Vec::new();
        for (session, slots) in &directive.permits {
            if let Some(kept) = self.kept.get_mut(session) {
                deleted.extend(slots.iter().copied().filter(|slot| kept.remove(slot)));
            }
        }
        self.kept.retain(|_, slots| !slots.is_empty());
        self.report = self.whole_report(ring, me, &directive.verify, heads);
        deleted
    }

    fn handle(&self, ring: &RingState) -> Option<Handle> {
        let member = ring.members.get(self.id())?;
        (member.incarnation == self.incarnation).then_some(member.handle)
    }

    fn adopt(&mut self, ring: &RingState, slot: Slot, me: Handle, head: Option<Head>) {
        let sets = ring.sets(slot);
        let reign = ring.reigns[slot.index()];
        let is_listed = sets.old.contains(&me);
        let running = ring.transition.as_ref();
        let gained = running.filter(|_| !is_listed && sets.new.contains(&me));
        if let Some(transition) = gained {
            self.gain(slot, (transition.session(), slot), transition.step, head);
        } else if !is_listed && self.live.remove(&slot).is_some() {
            self.kept.entry(self.last_session).or_default().insert(slot);
        } else if is_listed && !self.live.contains_key(&slot) {
            self.promote(slot);
        }
        let Some(at) = self.live.get_mut(&slot) else {
            return;
        };
        if sets.owner() != Some(me) {
            // Followers have what a running owner has.
            let refused = |(_, slots): &(WaveId, Vec<Slot>)| slots.contains(&slot);
            let is_refused = self.fenced.as_ref().is_some_and(refused);
            let same_reign = head.filter(|head| head.at.reign == reign && !is_refused);
            *at = same_reign.map_or(*at, |head| (*at).max(head.at));
            return;
        }
        if at.reign < reign {
            *at = Position::new(reign, 0);
        }
        self.owned.push(slot);
        self.cuts.insert(slot, *at);
        if let Some(transition) = running.filter(|one| one.step == Step::Joint)
            && sets.step.is_some()
        {
            let key = (transition.session(), slot);
            // A failover voids what was said of an older reign.
            let said = self.joint.entry(key).or_insert(*at);
            if said.reign < reign {
                *said = *at;
            }
        }
    }

    /// Whether a read that reaches it, now or once it has woken up, finds all of the range.
    pub fn holds(&self, slot: Slot) -> bool {
        let whole = |((_, of), staged): (&(SessionId, Slot), &Staged)| {
            *of == slot && staged.mark.is_some() && !staged.damaged
        };
        self.live.contains_key(&slot) || self.staging.iter().any(whole)
    }

    /// It slept through the switch: the newest copy that is whole is what it was listed for.
    fn promote(&mut self, slot: Slot) {
        let whole = |((session, of), staged): (&(SessionId, Slot), &Staged)| {
            (*of == slot).then_some((*session, staged.mark?))
        };
        if let Some((session, mark)) = self
            .staging
            .iter()
            .filter_map(whole)
            .max_by_key(|one| one.0)
        {
            self.staging.remove(&(session, slot));
            self.live.insert(slot, mark);
        }
    }

    fn gain(&mut self, slot: Slot, key: (SessionId, Slot), step: Step, head: Option<Head>) {
        match step {
            Step::Switched => {
                let whole = self.staging.get(&key).and_then(|staged| staged.mark);
                if let Some(mark) = whole {
                    self.staging.remove(&key);
                    self.live.insert(slot, mark);
                }
            }
            Step::FlippingBack => {
                if let Some(at) = self.live.remove(&slot) {
                    let staged = Staged {
                        attempt: 1,
                        cut: Some(at),
                        mark: Some(at),
                        damaged: false,
                    };
                    self.staging.insert(key, staged);
                }
            }
            Step::Prepared
            | Step::Writing
            | Step::Copying
            | Step::CatchingUp
            | Step::Verified
            | Step::Joint => {
                // Whoever loses a range and gains it again keeps two copies, apart.
                if self.live.remove(&slot).is_some() {
                    self.kept.entry(self.last_session).or_default().insert(slot);
                }
                let drops = &mut self.drops_a_record;
                let staged = self.staging.entry(key).or_insert_with(|| Staged {
                    attempt: 1,
                    ..Staged::default()
                });
                let Some(head) = head.filter(|_| step >= Step::Copying) else {
                    return;
                };
                if staged.damaged && staged.cut <= head.cut {
                    // The digest at a younger cut differed: once more, from the beginning.
                    *staged = Staged {
                        attempt: staged.attempt + 1,
                        ..Staged::default()
                    };
                }
                if staged.cut.is_none() {
                    staged.cut = Some(head.at);
                    staged.damaged = std::mem::take(drops);
                }
                staged.mark = staged.mark.max(Some(head.at));
            }
        }
    }

    /// Refuses the silent owner of a failover, durably, until that is over.
    fn refuse(&mut self, directive: &Directive) {
        if let Some((wave, _)) = &directive.wave
            && wave.intent.is_some()
        {
            self.fenced = Some((wave.id, wave.slots.clone()));
            return;
        }
        let over = |(id, _): &(WaveId, Vec<Slot>)| *id <= directive.waves_over;
        self.fenced = self.fenced.take().filter(|fenced| !over(fenced));
    }

    /// As the successor: stores what the others hold since they refuse, before it says so.
    fn succeed(&mut self, directive: &Directive, tails: Option<&Tails>) {
        let (Some((wave, _)), Some((from, positions))) = (&directive.wave, tails) else {
            return;
        };
        for (slot, tail) in wave.slots.iter().zip(positions) {
            if let Some(at) = self.live.get_mut(slot) {
                *at = (*at).max(*tail);
            }
        }
        self.succeeded = Some((wave.id, from.clone()));
    }

    fn hand_over(&mut self, directive: &Directive) {
        match &directive.wave {
            Some((wave, _)) if wave.intent.is_some() => {}
            Some((wave, _)) if wave.owner == *self.id() => {
                // Sealed once: from then on nothing is written, so F stays.
                if self.sealed.as_ref().is_some_and(|(id, _)| *id == wave.id) {
                    return;
                }
                let held = |slot| self.live.get(slot).copied().unwrap_or_default();
                let positions = wave.slots.iter().map(held).collect();
                self.sealed = Some((wave.id, positions));
                self.sealed_slots.clone_from(&wave.slots);
            }
            Some((wave, sealed)) if sealed.len() == wave.slots.len() => {
                let mut pairs = wave.slots.iter().zip(sealed);
                if pairs.all(|(slot, last)| self.live.get(slot) == Some(last)) {
                    self.confirmed = Some((wave.id, sealed.clone()));
                }
            }
            _ => {
                let over = |(id, _): &(WaveId, Vec<Position>)| *id <= directive.waves_over;
                if self.sealed.as_ref().is_some_and(over) {
                    self.sealed = None;
                    self.sealed_slots.clear();
                }
            }
        }
    }

    fn whole_report(
        &self,
        ring: &RingState,
        me: Option<Handle>,
        verify: &[Slot],
        heads: &[Option<Head>],
    ) -> Report {
        let mut report = Report {
            adopted: self.adopted,
            sealed: self.sealed.clone(),
            confirmed: self.confirmed.clone(),
            fenced: self.fenced.as_ref().map(|(id, _)| *id),
            succeeded: self.succeeded.clone(),
            retained: self
                .kept
                .iter()
                .map(|(of, slots)| (*of, slots.iter().copied().collect()))
                .collect(),
            ..Report::default()
        };
        if me.is_none() {
            return report;
        }
        let id_of = |handle: Handle| ring.by_handle(handle).map(|member| member.node_id.clone());
        for ((session, slot), staged) in &self.staging {
            let cut = heads[slot.index()]
                .and_then(|head| head.cut)
                .filter(|cut| staged.cut.is_some() && staged.mark >= Some(*cut));
            report.slots.push(SlotReport {
                slot: *slot,
                session: *session,
                attempt: staged.attempt,
                staged: true,
                copied: staged.cut,
                watermark: staged.mark,
                digest: cut.map(|cut| (cut, digest(*slot, staged.damaged), 1)),
                ..SlotReport::default()
            });
        }
        for slot in verify {
            let cut = heads[slot.index()]
                .and_then(|head| head.cut)
                .filter(|cut| self.live.get(slot).is_some_and(|at| at >= cut));
            report.slots.push(SlotReport {
                slot: *slot,
                digest: cut.map(|cut| (cut, digest(*slot, false), 1)),
                ..SlotReport::default()
            });
        }
        for slot in &self.owned {
            let sets = ring.sets(*slot);
            let session = ring.transition.as_ref().filter(|_| sets.step.is_some());
            let base = SlotReport {
                slot: *slot,
                session: session.map_or(SessionId(0), TransitionState::session),
                ..SlotReport::default()
            };
            let digest = self
                .cuts
                .get(slot)
                .map(|cut| (*cut, digest(*slot, false), 1));
            let mut for_peer = |peer: Handle| {
                report.slots.push(SlotReport {
                    digest,
                    for_gainer: id_of(peer),
                    ..base.clone()
                });
            };
            if sets.step.is_some() {
                sets.gainers().for_each(&mut for_peer);
            } else if !ring.retained.is_empty() {
                sets.old.iter().skip(1).copied().for_each(&mut for_peer);
            }
            if sets.step == Some(Step::Joint) && sets.stayers_must_prove(ring.quorums()) {
                let stays = |peer: &&Handle| sets.new.contains(peer);
                for peer in sets.old.iter().skip(1).filter(stays) {
                    report.slots.push(SlotReport {
                        slot: *slot,
                        digest,
                        for_gainer: id_of(*peer),
                        ..SlotReport::default()
                    });
                }
            }
            if let Some(joint) = self.joint.get(&(base.session, *slot)) {
                report.slots.push(SlotReport {
                    joint: Some(*joint),
                    ..base
                });
            }
        }
        report
    }
}

fn digest(slot: Slot, damaged: bool) -> [u8; 32] {
    let mut bytes = [slot.0 as u8; 32];
    bytes[31] = u8::from(damaged);
    bytes
}
