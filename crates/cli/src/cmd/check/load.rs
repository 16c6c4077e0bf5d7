// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check --load`: what the kernel's verifier says of the programs.

use crate::failure::Failure;
use crate::schemata::Opinion;
use klogger_codegen::KernelTypes;
use klogger_engines::bpf;
use klogger_os::outputs;
use klogger_schema::Diagnostic;
use klogger_schema::model::{Schema, Span};
use klogger_toolchain::compiled_schema::CompiledSchema;
use klogger_toolchain::host_kernel;
use std::path::Path;

/// Loads the programs of schemata, and keeps what the verifier said of those that it refused.
pub struct Loader {
    types: KernelTypes,
    log: String,
}

impl Loader {
    pub fn new() -> Result<Loader, Failure> {
        host_kernel::check_privilege().map_err(|e| {
            Failure::new(format!("--load loads programs as a recording does, and {}", e.message))
                .help("run klogger as root: sudo klogger check --load ...")
        })?;
        Ok(Loader { types: host_kernel::types()?, log: String::new() })
    }

    /// Adds to `opinion` which programs the kernel refuses. Returns whether it has taken all.
    pub fn load(&mut self, schema: &Schema, opinion: &mut Opinion) -> bool {
        let Some(object) = opinion.object.take().filter(|_| !opinion.is_refused()) else {
            return false;
        };
        let schema = opinion.schema.as_ref().unwrap_or(schema).clone();
        let unit = CompiledSchema { schema, object: Some(object) };
        match bpf::try_load(&unit, &self.types) {
            Ok(refused) => {
                opinion.found.extend(refused.iter().map(bpf::Refused::diagnostic));
                refused.iter().for_each(|r| self.log += &format!("{}\n", r.log));
            }
            Err(error) => {
                let found = Diagnostic::error(Span::default(), error.message);
                opinion.found.push(match error.help {
                    Some(help) => found.help(help),
                    None => found,
                });
            }
        }
        !opinion.is_refused()
    }

    /// Writes what the verifier said; an empty file if it refused nothing.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        outputs::write(file, self.log.as_bytes()).map_err(|e| {
            Failure::new(format!("cannot write {}: {e}", file.display()))
                .help("--verifier-log takes the name of a file that can be written")
        })
    }
}
