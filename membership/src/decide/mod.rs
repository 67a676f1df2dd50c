//! May this happen, and which events follow? One file per kind of command.
//!
//! Nothing here mutates. A rejection is an answer, the same on every server.

mod abort;
mod advance;
mod brake;
mod change;
mod convert;
mod failover;
mod found;
mod hand_over;
mod maintain;
mod permit;
mod plan;
mod register;
mod replan;
mod start;
mod target;

pub(crate) use advance::{leaving_owners, soak_left_ms};
pub(crate) use brake::checked_reason;
pub(crate) use failover::{needed, successors};
pub(crate) use found::collected;
pub(crate) use hand_over::passes as hand_over_passes;
pub(crate) use permit::is_whole;
pub(crate) use start::may_be as may_be_target;

use annulus_ring::{Checksum, Epoch, RingName};

use crate::{
    Applied, Command, Effect, Entry, Event, MAX_RINGS, MAX_TICK_MS, Outcome, Rejection, Request,
    RequestId, RingCommand, RingConfig, RingState, SLOT_BITS, State, bait,
};

/// Events, and what the caller should be told.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// In order.
    pub events: Vec<Event>,
    /// Sentences for the operator.
    pub notes: Vec<String>,
}

impl From<Vec<Event>> for Decision {
    fn from(events: Vec<Event>) -> Self {
        Self {
            events,
            notes: Vec::new(),
        }
    }
}

impl State {
    /// A control plane that has decided nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one committed entry: all of it or none of it, the same on every server.
    ///
    /// If `published` names a ring, its new snapshot is to be encoded and its checksum noted
    /// with [`State::note_checksum`] before the next entry.
    pub fn apply(&mut self, entry: &Entry) -> Effect {
        self.wall_ms = self.wall_ms.max(entry.wall_ms);
        if let Some(known) = entry.request_id.and_then(|id| self.answer(id))
            && !bait::on("request-done-again")
        {
            return Effect {
                outcome: known.clone(),
                published: None,
            };
        }
        let (outcome, published) = match self.decide(&entry.command) {
            Ok(decision) => {
                let (applied, published) = self.evolve(&entry.command, decision);
                (Outcome::Applied(applied), published)
            }
            Err(rejection) => (Outcome::Rejected(rejection), None),
        };
        if let Some(id) = entry.request_id {
            self.remember(id, outcome.clone());
        }
        Effect { outcome, published }
    }

    /// What `apply` would refuse now, so that nothing hopeless is proposed.
    ///
    /// # Errors
    /// The rejection.
    pub fn check(&self, request: &Request) -> Result<(), Rejection> {
        self.decide(&request.command).map(|_| ())
    }

    /// The answer given to a request id, while it is remembered.
    #[must_use]
    pub fn answer(&self, id: RequestId) -> Option<&Outcome> {
        self.answers.by_id.get(&id)
    }

    /// Notes the checksum of the snapshot that was just published.
    pub fn note_checksum(&mut self, ring: &RingName, checksum: Checksum) {
        if let Some(ring) = self.rings.get_mut(ring) {
            ring.checksum = checksum;
        }
    }

    fn decide(&self, command: &Command) -> Result<Decision, Rejection> {
        match command {
            Command::Init { cluster_id } => match self.cluster_id {
                None => Ok(vec![Event::Initialised {
                    cluster_id: *cluster_id,
                }]
                .into()),
                Some(known) if known == *cluster_id => Ok(Decision::default()),
                Some(_) => Err(Rejection::AlreadyInitialised),
            },
            Command::Tick { elapsed_ms } => {
                if *elapsed_ms > MAX_TICK_MS {
                    return Err(Rejection::TickTooLong {
                        found: *elapsed_ms,
                        limit: MAX_TICK_MS,
                    });
                }
                Ok(vec![Event::Ticked {
                    elapsed_ms: *elapsed_ms,
                }]
                .into())
            }
            Command::Ring {
                ring: name,
                command,
            } => {
                if self.cluster_id.is_none() {
                    return Err(Rejection::NotInitialised);
                }
                if let RingCommand::Create { config, accept } = command {
                    return self.create(name, config, *accept);
                }
                let ring = self
                    .rings
                    .get(name)
                    .ok_or_else(|| Rejection::UnknownRing { ring: name.clone() })?;
                decide_ring(name, ring, self.ring_time_ms, command)
            }
        }
    }

    fn create(
        &self,
        name: &RingName,
        config: &RingConfig,
        accept: bool,
    ) -> Result<Decision, Rejection> {
        if self.rings.contains_key(name) {
            return Err(Rejection::RingExists { ring: name.clone() });
        }
        if self.rings.len() >= MAX_RINGS {
            return Err(Rejection::TooManyRings { limit: MAX_RINGS });
        }
        if !SLOT_BITS.contains(&config.slot_bits) {
            return Err(Rejection::SlotBits {
                found: config.slot_bits,
            });
        }
        crate::cache::check(config)?;
        match config.replication.check() {
            Ok(()) => {}
            Err(annulus_ring::ReplicationError::OutOfRange { rf, w, r }) => {
                return Err(annulus_ring::ReplicationError::OutOfRange { rf, w, r }.into());
            }
            // A cache that splits or loses an entry has a miss, or an old entry for its lifetime.
            Err(error) if !accept && !config.is_cache() => return Err(error.into()),
            Err(_) => {}
        }
        Ok(vec![Event::RingCreated {
            config: config.clone(),
        }]
        .into())
    }
}

