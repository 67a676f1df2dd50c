//! A whole world without I/O: one state machine, its leader's reports, and honest data nodes that
//! hold their data as sets. Scenarios script it, shuffles reorder it.

pub mod node;
pub mod plans;
pub mod promises;

use std::collections::BTreeMap;

use annulus_membership::{
    Birth, Change, ChangeId, Command, Entry, Greeting, Hello, Outcome, Registration, Rejection,
    Reports, Request, RequestId, RingCommand, RingConfig, State, WarmUp, directive, due,
    found_command, greet, tick_due,
};
use annulus_ring::{
    Checksum, ClusterId, Endpoint, HashName, NodeId, Replication, RingKind, RingName, Snapshot,
    Weight, Zone,
};
use node::Node;
use promises::Promises;

/// State, leader and nodes.
pub struct World {
    pub state: State,
    /// Applies the same entries; must stay byte-identical (REPLICAS-EQUAL).
    twin: State,
    pub ring: RingName,
    pub reports: Reports,
    pub nodes: BTreeMap<NodeId, Node>,
    pub now_ms: u64,
    last_tick_ms: u64,
    next_request: u128,
    /// Every published snapshot, from epoch 1.
    pub history: Vec<Snapshot>,
    pub promises: Promises,
}

impl World {
    pub fn new(config: RingConfig) -> Self {
        let ring = RingName::new("test").unwrap();
        let mut world = Self {
            state: State::new(),
            twin: State::new(),
            ring,
            reports: Reports::default(),
            nodes: BTreeMap::new(),
            now_ms: 0,
            last_tick_ms: 0,
            next_request: 1,
            history: Vec::new(),
            promises: Promises::default(),
        };
        world.apply(
            None,
            Command::Init {
                cluster_id: ClusterId(7),
            },
        );
        world
            .ring_command(RingCommand::Create {
                config,
                accept: true,
            })
            .unwrap();
        world
    }

    pub fn config(slot_bits: u8, rf: u8) -> RingConfig {
        RingConfig {
            slot_bits,
            hash: HashName::Xxh3_64,
            seed: 0,
            replication: Replication {
                rf,
                w: rf / 2 + 1,
                r: rf / 2 + 1,
            },
            soak_ms: 1_000,
            grace_ms: 2_000,
            ..RingConfig::default()
        }
    }

    /// A cache ring, as the command line makes one.
    pub fn cache(slot_bits: u8, rf: u8, warm_up: WarmUp) -> RingConfig {
        RingConfig {
            kind: RingKind::Cache,
            warm_up,
            soak_ms: 0,
            grace_ms: 0,
            ..Self::config(slot_bits, rf)
        }
    }

    pub fn ring_state(&self) -> &annulus_membership::RingState {
        &self.state.rings[&self.ring]
    }

    /// Applies one entry on both servers, publishes, and checks every promise of the state.
    pub fn apply(&mut self, request_id: Option<RequestId>, command: Command) -> Outcome {
        let before = self.state.clone();
        if std::env::var_os("ANNULUS_TRACE").is_some() {
            eprintln!("{} {command:?}", self.now_ms);
        }
        let entry = Entry {
            wall_ms: self.now_ms,
            request_id,
            command,
        };
        // What is applied is what the log holds: through the serde form.
        let bytes = serde_json::to_vec(&entry).unwrap();
        let entry: Entry = serde_json::from_slice(&bytes).unwrap();
        let effect = self.state.apply(&entry);
        let twin = self.twin.apply(&entry);
        assert_eq!(effect, twin, "REPLICAS-EQUAL");
        if let Some(ring) = &effect.published {
            let snapshot = self.state.snapshot(ring).unwrap();
            snapshot
                .check()
                .unwrap_or_else(|error| panic!("published nonsense: {error}"));
            let checksum = stub_checksum(&snapshot);
            self.state.note_checksum(ring, checksum);
            self.twin.note_checksum(ring, checksum);
            if *ring == self.ring {
                self.history.push(snapshot);
            }
        }
        if matches!(effect.outcome, Outcome::Rejected(_)) {
            let mut same = self.state.clone();
            same.answers = before.answers.clone();
            same.wall_ms = before.wall_ms;
            assert_eq!(same, before, "a rejection touched the state");
        }
        self.promises.check(
            &before,
            &self.state,
            &self.history,
            &entry.command,
            &self.nodes,
        );
        effect.outcome
    }

