// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The part of a recording that is in programs: what they are told, and the engine that empties
//! their rings.

use super::{Engine, Options, Target};
use crate::pipeline::Flow;
use klogger_engines::scope::Scope as KernelScope;
use klogger_engines::user::{
    self, Catalogue, Places, Programs, Recorded, SLOTS_MAX, Scope, Settings,
};
use klogger_log::ledger::{Entry, Key};
use klogger_os as os;
use klogger_os::Error;
use klogger_ring::clock::{Source, best_source};
use klogger_schema::layout::EventLayout;
use klogger_toolchain::compiled_schema::CompiledSchema;

/// Before the recording begins.
pub struct Plan {
    token: u64,
    source: Source,
    /// Why our own programs can have no files, if so.
    pub no_folder: Option<String>,
}

/// Programs that are being recorded, and what was amiss from the beginning.
pub struct Part {
    programs: Programs,
    no_folder: Option<String>,
}

/// The variable that a command finds in its environment.
pub const WISH: &str = "KLOGGER_RECORD";

impl Plan {
    /// Makes the folder for our own programs' files. `alone`: nothing else is recorded.
    pub fn new(options: &Options, alone: bool) -> Result<Plan, Error> {
        let no_folder = match Places::from_environment().make() {
            Err(e) if alone && matches!(options.target, Target::Command(_)) => return Err(e),
            Err(e) => Some(e.message),
            Ok(()) => None,
        };
        Ok(Plan { token: os::files::random(), source: best_source(), no_folder })
    }

    /// What the command's programs are told, so that they log from their first line on:
    /// `1:TOKEN:PID:RING:SLOTS:CLOCK:SCHEMATA:OFF`, as program_shm.h has it.
    pub fn wish(&self, options: &Options) -> (&'static str, String) {
        let slots = (options.max_memory / user::slot_memory(options.user_buffer))
            .clamp(1, SLOTS_MAX as u64);
        let clock = u8::from(self.source == Source::Tsc);
        let names: Vec<&str> = user_units(options).map(|u| u.schema.name.as_str()).collect();
        let schemata = if options.programs { "*".into() } else { names.join(",") };
        let (pid, off) = (std::process::id(), options.disabled.join(","));
        let text = format!(
            "1:{:x}:{pid}:{}:{slots}:{clock}:{schemata}:{off}",
            self.token, options.user_buffer
        );
        (WISH, text)
    }

    /// Begins to look for programs.
    pub fn start(
        self,
        options: &Options,
        builtin: &CompiledSchema,
        flow: &Flow,
        command: Option<u32>,
        kernel_scope: Option<KernelScope>,
    ) -> (Part, Vec<String>) {
        let scope = match (&options.target, command) {
            (Target::All, _) => Scope::All,
            (Target::Processes(pids), _) => Scope::Processes(pids.clone()),
            (Target::Command(_), pid) => Scope::Command { pid: pid.unwrap_or_default() },
        };
        let units = options.units.iter().map(|u| (u, options.is_user(u)));
        let units = std::iter::once((builtin, false)).chain(units);
        let catalogue = Catalogue::new(units, options.programs, &options.disabled);
        // The kernel's probes know more of processes than we could find out.
        let tells_processes = kernel_scope.is_none();
        let in_kernel_scope = move |pid| kernel_scope.as_ref().is_some_and(|s| s.contains(pid));
        let settings = Settings {
            scope,
            source: self.source,
            max_memory: options.max_memory,
            token: self.token,
            in_kernel_scope: Box::new(in_kernel_scope),
        };
        let out = flow.output(tells_processes);
        let (programs, notes) =
            Programs::start(settings, catalogue, out, Places::from_environment());
        (Part { programs, no_folder: self.no_folder }, notes)
    }
}

impl Part {
    /// Switches an event on or off in all programs; `None` if there is none of this name.
    pub fn switch(&self, event: &str, on: bool) -> Option<EventLayout> {
        self.programs.switch(event, on)
    }

    /// All events that there are by now.
    pub fn events(&self) -> Vec<EventLayout> {
        self.programs.events()
    }

    /// Ends it. The strings are for people.
    pub fn stop(self, options: &Options) -> (Recorded, Vec<String>) {
        let mut recorded = self.programs.stop();
        let mut notes = Vec::new();
        if recorded.programs == 0 && recorded.entries.is_empty() && self.no_folder.is_none() {
            notes.push(nobody_came(options));
        }
        if let Some(why) = self.no_folder {
            recorded.entries.push(Entry::new(Key::UserRefused).detail(&why));
        }
        (recorded, notes)
    }
}

fn nobody_came(options: &Options) -> String {
    let names: Vec<&str> = user_units(options).map(|u| u.schema.name.as_str()).collect();
    match options.programs || names.is_empty() {
        true => "no program that logs events of its own was there".into(),
        false => format!(
            "no program that logs events of {} was there: include its header ('klogger gen')",
            names.join(" or ")
        ),
    }
}

/// Whether anything is to be recorded from programs.
pub fn are_wanted(options: &Options) -> bool {
    options.engine != Engine::Bpf && (options.programs || user_units(options).next().is_some())
}

fn user_units(options: &Options) -> impl Iterator<Item = &CompiledSchema> {
    options.units.iter().filter(|u| options.is_user(u))
}
