// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The schemata, events, fields, analyses and studies that a command line may mean.

use super::line::Line;
use crate::own_schemata;
use crate::schemata;
use klogger_log::reader::Reader;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Schema;
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use std::fs;
use std::path::{Path, PathBuf};

/// A name, and what it is.
pub type Named = (String, String);

/// Names are from files of others: what is no word would act on the command line.
pub fn is_word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Those that can be recorded by name.
pub fn schema_names() -> Vec<Named> {
    let own = own_schemata::all();
    let bundled = bundled::all().iter().filter(|b| !own.contains_key(b.name));
    let bundled = bundled.filter_map(|b| Some(b.load().ok()?.schema));
    let mut all: Vec<Named> = bundled.map(|s| (s.name, s.doc.unwrap_or_default())).collect();
    all.extend(own.into_iter().map(|(name, file)| (name, file.to_string_lossy().into_owned())));
    all.retain(|(name, _)| is_word(name));
    all
}

/// The events of the logs on the line; if there are none, of the schemata of `-s`; if there are
/// none, of all that have a name.
pub fn events(line: &Line) -> Vec<EventLayout> {
    let files = line.words.iter().skip(1).filter(|word| Path::new(word).exists());
    let logs: Vec<Reader> = files.filter_map(|file| Reader::open(file).ok()).collect();
    let mut all: Vec<EventLayout> = match logs.is_empty() {
        false => logs.iter().flat_map(|log| log.preamble().events.clone()).collect(),
        true => schemas(line).into_iter().flat_map(layouts).collect(),
    };
    all.retain(|event| is_word(&event.name));
    all
}

fn schemas(line: &Line) -> Vec<Schema> {
    let named = line.values("-s", "--schema");
    let found: Vec<Schema> = named.iter().filter_map(|s| schemata::schema(s).ok()).collect();
    match found.is_empty() {
        false => found,
        true => schema_names().iter().filter_map(|(s, _)| schemata::schema(s).ok()).collect(),
    }
}

fn layouts(schema: Schema) -> Vec<EventLayout> {
    CompiledSchema { schema, object: None }.layouts(1)
}

/// The fields of these events, each once.
pub fn fields(events: &[EventLayout]) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    for field in events.iter().flat_map(|event| &event.fields) {
        if is_word(&field.name) && !all.iter().any(|(name, _)| *name == field.name) {
            let text = field.doc.as_ref().or(field.unit.as_ref()).unwrap_or(&field.type_name);
            all.push((field.name.clone(), text.clone()));
        }
    }
    all
}

/// Names of files `*/FOLDER/NAME.SUFFIX` of all schemata: analyses, studies.
pub fn of_schemata(folder: &str, suffix: &str) -> Vec<Named> {
    let mut all = Vec::new();
    for schema in content().iter().flat_map(|base| entries(base)) {
        let about = schema.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for file in entries(&schema.join(folder)) {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_one = file.extension().is_some_and(|e| e == suffix) && !name.starts_with('_');
            if is_one && is_word(&name) && !all.iter().any(|(known, _)| *known == name) {
                all.push((name, about.clone()));
            }
        }
    }
    all
}

/// Folders of schemata with their analyses: the user's own, and those that were installed with this
/// program. `schemata()` in python/klogger/analysis.py knows where these are.
fn content() -> Vec<PathBuf> {
    let mut all = own_schemata::folders();
    let exe = std::env::current_exe().ok();
    if let Some(prefix) = exe.as_deref().and_then(Path::parent).and_then(Path::parent) {
        all.push(prefix.join("share/klogger/schemata"));
        let libraries = entries(&prefix.join("lib")).into_iter();
        all.extend(libraries.map(|python| python.join("site-packages/klogger/schemata")));
    }
    all
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten();
    let mut all: Vec<PathBuf> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
    all.sort();
    all
}
