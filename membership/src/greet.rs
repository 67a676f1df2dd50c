//! What to answer to an agent's Hello.

use annulus_ring::{Incarnation, NodeId, Weight, Zone};

use crate::{Registered, Registration, Rejection, RingCommand, RingState};

/// An agent's Hello, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who and what it says of itself.
    pub registration: Registration,
    /// The life it has on disk; 0 = none yet.
    pub incarnation: Incarnation,
    /// Its directory holds no record.
    pub empty: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// It may speak; `discard`: its data belongs to nobody, so it sets it aside and draws a new
    /// birth.
    Welcome {
        /// Its life.
        incarnation: Incarnation,
        /// See above.
        discard: bool,
    },
    /// Propose this first, then greet again.
    Propose(RingCommand),
    /// Not before somebody acts.
    Refuse(Rejection),
}

/// Judges a Hello by the roster.
#[must_use]
pub fn greet(ring: &RingState, hello: &Hello) -> Greeting {
    let said = &hello.registration;
    let node = &said.node;
    let entry = ring.roster.get(node);
    let living = entry.and_then(|entry| entry.registered.as_ref());
    if ring.buried(node) {
        return Greeting::Refuse(Rejection::TakenForDead { node: node.clone() });
    }
    if let Some(living) = living.filter(|living| living.birth == said.birth) {
        let differs = |what: &str, registered: String, found: String| {
            Greeting::Refuse(Rejection::FactsDiffer {
                node: node.clone(),
                what: what.to_owned(),
                registered,
                found,
            })
        };
        // An agent is configured with what it registered with until somebody edits its file: where
        // an operator moved the member since, either is right.
        let (zones, weights) = known_facts(ring, living, node);
        if !zones.contains(&&said.zone) {
            return differs("zone", living.zone.to_string(), said.zone.to_string());
        }
        if !weights.contains(&said.weight) {
            return differs("weight", living.weight.to_string(), said.weight.to_string());
        }
        let never_told = Incarnation(0);
        if hello.incarnation != never_told && hello.incarnation != living.incarnation {
            return Greeting::Refuse(Rejection::WrongIncarnation {
                node: node.clone(),
                expected: living.incarnation,
                found: hello.incarnation,
            });
        }
        // The same birth, but what it held is gone: it must not be taken for still holding it.
        let holds = ring.founded && ring.members.contains_key(node);
        if hello.empty && holds && has_data(ring, node) && hello.incarnation == never_told {
            return Greeting::Refuse(Rejection::EmptiedDirectory {
                node: node.clone(),
                endpoint: living.endpoint.clone(),
            });
        }
        if living.endpoint != said.endpoint {
            return Greeting::Propose(RingCommand::SetEndpoint {
                node: node.clone(),
                incarnation: living.incarnation,
                endpoint: said.endpoint.clone(),
            });
        }
        return Greeting::Welcome {
            incarnation: living.incarnation,
            discard: false,
        };
    }
    let known = entry.and_then(|entry| entry.births.iter().find(|known| known.birth == said.birth));
    if let Some(known) = known {
        if known.aborted {
            return Greeting::Welcome {
                incarnation: known.incarnation,
                discard: true,
            };
        }
        return Greeting::Refuse(Rejection::RemovedIncarnation {
            node: node.clone(),
            incarnation: known.incarnation,
        });
    }
    if let Some(member) = ring.members.get(node) {
        return Greeting::Refuse(Rejection::EmptiedDirectory {
            node: node.clone(),
            endpoint: member.endpoint.clone(),
        });
    }
    if !hello.empty {
        return Greeting::Refuse(Rejection::ForeignData { node: node.clone() });
    }
    Greeting::Propose(RingCommand::Register(said.clone()))
}

/// Zones and weights under which a member may greet: the present ones, those it had before, and
/// those that the running transition gives it.
fn known_facts<'a>(
    ring: &'a RingState,
    living: &'a Registered,
    node: &NodeId,
) -> (Vec<&'a Zone>, Vec<Weight>) {
    let mut zones: Vec<_> = living.former_zones.iter().collect();
    let mut weights = living.former_weights.clone();
    zones.push(&living.zone);
    weights.push(living.weight);
    if let Some(transition) = &ring.transition {
        zones.extend(transition.afterwards.zones.get(node));
        weights.extend(transition.weights.get(node));
    }
    (zones, weights)
}

fn has_data(ring: &RingState, node: &NodeId) -> bool {
    ring.members.get(node).is_some_and(|member| {
        ring.slots
            .slots()
            .any(|slot| ring.slots.list(slot).contains(&member.handle))
    })
}
