//! The leader's loop: looks at the state and at what nodes said, and proposes the next step due.
//!
//! Nothing is owed: which step is due is `membership::due`'s answer, asked anew each time. So a
//! leader that dies between two lines of this file loses nothing, and the next one goes on. The
//! loop keeps one proposal per ring in flight and paces epochs; it decides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use annulus_membership::{
    Command, HandOver, MAX_TICK_MS, Outcome, Request, RingCommand, State, due, tick_due,
};
use annulus_ring::{Epoch, RingName, Step};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    api,
    clock::whole_ms,
    config::ms,
    context::Context,
    raft::{ProposeError, ReadError},
};

/// Looks at least this often.
const BEAT: Duration = Duration::from_millis(100);
/// Rests between two looks so many times as long as the last look took: many reports are one look.
const REST: u32 = 4;
/// A shorter rest than this is none: ranges that are being handed over wait for it, and the timer
/// would make it as long.
const SHORTEST_REST: Duration = Duration::from_millis(1);
/// How long a proposal may take.
const PROPOSAL: Duration = Duration::from_secs(5);
/// After a proposal was refused or not made, the ring rests.
const PAUSE: Duration = Duration::from_millis(250);

type Answer = Result<Outcome, ProposeError>;

/// What a task of the driver came back with.
enum Done {
    /// Everything committed before this term is applied here.
    Ready(u64, Result<u64, ReadError>),
    /// A ring's proposal.
    Ring(RingName, &'static str, Answer),
    /// A tick, and until when it counted.
    Tick(Instant, Answer),
}

/// One ring as the driver sees it.
#[derive(Debug)]
struct Pace {
    epoch: Epoch,
    since: Instant,
    in_flight: bool,
    not_before: Instant,
}

struct Driver {
    context: Arc<Context>,
    /// The term this server leads.
    term: Option<u64>,
    ready: bool,
    rings: BTreeMap<RingName, Pace>,
    /// Until when ring time was counted.
    counted: Instant,
    ticking: bool,
    /// What runs out at present; see [`running_out`].
    running: BTreeSet<(RingName, Runs)>,
    tasks: JoinSet<Done>,
}

/// Drives until `stop`.
pub(crate) async fn run(context: Arc<Context>) {
    let stop = context.stop.clone();
    let mut standings = context.node.standings();
    let mut applied = context.node.applied();
    let mut driver = Driver {
        term: None,
        ready: false,
        rings: BTreeMap::new(),
        counted: Instant::now(),
        ticking: false,
        running: BTreeSet::new(),
        tasks: JoinSet::new(),
        context: Arc::clone(&context),
    };
    let mut news = true;
    loop {
        let began = Instant::now();
        driver.look(news);
        let rest = began.elapsed() * REST;
        if rest >= SHORTEST_REST {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(rest) => {}
            }
        }
        let idle = driver.tasks.is_empty();
        news = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(done) = driver.tasks.join_next(), if !idle => {
                driver.done(done);
                true
            }
            changed = standings.changed() => match changed {
                Ok(()) => true,
                Err(_) => break,
            },
            changed = applied.changed() => match changed {
                Ok(()) => true,
                Err(_) => break,
            },
            () = context.links.heard.notified() => true,
            // Time alone makes a step due, but never changes what a node should do.
            () = tokio::time::sleep(BEAT) => false,
        };
    }
    context.links.lead(None);
    context.links.looked();
}

impl Driver {
    /// `news`: something was said or applied, so links look too.
    fn look(&mut self, news: bool) {
        let standing = self.context.node.standing();
        let term = standing.is_leader().then_some(standing.term);
        let changed = self.context.links.lead(term);
        if changed {
            self.change_office(term);
        }
        if term.is_some() && self.ready {
            self.propose_due();
            self.tick();
        }
        if news || changed {
            self.context.links.looked();
        }
    }

    /// What belongs to another term is forgotten; its proposals come back to nobody.
    fn change_office(&mut self, term: Option<u64>) {
        self.term = term;
        self.ready = false;
        self.rings.clear();
        self.ticking = false;
        self.running.clear();
        self.tasks = JoinSet::new();
        let Some(term) = term else {
            tracing::info!("does not lead any more: links are told where the leader is");
            return;
        };
        tracing::info!(term, "leads: waits for data nodes to link and report");
        self.make_ready(term);
    }

    fn make_ready(&mut self, term: u64) {
        let node = self.context.node.clone();
        self.tasks
            .spawn(async move { Done::Ready(term, node.linearize(PROPOSAL).await) });
    }

    fn propose_due(&mut self) {
        let now = Instant::now();
        let now_ms = self.context.clock.now_ms();
        let interval = ms(self.context.config.limits.epoch_interval_ms);
        let names: Vec<(RingName, Epoch)> = self.context.node.shared().read(|state, _| {
            state
                .rings
                .iter()
                .map(|(name, ring)| (name.clone(), ring.epoch))
                .collect()
        });
        for (name, epoch) in names {
            let pace = self.rings.entry(name.clone()).or_insert_with(|| Pace {
                epoch,
                since: now - interval,
                in_flight: false,
                not_before: now,
            });
            if pace.epoch != epoch {
                pace.epoch = epoch;
                pace.since = now;
            }
            if pace.in_flight || now < pace.not_before {
                continue;
            }
            let command = self.context.node.shared().read(|state, _| {
                let links = &self.context.links;
                links.with_reports(&name, |reports| due(state, &name, reports, now_ms))
            });
            let Some(command) = command else { continue };
            if may_wait(&command) && now < pace.since + interval {
                pace.not_before = pace.since + interval;
                continue;
            }
            pace.in_flight = true;
            let kind = api::kind(&command);
            let node = self.context.node.clone();
            self.tasks.spawn(async move {
                let command = Command::Ring {
                    ring: name.clone(),
                    command,
                };
                // The state says what is due, so a repeated proposal is refused by its step.
                let request = Request {
                    request_id: None,
                    command,
                };
                let answer = node.propose(request, PROPOSAL).await;
                Done::Ring(name, kind, answer)
            });
        }
    }

