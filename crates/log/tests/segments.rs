// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A folder of segments reads as the log that the same records would be in one file.

mod common;

use common::{START, cpu, events, preamble, record, user};
use klogger_log::error::Error;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::preamble::{KnownThread, Preamble, Segment};
use klogger_log::reader::Reader;
use klogger_log::segments::file_name;
use klogger_log::stats::Stats;
use klogger_log::writer::{Compression, EventBlock, Writer};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const RECORDING: &str = "00112233445566778899aabbccddeeff";

/// A block: its stream, and per record how much later it is than the one before, and how many
/// events were lost instead (0: it is an event).
type Part = (usize, Vec<(u64, u64)>);

const STREAMS: [Origin; 3] = [Origin::Cpu(0), Origin::Cpu(1), Origin::Recorder];

struct Written {
    origin: Origin,
    first_serial: u64,
    records: Vec<u8>,
    lost: u64,
}

fn streams() -> Vec<Origin> {
    STREAMS.into_iter().chain([user(1, 1001), user(2, 1002)]).collect()
}

/// The records of all blocks, in the order in which they are written.
fn written(preamble: &Preamble, parts: &[Part]) -> Vec<Written> {
    let (streams, mut state, mut n) = (streams(), BTreeMap::new(), 0);
    let mut all = Vec::new();
    for (stream, contents) in parts {
        let origin = streams[stream % streams.len()];
        let (serial, time) = state.entry(origin).or_insert((0, START));
        let mut block = Written { origin, first_serial: *serial, records: Vec::new(), lost: 0 };
        for (later, lost) in contents {
            *time += later;
            if *lost > 0 {
                let record = record(preamble, "LOST").int("count", *lost as i64);
                record.int("since", *time as i64).finish(*time, &mut block.records);
                *serial += lost;
                block.lost += lost;
            } else {
                record(preamble, "TICK").int("n", n).finish(*time, &mut block.records);
                (*serial, n) = (*serial + 1, n + 1);
            }
        }
        all.push(block);
    }
    all
}

fn write(
    preamble: &Preamble,
    blocks: &[Written],
    ledger: &Ledger,
    compression: Compression,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, preamble, compression).unwrap();
    for Written { origin, first_serial, records, .. } in blocks {
        let (origin, first_serial) = (*origin, *first_serial);
        writer.block(&EventBlock { origin, time_base: START, first_serial, records }).unwrap();
    }
    writer.finish(ledger).unwrap();
    bytes
}

fn ledger_of(blocks: &[Written], end_ns: u64) -> Ledger {
    let lost = blocks.iter().map(|b| b.lost).sum();
    let mut entries = vec![Entry::new(Key::ProbeNotAttached).event("RUN")];
    if lost > 0 {
        entries
            .push(Entry::new(Key::RingFull).event("TICK").count(lost).between(end_ns - 1, end_ns));
    }
    Ledger { entries, end_ns: Some(end_ns), ..Ledger::default() }
}

fn of_segment(number: u32, start_ns: u64) -> Preamble {
    let segment = Segment { recording: RECORDING.into(), number, start_ns, threads: Vec::new() };
    Preamble { segment: Some(segment), ..preamble() }
}

/// Writes the blocks as so many segments, which end behind the blocks with the indices of `cuts`.
fn segmented(folder: &Path, blocks: &[Written], cuts: &[usize], compression: Compression) {
    let mut begin = 0;
    for (n, end) in cuts.iter().copied().chain([blocks.len()]).enumerate() {
        let number = n as u32 + 1;
        let start = START + u64::from(n > 0) * n as u64;
        let part = &blocks[begin..end];
        let ledger = ledger_of(part, START + 1_000_000 + n as u64);
        let bytes = write(&of_segment(number, start), part, &ledger, compression);
        fs::write(folder.join(file_name(number)), bytes).unwrap();
        begin = end;
    }
}

