// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check` with the cases of `tests/reject`, and with files that are not schemata at all.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn check(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_klogger"))
        .arg("check")
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn bad_schemata_are_rejected_with_the_expected_messages() {
    let mut cases = 0;
    for case in std::fs::read_dir(root().join("tests/reject")).unwrap().map(|entry| entry.unwrap())
    {
        let file = format!("{}.klogger", case.file_name().to_string_lossy());
        let output = check(&case.path(), &[&file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert_eq!(
            text(&output.stderr),
            std::fs::read_to_string(case.path().join("expected.txt")).unwrap()
        );
        assert!(output.stdout.is_empty(), "{file}");
        cases += 1;
    }
    assert!(cases > 0);
}

#[test]
fn good_schemata_get_a_line_each() {
    let output = check(&root().join("tests/golden/schema"), &["paper.klogger", "types.klogger"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "paper.klogger: ok, 1 event, 0 probes\ntypes.klogger: ok, 4 events, 0 probes\n"
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_warning_is_not_an_error() {
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
    assert!(
        text(&output.stderr)
            .starts_with("klogger: missing.klogger: there is no such file\n  help: ")
    );
}

#[test]
fn files_that_are_not_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("latin1.klogger"), b"event A {\n  int a \"gr\xf6\xdfe\" }")
        .unwrap();
    std::fs::write(
        folder.path().join("long.klogger"),
        format!("event A {{ {} itn a }}", " ".repeat(100_000)),
    )
    .unwrap();
    for (file, message) in [
        ("latin1.klogger", "klogger: latin1.klogger:2: byte 21 is not UTF-8 text\n"),
        (".", "klogger: . is a directory without a schema file of its name\n"),
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
    assert_eq!(
        (&first["line"], &first["column"], &first["end_column"]),
        (&3.into(), &20.into(), &24.into())
    );
    assert_eq!(first["message"], "unknown type `ulon`");
    assert_eq!(value[1]["diagnostics"][0]["message"], "missing.klogger: there is no such file");
}

/// The types of the running kernel, used as another kernel's.
const BTF: &str = "/sys/kernel/btf/vmlinux";

#[test]
fn each_probe_is_compared_with_the_given_kernel() {
    if !Path::new(BTF).exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let probe = |place: &str| format!("probe tracepoint {place} {{ klogger(E); }}\n");
    let fits = probe("sched_process_exit(struct task_struct *p)");
    let other = format!("event E {{ }}\n{fits}{}", probe("sched_switch(int preempt)"));
    let absent = format!("event E {{ }}\n{fits}{}", probe("no_such_place()"));
    for (name, schema) in
        [("fits", format!("event E {{ }}\n{fits}")), ("other", other), ("absent", absent)]
    {
        std::fs::write(folder.path().join(format!("{name}.klogger")), schema).unwrap();
    }
    let run = |name: &str| {
        let output = check(folder.path(), &["--kernel", BTF, name]);
        (output.status.code(), text(&output.stdout).to_string())
    };
    let (code, said) = run("fits.klogger");
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "fits.klogger: ok, 1 event, 1 probe\n  yes  tracepoint sched_process_exit: E\n")
    );
    let (code, said) = run("other.klogger");
    assert_eq!(code, Some(2));
    assert!(
        said.starts_with(
            "  yes  tracepoint sched_process_exit: E\n  no   tracepoint sched_switch: E\n"
        ),
        "{said}"
    );
    assert!(said.contains("kernel: tracepoint sched_switch(bool, struct task_struct *"), "{said}");
    let (code, said) = run("absent.klogger");
    assert_eq!(code, Some(2));
    assert!(said.contains("  no   tracepoint no_such_place: E\n"), "{said}");
    // A bundled schema, by name.
    assert_eq!(run("scheduler").0, Some(0));
}

#[test]
fn a_file_that_is_not_a_kernel_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), "no kernel").unwrap();
    std::fs::write(folder.path().join("a.klogger"), "event A { int a }").unwrap();
    let output = check(folder.path(), &["--kernel", "image", "a.klogger", "a.klogger"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(
        said.starts_with(
            "klogger: image: neither a kernel nor its type information\n  help: name a vmlinux"
        ),
        "{said}"
    );
}

#[test]
fn a_schema_whose_c_does_not_compile_is_not_attached() {
    if !Path::new(BTF).exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let schema = "event E { int a }\nprobe tracepoint sched_switch(bool preempt) \
                  { klogger(E, no_such_name); }\n";
    std::fs::write(folder.path().join("c.klogger"), schema).unwrap();
    let show = |words: &[&str]| {
        let klogger = env!("CARGO_BIN_EXE_klogger");
        Command::new(klogger).arg("show").args(words).current_dir(folder.path()).output().unwrap()
    };
    let output = show(&["c.klogger"]);
    assert!(
        text(&output.stdout)
            .contains("probes on this kernel\n  none: a recording with this schema is rejected")
    );
    assert!(!text(&output.stdout).contains("  yes  "));
    assert!(text(&output.stderr).contains("use of undeclared identifier 'no_such_name'"));
    let json = show(&["c.klogger", "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["refused"], "C: use of undeclared identifier 'no_such_name'");
    assert_eq!(value["probes"][0]["attaches"], false);
}
