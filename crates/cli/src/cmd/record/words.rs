// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The values of `-s`: names of schemata, and files.

use crate::failure::Failure;
use crate::schemata::{Place, is_there, place};
use std::fs;
use std::path::Path;

/// The schemata that `-s` names, each once. A value with commas names several, unless there is a
/// file of this name.
pub fn schema_names(values: &[String]) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for value in values {
        let parts: Vec<&str> = match value.contains(',') && !is_there(Path::new(value))? {
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

/// Whether both are the same bundled schema, or the same file, by whatever name.
fn same(a: &str, b: &str) -> bool {
    match (a == b, place(a), place(b)) {
        (true, ..) => true,
        (false, Ok(Place::Bundled(a)), Ok(Place::Bundled(b))) => a.name == b.name,
        (false, Ok(Place::File(a)), Ok(Place::File(b))) => {
            fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
        }
        (false, ..) => false,
    }
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
        // Whether there is one is not guessed if it cannot be looked at: a link to itself.
        let lost = folder.path().join("c,d");
        std::os::unix::fs::symlink(&lost, &lost).unwrap();
        let said = names(&[lost.to_str().unwrap()]).unwrap_err();
        assert!(said.starts_with("cannot look at "), "{said}");
    }

    #[test]
    fn each_schema_once() {
        assert_eq!(names(&["a", "b,a"]), Err("the schema 'a' is named twice".into()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.klogger");
        fs::write(&file, "").unwrap();
        let link = folder.path().join("link.klogger");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for same in [folder.path().join("./x.klogger"), link] {
            let said = names(&[file.to_str().unwrap(), same.to_str().unwrap()]);
            assert_eq!(said, Err(format!("the schema '{}' is named twice", same.display())));
        }
    }

    #[test]
    fn a_folder_and_the_file_in_it_are_one_schema() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine");
        fs::create_dir(&mine).unwrap();
        let file = mine.join("mine.klogger");
        fs::write(&file, "").unwrap();
        let (mine, file) = (mine.to_str().unwrap(), file.to_str().unwrap());
        let said = names(&[mine, file]);
        assert_eq!(said, Err(format!("the schema '{file}' is named twice")));
    }
}
