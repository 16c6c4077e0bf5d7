// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A recording: all its steps, from the first check to the ledger.

mod actions;
mod checks;
pub mod destination;
mod drain;
mod drains;
mod dump;
mod enums;
pub(crate) mod file;
mod followed;
mod follower;
pub mod host;
pub mod hung;
mod ledger;
mod names;
mod pipeline;
mod poll;
mod reached;
pub mod rescue;
mod scope;
pub mod segments;
mod session;
pub mod snapshots;
pub mod socket;
mod taps;
mod watch;
mod workload;
mod writer;

pub use crate::follower::Follower;
pub use crate::workload::{Launch, exit_code};
use klogger_engines::choice::Choice;
pub use klogger_engines::request::{
    BUFFER_MAX, BUFFER_MIN, Request, Target, USER_BUFFER_MAX, USER_BUFFER_MIN,
};
pub use klogger_engines::threads::{Threads, User};
use klogger_log::ledger::Ledger;
pub use klogger_log::preamble::{Condition, RateLimit};
pub use klogger_log::trigger::Trigger;
use klogger_log::writer::{Compression, Summary};
use klogger_os::Error;
/// How many triggers a recording can have.
pub use klogger_ring::layout::bpf::TRIGGERS_MAX;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// What to record, and how.
pub struct Options {
    /// The engines that may take part.
    pub choice: &'static Choice,
    /// What they are asked for.
    pub request: Request,
    /// The log; a folder, if it consists of segments.
    pub output: PathBuf,
    pub segments: Option<segments::Plan>,
    /// The mode of the log's file.
    pub mode: u32,
    pub compression: Compression,
    pub duration: Option<Duration>,
    /// Limits of events per second. Their names may contain `*` and `?`.
    pub limits: Vec<RateLimit>,
    /// Conditions that the programs of `request` have been compiled with.
    pub conditions: Vec<Condition>,
    /// Triggers, numbered from 1 in this order, which the programs of `request` have been compiled
    /// with.
    pub triggers: Vec<Trigger>,
    /// How the command of `request` is started.
    pub launch: Launch,
    /// The command line of klogger itself, for the log.
    pub command_line: Vec<String>,
    /// Whoever follows the recording while it runs. Not in overwrite mode.
    pub follower: Option<Box<dyn Follower>>,
    /// If somebody or something may ask for snapshots.
    pub snapshots: Option<snapshots::Options>,
    /// Tells the user that writing a file hangs, or goes on; called by a thread of its own.
    pub tell_hung: fn(&str),
    /// Tells the user that servers with debug information are waited for.
    pub tell_fetching: klogger_symbolize::Tell,
}

/// The progress of a recording, reported several times a second.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub elapsed: Duration,
    pub events: u64,
    pub lost: u64,
    pub bytes: u64,
}

/// What a recording reports while it runs.
#[derive(Clone, Debug)]
pub enum Message {
    /// Everything is attached, the log is begun, requests are answered, and the command runs.
    Started {
        /// The command's process id, if there is a command.
        command: Option<u32>,
    },
    /// Several times a second.
    Progress(Progress),
    /// A warning for the user.
    Note(String),
}

/// The result of a recording.
pub struct Outcome {
    pub summary: Summary,
    pub ledger: Ledger,
    pub elapsed: Duration,
    /// Time from the first check until everything was attached.
    pub attach: Duration,
    /// The exit status of the command, if there was one and it has ended.
    pub status: Option<ExitStatus>,
    /// The recording was ended by SIGINT or SIGTERM.
    pub interrupted: Option<i32>,
    /// The trigger that ended the recording, as it was typed.
    pub stopped: Option<String>,
    /// Why the log is not complete, such as a full disk.
    pub write_error: Option<std::io::Error>,
    /// Warnings for the user.
    pub notes: Vec<String>,
}

/// Records until the command ends, the time is over, or a signal comes. `tell` is called with what
/// happens meanwhile.
pub fn record(options: Options, tell: &mut dyn FnMut(&Message)) -> Result<Outcome, Error> {
    session::Session::prepare(options)?.run(tell)
}
