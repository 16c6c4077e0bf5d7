// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is written is what is read: random layouts, records, divisions into blocks, streams and
//! their interleaving, order within a stream, and events that are described later.

mod common;

use common::{Dice, lost};
use klogger_log::builder::RecordBuilder;
use klogger_log::event::Value;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::origin::{Origin, Thread};
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decode, Scalar, Shape};
use proptest::prelude::*;
use std::collections::VecDeque;

const SCALARS: [Scalar; 9] = [
    Scalar::Bool,
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
];

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![4 => Just(Shape::One), 1 => (1..6u32).prop_map(Shape::Array),
        1 => (1..40u32).prop_map(Shape::Text),
        1 => prop_oneof![Just(255), 1..300u32].prop_map(Shape::Tail)]
}

/// Fields, strings among them.
fn fields() -> impl Strategy<Value = Vec<(Scalar, Shape)>> {
    prop::collection::vec((prop::sample::select(&SCALARS[..]), shape()), 0..7)
}

fn layouts() -> impl Strategy<Value = Vec<EventLayout>> {
    prop::collection::vec(fields(), 1..5).prop_map(|events| {
        let make = |(i, fields): (usize, Vec<(Scalar, Shape)>)| {
            let names: Vec<String> = (0..fields.len()).map(|f| format!("f{f}")).collect();
            let spec =
                |(name, (scalar, shape))| (String::as_str(name), scalar, shape, Decode::Plain);
            let specs: Vec<_> = names.iter().zip(fields).map(spec).collect();
            common::layout(i as u16 * 3 + 1, &format!("E{i}"), &specs)
        };
        let mut all: Vec<_> = events.into_iter().enumerate().map(make).collect();
        all.push(lost(1000));
        all
    })
}

/// A record to be written: which event, numbers for its fields, its text, ns after the one before,
/// by how many records it comes too late, and whether its block ends with it.
type Draft = (prop::sample::Index, Vec<i64>, Vec<u8>, u64, usize, bool);

fn draft() -> impl Strategy<Value = Draft> {
    let text = prop::collection::vec(1..=255u8, 0..300);
    let late = prop_oneof![5 => Just(0usize), 1 => 1..6usize];
    (
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<i64>(), 6),
        text,
        0..1000u64,
        late,
        prop::bool::weighted(0.2),
    )
}

/// What an event should read as.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    time: u64,
    origin: Origin,
    serial: u64,
    id: u16,
    values: Vec<String>,
}

fn fill(layout: &EventLayout, draft: &Draft, time: u64, out: &mut Vec<u8>) -> Vec<String> {
    let mut builder = RecordBuilder::new(layout);
    let mut values = Vec::new();
    for (field, number) in layout.fields.iter().zip(draft.1.iter().cycle()) {
        match field.shape {
            Shape::One => {
                builder = builder.int(&field.name, *number);
                values.push(number_text(field.scalar, *number));
            }
            Shape::Array(n) => {
                let elements = (0..n).map(|i| number.wrapping_add(i64::from(i)));
                for (i, element) in elements.clone().enumerate() {
                    builder = builder.element(&field.name, i as u32, element);
                }
                values.push(
                    elements.map(|e| number_text(field.scalar, e)).collect::<Vec<_>>().join(" "),
                );
            }
            Shape::Text(room) | Shape::Tail(room) => {
                // Texts of one event differ in length.
                let text = &draft.2[draft.2.len().min(values.len())..];
                builder = builder.text(&field.name, text);
                values.push(format!("{:?}", &text[..text.len().min(room as usize)]));
            }
        }
    }
    builder.finish(time, out);
    values
}

/// A number as a field of this type keeps it.
fn number_text(scalar: Scalar, number: i64) -> String {
    match scalar {
        Scalar::Bool => (number as u8 != 0).to_string(),
        Scalar::I8 => (number as i8).to_string(),
        Scalar::U8 => (number as u8).to_string(),
        Scalar::I16 => (number as i16).to_string(),
        Scalar::U16 => (number as u16).to_string(),
        Scalar::I32 => (number as i32).to_string(),
        Scalar::U32 => (number as u32).to_string(),
        Scalar::I64 => number.to_string(),
        Scalar::U64 => (number as u64).to_string(),
    }
}

fn value_text(value: Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Text(t) => format!("{t:?}"),
        Value::Array(elements) => elements.iter().map(value_text).collect::<Vec<_>>().join(" "),
    }
}

/// The order in which records reserve space: each up to `late` places after its turn.
fn ring_order(drafts: &[Draft]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..drafts.len()).collect();
    order.sort_by_key(|&i| (i + drafts[i].4, i));
    order
}

/// The origins of the streams: CPUs, the recorder, and a thread id that is used three times.
const ORIGINS: [Origin; 6] = {
    let thread = Thread { tid: 7, tgid: 7 };
    [
        Origin::Thread { stream: 9, thread },
        Origin::Cpu(0),
        Origin::Thread { stream: 1, thread },
        Origin::Recorder,
        Origin::Cpu(1),
        Origin::Thread { stream: 2, thread },
    ]
};

/// A block to be written: first serial number, records, and whether it contains an event that is
/// described later.
type Part = (u64, Vec<u8>, bool);

