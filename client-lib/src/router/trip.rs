//! One request on its way: whom to ask now, and what to do after an answer.

use std::time::Duration;

use annulus_ring::{Availability, Epoch, Handle, Member, NodeId, Slot};
use tokio::time::{Instant, sleep, timeout};

use super::{CallError, CallKind, Reach, Router, Stamp, Target};
use crate::{
    backoff::Backoff,
    deadline::Deadline,
    error::{BoxError, Error, LookupError},
    forward::{Answer, Facts, Hint, Next, decide},
    route::Route,
};

/// One request on its way.
pub(super) struct Trip<'a> {
    router: &'a Router,
    kind: CallKind,
    deadline: Deadline,
    backoff: Backoff,
    pub(super) tries: u32,
    /// Asked since the last pause or refresh.
    asked: Vec<NodeId>,
    waited: Epoch,
    /// Where a node's hint sends the next attempt.
    hinted: Option<NodeId>,
    /// What an attempt left open, if one may have been carried out.
    unknown: Option<BoxError>,
}

impl<'a> Trip<'a> {
    pub(super) fn new(router: &'a Router, kind: CallKind, deadline: Deadline) -> Self {
        let (first, largest) = router.config.pause;
        Self {
            router,
            kind,
            deadline,
            backoff: Backoff::new(first, largest),
            tries: 0,
            asked: Vec::new(),
            waited: Epoch(0),
            hinted: None,
            unknown: None,
        }
    }

    /// Whom to ask now: the hinted member, else the first of the list that may serve and was
    /// not asked yet.
    pub(super) async fn target(&mut self, key: &[u8]) -> Result<Target, Error> {
        let client = &self.router.client;
        let route = match client.lookup(key) {
            Err(LookupError::NoSnapshot) => {
                client.ready(self.deadline.at()).await?;
                client.lookup(key)?
            }
            found => found?,
        };
        let snapshot = route.lookup().snapshot();
        let hinted = self.hinted.take().and_then(|node| snapshot.member(&node));
        let (candidates, hops) = match hinted {
            Some(member) => (vec![member], 2),
            None => (self.candidates(&route), 1),
        };
        let member = candidates.first().expect("a route names an owner");
        Ok(Target {
            node_id: member.node_id.clone(),
            endpoint: member.endpoint.clone(),
            slot: route.slot,
            stamp: Stamp {
                ring: snapshot.ring.clone(),
                generation: snapshot.generation,
                epoch: snapshot.epoch,
                hops,
            },
            deadline: self.cut(candidates.len()),
        })
    }

