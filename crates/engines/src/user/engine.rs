// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The `Engine` trait for the user engine.

use super::{Catalogue, Places, Programs, Recorded, SLOTS_MAX, Scope, Settings, slot_memory};
use crate::engine::{Engine, EngineInfo, Start};
use crate::request::{Request, Target};
use klogger_codegen::user::MAKER;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_os as os;
use klogger_os::Error;
use klogger_ring::clock::{Source, best_source};
use klogger_schema::layout::EventLayout;
use klogger_toolchain::compiled_schema::CompiledSchema;

/// Its entry in the registry.
pub const INFO: EngineInfo = EngineInfo {
    name: "user",
    description: "programs that include a generated header; works without root",
    check: || Places::from_environment().check(),
    probes: false,
    finds_programs: true,
    maker: &MAKER,
    plan: None,
    build: None,
    logs,
    prepare: |request, alone| Ok(Box::new(UserEngine::prepare(request, alone)?)),
};

/// The environment variable of a recorded command.
const VARIABLE: &str = "KLOGGER_RECORD";

/// Programs that are recorded, or will be.
pub struct UserEngine {
    token: u64,
    source: Source,
    /// The reason if there is no folder for the files of our own programs.
    no_folder: Option<String>,
    programs: Option<Programs>,
    recorded: Option<Recorded>,
}

/// Whether the schema has events that no probe logs, or probes are not recorded at all.
fn logs(request: &Request, unit: &CompiledSchema) -> bool {
    let schema = &unit.schema;
    if schema.name == request.builtin.schema.name || request.resident.contains(&schema.name) {
        return false;
    }
    let is_called =
        |name: &str| schema.probes.iter().flat_map(|p| &p.calls).any(|c| c.event == name);
    !request.probes || schema.events.iter().any(|e| e.poll.is_none() && !is_called(&e.name))
}

impl UserEngine {
    /// Makes the folder for the files of our own programs. `alone`: nothing else would be recorded.
    fn prepare(request: &Request, alone: bool) -> Result<UserEngine, Error> {
        let no_folder = match Places::from_environment().make() {
            Err(e) if alone && matches!(request.target, Target::Command) => return Err(e),
            Err(e) => Some(e.message),
            Ok(()) => None,
        };
        let (token, source) = (os::files::random(), best_source());
        Ok(UserEngine { token, source, no_folder, programs: None, recorded: None })
    }

    /// Warnings before it begins.
    fn notes(&self, request: &Request) -> Vec<String> {
        let kept = "--overwrite is for events of the kernel; those of programs are kept whole";
        self.no_folder.iter().cloned().chain(request.overwrite.then(|| kept.into())).collect()
    }
}

impl Engine for UserEngine {
    fn info(&self) -> &'static EngineInfo {
        &INFO
    }

    /// Arms the recorded command, so that it logs from its start:
    /// `1:TOKEN:PID:RING:SLOTS:CLOCK:SCHEMATA:OFF`, described in program_shm.h.
    fn environment(&self, request: &Request) -> Option<(&'static str, String)> {
        // With -p, the command only says how long to record.
        if matches!(request.target, Target::Processes(_)) {
            return None;
        }
        let slots = request.max_memory / slot_memory(request.user_buffer);
        let slots = slots.clamp(1, SLOTS_MAX as u64);
        let clock = u8::from(self.source == Source::Tsc);
        let schemata = if request.programs { "*".into() } else { names(request).join(",") };
        let (pid, ring, off) =
            (std::process::id(), request.user_buffer, request.disabled.join(","));
        let token = self.token;
        Some((VARIABLE, format!("1:{token:x}:{pid}:{ring}:{slots}:{clock}:{schemata}:{off}")))
    }

    fn choose_cpus(&mut self, _cpus: &[u32]) -> Result<(), Error> {
        Err(Error::new("--cpu: events of programs have no CPU")
            .help("record without --cpu, or without schemata of programs"))
    }

    fn ring_size(&self, request: &Request) -> u64 {
        request.user_buffer
    }

    /// Starts to look for programs.
    fn start(&mut self, request: &Request, start: Start) -> Result<Vec<String>, Error> {
        let scope = match (&request.target, start.command) {
            (Target::All, _) => Scope::All,
            (Target::Processes(pids), _) => Scope::Processes(pids.clone()),
            (Target::Command, pid) => Scope::Command { pid: pid.unwrap_or_default() },
        };
        let units = request.numbered().map(|(unit, _)| (unit, logs(request, unit)));
        let catalogue = Catalogue::new(units, request.programs, &request.disabled);
        // If probes run in the kernel, they describe processes, with more detail than is known
        // here.
        let tells_processes = start.scope.is_none();
        let kernel_scope = start.scope.cloned();
        let in_kernel_scope = move |pid| kernel_scope.as_ref().is_some_and(|s| s.contains(pid));
        let settings = Settings {
            scope,
            source: self.source,
            max_memory: request.max_memory,
            token: self.token,
            in_kernel_scope: Box::new(in_kernel_scope),
        };
        let out = super::Output::new(start.outlet, tells_processes);
        let mut notes = self.notes(request);
        let (programs, amiss) =
            Programs::start(settings, catalogue, out, Places::from_environment())?;
        self.programs = Some(programs);
        notes.extend(amiss);
        Ok(notes)
    }

    fn events(&self) -> Vec<EventLayout> {
        self.programs.as_ref().map(Programs::events).unwrap_or_default()
    }

    fn set_enabled(&self, event: &EventLayout, on: bool) {
        self.programs.iter().for_each(|p| drop(p.switch(&event.name, on)));
    }

    fn stop(&mut self, request: &Request) -> Vec<String> {
        let Some(programs) = self.programs.take() else { return Vec::new() };
        let mut recorded = programs.stop();
        let mut notes = Vec::new();
        if recorded.programs == 0 && recorded.entries.is_empty() && self.no_folder.is_none() {
            notes.push(nobody_came(request));
        }
        if let Some(why) = &self.no_folder {
            recorded.entries.push(Entry::new(Key::UserRefused).detail(why));
        }
        self.recorded = Some(recorded);
        notes
    }

    fn account(&mut self, ledger: &mut Ledger) {
        if let Some(recorded) = self.recorded.take() {
            ledger.entries.extend(recorded.entries);
            ledger.user_clock = Some(recorded.clock);
        }
    }
}

fn nobody_came(request: &Request) -> String {
    let names = names(request);
    match request.programs || names.is_empty() {
        true => "found no program that logs events".into(),
        false => format!(
            "found no program that logs events of {}: include its header ('klogger gen')",
            names.join(" or ")
        ),
    }
}

/// Names of the schemata of which programs may log events.
fn names(request: &Request) -> Vec<&str> {
    INFO.units(request).iter().map(|(unit, _)| unit.schema.name.as_str()).collect()
}
