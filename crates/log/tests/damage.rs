// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Truncated and changed logs, and files that are not logs: what is intact is read, what is missing
//! is reported, nothing panics.

mod common;

use common::{Dice, START, cpu, events, log_of, preamble, record, ticks};
use klogger_log::decode::Decoder;
use klogger_log::error::Error;
use klogger_log::format::{BlockHeader, Kind, VERSION};
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use klogger_log::stats::Stats;
use klogger_log::writer::{Compression, EventBlock, Sink, Writer};
use klogger_schema::layout::FieldLayout;
use klogger_schema::model::Shape;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};

/// An event's time, origin and serial number.
type Mark = (u64, Origin, u64);

/// Reads everything there is, and returns the events and the number of damages.
fn read_all(bytes: &[u8]) -> Result<(Vec<Mark>, usize), Error> {
    let reader = Reader::from_bytes(bytes.to_vec())?;
    let decoder = Decoder::new(&reader);
    let mut processes = Processes::with_history(&reader);
    let mut merge = reader.merge(&Selection::default());
    let mut found = Vec::new();
    let mut text = Vec::new();
    while let Some(event) = merge.next() {
        processes.apply(&event);
        text.clear();
        for index in 0..event.layout.fields.len() {
            decoder.show(&event, index, &processes, &mut text);
        }
        found.push((event.time_ns, event.origin, event.serial));
    }
    let named = reader.damage().len() + merge.damage().len() + reader.check_rest().len();
    assert!(found.is_sorted_by_key(|e| e.0), "time runs backwards");
    Ok((found, named))
}

#[test]
fn a_whole_log_has_no_damage() {
    for compression in [Compression::None, Compression::Zstd(3)] {
        let (found, named) = read_all(&ticks(6, 50, compression)).unwrap();
        assert_eq!((found.len(), named), (300, 0));
    }
}

/// Cuts a log at `length`, and compares with the blocks that are then whole.
fn check_cut(bytes: &[u8], length: usize) {
    let whole = Reader::from_bytes(bytes.to_vec()).unwrap();
    let fits = |b: &&klogger_log::scan::Block| {
        b.offset + u64::from(b.header.size) + u64::from(b.header.stored) <= length as u64
    };
    let blocks = whole.blocks().iter().filter(|b| b.header.kind == Kind::Events).filter(fits);
    let expected: usize = blocks.map(|b| b.header.events as usize).sum();
    match read_all(&bytes[..length]) {
        Ok((found, named)) => {
            assert_eq!(found.len(), expected, "cut at {length}");
            assert!(named > 0, "cut at {length}: not reported");
        }
        Err(Error::Empty | Error::NotALog | Error::PreambleCut { .. }) => {
            assert!((length as u64) < whole.blocks()[0].offset, "cut at {length}: not read at all");
        }
        Err(other) => panic!("cut at {length}: {other}"),
    }
}

#[test]
fn cut_at_every_byte_from_the_last_events_on() {
    for compression in [Compression::None, Compression::Zstd(3)] {
        let bytes = ticks(5, 40, compression);
        let reader = Reader::from_bytes(bytes.clone()).unwrap();
        let last = reader.blocks().iter().rfind(|b| b.header.kind == Kind::Events).unwrap().offset
            as usize;
        (last..bytes.len()).for_each(|length| check_cut(&bytes, length));
    }
}

#[test]
fn cut_at_a_thousand_places() {
    let bytes = ticks(9, 40, Compression::None);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    (0..1000).for_each(|_| check_cut(&bytes, dice.roll(bytes.len() as u64) as usize));
}

#[test]
fn a_cut_block_is_named_with_its_events() {
    let bytes = ticks(4, 40, Compression::None);
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let block = whole.blocks()[3];
    let cut = Reader::from_bytes(bytes[..block.offset as usize + 200].to_vec()).unwrap();
    let (damage, end) = (&cut.damage()[0], &cut.damage()[1]);
    assert_eq!((damage.key, damage.events, damage.cpu), (Key::FileCut, 40, Some(1)));
    assert_eq!(damage.times, Some((START + 1200, START + 1590)));
    assert_eq!(end.key, Key::RecorderKilled);
    let keys: Vec<String> = cut.ledger(&[]).entries.into_iter().map(|e| e.key).collect();
    assert_eq!(keys, ["file_cut", "recorder_killed"]);
}

