// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Integration into synthetic kernel trees.

use super::*;

/// The parts of a kernel tree that klogger looks at.
fn linux(version: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<&str> = version.split('.').collect();
    let makefile = format!(
        "# A comment\nVERSION = {}\nPATCHLEVEL = {}\nSUBLEVEL = {}\n",
        numbers[0], numbers[1], numbers[2]
    );
    for (path, text) in [
        ("Makefile", makefile.as_str()),
        ("Kbuild", "a := b\n\nPHONY += prepare\nprepare: $(a)\n\t@:\n"),
        (
            "kernel/Makefile",
            "obj-y = fork.o \\\n\t    exit.o\n\nobj-y += sched/\nobj-y += locking/",
        ),
        ("lib/Kconfig.debug", "menu \"x\"\n\nsource \"kernel/trace/Kconfig\"\n\nendmenu\n"),
    ] {
        write(&dir.path().join(path), text).unwrap();
    }
    dir
}

fn own() -> BTreeMap<String, String> {
    let files = [("kernel/klogger/core.c", "core"), ("include/klogger/sched.klogger.h", "header")];
    files.into_iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
}

fn paths(changes: &[Change]) -> Vec<(What, &str)> {
    changes.iter().map(|c| (c.what, c.path.as_str())).collect()
}

fn contents(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let path =
                        entry.path().strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                    found.insert(path, fs::read_to_string(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn in_again_and_out() {
    let dir = linux("6.1.192");
    let before = contents(dir.path());
    let tree = Tree::open(dir.path()).unwrap();
    assert_eq!(tree.version, "6.1.192");

    let changes = tree.plan(&own()).unwrap();
    assert_eq!(contents(dir.path()), before, "a plan changes nothing");
    assert_eq!(changes.len(), 5);
    assert_eq!(changes.iter().map(|c| c.lines).sum::<usize>(), 3);
    tree.apply(&changes).unwrap();
    let after = contents(dir.path());
    assert_eq!(
        after["kernel/Makefile"]
            .matches("sched/\nobj-$(CONFIG_KLOGGER) += klogger/\nobj-y")
            .count(),
        1
    );
    assert!(
        after["Kbuild"]
            .contains("prepare\ninclude $(srctree)/kernel/klogger/Kbuild.prepare\nprepare:")
    );
    assert_eq!(paths(&tree.plan(&own()).unwrap()), []);

    tree.apply(&tree.plan_removal().unwrap()).unwrap();
    assert_eq!(contents(dir.path()), before);
    assert_eq!(paths(&tree.plan_removal().unwrap()), []);
}

#[test]
fn files_of_a_removed_schema_are_removed_and_objects_stay() {
    let dir = linux("6.12.0");
    let tree = Tree::open(dir.path()).unwrap();
    tree.apply(&tree.plan(&own()).unwrap()).unwrap();
    for path in ["kernel/klogger/core.o", "kernel/klogger/klogger.mod.c"] {
        write(&dir.path().join(path), "").unwrap();
    }
    let mut fewer = own();
    fewer.remove("include/klogger/sched.klogger.h");
    let changes = tree.plan(&fewer).unwrap();
    assert_eq!(paths(&changes), [(What::Remove, "include/klogger/sched.klogger.h")]);
}

#[test]
fn refusals() {
    let message = |dir: &Path| Tree::open(dir).err().map(|e| e.message).unwrap_or_default();
    let empty = tempfile::tempdir().unwrap();
    assert!(message(empty.path()).ends_with("is not a kernel source tree"));
    assert!(message(&empty.path().join("missing")).ends_with("is not a kernel source tree"));
    write(&empty.path().join("Makefile"), "all:\n\techo VERSION = 6\n").unwrap();
    assert!(message(empty.path()).ends_with("is not a kernel source tree"));
    assert!(message(linux("5.19.17").path()).contains("is Linux 5.19.17, which is too old"));

    let other = linux("9.0.0");
    write(&other.path().join("Kbuild"), "nothing\n").unwrap();
    assert!(message(other.path()).contains("layout of Linux 9.0.0"), "{}", message(other.path()));
}

#[test]
fn schemata_at_the_top() {
    let dir = linux("6.1.0");
    for name in [
        ".klogger.conf",
        ".klogger.conf.sched",
        "mm.klogger",
        ".klogger.conf.sched~",
        "x.klogger.orig",
    ] {
        write(&dir.path().join(name), "").unwrap();
    }
    fs::create_dir(dir.path().join("folder.klogger")).unwrap();
    let found = Tree::open(dir.path()).unwrap().schemata().unwrap();
    assert_eq!(found, [".klogger.conf", ".klogger.conf.sched", "mm.klogger"]);
}

/// What could not be looked at may be there: a removal that left it would be half of one.
#[test]
fn a_folder_that_cannot_be_looked_at_is_told() {
    let dir = linux("6.1.192");
    let tree = Tree::open(dir.path()).unwrap();
    assert!(tree.plan_removal().unwrap().is_empty());
    let link = dir.path().join("include");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let error = tree.plan_removal().unwrap_err();
    assert!(error.message.contains("cannot look at"), "{error}");
}
