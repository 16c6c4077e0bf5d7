// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The log that stands for version 1 of the format, `tests/logs/v1.klog`.
//!
//! It was made once by [`make`], and must be readable for ever: if the format changes, this file stays as it is, and
//! the new version gets one of its own. `KLOGGER_BLESS=1 cargo test -p klogger-log --test golden` makes it where it is
//! missing. What the text formats make of it stands beside it, and is checked by the tests of `klogger cat`.

mod common;

use common::{RECORDER, START, comm, cpu, int, lost, string, thread};
use klogger_log::builder::RecordBuilder;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::preamble::{Clock, Host, Preamble, ProbeState, Recorder, SchemaText};
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::model::{Decode, Decoding, Scalar, Shape};
use std::fs;
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs/v1.klog")
}

fn preamble() -> Preamble {
    let word = |name, decode| (name, Scalar::U64, Shape::One, decode);
    let state = ("state", Scalar::U32, Shape::One, Decode::Table("task_state".into()));
    let mut events = vec![
        common::layout(1, "KLOGGER_START", &[word("buffer_size", Decode::Plain), string("kernel")]),
        common::layout(2, "KLOGGER_FINISH", &[]),
        common::layout(3, "PROCESS_EXISTS", &[thread("pid"), int("tgid"), int("ppid"), comm(), string("command")]),
        lost(8),
        common::layout(9, "PROCESS_FORK", &[thread("parent"), thread("pid"), int("tgid"), comm()]),
        common::layout(20, "SCHEDOUT", &[thread("pid"), int("prio"), state]),
        common::layout(21, "SCHEDIN", &[thread("pid"), int("prio"), int("tgid")]),
        common::layout(
            22,
            "CALL",
            &[word("from", Decode::Code), ("depth", Scalar::I16, Shape::Array(3), Decode::Plain), string("note")],
        ),
    ];
    events[0].fields[0].unit = Some("bytes".into());
    let clock = Clock {
        name: "monotonic".into(),
        source: "tsc".into(),
        start_ns: START,
        start_realtime_ns: 1_190_000_000_000_000_000,
        uncertainty_ns: 80,
        user: None,
    };
    let flags = [(1, "S"), (2, "D"), (0x400, "noload")].map(|(n, t)| (n, t.to_string()));
    Preamble {
        klogger: "0.1.0".into(),
        engine: "bpf".into(),
        host: Host {
            name: "golden".into(),
            kernel: "6.1.0".into(),
            machine: "x86_64".into(),
            cpus: vec![0, 1],
            ..Host::default()
        },
        clock,
        command_line: ["klogger", "record", "-s", "test"].map(String::from).to_vec(),
        scope: "processes".into(),
        recorder: Recorder { pid: 7, tids: vec![7, 8], buffer_size: 4 << 20, lowwater: 10, overwrite: false },
        schemas: vec![SchemaText { name: "test".into(), ..SchemaText::default() }],
        events,
        decodings: vec![Decoding { name: "task_state".into(), flags: true, values: flags.to_vec() }],
        probes: vec![ProbeState {
            schema: "test".into(),
            target: "function nowhere".into(),
            note: "no such function".into(),
            events: vec!["CALL".into()],
            ..ProbeState::default()
        }],
        ..Preamble::default()
    }
}

/// The recipe: each kind of field, of block, of loss, on two CPUs and the recorder's stream.
fn make() -> Vec<u8> {
    let preamble = preamble();
    let record = |name: &str| RecordBuilder::new(preamble.events.iter().find(|e| e.name == name).unwrap());
    let (mut recorder, mut first, mut second, mut late, mut end) = (vec![], vec![], vec![], vec![], vec![]);
    record("KLOGGER_START").int("buffer_size", 4 << 20).text("kernel", b"6.1.0").finish(START, &mut recorder);
    let exists = record("PROCESS_EXISTS").int("pid", 10).int("tgid", 10).int("ppid", 1).text("comm", b"a \"shell\"");
    exists.text("command", b"sh -c $HOME @\n\xff").finish(START + 1, &mut recorder);
    record("SCHEDIN").int("pid", 10).int("prio", 120).int("tgid", 10).finish(START + 100, &mut first);
    record("PROCESS_FORK")
        .int("parent", 10)
        .int("pid", 20)
        .int("tgid", 20)
        .text("comm", b"child")
        .finish(START + 300, &mut first);
    // An interrupt: the later event took its place first.
    record("SCHEDIN").int("pid", 20).int("prio", -5).int("tgid", 20).finish(START + 410, &mut first);
    record("SCHEDOUT").int("pid", 10).int("prio", 120).int("state", 0x1402).finish(START + 400, &mut first);
    record("CALL")
        .int("from", 0xffff_1010)
        .element("depth", 0, -1)
        .element("depth", 2, 300)
        .text("note", b"a,b")
        .finish(START + 250, &mut second);
    record("LOST").int("count", 3).int("since", START as i64 + 500).finish(START + 1_000_000_000, &mut second);
    record("SCHEDOUT").int("pid", 20).int("state", 0).finish(START + 1_000_000_000, &mut second);
    record("SCHEDIN").int("pid", 0).finish(START + 2_000_000_000, &mut late);
    record("KLOGGER_FINISH").finish(START + 2_500_000_000, &mut end);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let blocks =
        [(RECORDER, 0, recorder), (cpu(0), 0, first), (cpu(1), 0, second), (cpu(0), 4, late), (RECORDER, 2, end)];
    for (origin, first_serial, records) in &blocks {
        let block = EventBlock { origin: *origin, time_base: START, first_serial: *first_serial, records };
        writer.block(&block).unwrap();
    }
    writer.symbols("ffff1000 do_fork\nffff2000 do_exit\n").unwrap();
    let entry = Entry::new(Key::RingFull).event("SCHEDIN").cpu(1).count(3).between(START + 500, START + 1_000_000_000);
    // The words of the table of keys may change; those of this file do not.
    let entry = Entry { text: "no space in the ring".into(), ..entry };
    writer.finish(&Ledger { entries: vec![entry], user_clock: None }).unwrap();
    bytes
}

#[test]
fn version_1_is_readable() {
    if std::env::var_os("KLOGGER_BLESS").is_some() && !path().exists() {
        fs::write(path(), make()).unwrap();
    }
    let reader = Reader::open(path()).unwrap();
    assert_eq!(reader.preamble(), &preamble());
    assert_eq!(reader.damage(), &[]);
    assert_eq!(reader.ledger(&[]).lost(), 3);
    let mut merge = reader.merge(&Selection::default());
    let mut found = Vec::new();
    while let Some(e) = merge.next() {
        found.push((e.time_ns - START, e.origin, e.serial, e.layout.name.as_str().to_string()));
    }
    let event = |time, origin, serial, name: &str| (time, origin, serial, name.to_string());
    let expected = [
        event(0, RECORDER, 0, "KLOGGER_START"),
        event(1, RECORDER, 1, "PROCESS_EXISTS"),
        event(100, cpu(0), 0, "SCHEDIN"),
        event(250, cpu(1), 0, "CALL"),
        event(300, cpu(0), 1, "PROCESS_FORK"),
        event(400, cpu(0), 3, "SCHEDOUT"),
        event(410, cpu(0), 2, "SCHEDIN"),
        event(1_000_000_000, cpu(1), 1, "LOST"),
        event(1_000_000_000, cpu(1), 4, "SCHEDOUT"),
        event(2_000_000_000, cpu(0), 4, "SCHEDIN"),
        event(2_500_000_000, RECORDER, 2, "KLOGGER_FINISH"),
    ];
    assert_eq!(found, expected);
}