fn decide_ring(
    name: &RingName,
    ring: &RingState,
    now_ms: u64,
    command: &RingCommand,
) -> Result<Decision, Rejection> {
    if ring.conversion.is_some() && names_slots(command) {
        return Err(Rejection::Converting);
    }
    match command {
        RingCommand::Create { .. } => Err(Rejection::RingExists { ring: name.clone() }),
        RingCommand::Found {
            founders,
            accept,
            target,
        } => found::decide(name, ring, founders, *accept, target),
        RingCommand::Register(registration) => register::register(ring, registration),
        RingCommand::SetEndpoint {
            node,
            incarnation,
            endpoint,
        } => register::set_endpoint(ring, node, *incarnation, endpoint),
        RingCommand::Change {
            change,
            expected_layout_epoch,
        } => change::decide(ring, change, *expected_layout_epoch),
        RingCommand::ChangeBySteps {
            change,
            steps,
            expected_layout_epoch,
        } => change::by_steps(ring, change, *steps, *expected_layout_epoch),
        RingCommand::Convert {
            hash,
            layout,
            double,
        } => convert::begin(name, ring, *hash, layout.as_deref(), *double),
        RingCommand::FinishConversion { begun, evidence } => {
            convert::finish(ring, *begun, evidence)
        }
        RingCommand::AbortConversion { begun } => convert::abort(ring, *begun),
        RingCommand::Start {
            changes,
            base_layout_epoch,
            target,
            ..
        } => start::decide(name, ring, changes, *base_layout_epoch, target),
        RingCommand::Advance {
            transition,
            from_step,
            evidence,
        } => advance::decide(ring, now_ms, *transition, *from_step, evidence),
        RingCommand::HandOver(hand_over) => hand_over::decide(ring, hand_over),
        RingCommand::Abort { change } => abort::decide(ring, *change),
        RingCommand::Replan {
            transition,
            without,
        } => replan::decide(ring, *transition, without),
        RingCommand::Settle => advance::settle(ring),
        RingCommand::Availability {
            node,
            incarnation,
            availability,
        } => brake::availability(ring, node, *incarnation, *availability),
        RingCommand::Maintain {
            node,
            for_ms,
            accept,
        } => maintain::decide(ring, now_ms, node, *for_ms, *accept),
        RingCommand::Pause { reason } => brake::pause(ring, reason.as_ref()),
        RingCommand::AutoRemove { after_ms } => brake::auto_remove(ring, *after_ms),
        RingCommand::Hold { reason } => brake::hold(ring, reason.as_ref()),
        RingCommand::Permit { copies, evidence } => permit::permit(ring, now_ms, copies, evidence),
        RingCommand::Released { copies } => permit::released(ring, copies),
        RingCommand::StorePlan {
            changes,
            base_layout_epoch,
            assigner_version,
            target,
        } => plan::store(
            name,
            ring,
            changes,
            *base_layout_epoch,
            *assigner_version,
            target,
        ),
        RingCommand::CommitPlan { plan } => plan::commit(name, ring, *plan),
        RingCommand::DropPlan { plan } => plan::drop(ring, *plan),
    }
}

/// Whether a command speaks of slots, or leads to what does: not while they get other names.
fn names_slots(command: &RingCommand) -> bool {
    match command {
        RingCommand::Change { .. }
        | RingCommand::ChangeBySteps { .. }
        | RingCommand::Convert { .. }
        | RingCommand::Start { .. }
        | RingCommand::Advance { .. }
        | RingCommand::HandOver(_)
        | RingCommand::Permit { .. }
        | RingCommand::Released { .. }
        | RingCommand::StorePlan { .. }
        | RingCommand::CommitPlan { .. } => true,
        RingCommand::Create { .. }
        | RingCommand::Found { .. }
        | RingCommand::Register(_)
        | RingCommand::SetEndpoint { .. }
        | RingCommand::FinishConversion { .. }
        | RingCommand::AbortConversion { .. }
        | RingCommand::Abort { .. }
        | RingCommand::Replan { .. }
        | RingCommand::Settle
        | RingCommand::Availability { .. }
        | RingCommand::Maintain { .. }
        | RingCommand::Pause { .. }
        | RingCommand::Hold { .. }
        | RingCommand::AutoRemove { .. }
        | RingCommand::DropPlan { .. } => false,
    }
}

/// Tells what an applied command means for its caller.
pub(crate) fn applied(decision: &Decision, epoch: Epoch) -> Applied {
    let mut applied = Applied {
        epoch,
        notes: decision.notes.clone(),
        ..Applied::default()
    };
    for event in &decision.events {
        match event {
            Event::ChangeAccepted { id, .. } => applied.change = Some(*id),
            Event::PlanStored { id, .. } => applied.plan = Some(*id),
            Event::PlanCommitted { id, changes } => {
                applied.plan = Some(*id);
                // The first stands for all: they run, and end, together.
                applied.change = changes.first().copied();
                applied.changes.clone_from(changes);
            }
            Event::WaveBegun { wave } => applied.wave = Some(wave.id),
            Event::Registered { registered, .. } => {
                applied.incarnation = Some(registered.incarnation);
            }
            _ => {}
        }
    }
    applied
}
