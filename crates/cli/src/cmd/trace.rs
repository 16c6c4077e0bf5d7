// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger trace`

mod chosen;
mod clock;
mod joined;
mod names;
mod paint;
mod printer;
mod sink;
mod text;

use self::chosen::Chosen;
use self::clock::Clock;
use self::paint::{Paint, When};
use self::printer::{Printer, Style};
use self::sink::Sink;
use self::text::Text;
use super::Outcome;
use super::record::calls;
use super::record::launch::Own;
use super::record::snapshots::Snapshots;
use super::record::values::mode;
use super::record::what::{How, What};
use super::record::{check_complete, exit_code, takes_snapshots, unfit};
use crate::external;
use crate::failure::Failure;
use crate::messages;
use crate::text::Harmless;
use crate::text::ledger_text;
use klogger_log::writer::Compression;
use klogger_os::{answers, outputs};
use klogger_recorder::Message;
use klogger_recorder::hung::Watched;
use klogger_toolchain::compiled_schema::CompiledSchema;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempPath;

/// Print the events of a command or the whole system as they happen
///
/// One line for each event, in the order of time: on standard error, as strace has them. Without
/// -s and -e they are those of the schema 'files': system calls that take a path, read or write.
/// -e names any system calls, by name or class.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// Write the lines to this file; '-' is standard output [default: standard error]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep a log as well, as 'klogger record' does
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Mode of the log and of the file with lines, as for chmod
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    mode: u32,
    /// Format of the lines; json: one object per line, as of 'klogger cat'
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Colours
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: When,
    /// Print no lines, but the report at the end; of system calls the table of their sums
    #[arg(short = 'c', long)]
    summary: bool,
    /// The time of day (UTC) on each line; -tt: with microseconds; -ttt: seconds since 1970
    #[arg(short, action = clap::ArgAction::Count)]
    time: u8,
    /// The time since the line before, on each line
    #[arg(short, long, conflicts_with = "time")]
    relative: bool,
    /// For users of strace: descendants are always traced
    #[arg(short, action = clap::ArgAction::Count)]
    #[allow(dead_code)]
    follow: u8,
    /// For users of strace: lines always have the time that a call took
    #[arg(short = 'T')]
    #[allow(dead_code)]
    took: bool,
    #[command(flatten)]
    snapshots: Snapshots,
    #[command(flatten)]
    own: Own,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  klogger trace -- ls                    which files it opens, looks at, reads
  klogger trace -e openat,execve -- make
                                         only these system calls
  klogger trace -e fsync,poll -- make    any others, with their arguments
  klogger trace -e %network -p 4711      a class of calls: file, desc, process,
                                         network, signal, memory, ipc, creds, clock
  klogger trace -e '!futex' -- make      all but these
  klogger trace -p 4711 --for 10s        of a running process
  klogger trace -s lifecycle -- make     processes, signals, exits
  klogger trace -s files,lifecycle -a    of the whole system, until Ctrl-C
  klogger trace -e sched_switch -- make  trace events of the kernel
  klogger trace -c -- make               only a summary, at the end
  klogger trace -c -e all -- make        of all system calls
  klogger trace -o lines.txt --log make.klog -- make
                                         lines to a file; and keep the log
  klogger trace --format json -o - -- true | jq .event
                                         for programs

-e NAME: an event of a schema, a system call or a class of them, or a trace
event of the kernel. klogger exits with the exit code of the command.";

/// Without -s and -e.
const SCHEMA: &str = "files";
/// With -c: of a schema of system calls, the analysis with their sums.
const CALLS: [(&str, &str); 2] = [(SCHEMA, "calls"), (calls::SCHEMA, "calls")];
/// Where the log goes if none is kept.
const NO_LOG: &str = "/dev/null";

pub fn run(mut args: Args) -> Outcome {
    let chosen = Chosen::take(&mut args.what)?;
    messages::survive_closed_pipes()?;
    let choice = args.what.choice();
    let prepared = args.what.prepare().map_err(|failure| unfit(failure, choice))?;
    let sums = sums(&prepared.units);
    // Opening a pipe may wait for its reader. From here on, signals do not end klogger.
    let sink = Arc::new(Sink::new(open(&args)?)?);
    let (log, temporary) = log(&args)?;
    // A temporary log is not where they are looked for.
    let beside = if temporary.is_some() { Path::new(NO_LOG) } else { &log };
    let wanted = takes_snapshots(&args.what);
    let snapshots = args.snapshots.options(beside, prepared.name(), wanted)?;
    let options = prepared.options(How {
        output: log.clone(),
        mode: args.mode,
        compression: Compression::None,
        overwrite: false,
        segments: None,
        launch: args.own.launch(),
        follower: match args.summary {
            true => None,
            false => Some(Box::new(Printer::new(sink.clone(), style(&args), chosen))),
        },
        snapshots,
    })?;
    let outcome = klogger_recorder::record(options, &mut |message| hear(message, &log));
    let outcome = outcome.map_err(|error| unfit(error.into(), choice))?;
    // A terminal that is stopped can keep the lines waiting: then signals must end klogger.
    klogger_os::end_by_signals();
    let written = sink.finish();
    end(&outcome, &args, &log);
    check(&outcome, written, &args, &log)?;
    if args.summary {
        report(&log, sums)?;
    }
    drop(temporary);
    Ok(exit_code(&outcome, args.what.duration))
}

