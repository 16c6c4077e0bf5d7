// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Builds kernel modules from schemata, with the kernel's own build system.
//!
//! First the preprocessor finds out which tracepoints the kernel's headers have. Missing ones are
//! left out if the schema names an alternative. The compiler compares the types of parameters. If
//! it reports a difference, that alternative is left out as well, and the rest is built again.

mod cache;
mod headers;
mod tree;

pub use tree::kernel_dir;

use crate::clang::{CompileError, Complaint, diagnostic, parse_complaint};
use crate::compiled_schema::{ModulePlan, Plan, faults, plan_module};
use klogger_codegen::kernel::{
    AttachPoint, OF_BPF, Tracepoints, core, foreign_context, module, prototype_complaint, text_of,
};
use klogger_codegen::{NamedText, printable};
use klogger_os::Uninterrupted;
use klogger_os::outputs::{Folder, Old, PartialFolder};
use klogger_os::{Error, missed};
use klogger_schema::Diagnostic;
use klogger_schema::model::{Schema, Span};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tree::Tree;

/// The result of a build.
#[derive(Clone, Debug)]
pub struct Built {
    pub release: String,
    pub core: PathBuf,
    /// In the order of the schemata.
    pub schemata: Vec<PathBuf>,
    /// For other modules that use these: KBUILD_EXTRA_SYMBOLS.
    pub symbols: PathBuf,
    /// Warnings of the compiler, and attach points that this kernel does not have; with the
    /// schema's index.
    pub warnings: Vec<(usize, Diagnostic)>,
}

impl Built {
    fn in_folder(release: &str, folder: &Path, schemas: &[&Schema]) -> Built {
        Built {
            release: release.into(),
            core: folder.join("klogger.ko"),
            schemata: schemas.iter().map(|s| folder.join(module_file(s))).collect(),
            symbols: folder.join("Module.symvers"),
            warnings: Vec::new(),
        }
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.schemata.iter().chain([&self.core, &self.symbols])
    }
}

fn module_file(schema: &Schema) -> String {
    format!("klogger_{}.ko", schema.name)
}

/// Builds the core's module and one for each schema against the build tree `kernel`, and copies
/// them to `out`.
pub fn build(
    schemas: &[&Schema],
    builtin: &Schema,
    kernel: &Path,
    out: &Path,
) -> Result<Built, CompileError> {
    let tree = Tree::open(kernel)?;
    let modules = Modules::make(&tree, schemas, builtin)?;
    // Not before: of what is wrong nothing is left.
    let folder = Folder::make(out).map_err(|e| cannot_build_in(out, e))?;
    modules.copy_to(&folder, Built::in_folder(&tree.release, folder.path(), schemas))
}

fn cannot_build_in(path: &Path, error: io::Error) -> Error {
    Error::new(format!("cannot write {}: {error}", path.display()))
        .help("choose another folder with -o DIR")
}

/// The same for the running kernel, built once and then taken from the user's cache.
pub fn cached(schemas: &[&Schema], builtin: &Schema) -> Result<Built, CompileError> {
    let tree = Tree::open(&kernel_dir(None)?)?;
    let release = cache::folder()?.join(&tree.release);
    cache::make(&release)?;
    let folder = release.join(digest(&tree, schemas, builtin)?);
    let built = Built::in_folder(&tree.release, &folder, schemas);
    if cache::is_sound(&folder, built.files()) {
        return Ok(built);
    }
    // Under another name until it is complete, because other processes may build the same.
    let cannot =
        |e: io::Error| Error::new(format!("cannot keep the modules in {}: {e}", folder.display()));
    let (parent, name) = Folder::of_name(&folder).map_err(cannot)?;
    let mut making = PartialFolder::begin(&parent, &name, 0o700).map_err(cannot)?;
    let modules = Modules::make(&tree, schemas, builtin)?;
    let partial = Built::in_folder(&tree.release, making.folder().path(), schemas);
    let made = modules.copy_to(making.folder(), partial)?;
    cache::seal(making.folder(), made.files())?;
    let old = making.there().map_err(cannot)?;
    match making.complete(old.as_ref()) {
        // Another process has built the same.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        done => done.map_err(cannot)?,
    }
    Ok(Built { warnings: made.warnings, ..built })
}

