// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A recording, from the first check to the ledger.

mod checks;
mod drain;
mod dump;
pub(crate) mod file;
pub mod host;
mod ledger;
mod pipeline;
mod probes;
mod programs;
pub mod rescue;
mod session;
pub mod socket;
mod watch;
mod workload;
mod writer;

pub use crate::workload::exit_code;
use klogger_log::ledger::Ledger;
pub use klogger_log::preamble::RateLimit;
use klogger_log::writer::{Compression, Summary};
use klogger_os::Error;
use klogger_toolchain::compiled_schema::CompiledSchema;
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

impl Target {
    /// Whether only some threads are recorded.
    fn is_scoped(&self) -> bool {
        !matches!(self, Target::All)
    }
}

/// What logs events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel's probes, of schemata that have some, and programs, for those that have none.
    Auto,
    /// The kernel's probes alone.
    Bpf,
    /// As `Auto`, but the kernel's probes are code of modules.
    Kernel,
    /// Programs alone.
    User,
}

/// What to record, and how.
pub struct Options {
    pub engine: Engine,
    pub units: Vec<CompiledSchema>,
    /// Names of schemata that were in the kernel already, with calls of their own perhaps; only for
    /// the kernel engine.
    pub resident: Vec<String>,
    /// The folder with modules of those that were not, and of the core.
    pub modules: Option<PathBuf>,
    /// Whatever programs log, not only events of `units`.
    pub programs: bool,
    pub target: Target,
    pub output: PathBuf,
    /// Of the log's file.
    pub mode: u32,
    /// Bytes of one CPU's ring; a power of two.
    pub buffer_size: u64,
    /// Bytes of the ring of one thread of a program; a power of two.
    pub user_buffer: u64,
    /// Bytes of memory for rings of programs, all together.
    pub max_memory: u64,
    /// Bytes of memory for rings of CPUs, all together, if they are to grow beyond `buffer_size`.
    pub ring_memory: u64,
    /// Percent of a ring that should stay free.
    pub lowwater: u32,
    pub overwrite: bool,
    pub compression: Compression,
    pub duration: Option<Duration>,
    /// Measure what events cost before recording, for the log.
    pub calibrate: bool,
    /// Events of which no more than so many are logged in a second. Their names may have `*` and
    /// `?` in them.
    pub limits: Vec<RateLimit>,
    /// Events that are not logged until they are enabled.
    pub disabled: Vec<String>,
    /// Of klogger itself, for the log.
    pub command_line: Vec<String>,
}

/// The id of the first built-in event; `klogger.klogger` fixes those that follow.
const FIRST_ID: u16 = 1;

/// Smallest and largest ring of a thread of a program.
pub use klogger_engines::user::{RING_MAX as USER_BUFFER_MAX, RING_MIN as USER_BUFFER_MIN};

/// Smallest and largest ring of one CPU. The verifier follows offsets of less than 512 MiB.
pub const BUFFER_MIN: u64 = 16 << 10;
pub const BUFFER_MAX: u64 = 256 << 20;

impl Options {
    /// Whether programs may log the events of a schema: it has some that no probe logs.
    pub fn is_user(&self, unit: &CompiledSchema) -> bool {
        let schema = &unit.schema;
        let is_called =
            |name: &str| schema.probes.iter().flat_map(|p| &p.calls).any(|c| c.event == name);
        match self.engine {
            Engine::Bpf => false,
            Engine::User => true,
            Engine::Kernel if self.resident.contains(&schema.name) => false,
            Engine::Auto | Engine::Kernel => schema.events.iter().any(|e| !is_called(&e.name)),
        }
    }

    /// Whether the kernel logs events of a schema.
    pub fn is_probed(&self, unit: &CompiledSchema) -> bool {
        match self.engine {
            Engine::User => false,
            Engine::Auto | Engine::Bpf => unit.object.is_some(),
            Engine::Kernel => {
                !unit.schema.probes.is_empty() || self.resident.contains(&unit.schema.name)
            }
        }
    }
}

/// How far it is.
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
