//! What a run has seen: legal edges, failures at every step, every kind of rejection. A run that
//! never went somewhere proves nothing about it.

use std::{collections::BTreeMap, fmt::Write};

use annulus_membership::{
    Change, ChangePhase, Command, EvidenceFault, HandOver, Outcome, PermitFault, Rejection,
    RingCommand, RingState, TargetFault, WaveFault,
};
use annulus_ring::Step;

use super::{promises::Seen, variants};

/// From, by which command, to.
pub type Edge = (String, String, String);

/// Names of rejections that nothing gives now: each must stay unseen, or leave the list.
const UNREACHABLE: &[(&str, &str)] = &[
    ("OnlySlots", "no ring of these worlds is a cache"),
    ("NotActive", "no rule gives it; kept since logs may hold it"),
    (
        "Assign",
        "preflight and founding leave the assigner no reason",
    ),
    (
        "BadTarget/UnknownHandle",
        "an unknown handle is not eligible",
    ),
];

/// Commands that every ring refuses.
const NEVER_ACCEPTED: &[(&str, &str)] = &[];

/// A way in which the world fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    GainerDies,
    SourceDies,
    LoserDies,
    BystanderDies,
    Returns,
    DiskEmptied,
    SecondProcess,
    LinkLost,
    LeaderChanges,
    DeposedSpeaks,
    LateReport,
    RepeatedReport,
    LostReport,
    LateCommand,
    ForgedCommand,
    Paused,
}

impl Failure {
    pub const ALL: [Self; 16] = [
        Self::GainerDies,
        Self::SourceDies,
        Self::LoserDies,
        Self::BystanderDies,
        Self::Returns,
        Self::DiskEmptied,
        Self::SecondProcess,
        Self::LinkLost,
        Self::LeaderChanges,
        Self::DeposedSpeaks,
        Self::LateReport,
        Self::RepeatedReport,
        Self::LostReport,
        Self::LateCommand,
        Self::ForgedCommand,
        Self::Paused,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::GainerDies => "gainer dies",
            Self::SourceDies => "source dies",
            Self::LoserDies => "loser dies",
            Self::BystanderDies => "another dies",
            Self::Returns => "same life returns",
            Self::DiskEmptied => "disk emptied",
            Self::SecondProcess => "second process",
            Self::LinkLost => "link lost",
            Self::LeaderChanges => "leader changes",
            Self::DeposedSpeaks => "deposed leader speaks",
            Self::LateReport => "late, reordered report",
            Self::RepeatedReport => "repeated report",
            Self::LostReport => "lost report",
            Self::LateCommand => "late command",
            Self::ForgedCommand => "forged command",
            Self::Paused => "paused",
        }
    }

    /// Whether it can be: nobody gains, is a source or loses while nothing moves.
    fn can_be_at(self, step: Option<Step>) -> bool {
        match self {
            Self::GainerDies | Self::SourceDies | Self::LoserDies => step.is_some(),
            Self::BystanderDies
            | Self::Returns
            | Self::DiskEmptied
            | Self::SecondProcess
            | Self::LinkLost
            | Self::LeaderChanges
            | Self::DeposedSpeaks
            | Self::LateReport
            | Self::RepeatedReport
            | Self::LostReport
            | Self::LateCommand
            | Self::ForgedCommand
            | Self::Paused => true,
        }
    }
}

/// No step, then all of them.
fn columns() -> impl Iterator<Item = Option<Step>> {
    std::iter::once(None).chain(Step::ALL.into_iter().map(Some))
}

fn step_name(step: Option<Step>) -> &'static str {
    step.map_or("none", Step::as_str)
}

#[derive(Default)]
pub struct Coverage {
    pub moves: u64,
    /// Moves by which some entry was accepted.
    pub accepted_moves: u64,
    pub entries: u64,
    pub accepted: u64,
    /// Per verb: drawn, and with an accepted entry.
    pub verbs: BTreeMap<&'static str, (u64, u64)>,
    pub node_edges: BTreeMap<Edge, u64>,
    pub step_edges: BTreeMap<Edge, u64>,
    failures: BTreeMap<(Failure, Option<Step>), u64>,
    rejections: BTreeMap<String, u64>,
    commands: BTreeMap<String, (u64, u64)>,
    /// Changes that ran, by kind and step entered.
    changes: BTreeMap<(&'static str, Step), u64>,
}

impl Coverage {
    pub fn failure(&mut self, failure: Failure, step: Option<Step>) {
        *self.failures.entry((failure, step)).or_default() += 1;
    }

    pub fn rejection(&mut self, rejection: &Rejection) {
        *self
            .rejections
            .entry(rejection_name(rejection))
            .or_default() += 1;
    }

    pub fn entry(&mut self, seen: &Seen<'_>) {
        self.entries += 1;
        if seen.is_repeated() {
            return;
        }
        let name = command_name(&seen.entry.command);
        let (accepted, refused) = self.commands.entry(name.clone()).or_default();
        match &seen.effect.outcome {
            Outcome::Applied(_) => {
                *accepted += 1;
                self.accepted += 1;
            }
            Outcome::Rejected(rejection) => {
                *refused += 1;
                self.rejection(rejection);
                return;
            }
        }
        if let Some((before, after)) = seen.rings()
            && seen.done().is_some()
        {
            self.edges(before, after, &name);
            self.refused_later(before, after);
        }
    }

