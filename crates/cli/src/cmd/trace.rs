// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger trace`

mod printer;
mod sink;

use self::printer::Printer;
use self::sink::Sink;
use super::Outcome;
use super::record::values::mode;
use super::record::what::{How, What};
use super::record::{check_complete, exit_code};
use crate::failure::Failure;
use crate::messages;
use crate::text::ledger_text;
use klogger_log::writer::Compression;
use klogger_recorder::Message;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Print events of a command, of processes, or of the whole system while they happen
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
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  klogger trace -- ls                    which files it opens, looks at and reads
  klogger trace -p 4711 --for 10s        of a running process
  klogger trace -s lifecycle -- make     processes, signals, exit codes
  klogger trace -e sched_switch -- make  trace events of the kernel
  klogger trace --format json -o - -s futex --log a.klog -- ./prog
                                         for programs; and a log";

/// Without -s and -e.
const SCHEMA: &str = "files";
/// Where the log goes if none is kept.
const NO_LOG: &str = "/dev/null";

pub fn run(mut args: Args) -> Outcome {
    let what = &mut args.what;
    if what.schemas.is_empty() && what.events.is_empty() && what.engine.is_none() {
        what.schemas.push(SCHEMA.into());
    }
    messages::survive_closed_pipes()?;
    let prepared = args.what.prepare()?;
    // Opening a pipe may wait for its reader; from the next step on, signals do not end klogger.
    let sink = Sink::new(open(args.output.as_deref(), args.mode)?);
    let log = args.log.clone().unwrap_or_else(|| NO_LOG.into());
    let options = prepared.options(How {
        output: log.clone(),
        mode: args.mode,
        compression: Compression::None,
        overwrite: false,
        follower: Some(Box::new(Printer::new(sink, args.format))),
    })?;
    let outcome = klogger_recorder::record(options, &mut |message| hear(message, &log))?;
    end(&outcome, &log, args.log.is_some());
    match &outcome.write_error {
        // Whoever read the lines has seen enough.
        Some(e) if args.log.is_none() && is_gone(e) => {}
        Some(e) if args.log.is_none() => {
            let file = args.output.as_deref().unwrap_or(Path::new("standard error"));
            return Err(Failure::new(format!("cannot write {}: {e}", file.display())));
        }
        _ => check_complete(&outcome, &log)?,
    }
    Ok(exit_code(&outcome, args.what.duration))
}

/// Whether nobody reads a pipe any more, or the terminal has been closed.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(libc::EIO)
}

/// What the lines are written to.
fn open(file: Option<&Path>, mode: u32) -> Result<Box<dyn Write + Send>, Failure> {
    match file {
        None => Ok(Box::new(io::stderr())),
        Some(file) if file.as_os_str() == "-" => Ok(Box::new(io::stdout())),
        Some(path) => {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(mode);
            let file = options.open(path).map_err(|e| klogger_os::files::cannot_write(path, e))?;
            Ok(Box::new(file))
        }
    }
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

/// What was lost, and warnings.
fn end(outcome: &klogger_recorder::Outcome, log: &Path, kept: bool) {
    if messages::is_json() {
        outcome.notes.iter().for_each(|note| messages::note(note));
        return messages::summary(log, &outcome.summary, &outcome.ledger, json!({}));
    }
    outcome.notes.iter().for_each(|note| messages::note(note));
    if outcome.ledger.lost() > 0 || outcome.ledger.is_vague() {
        messages::note(&messages::losses(&outcome.ledger));
        messages::print(ledger_text::summary(&outcome.ledger).trim_end());
    }
    if kept {
        messages::note(&format!("the log is {0}: klogger report {0}", log.display()));
    }
}