#[test]
fn changed_bytes_cost_only_their_block() {
    let bytes = ticks(8, 30, Compression::None);
    let (all, _) = read_all(&bytes).unwrap();
    let all: BTreeSet<_> = all.into_iter().collect();
    let mut dice = Dice(77);
    for _ in 0..3000 {
        let mut changed = bytes.clone();
        let at = dice.roll(bytes.len() as u64) as usize;
        changed[at] ^= 1 << dice.roll(8);
        let Ok((found, named)) = read_all(&changed) else { continue };
        assert!(
            found.iter().all(|e| all.contains(e)),
            "an event that was never written, after a change at {at}"
        );
        assert!(
            all.len() - found.len() <= 30,
            "{} events are gone, after a change at {at}",
            all.len() - found.len()
        );
        assert!(found.len() == all.len() || named > 0, "unreported loss, after a change at {at}");
    }
}

#[test]
fn many_changed_bytes_at_once() {
    let bytes = ticks(8, 30, Compression::Zstd(1));
    let mut dice = Dice(78);
    for _ in 0..500 {
        let mut changed = bytes.clone();
        for _ in 0..dice.roll(40) {
            let at = dice.roll(bytes.len() as u64) as usize;
            changed[at] = dice.roll(256) as u8;
        }
        let _ = read_all(&changed);
    }
}

#[test]
fn a_block_in_the_middle_that_is_gone_is_found() {
    let bytes = ticks(8, 30, Compression::None);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let gone = reader.blocks()[4];
    let mut shorter = bytes;
    shorter.drain(gone.offset as usize..gone.end() as usize);
    let reader = Reader::from_bytes(shorter).unwrap();
    assert_eq!(events(&reader).len(), 7 * 30);
    let gap = reader.damage().iter().find(|d| d.key == Key::SerialGap).expect("a gap");
    assert_eq!((gap.events, gap.cpu), (30, Some(0)));
}

/// Many events in rings that were too small: on each of two CPUs, blocks of 20 events and a LOST
/// record that counts 7.
fn flood(blocks: u16) -> Vec<u8> {
    let preamble = preamble();
    let block = |block: u16| {
        let mut records = Vec::new();
        for i in 0..20u32 {
            let n = u32::from(block) * 20 + i;
            let time = START + u64::from(n) * 10;
            if i == 10 {
                record(&preamble, "LOST")
                    .int("count", 7)
                    .int("since", time as i64)
                    .finish(time, &mut records);
            }
            record(&preamble, "TICK").int("n", n.into()).finish(time, &mut records);
        }
        (cpu(block % 2), records)
    };
    log_of(&preamble, &(0..blocks).map(block).collect::<Vec<_>>())
}

/// (key, CPU, events) of all that a reader reports as missing.
fn missing(bytes: Vec<u8>) -> Vec<(String, Option<u16>, u64)> {
    let reader = Reader::from_bytes(bytes).unwrap();
    let mut merge = reader.merge(&Selection::default());
    while merge.next().is_some() {}
    let found = reader.ledger(merge.damage()).entries;
    found.into_iter().map(|e| (e.key, e.cpu, e.count)).collect()
}

#[test]
fn every_missing_serial_number_is_counted() {
    let bytes = flood(12);
    assert_eq!(missing(bytes.clone()), []);
    let blocks = Reader::from_bytes(bytes.clone()).unwrap().blocks().to_vec();
    // Three consecutive blocks: two of CPU 0, and one of CPU 1, each with 20 events after 7 lost
    // ones.
    let mut shorter = bytes.clone();
    shorter.drain(blocks[4].offset as usize..blocks[6].end() as usize);
    let gap = |cpu: u16, count: u64| ("serial_gap".to_string(), Some(cpu), count);
    let mut found = missing(shorter);
    found.sort();
    assert_eq!(found, [gap(0, 54), gap(1, 27)]);
    // A damaged block in the same gap is counted separately.
    let mut damaged = bytes.clone();
    damaged[blocks[8].offset as usize + 100] ^= 1;
    damaged.drain(blocks[4].offset as usize..blocks[6].end() as usize);
    let mut found = missing(damaged);
    found.sort();
    assert_eq!(found, [("block_corrupt".to_string(), Some(0), 20), gap(0, 54), gap(1, 27)]);
}

