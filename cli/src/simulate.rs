//! `annulus simulate` and `annulus compare`: placement offline, without a cluster.
//!
//! Everything is computed in `annulus-simulate`; here are the terminal and the exit codes.

use std::{
    cell::RefCell,
    io::{self, IsTerminal},
    path::Path,
    time::Duration,
};

use annulus_simulate::{
    InputError, claims, compare, hashes,
    keys::Source,
    progress::Progress,
    report::{self, Extras},
    scenario::Options,
    table::{self, Report},
    text, trace,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    args::{
        Global, Output,
        placement::{CompareArgs, SimulateArgs, SimulateCommand, SimulateRun, TraceArgs},
    },
    exit::{Failure, Result},
    render,
};

/// Runs `annulus simulate`.
pub fn run(global: &Global, args: &SimulateArgs) -> Result {
    match &args.command {
        Some(SimulateCommand::GenerateTrace(args)) => generate(args),
        None => simulate(global, &args.run),
    }
}

fn simulate(global: &Global, args: &SimulateRun) -> Result {
    let file = match &args.config {
        Some(path) => Options::read(path)?,
        None => Options::default(),
    };
    let plan = args.options().or(file).plan()?;
    let extras = Extras {
        sweep: !args.no_sweep,
        timing: !args.out.no_timing,
    };
    let report = report::simulate(&plan, extras, &Bar::default())?;
    finish(global, &report, args.out.charts.as_deref())
}

/// Runs `annulus compare`.
pub fn compare(global: &Global, args: &CompareArgs) -> Result {
    let charts = args.out.charts.as_deref();
    let timing = !args.out.no_timing;
    let rings = |usual: u32| match args.rings.unwrap_or(usual) {
        rings @ 1..=100_000 => Ok(rings),
        rings => Err(Failure::usage(
            format!("--rings is {rings}, expected 1 to 100,000"),
            "correct --rings",
        )),
    };
    if args.claims {
        let keys = args.source.key_count.unwrap_or(500_000);
        let report = claims::check(keys, rings(1_000)?, &Bar::default())?;
        return finish(global, &report, charts);
    }
    let plan = args.options().plan()?;
    if args.hashes {
        let (nodes, source) = (&plan.nodes, &plan.source);
        let report = hashes::compare(nodes, source, rings(100)?, timing, &Bar::default())?;
        return finish(global, &report, charts);
    }
    let contest = compare::Contest {
        nodes: plan.nodes,
        hash: plan.settings.hash,
        seed: plan.settings.seed,
        slot_bits: args.slot_bits.unwrap_or(14),
        source: plan.source,
        timing,
    };
    let report = compare::compare(&contest, &Bar::default())?;
    finish(global, &report, charts)
}

fn generate(args: &TraceArgs) -> Result {
    let options = Options {
        key_count: Some(args.lines),
        ..args.keys.options()
    };
    let Source::Synthetic(synthetic) = options.source()? else {
        unreachable!("options without a file name synthetic keys")
    };
    let totals = trace::generate(&synthetic, &args.out, &Bar::default())?;
    eprintln!(
        "wrote {}: {} keys, {}, {} requests",
        args.out.display(),
        text::grouped(totals.keys),
        text::bytes(totals.bytes as f64),
        text::grouped(totals.requests)
    );
    Ok(())
}

fn finish(global: &Global, report: &impl Report, charts: Option<&Path>) -> Result {
    let mut bytes = Vec::new();
    match global.output {
        Output::Table => table::write_text(&mut bytes, &report.tables())?,
        Output::Csv => table::write_csv(&mut bytes, report)?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut bytes, report).map_err(io::Error::from)?;
            bytes.push(b'\n');
        }
    }
    render::write_all(&bytes)?;
    if let Some(directory) = charts {
        let names = report.charts(directory)?;
        if names.is_empty() {
            eprintln!("this report has no charts");
        }
        for name in names {
            eprintln!("drew {name}");
        }
    }
    Ok(())
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        // Whatever is wrong stands on the command line or in a file that it names.
        Self::usage(&error, error.next())
    }
}

/// A bar on a terminal, nothing elsewhere.
#[derive(Default)]
struct Bar(RefCell<Option<ProgressBar>>);

impl Progress for Bar {
    fn start(&self, what: &str, total: Option<u64>) {
        if !io::stderr().is_terminal() {
            return;
        }
        let template = "{spinner} {msg} [{bar:30}] {percent} % {eta}";
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        bar.set_style(
            ProgressStyle::with_template(template)
                .expect("the template is well-formed")
                .progress_chars("=> "),
        );
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        if let Some(before) = self.0.replace(Some(bar)) {
            before.finish_and_clear();
        }
    }

    fn at(&self, done: u64) {
        if let Some(bar) = &*self.0.borrow() {
            bar.set_position(done);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{
        args::{Cli, Command},
        exit::Kind,
    };

    fn run_line(line: &[&str]) -> Result {
        let cli = Cli::try_parse_from(line).expect("it parses");
        match cli.command {
            Command::Simulate(args) => run(&cli.global, &args),
            Command::Compare(args) => compare(&cli.global, &args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bad_input_is_a_usage_error_that_names_the_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let trace = directory.path().join("trace.csv");
        std::fs::write(&trace, "a,1,1\nb,one,1\n").expect("a file");
        let trace = trace.to_str().expect("text");
        for command in ["simulate", "compare"] {
            let failure = run_line(&["annulus", command, "--trace", trace]).expect_err("no number");
            assert_eq!(failure.kind(), Kind::Usage);
            let text = failure.to_string();
            assert!(
                text.contains("line 2: bytes is \"one\""),
                "{command}: {text}"
            );
            assert!(
                text.contains("next: write digits alone"),
                "{command}: {text}"
            );
        }
    }

    #[test]
    fn a_generated_trace_is_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace.tsv.gz");
        let out = path.to_str().expect("text");
        let generate = ["annulus", "simulate", "generate-trace", "--lines", "500"];
        run_line(&[&generate[..], &["--out", out, "--zipf", "1.1"]].concat()).expect("written");
        let options = Options {
            trace: Some(path),
            ..Options::default()
        };
        let source = options.source().expect("a trace");
        let totals = source
            .visit(&annulus_simulate::progress::Silent, |_| {})
            .expect("read");
        assert_eq!((totals.keys, totals.requests), (500, 5_000));
    }
}
