// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads schema files, for every command that takes a schema.

use crate::failure::Failure;
use crate::messages;
use crate::shared_texts::included;
use klogger_log::rules;
use klogger_schema::model::Schema;
use klogger_schema::{Diagnostic, Options, Parsed, TEXT_MAX, parse};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Reads and checks a schema file. Prints errors and warnings on standard error.
pub fn load(path: &Path, options: &Options) -> Result<Schema, Failure> {
    let file = path.to_string_lossy();
    let text = read(path)?;
    let whole = included(&file, &text);
    let show = |found: &[Diagnostic]| {
        messages::diagnostics(&file, &whole.text, &whole.includes, found);
    };
    if !whole.found.is_empty() {
        show(&whole.found);
        return Err(Failure::printed());
    }
    let options = Options { includes: whole.includes.clone(), ..options.clone() };
    match parsed(&file, &whole.text, &options) {
        Ok(parsed) => {
            show(&parsed.warnings);
            Ok(parsed.schema)
        }
        Err(found) => {
            show(&found);
            Err(Failure::printed())
        }
    }
}

/// Parses a schema, and checks the conditions of its rules as well.
pub fn parsed(file: &str, text: &str, options: &Options) -> Result<Parsed, Vec<Diagnostic>> {
    let parsed = parse(file, text, options)?;
    let faults = rules::faults(&parsed.schema);
    match faults.is_empty() {
        true => Ok(parsed),
        false => Err(parsed.warnings.into_iter().chain(faults).collect()),
    }
}

/// The text of a schema file. The file may be empty, endless, or not text.
pub fn read(path: &Path) -> Result<String, Failure> {
    let file = path.display();
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(TEXT_MAX as u64 + 1).read_to_end(&mut bytes)).map_err(
        |error| match error.kind() {
            ErrorKind::NotFound => Failure::new(format!("{file}: there is no such file")).help(
                "name a schema file, such as my.klogger; 'klogger list' shows the schemata that \
                   need no file",
            ),
            ErrorKind::IsADirectory => {
                Failure::new(format!("{file} is a directory without a schema file of its name"))
                    .help("name a schema file; 'klogger new NAME' makes a directory to start from")
            }
            ErrorKind::PermissionDenied => {
                Failure::new(format!("{file}: permission denied")).help("check its mode and owner")
            }
            _ => Failure::new(format!("{file}: {error}")),
        },
    )?;
    if bytes.len() > TEXT_MAX {
        return Err(Failure::new(format!("{file} has more than {TEXT_MAX} bytes"))
            .help("check that this is a schema file; if it is, divide it into several"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1;
        Failure::new(format!("{file}:{line}: byte {at} is not UTF-8 text")).help(
            "check that this is a schema file; if it is, convert it to UTF-8, or remove that byte",
        )
    })
}
