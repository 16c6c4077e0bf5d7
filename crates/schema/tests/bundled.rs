// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The schemata of this repository are valid, and the vocabulary has the built-in events.

use klogger_schema::include::{ENDING, whole};
use klogger_schema::model::Schema;
use klogger_schema::reserved::BUILTIN_EVENTS;
use klogger_schema::{Options, parse};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path, builtin: bool) -> Schema {
    let text = std::fs::read_to_string(path).unwrap();
    // A text of its own folder comes first.
    let find = |name: &str| {
        let name = format!("{name}.{ENDING}");
        let places = [path.with_file_name(&name), root().join("runtime/shared").join(&name)];
        let found = places.iter().find_map(|place| std::fs::read_to_string(place).ok());
        found.map(|text| (name.clone(), text)).ok_or((name, String::new()))
    };
    let text = whole(&path.to_string_lossy(), &text, &find).text;
    match parse(&path.to_string_lossy(), &text, &Options { builtin, ..Options::default() }) {
        Ok(parsed) if parsed.warnings.is_empty() => parsed.schema,
        Ok(parsed) => panic!("{}: {:#?}", path.display(), parsed.warnings),
        Err(errors) => panic!("{}: {errors:#?}", path.display()),
    }
}

#[test]
fn the_builtin_schema() {
    let schema = read(&root().join("runtime/klogger.klogger"), true);
    let names: Vec<&str> = schema.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, BUILTIN_EVENTS);
}

#[test]
fn every_schema() {
    let mut files = 0;
    for folder in std::fs::read_dir(root().join("schemata")).unwrap() {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()) {
            if file.extension().is_some_and(|e| e == "klogger") {
                let schema = read(&file, false);
                assert_eq!(
                    file.file_stem().unwrap().to_str().unwrap(),
                    schema.name,
                    "name and file agree"
                );
                files += 1;
            }
        }
    }
    assert!(files > 0);
}
