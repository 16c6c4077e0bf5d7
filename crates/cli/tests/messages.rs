// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--messages json`: each line that klogger prints on standard error is an object
//! (docs/messages.md).

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Records programs, which needs no privilege.
const RECORD: [&str; 6] = ["record", "--engine", "user", "--messages", "json", "-o"];

fn klogger(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_klogger"));
    command.current_dir(dir).env("XDG_RUNTIME_DIR", dir);
    command
}

fn objects(stderr: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stderr).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

fn kinds(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|m| m["message"].as_str().unwrap()).collect()
}

/// The only error of a command.
fn error_of(dir: &Path, words: &[&str]) -> Value {
    let output = klogger(dir).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    let messages = objects(&output.stderr);
    assert_eq!(kinds(&messages), ["error"], "{words:?}");
    messages[0].clone()
}

#[test]
fn a_recording_from_its_start_to_its_summary() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["a.klog", "--", "sh", "-c", "read line; exit 3"];
    let mut recorder = klogger(dir.path());
    recorder.args(RECORD).args(command).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = recorder.spawn().unwrap();
    let pid = child.id();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while said.matches("progress").count() < 2 {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // A line for the command, which then ends.
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let messages = objects(said.as_bytes());
    let is = |kind: &'static str| move |m: &&Value| m["message"] == kind;
    let log = dir.path().join("a.klog");

    let started: Vec<&Value> = messages.iter().filter(is("started")).collect();
    assert_eq!(started.len(), 1);
    assert_eq!(started[0]["log"], log.to_str().unwrap());
    assert_eq!(started[0]["pid"], pid);
    assert!(started[0]["command_pid"].as_u64().unwrap() != u64::from(pid));

    let progress: Vec<&Value> = messages.iter().filter(is("progress")).collect();
    let elapsed = |m: &&Value| m["elapsed_ns"].as_u64().unwrap();
    assert!(progress.len() >= 2 && progress.is_sorted_by_key(elapsed));
    assert!(progress.iter().all(|m| m["events"].is_u64() && m["lost"] == 0 && m["bytes"].is_u64()));

    let summary = messages.last().unwrap();
    assert_eq!(summary["message"], "summary");
    assert_eq!(summary["log"], log.to_str().unwrap());
    assert_eq!(summary["bytes"], log.metadata().unwrap().len());
    assert_eq!((&summary["lost"], &summary["lost_uncounted"]), (&0.into(), &false.into()));
    assert!(elapsed(&summary) > 0 && summary["ledger"].is_array());
    assert!(summary["events"].as_u64().unwrap() > 0);
}

#[test]
fn quiet_leaves_progress_and_summary_out() {
    let dir = tempfile::tempdir().unwrap();
    let output = klogger(dir.path())
        .args(RECORD)
        .args(["a.klog", "-q", "--", "sleep", "0.5"])
        .output()
        .unwrap();
    let messages = objects(&output.stderr);
    assert_eq!(kinds(&messages).iter().filter(|k| **k != "note").collect::<Vec<_>>(), [&"started"]);
}

#[test]
fn an_error_has_its_help() {
    let dir = tempfile::tempdir().unwrap();
    let error = error_of(dir.path(), &["record", "--messages", "json", "-s", "schedular", "-a"]);
    assert_eq!(error["text"], "there is no schema 'schedular'");
    assert_eq!(error["help"], "did you mean `scheduler`?");
    let error = error_of(dir.path(), &["rescue", "--messages", "json", "4194304"]);
    assert!(error["text"].as_str().unwrap().contains("4194304"), "{error}");
}

#[test]
fn an_error_of_a_schema_has_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema wrong \"Of a type that is none\"\n\nevent A {\n    u99 x\n}\n";
    std::fs::write(dir.path().join("wrong.klogger"), text).unwrap();
    let error =
        error_of(dir.path(), &["record", "--messages", "json", "-s", "./wrong.klogger", "-a"]);
    assert_eq!((&error["file"], &error["line"]), (&"./wrong.klogger".into(), &4.into()), "{error}");
    assert!(error["text"].as_str().unwrap().contains("u99"), "{error}");
}

#[test]
fn a_recording_continues_when_its_standard_error_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = klogger(dir.path());
    command.args(RECORD).args(["a.klog", "--", "sh", "-c", "sleep 0.7 2>/dev/null; exit 5"]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut String::new()).unwrap();
    drop(stderr);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let mut info = klogger(dir.path());
    let output = info.args(["info", "--format", "json", "a.klog"]).output().unwrap();
    assert!(output.status.success());
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&info["complete"], &info["sound"]), (&true.into(), &true.into()));
}
