//! Nodes, and what happens to them.

use std::fmt;

use annulus_ring::{Handle, NodeId, Weight, Zone, node::MAX_MEMBERS};

use crate::{InputError, error::setting};

/// Most events of one run, each flap counted as two.
pub const MAX_STEPS: usize = 100;

/// A node of the simulation; it keeps its handle for life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index in every count.
    pub handle: Handle,
    /// Its name.
    pub name: NodeId,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
}

/// Nodes in the order in which they joined: numbered layouts depend on it.
pub type Nodes = Vec<Node>;

/// `count` nodes n1, n2, .. in zones z1 to z`zones`, dealt out in turn; weights repeat.
///
/// # Errors
/// [`InputError::Setting`] outside 1 to 10,000 nodes, or where zones or weights make no sense.
pub fn regular(count: usize, zones: usize, weights: &[u32]) -> Result<Nodes, InputError> {
    if count == 0 || count > MAX_MEMBERS {
        return Err(setting("--nodes", count, "1 to 10,000"));
    }
    if zones == 0 || zones > count {
        return Err(setting(
            "--zones",
            zones,
            format!("1 to {count}, the number of nodes"),
        ));
    }
    if weights.is_empty() {
        return Err(setting("--weights", "nothing", "at least one weight"));
    }
    (0..count)
        .map(|at| {
            let weight = weights[at % weights.len()];
            Ok(Node {
                handle: Handle(at as u16),
                name: name(at),
                zone: zone(at % zones),
                weight: checked(weight)?,
            })
        })
        .collect()
}

fn name(at: usize) -> NodeId {
    NodeId::new(format!("n{}", at + 1)).expect("a letter and digits are a name")
}

fn zone(at: usize) -> Zone {
    Zone::new(format!("z{}", at + 1)).expect("a letter and digits are a name")
}

/// A weight in bounds.
pub(crate) fn checked(weight: u32) -> Result<Weight, InputError> {
    Weight::new(weight).ok_or_else(|| setting("weight", weight, "0 to 1,000,000"))
}

/// One thing that happens to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A new node.
    Join {
        /// Its name; new nodes by number are called after their place.
        name: Option<NodeId>,
        /// Its zone; else the one with least weight.
        zone: Option<Zone>,
        /// Its weight; else that of most nodes.
        weight: Option<Weight>,
    },
    /// It gives everything away and leaves.
    Drain(NodeId),
    /// It is gone with its data.
    Fail(NodeId),
    /// Its share changes.
    Reweigh(NodeId, Weight),
    /// It leaves and comes back so many times, and each time the layout acts on it.
    Flap(NodeId, u32),
}

/// What happens in one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// As written.
    pub text: String,
    /// Everything at once.
    pub happenings: Vec<Happening>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl std::str::FromStr for Event {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let refused = |problem: String| InputError::Event {
            text: text.to_owned(),
            problem,
        };
        let mut happenings = Vec::new();
        for part in text.split(',') {
            let words: Vec<&str> = part.split_whitespace().collect();
            let node = |at: usize| -> Result<NodeId, InputError> {
                let word = words
                    .get(at)
                    .ok_or_else(|| refused("no node is named".into()))?;
                NodeId::new(word).map_err(|error| refused(error.to_string()))
            };
            let only = |count: usize| match words.get(count) {
                Some(word) => Err(refused(format!("{word:?} is one word too many"))),
                None => Ok(()),
            };
            let number = |at: usize, what: &str| -> Result<u32, InputError> {
                let word = words.get(at).copied().unwrap_or_default();
                word.parse()
                    .map_err(|_| refused(format!("{what} is {word:?}, expected a whole number")))
            };
            let weight = |value: u32| checked(value).map_err(|error| refused(error.to_string()));
            match words.first().copied().unwrap_or_default() {
                "join" => {
                    if let Some(count) = words.get(1).and_then(|word| word.strip_prefix('+')) {
                        only(2)?;
                        let count: usize = count
                            .parse()
                            .ok()
                            .filter(|count| (1..=MAX_MEMBERS).contains(count))
                            .ok_or_else(|| refused(format!("+{count} is not +1 to +10000")))?;
                        let one = Happening::Join {
                            name: None,
                            zone: None,
                            weight: None,
                        };
                        happenings.extend(std::iter::repeat_n(one, count));
                        continue;
                    }
                    let (mut zone, mut heavy) = (None, None);
                    for word in words.iter().skip(2) {
                        match word.split_once('=') {
                            Some(("zone", value)) => {
                                let found = Zone::new(value);
                                zone = Some(found.map_err(|error| refused(error.to_string()))?);
                            }
                            Some(("weight", value)) => {
                                let found = value.parse().map_err(|_| {
                                    refused(format!("weight is {value:?}, expected a number"))
                                })?;
                                heavy = Some(weight(found)?);
                            }
                            _ => {
                                return Err(refused(format!("{word:?} is not zone=Z or weight=W")));
                            }
                        }
                    }
                    let name = Some(node(1)?);
                    happenings.push(Happening::Join {
                        name,
                        zone,
                        weight: heavy,
                    });
                }
                "drain" => {
                    only(2)?;
                    happenings.push(Happening::Drain(node(1)?));
                }
                "fail" => {
                    only(2)?;
                    happenings.push(Happening::Fail(node(1)?));
                }
                "weight" => {
                    only(3)?;
                    let value = weight(number(2, "the weight")?)?;
                    happenings.push(Happening::Reweigh(node(1)?, value));
                }
                "flap" => {
                    only(3)?;
                    let times = number(2, "the number of times")?;
                    if times == 0 || times as usize * 2 > MAX_STEPS {
                        return Err(refused(format!("{times} times, expected 1 to 50")));
                    }
                    happenings.push(Happening::Flap(node(1)?, times));
                }
                word => return Err(refused(format!("{word:?} is no event"))),
            }
        }
        let flaps = happenings
            .iter()
            .any(|happening| matches!(happening, Happening::Flap(..)));
        if flaps && happenings.len() > 1 {
            return Err(refused("a flap stands alone".into()));
        }
        Ok(Self {
            text: text.trim().to_owned(),
            happenings,
        })
    }
}

