// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! No code makes, replaces or removes files by their paths: klogger_os::outputs does it by
//! descriptors, so that other users cannot put something in their place. Tests are no such code.

use std::fs;
use std::path::{Path, PathBuf};

/// Calls that do it by a path.
const CALLS: &[&str] = &[
    "File::create",
    "fs::write(",
    "create_dir",
    "DirBuilder",
    "fs::rename(",
    "remove_file(",
    "remove_dir",
    "fs::copy(",
    "hard_link(",
    "fs::symlink(",
    "fs::set_permissions(",
    ".persist(",
    ".write(true)",
    ".create(true)",
    ".create_new(true)",
    ".truncate(true)",
    "options().append(true)",
    "rustix::fs",
    "libc::open(",
    "libc::openat(",
    "libc::creat(",
    "libc::rename",
    "libc::unlink",
    "libc::mkdir",
];

/// Functions of `std::fs` whose names alone do not show that they are called.
const IMPORTS: &[&str] =
    &["rename", "remove_file", "remove_dir", "remove_dir_all", "write", "copy", "create_dir"];

/// Whether a line imports one of them, so that it would be called by its bare name.
fn imports(line: &str) -> bool {
    let Some(names) = line.trim_start().strip_prefix("use std::fs::") else { return false };
    names.split(|c: char| !c.is_alphanumeric() && c != '_').any(|name| IMPORTS.contains(&name))
}

/// Where that is right: a file, and why.
const RIGHT: &[(&str, &str)] = &[
    ("os/src/outputs.rs", "the module itself"),
    ("os/src/outputs/partial.rs", "a part of it"),
    ("os/src/outputs/tree.rs", "a part of it"),
    ("os/src/outputs/walk.rs", "a part of it"),
    ("os/src/files.rs", "opens by /proc/self/fd what a descriptor is open on"),
    ("os/src/confine.rs", "gives a private temporary folder to the compiler"),
    ("toolchain/src/clang.rs", "files in a private temporary folder"),
    ("toolchain/src/kbuild.rs", "files in a private temporary folder"),
    ("toolchain/src/kbuild/headers.rs", "files in a private temporary folder"),
    ("engines/src/user/double.rs", "a program that tests record"),
    ("engines/src/user/trial.rs", "a file in a private temporary folder"),
    ("engines/src/kernel/parameters.rs", "values of parameters in /sys"),
    ("engines/src/kernel/device.rs", "the device of the kernel module"),
    ("c-layout/src/lib.rs", "a build script's, in OUT_DIR"),
    ("user-build/src/lib.rs", "a build script's, in OUT_DIR"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The code of a file without its tests, which are its end.
fn code(text: &str) -> &str {
    let mark = "\n#[cfg(test)]\nmod ";
    let is_block =
        |at: &usize| text[at + mark.len()..].lines().next().is_some_and(|l| l.ends_with('{'));
    let end = text.match_indices(mark).map(|(at, _)| at).find(is_block);
    &text[..end.unwrap_or(text.len())]
}

/// Whether a line calls it, and not another function whose name ends the same.
fn does(line: &str, call: &str) -> bool {
    let is_begin = |at: usize| {
        let before = line[..at].chars().next_back();
        call.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    line.match_indices(call).any(|(at, _)| is_begin(at))
}

/// Lines of code that make one of these calls, as FILE:LINE: CODE.
fn found_in(file: &str, text: &str, calls: &[&str]) -> Vec<String> {
    let lines = code(text).lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = lines.filter(|(_, line)| calls.iter().any(|call| does(line, call)));
    found.map(|(n, line)| format!("{file}:{}: {}", n + 1, line.trim())).collect()
}

/// Fails if one of these calls is made in another file than those of `right`, or not there.
fn check(calls: &[&str], right: &[(&str, &str)], instead: &str) {
    check_in(|_| true, calls, right, instead);
}

/// The same for those files only for which `within` is true.
fn check_in(within: impl Fn(&str) -> bool, calls: &[&str], right: &[(&str, &str)], instead: &str) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(&crates).unwrap() {
        let mut files = Vec::new();
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
        for path in files {
            let file = path.strip_prefix(&crates).unwrap().to_str().unwrap();
            if !within(file) {
                continue;
            }
            let found = found_in(file, &fs::read_to_string(&path).unwrap(), calls);
            match right.iter().position(|(right, _)| *right == file) {
                Some(place) if !found.is_empty() => used.push(place),
                _ => wrong.extend(found),
            }
        }
    }
    assert!(wrong.is_empty(), "use {instead}:\n{}", wrong.join("\n"));
    for (place, (file, why)) in right.iter().enumerate() {
        assert!(used.contains(&place), "{file} ({why}) needs no exception any more");
    }
}

#[test]
fn only_one_module_opens_outputs() {
    check(CALLS, RIGHT, "klogger_os::outputs");
}

#[test]
fn no_code_calls_them_by_bare_names() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let found = code(&text).lines().find(|line| imports(line));
        assert!(found.is_none(), "{}: {}: import `fs`", path.display(), found.unwrap());
    }
    assert!(imports("use std::fs::{self, File, remove_file};") && imports("use std::fs::write;"));
    assert!(!imports("use std::fs::{self, File, Metadata};"));
}