/// Does something to one of the files of a folder.
fn spoil(folder: &Path, kind: u8, which: prop::sample::Index, number: u16) {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    if files.is_empty() {
        return;
    }
    let file = &files[which.index(files.len())];
    let mut bytes = fs::read(file).unwrap();
    let at = usize::from(number) % bytes.len().max(1);
    match kind {
        0 => fs::remove_file(file).unwrap(),
        1 => fs::write(file, &bytes[..at]).unwrap(),
        2 => {
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= (number >> 8) as u8 | 1);
            fs::write(file, bytes).unwrap();
        }
        // Another number, beside or in place of another segment.
        3 => fs::rename(file, folder.join(file_name(u32::from(number % 8) + 1))).unwrap(),
        4 => fs::write(folder.join(file_name(u32::from(number) + 9)), bytes).unwrap(),
        // What belongs to another recording.
        _ => {
            let segment = Segment { recording: "another".into(), number: 1, ..Segment::default() };
            let other = Preamble { segment: Some(segment), ..preamble() };
            let bytes = write(&other, &[], &Ledger::default(), Compression::None);
            fs::write(file, bytes).unwrap();
        }
    }
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let lost = prop_oneof![4 => Just(0_u64), 1 => 1..1000_u64];
    let contents = prop::collection::vec((0..1000_u64, lost), 1..20);
    prop::collection::vec((0..5_usize, contents), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn segments_are_one_log(
        parts in parts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        packed: bool,
    ) {
        let compression = if packed { Compression::Zstd(1) } else { Compression::None };
        let preamble = preamble();
        let blocks = written(&preamble, &parts);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(blocks.len() + 1)).collect();
        cuts.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        segmented(folder.path(), &blocks, &cuts, compression);
        let bytes = write(&preamble, &blocks, &Ledger::default(), compression);
        let one = Reader::from_bytes(bytes).unwrap();
        let many = Reader::open(folder.path()).unwrap();
        prop_assert_eq!(events(&one), events(&many));
        prop_assert_eq!(one.totals(), many.totals());
        prop_assert_eq!(one.times(), many.times());
        prop_assert_eq!(many.damage(), &[]);
        prop_assert!(many.is_complete() && !many.is_being_written());
        prop_assert_eq!(many.span(), (START, START + 1_000_000 + cuts.len() as u64));
        let (a, b) = (Stats::new(&one), Stats::new(&many));
        prop_assert_eq!(a.total(), b.total());
        prop_assert_eq!(b.damage, &[]);
        // One entry each, with the sum of what all say.
        let ledger = many.ledger(&[]);
        let lost: u64 = blocks.iter().map(|b| b.lost).sum();
        prop_assert_eq!(ledger.lost(), lost);
        prop_assert_eq!(ledger.entries.len(), 1 + usize::from(lost > 0));
        prop_assert_eq!(many.segments().len(), cuts.len() + 1);
        let counted: u64 = many.segments().iter().map(|s| s.events).sum();
        prop_assert_eq!(counted, one.totals().0);
    }

    /// Names, lengths and bytes of the files are anybody's: what is read is a part of what was
    /// logged, or there is an error.
    #[test]
    fn a_folder_that_was_spoilt_is_read_or_refused(
        parts in parts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        spoils in prop::collection::vec((0..6_u8, any::<prop::sample::Index>(), any::<u16>()), 1..4)
    ) {
        let blocks = written(&preamble(), &parts);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(blocks.len() + 1)).collect();
        cuts.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        segmented(folder.path(), &blocks, &cuts, Compression::None);
        let logged = events(&Reader::open(folder.path()).unwrap());
        for (kind, which, number) in spoils {
            spoil(folder.path(), kind, which, number);
        }
        if let Ok(reader) = Reader::open(folder.path()) {
            for event in events(&reader) {
                prop_assert!(logged.contains(&event), "{event:?}");
            }
            let _ = (reader.totals(), reader.times(), reader.span(), reader.ledger(&[]));
            let _ = (Stats::new(&reader), reader.segments(), reader.damage());
        }
    }

    #[test]
    fn what_is_missing_between_segments_is_counted(
        parts in parts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 3..6),
        gone in 1..3_u32,
    ) {
        let blocks = written(&preamble(), &parts);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(blocks.len() + 1)).collect();
        cuts.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        segmented(folder.path(), &blocks, &cuts, Compression::None);
        fs::remove_file(folder.path().join(file_name(gone))).unwrap();
        let reader = Reader::open(folder.path()).unwrap();
        let n = gone as usize;
        let range = if n == 1 { 0..cuts[0] } else { cuts[n - 2]..cuts[n - 1] };
        let later = if n == 1 { &blocks[cuts[0]..] } else { &blocks[cuts[n - 1]..] };
        // What no later block of the same stream follows cannot be known.
        let followed = |b: &&Written| later.iter().any(|l| l.origin == b.origin);
        let (mut missing, all) = (0, &blocks[range]);
        for block in all.iter().filter(followed) {
            let end = blocks.iter().filter(|b| b.origin == block.origin);
            let next = end.map(|b| b.first_serial).filter(|s| *s > block.first_serial).min();
            missing += next.unwrap_or(0) - block.first_serial;
        }
        let ledger = reader.ledger(&[]);
        let (key, damages) = match gone {
            1 => ("segments_removed", 0),
            _ => ("segments_missing", 1),
        };
        let entries: Vec<_> = ledger.entries.iter().filter(|e| e.key == key).collect();
        prop_assert_eq!(entries.len(), 1);
        prop_assert_eq!(entries[0].count, missing);
        let begin = format!("segment {gone}");
        prop_assert!(entries[0].text.starts_with(&begin));
        prop_assert_eq!(reader.damage().len(), damages);
        prop_assert!(ledger.entries.iter().all(|e| e.key != "serial_gap"));
    }

    #[test]
    fn whatever_is_wrong_in_a_segment_time_goes_on(
        edits in prop::collection::vec((1..4_u32, any::<prop::sample::Index>(), any::<u8>()), 1..9),
    ) {
        let folder = tempfile::tempdir().unwrap();
        recording(folder.path(), 4);
        for (number, at, byte) in edits {
            let path = folder.path().join(file_name(number));
            let mut bytes = fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            fs::write(&path, bytes).unwrap();
        }
        if let Ok(reader) = Reader::open(folder.path()) {
            let (mut merge, mut last) = (reader.merge(&Selection::default()), 0);
            while let Some(event) = merge.next() {
                prop_assert!(last <= event.time_ns);
                last = event.time_ns;
            }
            let damage = merge.damage().to_vec();
            // Of a stream whose first block is gone nobody knows how many events that had, if the
            // index is damaged as well.
            let ledger = reader.ledger(&damage);
            let all = events(&reader).len() as u64 + ledger.lost();
            prop_assert!(all >= 800 || ledger.is_vague(), "{all}: {:?}", ledger.entries);
            reader.check_rest();
        }
    }
}

