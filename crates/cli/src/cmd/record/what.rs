// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The options that say what is recorded, and of whom. Commands that record have them in common.

use super::calls;
use super::conditions::{self, Changes, check_engine, condition};
use super::objects::{Device, Namespace, Objects, Prefix, device, namespace, prefix};
use super::parameters::{self, Setting, setting};
use super::target::{self, target};
use super::triggers::{self, trigger};
use super::values::{bytes, cgroup, comm, cpus, duration, process, rate, size, user, user_size};
use super::words::schema_names;
use crate::cmd::build::build;
use crate::engines;
use crate::failure::Failure;
use crate::{messages, schemata, trace_events};
use klogger_engines::choice::Choice;
use klogger_engines::registry::CHOICES;
use klogger_engines::{bpf, kernel};
use klogger_log::writer::Compression;
use klogger_os::cgroups::Cgroup;
use klogger_os::{files, machine};
use klogger_programs::Programs;
use klogger_recorder::destination::is_stdout;
use klogger_recorder::segments::Plan;
use klogger_recorder::{
    Condition, Follower, Launch, Options, RateLimit, Request, Target, Threads, Trigger, User,
    snapshots,
};
use klogger_schema::model::Schema;
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::{bundled, host_kernel, kbuild};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
#[derive(clap::Args)]
pub struct What {
    /// Schema to record: a name, a file, or a folder; several are separated by commas, or
    /// the option is repeated. A schema without probes is recorded from programs; 'programs'
    /// records all events of programs
    #[arg(short, long = "schema", value_name = "SCHEMA")]
    pub schemas: Vec<String>,
    /// Record system calls, by name or class as for strace: fsync, %network, '!futex' (schema
    /// 'syscalls'); or trace events of the kernel, by the names that perf and trace-cmd use:
    /// sched_switch, block:block_rq_issue. '*' and '?' match any characters, and one. A schema is
    /// made from the kernel's description of the event; 'klogger show -e NAME' prints it
    #[arg(short, long = "event", value_name = "EVENT|CALL", value_delimiter = ',')]
    pub events: Vec<String>,
    /// The system calls that -e names, if it names some.
    #[arg(skip)]
    pub calls: BTreeSet<String>,
    /// Engine [default: auto]; 'klogger list --engines' lists those that can run here
    #[arg(long, value_name = "ENGINE", value_parser = engines::choices())]
    pub engine: Option<&'static Choice>,
    /// For --engine kernel: load modules from this directory (of 'klogger build -o DIR') instead of
    /// building them
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,
    /// Record all processes; with a command, while it runs
    #[arg(short, long, conflicts_with = "pids")]
    pub all: bool,
    /// Record these processes, or single threads of processes, and their descendants; with a
    /// command, while it runs
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = process)]
    pub pids: Vec<u32>,
    /// Of these processes, record only threads with this name, as the kernel has it (at most 15
    /// bytes). May be repeated: any of them
    #[arg(long = "comm", value_name = "NAME", value_parser = comm)]
    pub comms: Vec<String>,
    /// Only threads of these users, by name or number: their effective users, which 'ps' shows
    #[arg(long = "uid", value_name = "USER", value_delimiter = ',', value_parser = user)]
    pub users: Vec<User>,
    /// Only threads in this cgroup and its descendants: a folder, its path below the root of
    /// cgroups, or a line of /proc/PID/cgroup. May be repeated: any of them. Threads must match all
    /// of --comm, --uid and --cgroup that are given; without -a, -p and COMMAND they are those of
    /// the whole system
    #[arg(long = "cgroup", value_name = "PATH", value_parser = cgroup)]
    pub cgroups: Vec<Cgroup>,
    /// End after this time: 500ms, 30s, 5m, 1h. A command that still runs gets SIGTERM
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Ring of each CPU: 64K, 4M, ...; rounded up to a power of two [default: 4M, and rings grow]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub buffer_size: Option<u64>,
    /// Ring of each thread of a program: 64K, 4M, ...; rounded up to a power of two
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = user_size)]
    pub user_buffer: u64,
    /// Memory limit for the rings of all CPUs, which grow up to it if they fill up too fast
    /// [default: a sixteenth of available memory, at most 1G; with --buffer-size they do not grow],
    /// and for the rings of all programs [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub max_memory: Option<u64>,
    /// Low-water mark: drain a ring when less than this percentage of it is free
    #[arg(long, value_name = "PERCENT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=90))]
    pub lowwater: u32,
    /// Log at most N of this event per second, on all CPUs together (also 10K/s, 1M/s), and count
    /// the others. In EVENT, '*' and '?' match any characters, and one. May be repeated
    #[arg(long, value_name = "EVENT=N/s", value_parser = rate)]
    pub rate_limit: Vec<RateLimit>,
    /// Log an event only if it matches: 'SCHEDOUT: prio < 120 && cpu == 0'. It is decided before
    /// space in a ring is taken, by code that clang compiles now. Fields are compared as with
    /// 'klogger cat --where', except regular expressions and names of threads. May be repeated,
    /// once for each event
    #[arg(short = 'w', long = "where", value_name = "EVENT: EXPRESSION", value_parser = condition)]
    pub conditions: Vec<Condition>,
    /// Act when something happens: 'SIGNALLED where sig == 11: mark "crash", run "uptime"'. The
    /// condition is as with --where; each hit is logged as TRIGGERED. Actions: mark "TEXT", enable
    /// EVENT, disable EVENT, stop, snapshot, run "COMMAND"; by default for one hit a second. May be
    /// repeated. See docs/triggers.md
    #[arg(long = "trigger", value_name = "EVENT where EXPRESSION: ACTION", value_parser = trigger)]
    pub triggers: Vec<Trigger>,
    /// Only events about this device: MAJOR:MINOR, or its file, as in /dev/vda. Applies to events
    /// with a field 'as device'; as --where, it is compiled now, and the others are not logged. May
    /// be repeated: any of them
    #[arg(long = "device", value_name = "DEVICE", value_parser = device)]
    pub devices: Vec<Device>,
    /// Only events about this network namespace: a process, a name of 'ip netns', or a file.
    /// Applies to events with a field 'netns'. May be repeated: any of them
    #[arg(long = "netns", value_name = "NAMESPACE", value_parser = namespace)]
    pub namespaces: Vec<Namespace>,
    /// Only events about this file or folder, and what is below it. Applies to events with a text
    /// 'as path', as it was logged: links are not followed. May be repeated: any of them
    #[arg(long = "path", value_name = "PATH", value_parser = prefix)]
    pub paths: Vec<Prefix>,
    /// Set a parameter of a schema: 'slow=10ms', or 'io.slow=10ms' if several schemata have it.
    /// Nothing is compiled. 'klogger show SCHEMA' lists them. May be repeated
    #[arg(long = "set", value_name = "PARAMETER=VALUE", value_parser = setting)]
    pub settings: Vec<Setting>,
    /// Log events on these CPUs only: 0-3,5. Those that name threads and processes (PROCESS_*) are
    /// logged on all
    #[arg(long = "cpu", value_name = "LIST", value_delimiter = ',', value_parser = cpus)]
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Start with these events disabled; 'klogger enable' enables them
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub disable: Vec<String>,
    /// Do not measure the cost of events, which delays the start by some hundredths of a second
    #[arg(long)]
    pub no_calibrate: bool,
    /// The command, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `--buffer-size`, and the memory for rings of programs, if they are not given.
