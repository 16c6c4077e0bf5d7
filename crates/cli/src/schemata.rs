// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From an argument of `-s` to a compiled schema: by name one of the user's folders
//! or a bundled one, or a file.

use crate::failure::Failure;
use crate::messages;
use crate::own_schemata;
use crate::schema_file;
use klogger_codegen::KernelTypes;
use klogger_os::Error;
use klogger_programs::Programs;
use klogger_schema::model::{Module, Schema};
use klogger_schema::nearest::did_you_mean;
use klogger_schema::{Diagnostic, Options, Severity};
use klogger_toolchain::bundled::{self, Bundled};
use klogger_toolchain::clang::CompileError;
use klogger_toolchain::compiled_schema::{CompiledSchema, Plan, faults, plan};
use klogger_toolchain::host_kernel;
use klogger_toolchain::portable::{self, Portable};
use std::path::{Path, PathBuf};

/// Where a schema is.
pub enum Place {
    File(PathBuf),
    Bundled(&'static Bundled),
}

/// A name without a slash or an ending is a schema of the user's own folders, or a bundled one;
/// everything else is a file, or a folder with one.
pub fn is_file(word: &str) -> bool {
    word.contains('/') || word.contains('.')
}

/// Whether there is a file of this name, whatever it looks like.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    let cannot = |e| Failure::new(format!("cannot look at {}: {e}", path.display()));
    klogger_os::files::is_there(path).map_err(cannot)
}

pub fn place(word: &str) -> Result<Place, Failure> {
    if is_file(word) {
        return Ok(Place::File(in_folder(Path::new(word)).unwrap_or_else(|| word.into())));
    }
    let bundled = || bundled::find(word).map(Place::Bundled);
    own_schemata::find(word).map(Place::File).or_else(bundled).ok_or_else(|| unknown(word))
}

/// The schema of a schema folder: `NAME/NAME.klogger`.
pub fn in_folder(folder: &Path) -> Option<PathBuf> {
    let whole = folder.is_dir().then(|| folder.canonicalize().ok()).flatten()?;
    let file = format!("{}.klogger", whole.file_name()?.to_string_lossy());
    Some(folder.join(file)).filter(|file| file.is_file())
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(format!("there is no schema '{name}'"));
    let own: Vec<String> = own_schemata::all().into_keys().collect();
    let names = bundled::all().iter().map(|b| b.name);
    match did_you_mean(name, names.chain(own.iter().map(String::as_str))) {
        Some(help) => failure.help(help),
        None => failure.help(
            "'klogger list' shows those there are; for a file of your own, give its \
                          path: ./my.klogger",
        ),
    }
}

/// The schema, not compiled.
pub fn schema(word: &str) -> Result<Schema, Failure> {
    match place(word)? {
        Place::File(path) => schema_file::load(&path, &Options::default()),
        Place::Bundled(bundled) => Ok(bundled.load()?.schema),
    }
}

/// The same, to look at: klogger's own schema too, which a recording has without being asked.
pub fn shown(word: &str) -> Result<Schema, Failure> {
    let own = bundled::builtin()?.schema;
    if word == own.name { Ok(own) } else { schema(word) }
}

/// The schema and, if requested, the programs of its probes. A schema of the user's own is compiled
/// for this machine's kernel, and has its absolute path, by which a log's analyses are found.
/// `programs`: what names of programs in probes mean; `prepare`: what must happen before programs
/// are compiled.
pub fn unit(
    word: &str,
    probes: bool,
    programs: &Programs,
    prepare: &dyn Fn(&Schema) -> Result<(), Failure>,
) -> Result<CompiledSchema, Failure> {
    let path = match place(word)? {
        Place::Bundled(bundled) => {
            let unit = bundled.load()?;
            prepare(&unit.schema)?;
            return Ok(CompiledSchema { object: unit.object.filter(|_| probes), ..unit });
        }
        Place::File(path) => path,
    };
    let schema = schema_file::load(&path, &Options::default())?;
    prepare(&schema)?;
    let mut unit = match probes && !schema.probes.is_empty() {
        true => compiled(schema, programs)?,
        false => CompiledSchema { schema, object: None },
    };
    if let Ok(absolute) = std::path::absolute(&path) {
        unit.schema.file = absolute.to_string_lossy().into_owned();
    }
    Ok(unit)
}

/// Compiled for this machine's kernel. `programs`: what names of programs in its probes mean.
pub fn compiled(schema: Schema, programs: &Programs) -> Result<CompiledSchema, Failure> {
    let types = host_kernel::types()?.with_programs(programs.clone());
    let faults = faults(&schema, &plan(&schema, &types)?);
    show(&schema, &faults);
    if !faults.is_empty() {
        return Err(Failure::printed());
    }
    match portable::compile(&schema, &types) {
        Ok(Portable { schema, object, warnings, .. }) => {
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
    /// The programs, if they were compiled.
    pub object: Option<Vec<u8>>,
    /// The schema that they were compiled of, with what its probes lack on this kernel.
    pub schema: Option<Schema>,
    /// Why there are no types, or why the C could not be compiled.
    pub unchecked: Option<String>,
}

impl Opinion {
    /// `kernel`: the types of the running kernel, or of another.
    pub fn of(schema: &Schema, kernel: &Result<KernelTypes, Error>) -> Opinion {
        let mut opinion = Opinion::of_plans(schema, kernel);
        let (Ok(types), false) = (kernel, schema.probes.is_empty()) else { return opinion };
        match portable::compile(schema, types) {
            Ok(Portable { schema, object, warnings, left_out }) => {
                opinion.found.extend(warnings.into_iter().chain(left_out));
                opinion.object = Some(object);
                opinion.plans = plan(&schema, types).ok();
                opinion.schema = Some(schema);
            }
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
                let mut found = faults(schema, &plans);
                found.extend(kernel.iter().flat_map(|types| missing_modules(schema, types)));
                Opinion { found, plans: Some(plans), ..Opinion::default() }
            }
            Err(error) => Opinion { unchecked: Some(error.message), ..Opinion::default() },
        }
    }

    pub fn is_refused(&self) -> bool {
        self.found.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Warnings of modules that the kernel does not have now.
fn missing_modules(schema: &Schema, types: &KernelTypes) -> Vec<Diagnostic> {
    let warning = |(module, why): (&Module, String)| {
        let message = format!("the kernel module '{}' is missing: {why}", module.name);
        Diagnostic::warning(module.span, message).help(format!(
            "'klogger record' loads it where it can; to check with its types: modprobe {}",
            module.name
        ))
    };
    types.missing_modules(schema).map(warning).collect()
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
    messages::diagnostics(&schema.file, &schema.text, &schema.includes, found);
}