    /// Changes that were accepted, and that a later entry refused.
    fn refused_later(&mut self, before: &RingState, after: &RingState) {
        for (id, record) in &after.changes {
            let ChangePhase::Refused(rejection) = &record.phase else {
                continue;
            };
            let was_open = before.changes.get(id).is_some_and(|was| !was.phase.ended());
            if was_open {
                self.rejection(rejection);
            }
        }
    }

    fn edges(&mut self, before: &RingState, after: &RingState, by: &str) {
        let by = by.split('/').next().unwrap_or(by);
        for (node, is) in &after.members {
            let was = before.members.get(node).map(|member| member.state);
            if was != Some(is.state) {
                let from = was.map_or("-", annulus_ring::MemberState::as_str);
                edge(&mut self.node_edges, from, by, is.state.as_str());
            }
        }
        for (node, was) in &before.members {
            if !after.members.contains_key(node) {
                let leaves = was.state == annulus_ring::MemberState::Draining;
                let to = if leaves { "removed" } else { "gone" };
                edge(&mut self.node_edges, was.state.as_str(), by, to);
            }
        }
        let (was, is) = (&before.transition, &after.transition);
        let step =
            |one: &Option<annulus_membership::TransitionState>| one.as_ref().map(|one| one.step);
        if step(was) == step(is) {
            return;
        }
        let ended = if step(was) == Some(Step::Switched) {
            "settled"
        } else {
            "aborted"
        };
        let to = step(is).map_or(ended, Step::as_str);
        edge(
            &mut self.step_edges,
            step(was).map_or("-", Step::as_str),
            by,
            to,
        );
        if let Some(transition) = is {
            for id in &transition.changes {
                let kind = after.changes[id].change.kind();
                *self.changes.entry((kind, transition.step)).or_default() += 1;
            }
        }
    }

    pub fn add(&mut self, other: Self) {
        fn sum<K: Ord>(to: &mut BTreeMap<K, u64>, from: BTreeMap<K, u64>) {
            for (key, count) in from {
                *to.entry(key).or_default() += count;
            }
        }
        fn sum_both<K: Ord>(to: &mut BTreeMap<K, (u64, u64)>, from: BTreeMap<K, (u64, u64)>) {
            for (key, (one, two)) in from {
                let both = to.entry(key).or_default();
                both.0 += one;
                both.1 += two;
            }
        }
        self.moves += other.moves;
        self.accepted_moves += other.accepted_moves;
        self.entries += other.entries;
        self.accepted += other.accepted;
        sum_both(&mut self.verbs, other.verbs);
        sum(&mut self.node_edges, other.node_edges);
        sum(&mut self.step_edges, other.step_edges);
        sum(&mut self.failures, other.failures);
        sum(&mut self.rejections, other.rejections);
        sum_both(&mut self.commands, other.commands);
        sum(&mut self.changes, other.changes);
    }

    /// Rows of which fewer than `least` were seen, and those that should not be.
    pub fn missing(&self, least: u64) -> Vec<String> {
        let mut missing = Vec::new();
        let mut need = |what: String, count: u64| {
            if count < least {
                missing.push(format!("{what}: {count}"));
            }
        };
        for (name, edges) in [("node", &self.node_edges), ("step", &self.step_edges)] {
            for ((from, by, to), count) in edges {
                need(format!("{name} {from} --{by}--> {to}"), *count);
            }
        }
        for failure in Failure::ALL {
            for step in columns().filter(|step| failure.can_be_at(*step)) {
                let count = self.failures.get(&(failure, step)).copied();
                let what = format!("{} at {}", failure.as_str(), step_name(step));
                need(what, count.unwrap_or_default());
            }
        }
        for name in rejections() {
            let count = self.rejections.get(&name).copied().unwrap_or_default();
            match UNREACHABLE.iter().find(|(known, _)| *known == name) {
                Some(_) if count == 0 => {}
                Some(_) => need(format!("{name} is called unreachable, and was seen"), 0),
                None => need(format!("rejection {name}"), count),
            }
        }
        for name in commands() {
            let accepted = self.commands.get(&name).map_or(0, |both| both.0);
            match NEVER_ACCEPTED.iter().find(|(known, _)| *known == name) {
                Some(_) if accepted == 0 => {}
                Some(_) => need(format!("{name} is never accepted, and was"), 0),
                None => need(format!("accepted {name}"), accepted),
            }
        }
        missing
    }

