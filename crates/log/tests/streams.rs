// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Streams of threads, and schemata that are added in the middle of a log.

mod common;

use common::{Dice, START, addition, cpu, events, int, layout, log_of, preamble, record, user};
use klogger_log::builder::RecordBuilder;
use klogger_log::filter::Filter;
use klogger_log::format::{BlockHeader, Kind};
use klogger_log::ledger::{Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::preamble::Addition;
use klogger_log::reader::Reader;
use klogger_log::scan::Block;
use klogger_log::stats::Stats;
use klogger_log::writer::{Compression, EventBlock, Writer};
use klogger_schema::model::{Decode, Decoding, Scalar, Shape};
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// Events of a CPU, then a schema, then the events of two threads that it describes, with losses
/// between them.
fn late(compression: Compression) -> Vec<u8> {
    let (preamble, addition) = (preamble(), addition());
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, compression).unwrap();
    let write = |writer: &mut Writer<&mut Vec<u8>>, origin, first_serial, records: Vec<u8>| {
        writer
            .block(&EventBlock { origin, time_base: START, first_serial, records: &records })
            .unwrap()
    };
    let ticks = |from: i64| {
        let mut records = Vec::new();
        (from..from + 5).for_each(|n| {
            record(&preamble, "TICK").int("n", n).finish(START + n as u64 * 10, &mut records)
        });
        records
    };
    let requests = |from: i64| {
        let mut records = Vec::new();
        for n in from..from + 5 {
            RecordBuilder::new(&addition.events[0])
                .int("n", n)
                .finish(START + n as u64 * 10 + 1, &mut records);
        }
        record(&preamble, "LOST")
            .int("count", 3)
            .finish(START + from as u64 * 10 + 60, &mut records);
        records
    };
    let serial = write(&mut writer, cpu(0), 0, ticks(0));
    writer.add(&addition).unwrap();
    let first = write(&mut writer, user(1, 50), 0, requests(0));
    write(&mut writer, user(2, 51), 0, requests(3));
    write(&mut writer, cpu(0), serial, ticks(5));
    write(&mut writer, user(1, 50), first, requests(10));
    writer.finish(&Ledger::default()).unwrap();
    bytes
}

#[test]
fn a_late_schema_is_like_any_other() {
    for compression in [Compression::None, Compression::Zstd(1)] {
        let reader = Reader::from_bytes(late(compression)).unwrap();
        assert_eq!(reader.damage(), &[]);
        assert!(reader.check_rest().is_empty());
        let names: Vec<_> = reader.preamble().events.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"REQUEST"));
        assert!(reader.preamble().schemas[0].user);
        let user_events: Vec<_> =
            names.iter().zip(reader.preamble().user_events()).filter(|(_, user)| *user).collect();
        assert_eq!(
            user_events.iter().map(|(name, _)| **name).collect::<Vec<_>>(),
            ["LOST", "REQUEST"]
        );
        let of_thread: Vec<_> =
            events(&reader).into_iter().filter(|e| e.1 == user(1, 50)).map(|e| e.2).collect();
        assert_eq!(of_thread, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]);
    }
}

#[test]
fn cut_at_every_byte_it_has_only_events_that_were_written() {
    for compression in [Compression::None, Compression::Zstd(1)] {
        let bytes = late(compression);
        let reader = Reader::from_bytes(bytes.clone()).unwrap();
        let all: BTreeSet<_> = events(&reader).into_iter().collect();
        let blocks = reader.blocks().to_vec();
        for length in blocks[0].offset as usize..bytes.len() {
            let cut = Reader::from_bytes(bytes[..length].to_vec()).unwrap();
            let found = events(&cut);
            // Its padding contains nothing that could be missing.
            let fits = |b: &Block| {
                b.offset + u64::from(b.header.size) + u64::from(b.header.stored) <= length as u64
            };
            let whole = blocks.iter().filter(|b| b.header.kind == Kind::Events && fits(b));
            let expected: u64 =
                whole.map(|b| u64::from(b.header.events) + u64::from(b.header.lost > 0)).sum();
            assert_eq!(found.len() as u64, expected, "cut at {length}");
            assert!(found.iter().all(|e| all.contains(e)), "cut at {length}");
            let known = cut.preamble().events.iter().any(|e| e.name == "REQUEST");
            assert_eq!(known, fits(&blocks[1]), "cut at {length}");
            assert!(!cut.damage().is_empty(), "cut at {length}");
        }
    }
}

