// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check`

mod load;

use self::load::Loader;
use super::show::{print_probe, probes_json};
use super::{Format, Outcome};
use crate::diagnostics::{count, render, tally};
use crate::external;
use crate::failure::Failure;
use crate::messages;
use crate::schema_file::{parsed, read};
use crate::schemata::{self, Opinion, Place};
use crate::shared_texts::included;
use klogger_codegen::KernelTypes;
use klogger_os::Error;
use klogger_schema::include::{Includes, Whole};
use klogger_schema::model::{Schema, Span};
use klogger_schema::{Diagnostic, Options, Parsed, Severity};
use klogger_toolchain::compiled_schema::Plan;
use klogger_toolchain::host_kernel;
use serde_json::{Value, json};
use std::cell::LazyCell;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  klogger check my.klogger
  klogger check ./mine                 a schema folder, with its analyses
  klogger check mine/analyses/q.sql    an analysis: its header, its SQL, its picture
  klogger check --load my.klogger      also what the kernel's verifier says
  klogger check --kernel /boot/vmlinuz-6.12.9-amd64 my.klogger
  klogger check --kernel linux-image-6.12.9-amd64_6.12.9-1_amd64.deb causes

The exit code is 2 if there is an error.";

/// Check schemata and analyses, and print all errors
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Schema files and folders, names of schemata, and analyses (FILE.sql)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check against this kernel instead of the running one, and print whether each probe can be
    /// attached: a vmlinux, a bzImage, a Debian package with one, or a file of raw BTF
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<PathBuf>,
    /// Load the programs of the probes into the kernel too, and attach none: finds what its
    /// verifier refuses. Needs root
    #[arg(long, conflicts_with = "kernel")]
    load: bool,
    /// Write all that the verifier says of refused programs to this file
    #[arg(long, value_name = "FILE", requires = "load")]
    verifier_log: Option<PathBuf>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The result for one file.
#[derive(Default)]
struct Checked {
    file: String,
    text: String,
    includes: Includes,
    /// "9 events, 5 probes", if there is no error.
    summary: Option<String>,
    diagnostics: Vec<Diagnostic>,
    /// The plans of its probes, if it parses and there is a kernel to compare with.
    probes: Option<(Schema, Vec<Plan>)>,
    /// The file could not be read.
    failure: Option<Failure>,
}

pub fn run(args: Args) -> Outcome {
    let other = args.kernel.as_deref().map(host_kernel::types_of).transpose()?;
    // Not computed for a schema without probes.
    let kernel = LazyCell::new(|| other.map_or_else(host_kernel::types, Ok));
    let (analyses, schemata): (Vec<PathBuf>, Vec<PathBuf>) =
        args.files.iter().flat_map(|path| in_folder(path)).partition(|path| is_analysis(path));
    let mut loader = args.load.then(Loader::new).transpose()?;
    let checked: Vec<Checked> =
        schemata.iter().map(|path| check(path, &kernel, loader.as_mut())).collect();
    if let (Some(loader), Some(file)) = (&loader, &args.verifier_log) {
        loader.write(file)?;
    }
    if args.format == Format::Text {
        checked.iter().for_each(|c| print_text(c, args.kernel.is_some()));
    }
    let other = check_analyses(&analyses, args.format)?;
    if args.format == Format::Json {
        let schemata = checked.iter().map(to_json);
        say_json!(schemata.chain(other.values).collect::<Value>());
    }
    let ok = other.ok && checked.iter().all(|c| c.summary.is_some());
    Ok(ExitCode::from(if ok { 0 } else { 2 }))
}

fn is_analysis(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "sql")
}

/// What analyses include is checked with them.
fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"_"))
}

/// Of a schema folder, the schema, the analyses, the derived tables and the spans; of anything
/// else, itself.
fn in_folder(path: &Path) -> Vec<PathBuf> {
    let Some(schema) = schemata::in_folder(path) else { return vec![path.into()] };
    let mut files = vec![schema];
    for folder in ["analyses", "derived"] {
        let entries = std::fs::read_dir(path.join(folder)).into_iter().flatten();
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.retain(|file| is_analysis(file) && !is_part(file));
        found.sort();
        files.extend(found);
    }
    files.extend(Some(path.join("spans.sql")).filter(|file| file.is_file()));
    files
}

/// What Python found: of each file, as [`to_json`] has it.
struct Analyses {
    ok: bool,
    values: Vec<Value>,
}

/// Analyses are checked where they are run: by a program in Python.
fn check_analyses(files: &[PathBuf], format: Format) -> Result<Analyses, Failure> {
    if files.is_empty() {
        return Ok(Analyses { ok: true, values: Vec::new() });
    }
    let json = format == Format::Json;
    let mut words: Vec<OsString> = vec!["analysis".into()];
    if json {
        words.extend(["--format".into(), "json".into()]);
    }
    words.push("--".into());
    words.extend(files.iter().map(|file| file.clone().into_os_string()));
    let done = external::output(&words, json)?;
    let values = match json && !done.stdout.is_empty() {
        true => serde_json::from_slice(&done.stdout)
            .map_err(|error| Failure::new(format!("klogger-analysis: {error}")))?,
        false => Vec::new(),
    };
    Ok(Analyses { ok: done.status.success(), values })
}