/// What becomes of each probe in a module for the running kernel, as far as its headers say: which
/// tracepoints there are, and how many parameters they have.
pub fn plan_probes(schema: &Schema) -> Result<Vec<Plan>, Error> {
    let tree = Tree::open(&kernel_dir(None)?)?;
    let work = temporary_folder()?;
    let tracepoints = headers::tracepoints(&tree, &[schema], &work.path().join("places"))?;
    Ok(plan_module(schema, &tracepoints, &tree.release, &|_, _| false).probes)
}

/// The folder of modules that were installed for the running kernel, by DKMS for example, if it has
/// all of these, made from exactly these texts. Compressed modules are not considered.
pub fn installed(schemas: &[&Schema], builtin: &Schema) -> Option<PathBuf> {
    let release = missed::noting(tree::RELEASE, fs::read_to_string(tree::RELEASE))?;
    installed_in(&Path::new("/lib/modules").join(release.trim()), schemas, builtin)
}

fn installed_in(modules: &Path, schemas: &[&Schema], builtin: &Schema) -> Option<PathBuf> {
    let contains =
        |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    let has = |file: PathBuf, schema: &Schema| {
        let read = missed::noting_unless_gone(&file.display().to_string(), fs::read(&file));
        read.is_some_and(|bytes| contains(&bytes, &text_of(schema)))
    };
    let has_all = |folder: &PathBuf| {
        has(folder.join("klogger.ko"), builtin)
            && schemas.iter().all(|s| has(folder.join(module_file(s)), s))
    };
    ["updates/dkms", "updates", "extra"]
        .map(|folder| modules.join(folder))
        .into_iter()
        .find(has_all)
}

/// Changes with everything that the modules depend on: klogger, the schemata, the kernel.
fn digest(tree: &Tree, schemas: &[&Schema], builtin: &Schema) -> Result<String, Error> {
    let mut hash = Sha256::new();
    let anywhere = |s: &Schema| -> Vec<AttachPoint> {
        let probes = s.probes.iter().enumerate();
        let all = probes.flat_map(|(probe, p)| {
            (0..p.targets.len()).map(move |target| AttachPoint { probe, target, tracepoint: None })
        });
        all.collect()
    };
    let texts = core(builtin, &anywhere(builtin), schemas).into_iter();
    texts
        .chain(schemas.iter().flat_map(|s| module(s, &anywhere(s))))
        .for_each(|t| hash.update(t.text.as_bytes()));
    for file in ["Module.symvers", "include/config/auto.conf"] {
        let path = tree.dir.join(file);
        hash.update(
            fs::read(&path)
                .map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))?,
        );
    }
    Ok(cache::hex(hash)[..32].into())
}

/// What was compiled, in a folder that is removed after it.
struct Modules {
    folder: TempDir,
    warnings: Vec<(usize, Diagnostic)>,
    /// Until the folder is removed.
    _uninterrupted: Uninterrupted,
}

impl Modules {
    fn make(tree: &Tree, schemas: &[&Schema], builtin: &Schema) -> Result<Modules, CompileError> {
        let refused = schemas.iter().enumerate().filter_map(|(i, s)| Some((i, refusal(s)?)));
        let refused: Vec<_> = refused.collect();
        if !refused.is_empty() {
            return Err(CompileError::Rejected(refused));
        }
        let uninterrupted = Uninterrupted::begin();
        let folder = temporary_folder()?;
        let warnings = Job::new(tree, schemas, builtin, folder.path())?.run()?;
        Ok(Modules { folder, warnings, _uninterrupted: uninterrupted })
    }

    /// `built`: how the files are called there.
    fn copy_to(self, out: &Folder, built: Built) -> Result<Built, CompileError> {
        for file in built.files() {
            let name = file.file_name().unwrap_or_default();
            let copied = fs::read(self.folder.path().join(WORK).join(name))
                .and_then(|bytes| out.write(name, 0o666, Old::Replace, &bytes));
            copied.map_err(|e| cannot_build_in(file, e))?;
        }
        Ok(Built { warnings: self.warnings, ..built })
    }
}

/// Why a schema can be no module.
fn refusal(schema: &Schema) -> Option<Diagnostic> {
    let foreign = || {
        let (field, message) = foreign_context(schema)?;
        Some(Diagnostic::error(field.span, message).label("only in the bpf engine").help(OF_BPF))
    };
    no_state(schema).or_else(foreign)
}

/// A module has no tables of the bpf engine.
fn no_state(schema: &Schema) -> Option<Diagnostic> {
    let state = schema.states.first()?;
    Some(
        Diagnostic::error(state.span, "the kernel engine has no keyed state")
            .label("a table of the bpf engine")
            .help("record with --engine bpf, or keep it in static variables of `code`"),
    )
}

