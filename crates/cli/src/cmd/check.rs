// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check`

use super::{Format, Outcome};
use crate::diagnostics::{count, read, render, tally};
use crate::failure::Failure;
use crate::schemata;
use klogger_schema::model::Span;
use klogger_schema::{Diagnostic, Options, Parsed, Severity, parse};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check schema files: says all that is wrong with them, and exits with 2 if anything is
#[derive(clap::Args)]
pub struct Args {
    /// Schema files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What was found in one file.
struct Checked {
    file: String,
    text: String,
    /// "9 events, 5 probes", if there is no error.
    summary: Option<String>,
    diagnostics: Vec<Diagnostic>,
    /// The file could not be read.
    failure: Option<Failure>,
}

pub fn run(args: Args) -> Outcome {
    let checked: Vec<Checked> = args.files.iter().map(|path| check(path)).collect();
    match args.format {
        Format::Text => checked.iter().for_each(print_text),
        Format::Json => println!("{:#}", Value::from(checked.iter().map(to_json).collect::<Vec<_>>())),
    }
    Ok(ExitCode::from(if checked.iter().all(|c| c.summary.is_some()) { 0 } else { 2 }))
}

fn check(path: &Path) -> Checked {
    let file = path.to_string_lossy().into_owned();
    let text = match read(path) {
        Ok(text) => text,
        Err(failure) => {
            return Checked {
                file,
                text: String::new(),
                summary: None,
                diagnostics: Vec::new(),
                failure: Some(failure),
            };
        }
    };
    let (summary, diagnostics) = match parse(&file, &text, &Options::default()) {
        Ok(parsed) => second_opinion(parsed),
        Err(diagnostics) => (None, diagnostics),
    };
    Checked { file, text, summary, diagnostics, failure: None }
}

/// A schema that parses may still be wrong C, or wrong about this kernel.
fn second_opinion(parsed: Parsed) -> (Option<String>, Vec<Diagnostic>) {
    let Parsed { schema, warnings: mut diagnostics } = parsed;
    let (found, unchecked) = schemata::second_opinion(&schema);
    diagnostics.extend(found);
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        return (None, diagnostics);
    }
    let mut summary = format!("{}, {}", count(schema.events.len(), "event"), count(schema.probes.len(), "probe"));
    if let Some(why) = unchecked {
        summary += &format!(" (the C in it was not checked: {why})");
    }
    (Some(summary), diagnostics)
}

fn print_text(checked: &Checked) {
    let Checked { file, text, summary, diagnostics, failure } = checked;
    if let Some(failure) = failure {
        eprintln!("klogger: {failure}");
        return;
    }
    eprint!("{}", render(file, text, diagnostics));
    let tally = tally(diagnostics);
    match summary {
        Some(summary) if tally.is_empty() => println!("{file}: ok, {summary}"),
        Some(summary) => println!("{file}: ok, {summary}, {tally}"),
        None => eprintln!("{file}: {tally}"),
    }
}

fn to_json(checked: &Checked) -> Value {
    let mut diagnostics: Vec<Value> = checked.diagnostics.iter().map(|d| diagnostic_json(d, &checked.text)).collect();
    if let Some(failure) = &checked.failure {
        diagnostics.push(json!({ "severity": "error", "message": failure.message, "help": failure.help }));
    }
    json!({ "file": checked.file, "ok": checked.summary.is_some(), "diagnostics": diagnostics })
}

fn diagnostic_json(diagnostic: &Diagnostic, text: &str) -> Value {
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
    value
}

/// 1-based lines, and columns in bytes, as compilers count; the end is the byte after the last.
fn place(span: Span, text: &str) -> Value {
    let position = |at: usize| {
        let before = &text.as_bytes()[..at.min(text.len())];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
        (before.iter().filter(|&&b| b == b'\n').count() + 1, at - line_start + 1)
    };
    let ((line, column), (end_line, end_column)) = (position(span.start), position(span.end));
    json!({ "line": line, "column": column, "end_line": end_line, "end_column": end_column })
}