/// A recording of `count` segments, with two blocks each.
fn recording(folder: &Path, count: usize) -> Vec<Written> {
    let parts: Vec<Part> = (0..2 * count).map(|n| (n % 2, vec![(10, 0); 100])).collect();
    let blocks = written(&preamble(), &parts);
    let cuts: Vec<usize> = (1..count).map(|n| 2 * n).collect();
    segmented(folder, &blocks, &cuts, Compression::None);
    blocks
}

fn error(folder: &Path) -> Error {
    Reader::open(folder).err().unwrap()
}

#[test]
fn what_the_recorder_has_removed_is_said_once() {
    let said = |counts: [u64; 3]| {
        let folder = tempfile::tempdir().unwrap();
        let blocks = recording(folder.path(), 5);
        for (n, count) in (3..).zip(counts) {
            let part = &blocks[2 * n as usize - 2..2 * n as usize];
            let mut ledger = ledger_of(part, START + 1);
            let removed = Entry::new(Key::SegmentsRemoved).count(count);
            ledger.entries.push(removed.detail("segments 1 to 2, at times"));
            ledger.entries.push(Entry::new(Key::ProbeMissed).count(7).detail("7 hits of A"));
            let bytes = write(&of_segment(n, START), part, &ledger, Compression::None);
            fs::write(folder.path().join(file_name(n)), bytes).unwrap();
        }
        (1..3).for_each(|n| fs::remove_file(folder.path().join(file_name(n))).unwrap());
        let entries = Reader::open(folder.path()).unwrap().ledger(&[]).entries;
        let missed: Vec<_> = entries.iter().filter(|e| e.key == "probe_missed").collect();
        assert_eq!(missed.len(), 1);
        assert_eq!((missed[0].count, &missed[0].text[..12]), (21, "21 hits of A"));
        let removed: Vec<_> = entries.iter().filter(|e| e.key == "segments_removed").collect();
        assert_eq!(removed.len(), 1);
        (removed[0].count, removed[0].text.contains("at times"))
    };
    // Also events of streams that have none in later segments.
    assert_eq!(said([210, 450, 450]), (450, true));
    // Somebody else has removed more.
    assert_eq!(said([0, 0, 210]), (400, false));
}

