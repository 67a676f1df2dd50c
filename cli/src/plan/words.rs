//! Changes as words of the command line, and back.

use annulus_proto::v1::{self, planned_change::Change};
use annulus_ring::NodeId;

use crate::exit::{Failure, Result};

const VERBS: [&str; 4] = ["join", "drain", "weight", "replace"];

/// Reads `join n7 drain n1 n2 weight n3=200`. The word after a verb is never a verb, so a node may
/// be named like one.
///
/// # Errors
/// Usage, naming the word.
pub fn parse(words: &[String]) -> Result<Vec<v1::PlannedChange>> {
    let mut changes = Vec::new();
    let mut verb: Option<(&str, bool)> = None;
    for word in words {
        match verb {
            // A verb has at least one node.
            Some((kind, false)) => {
                changes.push(change(kind, word)?);
                verb = Some((kind, true));
            }
            _ if VERBS.contains(&word.as_str()) => verb = Some((word.as_str(), false)),
            Some((kind, true)) => changes.push(change(kind, word)?),
            None => {
                return Err(wrong(format!("{word:?} is no change")));
            }
        }
    }
    match verb {
        Some((kind, false)) => Err(wrong(format!("{kind:?} of which node?"))),
        _ => Ok(changes),
    }
}

fn change(kind: &str, word: &str) -> Result<v1::PlannedChange> {
    let node = |text: &str| -> Result<String> {
        let node: Result<NodeId, _> = text.parse();
        let node = node.map_err(|error| wrong(format!("{kind} {word}: {error}")))?;
        Ok(node.to_string())
    };
    let pair = |example: &str| {
        word.split_once('=')
            .ok_or_else(|| wrong(format!("{kind} {word}: expected {example}")))
    };
    let change = match kind {
        "join" => Change::Join(v1::PlannedJoin {
            node: node(word)?,
            ..v1::PlannedJoin::default()
        }),
        "drain" => Change::Drain(v1::PlannedDrain { node: node(word)? }),
        "weight" => {
            let (name, weight) = pair("NODE=WEIGHT, such as n3=200")?;
            let weight = weight
                .parse()
                .map_err(|_| wrong(format!("weight {word}: {weight:?} is no weight")))?;
            Change::Weight(v1::PlannedWeight {
                node: node(name)?,
                weight,
            })
        }
        _ => {
            let (name, by) = pair("NODE=BY, such as n3=n8")?;
            Change::Replace(v1::PlannedReplace {
                node: node(name)?,
                by: node(by)?,
            })
        }
    };
    Ok(v1::PlannedChange {
        change: Some(change),
    })
}

fn wrong(what: String) -> Failure {
    Failure::usage(
        what,
        "write changes as in `join n7 drain n1 n2 weight n3=200 replace n4=n8`",
    )
}

/// A change as it would be asked for.
#[must_use]
pub fn show(change: &v1::PlannedChange) -> String {
    match &change.change {
        Some(Change::Join(join)) => format!("join {}", join.node),
        Some(Change::Drain(drain)) => format!("drain {}", drain.node),
        Some(Change::Weight(weight)) => format!("weight {}={}", weight.node, weight.weight),
        Some(Change::Replace(replace)) => format!("replace {}={}", replace.node, replace.by),
        // A server newer than this command.
        None => "a change that this command does not know".to_owned(),
    }
}

/// Members that a change lets leave.
#[must_use]
pub fn leaver(change: &v1::PlannedChange) -> Option<&str> {
    match &change.change {
        Some(Change::Drain(drain)) => Some(&drain.node),
        Some(Change::Replace(replace)) => Some(&replace.node),
        Some(Change::Join(_) | Change::Weight(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Kind;

    fn read(line: &str) -> Result<Vec<String>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Ok(parse(&words)?.iter().map(show).collect())
    }

    #[test]
    fn changes_are_read_as_they_are_shown() {
        let line = "join n7 n8 drain n1 weight n3=200 n4=0 replace n5=n9";
        let expected = [
            "join n7",
            "join n8",
            "drain n1",
            "weight n3=200",
            "weight n4=0",
            "replace n5=n9",
        ];
        assert_eq!(read(line).expect("parses"), expected);
        // A node may be named like a verb.
        assert_eq!(
            read("join drain drain join").expect("parses"),
            ["join drain", "drain join"]
        );
    }

    #[test]
    fn what_is_no_change_is_named() {
        for (line, word) in [
            ("n7", "\"n7\" is no change"),
            ("join", "\"join\" of which node?"),
            ("join n7 drain", "\"drain\" of which node?"),
            ("weight n3", "expected NODE=WEIGHT"),
            ("weight n3=much", "\"much\" is no weight"),
            ("replace n3", "expected NODE=BY"),
            ("join -x", "join -x"),
        ] {
            let failure = read(line).expect_err(line);
            assert_eq!(failure.kind(), Kind::Usage);
            assert!(failure.to_string().contains(word), "{failure}");
        }
    }
}