    /// All of it, to be read.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let line = &mut text;
        for (name, edges) in [
            ("node states", &self.node_edges),
            ("steps", &self.step_edges),
        ] {
            writeln!(line, "\n-- legal edges of {name}").unwrap();
            for ((from, by, to), count) in edges {
                let edge = format!("{from} --{by}--> {to}");
                writeln!(line, "{edge:<58} {count:>8}").unwrap();
            }
        }
        writeln!(line, "\n-- failures by step").unwrap();
        write!(line, "{:<23}", "").unwrap();
        columns().for_each(|step| write!(line, "{:>13}", step_name(step)).unwrap());
        line.push('\n');
        for failure in Failure::ALL {
            write!(line, "{:<23}", failure.as_str()).unwrap();
            for step in columns() {
                match self.failures.get(&(failure, step)) {
                    None if !failure.can_be_at(step) => write!(line, "{:>13}", "-").unwrap(),
                    count => write!(line, "{:>13}", count.copied().unwrap_or_default()).unwrap(),
                }
            }
            line.push('\n');
        }
        writeln!(line, "\n-- changes that were at a step").unwrap();
        for kind in variants::of::<Change>() {
            let kind = kind.to_lowercase();
            write!(line, "{kind:<23}").unwrap();
            for step in columns() {
                let find = |step| {
                    let mut found = self.changes.iter();
                    found.find(|((one, at), _)| one.replace(' ', "") == kind && *at == step)
                };
                let count = step.and_then(find).map_or(0, |(_, count)| *count);
                write!(line, "{count:>13}").unwrap();
            }
            line.push('\n');
        }
        writeln!(line, "\n-- commands: accepted, refused").unwrap();
        for name in commands() {
            let (accepted, refused) = self.commands.get(&name).copied().unwrap_or_default();
            writeln!(line, "{name:<40} {accepted:>9} {refused:>9}").unwrap();
        }
        writeln!(line, "\n-- rejections").unwrap();
        for name in rejections() {
            let count = self.rejections.get(&name).copied().unwrap_or_default();
            let why = UNREACHABLE.iter().find(|(known, _)| *known == name);
            let why = why.map_or(String::new(), |(_, why)| format!("  ({why})"));
            writeln!(line, "{name:<40} {count:>9}{why}").unwrap();
        }
        writeln!(line, "\n-- moves: drawn, with an accepted entry").unwrap();
        for (verb, (drawn, accepted)) in &self.verbs {
            writeln!(line, "{verb:<40} {drawn:>9} {accepted:>9}").unwrap();
        }
        text
    }

    /// One line on the size of the run.
    pub fn sum(&self) -> String {
        let percent = |part: u64, whole: u64| 100 * part / whole.max(1);
        format!(
            "{} steps, {} % accepted; {} entries, {} % accepted",
            self.moves,
            percent(self.accepted_moves, self.moves),
            self.entries,
            percent(self.accepted, self.entries),
        )
    }
}

fn edge(edges: &mut BTreeMap<Edge, u64>, from: &str, by: &str, to: &str) {
    let edge = (from.to_owned(), by.to_owned(), to.to_owned());
    *edges.entry(edge).or_default() += 1;
}

fn with_fault(rejection: &str, fault: &impl std::fmt::Debug) -> String {
    format!("{rejection}/{}", variants::name(fault))
}

/// Its name, and that of its fault, if it has one.
pub fn rejection_name(rejection: &Rejection) -> String {
    match rejection {
        Rejection::BadTarget { reason, .. } => with_fault("BadTarget", reason),
        Rejection::Evidence { reason } => with_fault("Evidence", reason),
        Rejection::BadWave { reason, .. } => with_fault("BadWave", reason),
        Rejection::NotPermitted { reason, .. } => with_fault("NotPermitted", reason),
        other => variants::name(other),
    }
}

/// Names of all rejections, those with a fault once per fault.
fn rejections() -> Vec<String> {
    let with = |name: &str, faults: &[&str]| -> Vec<String> {
        faults
            .iter()
            .map(|fault| format!("{name}/{fault}"))
            .collect()
    };
    let names = variants::of::<Rejection>()
        .iter()
        .flat_map(|name| match *name {
            "BadTarget" => with(name, variants::of::<TargetFault>()),
            "Evidence" => with(name, variants::of::<EvidenceFault>()),
            "BadWave" => with(name, variants::of::<WaveFault>()),
            "NotPermitted" => with(name, variants::of::<PermitFault>()),
            name => vec![name.to_owned()],
        });
    names.collect()
}

/// Names of all commands, changes and hand-overs once per kind.
fn commands() -> Vec<String> {
    let with = |name: &str, kinds: &[&str]| -> Vec<String> {
        kinds.iter().map(|kind| format!("{name}/{kind}")).collect()
    };
    let mut names: Vec<String> = vec!["Init".to_owned(), "Tick".to_owned()];
    names.extend(
        variants::of::<RingCommand>()
            .iter()
            .flat_map(|name| match *name {
                "Change" => with(name, variants::of::<Change>()),
                "HandOver" => with(name, variants::of::<HandOver>()),
                name => vec![name.to_owned()],
            }),
    );
    names
}

fn command_name(command: &Command) -> String {
    match command {
        Command::Ring { command, .. } => match command {
            RingCommand::Change { change, .. } => with_fault("Change", change),
            RingCommand::HandOver(hand_over) => with_fault("HandOver", hand_over),
            other => variants::name(other),
        },
        other => variants::name(other),
    }
}
