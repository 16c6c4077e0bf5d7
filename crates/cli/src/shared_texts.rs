// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the texts that a schema includes: in its own folder, else klogger's own. A schema is
//! untrusted, so that no name and no link leads to other files.

use crate::schema_file;
use klogger_codegen::SHARED;
use klogger_schema::include::{ENDING, Whole, whole};
use klogger_schema::nearest::did_you_mean;
use std::fs;
use std::path::Path;

/// The text of the schema in `file` with those that it includes.
pub fn included(file: &str, text: &str) -> Whole {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    whole(file, text, &|name| find(folder, name))
}

/// What says why a text cannot be included, and the remedy.
type Why = (String, String);

/// `name` is a name without slashes or dots.
fn find(folder: &Path, name: &str) -> Result<(String, String), Why> {
    let path = folder.join(format!("{name}.{ENDING}"));
    if fs::symlink_metadata(&path).is_ok() {
        return own(folder, &path);
    }
    let found = SHARED.iter().find(|(known, _)| *known == name);
    found.map(|(name, text)| (format!("shared/{name}.{ENDING}"), text.to_string())).ok_or_else(
        || {
            let names = SHARED.iter().map(|(name, _)| *name);
            let all: Vec<&str> = names.clone().collect();
            let help = did_you_mean(name, names).unwrap_or_else(|| {
                format!(
                    "make {name}.{ENDING} in the folder of the schema; klogger has {}",
                    all.join(", ")
                )
            });
            ("there is no such text".into(), help)
        },
    )
}

/// A file of the schema's own folder.
fn own(folder: &Path, path: &Path) -> Result<(String, String), Why> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let whole = |path: &Path| path.canonicalize().ok();
    let inside = match (whole(folder), whole(path)) {
        (Some(folder), Some(file)) => file.parent() == Some(folder.as_path()) && file.is_file(),
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    let file = path.display().to_string();
    if !inside {
        return Err((
            format!("{file} is not a file of the schema's folder"),
            "put the file itself there, not a link to another folder".into(),
        ));
    }
    let failed =
        |e: crate::failure::Failure| (e.message, e.help.unwrap_or_else(|| "check the file".into()));
    schema_file::read(path).map(|text| (file, text)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_of_the_folder_and_klogger_s_own_are_found() {
        let (outer, inner) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outer.path().join("secret.shared"), "enum a { 1 \"x\" }").unwrap();
        fs::write(inner.path().join("here.shared"), "enum b { 1 \"y\" }").unwrap();
        fs::create_dir(inner.path().join("folder.shared")).unwrap();
        symlink(outer.path().join("secret.shared"), inner.path().join("link.shared")).unwrap();
        symlink(inner.path().join("here.shared"), inner.path().join("near.shared")).unwrap();
        let find = |name| find(inner.path(), name);
        assert_eq!(find("here").unwrap().1, "enum b { 1 \"y\" }");
        assert!(find("near").is_ok());
        for bad in ["link", "folder"] {
            let (why, help) = find(bad).unwrap_err();
            assert!(why.ends_with("is not a file of the schema's folder"), "{why}");
            assert!(help.contains("not a link"));
        }
        assert!(find("files").unwrap().0.starts_with("shared/"));
        assert_eq!(find("fles").unwrap_err().1, "did you mean `files`?");
        assert_eq!(find("secret").unwrap_err().0, "there is no such text");
    }
}
