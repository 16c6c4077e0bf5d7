// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a running recording says of itself, and what it does for those who read its log.

use super::Session;
use crate::Progress;
use crate::destination::is_stdout;
use crate::pipeline::Pipeline;
use crate::socket::{Answer, FOLLOWED, Status};
use klogger_engines::request::{Request, Target};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time between two samples of a rate, and how many are kept: rings are drained once a second
/// at least, so that a rate is that of some seconds.
const SAMPLE: Duration = Duration::from_millis(500);
const SAMPLES: usize = 8;
/// The name of the built-in schema.
const BUILTIN: &str = "klogger";

/// How fast events come.
#[derive(Default)]
pub struct Rate(VecDeque<(Duration, u64)>);

impl Rate {
    pub fn see(&mut self, progress: &Progress) {
        let due = self.0.back().is_none_or(|(at, _)| progress.elapsed >= *at + SAMPLE);
        if due {
            self.0.push_back((progress.elapsed, progress.events));
        }
        if self.0.len() > SAMPLES {
            self.0.pop_front();
        }
    }

    /// Events a second since the oldest sample, if that is long ago enough.
    fn per_second(&self, now: &Progress) -> Option<f64> {
        let (at, events) = self.0.front()?;
        let time = now.elapsed.checked_sub(*at).filter(|time| *time >= 2 * SAMPLE)?;
        Some(now.events.saturating_sub(*events) as f64 / time.as_secs_f64())
    }
}

impl Session {
    /// What the recording is, and how far it is.
    pub(super) fn status(&self, pipeline: &Pipeline, elapsed: Duration) -> Answer {
        let request = &self.options.request;
        let progress = pipeline.progress(elapsed);
        let engines: Vec<&str> = self.engines.iter().map(|e| e.info().name).collect();
        let output = &self.options.output;
        let path = std::path::absolute(output).unwrap_or_else(|_| output.clone());
        let file = if is_stdout(output) { "-".into() } else { path.to_string_lossy().into_owned() };
        let status = Status {
            pid: std::process::id(),
            klogger: env!("CARGO_PKG_VERSION").into(),
            engine: engines.join("+"),
            schemata: schemata(request),
            events: self
                .layouts
                .iter()
                .filter(|e| e.schema != BUILTIN)
                .map(|e| e.name.clone())
                .collect(),
            scope: self.scope_word().into(),
            pids: match &request.target {
                Target::Processes(pids) => pids.clone(),
                Target::All | Target::Command => Vec::new(),
            },
            command: request.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
            file,
            overwrite: request.overwrite,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            logged: progress.events,
            lost: progress.lost,
            bytes: progress.bytes,
            per_second: self.rate.borrow().per_second(&progress),
        };
        Answer { status: Some(Box::new(status)), ..Answer::default() }
    }

    /// Somebody follows the log from now on for a while.
    pub(super) fn be_followed(&self, pipeline: &Pipeline) -> Answer {
        if self.options.request.overwrite {
            let what = "a flight recorder writes its events when it dumps them";
            return Answer::refuse(what, None);
        }
        self.followed_until.set(Some(Instant::now() + FOLLOWED));
        pipeline.be_followed(true);
        Answer::default()
    }

    /// Ends what [`Session::be_followed`] began, if it is over.
    pub(super) fn look_for_followers(&self, pipeline: &Pipeline) {
        if self.followed_until.get().is_some_and(|until| until < Instant::now()) {
            self.followed_until.set(None);
            // Those who read a stream follow it to its end.
            if !is_stdout(&self.options.output) {
                pipeline.be_followed(false);
            }
        }
    }
}

fn schemata(request: &Request) -> Vec<String> {
    let named = request.numbered().map(|(unit, _)| unit.schema.name.clone());
    let mut all: Vec<String> = named.filter(|name| name != BUILTIN).collect();
    if request.programs {
        all.push("programs".into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let at = |ms: u64, events: u64| Progress {
            elapsed: Duration::from_millis(ms),
            events,
            ..Progress::default()
        };
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(&at(0, 0)), None);
        // A burst at the beginning, then 1,000 a second.
        rate.see(&at(0, 0));
        assert_eq!(rate.per_second(&at(500, 7)), None, "too short");
        for ms in (100..=10_000).step_by(100) {
            rate.see(&at(ms, 1_000_000 + ms));
        }
        assert_eq!(rate.per_second(&at(10_000, 1_010_000)), Some(1000.0));
        assert!(rate.0.len() <= SAMPLES);
    }
}
