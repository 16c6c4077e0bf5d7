// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The list of engines, and the values of `--engine`. All code that lists, describes or chooses an
//! engine uses these tables: one more engine is one more line in each.

use crate::engine::Engine;
use crate::request::Request;
use crate::{bpf, kernel, user};
use klogger_os::Error;
use klogger_toolchain::compiled_schema::CompiledSchema;

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
    /// Whether it logs events of a schema.
    pub logs: fn(&Request, &CompiledSchema) -> bool,
    /// Prepares it: loads and checks everything, and attaches nothing.
    pub prepare: fn(&Request) -> Result<Box<dyn Engine>, Error>,
}

/// A value of `--engine`: the engines that may take part in a recording.
pub struct Choice {
    pub name: &'static str,
    pub description: &'static str,
    /// At most one of them has rings of CPUs; it is the first.
    pub engines: &'static [&'static EngineInfo],
}

/// Every engine.
pub static ENGINES: [&EngineInfo; 3] = [&bpf::INFO, &kernel::INFO, &user::INFO];

/// Every value of `--engine`; the first one is the default.
pub static CHOICES: [Choice; 4] = [
    Choice {
        name: "auto",
        description: "bpf or user or both, by what the schemata have",
        engines: &[&bpf::INFO, &user::INFO],
    },
    Choice { name: bpf::INFO.name, description: bpf::INFO.description, engines: &[&bpf::INFO] },
    Choice {
        name: kernel::INFO.name,
        description: kernel::INFO.description,
        engines: &[&kernel::INFO, &user::INFO],
    },
    Choice { name: user::INFO.name, description: user::INFO.description, engines: &[&user::INFO] },
];

impl Choice {
    /// The choice of this name.
    pub fn find(name: &str) -> Option<&'static Choice> {
        CHOICES.iter().find(|c| c.name == name)
    }

    /// Whether probes in the kernel may log.
    pub fn has_probes(&self) -> bool {
        self.engines.iter().any(|e| e.probes)
    }

    /// Whether programs may log.
    pub fn finds_programs(&self) -> bool {
        self.engines.iter().any(|e| e.finds_programs)
    }

    /// Whether an engine may take part.
    pub fn includes(&self, engine: &EngineInfo) -> bool {
        self.engines.iter().any(|e| e.name == engine.name)
    }

    /// Whether a recording with it can run here. It can if the engine of that name can or, if there
    /// is none of that name, any of its engines. The error has the reason.
    pub fn check(&self) -> Result<(), Error> {
        match self.engines.iter().find(|e| e.name == self.name) {
            Some(engine) => (engine.check)(),
            None => {
                let mut refusals = self.engines.iter().map(|e| (e.check)());
                let first = refusals.next().unwrap_or(Ok(()));
                first.or_else(|e| if refusals.any(|r| r.is_ok()) { Ok(()) } else { Err(e) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_can_be_chosen_by_its_name() {
        for engine in ENGINES {
            let choice = Choice::find(engine.name).unwrap();
            assert!(choice.includes(engine));
        }
        assert!(Choice::find("none").is_none());
    }

    /// Blocks of a CPU are numbered by one drain thread.
    #[test]
    fn only_the_first_engine_of_a_choice_has_rings_of_cpus() {
        for choice in &CHOICES {
            assert!(choice.engines.iter().skip(1).all(|e| !e.probes), "{}", choice.name);
        }
    }
}
