// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Logs as text: one file for each format, and what they share.
//!
//! One more format is one file with a [`Format`], and one entry of [`FORMATS`].

mod csv;
pub mod info_json;
mod info_snapshots;
pub mod info_text;
pub mod json;
pub mod layout;
pub mod ledger_text;
mod line;
pub mod open;
mod perl;
mod segments_text;
pub mod select;
pub mod times;

use crate::failure::Failure;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::names::Processes;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_log::text::escape_from;
use klogger_os::threads;
use select::Choice;
use std::io::Write;
use std::time::Duration;

/// All formats of `klogger cat`; the first one is the default. Those with a suffix are formats of
/// `klogger export` too.
pub const FORMATS: &[&dyn Format] = &[&line::Text, &json::Json, &csv::Csv, &perl::Perl];

/// The name, description and writer of a format.
pub trait Format: Sync {
    /// The value of `--format`.
    fn name(&self) -> &'static str;
    /// For the help text.
    fn description(&self) -> &'static str;
    /// What is appended to the log's name when it is exported; `None` if the format is only for
    /// display.
    fn suffix(&self) -> Option<&'static str>;
    /// A writer for the selected events of a log.
    fn lines(&self, preamble: &Preamble, choice: &Choice) -> Box<dyn Lines>;
}

/// `--format`: one of [`FORMATS`], by its name.
pub fn parser() -> impl clap::builder::TypedValueParser<Value = &'static dyn Format> {
    let value = |f: &&'static dyn Format| PossibleValue::new(f.name()).help(f.description());
    PossibleValuesParser::new(FORMATS.iter().map(value))
        .try_map(|name| FORMATS.iter().find(|f| f.name() == name).copied().ok_or("unknown format"))
}

/// What is needed to write an event.
pub struct Context<'a> {
    pub decoder: &'a Decoder,
    pub processes: &'a Processes,
    /// Origin of the times shown, ns of the log clock.
    pub start_ns: u64,
}

impl Context<'_> {
    /// ns since the log's start.
    fn time(&self, event: &EventRef) -> i64 {
        event.time_ns.wrapping_sub(self.start_ns) as i64
    }
}

/// Writes events, one after the other.
pub trait Lines {
    fn begin(&mut self, _out: &mut Vec<u8>) {}
    fn event(&mut self, event: &EventRef, context: &Context, out: &mut Vec<u8>);
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// Keys of events of programs besides their fields.
const THREAD: [&str; 2] = ["tid", "tgid"];

/// The key of a field, given that the event's name has the key `event`; `user`: the event may come
/// from a program.
fn free_name(name: &str, user: bool) -> String {
    if name == "event" || user && THREAD.contains(&name) { format!("{name}_") } else { name.into() }
}

/// A writer to a terminal that replaces everything that would control the terminal.
pub struct Harmless<W>(pub W);

impl<W: Write> Write for Harmless<W> {
    /// Expects whole characters.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut out = Vec::with_capacity(bytes.len());
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, end) =
                line.strip_suffix(b"\n").map_or((line, &b""[..]), |text| (text, b"\n"));
            let start = out.len();
            out.extend_from_slice(text);
            escape_from(&mut out, start);
            out.extend_from_slice(end);
        }
        self.0.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Bytes that are collected before they are written.
const CHUNK: usize = 256 << 10;

/// Writes the selected events of a log to `sink`.
pub fn write(
    reader: &Reader,
    choice: &Choice,
    format: &dyn Format,
    sink: &mut dyn Write,
    progress: &ProgressBar,
) -> Result<(), Failure> {
    let decoder = Decoder::new(reader);
    let mut processes = Processes::new(reader);
    let mut lines = format.lines(reader.preamble(), choice);
    let mut merge = reader.merge(&choice.selection);
    let mut out = Vec::with_capacity(CHUNK + 4096);
    let failed = |e: std::io::Error| Failure::new(format!("cannot write the output: {e}"));
    lines.begin(&mut out);
    while let Some(event) = merge.next() {
        processes.apply(&event);
        if !choice.includes(&event, &decoder, &processes) {
            continue;
        }
        lines.event(
            &event,
            &Context { decoder: &decoder, processes: &processes, start_ns: choice.start_ns },
            &mut out,
        );
        if out.len() >= CHUNK {
            sink.write_all(&out).map_err(failed)?;
            out.clear();
            progress.set_position(event.time_ns.saturating_sub(choice.start_ns));
        }
    }
    lines.end(&mut out);
    sink.write_all(&out).and_then(|()| sink.flush()).map_err(failed)?;
    progress.finish_and_clear();
    open::warn(reader, merge.damage());
    Ok(())
}

/// A progress bar on the terminal, shown after one second. Nothing if stderr is not a terminal.
pub fn progress_bar(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{msg} {bar:40} {percent:>3} %  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    let late = bar.downgrade();
    threads::try_start("klogger/bar", move || {
        std::thread::sleep(Duration::from_secs(1));
        if let Some(bar) = late.upgrade().filter(|b| !b.is_finished()) {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    });
    bar
}
