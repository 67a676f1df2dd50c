//! An honest data node, with sets instead of data.

use std::collections::{BTreeMap, BTreeSet};

use annulus_membership::{
    Birth, Directive, Held, Registration, Report, RingState, SlotReport, WaveId,
};
use annulus_ring::{Epoch, Handle, Incarnation, NodeId, Position, SessionId, Slot, Snapshot, Step};

#[derive(Clone, Debug)]
pub struct Node {
    pub registration: Registration,
    pub incarnation: Incarnation,
    pub adopted: Epoch,
    view: Option<Snapshot>,
    /// Slots held whole, served.
    pub live: BTreeSet<Slot>,
    /// Slots in staging, by session; true = copied and merged.
    pub staging: BTreeMap<(SessionId, Slot), bool>,
    /// Copies kept after their range was lost.
    pub kept: BTreeMap<SessionId, BTreeSet<Slot>>,
    /// The wave sealed here, with its positions.
    pub sealed: Option<(WaveId, Vec<Position>)>,
    confirmed: Option<(WaveId, Vec<Position>)>,
    /// The failover whose owner is refused here.
    pub fenced: Option<WaveId>,
    succeeded: Option<(WaveId, Vec<NodeId>)>,
    joint: BTreeMap<Slot, Position>,
    last_session: SessionId,
    verify: Vec<Slot>,
    /// On its disk; 0: it does not say.
    pub free_bytes: u64,
    /// Its ring is a cache: what was not copied is a miss.
    cache: bool,
    /// It copies nothing.
    pub slow: bool,
    /// Its hits of 1,000 lookups in the running session.
    pub hits: Option<u16>,
}

/// What each range weighs.
const RANGE: Held = Held {
    bytes: 1_000,
    keys: 10,
};

impl Node {
    pub fn new(registration: Registration) -> Self {
        Self {
            registration,
            incarnation: Incarnation(0),
            adopted: Epoch(0),
            view: None,
            live: BTreeSet::new(),
            staging: BTreeMap::new(),
            kept: BTreeMap::new(),
            sealed: None,
            confirmed: None,
            fenced: None,
            succeeded: None,
            joint: BTreeMap::new(),
            last_session: SessionId(0),
            verify: Vec::new(),
            free_bytes: 0,
            cache: false,
            slow: false,
            hits: None,
        }
    }

    pub fn id(&self) -> &NodeId {
        &self.registration.node
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.staging.is_empty() && self.kept.is_empty()
    }

    pub fn start_anew(&mut self, birth: Birth) {
        let registration = Registration {
            birth,
            ..self.registration.clone()
        };
        *self = Self::new(registration);
    }

    fn handle(&self) -> Option<Handle> {
        let member = self.view.as_ref()?.member(self.id())?;
        (member.incarnation == self.incarnation).then_some(member.handle)
    }

    /// Adopts `snapshot` and does what it and the directive ask.
    pub fn act(&mut self, snapshot: &Snapshot, ring: &RingState, directive: &Directive) {
        if snapshot.epoch < self.adopted {
            return;
        }
        let first = self.adopted == Epoch(0);
        if let Some(view) = &self.view {
            let bits = |of: &Snapshot| of.layout.slots.bits();
            (bits(view)..bits(snapshot)).for_each(|_| self.split());
        }
        self.view = Some(snapshot.clone());
        self.adopted = snapshot.epoch;
        let session = snapshot.transition.as_ref().map(|t| SessionId::from(t.id));
        self.cache = ring.config.is_cache();
        if let Some(me) = self.handle() {
            for slot in snapshot.layout.slots.slots() {
                self.adopt_slot(slot, me, snapshot, session, first);
            }
        }
        if let Some(session) = session {
            self.last_session = session;
        }
        if directive.everyone_adopted >= snapshot.epoch {
            self.staging.retain(|(of, _), _| Some(*of) == session);
        }
        self.hand_over(ring, directive);
        self.joint = directive.joint.iter().copied().collect();
        self.verify.clone_from(&directive.verify);
        for (session, slots) in &directive.permits {
            if let Some(kept) = self.kept.get_mut(session) {
                slots.iter().for_each(|slot| {
                    kept.remove(slot);
                });
            }
        }
        self.kept.retain(|_, slots| !slots.is_empty());
    }

    /// Every copy of a slot becomes copies of the two that it is split into.
    fn split(&mut self) {
        let children = |slots: &BTreeSet<Slot>| -> BTreeSet<Slot> {
            let both = slots.iter().map(|slot| [2 * slot.0, 2 * slot.0 + 1]);
            both.flatten().map(Slot).collect()
        };
        self.live = children(&self.live);
        for kept in self.kept.values_mut() {
            *kept = children(kept);
        }
        self.staging.clear();
    }

