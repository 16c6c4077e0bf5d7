// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the user asked for: the request that the recorder hands to its engines.

use crate::threads::Threads;
use klogger_log::preamble::SchemaText;
use klogger_os::Error;
use klogger_os::cgroup_memory::Left;
use klogger_os::machine;
use klogger_programs::{Of, Programs};
use klogger_ring::Rings;
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;
use std::ffi::OsString;
use std::path::PathBuf;

/// Smallest and largest ring of one CPU, bytes. The verifier follows offsets of less than 512 MiB.
pub const BUFFER_MIN: u64 = 16 << 10;
pub const BUFFER_MAX: u64 = 256 << 20;

/// Smallest and largest ring of one thread of a program, bytes.
pub use klogger_ring::layout::program_shm::{
    RING_MAX as USER_BUFFER_MAX, RING_MIN as USER_BUFFER_MIN,
};

/// Bytes that the recorder itself needs, with its threads and buffers.
pub const RECORDER: u64 = 16 << 20;

/// The id of the first built-in event; `klogger.klogger` fixes those that follow.
pub const FIRST_ID: u16 = 1;

/// Which threads are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    All,
    /// These processes, or single threads of processes, and their descendants.
    Processes(Vec<u32>),
    /// The command of the recording, and its descendants.
    Command,
}

impl Target {
    /// The programs that names in probes mean. `command`: of the recording, and its arguments.
    pub fn programs(&self, command: &[OsString]) -> Programs {
        Programs {
            of: match (self, command.first()) {
                (Target::Processes(pids), _) => Of::Processes(pids.clone()),
                (_, Some(command)) => Of::Command(command.into()),
                (Target::All | Target::Command, None) => Of::All,
            },
        }
    }

    /// Whether only some threads are followed.
    pub fn is_scoped(&self) -> bool {
        !matches!(self, Target::All)
    }
}

/// How a schema is stored in a log. `user`: programs log events of it.
pub fn schema_text(schema: &Schema, user: bool) -> SchemaText {
    SchemaText {
        name: schema.name.clone(),
        doc: schema.doc.clone().unwrap_or_default(),
        file: schema.file.clone(),
        text: schema.text.clone(),
        user,
        parameters: schema.parameters.clone(),
    }
}

/// What to record, and how much memory to use.
pub struct Request {
    /// Whether probes in the kernel may log.
    pub probes: bool,
    /// The schema of the recorder's own events.
    pub builtin: CompiledSchema,
    pub units: Vec<CompiledSchema>,
    /// Names of schemata that were in the kernel already, perhaps with `klogger()` calls; only for
    /// the kernel engine.
    pub resident: Vec<String>,
    /// The folder with the modules of the other schemata, and of the core.
    pub modules: Option<PathBuf>,
    /// Record all events that programs log, not only those of `units`.
    pub programs: bool,
    pub target: Target,
    /// Of the threads of `target`, those that are recorded.
    pub threads: Threads,
    /// The command that is started for the recording, whichever threads are recorded, and its
    /// arguments; empty: none. The recording ends with it.
    pub command: Vec<OsString>,
    /// Events of probes are logged on these CPUs only, except klogger's own; empty: on all.
    pub cpus: Vec<u32>,
    /// Bytes of one CPU's ring; a power of two.
    pub buffer_size: u64,
    /// Bytes of the ring of one thread of a program; a power of two.
    pub user_buffer: u64,
    /// Bytes of memory for rings of programs, all together.
    pub max_memory: u64,
    /// Bytes of memory for all rings of CPUs, if they may grow beyond `buffer_size`.
    pub ring_memory: u64,
    /// Percent of a ring: the low-water mark. When less is free, the writer wakes the reader.
    pub lowwater: u32,
    pub overwrite: bool,
    /// Measure what events cost before recording, for the log.
    pub calibrate: bool,
    /// Events that are off until they are enabled.
    pub disabled: Vec<String>,
}

impl Request {
    /// The built-in schema and all others, each with the id of its first event.
    pub fn numbered(&self) -> impl Iterator<Item = (&CompiledSchema, u16)> {
        let mut next = FIRST_ID;
        std::iter::once(&self.builtin).chain(&self.units).map(move |unit| {
            let first = next;
            next += unit.schema.events.len() as u16;
            (unit, first)
        })
    }

    /// Whether only some threads are recorded.
    pub fn is_scoped(&self) -> bool {
        self.target.is_scoped() || !self.threads.are_all()
    }

    /// For an engine with probes: checks that threads can be told apart, that rings of this size
    /// are possible, and that this machine has memory for all of them. Returns the number of CPUs.
    pub fn check_for_probes(&self) -> Result<usize, Error> {
        if self.is_scoped() {
            host_kernel::check_pid_namespace()?;
        }
        match &self.target {
            Target::All => host_kernel::check_whose(None)?,
            Target::Processes(pids) => host_kernel::check_whose(Some(pids))?,
            Target::Command => {}
        }
        let rings = machine::online_cpus()?.iter().max().map_or(1, |c| *c as usize + 1);
        let size = self.buffer_size;
        if !size.is_power_of_two() || !(BUFFER_MIN..=BUFFER_MAX).contains(&size) {
            return Err(Error::new(format!("a ring of {size} bytes is not supported")).help(
                "choose a --buffer-size from 16K to 256M; it is rounded up to a power of two",
            ));
        }
        let needed = (rings * Rings::stride(size as usize)) as u64;
        match machine::memory_available() {
            Some(available) if needed > available => Err(Error::new(format!(
                "rings of {} MiB for each of {rings} CPUs need {} MiB of memory, and {} MiB are \
                 free",
                size >> 20,
                needed >> 20,
                available >> 20
            ))
            .help("choose a smaller --buffer-size")),
            _ => Ok(rings),
        }
    }

    /// Checks that a control group has memory for the rings and `besides`, in bytes; otherwise the
    /// kernel would kill the recorder. Returns what is needed.
    pub fn check_group(&self, rings: usize, besides: u64, left: &Left) -> Result<u64, Error> {
        let needed = (rings * Rings::stride(self.buffer_size as usize)) as u64 + besides;
        if needed <= left.bytes {
            return Ok(needed);
        }
        let Left { bytes, limit, group } = left;
        let message = format!(
            "a recording of these schemata needs about {} MiB of memory, and the control group {} \
             leaves {} of its {} MiB",
            needed.div_ceil(1 << 20),
            group.display(),
            bytes >> 20,
            limit >> 20
        );
        Err(Error::new(message).help(
            "raise its limit (memory.max, memory.limit_in_bytes), record fewer schemata, or record \
             from outside it",
        ))
    }
}
