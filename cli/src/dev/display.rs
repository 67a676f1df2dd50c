//! What `annulus dev` shows while it runs: bars on a terminal, plain lines elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::render::grouped;

/// How often plain lines repeat what has not changed in kind.
const PLAIN_EVERY: Duration = Duration::from_secs(2);

/// The run at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Nodes by state, as a sentence.
    pub nodes: String,
    /// Epoch of the ring, if known.
    pub epoch: u64,
    /// Step of the transition, with its number; empty if none runs.
    pub step: String,
    /// Copies made and to be made.
    pub copied: (u64, u64),
    /// Copies compared and found equal.
    pub verified: u64,
    /// Reads, writes and deletes of the last second.
    pub ops_per_s: u64,
    /// Acknowledged writes that a read could not find.
    pub lost: u64,
    /// Answers that no order of the writes explains.
    pub wrong: u64,
}

/// Shows a run on standard error.
pub struct Display {
    bars: Option<Bars>,
    start: Instant,
    last: Option<(Instant, Picture)>,
}

struct Bars {
    all: MultiProgress,
    nodes: ProgressBar,
    copies: ProgressBar,
    load: ProgressBar,
    verdict: ProgressBar,
}

impl Display {
    /// Bars if standard error is a terminal, else lines.
    pub fn new() -> Self {
        let bars = std::io::stderr().is_terminal().then(Bars::new);
        Self {
            bars,
            start: Instant::now(),
            last: None,
        }
    }

    /// One line of the story, with the time since the start.
    pub fn say(&self, line: impl AsRef<str>) {
        let line = format!(
            "{:6.1} s  {}",
            self.start.elapsed().as_secs_f64(),
            line.as_ref()
        );
        match &self.bars {
            // An error here means that the terminal is gone; the run's exit code still counts.
            Some(bars) => bars.all.println(line).unwrap_or_default(),
            None => eprintln!("{line}"),
        }
    }

    /// Shows the run as it is now.
    pub fn show(&mut self, picture: Picture) {
        if let Some(bars) = &self.bars {
            bars.show(&picture);
            return;
        }
        let due = self.last.as_ref().is_none_or(|(at, last)| {
            last.step != picture.step
                || (last.lost, last.wrong) != (picture.lost, picture.wrong)
                || at.elapsed() >= PLAIN_EVERY
        });
        if due {
            self.say(plain(&picture));
            self.last = Some((Instant::now(), picture));
        }
    }

    /// Takes the bars away; what was said stays.
    pub fn close(&mut self) {
        if let Some(bars) = self.bars.take() {
            bars.all.clear().unwrap_or_default();
        }
    }
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let line = |prefix: &'static str| {
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(
                ProgressStyle::with_template("{prefix:>8}  {wide_msg}")
                    .expect("the template is well-formed"),
            );
            bar.set_prefix(prefix);
            bar
        };
        let nodes = line("nodes");
        let copies = all.add(ProgressBar::new(0));
        copies.set_style(
            ProgressStyle::with_template("{prefix:>8}  [{bar:40}] {msg}")
                .expect("the template is well-formed")
                .progress_chars("=> "),
        );
        copies.set_prefix("copies");
        let (load, verdict) = (line("load"), line("verdict"));
        Self {
            all,
            nodes,
            copies,
            load,
            verdict,
        }
    }

    fn show(&self, picture: &Picture) {
        self.nodes
            .set_message(format!("epoch {}  {}", picture.epoch, picture.nodes));
        let (copied, copies) = picture.copied;
        self.copies.set_length(copies.max(1));
        self.copies.set_position(copied);
        self.copies.set_message(match picture.step.as_str() {
            "" => String::new(),
            step => format!("{copied}/{copies}, {} verified; {step}", picture.verified),
        });
        self.load
            .set_message(format!("{} operations/s", grouped(picture.ops_per_s)));
        self.verdict.set_message(verdict(picture));
    }
}

fn verdict(picture: &Picture) -> String {
    format!(
        "acknowledged writes lost {}, wrong reads {}",
        picture.lost, picture.wrong
    )
}

fn plain(picture: &Picture) -> String {
    let mut line = format!("epoch {}  {}", picture.epoch, picture.nodes);
    if !picture.step.is_empty() {
        let (copied, copies) = picture.copied;
        let (step, verified) = (&picture.step, picture.verified);
        line.push_str(&format!(
            "  {step}: copied {copied}/{copies}, verified {verified}"
        ));
    }
    line.push_str(&format!(
        "  {} ops/s  {}",
        grouped(picture.ops_per_s),
        verdict(picture)
    ));
    line
}
