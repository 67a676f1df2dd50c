//! Waiting for a change: a bar on a terminal, plain lines elsewhere.
//!
//! Waiting changes nothing: whoever stops waiting leaves the change running.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use annulus_ring::RingName;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    args::{Global, Output},
    connect::Admin,
    exit::{Failure, Result},
    views::{ChangeView, RingView},
};

/// How often the control plane is asked.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How often a plain line repeats what moved only a little.
const PLAIN_EVERY: Duration = Duration::from_secs(2);

/// Waits until the change has ended; Ctrl-C ends only the waiting.
pub async fn wait(global: &Global, admin: &Admin, ring: &RingName, change: u64) -> Result {
    tokio::select! {
        ended = until_ended(admin, ring, change) => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(Failure::unknown(
                format!("stopped waiting; change {change} of ring {ring} goes on"),
                how_to_go_on(global, ring, change),
            ))
        }
    }
}

/// How to look at a running change, and how to withdraw it.
pub fn how_to_go_on(global: &Global, ring: &RingName, change: u64) -> String {
    let endpoints = global.endpoints.join(",");
    let with = if endpoints == crate::args::DEFAULT_ENDPOINTS {
        String::new()
    } else {
        format!(" --endpoints {endpoints}")
    };
    format!(
        "look with `annulus status{with}`, withdraw it with `annulus node abort {ring} {change}{with}`"
    )
}

/// Waits until the conversion that `begun` began took effect, in the epoch that is answered.
pub async fn wait_until_converted(admin: &Admin, ring: &RingName, begun: u64) -> Result<u64> {
    let mut every = tokio::time::interval(ASK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // No answer is no end: the next server may know.
        let Ok(status) = admin.ring_quietly(ring).await else {
            continue;
        };
        if status.converted_epoch.0 > begun {
            return Ok(status.converted_epoch.0);
        }
        if status.converting_since_epoch.0 != begun {
            return Err(Failure::failed(
                "a member did not stop serving in time, so the conversion was given up and all is \
                 as before",
                "look at the nodes with `annulus status`, and ask for it again",
            ));
        }
    }
}

async fn until_ended(admin: &Admin, ring: &RingName, change: u64) -> Result {
    let mut meter = Meter::new(change);
    let mut every = tokio::time::interval(ASK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // No answer is no end: the change does not need us, and the next server may know.
        let status = match admin.ring_quietly(ring).await {
            Ok(status) => status,
            Err(error) => {
                meter.no_answer(&error.to_string());
                continue;
            }
        };
        let Some(view) = status.change(change) else {
            return Err(Failure::failed(
                format!("change {change} of ring {ring} is no longer listed"),
                format!("`annulus ring show {ring}` lists the last changes"),
            ));
        };
        if let Some(end) = ended(view, ring) {
            meter.finish();
            return end;
        }
        meter.show(view, &status);
    }
}

fn ended(change: &ChangeView, ring: &RingName) -> Option<Result> {
    let ChangeView {
        id, state, reason, ..
    } = change;
    let sentence = change.sentence();
    match *state {
        "done" => Some(Ok(())),
        "aborted" => Some(Err(Failure::failed(
            format!("change {id}, {sentence}, was aborted: the lists are as before"),
            format!("ask for it again; `annulus ring show {ring}` lists the last changes"),
        ))),
        "refused" => Some(Err(Failure::refused(
            format!("change {id}, {sentence}: {reason}"),
            "it passed when it was queued; what was done before it made it impossible",
        ))),
        _ => None,
    }
}

struct Meter {
    bar: Option<ProgressBar>,
    change: u64,
    last: Option<(Instant, String)>,
}

impl Meter {
    fn new(change: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            bar.set_style(
                ProgressStyle::with_template("{spinner} {prefix} [{bar:30}] {pos}/{len}\n  {msg}")
                    .expect("the template is well-formed")
                    .progress_chars("=> "),
            );
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            bar,
            change,
            last: None,
        }
    }

    fn show(&mut self, change: &ChangeView, ring: &RingView) {
        let prefix = change.sentence();
        let moving = ring
            .transition
            .as_ref()
            .filter(|_| change.state == "running");
        let Some(transition) = moving else {
            self.line(&prefix, (0, 0), change.state.to_owned());
            return;
        };
        let mut message = format!("step {} {}", transition.step, transition.step_name);
        if let Some(sentence) = transition.waiting_for.first() {
            message.push_str(&format!("; waiting for {sentence}"));
        }
        let copies = (transition.copied.into(), transition.copies.into());
        self.line(&prefix, copies, message);
    }

    fn no_answer(&mut self, why: &str) {
        let first = why.lines().next().unwrap_or_default().to_owned();
        self.line(
            &format!("change {}", self.change),
            (0, 0),
            format!("no answer yet: {first}"),
        );
    }

    fn line(&mut self, prefix: &str, (done, all): (u64, u64), message: String) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(prefix.to_owned());
            bar.set_length(all);
            bar.set_position(done);
            // What is waited for and what would help are the point of it: no line is cut off.
            bar.set_message(message.replace("; ", "\n  "));
            return;
        }
        let news = self.last.as_ref().is_none_or(|(at, last)| {
            *last != message && (at.elapsed() >= PLAIN_EVERY || step_of(last) != step_of(&message))
        });
        if news {
            eprintln!("{prefix}: {message}; {done}/{all} copies");
            self.last = Some((Instant::now(), message));
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn step_of(message: &str) -> &str {
    message.split(';').next().unwrap_or_default()
}

/// Says on standard error, unless a program listens, what was accepted.
pub fn say_accepted(global: &Global, sentence: &str, notes: &[String]) {
    if global.output == Output::Table {
        eprintln!("{sentence}");
    }
    for note in notes {
        eprintln!("note: {note}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{exit::Kind, render::Wide};

    fn change(state: &'static str) -> ChangeView {
        let (kind, node, reason) = ("join".to_owned(), "n7".to_owned(), "why".to_owned());
        ChangeView {
            id: Wide(3),
            kind,
            node,
            about: String::new(),
            state,
            reason,
        }
    }

    #[test]
    fn the_end_of_a_change_decides_the_exit_code() {
        let users: RingName = "users".parse().expect("a name");
        assert!(ended(&change("queued"), &users).is_none());
        assert!(ended(&change("running"), &users).is_none());
        assert!(matches!(ended(&change("done"), &users), Some(Ok(()))));
        let kind = |state| {
            ended(&change(state), &users)
                .expect("ended")
                .expect_err("bad")
                .kind()
        };
        assert_eq!(kind("aborted"), Kind::Failed);
        assert_eq!(kind("refused"), Kind::Refused);
    }
}