#[test]
fn serial_numbers_that_go_back_give_no_count() {
    let preamble = preamble();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    for (block, first_serial) in (0..3u64).zip([0, 5, 2]) {
        let mut records = Vec::new();
        (0..5u64).for_each(|n| {
            let time = START + block * 100 + n;
            record(&preamble, "TICK").int("n", n as i64).finish(time, &mut records);
        });
        writer
            .block(&EventBlock {
                origin: cpu(1),
                time_base: START,
                first_serial,
                records: &records,
            })
            .unwrap();
    }
    writer.finish(&Ledger::default()).unwrap();
    assert_eq!(missing(bytes.clone()), [("serial_gap".to_string(), Some(1), 0)]);
    let reader = Reader::from_bytes(bytes).unwrap();
    assert!(reader.damage()[0].what.contains("go back"), "{}", reader.damage()[0].what);
}

#[test]
fn a_corrupt_block_costs_its_events_and_they_are_counted() {
    let bytes = flood(6);
    let blocks = Reader::from_bytes(bytes.clone()).unwrap().blocks().to_vec();
    let mut damaged = bytes;
    [1, 3, 4].iter().for_each(|i: &usize| damaged[blocks[*i].offset as usize + 90] ^= 4);
    let corrupt = |cpu: u16| ("block_corrupt".to_string(), Some(cpu), 20);
    let found: Vec<_> =
        missing(damaged.clone()).into_iter().filter(|(.., count)| *count > 0).collect();
    assert_eq!(found.len(), 3);
    assert_eq!(found.iter().filter(|f| **f == corrupt(1)).count(), 2);
    assert_eq!(found.iter().filter(|f| **f == corrupt(0)).count(), 1);
    assert_eq!(events(&Reader::from_bytes(damaged).unwrap()).len(), 3 * 20 + 3);
}

/// Contents of a log that a later version may write.
#[test]
fn keys_and_blocks_of_another_version_are_shown() {
    let preamble = preamble();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let mut records = Vec::new();
    record(&preamble, "TICK").int("n", 1).finish(START, &mut records);
    writer
        .block(&EventBlock { origin: cpu(0), time_base: START, first_serial: 0, records: &records })
        .unwrap();
    let unknown =
        Entry { key: "moon_was_full".into(), ..Entry::new(Key::RingFull).event("TICK").count(3) };
    writer.finish(&Ledger { entries: vec![unknown.clone()], ..Ledger::default() }).unwrap();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    assert_eq!((reader.ledger(&[]).entries, reader.ledger(&[]).lost()), (vec![unknown], 3));
    // Two blocks of an unknown kind, after the first.
    let after = reader.blocks()[0].end() as usize;
    let stored = [7u8; 16];
    let header = BlockHeader { raw: 16, stored: 16, ..BlockHeader::plain(Kind::Other(99)) };
    let mut longer = bytes[..after].to_vec();
    for _ in 0..2 {
        longer.extend_from_slice(&header.encode(&stored));
        longer.extend_from_slice(&stored);
    }
    longer.extend_from_slice(&bytes[after..]);
    let reader = Reader::from_bytes(longer).unwrap();
    let unknown: Vec<_> = reader.damage().iter().filter(|d| d.key == Key::UnknownBlock).collect();
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].what.starts_with("2 blocks"), "{}", unknown[0].what);
    assert_eq!((unknown[0].events, events(&reader).len()), (0, 1));
}

/// A log up to its last block of events.
fn without_end(mut bytes: Vec<u8>) -> Vec<u8> {
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let end = reader.blocks().iter().rfind(|b| b.header.kind == Kind::Events).unwrap().end();
    bytes.truncate(end as usize);
    bytes
}

#[test]
fn a_changed_bit_in_the_preamble_costs_nothing() {
    let bytes = ticks(4, 20, Compression::None);
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let all = events(&whole);
    let head = whole.blocks()[0].offset as usize;
    for bit in (0..head * 8).filter(|bit| *bit < 16 * 8 || bit % 13 == 0) {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        // With its index and without.
        let no_trailer = changed[..changed.len() - 1].to_vec();
        for (place, changed) in [changed, no_trailer].into_iter().enumerate() {
            let is_log = place == 0 || bit >= 7 * 8;
            let reader = match Reader::from_bytes(changed) {
                Ok(reader) => reader,
                Err(error) => {
                    assert!(!is_log, "bit {bit}: {error}");
                    continue;
                }
            };
            assert_eq!(
                (reader.preamble(), reader.preamble_crc()),
                (whole.preamble(), whole.preamble_crc())
            );
            assert_eq!(events(&reader), all);
            // The padding after it has no checksum, and needs none.
            assert!(
                reader.damage().iter().any(|d| d.key == Key::Mended) || bit / 8 + 8 >= head,
                "bit {bit}"
            );
            assert_eq!(reader.ledger(&[]).lost(), 0);
        }
    }
}

