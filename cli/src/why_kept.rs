//! `annulus why-kept`: what the copies of ranges that nodes gave up still wait for.

use std::io::{self, Write};

use annulus_proto::v1;
use annulus_ring::NodeId;
use serde::Serialize;

use crate::{
    args::{Global, explain::WhyKeptArgs},
    connect::Admin,
    exit::Result,
    render::{self, Render, Wide, span},
};

/// Runs `annulus why-kept`.
pub async fn run(global: &Global, args: &WhyKeptArgs) -> Result {
    let (node, slot) = asked(args);
    let admin = Admin::new(global)?;
    let copies = admin.why_kept(&args.ring, node, slot).await?;
    let kept = KeptList {
        ring: args.ring.to_string(),
        copies: copies.into_iter().map(KeptView::from).collect(),
    };
    render::print(global.output, &kept)
}

/// A number is a range, anything else a node.
fn asked(args: &WhyKeptArgs) -> (Option<&NodeId>, Option<u32>) {
    match &args.what {
        None => (args.node.as_ref(), None),
        Some(what) => match what.as_str().parse() {
            Ok(slot) => (None, Some(slot)),
            Err(_) => (Some(what), None),
        },
    }
}

#[derive(Debug, Serialize)]
struct KeptList {
    ring: String,
    copies: Vec<KeptView>,
}

#[derive(Debug, Serialize)]
struct KeptView {
    node: String,
    /// The transition that ended with them.
    session: Wide,
    since_epoch: Wide,
    /// In ms of ring time.
    age_ms: Wide,
    /// In ms of ring time; 0 = over.
    grace_left_ms: Wide,
    kept: u32,
    /// May be deleted, and are not yet reported deleted.
    permitted: u32,
    waits: Vec<WaitView>,
}

#[derive(Debug, Serialize)]
struct WaitView {
    name: String,
    words: String,
    ranges: u32,
}

impl From<v1::KeptCopies> for KeptView {
    fn from(kept: v1::KeptCopies) -> Self {
        let wait = |wait: v1::KeptFor| WaitView {
            name: wait.name,
            words: wait.words,
            ranges: wait.ranges,
        };
        Self {
            node: kept.node,
            session: kept.session.into(),
            since_epoch: kept.since_epoch.into(),
            age_ms: kept.age_ms.into(),
            grace_left_ms: kept.grace_left_ms.into(),
            kept: kept.kept,
            permitted: kept.permitted,
            waits: kept.waits.into_iter().map(wait).collect(),
        }
    }
}

impl Render for KeptList {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.copies.is_empty() {
            return writeln!(out, "ring {}: no such copies are kept", self.ring);
        }
        for kept in &self.copies {
            let KeptView {
                node,
                session,
                since_epoch,
                ..
            } = kept;
            writeln!(
                out,
                "{node} keeps {} copies since transition {session} ended with epoch {since_epoch}, {} of \
                 ring time ago",
                kept.kept + kept.permitted,
                span(kept.age_ms.0)
            )?;
            for wait in &kept.waits {
                writeln!(out, "  {:>6}  {}", wait.ranges, wait.words)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn read(line: &str) -> (Option<String>, Option<u32>) {
        let words = ["annulus", "why-kept", "users"].into_iter();
        let cli = Cli::try_parse_from(words.chain(line.split_whitespace())).expect("parses");
        let Command::WhyKept(args) = cli.command else {
            panic!("why-kept")
        };
        let (node, slot) = asked(&args);
        (node.map(ToString::to_string), slot)
    }

    #[test]
    fn a_number_is_a_range_and_anything_else_a_node() {
        assert_eq!(read(""), (None, None));
        assert_eq!(read("17"), (None, Some(17)));
        assert_eq!(read("n17"), (Some("n17".to_owned()), None));
        assert_eq!(read("--node 17"), (Some("17".to_owned()), None));
    }

    #[test]
    fn what_copies_wait_for_is_told_with_how_many_do() {
        let kept = KeptView::from(v1::KeptCopies {
            node: "n2".to_owned(),
            session: 4,
            since_epoch: 9,
            age_ms: 5_000,
            kept: 12,
            permitted: 1,
            waits: vec![v1::KeptFor {
                name: "Grace".to_owned(),
                words: "their grace has 3 s of ring time left".to_owned(),
                ranges: 12,
            }],
            ..v1::KeptCopies::default()
        });
        let mut out = Vec::new();
        let list = KeptList {
            ring: "users".to_owned(),
            copies: vec![kept],
        };
        list.table(&mut out).expect("memory");
        let told = String::from_utf8(out).expect("text");
        assert_eq!(
            told,
            "n2 keeps 13 copies since transition 4 ended with epoch 9, 5.0 s of ring time ago\n      \
             12  their grace has 3 s of ring time left\n"
        );
    }
}