/// These hang if the file is of a file system whose server has stopped.
const LOOKS: &[&str] = &[
    "File::open(",
    "fs::metadata(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::read_link(",
    "fs::read_dir(",
    "fs::canonicalize(",
    "fs::exists(",
    ".canonicalize(",
    ".exists()",
    "is_there(",
    "open_regular(",
    "open_below(",
    "look_at(",
];

/// Where a recorder looks at files, and why none of these is one that a program has chosen; or that
/// another process does it.
const LOOKERS: &[(&str, &str)] = &[
    ("recorder/src/host.rs", "/proc and /sys"),
    ("recorder/src/workload.rs", "the command of the recording, which could not be run"),
    ("recorder/src/rescue/vmcore/dump.rs", "a dump that the user names"),
    ("engines/src/anchor/frames.rs", "/proc"),
    ("engines/src/bpf/otel/files.rs", "on a thread that may hang"),
    ("engines/src/bpf/pages.rs", "/proc"),
    ("engines/src/bpf/pins.rs", "/sys/fs/bpf"),
    ("engines/src/kernel/costs.rs", "/sys"),
    ("engines/src/kernel/load.rs", "modules of the recorder's own user"),
    ("engines/src/kernel/parameters.rs", "/sys"),
    ("engines/src/user_code/files.rs", "the root directory"),
    ("engines/src/user/folder.rs", "folders for programs that log, in memory"),
    ("engines/src/user/process.rs", "/proc"),
    ("engines/src/user/program.rs", "/proc"),
    ("engines/src/user/drain/admit.rs", "/proc"),
    ("symbolize/src/files.rs", "only in the process that finds files"),
    ("symbolize/src/unwind.rs", "only in the process that reads files"),
    ("symbolize/src/worker.rs", "only in the process that reads files"),
    ("programs/src/which.rs", "of what answers"),
    ("programs/src/libraries.rs", "of what answers"),
    ("programs/src/symbols.rs", "debug information of the machine"),
    ("programs/src/variables.rs", "the same, in the process that reads files"),
];

#[test]
fn recorders_do_not_hang_with_a_file_system() {
    let crates = ["recorder/", "engines/", "symbolize/", "programs/"];
    let within = |file: &str| crates.iter().any(|one| file.starts_with(one));
    check_in(within, LOOKS, LOOKERS, "klogger_os::answers");
}

/// These panic if nobody reads, or the disk is full.
const PRINTS: &[&str] = &["println!", "print!", "eprintln!", "eprint!", "dbg!"];
const PRINTERS: &[(&str, &str)] = &[
    ("c-layout/src/lib.rs", "tells cargo, from a build script"),
    ("user-build/src/lib.rs", "tells cargo, from a build script"),
];

#[test]
fn only_one_module_prints() {
    check(PRINTS, PRINTERS, "say!, or crate::messages");
}

/// These panic if there may be no more threads.
const SPAWNS: &[&str] = &["thread::spawn(", "scope.spawn(", "\"a thread can be"];

#[test]
fn no_thread_is_taken_for_granted() {
    let right = [("ring/src/pair/running.rs", "threads of a test of rings")];
    check(SPAWNS, &right, "klogger_os::threads");
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let tests = "\n#[cfg(test)]\nmod tests {\n    fs::write(path, text)\n}\n";
    let code = "#[cfg(test)]\nmod t;\n// fs::write(\nstd::fs::write(path, text)?;\n\
                made.persist(path)\nTableFile::create(path)\n";
    let text = format!("{code}{tests}");
    let found = ["x.rs:4: std::fs::write(path, text)?;", "x.rs:5: made.persist(path)"];
    assert_eq!(found_in("x.rs", &text, CALLS), found);
}
