// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A program's events are in its rings, byte by byte as klogger-schema computes their layout. Each
//! test runs the program `witness` as the command of a recording, in a separate folder, and then
//! reads the file that it left there.

mod shared;

use shared::{Event, Shared, Value, all};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The end of KLOGGER_RECORD: the TSC if it is usable, all schemata, no event off.
const ALL: &str = "1:*:";

/// Runs it with rings of 16 KiB and 64 slots, and this process as the recorder.
fn witness(folder: &TempDir, case: &str, selection: &str) -> Command {
    let record = format!("1:abc:{}:{}:64:{selection}", std::process::id(), shared::RING_SIZE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_witness"));
    command
        .arg(case)
        .env("KLOGGER_DIR", folder.path())
        .env_remove("KLOGGER_FLIGHT")
        .env("KLOGGER_RECORD", record);
    command
}

fn folder() -> TempDir {
    tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir()
        .unwrap()
}

fn run(folder: &TempDir, case: &str) -> Output {
    let output = witness(folder, case, ALL).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn only(folder: &TempDir) -> Shared {
    let mut files = all(folder.path());
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn one(n: i128) -> Value {
    Value::Numbers(vec![n])
}

fn text(t: &str) -> Value {
    Value::Text(t.into())
}

fn ids(events: &[Event]) -> Vec<i128> {
    events.iter().map(|e| e.number(0)).collect()
}

fn assert_in_order(events: &[Event]) {
    assert!(events.is_sorted_by_key(|e| e.time), "times do not rise");
    assert!(events.iter().all(|e| e.time > 0));
}

#[test]
fn every_type_is_where_its_layout_says() {
    let folder = folder();
    run(&folder, "shapes");
    let file = only(&folder);
    let events = file.events(0);
    let (tid, tgid) = (i128::from(file.slots()[0].1), i128::from(file.pid));
    let ppid = i128::from(std::process::id());
    let comm = text(&format!("{:\0<16}", "witness"));
    let expected: Vec<(&str, Vec<Value>)> = vec![
        ("NOTHING", vec![]),
        (
            "NUMBERS",
            [
                1,
                -3,
                203,
                -305,
                60_000,
                -70_006,
                4_000_000_007,
                i64::MIN.into(),
                u64::MAX.into(),
                -9,
                10,
            ]
            .map(one)
            .to_vec(),
        ),
        ("PADDED", [1, 2, 3, 4, 5, 6].map(one).to_vec()),
        (
            "SHAPES",
            vec![
                one(1),
                Value::Numbers(vec![1, 2, 3]),
                Value::Numbers(vec![4, u64::MAX.into()]),
                text("abcd\0"),
                text("name\0\0\0\0\0\0\0\0\0\0\0\0"),
            ],
        ),
        ("TEXT", vec![one(7), text("/a/path"), one(8)]),
        ("TEXT", vec![one(9), text(&"x".repeat(255)), one(10)]),
        ("TEXT", vec![one(11), text(""), one(12)]),
        ("TEXTS", vec![text("one"), one(1), text(""), text("three")]),
        ("TEXTS", vec![text("f"), one(2), text(&"p".repeat(700)), text("/a/path")]),
        ("PATH", vec![text(&"q".repeat(299))]),
        ("WHO", vec![one(-1), one(tid), one(tgid), one(ppid), one(0), one(tid), comm.clone()]),
        ("match", vec![one(1), one(2), one(3), text("a type")]),
        ("Self", vec![one(4)]),
        ("MARK", vec![one(-5), text("text")]),
    ];
    assert_eq!(tid, tgid, "the first thread logged");
    assert_in_order(&events);
    let found: Vec<_> = events.into_iter().map(|e| (e.name, e.fields)).collect();
    let expected: Vec<_> =
        expected.into_iter().map(|(name, fields)| (name.to_string(), fields)).collect();
    assert_eq!(found, expected);
}

#[test]
fn two_crates_with_one_schema_have_one_unit() {
    let folder = folder();
    run(&folder, "twins");
    let file = only(&folder);
    assert_eq!(file.schemata(), 2, "example and words, once each");
    let fields: Vec<_> = file.events(0).into_iter().map(|e| (e.name, e.fields)).collect();
    assert_eq!(fields, [1, 2].map(|n| ("REQUEST".to_string(), vec![one(n), one(11 * n)])));
}

#[test]
fn each_thread_has_its_ring() {
    let folder = folder();
    run(&folder, "threads");
    let file = only(&folder);
    let slots = file.slots();
    assert_eq!(slots.len(), 4, "a slot that was not drained is not taken again: {slots:?}");
    let mut threads = Vec::new();
    for (slot, (used, tid)) in slots.into_iter().enumerate() {
        assert_eq!(used, 2, "taken and freed");
        assert!(tid > file.pid);
        let events = file.events(slot as u64);
        assert_in_order(&events);
        let thread = events[0].number(1);
        assert_eq!(ids(&events), (0..100).map(|i| thread << 32 | i).collect::<Vec<_>>());
        threads.push(thread);
    }
    threads.sort_unstable();
    assert_eq!(threads, [0, 1, 2, 3]);
}

/// Runs the case `full` until the ring is.
fn fill(folder: &TempDir) -> Child {
    let mut command = witness(folder, "full", ALL);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "full\n");
    child
}

#[test]
fn losses_of_a_full_ring_are_counted_and_logged() {
    let folder = folder();
    let mut child = fill(&folder);
    let file = only(&folder);
    let before = file.drain(0);
    let fit = shared::RING_SIZE as i128 / 24;
    assert_eq!(ids(&before), (0..fit).collect::<Vec<_>>());
    assert_eq!(i128::from(file.lost(0, false, "REQUEST")), 1000 - fit);

    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let after = file.events(0);
    let names: Vec<_> = after.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["LOST", "REQUEST", "REQUEST", "REQUEST"]);
    assert_eq!(after[0].number(0), 1000 - fit);
    let since = after[0].number(1) & ((1 << 48) - 1);
    assert!(since >= before.last().unwrap().time.into() && since <= after[0].time.into());
    assert_eq!(ids(&after[1..]), [1000, 1001, 1002]);
    assert_in_order(&after);
}

#[test]
fn without_the_tsc_events_are_the_same() {
    let folder = folder();
    let status = witness(&folder, "threads", "0:*:").status().unwrap();
    assert!(status.success());
    let file = only(&folder);
    for slot in 0..4 {
        let events = file.events(slot);
        assert_eq!(events.len(), 100);
        assert_in_order(&events);
    }
}

#[test]
fn a_panic_in_an_argument_leaves_no_event_open() {
    let folder = folder();
    run(&folder, "panic");
    let file = only(&folder);
    assert_eq!(ids(&file.events(0)), [1]);
    assert_eq!(file.nest(0), 0);
}

#[test]
fn signal_handlers_log_in_the_middle_of_events() {
    let folder = folder();
    let output = String::from_utf8(run(&folder, "signals").stdout).unwrap();
    let said: Vec<u64> = output.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let file = only(&folder);
    let (main, nested) = (file.events(0), file.nested_events(0));
    let count =
        |events: &[Event], name: &str| events.iter().filter(|e| e.name == name).count() as u64;
    // Lost without a ring: a handler ran while the thread was looking for one.
    let lost = |name: &str| {
        file.lost(0, false, name) + file.lost(0, true, name) + file.lost_without_ring(name)
    };
    assert_in_order(&main);
    assert_in_order(&nested);
    assert_eq!(count(&main, "REQUEST") + lost("REQUEST"), said[0]);
    assert_eq!(count(&main, "REPLY") + count(&nested, "REPLY") + lost("REPLY"), said[1]);
    assert_eq!(count(&nested, "REQUEST"), 0);
    assert_eq!(file.nest(0), 0);
}

#[test]
fn a_forked_child_has_a_file_of_its_own() {
    let folder = folder();
    run(&folder, "fork");
    let files = all(folder.path());
    assert_eq!(files.len(), 2);
    assert_eq!(ids(&files[0].events(0)), [1, 3]);
    // The slot that the child used as part of its parent is not reused, because a handler that
    // forked may still be active in it.
    assert_eq!(files[1].slots()[0], (1, 0));
    assert_eq!(ids(&files[1].events(1)), [2]);
    assert_eq!(files[1].parent, files[0].pid);
}

#[test]
fn a_library_is_a_module_of_its_own() {
    let folder = folder();
    let library = PathBuf::from(env!("CARGO_BIN_EXE_witness"))
        .with_file_name("deps/libklogger_user_example.so");
    let output = witness(&folder, "opens", ALL).arg(&library).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut counts: Vec<_> =
        all(folder.path()).iter().map(|f| (f.schemata(), f.events(0).len())).collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        [(1, 20), (2, 1)],
        "the library's requests and replies, and the program's request"
    );
}

#[test]
fn events_that_are_off_take_no_ring() {
    let folder = folder();
    let status = witness(&folder, "threads", "1:words:").status().unwrap();
    assert!(status.success());
    assert_eq!(only(&folder).slots(), []);
    let status = witness(&folder, "twins", "1:*:REQUEST").status().unwrap();
    assert!(status.success());
    assert!(all(folder.path()).iter().all(|file| file.slots().is_empty()));
}

#[test]
fn without_a_recorder_no_file_is_left() {
    let folder = folder();
    let status = witness(&folder, "threads", "").env_remove("KLOGGER_RECORD").status().unwrap();
    assert!(status.success());
    assert!(all(folder.path()).is_empty());
}
