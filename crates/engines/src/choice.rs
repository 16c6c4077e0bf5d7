// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The engines that may take part in a recording, and those that do.

use crate::engine::EngineInfo;
use crate::request::{Request, schema_text};
use klogger_log::preamble::SchemaText;
use klogger_os::Error;
use klogger_toolchain::compiled_schema::CompiledSchema;

/// A value of `--engine`: the engines that may take part in a recording.
pub struct Choice {
    pub name: &'static str,
    pub description: &'static str,
    /// At most one of them has rings of CPUs; it is the first.
    pub engines: &'static [&'static EngineInfo],
}

impl Choice {
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

    /// The engines of a recording: the one named by `--engine`, and others that may take part and
    /// have something to log.
    pub fn engines_for(&self, request: &Request) -> Vec<&'static EngineInfo> {
        let is_wanted = |e: &&&'static EngineInfo| {
            e.name == self.name
                || (e.finds_programs && request.programs)
                || request.units.iter().any(|unit| (e.logs)(request, unit))
        };
        let wanted: Vec<_> = self.engines.iter().filter(is_wanted).copied().collect();
        match wanted[..] {
            // Nothing can log. The last engine reports it.
            [] => self.engines.last().copied().into_iter().collect(),
            _ => wanted,
        }
    }

    /// Whether probes in the kernel log events of a schema.
    pub fn is_probed(&self, request: &Request, unit: &CompiledSchema) -> bool {
        self.engines.iter().any(|e| e.probes && (e.logs)(request, unit))
    }

    /// How the log has a schema. It is marked if programs log events of it.
    pub fn schema_text(&self, request: &Request, unit: &CompiledSchema) -> SchemaText {
        let user = self.engines.iter().any(|e| !e.probes && (e.logs)(request, unit));
        schema_text(&unit.schema, user)
    }
}
