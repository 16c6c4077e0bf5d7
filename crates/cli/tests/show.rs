// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The output of `klogger show`.

use serde_json::Value;
use std::process::Command;

const TEXT: &str = "\
schema shown \"A schema\"

event GO \"it goes\" role switch_out {
    int  pid as thread
    string why
}

event SIZES {
    string[8] name
    short     parts[2]
}

probe tracepoint sched_process_exit(struct task_struct *p)
   or function do_exit(long code) {
    klogger(GO, 0, \"\");
    klogger(SIZES, \"\", 0);
}
";

fn show(words: &[&str]) -> Value {
    show_schema("./shown.klogger", words)
}

fn show_schema(schema: &str, words: &[&str]) -> Value {
    let text = run(&[&["show", schema, "--format", "json"], words].concat());
    serde_json::from_str(&text).unwrap()
}

fn run(words: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shown.klogger"), TEXT).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_klogger"))
        .args(words)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn keys_that_programs_rely_on() {
    let shown = show(&[]);
    assert_eq!(shown["schema"], "shown");
    assert_eq!(shown["text"], TEXT);
    let event = &shown["events"][0];
    assert_eq!((&event["name"], &event["line"]), (&"GO".into(), &3.into()));
    assert_eq!((&event["bytes"], &event["bytes_max"]), (&16.into(), &272.into()));
    assert_eq!(event["role"], "switch_out");
    assert_eq!(event["fields"][0]["name"], "pid");
    let probe = &shown["probes"][0];
    assert_eq!(probe["line"], 13);
    assert_eq!(probe["events"][0], "GO");
    let points = probe["attach_points"].as_array().unwrap();
    let kinds: Vec<&str> = points.iter().map(|p| p["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tracepoint", "function"]);
    assert_eq!(points[0]["name"], "sched_process_exit");
    assert_eq!(points[0]["parameters"][0]["type"], "struct task_struct *");
    assert_eq!(points[0]["parameters"][0]["name"], "p");
}

#[test]
fn each_engine_has_its_own_c_and_the_same_layout() {
    let layouts = show(&[])["events"].clone();
    let expected = [
        ("bpf", "shown.bpf.c", "tracepoint sched_process_exit(struct task_struct *)".into()),
        ("kernel", "shown.klogger.h", "tracepoint sched_process_exit(struct task_struct *)".into()),
        ("user", "shown.klogger.h", Value::Null),
    ];
    for (engine, file, probe) in expected {
        let shown = show(&["--engine", engine]);
        assert_eq!(shown["events"], layouts, "{engine}");
        assert_eq!(shown["texts"][0]["name"], file, "{engine}");
        assert!(shown["texts"][0]["text"].as_str().unwrap().contains("GO"), "{engine}");
        assert_eq!(shown["probes"][0], probe, "{engine}");
        // The headers may be missing, and do not say all.
        assert_eq!(shown["unchecked"].is_string(), engine == "kernel", "{engine}");
    }
}

#[test]
fn a_type_has_its_length_once() {
    let text = run(&["show", "./shown.klogger"]);
    assert!(text.contains("  string[8]  name\n"), "{text}");
    assert!(text.contains("  short[2]   parts\n"), "{text}");
}

#[test]
fn the_events_that_every_log_has_can_be_shown() {
    let shown = show_schema("klogger", &[]);
    assert_eq!((&shown["schema"], &shown["refused"]), (&"klogger".into(), &Value::Null));
    let events = shown["events"].as_array().unwrap();
    let names: Vec<&str> = events.iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"KLOGGER_START") && names.contains(&"LOST"), "{names:?}");
}