#[test]
fn a_changed_byte_costs_only_its_part_of_a_block() {
    for (compression, part) in [(Compression::None, 4 << 10), (Compression::Zstd(1), 128 << 10)] {
        let bytes = ticks(2, 30_000, compression);
        let whole = Reader::from_bytes(bytes.clone()).unwrap();
        let block = whole.blocks()[1];
        assert!(block.header.parts > 1);
        let all = events(&whole);
        let mut dice = Dice(5);
        for _ in 0..20 {
            let at = block.offset + dice.roll(block.header.span());
            let mut changed = bytes.clone();
            changed[at as usize] ^= 1 << dice.roll(8);
            // With its index and without; without it, the header of the block must be intact.
            let no_trailer = changed[..changed.len() - 1].to_vec();
            let in_header = at - block.offset < u64::from(block.header.size);
            let logs = if in_header { vec![changed] } else { vec![changed, no_trailer] };
            for changed in logs {
                let reader = Reader::from_bytes(changed).unwrap();
                let mut merge = reader.merge(&Selection::default());
                let mut found = 0;
                while let Some(event) = merge.next() {
                    let n = event.get("n").and_then(|v| v.int()).unwrap();
                    // Its number, time and serial number are unchanged.
                    let (time, origin, serial, _, expected) = &all[n as usize];
                    assert_eq!(
                        (event.time_ns, event.origin, event.serial, n),
                        (*time, *origin, *serial, *expected)
                    );
                    found += 1;
                }
                let missing: u64 = merge.damage().iter().map(|d| d.events).sum();
                assert_eq!(found + missing, all.len() as u64, "a change at {at}");
                assert!(
                    missing * 16 <= part + 16,
                    "{missing} events are gone, after a change at {at}"
                );
                let is_padding = at + 8 >= block.end();
                assert!(
                    !merge.damage().is_empty() || is_padding,
                    "a change at {at} is not reported"
                );
            }
        }
    }
}

/// `klogger rescue` copies what can be read to another log.
#[test]
fn a_damaged_block_is_copied_but_for_its_damaged_part() {
    let bytes = ticks(1, 3000, Compression::None);
    let block = Reader::from_bytes(bytes.clone()).unwrap().blocks()[0];
    let mut changed = bytes;
    changed[block.offset as usize + 20_000] ^= 1;
    let reader = Reader::from_bytes(changed).unwrap();
    let read = events(&reader);
    assert!(read.len() < 3000 && read.len() > 2700);
    let mut copy = Vec::new();
    let mut writer = Writer::new(&mut copy, reader.preamble(), Compression::None).unwrap();
    reader.copy_to(&mut writer).unwrap();
    writer.finish(&Ledger::default()).unwrap();
    let copy = Reader::from_bytes(copy).unwrap();
    assert_eq!(events(&copy), read);
    let gap = copy.damage().iter().find(|d| d.key == Key::SerialGap).expect("a gap");
    assert_eq!(gap.events as usize, 3000 - read.len());
}

#[test]
fn a_log_that_is_being_written_is_not_called_damaged() {
    let bytes = without_end(ticks(3, 20, Compression::None));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.klog");
    let written = std::fs::File::create(&path).unwrap();
    let keys = |length: usize| {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let reader = Reader::open(&path).unwrap();
        let keys: Vec<Key> = reader.damage().iter().map(|d| d.key).collect();
        (events(&reader).len(), keys, reader.is_being_written())
    };
    klogger_log::lock::lock(&written).unwrap();
    assert_eq!(keys(bytes.len()), (60, vec![Key::BeingWritten], true));
    // The last block is incomplete, perhaps even its header.
    assert_eq!(keys(bytes.len() - 8), (40, vec![Key::BeingWritten], true));
    let last = Reader::from_bytes(bytes.clone()).unwrap().blocks()[2].offset as usize;
    assert_eq!(keys(last + 10), (40, vec![Key::BeingWritten], true));
    // A block that is not the last one is complete or damaged.
    drop(written);
    assert_eq!(keys(bytes.len()), (60, vec![Key::RecorderKilled], false));
    assert_eq!(keys(bytes.len() - 8), (40, vec![Key::FileCut, Key::RecorderKilled], false));
}