/// The nodes after an event, step by step: one step, or two for each flap.
///
/// # Errors
/// [`InputError::Event`] when it names a node that is not there, or takes the last one away.
pub fn after(
    nodes: &Nodes,
    next_handle: &mut u16,
    event: &Event,
) -> Result<Vec<Nodes>, InputError> {
    let refused = |problem: String| InputError::Event {
        text: event.text.clone(),
        problem,
    };
    let find = |nodes: &Nodes, name: &NodeId| {
        nodes
            .iter()
            .position(|node| node.name == *name)
            .ok_or_else(|| refused(format!("no node {name} at this time")))
    };
    let mut current = nodes.clone();
    let mut steps = Vec::new();
    for happening in &event.happenings {
        match happening {
            Happening::Join { name, zone, weight } => {
                let node = Node {
                    handle: Handle(*next_handle),
                    name: name
                        .clone()
                        .unwrap_or_else(|| unused(&current, *next_handle)),
                    zone: zone.clone().unwrap_or_else(|| lightest(&current)),
                    weight: weight.unwrap_or_else(|| usual(&current)),
                };
                if current.iter().any(|other| other.name == node.name) {
                    return Err(refused(format!("node {} is there already", node.name)));
                }
                *next_handle += 1;
                if usize::from(*next_handle) > MAX_MEMBERS {
                    return Err(refused("more than 10,000 nodes".into()));
                }
                current.push(node);
            }
            Happening::Drain(name) | Happening::Fail(name) => {
                let at = find(&current, name)?;
                current.remove(at);
            }
            Happening::Reweigh(name, weight) => {
                let at = find(&current, name)?;
                current[at].weight = *weight;
            }
            Happening::Flap(name, times) => {
                let at = find(&current, name)?;
                let mut without = current.clone();
                without.remove(at);
                for _ in 0..*times {
                    steps.push(without.clone());
                    steps.push(current.clone());
                }
            }
        }
    }
    if steps.is_empty() {
        steps.push(current);
    }
    let nobody = |nodes: &Nodes| nodes.iter().all(|node| node.weight == Weight::ZERO);
    if steps.iter().any(nobody) {
        return Err(refused("no node with weight is left".into()));
    }
    Ok(steps)
}

fn unused(nodes: &Nodes, next: u16) -> NodeId {
    (usize::from(next)..)
        .map(name)
        .find(|name| nodes.iter().all(|node| node.name != *name))
        .expect("numbers do not end")
}

/// The zone with least weight, the first by name among equals.
fn lightest(nodes: &Nodes) -> Zone {
    let mut zones = std::collections::BTreeMap::new();
    for node in nodes {
        *zones.entry(&node.zone).or_insert(0_u64) += u64::from(node.weight.get());
    }
    let lightest = zones.iter().min_by_key(|(_, weight)| **weight);
    lightest.map_or_else(|| zone(0), |(zone, _)| (*zone).clone())
}

/// The weight that most nodes have.
fn usual(nodes: &Nodes) -> Weight {
    let mut weights = std::collections::BTreeMap::new();
    for node in nodes {
        *weights.entry(node.weight).or_insert(0) += 1;
    }
    let usual = weights.iter().max_by_key(|(_, count)| **count);
    usual.map_or(Weight::ZERO, |(weight, _)| *weight)
}