/// The types to compare with, which are read when they are needed.
type Kernel<'a> = &'a dyn Deref<Target = Result<KernelTypes, Error>>;

fn check(path: &Path, kernel: Kernel, loader: Option<&mut Loader>) -> Checked {
    let (file, text) = match read_or_find(path) {
        Ok(found) => found,
        Err(failure) => {
            return Checked {
                file: path.to_string_lossy().into(),
                failure: Some(failure),
                ..Checked::default()
            };
        }
    };
    let Whole { text, includes, found } = included(&file, &text);
    let options = Options { includes: includes.clone(), ..Options::default() };
    let result = match found.is_empty() {
        true => parsed(&file, &text, &options),
        false => Err(found),
    };
    match result {
        Ok(parsed) => Checked { includes, ..second_opinion(file, text, parsed, kernel, loader) },
        Err(diagnostics) => Checked { file, text, includes, diagnostics, ..Checked::default() },
    }
}

/// The name and the text of a schema file, or of a schema by name.
fn read_or_find(path: &Path) -> Result<(String, String), Failure> {
    let word = path.to_string_lossy();
    let place = match schemata::is_file(&word) || schemata::is_there(path)? {
        true => Place::File(path.into()),
        false => schemata::place(&word)?,
    };
    match place {
        Place::Bundled(bundled) => Ok((bundled.file.to_string(), bundled.text.to_string())),
        Place::File(path) => Ok((path.to_string_lossy().into_owned(), read(&path)?)),
    }
}

/// Checks the C of a schema that parses, and compares it with a kernel.
fn second_opinion(
    file: String,
    text: String,
    parsed: Parsed,
    kernel: Kernel,
    loader: Option<&mut Loader>,
) -> Checked {
    let Parsed { schema, warnings: mut diagnostics } = parsed;
    let mut opinion =
        if schema.probes.is_empty() { Opinion::default() } else { Opinion::of(&schema, kernel) };
    let loaded = loader.is_some_and(|loader| loader.load(&schema, &mut opinion));
    let mut summary =
        format!("{}, {}", count(schema.events.len(), "event"), count(schema.probes.len(), "probe"));
    if !schema.rules.is_empty() {
        summary += &format!(", {}", count(schema.rules.len(), "rule"));
    }
    if loaded {
        summary += ", loaded";
    }
    if let Some(why) = &opinion.unchecked {
        summary += &format!(" (the C in it was not checked: {why})");
    }
    let summary = Some(summary).filter(|_| !opinion.is_refused());
    diagnostics.extend(opinion.found);
    let probes = opinion.plans.map(|plans| (schema, plans));
    Checked { file, text, summary, diagnostics, probes, ..Checked::default() }
}

/// `probes`: show the state of each probe.
fn print_text(checked: &Checked, probes: bool) {
    let Checked { file, text, includes, summary, diagnostics, failure, .. } = checked;
    if let Some(failure) = failure {
        return messages::print(&format!("klogger: {failure}"));
    }
    crate::messages::put(&render(file, text, includes, diagnostics));
    let tally = tally(diagnostics);
    match summary {
        Some(summary) if tally.is_empty() => say!("{file}: ok, {summary}"),
        Some(summary) => say!("{file}: ok, {summary}, {tally}"),
        None => messages::print(&format!("{file}: {tally}")),
    }
    if let Some((schema, plans)) = checked.probes.as_ref().filter(|_| probes) {
        schema.probes.iter().zip(plans).for_each(|(probe, plan)| print_probe(probe, plan));
    }
}

fn to_json(checked: &Checked) -> Value {
    let mut diagnostics: Vec<Value> =
        checked.diagnostics.iter().map(|d| diagnostic_json(d, checked)).collect();
    if let Some(failure) = &checked.failure {
        diagnostics
            .push(json!({ "severity": "error", "message": failure.message, "help": failure.help }));
    }
    let probes = checked.probes.as_ref().map(|(schema, plans)| probes_json(schema, Some(plans)));
    json!({ "file": checked.file, "ok": checked.summary.is_some(), "diagnostics": diagnostics,
        "probes": probes })
}

fn diagnostic_json(diagnostic: &Diagnostic, checked: &Checked) -> Value {
    let own = (checked.file.as_str(), checked.text.as_str());
    let (file, text, diagnostic) = checked.includes.located(own, diagnostic.clone());
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let related = diagnostic.related.as_ref().map(|(span, label)| {
        let mut place = place(*span, text);
        place["label"] = json!(label);
        place
    });
    let mut value = place(diagnostic.span, text);
    value["severity"] = json!(severity);
    value["message"] = json!(diagnostic.message);
    value["label"] = json!(diagnostic.label);
    value["help"] = json!(diagnostic.help);
    value["related"] = json!(related);
    if file != checked.file {
        value["file"] = json!(file);
    }
    value
}

/// Lines from 1, and columns in bytes, as compilers count them; the end is exclusive.
fn place(span: Span, text: &str) -> Value {
    let position = |at: usize| {
        let before = &text.as_bytes()[..at.min(text.len())];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
        (before.iter().filter(|&&b| b == b'\n').count() + 1, at - line_start + 1)
    };
    let ((line, column), (end_line, end_column)) = (position(span.start), position(span.end));
    json!({ "line": line, "column": column, "end_line": end_line, "end_column": end_column })
}