#[test]
fn a_folder_without_segments_is_not_a_log() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(error(folder.path()), Error::NoSegments));
    fs::write(folder.path().join("x.klog"), "").unwrap();
    assert!(matches!(error(folder.path()), Error::NoSegments));
}

#[test]
fn segments_of_two_recordings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 2);
    let bytes = |preamble: &Preamble| write(preamble, &[], &Ledger::default(), Compression::None);
    let mut other = of_segment(3, 0);
    other.segment.as_mut().unwrap().recording = "f".repeat(32);
    fs::write(folder.path().join(file_name(3)), bytes(&other)).unwrap();
    let said = error(folder.path()).to_string();
    assert_eq!(said, "segment-000001.klog and segment-000003.klog are of two recordings");
    fs::write(folder.path().join(file_name(3)), bytes(&of_segment(4, 0))).unwrap();
    let said = error(folder.path()).to_string();
    assert_eq!(said, "segment-000003.klog was recorded as segment-000004.klog");
    fs::write(folder.path().join(file_name(3)), bytes(&preamble())).unwrap();
    let said = error(folder.path()).to_string();
    assert_eq!(said, "segment-000003.klog is not a segment of a recording");
}

#[test]
fn a_segment_that_cannot_be_read_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 4);
    let second = folder.path().join(file_name(2));
    let whole = fs::read(&second).unwrap();
    for (bytes, key) in [
        (&b"garbage that is not a log at all"[..], Key::BlockCorrupt),
        (&[], Key::RecorderKilled),
        (&whole[..40], Key::RecorderKilled),
    ] {
        fs::write(&second, bytes).unwrap();
        let reader = Reader::open(folder.path()).unwrap();
        let [damage] = reader.damage() else { panic!("{:?}", reader.damage()) };
        assert_eq!((damage.key, damage.events), (key, 200), "{damage:?}");
        assert_eq!(damage.file.as_deref(), Some("segment-000002.klog"));
        let text = damage.to_string();
        assert!(text.starts_with("segment-000002.klog, bytes 0 to "), "{text}");
        assert_eq!(events(&reader).len(), 600);
        assert_eq!(reader.ledger(&[]).lost(), 200);
    }
}

#[test]
fn a_segment_of_other_events_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 3);
    let mut other = of_segment(2, START);
    other.events[0].fields[0].name = "m".into();
    let bytes = write(&other, &[], &Ledger::default(), Compression::None);
    fs::write(folder.path().join(file_name(2)), bytes).unwrap();
    let reader = Reader::open(folder.path()).unwrap();
    assert!(reader.damage()[0].what.contains("event TICK is not that of the segments before"));
    assert_eq!(events(&reader).len(), 400);
}

