// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A log that comes in piece by piece has the events that a reader of the whole log finds, whatever
//! the pieces are; and what is damaged costs no more than itself.

mod common;

use common::{Dice, START, addition, cpu, events, preamble, record, ticks};
use klogger_log::arriving::{Arriving, Piece};
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::live::LiveMerge;
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Writer};

/// An event as [`events`] has it.
type Row = (u64, Origin, u64, String, i64);

/// What has come of a log, and the events in the order of time.
#[derive(Default)]
struct Seen {
    merge: Option<LiveMerge<()>>,
    rows: Vec<Row>,
    late: usize,
    progress: Vec<u64>,
    ends: usize,
}

impl Seen {
    fn take(&mut self, log: &mut Arriving) {
        while let Some(piece) = log.next_piece().expect("a log") {
            match piece {
                Piece::Begin => {
                    let preamble = log.preamble().expect("it has begun");
                    self.merge = Some(LiveMerge::new(&preamble.events));
                }
                Piece::Events { origin, time_base, first_serial, records, .. } => {
                    let merge = self.merge.as_mut().expect("it has begun");
                    let read = merge.block(origin, time_base, first_serial, &records, &mut |_| {});
                    assert_eq!(read, records.len());
                }
                Piece::Addition(new) => self.merge.as_mut().unwrap().add(&new.events),
                Piece::Progress(until) => {
                    self.progress.push(until);
                    self.merge.as_mut().unwrap().until((), until);
                }
                Piece::End => self.ends += 1,
            }
        }
        self.release(false);
    }

    fn release(&mut self, all: bool) {
        let Seen { merge: Some(merge), rows, late, .. } = self else { return };
        let mut pass = |event: &klogger_log::event::EventRef, is_late| {
            let n = event.get("n").and_then(|v| v.int()).unwrap_or(-1);
            let name = event.layout.name.clone();
            rows.push((event.time_ns, event.origin, event.serial, name, n));
            *late += usize::from(is_late);
        };
        if all { merge.finish(&mut pass) } else { merge.release(0, &mut pass) }
    }
}

/// Reads a log in pieces of at most `most` bytes.
fn read(bytes: &[u8], most: u64) -> (Arriving, Seen) {
    let (mut log, mut seen, mut dice) = (Arriving::new(), Seen::default(), Dice(7));
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + dice.roll(most) as usize).min(rest.len()));
        log.push(now);
        seen.take(&mut log);
        rest = later;
    }
    log.finish(Key::FileCut).expect("a log");
    seen.release(true);
    (log, seen)
}

fn whole(bytes: &[u8]) -> Vec<Row> {
    events(&Reader::from_bytes(bytes.to_vec()).unwrap())
}

#[test]
fn whatever_the_pieces_the_events_are_those_of_the_whole_log() {
    for compression in [Compression::None, Compression::Zstd(1)] {
        let bytes = ticks(8, 300, compression);
        for most in [1, 13, 4096, 1 << 20] {
            let (log, seen) = read(&bytes, most);
            assert_eq!(seen.rows, whole(&bytes), "{most}");
            assert_eq!((seen.ends, log.is_complete(), log.damage()), (1, true, &[][..]));
            assert_eq!(log.length(), bytes.len() as u64);
            assert!(log.ledger().is_some());
        }
    }
}

/// A block of TICK events with these numbers, which are the 10 ns of their times.
fn block(preamble: &Preamble, numbers: &[i64]) -> Vec<u8> {
    let mut records = Vec::new();
    for n in numbers {
        record(preamble, "TICK").int("n", *n).finish(START + *n as u64 * 10, &mut records);
    }
    records
}

fn put(writer: &mut Writer<&mut Vec<u8>>, cpu: u16, first_serial: u64, records: &[u8]) {
    let block = EventBlock { origin: Origin::Cpu(cpu), time_base: START, first_serial, records };
    writer.block(&block).unwrap();
}

#[test]
fn progress_releases_events_and_is_nothing_to_other_readers() {
    let (preamble, mut bytes) = (preamble(), Vec::new());
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    put(&mut writer, 0, 0, &block(&preamble, &[1, 4]));
    put(&mut writer, 1, 0, &block(&preamble, &[2, 3]));
    writer.progress(START + 35).unwrap();
    put(&mut writer, 1, 2, &block(&preamble, &[5]));
    writer.finish(&Ledger::default()).unwrap();

    let (mut log, mut seen, mut begun) = (Arriving::new(), Seen::default(), Vec::new());
    for byte in &bytes {
        log.push(&[*byte]);
        seen.take(&mut log);
        begun.push(seen.rows.iter().map(|row| row.4).collect::<Vec<_>>());
    }
    begun.dedup();
    assert_eq!(begun, [vec![], vec![1, 2, 3]]);
    seen.release(true);
    assert_eq!(seen.progress, [START + 35]);
    assert_eq!((seen.late, &seen.rows), (0, &whole(&bytes)));
    assert!(Reader::from_bytes(bytes).unwrap().damage().is_empty());
}

#[test]
fn events_that_are_described_later() {
    let (preamble, addition, mut bytes) = (preamble(), addition(), Vec::new());
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    writer.add(&addition).unwrap();
    let all = Preamble { events: addition.events.clone(), ..Preamble::default() };
    let mut records = Vec::new();
    record(&all, "REQUEST").int("n", 5).finish(START, &mut records);
    put(&mut writer, 0, 0, &records);
    writer.finish(&Ledger::default()).unwrap();
    let (log, seen) = read(&bytes, 100);
    assert_eq!(seen.rows, [(START, cpu(0), 0, "REQUEST".into(), 5)]);
    assert!(log.preamble().unwrap().schemas.iter().any(|s| s.name == "web"));
}

