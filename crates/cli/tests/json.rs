// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--format json`: each command that prints anything a script may read has it (docs/json.md).

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Why the others have none.
const WITHOUT: &[(&str, &str)] = &[
    ("record", "prints messages only: --messages json"),
    ("mark", "prints nothing"),
    ("enable", "prints nothing"),
    ("disable", "prints nothing"),
    ("export", "prints the name of what it wrote, and nothing else"),
    ("gen", "prints the header"),
    ("kernel", "has commands of its own"),
    ("help", "prints help"),
];

fn klogger(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_klogger"));
    let output = command.current_dir(dir).env("XDG_RUNTIME_DIR", dir).args(words).output();
    output.expect("klogger runs")
}

fn help(words: &[&str]) -> String {
    let output = klogger(Path::new("/"), &[words, &["--help"]].concat());
    String::from_utf8(output.stdout).expect("help is text")
}

/// The names below `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    names.filter_map(|line| Some(line.split_whitespace().next()?.into())).collect()
}

#[test]
fn each_command_has_json_or_a_reason_why_not() {
    let all = commands(&help(&[]));
    assert!(all.len() > 14, "{all:?}");
    for name in &all {
        let reason = WITHOUT.iter().find(|(without, _)| without == name);
        let has = help(&[name]).contains("--format");
        assert_ne!(has, reason.is_some(), "{name}: add --format json, or a reason: {reason:?}");
    }
    assert_eq!(commands(&help(&["kernel"])), ["integrate", "help"]);
    assert!(help(&["kernel", "integrate"]).contains("--format"));
}

fn json(dir: &Path, words: &[&str]) -> Value {
    let output = klogger(dir, &[words, &["--format", "json"]].concat());
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

fn log() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs/v3.klog")
}

#[test]
fn the_answers_are_what_docs_json_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let list = json(dir.path(), &["list"]);
    assert!(list.as_array().expect("a list").iter().any(|s| s["name"] == "scheduler"));
    let engines = json(dir.path(), &["list", "--engines"]);
    assert!(engines.as_array().expect("a list").iter().all(|e| e["available"].is_boolean()));
    assert!(json(dir.path(), &["rescue"]).is_array());
    let new = json(dir.path(), &["new", "mine"]);
    assert_eq!((&new["name"], &new["written"][0]), (&"mine".into(), &"mine/mine.klogger".into()));
    let info = json(dir.path(), &["info", log().to_str().expect("a path")]);
    assert_eq!((&info["logged"], &info["lost"]), (&36.into(), &5.into()));
    assert_eq!(info["ledger"][0]["key"], "ring_full");
}

#[test]
fn an_error_is_a_message_and_no_output() {
    let words = ["info", "nowhere.klog", "--format", "json", "--messages", "json"];
    let output = klogger(Path::new("/"), &words);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let error: Value = serde_json::from_slice(&output.stderr).expect("one object");
    assert_eq!(error["message"], "error");
}
