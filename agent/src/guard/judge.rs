//! The rules of admission, each over one view: pure.

use annulus_ring::{Epoch, Generation, Slot, Step};

use super::{
    Admission, EpochGuard, Group, Intent, Refusal, ReplicaStamp, SourceStamp, Stamp, flight::Token,
};
use crate::{
    bait,
    store::Copy,
    view::{NodeView, Place},
};

/// What admission found: more than a refusal only in that `Later` may be worth a wait.
pub(super) enum Verdict {
    No(Refusal),
    Later(Refusal),
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        Self::No(refusal)
    }
}

impl From<Verdict> for Refusal {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::No(refusal) | Verdict::Later(refusal) => refusal,
        }
    }
}

/// The rules, each over one view.
impl NodeView {
    pub(super) fn await_epoch(&self, generation: Generation, epoch: Epoch) -> Result<(), Verdict> {
        if self.lookup.is_none() || (generation, epoch) > (self.generation(), self.epoch()) {
            return Err(Verdict::Later(self.behind(epoch)));
        }
        Ok(())
    }

    /// Under a conversion a slot of before is another one, or none.
    pub(super) fn judge_place(&self, place: Place) -> Result<(), Verdict> {
        let Place { slot, converted } = place;
        let (generation, epoch) = (self.generation(), self.epoch());
        if converted != self.converted && !bait::on(bait::SLOTS_OF_BEFORE) {
            return Err(Verdict::No(Refusal::Converted { epoch, slot }));
        }
        if self.converting && !bait::on(bait::SERVES_WHILE_CONVERTING) {
            return Err(Verdict::Later(Refusal::Converting {
                generation,
                epoch,
                slot,
            }));
        }
        Ok(())
    }

    fn behind(&self, asked: Epoch) -> Refusal {
        Refusal::Behind {
            generation: self.generation(),
            epoch: self.epoch(),
            asked,
        }
    }

    fn not_here(&self, slot: Slot, stamp: Option<Stamp>) -> Refusal {
        if let Some(refusal) = self.outsider(slot) {
            return refusal;
        }
        let (generation, epoch, list) = (self.generation(), self.epoch(), self.read_set(slot));
        let changed = Stamp {
            generation,
            epoch: self.last_change(slot),
        };
        match stamp {
            Some(stamp) if stamp < changed => Refusal::Stale {
                generation,
                epoch,
                slot,
                list,
            },
            _ => Refusal::NotOwner {
                generation,
                epoch,
                slot,
                list,
            },
        }
    }

    /// The refusal that a node outside the ring gives to everything.
    fn outsider(&self, slot: Slot) -> Option<Refusal> {
        if self.own.is_some() {
            return None;
        }
        let member = self
            .lookup
            .as_ref()
            .and_then(|lookup| lookup.snapshot().member(&self.node));
        Some(match (self.incarnation, member) {
            (Some(own), Some(member)) if member.incarnation > own => Refusal::Removed {
                own,
                member: member.incarnation,
            },
            _ => Refusal::NotMember {
                epoch: self.epoch(),
                slot,
            },
        })
    }

    pub(super) fn judge_owner(
        &self,
        slot: Slot,
        stamp: Option<Stamp>,
        intent: Option<Intent>,
    ) -> Result<(), Refusal> {
        if !self.owns(slot) {
            return Err(self.not_here(slot, stamp));
        }
        let epoch = self.epoch();
        if self.unheld.contains(&slot) {
            return Err(Refusal::NoCopy { epoch, slot });
        }
        let Some(intent) = intent else { return Ok(()) };
        if self.seals.get(&slot) == Some(&self.reign(slot)) && !bait::on(bait::NO_SEAL) {
            return Err(Refusal::Sealed { epoch, slot });
        }
        if intent == Intent::Write {
            let quorums = self
                .lookup
                .as_ref()
                .map(|lookup| lookup.snapshot().quorums());
            let groups = quorums.map(|quorums| self.sets(slot).groups(quorums));
            let short = |group: &annulus_ring::Group<'_>| group.list.len() < group.need;
            if let Some(group) = groups.into_iter().flatten().find(short) {
                return Err(Refusal::UnderReplicated {
                    epoch,
                    slot,
                    found: group.list.len(),
                    w: group.need,
                });
            }
        }
        Ok(())
    }

