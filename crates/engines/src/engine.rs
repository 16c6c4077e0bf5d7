// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The `Engine` trait: what logs events, and shares rings with the recorder.
//!
//! The recorder calls the methods in the order in which they are declared. An engine either offers
//! the rings of CPUs, which the recorder drains ([`Engine::cpu_rings`]), or drains its own rings
//! and hands blocks of records to the recorder ([`Engine::start`]). A method that an engine does
//! not support has a default answer.

use crate::cpu_rings::CpuRings;
use crate::left_names::LeftNames;
use crate::losses::{Fired, LeftOut, MissedHits};
use crate::request::Request;
use crate::scope::Scope;
use crate::stacks::StackTable;
use crate::threads::Threads;
use crate::user_code::UserCode;
use klogger_codegen::made::Maker;
use klogger_log::ledger::Ledger;
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os::Error;
use klogger_ring::block::Outlet;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Probe, Schema};
use klogger_toolchain::clang::CompileError;
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan};
use klogger_toolchain::kbuild::Built;
use std::path::Path;

/// What is known of an engine before it is prepared.
pub struct EngineInfo {
    /// Its name in the log and on the command line.
    pub name: &'static str,
    /// What logs events, in half a line.
    pub description: &'static str,
    /// Whether it can run on this machine. The error has the reason and a remedy.
    pub check: fn() -> Result<(), Error>,
    /// It attaches the probes of schemata in the kernel, and has rings of CPUs.
    pub probes: bool,
    /// It finds programs that log, also with schemata that are not on the command line.
    pub finds_programs: bool,
    /// What it makes of a schema.
    pub maker: &'static Maker,
    /// What becomes of the probes of a schema on the kernel that runs, without attaching any of
    /// them; `None` if it attaches none.
    pub plan: Option<Predict>,
    /// Builds what it needs for a kernel that need not be the one that runs; `None` if it needs
    /// nothing.
    pub build: Option<Build>,
    /// Whether it logs events of a schema.
    pub logs: fn(&Request, &CompiledSchema) -> bool,
    /// Prepares it: loads and checks everything, and attaches nothing. `alone`: no other engine
    /// takes part in the recording.
    pub prepare: Prepare,
}

/// Says what becomes of the probes of a schema.
pub type Predict = fn(&Schema) -> Result<Forecast, Error>;

/// Prepares an engine.
pub type Prepare = fn(request: &Request, alone: bool) -> Result<Box<dyn Engine>, Error>;

/// What an engine expects of probes.
pub struct Forecast {
    /// Of each probe of the schema.
    pub plans: Vec<Plan>,
    /// What can only be known later, in half a line.
    pub unchecked: Option<&'static str>,
}

/// Builds kernel modules against a kernel's build tree, and copies them to a folder.
pub type Build = fn(
    schemas: &[&Schema],
    builtin: &Schema,
    kernel: &Path,
    out: &Path,
) -> Result<Built, CompileError>;

impl EngineInfo {
    /// The units whose events it logs, each with the id of its first event.
    pub fn units<'a>(&self, request: &'a Request) -> Vec<(&'a CompiledSchema, u16)> {
        request.numbered().filter(|(unit, _)| (self.logs)(request, unit)).collect()
    }
}

/// Made by [`EngineInfo::prepare`]: everything is loaded and checked, nothing is attached.
pub trait Engine {
    /// Its entry in the registry.
    fn info(&self) -> &'static EngineInfo;

    /// Limits events of an id to `per_second`, on all CPUs together; those above are counted.
    /// Called before [`Engine::attach`].
    fn limit(&mut self, _id: u16, _per_second: u64) -> Result<(), Error> {
        let name = self.info().name;
        Err(Error::new(format!("the {name} engine cannot limit the rate of events"))
            .help("record without --rate-limit, or with --engine bpf"))
    }

    /// Logs events on these CPUs only, except klogger's own. Called before [`Engine::attach`].
    fn choose_cpus(&mut self, _cpus: &[u32]) -> Result<(), Error> {
        let name = self.info().name;
        Err(Error::new(format!("--cpu: the {name} engine cannot leave out CPUs"))
            .help("record without --cpu, and select CPUs of the log with 'klogger cat --cpu LIST'"))
    }

    /// Logs events of these threads only. Called before [`Engine::attach`].
    fn choose_threads(&mut self, threads: &Threads) -> Result<(), Error> {
        let (name, option) = (self.info().name, threads.option().unwrap_or_default());
        Err(Error::new(format!("{option}: the {name} engine cannot choose threads"))
            .help("only the bpf engine can: record with --engine bpf, or processes with -p"))
    }

    /// What events cost, if it was measured.
    fn costs(&self) -> Option<Costs> {
        None
    }