const BUFFER_DEFAULT: u64 = 4 << 20;
const USER_MEMORY_DEFAULT: u64 = 256 << 20;
/// Rings of CPUs take at most this together, unless --max-memory says otherwise.
const RING_MEMORY_MAX: u64 = 1 << 30;

/// What a recording needs besides its rings, in a control group with little memory: its own tables
/// and those of the kernel.
const BESIDES: u64 = 64 << 20;
const BUFFER_MIN: u64 = 64 << 10;

/// The size of the ring of each CPU, if it is not given: where little memory is left, smaller ones.
/// There are two sets of them at times, and as much is on the way to the log.
fn buffer_default(room: Option<u64>, cpus: u64) -> u64 {
    let Some(room) = room else { return BUFFER_DEFAULT };
    let each = room.saturating_sub(BESIDES) / (4 * cpus.max(1));
    let power = if each == 0 { 0 } else { 1 << each.ilog2() };
    power.clamp(BUFFER_MIN, BUFFER_DEFAULT)
}

/// The same for the rings of all programs together.
fn user_memory_default(room: Option<u64>) -> u64 {
    room.map_or(USER_MEMORY_DEFAULT, |room| (room / 4).min(USER_MEMORY_DEFAULT))
}

/// Memory for rings of CPUs. If only their size is given, they do not grow.
fn ring_memory(buffer_size: Option<u64>, max_memory: Option<u64>, room: Option<u64>) -> u64 {
    match (max_memory, buffer_size) {
        (Some(most), _) => most,
        (None, Some(_)) => 0,
        // If it is not known, which the ledger says, they do not grow.
        (None, None) => room.map_or(0, |room| room / 16).min(RING_MEMORY_MAX),
    }
}