    pub(super) fn judge_reader(&self, slot: Slot, stamp: Stamp) -> Result<(), Refusal> {
        let sets = self.sets(slot);
        let read_set = match sets.step {
            Some(Step::FlippingBack) if bait::on(bait::READS_NOT_FENCED) => sets.new,
            _ => sets.read_set(),
        };
        if self.own.is_none_or(|own| !read_set.contains(&own)) {
            return Err(self.not_here(slot, Some(stamp)));
        }
        if self.unheld.contains(&slot) {
            return Err(Refusal::NoCopy {
                epoch: self.epoch(),
                slot,
            });
        }
        Ok(())
    }

    pub(super) fn judge_reign(
        &self,
        slot: Slot,
        asked: Epoch,
        stamped: Epoch,
    ) -> Result<(), Refusal> {
        let (epoch, reign) = (self.epoch(), self.reign(slot));
        if let Some(refusal) = self.outsider(slot) {
            return Err(refusal);
        }
        // Older than a reign that this node has refused, whoever stamps it (story F1).
        let refused = self.seals.get(&slot).is_some_and(|sealed| asked <= *sealed);
        if refused && !bait::on(bait::WRITES_NOT_FENCED) {
            return Err(Refusal::Sealed { epoch, slot });
        }
        if asked != reign {
            return Err(Refusal::Deposed {
                epoch,
                slot,
                reign,
                asked,
            });
        }
        if stamped < self.last_change(slot) {
            let (generation, list) = (self.generation(), self.read_set(slot));
            return Err(Refusal::Stale {
                generation,
                epoch,
                slot,
                list,
            });
        }
        Ok(())
    }

    pub(super) fn judge_replica(&self, slot: Slot, stamp: ReplicaStamp) -> Result<Copy, Refusal> {
        let epoch = self.epoch();
        // A closed session is named before anything else: its packets are never worth a retry.
        let running = self.session();
        let closed = stamp.session.is_some() && stamp.session != running;
        if closed && !bait::on(bait::SESSIONS_NEVER_CLOSE) {
            return Err(Refusal::SessionClosed {
                epoch,
                asked: stamp.session,
                running,
            });
        }
        self.judge_reign(slot, stamp.reign, stamp.epoch)?;
        let sets = self.sets(slot);
        let own = self.own.filter(|own| sets.write_set().contains(own));
        let Some(own) = own else {
            return Err(Refusal::NotMember { epoch, slot });
        };
        let gains = sets.step.is_some_and(|step| step != Step::Switched)
            && sets.gainers().any(|gainer| gainer == own);
        if gains {
            return match (stamp.session, running) {
                (Some(_), Some(session)) => Ok(Copy::Staging(session)),
                (asked, running) => Err(Refusal::SessionClosed {
                    epoch,
                    asked,
                    running,
                }),
            };
        }
        if self.unheld.contains(&slot) {
            return Err(Refusal::NoCopy { epoch, slot });
        }
        Ok(Copy::Live)
    }

    pub(super) fn judge_source(&self, slot: Slot, stamp: &SourceStamp) -> Result<(), Refusal> {
        let (epoch, running) = (self.epoch(), self.session());
        let closed = Refusal::SessionClosed {
            epoch,
            asked: stamp.session,
            running,
        };
        if stamp.session.is_some() && stamp.session != running {
            return Err(closed);
        }
        let asked = Stamp {
            generation: stamp.generation,
            epoch: stamp.epoch,
        };
        if !bait::on(bait::COPY_FROM_ANYBODY) {
            self.judge_owner(slot, Some(asked), None)?;
        }
        let reign = self.reign(slot);
        if stamp.reign != reign {
            return Err(Refusal::Deposed {
                epoch,
                slot,
                reign,
                asked: stamp.reign,
            });
        }
        let sets = self.sets(slot);
        let member = self
            .lookup
            .as_ref()
            .and_then(|lookup| lookup.snapshot().member(&stamp.node));
        let asker = member
            .filter(|member| member.incarnation == stamp.incarnation)
            .map(|member| member.handle)
            .ok_or(Refusal::NotMember { epoch, slot })?;
        match stamp.session {
            Some(_) => {
                let begun = match bait::on(bait::COPY_BEFORE_BARRIER) {
                    true => Step::Writing,
                    false => Step::Copying,
                };
                let copying = sets.step.is_some_and(|step| step >= begun);
                if !sets.gainers().any(|gainer| gainer == asker) || (stamp.copies && !copying) {
                    return Err(closed);
                }
            }
            None if !sets.write_set().contains(&asker) => {
                return Err(Refusal::NotMember { epoch, slot });
            }
            None => {}
        }
        Ok(())
    }

