//! Bytes of snapshots and deltas, and the time from bytes to a compiled table.

use std::sync::Arc;

use annulus_proto::{
    delta::{self, Held},
    snapshot::{Expect, encode, verify_and_decode},
};
use annulus_ring::{
    Lookup, Snapshot, Step, Transition, TransitionId, place::assign, placement::diff,
};
use prost::Message as _;

use crate::{
    place::founded,
    report::{Goal, Report},
    setup::{candidates, equal, snapshot},
    timing::call_ms,
};

/// The epochs of a join: before, prepared, and settled.
fn join(nodes: u16, bits: u8) -> [Snapshot; 3] {
    let specs = equal(3, nodes);
    let table = founded(bits, &specs);
    let mut joined = specs.clone();
    joined.push((nodes, 0, 1));
    let grown = assign(&table, &candidates(&joined)).expect("nodes have weight");
    let target = diff(&table, &grown);
    let before = snapshot(table.clone(), &specs, 42);
    let mut prepared = snapshot(table, &joined, 42);
    prepared.epoch = before.epoch.next();
    prepared.previous_checksum = encode(&before).checksum;
    prepared.transition = Some(Transition {
        replication: None,
        id: TransitionId(1),
        step: Step::Prepared,
        target,
    });
    let mut settled = snapshot(grown, &joined, 42);
    settled.epoch = prepared.epoch.next();
    settled.previous_checksum = encode(&prepared).checksum;
    [before, prepared, settled]
}

fn expect(snapshot: &Snapshot) -> Expect<'_> {
    Expect {
        cluster_id: None,
        ring: &snapshot.ring,
        held: None,
    }
}

pub fn bytes(report: &mut Report, _quick: bool) {
    let epochs = join(120, 14);
    let encoded = epochs.each_ref().map(encode);
    let messages = encoded.each_ref().map(|encoded| encoded.message());
    // One node of each of three zones of 40, in any order.
    let entropy = (f64::from(40 * 40 * 40 * 6).log2() * f64::from(1 << 14) / 8.0).ceil();
    let nodes: usize = encoded[0].sections[..=120]
        .iter()
        .map(|section| section.len())
        .sum();
    let total = encoded[0].len_bytes();
    report.row(
        "bytes: snapshot 120 x 2^14 / (entropy of its map + node table)",
        total as f64 / (entropy + nodes as f64),
        "x",
        Goal::AtMost(1.3),
        format!("{total} bytes, entropy {entropy:.0}, node table {nodes}"),
    );
    let held = |at: usize| Held {
        bytes: &messages[at],
        snapshot: &epochs[at],
    };
    for (from, to, what) in [(0, 1, "prepared"), (1, 2, "settled"), (0, 2, "over both")] {
        let delta = delta::between(held(from), held(to)).expect("a delta is small");
        report.row(
            format!("bytes: delta of a join at 120 x 2^14, {what}"),
            delta.encoded_len() as f64,
            "bytes",
            Goal::AtMost(2_048.0),
            "",
        );
    }
}

pub fn compile(report: &mut Report, quick: bool) {
    let passes = if quick { 11 } else { 51 };
    for (nodes, bits, full_ms, delta_ms) in [(120, 14, 3.0, 0.6), (1_000, 16, 30.0, 5.0)] {
        let epochs = join(nodes, bits);
        let messages = epochs.each_ref().map(|epoch| encode(epoch).message());
        let decode = || verify_and_decode(&messages[0], expect(&epochs[0])).expect("as encoded");
        let took = call_ms(passes, || {
            Lookup::compile(Arc::new(decode())).expect("it makes sense")
        });
        let alone = Arc::new(epochs[0].clone());
        let table = call_ms(passes, || {
            Lookup::compile(Arc::clone(&alone)).expect("it makes sense")
        });
        report.row(
            format!("compile: snapshot {nodes} x 2^{bits}, bytes to table"),
            took,
            "ms",
            Goal::AtMost(full_ms),
            format!("verify and decode included; the table alone {table:.3} ms"),
        );
        for (from, to, what) in [(0, 1, "prepared"), (1, 2, "settled"), (0, 2, "over both")] {
            let held = |at: usize| Held {
                bytes: &messages[at],
                snapshot: &epochs[at],
            };
            let delta = delta::between(held(from), held(to)).expect("a delta is small");
            let before = Lookup::compile(Arc::new(epochs[from].clone())).expect("it makes sense");
            let after = Arc::new(epochs[to].clone());
            let apply =
                || delta::apply(held(from), &delta, expect(&epochs[to])).expect("it leads there");
            assert_eq!(apply().1, epochs[to], "the delta leads to the snapshot");
            let took = call_ms(passes, || {
                before.updated(Arc::new(apply().1)).expect("it makes sense")
            });
            let table = call_ms(passes, || {
                before.updated(Arc::clone(&after)).expect("it makes sense")
            });
            report.row(
                format!("compile: delta of a join {nodes} x 2^{bits}, {what}"),
                took,
                "ms",
                Goal::AtMost(delta_ms),
                format!("verify and decode included; the table alone {table:.3} ms"),
            );
        }
    }
}