    /// A variable for the environment of the recorded command.
    fn environment(&self, _request: &Request) -> Option<(&'static str, String)> {
        None
    }

    /// Bytes of one ring.
    fn ring_size(&self, request: &Request) -> u64;

    /// CPUs that have a ring: numbers below this.
    fn cpus(&self) -> usize {
        0
    }

    /// The rings of CPUs, for the recorder to drain; `None` if the engine drains its rings itself.
    /// Called once.
    fn cpu_rings(&self) -> Result<Option<CpuRings>, Error> {
        Ok(None)
    }

    /// Attaches every probe that can be. All events are off: [`Engine::disable`] was called before.
    fn attach(&mut self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    /// Whether each probe is attached, and if not, why.
    fn probes(&self) -> &[ProbeState] {
        &[]
    }

    /// The names of the places that `klogger_place()` has numbers for, from 1 on.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }

    /// Switches events on, except `disabled`. The variables that schemata keep between hits are
    /// reset.
    fn enable(&self, _disabled: &[u16]) -> Result<(), Error> {
        Ok(())
    }

    /// Logs what exists at the start or at the end, while events are on. `make_room` empties the
    /// rings. Returns why some of it is missing.
    fn list(&self, _moment: Moment, _make_room: &mut dyn FnMut()) -> Vec<Error> {
        Vec::new()
    }

    /// The threads that its probes log, if they follow processes.
    fn scope(&self) -> Option<&Scope> {
        None
    }

    /// Names that threads out of scope had until they ended or were renamed, if they are kept.
    fn left_names(&self) -> Result<Option<LeftNames>, Error> {
        Ok(None)
    }

    /// Lets the rings outlive this process if it is killed, together with `facts`: what is needed
    /// to read them.
    fn keep(&mut self, _facts: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    /// Begins to drain its own rings. Returns warnings for the user.
    ///
    /// # Errors
    /// There may be no more threads.
    fn start(&mut self, _request: &Request, _start: Start) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Events known by now: those it began with, and those that came while it records.
    fn events(&self) -> Vec<EventLayout> {
        Vec::new()
    }

    /// Switches an event on or off. Events of other engines are ignored.
    fn set_enabled(&self, event: &EventLayout, on: bool);

    /// Called several times a second while events are on: looks for skipped hits, and attaches
    /// copies where that helps.
    fn look(&self) {}

    /// Switches off all events of probes.
    fn disable(&self) {}

    /// Detaches all probes. When it returns, none runs any more.
    fn detach(&mut self) {}

    /// Ends what [`Engine::start`] began, after all remaining records were handed over. Returns
    /// warnings for the user.
    fn stop(&mut self, _request: &Request) -> Vec<String> {
        Vec::new()
    }

    /// Adds ledger entries that only the engine can make: its clock, and losses without a method
    /// here.
    fn account(&mut self, _ledger: &mut Ledger) {}

    /// What rate limits have left out, by event and CPU.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Events lost on CPUs without a ring, by id.
    fn ringless(&self, _id: u16) -> u64 {
        0
    }

    /// Strings and arrays of an event that could not be read, as far as they are counted.
    fn unread(&self, _id: u16) -> u64 {
        0
    }

    /// The hits of a trigger that were counted where it is compiled into an event; `None` if no
    /// event of this engine can have one.
    fn fired(&self, _trigger: u16) -> Option<Fired> {
        None
    }

    /// Hits of probes that the kernel skipped.
    fn missed_hits(&self) -> Vec<MissedHits> {
        Vec::new()
    }

    /// The kernel stacks that its events have the numbers of; `None` if it keeps none.
    fn stacks(&self) -> Option<&dyn StackTable> {
        None
    }

    /// Whether it runs probes, and cannot keep the stacks that they ask for.
    fn lacks_stacks(&self) -> bool {
        false
    }

    /// The user stacks that its events have the numbers of; `None` if it keeps none. Only after the
    /// probes are detached.
    fn user_code(&self) -> Option<UserCode> {
        None
    }
}

/// When what exists is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Start,
    End,
}

/// What an engine that drains its own rings is given.
pub struct Start<'a> {
    /// Where records are handed over.
    pub outlet: Outlet,
    /// The command that is recorded.
    pub command: Option<u32>,
    /// The threads that the probes of another engine log.
    pub scope: Option<&'a Scope>,
}

/// Why the alternatives of a probe were not attached, each reason once: several may have one name.
pub(crate) fn reasons(all: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    for reason in all {
        if !different.contains(&reason) {
            different.push(reason);
        }
    }
    different.join("; ")
}

/// The names of events that a probe logs.
pub fn events_of(probe: &Probe) -> Vec<String> {
    let mut events: Vec<String> = probe.calls.iter().map(|c| c.event.clone()).collect();
    events.dedup();
    events
}