#[test]
fn a_log_that_is_cut_off_anywhere_is_read_up_to_there() {
    let bytes = ticks(4, 20, Compression::None);
    let all = whole(&bytes);
    let head = bytes.len() - 8;
    let mut last = 0;
    for end in (0..head).rev().step_by(7).collect::<Vec<_>>().into_iter().rev() {
        let mut log = Arriving::new();
        let mut seen = Seen::default();
        log.push(&bytes[..end]);
        seen.take(&mut log);
        let Ok(()) = log.finish(Key::FileCut) else {
            assert!(seen.merge.is_none(), "only without a preamble");
            continue;
        };
        seen.release(true);
        assert!(seen.rows.len() >= last && seen.rows.len() % 20 == 0);
        last = seen.rows.len();
        assert!(seen.rows.iter().all(|row| all.contains(row)));
        assert!(log.damage().iter().any(|d| d.key == Key::FileCut), "{end}");
    }
    assert_eq!(last, all.len());
}

#[test]
fn a_damaged_byte_costs_its_block_and_is_noted() {
    let bytes = ticks(6, 20, Compression::None);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    for hit in reader.blocks().iter().take(6) {
        for at in [hit.offset + 1, hit.offset + 10, hit.offset + 90] {
            let mut broken = bytes.clone();
            broken[at as usize] ^= 0x41;
            let (log, seen) = read(&broken, 50);
            assert_eq!(seen.rows.len(), 100, "{at}");
            let keys: Vec<Key> = log.damage().iter().map(|d| d.key).collect();
            assert!(keys.contains(&Key::BlockCorrupt), "{keys:?}");
            assert_eq!(seen.ends, 1);
        }
    }
}

#[test]
fn a_damaged_part_costs_its_part() {
    let bytes = ticks(2, 3000, Compression::None);
    let at = Reader::from_bytes(bytes.clone()).unwrap().blocks()[0];
    let mut broken = bytes.clone();
    broken[at.end() as usize - 100] ^= 1;
    let (log, seen) = read(&broken, 5000);
    assert!((3000..6000).contains(&seen.rows.len()), "{}", seen.rows.len());
    assert_eq!(log.damage().len(), 1);
}

#[test]
fn missing_blocks_and_losses_are_noted() {
    let (preamble, mut bytes) = (preamble(), Vec::new());
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    put(&mut writer, 0, 0, &block(&preamble, &[1, 2]));
    put(&mut writer, 0, 9, &block(&preamble, &[3]));
    let mut lost = Vec::new();
    record(&preamble, "LOST").int("count", 5).int("since", START as i64).finish(START, &mut lost);
    put(&mut writer, 0, 10, &lost);
    let entries = vec![Entry::new(Key::RingFull).count(5)];
    writer.finish(&Ledger { entries: entries.clone(), ..Ledger::default() }).unwrap();
    let (log, _) = read(&bytes, 64);
    let [gap] = log.damage() else { panic!("{:?}", log.damage()) };
    assert_eq!((gap.key, gap.events), (Key::SerialGap, 7));
    assert_eq!((log.lost(), &log.ledger().unwrap().entries), (5, &entries));
}

#[test]
fn what_is_no_log() {
    for bytes in [&b"text"[..], b"\x89klog\r\n\x01", &[0; 300]] {
        let mut log = Arriving::new();
        log.push(bytes);
        let read = log.next_piece().map(drop).and_then(|()| log.finish(Key::FileCut));
        assert!(read.is_err(), "{bytes:?}");
    }
    assert!(Arriving::new().finish(Key::FileCut).is_err(), "nothing at all");
}

/// Two segments of a recording: the second knows what the first has learned.
#[test]
fn a_segment_goes_on_where_the_one_before_ended() {
    let addition = addition();
    let (first, mut bytes) = (preamble(), [Vec::new(), Vec::new()]);
    let mut writer = Writer::new(&mut bytes[0], &first, Compression::None).unwrap();
    put(&mut writer, 0, 0, &block(&first, &[1, 2]));
    writer.finish(&Ledger::default()).unwrap();
    let second = Preamble {
        events: [first.events.clone(), addition.events.clone()].concat(),
        schemas: addition.schemas.clone(),
        ..first.clone()
    };
    let mut writer = Writer::new(&mut bytes[1], &second, Compression::None).unwrap();
    put(&mut writer, 0, 2, &block(&second, &[3]));
    let mut records = Vec::new();
    record(&second, "REQUEST").int("n", 4).finish(START + 40, &mut records);
    put(&mut writer, 0, 3, &records);
    writer.finish(&Ledger::default()).unwrap();

    let (mut log, mut seen) = (Arriving::new(), Seen::default());
    for segment in &bytes {
        if seen.merge.is_some() {
            log.restart();
        }
        log.push(segment);
        seen.take(&mut log);
        log.finish(Key::FileCut).unwrap();
    }
    seen.release(true);
    let numbers: Vec<_> = seen.rows.iter().map(|row| (row.2, row.4)).collect();
    assert_eq!(numbers, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    assert_eq!((seen.ends, log.damage()), (2, &[][..]));

    // Another recording.
    let mut other = Vec::new();
    let events = vec![first.events[1].clone()];
    let stranger = Preamble { events, ..first };
    Writer::new(&mut other, &stranger, Compression::None).unwrap();
    log.restart();
    log.push(&other);
    assert!(log.next_piece().is_err());
}