    /// Both servers in their serde form.
    pub fn replicas_are_equal(&self) {
        let one = serde_json::to_vec(&self.state).unwrap();
        let other = serde_json::to_vec(&self.twin).unwrap();
        assert!(one == other, "REPLICAS-EQUAL: the serde forms differ");
        let back: State = serde_json::from_slice(&one).unwrap();
        assert_eq!(back, self.state, "the serde form lost something");
    }

    pub fn request(&mut self, command: RingCommand) -> Outcome {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let command = Command::Ring {
            ring: self.ring.clone(),
            command,
        };
        let first = self.apply(Some(id), command.clone());
        let epoch = self.ring_state().epoch;
        let again = self.apply(Some(id), command);
        assert_eq!(first, again, "EXACTLY-ONCE: another answer");
        assert_eq!(
            epoch,
            self.ring_state().epoch,
            "EXACTLY-ONCE: a retry changed something"
        );
        first
    }

    pub fn ring_command(&mut self, command: RingCommand) -> Result<(), Rejection> {
        // `check` must say beforehand what `apply` says.
        let full = Command::Ring {
            ring: self.ring.clone(),
            command: command.clone(),
        };
        let foreseen = self.state.check(&Request {
            request_id: None,
            command: full,
        });
        let answered = match self.request(command) {
            Outcome::Applied(_) => Ok(()),
            Outcome::Rejected(rejection) => Err(rejection),
        };
        assert_eq!(foreseen, answered, "check and apply disagree");
        answered
    }

    /// Another ring, of which nothing else is wanted.
    pub fn create(&mut self, name: &str, config: RingConfig) -> Result<(), Rejection> {
        let command = RingCommand::Create {
            config,
            accept: false,
        };
        let ring = RingName::new(name).unwrap();
        match self.apply(None, Command::Ring { ring, command }) {
            Outcome::Applied(_) => Ok(()),
            Outcome::Rejected(rejection) => Err(rejection),
        }
    }

    /// Starts a node's agent with an empty directory and greets it.
    pub fn agent(&mut self, id: &str, zone: &str, weight: u32) {
        self.agent_at(id, zone, weight, id).unwrap();
    }

    /// The same, listening where its name does not say.
    pub fn agent_at(
        &mut self,
        id: &str,
        zone: &str,
        weight: u32,
        at: &str,
    ) -> Result<(), Rejection> {
        let birth = Birth(self.next_request);
        self.next_request += 1;
        let node = NodeId::new(id).unwrap();
        let registration = Registration {
            node: node.clone(),
            birth,
            endpoint: Endpoint::new(format!("{at}:1")).unwrap(),
            zone: Zone::new(zone).unwrap(),
            weight: Weight::new(weight).unwrap(),
        };
        self.nodes.insert(node.clone(), Node::new(registration));
        self.link(&node)
    }

    /// Opens a node's link at the present leader.
    pub fn link(&mut self, id: &NodeId) -> Result<(), Rejection> {
        for _ in 0..4 {
            let node = &self.nodes[id];
            let hello = Hello {
                registration: node.registration.clone(),
                incarnation: node.incarnation,
                empty: node.is_empty(),
            };
            match greet(self.ring_state(), &hello) {
                Greeting::Refuse(rejection) => return Err(rejection),
                Greeting::Propose(command) => self.ring_command(command)?,
                Greeting::Welcome { discard: true, .. } => {
                    let birth = Birth(self.next_request);
                    self.next_request += 1;
                    self.nodes.get_mut(id).unwrap().start_anew(birth);
                }
                Greeting::Welcome {
                    incarnation,
                    discard: false,
                } => {
                    let node = self.nodes.get_mut(id).unwrap();
                    node.incarnation = incarnation;
                    let (empty, adopted) = (node.is_empty(), node.adopted);
                    self.reports
                        .hello(id.clone(), incarnation, empty, adopted, self.now_ms);
                    return Ok(());
                }
            }
        }
        panic!("greeting {id} does not end");
    }

    /// A new leader: it has heard nothing and hears everything again.
    pub fn new_leader(&mut self) {
        self.reports = Reports::default();
        let ids: Vec<NodeId> = self.nodes.keys().cloned().collect();
        for id in ids {
            let _ = self.link(&id);
        }
    }