#[test]
fn changed_bytes_cost_what_they_describe() {
    let bytes = late(Compression::None);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let all: BTreeSet<_> = events(&reader).into_iter().collect();
    let mut dice = Dice(4711);
    for _ in 0..2000 {
        let mut changed = bytes.clone();
        let at = dice.roll(bytes.len() as u64) as usize;
        changed[at] ^= 1 << dice.roll(8);
        let Ok(reader) = Reader::from_bytes(changed) else { continue };
        let mut merge = reader.merge(&Selection::default());
        let mut found = 0;
        while let Some(e) = merge.next() {
            let n = e.get("n").and_then(|v| v.int()).unwrap_or(-1);
            assert!(
                all.contains(&(e.time_ns, e.origin, e.serial, e.layout.name.clone(), n)),
                "a change at {at}"
            );
            found += 1;
        }
        let named = reader.damage().len() + merge.damage().len() + reader.check_rest().len();
        assert!(found == all.len() || named > 0, "unreported loss, after a change at {at}");
    }
}

/// Changes bytes of a block, and its checksum with them, as a forger does.
fn forge(bytes: &mut [u8], block: &Block, dice: &mut Dice) {
    let (from, size) = (block.offset as usize, usize::from(block.header.size));
    let stored = block.header.stored as usize;
    for _ in 0..=dice.roll(3) {
        // Mostly the header: kind, sizes, origin, times, serial numbers, counts.
        let room = if dice.roll(3) > 0 { size - 8 } else { size - 8 + stored };
        bytes[from + 8 + dice.roll(room as u64) as usize] = dice.roll(256) as u8;
    }
    let crc = crc32c::crc32c(&bytes[from + 8..from + size + stored]);
    bytes[from + 4..from + 8].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn forged_blocks_are_read_in_order_and_without_panic() {
    let bytes = late(Compression::None);
    let blocks = Reader::from_bytes(bytes.clone()).unwrap().blocks().to_vec();
    // Without its index, a log is read block by block.
    let scanned = blocks.iter().find(|b| b.header.kind == Kind::Index).unwrap().offset as usize;
    let mut dice = Dice(99);
    for _ in 0..5000 {
        let mut forged = bytes[..scanned].to_vec();
        let block = blocks[dice.roll(blocks.len() as u64 - 1) as usize];
        forge(&mut forged, &block, &mut dice);
        let reader = Reader::from_bytes(forged).unwrap();
        let found = events(&reader);
        assert!(
            found.is_sorted_by_key(|e| (e.0, e.1)),
            "a change in the block at {}",
            block.offset
        );
        let stats = Stats::new(&reader);
        assert_eq!(stats.total().events, found.len() as u64);
        reader.ledger(&stats.damage);
    }
}

#[test]
fn without_its_schema_an_event_is_unknown_and_counted() {
    let bytes = late(Compression::None);
    let block = Reader::from_bytes(bytes.clone()).unwrap().blocks()[1];
    assert_eq!(block.header.kind, Kind::Schemata);
    let mut changed = bytes;
    changed[block.offset as usize + 80] ^= 1;
    let reader = Reader::from_bytes(changed).unwrap();
    assert!(
        reader.damage()[0].what.contains("the schema of a program: its checksum is wrong"),
        "{:?}",
        reader.damage()
    );
    let mut merge = reader.merge(&Selection::default());
    let mut found = 0;
    while let Some(event) = merge.next() {
        assert_eq!(event.layout.name, "TICK");
        found += 1;
    }
    assert_eq!(found, 10);
    let unknown: Vec<_> =
        merge.damage().iter().map(|d| (d.events, d.thread.map(|t| t.tid), d.cpu)).collect();
    assert_eq!(unknown, [(5, Some(50), None), (5, Some(50), None), (5, Some(51), None)]);
    assert!(merge.damage()[0].what.contains("of an event that the log does not describe (id 100)"));
}

/// The errors for an addition by the writer, and by a reader of a log that contains it
/// nevertheless.
fn refused(addition: &Addition) -> (String, String) {
    let preamble = preamble();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let error = writer.add(addition).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let before = writer.summary().bytes;
    writer.finish(&Ledger::default()).unwrap();
    bytes.truncate(before as usize);
    let json = serde_json::to_vec(addition).unwrap();
    let size = json.len() as u32;
    let header = BlockHeader { stored: size, raw: size, ..BlockHeader::plain(Kind::Schemata) };
    bytes.extend_from_slice(&header.encode(&json));
    bytes.extend_from_slice(&json);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let reader = Reader::from_bytes(bytes).unwrap();
    assert_eq!(reader.preamble(), &preamble, "all of it is left out");
    let damage = reader.damage().iter().find(|d| d.key == Key::BlockCorrupt).expect("it is named");
    (error.to_string(), damage.what.clone())
}

#[test]
fn an_addition_that_contradicts_the_log_is_refused() {
    let says = |change: &dyn Fn(&mut Addition), text: &str| {
        let mut addition = addition();
        change(&mut addition);
        let (written, read) = refused(&addition);
        assert!(written.contains(text) && read.contains(text), "{written}\n{read}");
    };
    says(&|a| a.events[0].id = 1, "event REQUEST has an id that is invalid or in use: 1");
    says(&|a| a.events[0].id = 0, "event REQUEST has an id that is invalid or in use: 0");
    says(&|a| a.events[0].name = "tick".into(), "the event name \"tick\" is invalid or in use");
    says(
        &|a| a.events.push(a.events[0].clone()),
        "event REQUEST has an id that is invalid or in use: 100",
    );
    says(&|a| a.schemas.push(a.schemas[0].clone()), "two schemata have the name \"web\"");
    says(&|a| a.events[0].fields[0].offset = 4000, "field n lies outside of the record");
    let verb =
        |text: &str| Decoding { name: "verb".into(), flags: false, values: vec![(1, text.into())] };
    says(
        &|a| a.decodings = vec![verb("GET"), verb("PUT")],
        "two different decodings have the name \"verb\"",
    );
}

#[test]
fn a_decoding_may_be_repeated_and_is_there_once() {
    let mut preamble = preamble();
    preamble.decodings =
        vec![Decoding { name: "verb".into(), flags: false, values: vec![(1, "GET".into())] }];
    let mut addition = addition();
    addition.decodings = preamble.decodings.clone();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    writer.add(&addition).unwrap();
    assert!(writer.add(&addition).is_err(), "its events are there already");
    writer.finish(&Ledger::default()).unwrap();
    let reader = Reader::from_bytes(bytes).unwrap();
    assert_eq!((reader.damage().len(), reader.preamble().decodings.len()), (0, 1));
}

#[test]
fn the_writer_refuses_what_is_not_described_yet() {
    let (preamble, addition) = (preamble(), addition());
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let mut records = Vec::new();
    RecordBuilder::new(&addition.events[0]).finish(START, &mut records);
    let block =
        EventBlock { origin: user(1, 50), time_base: START, first_serial: 0, records: &records };
    let error = writer.block(&block).unwrap_err();
    assert_eq!(error.to_string(), "the record at byte 0 of a block of thread 50 is malformed");
    let error = writer.block(&EventBlock { origin: user(0, 50), ..block }).unwrap_err();
    assert_eq!(error.to_string(), "thread 50 has no stream");
    writer.add(&addition).unwrap();
    assert_eq!(writer.block(&block).unwrap(), 1);
    assert_eq!(writer.summary().counts, [(100, 1)]);
}

#[test]
fn a_header_without_a_valid_origin_is_rejected() {
    let header = BlockHeader {
        stored: 16,
        raw: 16,
        origin: user(7, 1234),
        ..BlockHeader::plain(Kind::Events)
    };
    let bytes = header.encode(&[0; 16]);
    let decode = |change: &[(usize, u8)]| {
        let mut bytes = bytes;
        change.iter().for_each(|(at, value)| bytes[*at] = *value);
        BlockHeader::decode(bytes[8..].first_chunk().unwrap()).map(|h| h.origin)
    };
    assert_eq!(decode(&[]), Some(user(7, 1234)));
    assert_eq!(decode(&[(68, 0)]), None, "a thread without a stream");
    assert_eq!(decode(&[(20, 3), (21, 0)]), None, "a CPU with a thread's stream");
    assert_eq!(decode(&[(20, 3), (21, 0), (68, 0)]), Some(cpu(3)));
    assert_eq!(decode(&[(20, 0xff)]), None, "the recorder with a thread's stream");
    assert_eq!(decode(&[(20, 0xff), (68, 0)]), Some(Origin::Recorder));
    assert_eq!(decode(&[(20, 0xfd), (68, 0)]), None, "more CPUs than there can be");
}

#[test]
fn a_thread_id_used_again_is_another_stream() {
    let preamble = preamble();
    let tick = |n: i64| {
        let mut records = Vec::new();
        record(&preamble, "TICK").int("n", n).finish(START + n as u64, &mut records);
        records
    };
    let blocks = [(user(1, 50), tick(1)), (user(2, 50), tick(2)), (user(2, 50), tick(3))];
    let bytes = log_of(&preamble, &blocks);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    assert_eq!(reader.damage(), &[], "serial numbers are counted by stream");
    let found: Vec<_> = events(&reader).into_iter().map(|e| (e.1, e.2)).collect();
    assert_eq!(found, [(user(1, 50), 0), (user(2, 50), 0), (user(2, 50), 1)]);
    let gone = reader.blocks()[1];
    let mut shorter = bytes;
    shorter.drain(gone.offset as usize..gone.end() as usize);
    let reader = Reader::from_bytes(shorter).unwrap();
    assert_eq!(events(&reader).len(), 2);
}

#[test]
fn losses_of_a_thread_without_a_ledger() {
    let bytes = late(Compression::None);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let ledger_at = reader.blocks().iter().find(|b| b.header.kind == Kind::Ledger).unwrap().offset;
    let cut = Reader::from_bytes(bytes[..ledger_at as usize].to_vec()).unwrap();
    let losses: Vec<_> =
        cut.ledger(&[]).entries.into_iter().filter(|e| e.key == "ring_full").collect();
    let found: Vec<_> =
        losses.iter().map(|e| (e.cpu, e.thread.map(|t| (t.tid, t.tgid)), e.count)).collect();
    assert_eq!(found, [(None, Some((50, 1000)), 6), (None, Some((51, 1000)), 3)]);
}

#[test]
fn ten_thousand_threads() {
    let preamble = preamble();
    let threads = 10_000u32;
    let blocks: Vec<_> = (0..threads)
        .map(|i| {
            let mut records = Vec::new();
            for n in 0..3u64 {
                record(&preamble, "TICK")
                    .int("n", i.into())
                    .finish(START + u64::from(i) * 5 + n * 7, &mut records);
            }
            (user(i + 1, 2 + i % 300), records)
        })
        .collect();
    let reader = Reader::from_bytes(log_of(&preamble, &blocks)).unwrap();
    assert_eq!(reader.damage(), &[]);
    let found = events(&reader);
    assert_eq!(found.len(), 3 * threads as usize);
    assert!(found.is_sorted_by_key(|e| (e.0, e.1, e.2)));
}

#[test]
fn filters_know_threads_unless_a_field_has_the_name() {
    let mut preamble = preamble();
    preamble.schemas.extend(addition().schemas);
    let web = |id, name: &str, fields: &[common::FieldSpec]| klogger_schema::layout::EventLayout {
        schema: "web".into(),
        ..layout(id, name, fields)
    };
    preamble.events.push(web(100, "REQUEST", &[int("n")]));
    preamble.events.push(web(101, "SPAWN", &[("tid", Scalar::I32, Shape::One, Decode::Plain)]));
    let (mut of_cpu, mut of_thread) = (vec![], vec![]);
    record(&preamble, "TICK").finish(START, &mut of_cpu);
    record(&preamble, "REQUEST").finish(START, &mut of_thread);
    record(&preamble, "SPAWN").int("tid", 77).finish(START, &mut of_thread);
    let reader =
        Reader::from_bytes(log_of(&preamble, &[(cpu(0), of_cpu), (user(1, 50), of_thread)]))
            .unwrap();
    let count = |text: &str| {
        let filter = Filter::new(text, reader.preamble(), START).unwrap();
        let decoder = klogger_log::decode::Decoder::new(&reader);
        let processes = klogger_log::names::Processes::new(&reader);
        let mut merge = reader.merge(&Selection::default());
        let mut n = 0;
        while let Some(event) = merge.next() {
            n += u32::from(filter.matches(&event, &decoder, &processes));
        }
        n
    };
    assert_eq!(count("tid == 50"), 1, "SPAWN has a field of that name");
    assert_eq!(count("tid == 77"), 1);
    assert_eq!(count("tgid == 1000"), 2);
    assert_eq!(count("cpu == 0 || cpu != 0"), 1, "the CPU of a thread is not known");
    assert_eq!(count("!(tgid == 1)"), 2);
    assert!(
        Filter::new("tid == 1", &common::preamble(), START).is_err(),
        "a log without programs has no threads"
    );
}
