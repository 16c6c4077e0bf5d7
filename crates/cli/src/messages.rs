// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Messages on standard error: text for people, or JSON for programs, one object per line.
//! `--messages` chooses before the first message. `docs/messages.md` describes the objects.

use crate::diagnostics;
use crate::failure::Failure;
use crate::terminal;
use crate::width::fitted;
use indicatif::HumanCount;
use klogger_log::ledger::Ledger;
use klogger_log::text::{escaped, escaped_lines};
use klogger_log::writer::Summary;
use klogger_os::missed::{self, Missed};
use klogger_schema::include::Includes;
use klogger_schema::{Diagnostic, Severity};
use klogger_symbolize::Fetching;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `--messages`
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Style {
    Text,
    Json,
}

/// Whether messages are JSON: from [`Style::choose`] to the end of the process.
static JSON: AtomicBool = AtomicBool::new(false);

impl Style {
    /// Sets the style of all further messages.
    pub fn choose(self) -> Result<(), Failure> {
        if self == Style::Json {
            JSON.store(true, Ordering::Relaxed);
            survive_closed_pipes()?;
        }
        Ok(())
    }
}

/// When nobody reads the output any more, the recording must continue, or end in order. A handler,
/// rather than SIG_IGN, because the recorded command would inherit that.
pub fn survive_closed_pipes() -> Result<(), Failure> {
    signal_hook::flag::register(libc::SIGPIPE, Arc::default())
        .map(drop)
        .map_err(|e| Failure::new(format!("cannot handle SIGPIPE: {e}")))
}

pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Prints one object with one system call, so that lines of a command with the same standard error
/// do not come in between.
pub fn send(message: &Value) {
    put(&format!("{message}\n"));
}

/// Writes to standard error.
pub fn put(text: &str) {
    // Fails if the other end is closed, which is not an error.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints lines for people, harmless and as wide as the terminal.
pub fn print(text: &str) {
    put(&fitted(&(escaped_lines(text) + "\n")));
}

/// A warning.
pub fn note(text: &str) {
    match is_json() {
        true => send(&json!({ "message": "note", "text": text })),
        false => print(&format!("klogger: {text}")),
    }
}

/// What could not be looked at, so that what was found may not be all.
pub fn missed() {
    for Missed { what, count, .. } in missed::take() {
        let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
        note(&format!("could not look at {what}{times}"));
    }
}

/// That a server with debug information is waited for: on a terminal one line, which is renewed.
pub fn fetching(what: Fetching) {
    fetching_until(what, "Ctrl-C ends that, and ");
}

/// The same where Ctrl-C ends the whole command.
pub fn fetching_to_the_end(what: Fetching) {
    fetching_until(what, "");
}

fn fetching_until(what: Fetching, ends: &str) {
    /// The seconds that were told last, and 1: none were.
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let on_terminal = !is_json() && std::io::stderr().is_terminal();
    match what {
        Fetching::Waits(server, seconds) => {
            let before = TOLD.swap(seconds + 1, Ordering::Relaxed);
            let text = format!(
                "asking {server} for debug information; {ends}with DEBUGINFOD_URLS empty no server \
                 is asked"
            );
            match on_terminal {
                true if before == seconds + 1 => {}
                true => put(&format!("{CLEAR}{}", one_line(&format!("{seconds} s: {text}")))),
                false if before == 0 => note(&text),
                false => {}
            }
        }
        Fetching::Ended if on_terminal => put(CLEAR),
        Fetching::Ended => {}
    }
}

/// To the beginning of the line, and what is there goes.
const CLEAR: &str = "\r\x1b[K";

/// As much as fits, of which the cursor stays in the line.
fn one_line(text: &str) -> String {
    let width = terminal::columns(std::io::stderr()).unwrap_or(80).saturating_sub(1);
    escaped(text).chars().take(width).collect()
}

/// The error with which the command ends, with exit code 2.
pub fn error(failure: &Failure) {
    match is_json() {
        _ if failure.silent => {}
        true => send(&json!({ "message": "error", "text": failure.message, "help": failure.help })),
        false => print(&format!("klogger: {failure}")),
    }
}

/// Errors and warnings of a schema: `text` is that of `file`.
/// `includes`: where parts of it are from.
pub fn diagnostics(file: &str, text: &str, includes: &Includes, found: &[Diagnostic]) {
    if !is_json() {
        put(&diagnostics::render(file, text, includes, found));
        return;
    }
    for d in found {
        let (file, text, d) = includes.located((file, text), d.clone());
        let kind = if d.severity == Severity::Error { "error" } else { "note" };
        send(&json!({
            "message": kind,
            "text": d.message,
            "help": d.help,
            "file": file,
            "line": diagnostics::line(text, &d),
        }));
    }
}

/// The summary of a log, in JSON. `more`: an object with further keys of this command.
pub fn summary(log: &Path, summary: &Summary, ledger: &Ledger, more: Value) {
    let mut keys: Vec<&str> = Vec::new();
    for entry in &ledger.entries {
        if !keys.contains(&entry.key.as_str()) {
            keys.push(&entry.key);
        }
    }
    let mut message = json!({
        "message": "summary",
        "log": absolute(log),
        "events": summary.events,
        "bytes": summary.bytes,
        "lost": ledger.lost(),
        "lost_uncounted": ledger.is_vague(),
        "ledger": keys,
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut message, more) {
        all.extend(more);
    }
    send(&message);
}

/// An absolute path, which is valid in every directory; `-` stays.
pub fn absolute(path: &Path) -> String {
    if path.as_os_str() == "-" {
        return "-".into();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.into()).to_string_lossy().into_owned()
}

/// `nothing lost`, `12 LOST`, `12 LOST, and others that could not be counted`
pub fn losses(ledger: &Ledger) -> String {
    match (ledger.lost(), ledger.is_vague()) {
        (0, false) => "nothing lost".into(),
        (0, true) => "events LOST that could not be counted".into(),
        (lost, false) => format!("{} LOST", HumanCount(lost)),
        (lost, true) => format!("{} LOST, and others that could not be counted", HumanCount(lost)),
    }
}
