// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Prints the course of a recording: that it has started, its progress, and the summary.

use crate::messages;
use crate::text::info_text::size;
use crate::text::ledger_text;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use klogger_os::files::discards;
use klogger_recorder::destination::is_stdout;
use klogger_recorder::{Message, Outcome, Progress};
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Prints the course of one recording, in the chosen style.
pub struct Course {
    bar: ProgressBar,
    /// No progress, no summary.
    quiet: bool,
    log: PathBuf,
}

impl Course {
    pub fn new(quiet: bool, log: PathBuf) -> Course {
        Course { bar: progress_bar(quiet || messages::is_json()), quiet, log }
    }

    pub fn hear(&self, message: &Message) {
        match message {
            Message::Started { command } if messages::is_json() => messages::send(&json!({
                "message": "started",
                "log": messages::absolute(&self.log),
                "pid": std::process::id(),
                "command_pid": command,
            })),
            Message::Started { .. } => {}
            Message::Progress(p) => self.progress(p),
            Message::Note(note) => self.bar.suspend(|| messages::note(note)),
        }
    }

    fn progress(&self, p: &Progress) {
        if messages::is_json() && !self.quiet {
            messages::send(&json!({
                "message": "progress",
                "elapsed_ns": nanoseconds(p.elapsed),
                "events": p.events,
                "lost": p.lost,
                "bytes": p.bytes,
            }));
        }
        // Without indicatif's own thread: it would be created before signals are blocked, and
        // receive them.
        self.bar.set_message(progress_text(p));
        self.bar.tick();
    }

    pub fn end(&self, outcome: &Outcome) {
        self.bar.finish_and_clear();
        if messages::is_json() {
            outcome.notes.iter().for_each(|note| messages::note(note));
        }
        match (self.quiet, messages::is_json()) {
            (true, _) => {}
            (false, true) => {
                let more = json!({ "elapsed_ns": nanoseconds(outcome.elapsed) });
                messages::summary(&self.log, &outcome.summary, &outcome.ledger, more);
            }
            (false, false) => messages::print(&self.summary(outcome)),
        }
    }

    /// The summary, as one paragraph.
    fn summary(&self, outcome: &Outcome) -> String {
        let s = &outcome.summary;
        let (seconds, log) = (outcome.elapsed.as_secs_f64(), self.log.display());
        let to_stdout = is_stdout(&self.log);
        let place = if to_stdout { "standard output".into() } else { log.to_string() };
        let mut text = format!(
            "klogger: {} events in {seconds:.2} s ({} /s), {} in {place}; {}.\n",
            HumanCount(s.events),
            HumanCount((s.events as f64 / seconds.max(0.001)) as u64),
            size(s.bytes),
            messages::losses(&outcome.ledger)
        );
        text += &ledger_text::summary(&outcome.ledger);
        for note in &outcome.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        let is_kept = !to_stdout && !self.log.metadata().is_ok_and(|found| discards(&found));
        match is_kept {
            true => {
                text + &format!(
                    "See it with: klogger report {log}   (or klogger cat, klogger info)"
                )
            }
            false => text.trim_end().into(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn progress_bar(hidden: bool) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if hidden {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn progress_text(p: &Progress) -> String {
    let seconds = p.elapsed.as_secs_f64();
    let rate = p.events as f64 / seconds.max(0.001);
    let lost =
        if p.lost == 0 { "none lost".to_string() } else { format!("{} LOST", HumanCount(p.lost)) };
    format!(
        "{seconds:.1} s  {} events ({} /s)  {}  {lost}",
        HumanCount(p.events),
        HumanCount(rate as u64),
        size(p.bytes)
    )
}