#[test]
fn a_damaged_segment_is_named() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 3);
    let second = folder.path().join(file_name(2));
    let whole = fs::read(&second).unwrap();
    // Cut: the last block is gone, as is the end.
    let log = Reader::open(&second).unwrap();
    let last = log.blocks().iter().rfind(|b| b.header.events > 0).unwrap();
    fs::write(&second, &whole[..last.offset as usize + 100]).unwrap();
    let reader = Reader::open(folder.path()).unwrap();
    assert!(!reader.damage().is_empty());
    for damage in reader.damage() {
        assert_eq!(damage.file.as_deref(), Some("segment-000002.klog"));
        assert!(damage.to <= last.offset + 100);
    }
    assert_eq!(reader.ledger(&[]).lost(), 100);
    assert_eq!(events(&reader).len(), 500);
    // A byte of a block is wrong, which is found when it is read.
    let mut wrong = whole.clone();
    wrong[last.offset as usize + 200] ^= 1;
    fs::write(&second, wrong).unwrap();
    let reader = Reader::open(folder.path()).unwrap();
    assert!(reader.damage().is_empty());
    let mut merge = reader.merge(&Selection::default());
    while merge.next().is_some() {}
    let [damage] = merge.damage() else { panic!("{:?}", merge.damage()) };
    assert_eq!(damage.file.as_deref(), Some("segment-000002.klog"));
    assert_eq!((damage.from, damage.to), (last.offset, last.end()));
}

#[test]
fn a_segment_that_is_removed_while_it_is_read_is_one_entry() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 40);
    let reader = Reader::open(folder.path()).unwrap();
    fs::remove_file(folder.path().join(file_name(30))).unwrap();
    // Another file is not that one. Both are there for a moment, so their inodes differ.
    let other = folder.path().join("other");
    fs::copy(folder.path().join(file_name(3)), &other).unwrap();
    fs::rename(&other, folder.path().join(file_name(31))).unwrap();
    let mut merge = reader.merge(&Selection::default());
    let mut count = 0;
    while merge.next().is_some() {
        count += 1;
    }
    assert_eq!(count, 38 * 200);
    let found: Vec<_> = merge.damage().iter().map(|d| (d.key, d.events, d.to_string())).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    for ((key, events, text), number) in found.iter().zip([30, 31]) {
        assert_eq!((*key, *events), (Key::SegmentsMissing, 200));
        let begin = format!("{} was removed while the log was read (", file_name(number));
        assert!(text.starts_with(&begin), "{text}");
    }
}

#[test]
fn few_files_are_open() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 100);
    let reader = Reader::open(folder.path()).unwrap();
    let prefix = folder.path().canonicalize().unwrap();
    let open = || {
        let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let paths = files.filter_map(|f| fs::read_link(f.path()).ok());
        // Besides the folder.
        paths.filter(|path| path.starts_with(&prefix) && *path != prefix).count()
    };
    assert_eq!(open(), 0);
    let (mut merge, mut most, mut count) = (reader.merge(&Selection::default()), 0, 0);
    while merge.next().is_some() {
        count += 1;
        if count % 100 == 0 {
            most = most.max(open());
        }
    }
    drop(merge);
    assert_eq!(count, 20_000);
    assert!((1..=16).contains(&most), "{most}");
}