/// The value of -s for the schemata of all programs.
pub const PROGRAMS: &str = "programs";

/// What the commands differ in.
pub struct How {
    pub output: PathBuf,
    pub mode: u32,
    pub compression: Compression,
    pub overwrite: bool,
    pub segments: Option<Plan>,
    pub launch: Launch,
    pub follower: Option<Box<dyn Follower>>,
    pub snapshots: Option<snapshots::Options>,
}

/// The options, checked, and the schemata, compiled.
pub struct Prepared<'a> {
    what: &'a What,
    choice: &'static Choice,
    threads: Threads,
    target: Target,
    cpus: Vec<u32>,
    pub units: Vec<CompiledSchema>,
    programs: bool,
    conditions: Vec<Condition>,
    resident: Vec<String>,
    modules: Option<PathBuf>,
}

impl What {
    /// The engines that may take part.
    pub fn choice(&self) -> &'static Choice {
        self.engine.unwrap_or(&CHOICES[0])
    }

    pub fn prepare(&self) -> Result<Prepared<'_>, Failure> {
        // Each map and program of the kernel is one.
        files::raise_limit();
        let threads = target::threads(self);
        let target = target(self, &threads)?;
        let choice = self.choice();
        let cpus = target::cpus(&self.cpus)?;
        let places = target.programs(&self.command);
        let (mut units, programs) = schemas(self, choice, &places)?;
        calls::narrow(&mut units, &self.calls);
        parameters::set(&mut units, &self.settings, choice)?;
        let conditions = narrowed(self, &mut units, (choice, programs), &places)?;
        let (resident, modules) = match (choice.includes(&kernel::INFO), &self.modules) {
            (true, folder) => modules(&units, folder.as_deref())?,
            (false, Some(_)) => {
                return Err(
                    Failure::new("--modules is for the kernel engine").help("add --engine kernel")
                );
            }
            (false, None) => (Vec::new(), None),
        };
        Ok(Prepared {
            what: self,
            choice,
            threads,
            target,
            cpus,
            units,
            programs,
            conditions,
            resident,
            modules,
        })
    }
}

impl Prepared<'_> {
    /// The name of the first schema.
    pub fn name(&self) -> &str {
        self.units.first().map_or(PROGRAMS, |unit| unit.schema.name.as_str())
    }

    pub fn options(self, how: How) -> Result<Options, Failure> {
        let what = self.what;
        if how.overwrite && !what.triggers.is_empty() {
            let message = "--trigger: a flight recorder (--overwrite) does not look at its events";
            return Err(Failure::new(message).help("record without --overwrite"));
        }
        let room = machine::memory_available();
        let cpus = machine::online_cpus()?.len() as u64;
        // Whoever reads a pipe has signals end the recorder at the end.
        let tell_fetching = match is_stdout(&how.output) {
            true => messages::fetching_to_the_end,
            false => messages::fetching,
        };
        Ok(Options {
            choice: self.choice,
            request: Request {
                probes: self.choice.has_probes(),
                builtin: bundled::builtin()?,
                units: self.units,
                resident: self.resident,
                modules: self.modules,
                programs: self.programs,
                target: self.target,
                threads: self.threads,
                command: what.command.clone(),
                cpus: self.cpus,
                buffer_size: what.buffer_size.unwrap_or_else(|| buffer_default(room, cpus)),
                user_buffer: what.user_buffer,
                max_memory: what.max_memory.unwrap_or_else(|| user_memory_default(room)),
                ring_memory: ring_memory(what.buffer_size, what.max_memory, room),
                lowwater: what.lowwater,
                overwrite: how.overwrite,
                calibrate: !what.no_calibrate,
                disabled: what.disable.clone(),
            },
            output: how.output,
            segments: how.segments,
            mode: how.mode,
            compression: how.compression,
            duration: what.duration,
            limits: what.rate_limit.clone(),
            conditions: self.conditions,
            triggers: what.triggers.clone(),
            launch: how.launch,
            command_line: crate::words(),
            follower: how.follower,
            snapshots: how.snapshots,
            tell_hung: messages::note,
            tell_fetching,
        })
    }
}

