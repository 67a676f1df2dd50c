//! One state machine, its twin one entry behind, the leader's reports, a deposed leader, letters on
//! their way, and data nodes. Whatever is applied is judged by every promise.

use std::collections::BTreeMap;

use annulus_membership::{
    Birth, Command, Directive, Entry, Greeting, Outcome, Registration, Rejection, Report, Reports,
    RequestId, RingCommand, RingState, State, directive, due, greet, tick_due,
};
use annulus_ring::{Checksum, Handle, Incarnation, NodeId, Position, RingName, Slot};

use super::{
    coverage::{Coverage, Failure},
    node::{Head, Node, Tails},
    promises::{self, Memory, Seen, Violation},
};

/// Requests whose answers are kept to be asked again.
const SAID: usize = 32;
/// Letters and proposals on their way.
pub const ON_ITS_WAY: usize = 24;
/// The whole state is compared with its twin this often, in entries.
const TWINS_COMPARED: u64 = 32;

/// A report on its way.
#[derive(Clone)]
pub struct Letter {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub report: Report,
}

/// A request that was answered.
#[derive(Clone)]
pub struct Said {
    pub id: RequestId,
    pub command: Command,
    pub outcome: Outcome,
}

/// An extra check, to try the model itself with.
pub type Planted = fn(&Seen<'_>) -> Result<(), String>;

pub struct World {
    pub ring: RingName,
    pub state: State,
    /// The state before the entry that is judged; then it applies the entry too and must be equal.
    twin: State,
    pub reports: Reports,
    /// What the last leader had heard when it was deposed.
    pub deposed: Option<Reports>,
    pub now_ms: u64,
    ticked_ms: u64,
    pub nodes: BTreeMap<NodeId, Node>,
    pub mail: Vec<Letter>,
    /// Proposed by some leader, not committed yet.
    pub parked: Vec<RingCommand>,
    pub said: Vec<Said>,
    next_id: u128,
    entries: u64,
    /// The answer to the last entry.
    pub last: Option<Outcome>,
    memory: Memory,
    pub coverage: Coverage,
    pub violation: Option<Violation>,
    pub planted: Option<Planted>,
}

impl World {
    pub fn new() -> Self {
        Self {
            ring: RingName::new("test").unwrap(),
            state: State::new(),
            twin: State::new(),
            reports: Reports::default(),
            deposed: None,
            now_ms: 0,
            ticked_ms: 0,
            nodes: BTreeMap::new(),
            mail: Vec::new(),
            parked: Vec::new(),
            said: Vec::new(),
            next_id: 1,
            entries: 0,
            last: None,
            memory: Memory::default(),
            coverage: Coverage::default(),
            violation: None,
            planted: None,
        }
    }

    /// None before it was created.
    pub fn ring_state(&self) -> Option<&RingState> {
        self.state.rings.get(&self.ring)
    }

    pub fn fresh_id(&mut self) -> u128 {
        self.next_id += 1;
        self.next_id
    }

    pub fn fail(&mut self, promise: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { promise, what });
        }
    }

    pub fn failure(&mut self, failure: Failure) {
        let step = self
            .ring_state()
            .and_then(|ring| ring.transition.as_ref())
            .map(|transition| transition.step);
        self.coverage.failure(failure, step);
    }

    /// Applies one entry on the state, judges it, and lets the twin follow.
    pub fn apply(&mut self, request_id: Option<RequestId>, command: Command) -> Outcome {
        let entry = Entry {
            wall_ms: self.now_ms,
            request_id,
            command,
        };
        let effect = self.state.apply(&entry);
        self.entries += 1;
        if let Some(ring) = &effect.published {
            publish(&mut self.state, ring);
        }
        self.converted();
        let seen = Seen {
            ring: &self.ring,
            before: &self.twin,
            after: &self.state,
            entry: &entry,
            effect: &effect,
            nodes: &self.nodes,
        };
        let planted = self.planted.and_then(|planted| {
            let what = planted(&seen).err()?;
            let promise = "PLANTED";
            Some(Violation { promise, what })
        });
        let violation = promises::judge(&seen, &self.memory).or(planted);
        self.coverage.entry(&seen);
        self.memory.note(&seen);
        self.violation = self.violation.take().or(violation);
        // A repeated request is answered again, and founds nothing again.
        if effect.published.is_some() {
            self.founded(&entry.command, &effect.outcome);
        }

        let followed = self.twin.apply(&entry);
        if let Some(ring) = &followed.published {
            publish(&mut self.twin, ring);
        }
        if followed != effect {
            let what = format!("{followed:?} on one server, {effect:?} on the other");
            self.fail("REPLICAS-EQUAL", what);
        }
        if self.entries.is_multiple_of(TWINS_COMPARED) {
            self.compare_twins();
        }
        self.last = Some(effect.outcome.clone());
        effect.outcome
    }

    /// What nodes hold gets its new names with the entry: under the old ones nobody serves it.
    fn converted(&mut self) {
        let bits = |state: &State| {
            let ring = state.rings.get(&self.ring);
            ring.map_or(0, |ring| ring.slots.bits())
        };
        let (before, after) = (bits(&self.twin), bits(&self.state));
        if before == 0 || before == after {
            return;
        }
        self.nodes.values_mut().for_each(Node::split);
    }

    /// Puts something into the state of every server that would take too many entries.
    pub fn prepare(&mut self, change: impl Fn(&mut State)) {
        change(&mut self.state);
        change(&mut self.twin);
    }

    pub fn compare_twins(&mut self) {
        if self.state != self.twin {
            self.fail("REPLICAS-EQUAL", "the states differ".to_owned());
        }
    }

    /// The twin starts again from its log snapshot.
    pub fn restart_twin(&mut self) {
        let bytes = serde_json::to_vec(&self.twin).unwrap();
        self.twin = serde_json::from_slice(&bytes).unwrap();
        let (one, other) = (serde_json::to_vec(&self.state).unwrap(), bytes);
        if one != other {
            self.fail("REPLICAS-EQUAL", "the serde forms differ".to_owned());
        }
        self.compare_twins();
    }

    /// A founder's empty directory is its whole copy of an empty ring.
    fn founded(&mut self, command: &Command, outcome: &Outcome) {
        let Command::Ring {
            ring: name,
            command: RingCommand::Found { founders, .. },
        } = command
        else {
            return;
        };
        if *name != self.ring || !matches!(outcome, Outcome::Applied(_)) {
            return;
        }
        let ring = &self.state.rings[name];
        for founder in founders {
            let (Some(node), Some(member)) = (
                self.nodes.get_mut(&founder.node),
                ring.members.get(&founder.node),
            ) else {
                continue;
            };
            let held = ring
                .slots
                .slots()
                .filter(|slot| ring.slots.list(*slot).contains(&member.handle));
            node.live = held.map(|slot| (slot, ring.reign_start(slot))).collect();
        }
    }

    pub fn on_ring(&self, command: RingCommand) -> Command {
        Command::Ring {
            ring: self.ring.clone(),
            command,
        }
    }

    /// Somebody's request, with an id of its own; it may be repeated later.
    pub fn request(&mut self, command: RingCommand) -> Outcome {
        let command = self.on_ring(command);
        let id = RequestId(self.fresh_id());
        let outcome = self.apply(Some(id), command.clone());
        if self.said.len() == SAID {
            self.said.remove(0);
        }
        self.said.push(Said {
            id,
            command,
            outcome: outcome.clone(),
        });
        outcome
    }

    /// What a leader proposes by itself.
    pub fn propose(&mut self, command: RingCommand) -> Outcome {
        let command = self.on_ring(command);
        self.apply(None, command)
    }

    pub fn tick(&mut self, elapsed_ms: u64) {
        self.apply(None, Command::Tick { elapsed_ms });
        self.ticked_ms = self.now_ms;
    }

    /// The leader's next command; it looks at the state as it is.
    pub fn due(&mut self) -> Option<RingCommand> {
        due(&self.state, &self.ring, &mut self.reports, self.now_ms)
    }

    /// The same for the leader that was deposed.
    pub fn due_to_the_deposed(&mut self) -> Option<RingCommand> {
        let reports = self.deposed.as_mut()?;
        due(&self.state, &self.ring, reports, self.now_ms)
    }

    /// What the leader would propose now, committed at once.
    pub fn leader_acts(&mut self) -> bool {
        if let Some(Command::Tick { elapsed_ms }) =
            tick_due(&self.state, self.now_ms.saturating_sub(self.ticked_ms))
        {
            self.tick(elapsed_ms);
        }
        let Some(command) = self.due() else {
            return false;
        };
        let said = self.propose(command.clone());
        if let Outcome::Rejected(why) = said {
            self.fail("DUE-IS-LEGAL", format!("{command:?} was refused: {why}"));
        }
        true
    }

    /// A new leader has heard nothing; every node that runs opens a link to it, or none yet.
    pub fn new_leader(&mut self, is_linked: bool) {
        self.deposed = Some(std::mem::take(&mut self.reports));
        self.nodes.values_mut().for_each(|node| node.linked = false);
        if is_linked {
            let ids: Vec<NodeId> = self.nodes.keys().cloned().collect();
            ids.iter().for_each(|id| {
                self.link(id);
            });
        }
    }

    /// A node's agent starts with an empty directory.
    pub fn start_agent(&mut self, mut registration: Registration) {
        registration.birth = Birth(self.fresh_id());
        let id = registration.node.clone();
        self.nodes.insert(id.clone(), Node::new(registration));
        self.link(&id);
    }

    /// Says what the agent is told; a refusal is counted.
    pub fn refuse(&mut self, rejection: &Rejection) -> bool {
        self.coverage.rejection(rejection);
        false
    }

    /// Opens a node's link at the present leader, if it runs.
    pub fn link(&mut self, id: &NodeId) -> bool {
        for _ in 0..4 {
            let (Some(ring), Some(node)) = (self.ring_state(), self.nodes.get(id)) else {
                return false;
            };
            if !node.runs {
                return false;
            }
            match greet(ring, &node.hello()) {
                Greeting::Refuse(rejection) => return self.refuse(&rejection),
                Greeting::Propose(command) => {
                    if let Outcome::Rejected(_) = self.request(command) {
                        return false;
                    }
                }
                Greeting::Welcome { discard: true, .. } => {
                    let birth = Birth(self.fresh_id());
                    self.nodes.get_mut(id).unwrap().start_anew(birth);
                }
                Greeting::Welcome { incarnation, .. } => {
                    let node = self.nodes.get_mut(id).unwrap();
                    node.incarnation = incarnation;
                    node.linked = true;
                    let (empty, adopted) = (node.is_empty(), node.adopted);
                    let report = node.report.clone();
                    self.reports
                        .hello(id.clone(), incarnation, empty, adopted, self.now_ms);
                    self.reports.take(id, report, self.now_ms);
                    return true;
                }
            }
        }
        self.fail(
            "GREETING-ENDS",
            format!("the greeting of {id} does not end"),
        );
        false
    }

    /// A linked node adopts, does what it is asked, and says so: the report it would send.
    pub fn node_acts(&mut self, id: &NodeId) -> Option<Letter> {
        let ring = self.state.rings.get(&self.ring)?;
        if ring.buried(id) {
            // Whoever is taken for dead is not listened to.
            self.reports.unlink(id);
            self.nodes.get_mut(id)?.linked = false;
            return None;
        }
        if !self
            .nodes
            .get(id)
            .is_some_and(|node| node.runs && node.linked)
        {
            return None;
        }
        let directive = directive(&self.state, ring, &self.reports, id);
        let heads = heads(ring, &self.nodes);
        let tails = tails(ring, &self.nodes, &directive);
        let node = self.nodes.get_mut(id)?;
        let deleted = node.act(ring, &directive, &heads, tails.as_ref());
        let letter = Letter {
            node: id.clone(),
            incarnation: node.incarnation,
            report: node.report.clone(),
        };
        let lost = promises::last_copy::after_deletion(ring, &self.nodes, id, &deleted);
        if let Err(what) = lost {
            self.fail("LAST-COPY", what);
        }
        Some(letter)
    }

    /// A letter arrives at the present leader, if that still speaks with the same life.
    pub fn deliver(&mut self, letter: Letter) {
        let known = self.reports.node(&letter.node);
        if known.is_some_and(|known| known.incarnation == letter.incarnation) {
            self.reports.take(&letter.node, letter.report, self.now_ms);
        }
    }

    pub fn acts_and_reports(&mut self, id: &NodeId) {
        if let Some(letter) = self.node_acts(id) {
            self.deliver(letter);
        }
    }

    pub fn everybody_acts(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().cloned().collect();
        ids.iter().for_each(|id| self.acts_and_reports(id));
    }
}

