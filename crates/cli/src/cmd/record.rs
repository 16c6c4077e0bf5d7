// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger record`

pub mod calls;
mod conditions;
mod course;
pub mod launch;
mod objects;
mod parameters;
mod segments;
pub mod snapshots;
mod target;
pub mod triggers;
pub mod values;
pub mod what;
pub mod words;

use self::course::Course;
use self::launch::Own;
use self::segments::{Bound, keep, segment};
use self::snapshots::Snapshots;
use self::values::mode;
use self::what::{How, What};
use super::Outcome;
use crate::failure::Failure;
use crate::messages;
use klogger_engines::choice::Choice;
use klogger_log::trigger::Action;
use klogger_log::writer::Compression;
use klogger_recorder::destination::is_stdout;
use klogger_recorder::segments::Plan;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  klogger record -s scheduler -- make -j4         a command and its descendants
  klogger record -s scheduler -p 4711 --for 30s   a running process
  klogger record -s scheduler -a --for 10s -o all.klog
                                                  the whole system
  klogger record -s scheduler,locking -a -- make  the whole system, during make
  klogger record -s ./my.klogger -- ./prog        a schema of your own
  klogger record -e sched_switch -e 'block:*' -- make
                                                  trace events, without a schema
  klogger record --engine user -- ./prog          events of programs; no root
  klogger record -s scheduler -s programs -- ./prog
                                                  of the kernel and of programs
  klogger record -s scheduler --engine kernel -- ./prog
                                                  with kernel modules
  klogger record -s scheduler --overwrite -- ./prog
                                                  flight recorder
  klogger record -s scheduler -a --cpu 0-3 --for 10s
                                                  of four CPUs
  klogger record -s scheduler --comm nginx        threads named so, until Ctrl-C
  klogger record -s scheduler --where 'SCHEDOUT: prio < 120' -- ./prog
                                                  only events that match
  klogger record -s scheduler -a -o - | klogger cat -
                                                  the events as they come
  klogger record -s lifecycle -a --trigger 'SIGNALLED where sig == 11: stop'
                                                  until something happens
Then:
  klogger report scheduler.klog      the answers
  klogger cat scheduler.klog         the events

klogger exits with the exit code of the command. Ctrl-C ends the command and
the recording.";

/// Record events of a command, of processes, or of the whole system
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    what: What,
    /// The log [default: the name of the first schema, with .klog]. An existing file is renamed to
    /// FILE.old; '-' is standard output, for a pipe: what the command prints goes to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Mode of the log, as for chmod; a log contains data of other processes
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    mode: u32,
    /// Flight recorder: keep the newest events, and write a dump at the end and at each SIGUSR1 to
    /// klogger
    #[arg(long)]
    overwrite: bool,
    /// Divide the log into segments, each a log of its own in a folder: a new one begins at this
    /// age (60s, 5m) or before this size is passed (256M). May be given twice: whichever comes
    /// first
    #[arg(long, value_name = "AGE|SIZE", value_parser = segment)]
    segment: Vec<Bound>,
    /// Keep only the newest complete segments: so many (10), of so many bytes in all (2G), or those
    /// that ended since (1h). May be repeated
    #[arg(long, value_name = "N|SIZE|AGE", value_parser = keep)]
    keep: Vec<Bound>,
    /// The folder of the segments; it is created, or must be empty [default: the name of the first
    /// schema, with .segments]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Compress the log (zstd)
    #[arg(long)]
    compress: bool,
    /// Print no progress and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    snapshots: Snapshots,
    #[command(flatten)]
    own: Own,
}

pub fn run(mut args: Args) -> Outcome {
    calls::take(&mut args.what)?;
    let plan = args.plan()?;
    let choice = args.what.choice();
    let prepared = args.what.prepare().map_err(|failure| unfit(failure, choice))?;
    let suffix = if plan.is_some() { "segments" } else { "klog" };
    let default = || PathBuf::from(format!("{}.{suffix}", prepared.name()));
    let output = args.dir.or(args.output).unwrap_or_else(default);
    // Whoever reads the messages, or the log in a pipe, may end before the recording does.
    messages::survive_closed_pipes()?;
    klogger_os::files::keep_from_commands(&output);
    let how = How {
        output: output.clone(),
        mode: args.mode,
        compression: if args.compress { Compression::Zstd(1) } else { Compression::None },
        overwrite: args.overwrite,
        segments: plan,
        launch: args.own.launch(),
        follower: None,
        snapshots: args.snapshots.options(&output, prepared.name(), takes_snapshots(&args.what))?,
    };
    let course = Course::new(args.quiet, output.clone());
    if !args.quiet && !args.what.pids.is_empty() && !args.what.command.is_empty() {
        messages::note(
            "the processes of -p are recorded until the command has ended; the command is not",
        );
    }
    let options = prepared.options(how)?;
    let outcome = klogger_recorder::record(options, &mut |message| course.hear(message));
    let outcome = outcome.map_err(|error| unfit(error.into(), choice))?;
    course.end(&outcome);
    check_complete(&outcome, &output)?;
    Ok(exit_code(&outcome, args.what.duration))
}

impl Args {
    /// How the log is divided, if it is.
    fn plan(&self) -> Result<Option<Plan>, Failure> {
        let Args { segment, keep, dir, output, overwrite, .. } = self;
        segments::plan(segment, keep, dir.as_deref(), output.as_deref(), *overwrite)
    }
}

/// If this machine, or this process, cannot record at all: where the rest of it stands.
pub fn unfit(failure: Failure, choice: &Choice) -> Failure {
    let mut reasons = choice.engines.iter().filter_map(|engine| (engine.check)().err());
    if !reasons.any(|why| why.message == failure.message) {
        return failure;
    }
    let help = failure.help.as_ref().map_or(String::new(), |help| format!("{help}; "));
    failure.help(help + "'klogger doctor' says what works here")
}

/// Whether a trigger asks for snapshots.
pub fn takes_snapshots(what: &What) -> bool {
    what.triggers.iter().flat_map(|trigger| &trigger.actions).any(|a| *a == Action::Snapshot)
}

/// Fails if the log could not be written to its end.
pub fn check_complete(outcome: &klogger_recorder::Outcome, log: &Path) -> Result<(), Failure> {
    let Some(e) = &outcome.write_error else { return Ok(()) };
    if is_stdout(log) && e.kind() == ErrorKind::BrokenPipe {
        return Err(Failure::new(
            "the log on standard output is not complete: its reader has ended",
        )
        .help("what the reader has read up to there is sound"));
    }
    Err(Failure::new(format!("{} is not complete: {e}", log.display())).help(
        "everything up to there can be read; make space on the disk, or record with --compress",
    ))
}

/// That of the command.
pub fn exit_code(outcome: &klogger_recorder::Outcome, duration: Option<Duration>) -> ExitCode {
    // A trigger has ended it, as requested.
    if outcome.stopped.is_some() {
        return ExitCode::SUCCESS;
    }
    match (outcome.status, outcome.interrupted, duration) {
        // The command was ended by klogger, as requested with --for.
        (Some(_), None, Some(limit)) if outcome.elapsed >= limit => ExitCode::SUCCESS,
        (Some(status), _, _) => ExitCode::from(klogger_recorder::exit_code(status)),
        (None, _, _) => ExitCode::SUCCESS,
    }
}