    /// Whether `stamp`, the successor of a failover, may have what this member holds of a range
    /// whose owner it refuses.
    pub(super) fn judge_fenced(&self, slot: Slot, stamp: &SourceStamp) -> Result<(), Refusal> {
        let (epoch, reign) = (self.epoch(), self.reign(slot));
        if stamp.reign != reign {
            let asked = stamp.reign;
            return Err(Refusal::Deposed {
                epoch,
                slot,
                reign,
                asked,
            });
        }
        // Without the refusal a tail proves nothing (story F4).
        let refuses = self.seals.get(&slot) == Some(&reign);
        if !refuses && !bait::on(bait::TAILS_BEFORE_REFUSAL) {
            return Err(Refusal::NotOwner {
                generation: self.generation(),
                epoch,
                slot,
                list: self.read_set(slot),
            });
        }
        if self.unheld.contains(&slot) {
            return Err(Refusal::NoCopy { epoch, slot });
        }
        let member = self
            .lookup
            .as_ref()
            .and_then(|lookup| lookup.snapshot().member(&stamp.node))
            .filter(|member| member.incarnation == stamp.incarnation);
        let sets = self.sets(slot);
        match member {
            Some(member) if sets.old.contains(&member.handle) => Ok(()),
            _ => Err(Refusal::NotMember { epoch, slot }),
        }
    }

    /// Members of the read set that must confirm the reign for an exact read; 0 before the first
    /// view.
    #[must_use]
    pub fn confirmations(&self, slot: Slot) -> usize {
        let quorums = self
            .lookup
            .as_ref()
            .map(|lookup| lookup.snapshot().quorums());
        quorums.map_or(0, |quorums| self.sets(slot).read_quorum(quorums).w.into())
    }

    /// Who must hold a write before it is acknowledged; none before the first view.
    #[must_use]
    pub fn groups(&self, slot: Slot) -> Vec<Group> {
        let Some(lookup) = &self.lookup else {
            return Vec::new();
        };
        let sets = self.sets(slot);
        let group = |group: &annulus_ring::Group<'_>| Group {
            members: group.list.to_vec(),
            need: group.need,
        };
        let quorums = lookup.snapshot().quorums();
        let groups: Vec<Group> = sets.groups(quorums).iter().map(group).collect();
        let only = |at: usize| {
            let last = groups.len().saturating_sub(1);
            groups.get(at.min(last)).cloned().into_iter().collect()
        };
        match sets.step {
            Some(Step::Joint) if bait::on(bait::JOINT_AFTER_SWITCH) => only(0),
            Some(Step::Switched) if bait::on(bait::JOINT_UNTIL_SWITCH) => only(1),
            Some(Step::FlippingBack) if bait::on(bait::JOINT_UNTIL_FLIP_BACK) => only(0),
            _ => groups,
        }
    }

    pub(super) fn admission(
        &self,
        slot: Slot,
        guard: &EpochGuard,
        token: Token,
    ) -> Result<Admission, Refusal> {
        let Some(own) = self.own else {
            return Err(Refusal::NotMember {
                epoch: self.epoch(),
                slot,
            });
        };
        Ok(Admission {
            generation: self.generation(),
            epoch: self.epoch(),
            reign: self.reign(slot),
            slot,
            own,
            write_set: self.write_set(slot),
            read_set: self.read_set(slot),
            groups: self.groups(slot),
            confirmations: self.confirmations(slot),
            guard: guard.clone(),
            _token: token,
        })
    }
}