fn temporary_folder() -> Result<TempDir, Error> {
    let folder = tempfile::Builder::new().prefix("klogger-").tempdir();
    folder.map_err(|e| Error::new(format!("cannot make a temporary folder: {e}")))
}

/// Where they are made, in the temporary folder.
const WORK: &str = "modules";

/// One build: the user's schemata, followed by the built-in one.
struct Job<'a> {
    tree: &'a Tree,
    schemas: &'a [&'a Schema],
    builtin: &'a Schema,
    work: PathBuf,
    tracepoints: Tracepoints,
    /// (schema, probe, target) for which the compiler found that the prototype differs.
    differ: BTreeSet<(usize, usize, usize)>,
}

impl<'a> Job<'a> {
    fn new(
        tree: &'a Tree,
        schemas: &'a [&'a Schema],
        builtin: &'a Schema,
        folder: &Path,
    ) -> Result<Job<'a>, CompileError> {
        let all: Vec<&Schema> = schemas.iter().copied().chain([builtin]).collect();
        let tracepoints = headers::tracepoints(tree, &all, &folder.join("places"))?;
        Ok(Job {
            tree,
            schemas,
            builtin,
            work: folder.join(WORK),
            tracepoints,
            differ: BTreeSet::new(),
        })
    }

    fn schema(&self, index: usize) -> &'a Schema {
        self.schemas.get(index).copied().unwrap_or(self.builtin)
    }

    fn plan(&self, index: usize) -> ModulePlan {
        let differ = |probe, target| self.differ.contains(&(index, probe, target));
        plan_module(self.schema(index), &self.tracepoints, &self.tree.release, &differ)
    }

    /// Builds until no further prototypes differ; their number is finite.
    fn run(&mut self) -> Result<Vec<(usize, Diagnostic)>, CompileError> {
        loop {
            let plans: Vec<ModulePlan> = (0..=self.schemas.len()).map(|i| self.plan(i)).collect();
            let faults = self.faults(&plans);
            if !faults.is_empty() {
                return Err(CompileError::Rejected(faults));
            }
            self.write(&plans)?;
            let output = self.tree.make(&self.work, "modules")?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let differ = self.differences(&said);
            if !differ.is_empty() {
                self.differ.extend(differ);
                continue;
            }
            let found = self.diagnostics(&said);
            return match output.status.success() {
                true => Ok(found),
                false if !found.is_empty() => Err(CompileError::Rejected(found)),
                false => Err(self.failure(&said).into()),
            };
        }
    }

    fn faults(&self, plans: &[ModulePlan]) -> Vec<(usize, Diagnostic)> {
        let each = plans.iter().enumerate();
        each.flat_map(|(i, plan)| {
            faults(self.schema(i), &plan.probes).into_iter().map(move |d| (i, d))
        })
        .collect()
    }

    fn write(&self, plans: &[ModulePlan]) -> Result<(), Error> {
        let mut texts = core(self.builtin, &plans[self.schemas.len()].attach_points, self.schemas);
        texts.extend(
            self.schemas.iter().zip(plans).flat_map(|(s, plan)| module(s, &plan.attach_points)),
        );
        write_texts(&self.work, &texts).map_err(|e| {
            Error::new(format!("cannot write the generated C to a temporary folder: {e}"))
        })
    }

    /// Prototypes that are not the kernel's.
    fn differences(&self, said: &str) -> Vec<(usize, usize, usize)> {
        let complaints = said.lines().filter_map(parse_complaint);
        let found = complaints.filter_map(|c| {
            let (probe, target) = prototype_complaint(&c.message)?;
            Some((self.schema_of(&c.file)?, probe, target))
        });
        found.filter(|d| !self.differ.contains(d)).collect()
    }

    /// Messages of the compiler and the linker about the schemata, each once, because headers are
    /// compiled twice.
    fn diagnostics(&self, said: &str) -> Vec<(usize, Diagnostic)> {
        let mut seen: Vec<Complaint> = Vec::new();
        said.lines().filter_map(parse_complaint).for_each(|c| {
            if !seen.contains(&c) {
                seen.push(c);
            }
        });
        let of_schema = |c: &Complaint| Some((self.schema_of(&c.file)?, c.clone()));
        let found = seen.iter().filter_map(of_schema).filter(|(i, _)| *i < self.schemas.len());
        let found = found.map(|(i, c)| (i, diagnostic(self.schema(i), &c)));
        found.chain(said.lines().filter_map(|line| self.not_lent(line))).collect()
    }

    /// A function or variable that is not exported to modules, at its first mention in the schema.
    fn not_lent(&self, line: &str) -> Option<(usize, Diagnostic)> {
        let (name, module) = unresolved(line)?;
        let index = self.schema_of(module).filter(|i| *i < self.schemas.len())?;
        let start = self.schema(index).text.find(name);
        let span = start.map_or(Span::default(), |start| Span { start, end: start + name.len() });
        let message = format!("the kernel does not export '{name}' to modules");
        Some((index, Diagnostic::error(span, message).help("read the kernel's structures instead")))
    }

    /// The schema that a file belongs to, by its name: the schema's own file, or a generated one.
    fn schema_of(&self, file: &str) -> Option<usize> {
        let generated = file.rsplit('/').next().unwrap_or(file).split('.').next().unwrap_or(file);
        let generated = generated.strip_prefix("klogger_").unwrap_or(generated);
        let is = |i: &usize| {
            file == printable(&self.schema(*i).file) || generated == self.schema(*i).name
        };
        (0..=self.schemas.len()).find(is)
    }

    fn failure(&self, said: &str) -> Error {
        Error::new(format!("building modules for kernel {} failed", self.tree.release))
            .help(format!("make says:\n{}", last_lines(said)))
    }
}

