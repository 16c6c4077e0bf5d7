// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From an argument of `-s` to a compiled schema: a bundled one by name, or a file of the user's
//! own.

use crate::failure::Failure;
use crate::messages;
use crate::schema_file;
use klogger_codegen::KernelTypes;
use klogger_os::Error;
use klogger_schema::model::Schema;
use klogger_schema::nearest::did_you_mean;
use klogger_schema::{Diagnostic, Options, Severity};
use klogger_toolchain::bundled;
use klogger_toolchain::clang::{self, CompileError};
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan, faults, plan};
use klogger_toolchain::host_kernel;
use std::path::Path;

/// A name without a slash or an ending is a bundled schema; everything else is a file.
pub fn is_file(word: &str) -> bool {
    word.contains('/') || word.contains('.')
}

pub fn unknown(name: &str) -> Failure {
    let failure = Failure::new(format!("there is no bundled schema '{name}'"));
    let names = bundled::all().iter().map(|b| b.name);
    match did_you_mean(name, names) {
        Some(help) => failure.help(help),
        None => failure.help(
            "'klogger list' shows those there are; for a file of your own, give its \
                          path: ./my.klogger",
        ),
    }
}

/// The schema, not compiled.
pub fn schema(word: &str) -> Result<Schema, Failure> {
    if is_file(word) {
        return schema_file::load(Path::new(word), &Options::default());
    }
    let found = bundled::find(word).ok_or_else(|| unknown(word))?;
    Ok(found.load()?.schema)
}

/// The same, to look at: klogger's own schema too, which a recording has without being asked.
pub fn shown(word: &str) -> Result<Schema, Failure> {
    let own = bundled::builtin()?.schema;
    if word == own.name { Ok(own) } else { schema(word) }
}

/// The schema and, if requested, the programs of its probes. A schema of the user's own is compiled
/// for this machine's kernel.
pub fn unit(word: &str, probes: bool) -> Result<CompiledSchema, Failure> {
    if !is_file(word) && probes {
        return Ok(bundled::find(word).ok_or_else(|| unknown(word))?.load()?);
    }
    let schema = schema(word)?;
    match probes && !schema.probes.is_empty() {
        true => compiled(schema),
        false => Ok(CompiledSchema { schema, object: None }),
    }
}

fn compiled(schema: Schema) -> Result<CompiledSchema, Failure> {
    let types = host_kernel::types()?;
    let faults = faults(&schema, &plan(&schema, &types)?);
    show(&schema, &faults);
    if !faults.is_empty() {
        return Err(Failure::printed());
    }
    match clang::compile(&schema, &types) {
        Ok((object, warnings)) => {
            show(&schema, &warnings);
            Ok(CompiledSchema { schema, object: Some(object) })
        }
        Err(CompileError::Failed(error)) => Err(error.into()),
        Err(CompileError::Rejected(found)) => {
            show(&schema, &found.into_iter().map(|(_, d)| d).collect::<Vec<_>>());
            Err(Failure::printed())
        }
    }
}

/// What a kernel and the compiler report about a schema that parses.
#[derive(Default)]
pub struct Opinion {
    /// Errors and warnings.
    pub found: Vec<Diagnostic>,
    /// The plan of each probe, if there are types of a kernel to compare with.
    pub plans: Option<Vec<Plan>>,
    /// Why there are no types, or why the C could not be compiled.
    pub unchecked: Option<String>,
}

impl Opinion {
    /// `kernel`: the types of the running kernel, or of another.
    pub fn of(schema: &Schema, kernel: &Result<KernelTypes, Error>) -> Opinion {
        let mut opinion = Opinion::of_plans(schema, kernel);
        let (Ok(types), false) = (kernel, schema.probes.is_empty()) else { return opinion };
        match clang::compile(schema, types) {
            Ok((_, warnings)) => opinion.found.extend(warnings),
            Err(CompileError::Rejected(errors)) => {
                opinion.found.extend(errors.into_iter().map(|(_, d)| d))
            }
            Err(CompileError::Failed(error)) => opinion.unchecked = Some(error.message),
        }
        opinion
    }

    /// Checks its probes, but not its C.
    pub fn of_plans(schema: &Schema, kernel: &Result<KernelTypes, Error>) -> Opinion {
        match kernel.as_ref().map_err(Error::clone).and_then(|types| plan(schema, types)) {
            Ok(plans) => {
                Opinion { found: faults(schema, &plans), plans: Some(plans), unchecked: None }
            }
            Err(error) => Opinion { unchecked: Some(error.message), ..Opinion::default() },
        }
    }

    pub fn is_refused(&self) -> bool {
        self.found.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Shows what was found in several schemata, each with the schema's index.
pub fn show_each(schemas: &[&Schema], found: &[(usize, Diagnostic)]) {
    for (index, schema) in schemas.iter().enumerate() {
        let own: Vec<Diagnostic> =
            found.iter().filter(|(i, _)| *i == index).map(|(_, d)| d.clone()).collect();
        show(schema, &own);
    }
}

pub fn show(schema: &Schema, found: &[Diagnostic]) {
    messages::diagnostics(&schema.file, &schema.text, found);
}