    pub fn found(&mut self, nodes: &[&str], accept: bool) -> Result<(), Rejection> {
        let nodes: Vec<NodeId> = nodes.iter().map(|id| NodeId::new(id).unwrap()).collect();
        let command = found_command(&self.state, &self.ring, &nodes, &self.reports, accept, 0)?;
        self.ring_command(command)
    }

    pub fn change(&mut self, change: Change) -> Result<ChangeId, Rejection> {
        let command = RingCommand::Change {
            change,
            expected_layout_epoch: None,
        };
        match self.request(command) {
            Outcome::Applied(applied) => Ok(applied.change.unwrap()),
            Outcome::Rejected(rejection) => Err(rejection),
        }
    }

    pub fn join(&mut self, id: &str) -> Result<ChangeId, Rejection> {
        let node = NodeId::new(id).unwrap();
        self.change(Change::Join {
            node,
            zone: None,
            weight: None,
        })
    }

    pub fn drain(&mut self, id: &str) -> Result<ChangeId, Rejection> {
        self.change(Change::Drain {
            node: NodeId::new(id).unwrap(),
        })
    }

    /// A node adopts the newest snapshot, does what it and its directive ask, and reports.
    pub fn node_acts(&mut self, id: &NodeId) {
        self.node_adopts(id);
        let report = self.node_report(id);
        self.reports.take(id, report, self.now_ms);
    }

    pub fn node_adopts(&mut self, id: &NodeId) {
        let snapshot = self.history.last().cloned();
        let directive = directive(&self.state, self.ring_state(), &self.reports, id);
        let state = self.ring_state().clone();
        if let (Some(snapshot), Some(node)) = (snapshot, self.nodes.get_mut(id)) {
            node.act(&snapshot, &state, &directive);
        }
    }

    pub fn node_report(&self, id: &NodeId) -> annulus_membership::Report {
        self.nodes[id].report(self.ring_state())
    }

    /// What the leader would propose now, applied.
    pub fn leader_acts(&mut self) -> Option<RingCommand> {
        if let Some(tick) = tick_due(&self.state, self.now_ms - self.last_tick_ms) {
            self.apply(None, tick);
            self.last_tick_ms = self.now_ms;
        }
        let ring = self.ring.clone();
        let command = due(&self.state, &ring, &mut self.reports, self.now_ms)?;
        let full = Command::Ring {
            ring,
            command: command.clone(),
        };
        match self.apply(None, full) {
            Outcome::Applied(_) => Some(command),
            Outcome::Rejected(rejection) => {
                panic!("the leader proposed {command:?}, which was refused: {rejection}")
            }
        }
    }

    /// Everybody acts in turn until `done` holds.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            if done(self) {
                return;
            }
            let acted = self.leader_acts().is_some();
            if done(self) {
                return;
            }
            let ids: Vec<NodeId> = self.nodes.keys().cloned().collect();
            ids.iter().for_each(|id| self.node_acts(id));
            // While only time is waited for, it may pass faster.
            self.now_ms += if acted { 100 } else { 500 };
        }
        let waits = annulus_membership::waiting_for(
            &self.state,
            self.ring_state(),
            &self.reports,
            self.now_ms,
        );
        panic!("{what}: not reached; waiting for {waits:?}");
    }

    /// Until nothing is due and nothing runs.
    pub fn run_to_rest(&mut self) {
        self.run_until("rest", |world| {
            let ring = world.ring_state();
            let mut reports = world.reports.clone();
            ring.transition.is_none()
                && ring.wave.is_none()
                && ring.retained.is_empty()
                && ring
                    .members
                    .values()
                    .all(|member| member.availability == annulus_ring::Availability::Up)
                && due(
                    &world.state,
                    &world.ring,
                    &mut reports,
                    // Later than every pause, and before anybody is taken for down.
                    world.now_ms + 9_000,
                )
                .is_none()
        });
    }
}

fn stub_checksum(snapshot: &Snapshot) -> Checksum {
    let mut checksum = snapshot.previous_checksum;
    checksum.0[..8].copy_from_slice(&snapshot.epoch.0.to_be_bytes());
    checksum.0[8] = checksum.0[8].wrapping_add(1);
    checksum
}
