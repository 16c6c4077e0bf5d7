// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The values of `-s`: names of schemata, and files.

use crate::failure::Failure;
use crate::schemata::is_file;
use std::fs;
use std::path::{Path, PathBuf};

/// The schemata that `-s` names, each once. A value with commas names several, unless there is a
/// file of this name.
pub fn schema_names(values: &[String]) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for value in values {
        let parts: Vec<&str> = match value.contains(',') && !Path::new(value).exists() {
            true => value.split(',').collect(),
            false => vec![value],
        };
        for name in parts {
            if name.is_empty() {
                return Err(Failure::new(format!("-s '{value}' contains an empty name"))
                    .help("separate names with single commas: -s scheduler,locking"));
            }
            if names.iter().any(|other| same(other, name)) {
                return Err(Failure::new(format!("the schema '{name}' is named twice"))
                    .help("name each schema once"));
            }
            names.push(name.into());
        }
    }
    Ok(names)
}

/// Whether both are the same bundled schema, or the same file.
fn same(a: &str, b: &str) -> bool {
    let file = |name: &str| -> Option<PathBuf> { fs::canonicalize(name).ok() };
    a == b || (is_file(a) && is_file(b) && file(a).is_some() && file(a) == file(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(values: &[&str]) -> Result<Vec<String>, String> {
        let values: Vec<String> = values.iter().map(|v| v.to_string()).collect();
        schema_names(&values).map_err(|e| e.message)
    }

    #[test]
    fn commas_separate_names() {
        assert_eq!(names(&["a,b", "./c"]).unwrap(), ["a", "b", "./c"]);
        assert_eq!(names(&["a,,b"]), Err("-s 'a,,b' contains an empty name".into()));
        assert_eq!(names(&[""]), Err("-s '' contains an empty name".into()));
    }

    #[test]
    fn a_file_name_may_have_a_comma() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a,b.klogger");
        fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(names(&[file]).unwrap(), [file]);
    }

    #[test]
    fn each_schema_once() {
        assert_eq!(names(&["a", "b,a"]), Err("the schema 'a' is named twice".into()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.klogger");
        fs::write(&file, "").unwrap();
        let (file, same) = (file.to_str().unwrap(), folder.path().join("./x.klogger"));
        let said = names(&[file, same.to_str().unwrap()]);
        assert_eq!(said, Err(format!("the schema '{}' is named twice", same.display())));
    }
}