#[test]
fn files_that_are_not_logs() {
    let error =
        |bytes: &[u8]| Reader::from_bytes(bytes.to_vec()).err().expect("an error").to_string();
    assert_eq!(error(b""), "the file is empty");
    assert_eq!(error(b"#!/bin/sh\necho this is a script\n"), "this is not a klogger log");
    assert_eq!(error(b"k2"), "this is not a klogger log");
    assert_eq!(
        error(b"klogg"),
        "the log is cut off in its preamble (5 bytes; the preamble alone has 16)"
    );
    // Without the blocks after the events there is no copy of the preamble.
    let mut newer = without_end(ticks(1, 1, Compression::None));
    newer[7] = VERSION + 1;
    let expected = "the log was written by a newer klogger (format 5; this one reads up to 4)";
    assert_eq!(error(&newer), expected);
    let mut corrupt = without_end(ticks(1, 1, Compression::None));
    corrupt[20] ^= 1;
    assert_eq!(error(&corrupt), "the log's preamble is damaged: its checksum is wrong");
}

#[test]
fn a_preamble_that_contradicts_itself_is_refused() {
    let refused = |change: &dyn Fn(&mut klogger_log::preamble::Preamble)| {
        let mut preamble = preamble();
        change(&mut preamble);
        let json = serde_json::to_vec(&preamble).unwrap();
        let mut bytes = klogger_log::format::encode_file_header(&json).to_vec();
        bytes.extend_from_slice(&json);
        matches!(Reader::from_bytes(bytes), Err(Error::PreambleCorrupt(_)))
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|p| p.events[0].id = 2), "an id twice");
    assert!(refused(&|p| p.events[0].id = 0), "id 0");
    assert!(refused(&|p| p.events[0].name = "../evil".into()), "a name that is a path");
    assert!(refused(&|p| p.events[0].fields[0].offset = 1 << 30), "a field outside");
    assert!(refused(&|p| p.events[0].fields[0].offset = u32::MAX), "a field that overflows");
    assert!(refused(&|p| p.events[0].fixed = 1 << 20), "an event that is too large");
    assert!(refused(&|p| p.events[0].fixed = 0), "an event without a header");
    let string = |p: &mut klogger_log::preamble::Preamble, most| {
        p.events[0].fields[0].shape = Shape::Tail(most);
    };
    assert!(!refused(&|p| string(p, 4000)));
    assert!(refused(&|p| string(p, 1 << 20)), "a string that is longer than a record");
    let twice = |p: &mut klogger_log::preamble::Preamble| {
        string(p, 255);
        let other = FieldLayout { name: "other".into(), ..p.events[0].fields[0].clone() };
        p.events[0].fields.push(other);
    };
    assert!(refused(&twice), "two strings in one place");
}

#[test]
fn nearly_empty_logs() {
    let preamble = preamble();
    let empty = Reader::from_bytes(log_of(&preamble, &[])).unwrap();
    assert_eq!((events(&empty).len(), empty.damage().len(), empty.times()), (0, 0, None));
    let mut records = Vec::new();
    record(&preamble, "TICK").int("n", 1).finish(START, &mut records);
    let one = Reader::from_bytes(log_of(&preamble, &[(cpu(3), records)])).unwrap();
    assert_eq!(events(&one), [(START, cpu(3), 0, "TICK".into(), 1)]);
}

#[test]
fn losses_take_serial_numbers_and_are_counted_without_a_ledger() {
    let preamble = preamble();
    let mut records = Vec::new();
    record(&preamble, "TICK").int("n", 1).finish(START, &mut records);
    record(&preamble, "LOST").int("count", 5).int("since", 1).finish(START + 1, &mut records);
    record(&preamble, "TICK").int("n", 2).finish(START + 1, &mut records);
    let bytes = log_of(&preamble, &[(cpu(0), records)]);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let serials: Vec<u64> = events(&reader).iter().map(|e| e.2).collect();
    assert_eq!(serials, [0, 1, 6]);
    assert_eq!(reader.totals(), (2, 5));
    assert_eq!(reader.ledger(&[]).lost(), 0, "the recorder's ledger counts");
    let end = reader.blocks()[0].end() as usize;
    let cut = Reader::from_bytes(bytes[..end].to_vec()).unwrap();
    assert_eq!(cut.ledger(&[]).lost(), 5);
}

#[test]
fn events_far_out_of_order_are_left_out_and_counted() {
    let preamble = preamble();
    let block = |time: u64| {
        let mut records = Vec::new();
        record(&preamble, "TICK").int("n", 1).finish(time, &mut records);
        (cpu(0), records)
    };
    let mut blocks: Vec<_> = (100..150).map(|i| block(START + i * 10)).collect();
    blocks.push(block(START));
    let reader = Reader::from_bytes(log_of(&preamble, &blocks)).unwrap();
    let stats = Stats::new(&reader);
    assert_eq!(
        (stats.total().events, stats.damage[0].key, stats.damage[0].events),
        (50, Key::TimeDisorder, 1)
    );
}

