//! `cargo run --release -p annulus-bench -- ring`: every figure that the ring promises; `-- moving`:
//! what clients feel of a hand-over and of a join, on real processes.
//!
//! One table: what was measured, the goal, their ratio, and MET or MISSED. Times are compared
//! within one run, by interleaved repetitions and their medians, as machines are noisy.

// The measuring side may panic: there is nobody to answer to.
#![allow(missing_docs)]

mod bound;
mod bytes;
mod lookup;
mod moving;
mod peers;
mod place;
mod report;
mod setup;
mod timing;

use report::Report;

const USAGE: &str = "usage: annulus-bench ring|moving [--quick] [-o json|table] [FILTER...]
  FILTER (of ring) keeps the groups whose name contains it: lookup batch swap balance movement churn
  compile plan bytes";

/// Measures one group of rows; quickly, if asked.
type Group = fn(&mut Report, bool);

fn main() {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    if std::path::Path::new(&name).ends_with(moving::ANNULUS) {
        std::process::exit(moving::as_annulus());
    }
    let is_ring = match arguments.next().as_deref() {
        Some("ring") => true,
        Some("moving") => false,
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    };
    let (mut quick, mut json, mut filter) = (false, false, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "-o" => match arguments.next().as_deref() {
                Some("json") => json = true,
                Some("table") => json = false,
                _ => {
                    eprintln!("{USAGE}");
                    std::process::exit(2);
                }
            },
            flag if flag.starts_with('-') => {
                eprintln!("{USAGE}");
                std::process::exit(2);
            }
            name => filter.push(name.to_owned()),
        }
    }
    let mut report = Report::new(json, filter);
    if !is_ring {
        moving::measure(&mut report, quick);
        report.finish();
        return;
    }
    let groups: [(&str, Group); 9] = [
        ("lookup", lookup::lookup),
        ("batch", lookup::batch),
        ("swap", lookup::swaps),
        ("balance", place::balance),
        ("movement", place::movement_of_changes),
        ("churn", place::churn),
        ("compile", bytes::compile),
        ("plan", place::planning),
        ("bytes", bytes::bytes),
    ];
    for (name, run) in groups {
        if report.wants(name) {
            run(&mut report, quick);
        }
    }
    report.finish();
}
