// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Logs that are cut, changed, or not logs: what is whole is read, what is missing is named, nothing panics.

mod common;

use common::{Dice, START, cpu, events, log_of, preamble, record, ticks};
use klogger_log::decode::Decoder;
use klogger_log::error::Error;
use klogger_log::format::{Kind, VERSION};
use klogger_log::ledger::{Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::process::Processes;
use klogger_log::reader::Reader;
use klogger_log::stats::Stats;
use klogger_log::writer::{Compression, EventBlock, Sink, Writer};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};

/// An event's time, origin and serial number.
type Mark = (u64, Origin, u64);

/// Reads everything that there is to read, and returns the events and the number of damages.
fn read_all(bytes: &[u8]) -> Result<(Vec<Mark>, usize), Error> {
    let reader = Reader::from_bytes(bytes.to_vec())?;
    let decoder = Decoder::new(&reader);
    let mut processes = Processes::with_history(&reader);
    let mut merge = reader.merge(&Selection::default());
    let mut found = Vec::new();
    let mut text = Vec::new();
    while let Some(event) = merge.next() {
        processes.see(&event);
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
            assert!(named > 0, "cut at {length}: nothing is said of it");
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
        let last = reader.blocks().iter().rfind(|b| b.header.kind == Kind::Events).unwrap().offset as usize;
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
        assert!(found.iter().all(|e| all.contains(e)), "an event that was never written, after a change at {at}");
        assert!(all.len() - found.len() <= 30, "{} events are gone, after a change at {at}", all.len() - found.len());
        assert!(found.len() == all.len() || named > 0, "loss without a word, after a change at {at}");
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

#[test]
fn files_that_are_not_logs() {
    let error = |bytes: &[u8]| Reader::from_bytes(bytes.to_vec()).err().expect("an error").to_string();
    assert_eq!(error(b""), "the file is empty");
    assert_eq!(error(b"#!/bin/sh\necho this is a script\n"), "this is not a klogger log");
    assert_eq!(error(b"k2"), "this is not a klogger log");
    assert_eq!(error(b"klogg"), "the log is cut off in its preamble (5 bytes; the preamble alone has 16)");
    let mut newer = ticks(1, 1, Compression::None);
    newer[7] = VERSION + 1;
    let expected = "the log was written by a newer klogger (format 3; this one reads up to 2)";
    assert_eq!(error(&newer), expected);
    let mut corrupt = ticks(1, 1, Compression::None);
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
}

#[test]
fn logs_of_almost_nothing() {
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
    assert_eq!(reader.ledger(&[]).lost(), 0, "the recorder's ledger is believed");
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
    assert_eq!((stats.total().events, stats.damage[0].key, stats.damage[0].events), (50, Key::TimeDisorder, 1));
}

#[test]
fn the_writer_refuses_malformed_records() {
    let preamble = preamble();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let mut records = Vec::new();
    record(&preamble, "TICK").int("n", 1).finish(START, &mut records);
    records.extend_from_slice(&[0; 16]);
    let error =
        writer.block(&EventBlock { origin: cpu(0), time_base: START, first_serial: 0, records: &records }).unwrap_err();
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
        let mut writer = Writer::new(SmallDisk { bytes: &mut bytes, room }, &preamble, Compression::None).unwrap();
        let (mut serial, mut written, mut refused) = (0, 0, 0);
        for block in 0..20u64 {
            let mut records = Vec::new();
            for n in 0..50 {
                record(&preamble, "TICK").int("n", n).finish(START + block * 100 + n as u64, &mut records);
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