#[test]
fn a_segment_alone_begins_with_itself() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = recording(folder.path(), 3);
    let third = Reader::open(folder.path().join(file_name(3))).unwrap();
    assert_eq!(third.span().0, START + 2);
    assert!(third.damage().is_empty());
    assert_eq!(events(&third).len(), 200);
    // As does what is left of a recording. Wall times stay what they were.
    let wall = |reader: &Reader| {
        let clock = &reader.preamble().clock;
        clock.start_realtime_ns.wrapping_sub(clock.start_ns)
    };
    let whole = Reader::open(folder.path()).unwrap();
    assert_eq!(whole.span().0, START);
    fs::remove_file(folder.path().join(file_name(1))).unwrap();
    let rest = Reader::open(folder.path()).unwrap();
    assert_eq!(rest.span(), (START + 1, START + 1_000_002));
    assert_eq!((wall(&third), wall(&rest)), (wall(&whole), wall(&whole)));
    assert_eq!(blocks.len(), 6);
}

#[test]
fn a_thread_keeps_the_name_that_it_had() {
    use klogger_log::names::Processes;
    let folder = tempfile::tempdir().unwrap();
    let preamble = preamble();
    let mut exists = Vec::new();
    record(&preamble, "PROCESS_EXISTS")
        .int("pid", 7)
        .int("tgid", 7)
        .int("ppid", 1)
        .text("comm", b"old")
        .text("command", b"")
        .finish(START + 1, &mut exists);
    let mut renamed = Vec::new();
    let record = record(&preamble, "PROCESS_RENAME").int("pid", 7);
    record.text("comm", b"new").finish(START + 50, &mut renamed);
    let block = |origin, first_serial, records| Written { origin, first_serial, records, lost: 0 };
    let blocks = [block(Origin::Recorder, 0, exists), block(cpu(0), 0, renamed)];
    let known =
        |comm: &str| KnownThread { pid: 7, tgid: 7, comm: comm.into(), ..KnownThread::default() };
    for (n, name) in [(1, None), (2, Some("old")), (3, Some("new"))] {
        let mut preamble = of_segment(n, START + u64::from(n));
        preamble.segment.as_mut().unwrap().threads = name.map(known).into_iter().collect();
        let part = blocks.get(n as usize - 1..n as usize).unwrap_or_default();
        let bytes = write(&preamble, part, &ledger_of(part, START + 100), Compression::None);
        fs::write(folder.path().join(file_name(n)), bytes).unwrap();
    }
    let names = |path: &Path| {
        let reader = Reader::open(path).unwrap();
        let mut table = Processes::with_history(&reader);
        let mut merge = reader.merge(&Selection::default());
        while let Some(event) = merge.next() {
            table.apply(&event);
        }
        let rows = table.into_rows(START + 200).into_iter().filter(|row| row.pid == 7);
        rows.map(|row| String::from_utf8(row.comm).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names(folder.path()), ["old", "new"]);
    assert_eq!(names(&folder.path().join(file_name(3))), ["new"]);
    // The first one that is there has the names from those before it.
    fs::remove_file(folder.path().join(file_name(1))).unwrap();
    assert_eq!(names(folder.path()), ["old", "new"]);
}

#[test]
fn later_segments_have_more_events() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 2);
    let addition = common::addition();
    let mut more = of_segment(3, START + 10);
    more.schemas.extend(addition.schemas);
    more.events.extend(addition.events);
    // As if an event of the others was not known any more.
    more.events.retain(|e| e.name != "RUN");
    let mut records = Vec::new();
    record(&more, "REQUEST").int("n", 5).finish(START + 9_000, &mut records);
    let block = Written { origin: user(9, 9), first_serial: 0, records, lost: 0 };
    let bytes = write(&more, &[block], &Ledger::default(), Compression::None);
    fs::write(folder.path().join(file_name(3)), bytes).unwrap();
    let reader = Reader::open(folder.path()).unwrap();
    let names: Vec<_> = reader.preamble().events.iter().map(|e| e.name.as_str()).collect();
    assert!(names.contains(&"REQUEST") && names.contains(&"RUN"));
    assert_eq!(events(&reader).len(), 401);
    assert_eq!(events(&reader).last().unwrap().3, "REQUEST");
}
