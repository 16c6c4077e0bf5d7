// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From what a user writes behind `-s` to a compiled schema: a bundled one by name, or a file of the user's own.

use crate::diagnostics;
use crate::failure::Failure;
use klogger_engine::bundled;
use klogger_engine::compile::{self, CompileError, Complaint};
use klogger_engine::kernel;
use klogger_engine::unit::Unit;
use klogger_schema::model::Schema;
use klogger_schema::nearest::did_you_mean;
use klogger_schema::{Diagnostic, Options};
use std::path::Path;

/// A name without a slash or an ending is a bundled schema; everything else is a file.
fn is_file(word: &str) -> bool {
    word.contains('/') || word.contains('.')
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(format!("there is no bundled schema '{name}'"));
    let names = bundled::all().iter().map(|b| b.name);
    match did_you_mean(name, names) {
        Some(help) => failure.help(help),
        None => failure.help("'klogger list' shows those there are; for a file of your own, give its path: ./my.klogger"),
    }
}

/// The schema alone, not compiled.
pub fn schema(word: &str) -> Result<Schema, Failure> {
    if is_file(word) {
        return diagnostics::load(Path::new(word), &Options::default());
    }
    let found = bundled::find(word).ok_or_else(|| unknown(word))?;
    Ok(found.load()?.schema)
}

/// The schema, compiled for this machine's kernel if it is the user's own.
pub fn unit(word: &str) -> Result<Unit, Failure> {
    if !is_file(word) {
        return Ok(bundled::find(word).ok_or_else(|| unknown(word))?.load()?);
    }
    let schema = schema(word)?;
    let types = kernel::types()?;
    match compile::compile(&schema, &types) {
        Ok((object, warnings)) => {
            show_complaints(&schema, &warnings);
            Ok(Unit { schema, object })
        }
        Err(CompileError::Failed(error)) => Err(error.into()),
        Err(CompileError::Rejected(complaints)) => {
            show_complaints(&schema, &complaints);
            Err(Failure::printed())
        }
    }
}

/// The compiler's messages, at the schema's own lines.
pub fn show_complaints(schema: &Schema, complaints: &[Complaint]) {
    let found: Vec<Diagnostic> = complaints.iter().map(|c| compile::diagnostic(schema, c)).collect();
    eprint!("{}", diagnostics::render(&schema.file, &schema.text, &found));
}