/// Compiles --where, --device, --netns, --path and --trigger into the schemata.
fn narrowed(
    args: &What,
    units: &mut [CompiledSchema],
    (choice, programs): (&Choice, bool),
    places: &Programs,
) -> Result<Vec<Condition>, Failure> {
    let mut changes = Changes::default();
    conditions::set(units, &args.conditions, choice, &mut changes)?;
    let objects =
        Objects { devices: &args.devices, namespaces: &args.namespaces, paths: &args.paths };
    for option in objects.options() {
        check_engine(option, choice)?;
    }
    objects.set(units, &mut changes)?;
    triggers::set(units, &args.triggers, (choice, programs), &mut changes)?;
    changes.compile(units, places)
}

/// The schemata that were named, and whether those of all programs are requested. `places`: what
/// names of programs in probes mean.
fn schemas(
    args: &What,
    choice: &Choice,
    places: &Programs,
) -> Result<(Vec<CompiledSchema>, bool), Failure> {
    let words = schema_names(&args.schemas)?;
    let nothing = words.is_empty() && args.events.is_empty();
    let programs = words.iter().any(|w| w == PROGRAMS) || (nothing && !choice.has_probes());
    if programs && !choice.finds_programs() {
        let name = choice.name;
        return Err(Failure::new(format!(
            "-s programs needs the user engine, which --engine {name} excludes",
        ))
        .help("remove --engine: the kernel's probes and programs are recorded together"));
    }
    if nothing && !programs {
        return Err(Failure::new("no schema to record with").help(
            "give one with -s ('klogger list' shows those there are), or record programs: \
             --engine user",
        ));
    }
    let has_bpf = choice.includes(&bpf::INFO);
    if !args.events.is_empty() && !has_bpf {
        let name = choice.name;
        return Err(Failure::new(format!(
            "-e needs the bpf engine, which --engine {name} excludes"
        ))
        .help("remove --engine"));
    }
    let prepare = |schema: &Schema| match choice.has_probes() {
        true => load_modules(schema),
        false => Ok(()),
    };
    let named = words.iter().filter(|w| *w != PROGRAMS);
    let units = named.map(|s| schemata::unit(s, has_bpf, places, &prepare));
    let mut units = units.collect::<Result<Vec<_>, _>>()?;
    if !args.events.is_empty() {
        host_kernel::check_privilege()?;
        units.push(trace_events::unit(&args.events)?);
    }
    Ok((units, programs))
}

/// Loads the modules that a schema declares, before its C is compiled with their types.
fn load_modules(schema: &Schema) -> Result<(), Failure> {
    host_kernel::load_needed(schema)?.iter().for_each(|note| messages::note(note));
    Ok(())
}

/// The schemata that the kernel has already, and the folder with the modules of the others. Builds
/// them if necessary.
fn modules(
    units: &[CompiledSchema],
    folder: Option<&Path>,
) -> Result<(Vec<String>, Option<PathBuf>), Failure> {
    host_kernel::check_module_privilege()?;
    let builtin = bundled::builtin()?.schema;
    let schemas: Vec<&Schema> = units.iter().map(|u| &u.schema).collect();
    let resident = kernel::resident(&[&[&builtin], &schemas[..]].concat())?;
    let is_missing = |s: &&Schema| !s.probes.is_empty() && !resident.contains(&s.name);
    let missing: Vec<&Schema> = schemas.into_iter().filter(is_missing).collect();
    if missing.is_empty() && resident.contains(&builtin.name) {
        return Ok((resident, None));
    }
    host_kernel::check_takes_modules()?;
    if let Some(folder) = folder {
        return Ok((resident, Some(folder.into())));
    }
    if let Some(folder) = kbuild::installed(&missing, &builtin) {
        return Ok((resident, Some(folder)));
    }
    let built = build(&missing, |builtin| kbuild::cached(&missing, builtin))?;
    Ok((resident, built.core.parent().map(Path::to_path_buf)))
}
