// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A recording, from the first check to the ledger.

mod checks;
mod drain;
mod drains;
mod dump;
pub(crate) mod file;
pub mod host;
mod ledger;
mod pipeline;
pub mod rescue;
mod scope;
mod session;
pub mod socket;
mod watch;
mod workload;
mod writer;

pub use crate::workload::exit_code;
pub use klogger_engines::request::{
    BUFFER_MAX, BUFFER_MIN, Request, Target, USER_BUFFER_MAX, USER_BUFFER_MIN,
};
use klogger_log::ledger::Ledger;
pub use klogger_log::preamble::RateLimit;
use klogger_log::writer::{Compression, Summary};
use klogger_os::Error;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// What to record, and how.
pub struct Options {
    /// What the engines are asked for.
    pub request: Request,
    pub output: PathBuf,
    /// Of the log's file.
    pub mode: u32,
    pub compression: Compression,
    pub duration: Option<Duration>,
    /// Events of which no more than so many are logged in a second. Their names may have `*` and
    /// `?` in them.
    pub limits: Vec<RateLimit>,
    /// Of klogger itself, for the log.
    pub command_line: Vec<String>,
}

/// How it goes, several times a second.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub elapsed: Duration,
    pub events: u64,
    pub lost: u64,
    pub bytes: u64,
}

/// What a recording has to tell while it goes on.
#[derive(Clone, Debug)]
pub enum Message {
    /// Everything is attached, the log is begun, requests are answered, and the command runs.
    Started {
        /// The command's process id, if there is a command.
        command: Option<u32>,
    },
    /// Several times a second.
    Progress(Progress),
    /// Something that people should know at once.
    Note(String),
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

/// Records until the command ends, the time is over, or a signal comes. `tell` hears of it
/// meanwhile.
pub fn record(options: Options, tell: &mut dyn FnMut(&Message)) -> Result<Outcome, Error> {
    session::Session::prepare(options)?.run(tell)
}