/// The log's file; with -c alone a temporary one.
fn log(args: &Args) -> Result<(PathBuf, Option<TempPath>), Failure> {
    match &args.log {
        Some(log) => Ok((log.clone(), None)),
        None if args.summary => {
            let file = tempfile::Builder::new().prefix("klogger-").suffix(".klog").tempfile();
            let cannot = |e| Failure::new(format!("cannot make a temporary log: {e}"));
            let path = file.map_err(cannot)?.into_temp_path();
            Ok((path.to_path_buf(), Some(path)))
        }
        None => Ok((NO_LOG.into(), None)),
    }
}

fn style(args: &Args) -> Style {
    let clock = match (args.relative, args.time) {
        (true, _) => clock::Style::SinceLast,
        (false, 0) => clock::Style::SinceStart,
        (false, 1) => clock::Style::OfDay { us: false },
        (false, 2) => clock::Style::OfDay { us: true },
        (false, _) => clock::Style::Epoch,
    };
    let paint = match &args.output {
        None => Paint::new(args.color, io::stderr().is_terminal()),
        Some(file) => Paint::new(args.color, is_stdout(file) && io::stdout().is_terminal()),
    };
    match args.format {
        Format::Text => Style::Text(Text::new(Clock::new(clock), paint)),
        Format::Json => Style::Json,
    }
}

fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// What the lines are written to.
fn open(args: &Args) -> Result<Box<dyn Write + Send>, Failure> {
    // Lines of text cannot control a terminal, whatever is in them.
    let is_text = args.format == Format::Text;
    Ok(match &args.output {
        None if io::stderr().is_terminal() && !is_text => Box::new(Harmless(io::stderr())),
        None => Box::new(io::stderr()),
        Some(file) if is_stdout(file) && io::stdout().is_terminal() && !is_text => {
            Box::new(Harmless(io::stdout()))
        }
        Some(file) if is_stdout(file) => Box::new(io::stdout()),
        Some(path) => {
            klogger_os::files::keep_from_commands(path);
            let file = answers::check_output(path).and_then(|()| outputs::begin(path, args.mode));
            let file = file.map_err(|e| klogger_os::files::cannot_write(path, e))?;
            Box::new(Watched::new(path.as_path(), file))
        }
    })
}

fn hear(message: &Message, log: &Path) {
    match message {
        Message::Started { command } if messages::is_json() => messages::send(&json!({
            "message": "started",
            "log": messages::absolute(log),
            "pid": std::process::id(),
            "command_pid": command,
        })),
        Message::Note(note) => messages::note(note),
        Message::Started { .. } | Message::Progress(_) => {}
    }
}

/// Prints what was lost, and warnings.
fn end(outcome: &klogger_recorder::Outcome, args: &Args, log: &Path) {
    outcome.notes.iter().for_each(|note| messages::note(note));
    if messages::is_json() {
        return messages::summary(log, &outcome.summary, &outcome.ledger, json!({}));
    }
    if outcome.ledger.lost() > 0 || outcome.ledger.is_vague() {
        messages::note(&messages::losses(&outcome.ledger));
        messages::print(ledger_text::summary(&outcome.ledger).trim_end());
    }
    if let Some(log) = &args.log {
        messages::note(&format!("the log is {0}: klogger report {0}", log.display()));
    }
}

/// Fails if the lines, or the log, could not be written to their end.
fn check(
    outcome: &klogger_recorder::Outcome,
    written: io::Result<()>,
    args: &Args,
    log: &Path,
) -> Result<(), Failure> {
    // Without a log, the recording has failed with the lines.
    let of_lines = if args.log.is_none() { outcome.write_error.as_ref() } else { None };
    let written = written.err();
    match written.as_ref().or(of_lines) {
        // Whoever read the lines has seen enough, or the terminal has been closed.
        Some(e) if e.kind() == ErrorKind::BrokenPipe => {}
        Some(e) if e.raw_os_error() == Some(libc::EIO) => {}
        Some(e) => {
            let file = args.output.as_deref().unwrap_or(Path::new("standard error"));
            return Err(Failure::new(format!("cannot write {}: {e}", file.display()))
                .help("make space, or name another file with -o"));
        }
        None => {}
    }
    if args.log.is_some() || args.summary { check_complete(outcome, log) } else { Ok(()) }
}

/// With -c, the analysis that is shown; `None`: the whole report.
fn sums(units: &[CompiledSchema]) -> Option<&'static str> {
    match units {
        [unit] => CALLS.iter().find(|(schema, _)| *schema == unit.schema.name).map(|row| row.1),
        _ => None,
    }
}

/// The report of -c.
fn report(log: &Path, analysis: Option<&str>) -> Result<(), Failure> {
    let mut words = vec![OsString::from("report"), log.into()];
    if let Some(analysis) = analysis {
        words.extend(["--analysis".into(), analysis.into()]);
    }
    external::output(&words, false).map(drop)
}
