// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One log for each version of the format: `tests/logs/v1.klog` to `v4.klog`.
//!
//! Each was made once, by [`make`] as it was then, and must stay readable: if the format changes,
//! these files stay as they are, and the new version gets another one. `KLOGGER_BLESS=1 cargo test
//! -p klogger-log --test golden` makes the newest if it is missing. Their conversions to the text
//! formats are beside them; the tests of `klogger cat` check them.

mod common;

use common::{RECORDER, START, comm, cpu, int, lost, string, thread};
use klogger_log::builder::RecordBuilder;
use klogger_log::format::Kind;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::origin::{Origin, Thread};
use klogger_log::preamble::{
    Addition, Clock, EventClock, Host, Preamble, ProbeState, Recorder, SchemaText,
};
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, Decoding, Scalar, Shape};
use std::fs;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs").join(name)
}

/// The preamble of version 1.
fn preamble() -> Preamble {
    let word = |name, decode| (name, Scalar::U64, Shape::One, decode);
    let state = ("state", Scalar::U32, Shape::One, Decode::Table("task_state".into()));
    let mut events = vec![
        common::layout(1, "KLOGGER_START", &[word("buffer_size", Decode::Plain), string("kernel")]),
        common::layout(2, "KLOGGER_FINISH", &[]),
        common::layout(
            3,
            "PROCESS_EXISTS",
            &[thread("pid"), int("tgid"), int("ppid"), comm(), string("command")],
        ),
        lost(8),
        common::layout(9, "PROCESS_FORK", &[thread("parent"), thread("pid"), int("tgid"), comm()]),
        common::layout(20, "SCHEDOUT", &[thread("pid"), int("prio"), state]),
        common::layout(21, "SCHEDIN", &[thread("pid"), int("prio"), int("tgid")]),
        common::layout(
            22,
            "CALL",
            &[
                word("from", Decode::Code),
                ("depth", Scalar::I16, Shape::Array(3), Decode::Plain),
                string("note"),
            ],
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
        recorder: Recorder {
            pid: 7,
            tids: vec![7, 8],
            buffer_size: 4 << 20,
            lowwater: 10,
            overwrite: false,
            limits: Vec::new(),
            cpus: Vec::new(),
            threads: Default::default(),
            conditions: Vec::new(),
            triggers: Vec::new(),
            names: Vec::new(),
        },
        schemas: vec![SchemaText { name: "test".into(), ..SchemaText::default() }],
        events,
        decodings: vec![Decoding {
            name: "task_state".into(),
            flags: true,
            values: flags.to_vec(),
        }],
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

/// The preamble of version 2: a schema of programs, and their clock.
fn user_preamble() -> Preamble {
    let mut preamble = preamble();
    preamble.schemas.push(SchemaText { name: "pool".into(), user: true, ..SchemaText::default() });
    preamble
        .events
        .push(EventLayout { schema: "pool".into(), ..common::layout(30, "TASK", &[int("n")]) });
    preamble.clock.user = Some(EventClock { source: "tsc".into(), khz: 2_100_000, error_ns: 900 });
    preamble
}

/// The preamble of version 4: several texts in an event, one of them long, and endpoints.
fn preamble_of_texts() -> Preamble {
    let mut preamble = user_preamble();
    let note = ("note", Scalar::U8, Shape::Tail(600), Decode::Plain);
    let peer = ("peer", Scalar::U8, Shape::Array(20), Decode::Endpoint);
    let fields = [string("old_path"), int("result"), string("new_path"), note, peer];
    preamble.events.push(common::layout(50, "RENAME", &fields));
    preamble
}

/// A schema that comes with a program. One of its fields has the name of a column.
fn addition() -> Addition {
    let verb = ("verb", Scalar::U8, Shape::One, Decode::Table("verb".into()));
    let request = common::layout(40, "REQUEST", &[int("tid"), verb, string("path")]);
    Addition {
        schemas: vec![SchemaText { name: "web".into(), user: true, ..SchemaText::default() }],
        events: vec![EventLayout { schema: "web".into(), ..request }],
        decodings: vec![Decoding {
            name: "verb".into(),
            flags: false,
            values: vec![(1, "GET".into()), (2, "PUT".into())],
        }],
    }
}

const SERVER: Thread = Thread { tid: 1201, tgid: 1200 };
const WORKER: Thread = Thread { tid: 31, tgid: 31 };

/// What threads log: (stream, thread, first serial number, records); the last stream is of a thread
/// id that is used again. The first two come before the addition.
fn of_threads(preamble: &Preamble, addition: &Addition) -> Vec<(Origin, u64, Vec<u8>)> {
    let events = || preamble.events.iter().chain(&addition.events);
    let record = |name: &str| RecordBuilder::new(events().find(|e| e.name == name).unwrap());
    let (mut first, mut second, mut late, mut again) = (vec![], vec![], vec![], vec![]);
    record("TASK").int("n", 1).finish(START + 200, &mut first);
    record("TASK").int("n", 2).finish(START + 420, &mut first);
    record("TASK").int("n", 3).finish(START + 300, &mut second);
    record("REQUEST")
        .int("tid", 7)
        .int("verb", 2)
        .text("path", b"/a")
        .finish(START + 600, &mut late);
    record("LOST").int("count", 2).int("since", START as i64 + 700).finish(START + 900, &mut late);
    record("REQUEST").int("verb", 1).finish(START + 900, &mut late);
    record("TASK").int("n", 4).finish(START + 1_500_000_000, &mut again);
    let thread = |stream, thread| Origin::Thread { stream, thread };
    vec![
        (thread(1, WORKER), 0, first),
        (thread(2, SERVER), 0, second),
        (thread(2, SERVER), 1, late),
        (thread(3, WORKER), 0, again),
    ]
}

/// Texts that are short, empty, of the greatest length, and not UTF-8.
const RENAMES: [(&[u8], &[u8], &[u8]); 4] = [
    (b"/a b", b"/\"c\"", b""),
    (b"", "/\u{e9}t\u{e9}".as_bytes(), &[b'n'; 600]),
    (&[b'f'; 255], &[b't'; 255], b"whole"),
    (b"", b"", b"\xff"),
];

fn rename(preamble: &Preamble, out: &mut Vec<u8>) {
    let layout = preamble.events.iter().find(|e| e.name == "RENAME").unwrap();
    for (n, (from, to, note)) in (0..).zip(RENAMES) {
        let record = RecordBuilder::new(layout).text("new_path", to).int("result", -n);
        let record = record.text("note", note).text("old_path", from);
        // 127.0.0.1:80 and up
        let record = record.element("peer", 0, 2).element("peer", 2, 80 + n);
        record
            .element("peer", 4, 127)
            .element("peer", 7, 1)
            .finish(START + 2_000_000_100 + n as u64, out);
    }
}

/// The recipe: each kind of field, of block, of loss, on two CPUs, in the recorder's stream and in
/// those of threads.
fn make() -> Vec<u8> {
    let (preamble, addition) = (preamble_of_texts(), addition());
    let record =
        |name: &str| RecordBuilder::new(preamble.events.iter().find(|e| e.name == name).unwrap());
    let (mut recorder, mut first, mut second, mut late, mut renames, mut end) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    record("KLOGGER_START")
        .int("buffer_size", 4 << 20)
        .text("kernel", b"6.1.0")
        .finish(START, &mut recorder);
    let exists = record("PROCESS_EXISTS")
        .int("pid", 10)
        .int("tgid", 10)
        .int("ppid", 1)
        .text("comm", b"a \"shell\"");
    exists.text("command", b"sh -c $HOME @\n\xff").finish(START + 1, &mut recorder);
    record("SCHEDIN")
        .int("pid", 10)
        .int("prio", 120)
        .int("tgid", 10)
        .finish(START + 100, &mut first);
    record("PROCESS_FORK")
        .int("parent", 10)
        .int("pid", 20)
        .int("tgid", 20)
        .text("comm", b"child")
        .finish(START + 300, &mut first);
    // An interrupt: the later event reserved its space first.
    record("SCHEDIN")
        .int("pid", 20)
        .int("prio", -5)
        .int("tgid", 20)
        .finish(START + 410, &mut first);
    record("SCHEDOUT")
        .int("pid", 10)
        .int("prio", 120)
        .int("state", 0x1402)
        .finish(START + 400, &mut first);
    record("CALL")
        .int("from", 0xffff_1010)
        .element("depth", 0, -1)
        .element("depth", 2, 300)
        .text("note", b"a,b")
        .finish(START + 250, &mut second);
    record("LOST")
        .int("count", 3)
        .int("since", START as i64 + 500)
        .finish(START + 1_000_000_000, &mut second);
    record("SCHEDOUT").int("pid", 20).int("state", 0).finish(START + 1_000_000_000, &mut second);
    record("SCHEDIN").int("pid", 0).finish(START + 2_000_000_000, &mut late);
    // Long enough for two parts.
    for n in 0..18 {
        let call = record("CALL").int("from", 0xffff_2004 + i64::from(n));
        call.text("note", &[b'a' + n; 250]).finish(START + 2_000_000_001 + u64::from(n), &mut late);
    }
    rename(&preamble, &mut renames);
    record("KLOGGER_FINISH").finish(START + 2_500_000_000, &mut end);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let blocks = [
        (RECORDER, 0, recorder),
        (cpu(0), 0, first),
        (cpu(1), 0, second),
        (cpu(0), 4, late),
        (cpu(1), 5, renames),
        (RECORDER, 2, end),
    ];
    let threads = of_threads(&preamble, &addition);
    for (place, (origin, first_serial, records)) in threads.iter().chain(&blocks).enumerate() {
        if place == 2 {
            writer.add(&addition).unwrap();
        }
        let block =
            EventBlock { origin: *origin, time_base: START, first_serial: *first_serial, records };
        writer.block(&block).unwrap();
    }
    writer.symbols("ffff1000 do_fork\nffff2000 do_exit\n").unwrap();
    let entry = Entry::new(Key::RingFull)
        .event("SCHEDIN")
        .cpu(1)
        .count(3)
        .between(START + 500, START + 1_000_000_000);
    // Texts in the table of keys may change; those of this file do not.
    let entry = Entry { text: "no space in the ring".into(), ..entry };
    let thread =
        Entry::new(Key::RingFull).event("REQUEST").thread(SERVER.tid, SERVER.tgid).count(2);
    let thread =
        Entry { text: "no space in the ring".into(), ..thread.between(START + 700, START + 900) };
    let refused =
        Entry { text: "shop was built with another pool".into(), ..Entry::new(Key::UserRefused) };
    let user_clock = Some(EventClock { source: "tsc".into(), khz: 2_100_000, error_ns: 42 });
    let entries = vec![entry, thread, refused];
    writer
        .finish(&Ledger {
            entries,
            user_clock,
            end_ns: Some(START + 2_500_000_000),
            ..Ledger::default()
        })
        .unwrap();
    bytes
}

type Found = (u64, Origin, u64, String);

fn events(reader: &Reader) -> Vec<Found> {
    let mut merge = reader.merge(&Selection::default());
    let mut found = Vec::new();
    while let Some(e) = merge.next() {
        found.push((e.time_ns - START, e.origin, e.serial, e.layout.name.as_str().to_string()));
    }
    found
}

fn event(time: u64, origin: Origin, serial: u64, name: &str) -> Found {
    (time, origin, serial, name.to_string())
}

fn of_the_kernel() -> Vec<Found> {
    vec![
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
    ]
}

#[test]
fn version_1_is_readable() {
    let reader = Reader::open(path("v1.klog")).unwrap();
    assert_eq!(reader.preamble(), &preamble());
    assert_eq!(reader.damage(), &[]);
    assert_eq!(reader.ledger(&[]).lost(), 3);
    assert_eq!(events(&reader), of_the_kernel());
}

/// Checks all but the events of version 2 and later, and returns those.
fn check_of_programs(reader: &Reader, mut preamble: Preamble) -> Vec<Found> {
    preamble.schemas.extend(addition().schemas);
    preamble.events.extend(addition().events);
    preamble.decodings.extend(addition().decodings);
    assert_eq!(reader.preamble(), &preamble);
    assert_eq!(reader.damage(), &[]);
    let ledger = reader.ledger(&[]);
    assert_eq!(
        (ledger.lost(), ledger.entries[1].thread, ledger.user_clock.unwrap().error_ns),
        (5, Some(SERVER), 42)
    );
    let thread = |stream, thread| Origin::Thread { stream, thread };
    let mut expected = of_the_kernel();
    expected.extend([
        event(200, thread(1, WORKER), 0, "TASK"),
        event(300, thread(2, SERVER), 0, "TASK"),
        event(420, thread(1, WORKER), 1, "TASK"),
        event(600, thread(2, SERVER), 1, "REQUEST"),
        event(900, thread(2, SERVER), 2, "LOST"),
        event(900, thread(2, SERVER), 4, "REQUEST"),
        event(1_500_000_000, thread(3, WORKER), 0, "TASK"),
    ]);
    expected
}

#[test]
fn version_2_is_readable() {
    let reader = Reader::open(path("v2.klog")).unwrap();
    let mut expected = check_of_programs(&reader, user_preamble());
    expected.sort_by_key(|e| (e.0, e.1, e.2));
    assert_eq!(events(&reader), expected);
}

#[test]
fn version_3_is_readable() {
    let reader = Reader::open(path("v3.klog")).unwrap();
    let mut expected = check_of_programs(&reader, user_preamble());
    expected.extend((0..18).map(|n| event(2_000_000_001 + n, cpu(0), 5 + n, "CALL")));
    expected.sort_by_key(|e| (e.0, e.1, e.2));
    assert_eq!(events(&reader), expected);
    assert_eq!(reader.span(), (START, START + 2_500_000_000));
    assert!(reader.blocks().iter().any(|b| b.header.parts == 2));
    assert_eq!(reader.blocks().iter().filter(|b| b.header.kind == Kind::Preamble).count(), 1);
}

#[test]
fn version_4_is_readable() {
    let path = path("v4.klog");
    if std::env::var_os("KLOGGER_BLESS").is_some() && !path.exists() {
        fs::write(&path, make()).unwrap();
    }
    let reader = Reader::open(path).unwrap();
    let mut expected = check_of_programs(&reader, preamble_of_texts());
    expected.extend((0..18).map(|n| event(2_000_000_001 + n, cpu(0), 5 + n, "CALL")));
    expected.extend((0..4).map(|n| event(2_000_000_100 + n, cpu(1), 5 + n, "RENAME")));
    expected.sort_by_key(|e| (e.0, e.1, e.2));
    assert_eq!(events(&reader), expected);
    let mut merge = reader.merge(&Selection::default());
    let mut found = 0;
    while let Some(e) = merge.next() {
        if e.layout.name != "RENAME" {
            continue;
        }
        let text = |name| e.get(name).and_then(|value| value.text()).unwrap();
        assert_eq!((text("old_path"), text("new_path"), text("note")), RENAMES[found]);
        assert_eq!(e.get("result").and_then(|value| value.int()), Some(-(found as i64)));
        found += 1;
    }
    assert_eq!(found, RENAMES.len());
}
