//! The promises of the state, one file each, judged after every entry against what the nodes truly
//! hold. Each checks on its own what `decide` should have checked: none asks `decide`.

mod abort_clean;
mod edges;
mod epoch_chain;
mod evidence;
mod exactly_once;
pub mod last_copy;
mod nothing_else;
mod one_owner;
mod one_transition;
mod place_distinct;
mod queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use annulus_membership::{
    Command, Effect, Entry, Outcome, RequestId, RingCommand, RingState, State, TransitionState,
};
use annulus_ring::{Handle, Incarnation, List, NodeId, RingName, Slot};

use super::node::Node;

/// One entry, and the state before and after it.
pub struct Seen<'a> {
    pub ring: &'a RingName,
    pub before: &'a State,
    pub after: &'a State,
    pub entry: &'a Entry,
    pub effect: &'a Effect,
    /// What nodes truly hold.
    pub nodes: &'a BTreeMap<NodeId, Node>,
}

impl<'a> Seen<'a> {
    /// The ring before and after, once it exists.
    pub fn rings(&self) -> Option<(&'a RingState, &'a RingState)> {
        let before = self.before.rings.get(self.ring)?;
        Some((before, self.after.rings.get(self.ring)?))
    }

    pub fn is_applied(&self) -> bool {
        matches!(self.effect.outcome, Outcome::Applied(_))
    }

    /// Whether the request was answered from memory.
    pub fn is_repeated(&self) -> bool {
        self.entry
            .request_id
            .is_some_and(|id| self.before.answers.by_id.contains_key(&id))
    }

    /// The command on this ring, if it was carried out now.
    pub fn done(&self) -> Option<&'a RingCommand> {
        if !self.is_applied() || self.is_repeated() {
            return None;
        }
        match &self.entry.command {
            Command::Ring { ring, command } if ring == self.ring => Some(command),
            Command::Ring { .. } | Command::Init { .. } | Command::Tick { .. } => None,
        }
    }

    /// The directory of a member's life, as it truly is.
    pub fn node(&self, ring: &RingState, id: &NodeId) -> Option<&'a Node> {
        let member = ring.members.get(id)?;
        self.nodes.get(id)?.life(member.incarnation)
    }

    /// The same by handle.
    pub fn holder(&self, ring: &RingState, handle: Handle) -> Option<&'a Node> {
        let member = ring.by_handle(handle)?;
        self.nodes.get(&member.node_id)?.life(member.incarnation)
    }
}

/// What has to be remembered to judge later entries.
#[derive(Default)]
pub struct Memory {
    /// The lists when the running transition began.
    pub lists: Vec<List>,
    /// Lives that were removed or aborted: they never come back.
    pub over: BTreeMap<NodeId, BTreeSet<Incarnation>>,
    /// Answers by request.
    pub answers: BTreeMap<RequestId, Outcome>,
}

impl Memory {
    pub fn note(&mut self, seen: &Seen<'_>) {
        if let Some(id) = seen.entry.request_id {
            let answer = || seen.effect.outcome.clone();
            self.answers.entry(id).or_insert_with(answer);
        }
        let Some((before, after)) = seen.rings() else {
            return;
        };
        let id = |ring: &RingState| ring.transition.as_ref().map(|one| one.id);
        if id(after).is_some() && id(before) != id(after) {
            let slots = before.slots.slots();
            self.lists = slots
                .map(|slot| List::from_slice(before.slots.list(slot)))
                .collect();
        }
        for (node, member) in &before.members {
            if !after.members.contains_key(node) && after.registered(node).is_none() {
                let over = self.over.entry(node.clone()).or_default();
                over.insert(member.incarnation);
            }
        }
    }
}

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub promise: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

type Check = fn(&Seen<'_>, &Memory) -> Result<(), String>;

/// Every promise with its check.
const PROMISES: &[(&str, Check)] = &[
    ("NOTHING-ELSE", nothing_else::check),
    ("EXACTLY-ONCE", exactly_once::check),
    ("EPOCH-CHAIN", epoch_chain::check),
    ("PLACE-DISTINCT", place_distinct::check),
    ("LEGAL-EDGES", edges::check),
    ("ONE-TRANSITION", one_transition::check),
    ("EVIDENCE", evidence::check),
    ("NO-EARLY-READ", evidence::no_early_read),
    ("ONE-OWNER", one_owner::check),
    ("ABORT-CLEAN", abort_clean::check),
    ("LAST-COPY", last_copy::check),
    ("QUEUE", queue::check),
];

/// The first promise that is broken.
pub fn judge(seen: &Seen<'_>, memory: &Memory) -> Option<Violation> {
    PROMISES.iter().find_map(|(promise, check)| {
        let what = check(seen, memory).err()?;
        Some(Violation { promise, what })
    })
}

/// A check that fails says what it found.
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The transition that this entry ended, and whether its new lists hold.
pub fn ended<'a>(
    before: &'a RingState,
    after: &RingState,
    command: Option<&RingCommand>,
) -> Option<(&'a TransitionState, bool)> {
    let was = before.transition.as_ref()?;
    let is_over = after.transition.as_ref().is_none_or(|is| is.id != was.id);
    let by_advance = matches!(command, Some(RingCommand::Advance { .. }));
    let well = was.step == annulus_ring::Step::Switched && by_advance;
    is_over.then_some((was, well))
}

/// The list of a slot as a set.
pub fn as_set(list: &[Handle]) -> BTreeSet<Handle> {
    list.iter().copied().collect()
}

/// Slots whose lists differ between two states of one ring.
pub fn changed_lists<'a>(
    before: &'a RingState,
    after: &'a RingState,
) -> impl Iterator<Item = (Slot, &'a [Handle], &'a [Handle])> {
    after.slots.slots().filter_map(|slot| {
        let (was, is) = (before.slots.list(slot), after.slots.list(slot));
        (was != is).then_some((slot, was, is))
    })
}
