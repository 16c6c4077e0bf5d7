// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A recording, from the first check to the ledger.

mod checks;
mod dump;
mod file;
mod flow;
mod ledger;
mod session;

use crate::error::Error;
use crate::unit::Unit;
pub use crate::workload::exit_code;
use klogger_log::ledger::Ledger;
use klogger_log::writer::{Compression, Summary};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Who is recorded.
#[derive(Clone, Debug)]
pub enum Target {
    All,
    /// These processes and their descendants.
    Processes(Vec<u32>),
    /// A command, started for the purpose, and its descendants.
    Command(Vec<OsString>),
}

/// What to record, and how.
pub struct Options {
    pub units: Vec<Unit>,
    pub target: Target,
    pub output: PathBuf,
    /// Bytes of one CPU's ring; a power of two.
    pub buffer_size: u64,
    /// Percent of a ring that should stay free.
    pub lowwater: u32,
    pub overwrite: bool,
    pub compression: Compression,
    pub duration: Option<Duration>,
    /// Events that are not logged until they are enabled.
    pub disabled: Vec<String>,
    /// Of klogger itself, for the log.
    pub command_line: Vec<String>,
}

/// The id of the first built-in event; `klogger.klogger` fixes those that follow.
const FIRST_ID: u16 = 1;

/// Smallest and largest ring of one CPU. The verifier follows offsets of less than 512 MiB.
pub const BUFFER_MIN: u64 = 16 << 10;
pub const BUFFER_MAX: u64 = 256 << 20;

/// How it goes, several times a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub elapsed: Duration,
    pub events: u64,
    pub lost: u64,
    pub bytes: u64,
}

/// What came of it.
pub struct Outcome {
    pub summary: Summary,
    pub ledger: Ledger,
    pub elapsed: Duration,
    /// Time from the first check until everything was attached.
    pub attach: Duration,
    /// Of the command, if there was one and it has ended.
    pub status: Option<ExitStatus>,
    /// Ended by SIGINT or SIGTERM.
    pub interrupted: Option<i32>,
    /// Why the log is not complete: the disk is full, say.
    pub write_error: Option<std::io::Error>,
    /// Things that went less well than they could.
    pub notes: Vec<String>,
}

/// Records until the command ends, the time is over, or a signal comes. `progress` is called several times a second.
pub fn record(options: Options, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, Error> {
    session::Session::prepare(options)?.run(progress)
}