/// `ERROR: modpost: "NAME" [FOLDER/klogger_SCHEMA.ko] undefined!`
fn unresolved(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("ERROR: modpost: \"")?.split_once("\" [")?;
    Some((name, rest.split_once("] undefined!")?.0))
}

fn write_texts(folder: &Path, texts: &[NamedText]) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("klogger"))?;
    texts.iter().try_for_each(|t| fs::write(folder.join(&t.name), &t.text))
}

/// The last lines of make's output, which have the error.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_modules_are_used_if_the_texts_are_the_same() {
        let options = klogger_schema::Options::default();
        let schema =
            |text: &str| klogger_schema::parse("x.klogger", text, &options).unwrap().schema;
        let (builtin, mine) = (
            schema("schema b \"B\"\nevent B { int b }"),
            schema("schema m \"M\"\nevent M { int m }"),
        );
        let modules = tempfile::tempdir().unwrap();
        let folder = modules.path().join("extra");
        fs::create_dir(&folder).unwrap();
        let install = |name: &str, text: &str| {
            fs::write(folder.join(name), format!("\x7fELF {text}\0")).unwrap()
        };
        install("klogger.ko", &builtin.text);
        let found = || installed_in(modules.path(), &[&mine], &builtin);
        assert_eq!(found(), None);
        install(&module_file(&mine), &mine.text);
        assert_eq!(found(), Some(folder.clone()));
        install(&module_file(&mine), &mine.text.replace("int", "long"));
        assert_eq!(found(), None);
    }

    #[test]
    fn a_schema_with_states_is_refused() {
        let options = klogger_schema::Options::default();
        let schema =
            |text: &str| klogger_schema::parse("x.klogger", text, &options).unwrap().schema;
        let text = "schema s\nevent E { int a }\nstate seen[9] by ulong { int n }";
        let found = no_state(&schema(text)).unwrap();
        assert_eq!(found.message, "the kernel engine has no keyed state");
        assert_eq!(found.label, "a table of the bpf engine");
        let help = "record with --engine bpf, or keep it in static variables of `code`";
        assert_eq!(found.help.as_deref(), Some(help));
        assert!(refusal(&schema("schema s\nevent E { int a }")).is_none());
    }

    #[test]
    fn a_schema_with_a_context_of_the_bpf_engine_is_refused() {
        let text = "schema s\nevent E { int a }\nevent F { context tid otel }";
        let options = klogger_schema::Options::default();
        let schema = klogger_schema::parse("x.klogger", text, &options).unwrap().schema;
        let found = refusal(&schema).unwrap();
        assert_eq!(found.message, "event F: the kernel engine has no `context otel_trace`");
        assert_eq!(&text[found.span.start..found.span.end], "otel");
        assert_eq!(found.help.as_deref(), Some(OF_BPF));
    }

    #[test]
    fn missing_symbols_are_found_in_modpost_messages() {
        let line = "ERROR: modpost: \"do_exit2\" [/tmp/k/klogger_x.ko] undefined!";
        assert_eq!(unresolved(line), Some(("do_exit2", "/tmp/k/klogger_x.ko")));
        assert!(unresolved("WARNING: modpost: missing MODULE_LICENSE()").is_none());
    }
}
