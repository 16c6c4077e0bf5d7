// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check` over the cases of `tests/reject`, and what it says of files that are no schemata at all.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn check(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_klogger")).arg("check").args(words).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn bad_schemata_are_refused_in_the_expected_words() {
    let mut cases = 0;
    for case in std::fs::read_dir(root().join("tests/reject")).unwrap().map(|entry| entry.unwrap()) {
        let file = format!("{}.klogger", case.file_name().to_string_lossy());
        let output = check(&case.path(), &[&file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert_eq!(text(&output.stderr), std::fs::read_to_string(case.path().join("expected.txt")).unwrap());
        assert!(output.stdout.is_empty(), "{file}");
        cases += 1;
    }
    assert!(cases > 0);
}

#[test]
fn good_schemata_get_a_line_each() {
    let output = check(&root().join("tests/golden/schema"), &["paper.klogger", "types.klogger"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "paper.klogger: ok, 1 event, 0 probes\ntypes.klogger: ok, 3 events, 0 probes\n");
    assert!(output.stderr.is_empty());
}

#[test]
fn a_warning_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("w.klogger"), "event A { short pid as thread }").unwrap();
    let output = check(folder.path(), &["w.klogger"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "w.klogger: ok, 1 event, 0 probes, 1 warning\n");
    assert!(text(&output.stderr).contains("write `int`"));
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let folder = root().join("tests/golden/schema");
    let output = check(&folder, &["missing.klogger", "paper.klogger"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "paper.klogger: ok, 1 event, 0 probes\n");
    assert!(text(&output.stderr).starts_with("klogger: missing.klogger: there is no such file\n  help: "));
}

#[test]
fn files_that_are_no_texts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("latin1.klogger"), b"event A {\n  int a \"gr\xf6\xdfe\" }").unwrap();
    std::fs::write(folder.path().join("long.klogger"), format!("event A {{ {} itn a }}", " ".repeat(100_000))).unwrap();
    for (file, message) in [
        ("latin1.klogger", "klogger: latin1.klogger:2: byte 21 is not UTF-8 text\n"),
        (".", "klogger: . is a directory\n"),
        ("/dev/zero", "klogger: /dev/zero has more than 1048576 bytes\n"),
        ("long.klogger", "long.klogger:1: unknown type `itn`\n  help: did you mean `int`?\n"),
    ] {
        let output = check(folder.path(), &[file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(text(&output.stderr).len() < 1000, "{file}");
    }
}

#[test]
fn programs_get_json() {
    let folder = root().join("tests/reject/cascade");
    let output = check(&folder, &["--format", "json", "cascade.klogger", "missing.klogger"]);
    assert_eq!(output.status.code(), Some(2));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value[0]["ok"], false);
    let first = &value[0]["diagnostics"][0];
    assert_eq!((&first["line"], &first["column"], &first["end_column"]), (&3.into(), &20.into(), &24.into()));
    assert_eq!(first["message"], "unknown type `ulon`");
    assert_eq!(value[1]["diagnostics"][0]["message"], "missing.klogger: there is no such file");
}