/// The stream itself cannot know it, but another one has passed that time.
#[test]
fn events_far_out_of_order_are_not_handed_out_after_later_ones_of_another_cpu() {
    let preamble = preamble();
    let block = |number: u16, time: u64| {
        let mut records = Vec::new();
        record(&preamble, "TICK").int("n", 1).finish(time, &mut records);
        (cpu(number), records)
    };
    let mut blocks = vec![block(0, START + 500)];
    blocks.extend((0..9).map(|i| block(1, START + 1000 + i * 10)));
    blocks.push(block(1, START + 5));
    let bytes = log_of(&preamble, &blocks);
    assert_eq!(read_all(&bytes).unwrap().0.len(), 10);
    assert_eq!(missing(bytes), [("time_disorder".to_string(), Some(1), 1)]);
}

/// A clock that runs backwards while many events are logged: those dropped and those read are all
/// events.
#[test]
fn events_lost_to_a_clock_running_backwards_are_counted() {
    let preamble = preamble();
    let block = |i: u64| {
        let mut records = Vec::new();
        for n in 0..30 {
            // From the 40th block on one second back.
            let time = 3_000_000_000 + i * 1000 + n - if i < 40 { 0 } else { 1_000_000_000 };
            record(&preamble, "TICK").int("n", n as i64).finish(time, &mut records);
        }
        (cpu(0), records)
    };
    let bytes = log_of(&preamble, &(0..60).map(block).collect::<Vec<_>>());
    let there = events(&Reader::from_bytes(bytes.clone()).unwrap()).len() as u64;
    let found = missing(bytes);
    assert!(
        found.iter().all(|(key, cpu, _)| (key.as_str(), *cpu) == ("time_disorder", Some(0))),
        "{found:?}"
    );
    let left_out: u64 = found.iter().map(|f| f.2).sum();
    assert_eq!(there + left_out, 60 * 30);
    assert!(left_out > 0 && there >= 40 * 30 - 8 * 30);
}

#[test]
fn the_writer_refuses_malformed_records() {
    let preamble = preamble();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let mut records = Vec::new();
    record(&preamble, "TICK").int("n", 1).finish(START, &mut records);
    records.extend_from_slice(&[0; 16]);
    let error = writer
        .block(&EventBlock { origin: cpu(0), time_base: START, first_serial: 0, records: &records })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(error.to_string(), "the record at byte 16 of a block of CPU 0 is malformed");
    writer.finish(&Ledger::default()).unwrap();
    assert_eq!(read_all(&bytes).unwrap().0.len(), 1);
}

/// A disk with room for `room` bytes.
struct SmallDisk<'a> {
    bytes: &'a mut Vec<u8>,
    room: usize,
}

impl Write for SmallDisk<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let fits = part.len().min(self.room - self.bytes.len());
        if fits == 0 && !part.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&part[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for SmallDisk<'_> {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.truncate(length as usize);
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_a_whole_log_with_a_ledger() {
    let preamble = preamble();
    let head = log_of(&preamble, &[]).len();
    for room in (head + 2000..head + 12_000).step_by(97) {
        let mut bytes = Vec::new();
        let mut writer =
            Writer::new(SmallDisk { bytes: &mut bytes, room }, &preamble, Compression::None)
                .unwrap();
        let (mut serial, mut written, mut refused) = (0, 0, 0);
        for block in 0..20u64 {
            let mut records = Vec::new();
            for n in 0..50 {
                record(&preamble, "TICK")
                    .int("n", n)
                    .finish(START + block * 100 + n as u64, &mut records);
            }
            match writer.block(&EventBlock {
                origin: cpu(0),
                time_base: START,
                first_serial: serial,
                records: &records,
            }) {
                Ok(next) => (serial, written) = (next, written + 50),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0);
        let summary = writer.finish(&Ledger::default()).unwrap();
        assert_eq!(summary.bytes, bytes.len() as u64);
        let reader = Reader::from_bytes(bytes).unwrap();
        assert!(reader.is_complete() && reader.damage().is_empty(), "room for {room}");
        let given_up = reader.ledger(&[]).lost();
        assert_eq!(events(&reader).len() as u64 + given_up, written, "room for {room}");
        assert_eq!(summary.events, events(&reader).len() as u64);
    }
}