/// The blocks of one stream; what should be read from them is appended to `expected`.
fn parts(
    layouts: &[EventLayout],
    late: &[EventLayout],
    origin: Origin,
    drafts: &[Draft],
    start: u64,
    expected: &mut Vec<Expected>,
) -> VecDeque<Part> {
    let steps = drafts.iter().scan(start, |time, d| {
        *time += d.3;
        Some(*time)
    });
    let times: Vec<u64> = steps.collect();
    let mut parts = VecDeque::new();
    let (mut serial, mut part) = (0, (0, Vec::new(), false));
    for (place, &i) in ring_order(drafts).iter().enumerate() {
        let layout = drafts[i].0.get(layouts);
        let values = fill(layout, &drafts[i], times[i], &mut part.1);
        part.2 |= late.iter().any(|l| l.id == layout.id);
        expected.push(Expected { time: times[i], origin, serial, id: layout.id, values });
        serial = serial.wrapping_add(if layout.name == "LOST" { drafts[i].1[0] as u64 } else { 1 });
        if drafts[i].5 || place + 1 == drafts.len() {
            parts.push_back(std::mem::replace(&mut part, (serial, Vec::new(), false)));
        }
    }
    parts
}

/// How a log is written.
struct Plan {
    start: u64,
    pack: bool,
    /// The first events are described by an addition.
    late: usize,
    /// The order in which blocks of the streams follow each other.
    order: u64,
}

/// Writes the drafts of each stream, and returns the log and what should be read from it.
fn write(layouts: &[EventLayout], streams: &[Vec<Draft>], plan: &Plan) -> (Vec<u8>, Vec<Expected>) {
    let (late, early) = layouts.split_at(plan.late.min(layouts.len() - 1));
    let preamble = Preamble { events: early.to_vec(), ..Preamble::default() };
    let compression = if plan.pack { Compression::Zstd(1) } else { Compression::None };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, compression).unwrap();
    let mut expected = Vec::new();
    let mut waiting: Vec<(Origin, VecDeque<Part>)> = Vec::new();
    for (origin, drafts) in ORIGINS.into_iter().zip(streams) {
        waiting.push((origin, parts(layouts, late, origin, drafts, plan.start, &mut expected)));
    }
    let (mut dice, mut added) = (Dice(plan.order | 1), false);
    loop {
        waiting.retain(|(_, parts)| !parts.is_empty());
        if waiting.is_empty() {
            break;
        }
        let next = dice.roll(waiting.len() as u64) as usize;
        let (origin, parts) = &mut waiting[next];
        let (first_serial, records, needs_addition) = parts.pop_front().unwrap();
        if needs_addition && !std::mem::replace(&mut added, true) {
            writer.add(&Addition { events: late.to_vec(), ..Addition::default() }).unwrap();
        }
        let block =
            EventBlock { origin: *origin, time_base: plan.start, first_serial, records: &records };
        writer.block(&block).unwrap();
    }
    writer
        .finish(&Ledger { entries: vec![Entry::new(Key::EventsDisabled)], ..Ledger::default() })
        .unwrap();
    expected.sort_by_key(|e| (e.time, e.origin, e.serial));
    (bytes, expected)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read(
        layouts in layouts(),
        streams in prop::collection::vec(prop::collection::vec(draft(), 0..60), 0..7),
        start in prop::sample::select(&[1000, (1 << 48) - 5000, (7 << 48) - 1, 1 << 60][..]),
        pack in any::<bool>(),
        late in 0..3usize,
        order in any::<u64>(),
    ) {
        // A count near 2^64 wraps the serials, and the order of equal times with them; real LOST
        // records have none.
        let streams: Vec<Vec<Draft>> = streams
            .into_iter()
            .map(|drafts| drafts.into_iter().map(|mut d| { d.1[0] &= 0xff_ffff; d }).collect())
            .collect();
        let (bytes, expected) = write(&layouts, &streams, &Plan { start, pack, late, order });
        let reader = Reader::from_bytes(bytes).unwrap();
        prop_assert_eq!(reader.damage(), &[]);
        prop_assert_eq!(reader.ledger(&[]).entries, vec![Entry::new(Key::EventsDisabled)]);
        let mut merge = reader.merge(&Selection::default());
        let mut found = Vec::new();
        while let Some(e) = merge.next() {
            let values = e.layout.fields.iter().map(|f| value_text(e.value(f))).collect();
            found.push(Expected { time: e.time_ns, origin: e.origin, serial: e.serial,
                id: e.layout.id, values });
        }
        prop_assert_eq!(merge.damage(), &[]);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_window_of_time_is_a_part_of_the_whole(
        streams in prop::collection::vec(prop::collection::vec(draft(), 0..40), 1..5),
        order in any::<u64>(),
        from in 0..20_000u64,
        length in 0..20_000u64,
    ) {
        let layouts = [common::layout(1, "A", &[common::int("f0")])];
        let (bytes, mut expected) = write(&layouts, &streams,
            &Plan { start: 1000, pack: false, late: 0, order });
        let (from, to) = (1000 + from, 1000 + from + length);
        expected.retain(|e| (from..=to).contains(&e.time));
        let reader = Reader::from_bytes(bytes).unwrap();
        let mut merge = reader.merge(&Selection { from_ns: Some(from), to_ns: Some(to),
            ..Selection::default() });
        let mut found = Vec::new();
        while let Some(e) = merge.next() {
            found.push((e.time_ns, e.origin, e.serial));
        }
        prop_assert_eq!(found, expected.iter().map(|e| (e.time, e.origin,
            e.serial)).collect::<Vec<_>>());
    }
}