/// What can be seen of each range's owner, where it runs.
fn heads(ring: &RingState, nodes: &BTreeMap<NodeId, Node>) -> Vec<Option<Head>> {
    let owner_of = |handle: Handle| {
        let member = ring.by_handle(handle)?;
        let node = nodes.get(&member.node_id)?;
        (node.runs && node.incarnation == member.incarnation).then_some(node)
    };
    let head = |slot: Slot| owner_of(ring.sets(slot).owner()?)?.head(slot);
    ring.slots.slots().map(head).collect()
}

/// What a failover's successor reads, once each of those that it is told of can be asked.
fn tails(ring: &RingState, nodes: &BTreeMap<NodeId, Node>, directive: &Directive) -> Option<Tails> {
    let (wave, _) = directive.wave.as_ref()?;
    let from = directive.tails.clone()?;
    let mut positions = vec![Position::default(); wave.slots.len()];
    for id in &from {
        let member = ring.members.get(id)?;
        let node = nodes.get(id).filter(|node| node.runs)?;
        let refuses = node.fenced.as_ref().is_some_and(|(of, _)| *of == wave.id);
        if node.incarnation != member.incarnation || !refuses {
            return None;
        }
        for (slot, highest) in wave.slots.iter().zip(&mut positions) {
            *highest = (*highest).max(node.live.get(slot).copied().unwrap_or_default());
        }
    }
    Some((from, positions))
}

/// Makes the checksum of a newly published epoch, as the encoder would, and notes it.
fn publish(state: &mut State, name: &RingName) {
    let ring = &state.rings[name];
    let mut checksum: Checksum = ring.previous_checksum;
    checksum.0[..8].copy_from_slice(&ring.epoch.0.to_be_bytes());
    checksum.0[8] = checksum.0[8].wrapping_add(1);
    state.note_checksum(name, checksum);
}
