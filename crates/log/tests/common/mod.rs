// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Small logs for tests.
#![allow(dead_code)] // Not every test uses all of it.

use klogger_log::builder::RecordBuilder;
use klogger_log::ledger::Ledger;
use klogger_log::merge::Selection;
use klogger_log::origin::{Origin, Thread};
use klogger_log::preamble::{Addition, Clock, Preamble, SchemaText};
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::layout::{EventLayout, FieldLayout, HEADER_SIZE, STRING_MAX};
use klogger_schema::model::{Decode, Scalar, Shape};

pub const START: u64 = 1_000_000;

pub type FieldSpec<'a> = (&'a str, Scalar, Shape, Decode);

pub fn layout(id: u16, name: &str, fields: &[FieldSpec]) -> EventLayout {
    let mut end = HEADER_SIZE;
    let mut out = Vec::new();
    for (name, scalar, shape, decode) in fields {
        let (align, size) = shape.align_and_size(*scalar);
        let offset = end.next_multiple_of(align);
        end = offset + size;
        out.push(FieldLayout {
            name: name.to_string(),
            type_name: format!("{scalar:?}").to_lowercase(),
            scalar: *scalar,
            shape: *shape,
            offset,
            unit: None,
            decode: decode.clone(),
            doc: None,
            context: None,
        });
    }
    EventLayout {
        id,
        schema: "test".into(),
        name: name.into(),
        doc: None,
        fixed: end,
        fields: out,
        about: vec![],
        role: None,
        begins: vec![],
        ends: vec![],
        line: None,
    }
}

pub fn int(name: &str) -> FieldSpec<'_> {
    (name, Scalar::I32, Shape::One, Decode::Plain)
}

pub fn thread(name: &str) -> FieldSpec<'_> {
    (name, Scalar::I32, Shape::One, Decode::Thread)
}

pub fn string(name: &str) -> FieldSpec<'_> {
    (name, Scalar::U8, Shape::Tail(STRING_MAX), Decode::Plain)
}

pub fn comm() -> FieldSpec<'static> {
    ("comm", Scalar::U8, Shape::Text(16), Decode::Plain)
}

pub fn lost(id: u16) -> EventLayout {
    let word = |name| (name, Scalar::U64, Shape::One, Decode::Plain);
    layout(id, "LOST", &[word("count"), word("since")])
}

/// Events with two numbers, `int x` and `int y`, and `LOST`.
pub fn of_pairs(names: &[&str]) -> Preamble {
    let ids = 1_u16..;
    let mut events: Vec<_> =
        ids.zip(names).map(|(id, name)| layout(id, name, &[int("x"), int("y")])).collect();
    events.push(lost(9));
    Preamble { events, clock: Clock { start_ns: START, ..Clock::default() }, ..Preamble::default() }
}

/// `TICK { int n }`, `LOST`, and the events of processes.
pub fn preamble() -> Preamble {
    let events = vec![
        layout(1, "TICK", &[int("n")]),
        lost(2),
        layout(
            3,
            "PROCESS_EXISTS",
            &[thread("pid"), int("tgid"), int("ppid"), comm(), string("command")],
        ),
        layout(4, "PROCESS_FORK", &[thread("parent"), thread("pid"), int("tgid"), comm()]),
        layout(5, "PROCESS_EXEC", &[thread("pid"), int("old_pid"), string("filename")]),
        layout(6, "PROCESS_RENAME", &[thread("pid"), comm()]),
        layout(7, "PROCESS_EXIT", &[thread("pid")]),
        layout(8, "RUN", &[thread("pid"), int("prio")]),
    ];
    Preamble { events, clock: Clock { start_ns: START, ..Clock::default() }, ..Preamble::default() }
}

pub fn record<'a>(preamble: &'a Preamble, name: &str) -> RecordBuilder<'a> {
    RecordBuilder::new(
        preamble.events.iter().find(|e| e.name == name).expect("an event of the preamble"),
    )
}

/// A log of `TICK` events with the numbers 0, 1, 2 ...: `blocks` blocks of `events` each, on two
/// CPUs by turns.
pub fn ticks(blocks: u16, events: u32, compression: Compression) -> Vec<u8> {
    let preamble = preamble();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, compression).unwrap();
    let mut serials = [0, 0];
    for block in 0..blocks {
        let cpu = Origin::Cpu(block % 2);
        let mut records = Vec::new();
        for i in 0..events {
            let n = u32::from(block) * events + i;
            record(&preamble, "TICK")
                .int("n", n.into())
                .finish(START + u64::from(n) * 10, &mut records);
        }
        let serial = &mut serials[usize::from(block % 2)];
        *serial = writer
            .block(&EventBlock {
                origin: cpu,
                time_base: START,
                first_serial: *serial,
                records: &records,
            })
            .unwrap();
    }
    writer.finish(&Ledger::default()).unwrap();
    bytes
}

/// (time, origin, serial, name, `n` or -1) of all events, in the order of the merge.
pub fn events(reader: &Reader) -> Vec<(u64, Origin, u64, String, i64)> {
    let mut all = Vec::new();
    let mut merge = reader.merge(&Selection::default());
    while let Some(event) = merge.next() {
        let n = event.get("n").and_then(|v| v.int()).unwrap_or(-1);
        all.push((event.time_ns, event.origin, event.serial, event.layout.name.clone(), n));
    }
    all
}

/// A log of the given records, (origin, records), one block each.
pub fn log_of(preamble: &Preamble, blocks: &[(Origin, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, preamble, Compression::None).unwrap();
    let mut serials = std::collections::BTreeMap::new();
    for (origin, records) in blocks {
        let serial = serials.entry(*origin).or_insert(0);
        *serial = writer
            .block(&EventBlock {
                origin: *origin,
                time_base: START,
                first_serial: *serial,
                records,
            })
            .unwrap();
    }
    writer.finish(&Ledger::default()).unwrap();
    bytes
}

pub const RECORDER: Origin = Origin::Recorder;

pub fn cpu(number: u16) -> Origin {
    Origin::Cpu(number)
}

/// The stream of a thread of process 1000.
pub fn user(stream: u32, tid: u32) -> Origin {
    Origin::Thread { stream, thread: Thread { tid, tgid: 1000 } }
}

/// A schema that is added later: `REQUEST { int n }`, id 100.
pub fn addition() -> Addition {
    let request = EventLayout { schema: "web".into(), ..layout(100, "REQUEST", &[int("n")]) };
    let schemas = vec![SchemaText { name: "web".into(), user: true, ..SchemaText::default() }];
    Addition { schemas, events: vec![request], decodings: vec![] }
}

/// A repeatable sequence of pseudo-random numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