    /// Members that may serve and were not asked, best first; all of them when all were asked.
    fn candidates<'r>(&self, route: &'r Route) -> Vec<&'r Member> {
        let mut members: Vec<_> = match self.kind.reach {
            Reach::Owner => return vec![route.owner()],
            Reach::Any => route.members().collect(),
        };
        if members
            .iter()
            .any(|member| !self.asked.contains(&member.node_id))
        {
            members.retain(|member| !self.asked.contains(&member.node_id));
        }
        self.router.client.chance().shuffle(&mut members);
        let failed = self.router.failed.now();
        members.sort_by_key(|member| {
            (
                failed.contains(&member.node_id),
                member.availability == Availability::Down,
            )
        });
        members
    }

    /// When an attempt is given up, so that `candidates` members fit before the deadline.
    fn cut(&self, candidates: usize) -> Instant {
        if !self.kind.repeatable || candidates < 2 {
            return self.deadline.at();
        }
        // A list has at most 7 members, so the cast and the division are safe.
        self.deadline
            .within(self.deadline.left() / candidates as u32)
    }

    /// Decides after a failed attempt, and does the waiting. An error ends the request.
    pub(super) async fn go_on(&mut self, target: Target, error: CallError) -> Result<(), Error> {
        let client = &self.router.client;
        self.asked.push(target.node_id.clone());
        if matches!(error, CallError::Unavailable(_) | CallError::Unknown(_)) {
            self.router.failed.remember(&target.node_id);
        }
        let (answer, hint) = self.judge(&target, &error);
        let pause = self.backoff.next(client.chance());
        let facts = Facts {
            asked: target.stamp.epoch,
            held: client.held().map_or(Epoch(0), |held| held.epoch),
            waited: self.waited,
            tries: self.tries,
            max_tries: self.router.config.max_tries.get(),
            hops: target.stamp.hops,
            untried: self.untried(target.slot),
            repeatable: self.kind.repeatable,
            left: self.deadline.left(),
            pause,
        };
        let next = decide(answer, &facts);
        tracing::debug!(node = %target.node_id, epoch = %target.stamp.epoch, tries = self.tries,
            %error, ?next, "an attempt failed");
        match next {
            Next::GiveUp => return Err(self.give_up(target, error)),
            Next::Other => {}
            Next::Reroute => self.asked.clear(),
            Next::Hinted => self.hinted = hint,
            Next::Pause => {
                self.asked.clear();
                sleep(pause).await;
            }
            Next::PauseForNews => {
                self.asked.clear();
                self.news(target.stamp.epoch, pause).await;
            }
            Next::Await(wanted) => {
                self.asked.clear();
                // Half of what is left at most: the rest is for asking again.
                let longest = self.router.config.refresh_wait.min(facts.left / 2);
                let until = self.deadline.within(longest);
                // `wanted` is newer than what is held, so it is not 0.
                if client
                    .wait_newer_than(Epoch(wanted.0 - 1), until)
                    .await
                    .is_err()
                {
                    self.waited = wanted;
                }
            }
        }
        if self.deadline.left().is_zero() {
            return Err(self.give_up(target, error));
        }
        if let CallError::Unknown(source) = error {
            self.unknown = Some(source);
        }
        Ok(())
    }

    /// Sleeps for `pause`, or until an epoch after `asked` is held.
    async fn news(&self, asked: Epoch, pause: Duration) {
        let mut epochs = self.router.client.epochs();
        let newer = epochs.wait_for(|held| held.is_some_and(|held| held.epoch > asked));
        // It cannot end otherwise: this router's client keeps the watch.
        let _slept = timeout(pause, newer).await;
    }

    /// The answer as the decision wants it, and the hinted member if it is one worth asking.
    fn judge(&self, target: &Target, error: &CallError) -> (Answer, Option<NodeId>) {
        let answer = match error {
            CallError::Stale { epoch } => Answer::Stale { epoch: *epoch },
            CallError::Behind { epoch } => Answer::Behind { epoch: *epoch },
            CallError::Sealed => Answer::Sealed,
            CallError::Unavailable(_) => Answer::Unavailable,
            CallError::Unknown(_) => Answer::Unknown,
            CallError::Failed(_) => Answer::Failed,
            CallError::NotOwner { epoch, owner } => {
                let hint = match owner {
                    None => Hint::None,
                    Some(owner) if *owner == target.node_id => Hint::Itself,
                    Some(owner) => self.known(owner),
                };
                let worth_it = owner.clone().filter(|_| hint == Hint::Member);
                return (
                    Answer::NotOwner {
                        epoch: *epoch,
                        hint,
                    },
                    worth_it,
                );
            }
        };
        (answer, None)
    }

    fn known(&self, node: &NodeId) -> Hint {
        let current = self.router.client.current();
        let member = current.is_some_and(|lookup| lookup.snapshot().member(node).is_some());
        if member { Hint::Member } else { Hint::Stranger }
    }

    /// Members of the slot's list, as held now, that were not asked since the last pause.
    fn untried(&self, slot: Slot) -> usize {
        if self.kind.reach == Reach::Owner {
            return 0;
        }
        let Some(lookup) = self.router.client.current() else {
            return 0;
        };
        if slot.index() >= lookup.snapshot().layout.slots.slot_count() {
            return 0; // another k since
        }
        let asked = |handle: &&Handle| {
            let member = lookup.member(**handle);
            member.is_some_and(|member| self.asked.contains(&member.node_id))
        };
        lookup
            .read_list(slot)
            .iter()
            .filter(|handle| !asked(handle))
            .count()
    }

    fn give_up(&mut self, target: Target, error: CallError) -> Error {
        let Target {
            node_id: node,
            endpoint,
            stamp,
            ..
        } = target;
        let (held, tries) = (stamp.epoch, self.tries);
        // An earlier attempt may have been carried out, whatever the last one said.
        if let (false, Some(source)) = (is_final(&error), self.unknown.take()) {
            return Error::Unknown {
                node,
                held,
                tries,
                source,
            };
        }
        match error {
            CallError::Stale { epoch: seen } | CallError::NotOwner { epoch: seen, .. } => {
                Error::Stale {
                    node,
                    held,
                    seen,
                    tries,
                }
            }
            CallError::Behind { epoch: seen } => Error::Behind {
                node,
                held,
                seen,
                tries,
            },
            CallError::Sealed => Error::Sealed { node, held, tries },
            CallError::Unavailable(source) => Error::Unavailable {
                node,
                endpoint,
                held,
                tries,
                source,
            },
            CallError::Unknown(source) => Error::Unknown {
                node,
                held,
                tries,
                source,
            },
            CallError::Failed(source) => Error::Failed { node, held, source },
        }
    }
}

fn is_final(error: &CallError) -> bool {
    matches!(error, CallError::Failed(_) | CallError::Unknown(_))
}