    fn adopt_slot(
        &mut self,
        slot: Slot,
        me: Handle,
        snapshot: &Snapshot,
        session: Option<SessionId>,
        first: bool,
    ) {
        let sets = snapshot.sets(slot);
        let listed = sets.old.contains(&me);
        if first && listed {
            // A founder starts with empty copies; whoever joins first adopts a step before it is
            // listed.
            self.live.insert(slot);
        }
        if let (Some(session), Some(step)) = (session, sets.step)
            && sets.gainers().any(|gainer| gainer == me)
        {
            let key = (session, slot);
            if step == Step::Switched {
                if self.staging.remove(&key) == Some(true) || self.cache {
                    self.live.insert(slot);
                }
            } else if step == Step::FlippingBack {
                if self.live.remove(&slot) {
                    self.staging.insert(key, true);
                }
            } else {
                let copied = self.staging.entry(key).or_insert(false);
                *copied |= step >= Step::Copying && !self.slow;
            }
        } else if listed && sets.step.is_none() {
            if self.staging.remove(&(self.last_session, slot)) == Some(true) {
                self.live.insert(slot);
            }
        } else if !listed && sets.step.is_none() && self.live.remove(&slot) {
            self.kept.entry(self.last_session).or_default().insert(slot);
        }
    }

    fn hand_over(&mut self, ring: &RingState, directive: &Directive) {
        self.fenced = None;
        match &directive.wave {
            Some((wave, _)) if wave.intent.is_some() => {
                self.fenced = Some(wave.id);
                if let Some(tails) = &directive.tails {
                    self.succeeded = Some((wave.id, tails.clone()));
                }
            }
            Some((wave, _)) if wave.owner == *self.id() => {
                let positions = wave
                    .slots
                    .iter()
                    .map(|slot| last_write(ring, *slot))
                    .collect();
                self.sealed = Some((wave.id, positions));
            }
            Some((wave, sealed)) if !sealed.is_empty() => {
                self.confirmed = Some((wave.id, sealed.clone()));
            }
            _ => {
                if self
                    .sealed
                    .as_ref()
                    .is_some_and(|(id, _)| *id <= directive.waves_over)
                {
                    self.sealed = None;
                }
            }
        }
    }

    /// The whole report, as a new link opens with it.
    pub fn report(&self, ring: &RingState) -> Report {
        let ranges = self.live.len() as u64;
        let mut report = Report {
            adopted: self.adopted,
            free_bytes: self.free_bytes,
            held: Some(Held {
                bytes: RANGE.bytes * ranges,
                keys: RANGE.keys * ranges,
            }),
            hits: self.hits.map(|hits| (self.last_session, hits)),
            ..Report::default()
        };
        report.sealed.clone_from(&self.sealed);
        report.confirmed.clone_from(&self.confirmed);
        report.fenced = self.fenced;
        report.succeeded.clone_from(&self.succeeded);
        report.retained = self
            .kept
            .iter()
            .map(|(of, slots)| (*of, slots.iter().copied().collect()))
            .collect();
        let (Some(view), Some(me)) = (&self.view, self.handle()) else {
            return report;
        };
        for slot in view.layout.slots.slots() {
            let sets = view.sets(slot);
            // Reports are of what the node sees, in the reign it knows of.
            let at = last_write(ring, slot);
            let digest = Some((at, [slot.0 as u8; 32], 1));
            if let (Some(transition), Some(step)) = (&view.transition, sets.step) {
                let session = SessionId::from(transition.id);
                let base = SlotReport {
                    slot,
                    session,
                    attempt: 1,
                    ..SlotReport::default()
                };
                if let Some(copied) = self.staging.get(&(session, slot)) {
                    let whole = copied.then_some(at);
                    report.slots.push(SlotReport {
                        staged: true,
                        copied: whole,
                        watermark: whole,
                        digest: digest.filter(|_| step >= Step::CatchingUp && *copied),
                        ..base.clone()
                    });
                }
                if sets.owner() == Some(me) && step >= Step::CatchingUp {
                    for gainer in sets.gainers() {
                        let gainer = view.member_by_handle(gainer).unwrap().node_id.clone();
                        report.slots.push(SlotReport {
                            digest,
                            for_gainer: Some(gainer),
                            ..base.clone()
                        });
                    }
                }
                if sets.owner() == Some(me) && step == Step::Joint {
                    report.slots.push(SlotReport {
                        joint: Some(at),
                        attempt: 0,
                        ..base
                    });
                }
                self.compare_live(&mut report, view, slot, digest);
                continue;
            }
            self.compare_live(&mut report, view, slot, digest);
        }
        report
    }

    /// Digests of live copies: as a member that was asked, and as the owner for each member.
    fn compare_live(
        &self,
        report: &mut Report,
        view: &Snapshot,
        slot: Slot,
        digest: Option<(Position, [u8; 32], u64)>,
    ) {
        let sets = view.sets(slot);
        let base = SlotReport {
            slot,
            digest,
            ..SlotReport::default()
        };
        if self.verify.contains(&slot) {
            report.slots.push(base.clone());
        }
        if sets.owner() == self.handle() {
            for replica in sets.old.iter().skip(1) {
                let peer = view.member_by_handle(*replica).unwrap().node_id.clone();
                report.slots.push(SlotReport {
                    for_gainer: Some(peer),
                    ..base.clone()
                });
            }
        }
    }
}

/// Where the slot's owner stands: one write in the reign that is enough for all of it.
pub fn last_write(ring: &RingState, slot: Slot) -> Position {
    Position::new(ring.reigns[slot.index()], 1)
}
