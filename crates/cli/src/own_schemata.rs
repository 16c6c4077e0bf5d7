// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Schemata of the user's own, by name: `FOLDER/NAME/NAME.klogger`, in the folders of
//! `$KLOGGER_SCHEMATA` and in `~/.config/klogger/schemata`. `schemata()` in
//! python/klogger/analysis.py has the same order; a test compares them.

use crate::schema_file;
use crate::shared_texts::included;
use klogger_os::missed;
use klogger_toolchain::bundled;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where they are looked for, in this order.
pub fn folders() -> Vec<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    folders_of(set("KLOGGER_SCHEMATA"), set("XDG_CONFIG_HOME"), set("HOME"))
}

fn folders_of(
    named: Option<OsString>,
    config: Option<OsString>,
    home: Option<OsString>,
) -> Vec<PathBuf> {
    let named = named.iter().flat_map(env::split_paths).filter(|p| !p.as_os_str().is_empty());
    let config = config.map(PathBuf::from).or(home.map(|home| Path::new(&home).join(".config")));
    named.chain(config.map(|config| config.join("klogger/schemata"))).collect()
}

/// The file of the first one of this name. None also if that is a copy of the bundled schema, which
/// is compiled already.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(&folders(), name)
}

fn find_in(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let files = folders.iter().map(|folder| file_of(folder, name));
    // A folder that cannot be looked at is told of: whose schema it is decides what is recorded.
    let is_there = |file: &PathBuf| {
        let found = missed::noting_unless_gone(&file.display().to_string(), file.metadata());
        found.is_some_and(|found| found.is_file())
    };
    files.into_iter().find(is_there).filter(|file| !is_copy(file, name))
}

fn file_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).join(format!("{name}.klogger"))
}

/// With the texts that it includes.
fn is_copy(file: &Path, name: &str) -> bool {
    let Some(bundled) = bundled::find(name) else { return false };
    let own = schema_file::read(file);
    own.is_ok_and(|own| included(&file.to_string_lossy(), &own).text == bundled.text)
}

/// All that [`find`] finds, by name.
pub fn all() -> BTreeMap<String, PathBuf> {
    let folders = folders();
    let what = |folder: &Path| format!("the schemata in {}", folder.display());
    let read = |folder: &PathBuf| missed::noting_unless_gone(&what(folder), fs::read_dir(folder));
    let entries = folders.iter().filter_map(read).flatten();
    let entries = entries.filter_map(|entry| missed::noting("a folder of schemata", entry));
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| find_in(&folders, &name).map(|file| (name, file))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_folders() {
        let folders = |named: &str, config: Option<&str>| {
            folders_of(Some(named.into()), config.map(Into::into), Some("/h".into()))
        };
        let own = "/h/.config/klogger/schemata";
        assert_eq!(folders("/a:b::", None), [Path::new("/a"), Path::new("b"), Path::new(own)]);
        assert_eq!(folders("", Some("/c")), [Path::new("/c/klogger/schemata")]);
        assert!(folders_of(None, None, None).is_empty());
    }

    #[test]
    fn a_copy_of_a_bundled_schema_is_the_bundled_one() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        let scheduler = bundled::find("scheduler").unwrap();
        for (folder, text) in [(&first, scheduler.text), (&second, "event A { int a }")] {
            fs::create_dir_all(folder.join("scheduler")).unwrap();
            fs::write(file_of(folder, "scheduler"), text).unwrap();
        }
        assert_eq!(find_in(&[first.clone(), second.clone()], "scheduler"), None);
        let found = find_in(&[second.clone(), first], "scheduler");
        assert_eq!(found, Some(file_of(&second, "scheduler")));
    }
}