    /// Raises ring time while something runs out.
    fn tick(&mut self) {
        let now = Instant::now();
        let since_ms = whole_ms(now.saturating_duration_since(self.counted));
        let (running, tick) = self.context.node.shared().read(|state, _| {
            (
                running_out(state),
                tick_due(state, since_ms.min(MAX_TICK_MS)),
            )
        });
        if !running.is_subset(&self.running) {
            // A soak or a grace that just began must not be charged for the time before it;
            // the others last a little longer, which is the harmless side.
            self.counted = now;
            self.running = running;
            return;
        }
        self.running = running;
        if self.running.is_empty() {
            self.counted = now;
            return;
        }
        let Some(command) = tick.filter(|_| !self.ticking) else {
            return;
        };
        self.ticking = true;
        let node = self.context.node.clone();
        self.tasks.spawn(async move {
            let request = Request {
                request_id: None,
                command,
            };
            Done::Tick(now, node.propose(request, PROPOSAL).await)
        });
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Ready(term, answer)) => match answer {
                Ok(_) => self.ready = self.term == Some(term),
                Err(error) => {
                    tracing::warn!(%error, term, "leadership is not confirmed yet");
                    self.make_ready(term);
                }
            },
            Ok(Done::Ring(ring, kind, answer)) => {
                self.context.metrics.proposed(kind, &answer);
                let pause = report(&ring, kind, &answer);
                if let Some(pace) = self.rings.get_mut(&ring) {
                    pace.in_flight = false;
                    if pause {
                        pace.not_before = Instant::now() + PAUSE;
                    }
                }
            }
            Ok(Done::Tick(until, answer)) => {
                self.context.metrics.proposed("tick", &answer);
                self.ticking = false;
                if let Ok(Outcome::Applied(_)) = answer {
                    self.counted = until;
                }
            }
            Err(error) => tracing::error!(%error, "a task of the driver ended early"),
        }
    }
}

/// Writes a proposal's outcome down; whether the ring should rest.
fn report(ring: &RingName, kind: &str, answer: &Answer) -> bool {
    match answer {
        Ok(Outcome::Applied(applied)) => {
            tracing::info!(%ring, epoch = %applied.epoch, kind, "step is done");
            false
        }
        Ok(Outcome::Rejected(rejection)) => {
            tracing::warn!(%ring, kind, %rejection, "step was refused");
            true
        }
        Err(error) => {
            tracing::warn!(%ring, kind, %error, "step was not proposed");
            true
        }
    }
}

/// Whether a step may wait so that a ring has few epochs a second. The end of a wave may not, nor
/// any step of a failover: its ranges take no writes meanwhile.
fn may_wait(command: &RingCommand) -> bool {
    match command {
        RingCommand::Start { .. }
        | RingCommand::Advance { .. }
        | RingCommand::Availability { .. }
        | RingCommand::HandOver(HandOver::Begin { .. }) => true,
        RingCommand::HandOver(
            HandOver::Commit { .. }
            | HandOver::Abort { .. }
            | HandOver::Intend { .. }
            | HandOver::Succeed { .. },
        )
        | RingCommand::Create { .. }
        | RingCommand::Found { .. }
        | RingCommand::Register(_)
        | RingCommand::SetEndpoint { .. }
        | RingCommand::Change { .. }
        | RingCommand::ChangeBySteps { .. }
        | RingCommand::Convert { .. }
        | RingCommand::FinishConversion { .. }
        | RingCommand::AbortConversion { .. }
        | RingCommand::Abort { .. }
        | RingCommand::Settle
        | RingCommand::Replan { .. }
        | RingCommand::Maintain { .. }
        | RingCommand::Pause { .. }
        | RingCommand::Hold { .. }
        | RingCommand::AutoRemove { .. }
        | RingCommand::Permit { .. }
        | RingCommand::Released { .. }
        | RingCommand::StorePlan { .. }
        | RingCommand::CommitPlan { .. }
        | RingCommand::DropPlan { .. } => false,
    }
}

/// What is counted in ring time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Runs {
    /// The soak of this transition.
    Soak(u64),
    /// The grace of the copies of this session.
    Grace(u64),
}

fn running_out(state: &State) -> BTreeSet<(RingName, Runs)> {
    let mut running = BTreeSet::new();
    for (name, ring) in &state.rings {
        if let Some(transition) = ring
            .transition
            .as_ref()
            .filter(|one| one.step == Step::Switched)
        {
            running.insert((name.clone(), Runs::Soak(transition.id.0)));
        }
        for copies in ring
            .retained
            .iter()
            .filter(|copies| !copies.kept.is_empty())
        {
            running.insert((name.clone(), Runs::Grace(copies.session.0)));
        }
    }
    running
}
