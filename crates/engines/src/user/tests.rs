// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The user engine against a test double of a program.

use super::double::*;
use super::layout::*;
use super::*;
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Origin;
use klogger_log::record::SizeTable;
use klogger_ring::block::{Block, Builtin, Outlet, Status, ToWriter};
use klogger_ring::{CONTROL as RING_CONTROL, EVENTS_MAX, Rings};
use klogger_schema::layout::EventLayout;
use klogger_schema::{Options, parse};
use klogger_toolchain::bundled;
use klogger_toolchain::compiled_schema::CompiledSchema;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;
use tempfile::TempDir;

/// A recording without a file.
struct Recording {
    programs: Programs,
    messages: Receiver<ToWriter>,
    _status: Arc<Status>,
}

fn my_unit(text: &str) -> CompiledSchema {
    CompiledSchema {
        schema: parse("my.klogger", text, &Options::default()).unwrap().schema,
        object: None,
    }
}

fn builtin() -> Builtin {
    Builtin(Arc::new(bundled::builtin().unwrap().layouts(1)))
}

impl Recording {
    fn start(folder: &TempDir, scope: Scope, units: &[&str], max_memory: u64) -> Recording {
        let (sender, messages) = sync_channel(100_000);
        let status = Arc::<Status>::default();
        let outlet = Outlet {
            to_writer: sender,
            pool: Arc::default(),
            status: status.clone(),
            builtin: builtin(),
            followed: Arc::default(),
        };
        let out = Output::new(outlet, true);
        let (own, mine) =
            (bundled::builtin().unwrap(), units.iter().map(|t| my_unit(t)).collect::<Vec<_>>());
        let known = std::iter::once((&own, false)).chain(mine.iter().map(|u| (u, true)));
        let catalogue = Catalogue::new(known, true, &[]);
        let settings = Settings {
            scope,
            source: Source::Monotonic,
            max_memory,
            token: TOKEN,
            in_kernel_scope: Box::new(|_| false),
        };
        let (programs, notes) = Programs::start(settings, catalogue, out, places(folder)).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        Recording { programs, messages, _status: status }
    }

    fn stop(self) -> (Recorded, Seen) {
        let recorded = self.programs.stop();
        let died = recorded.entries.iter().any(|e| e.text.contains("has died"));
        assert!(!died, "the thread panicked");
        (recorded, Seen::new(self.messages.try_iter()))
    }
}

fn places(folder: &TempDir) -> Places {
    Places { chosen: Some(folder.path().into()), runtime: None, uid: os::files::effective_uid() }
}

/// What was sent to the writer: blocks of programs, and how many events were added.
struct Seen {
    blocks: Vec<Block>,
    added: Vec<EventLayout>,
}

impl Seen {
    fn new(messages: impl Iterator<Item = ToWriter>) -> Seen {
        let mut seen = Seen { blocks: Vec::new(), added: Vec::new() };
        for message in messages {
            match message {
                ToWriter::Block(block) => seen.blocks.push(block),
                ToWriter::Addition(addition) => seen.added.extend(addition.events),
                ToWriter::Own(_)
                | ToWriter::NameThreads(_)
                | ToWriter::Settle(_)
                | ToWriter::Ended(_)
                | ToWriter::Until(..) => {}
            }
        }
        seen
    }

    /// (stream, tid, value of `n`) of each event; LOST has its count.
    fn events(&self) -> Vec<(u32, u32, u64)> {
        let mut layouts = builtin().0.to_vec();
        // The ids after klogger's own, for both kinds of recordings.
        layouts.extend(my_unit(SCHEMA_TEXT).layouts(layouts.len() as u16 + 1));
        let sizes = SizeTable::new(&layouts);
        let mut list = Vec::new();
        for block in &self.blocks {
            let Origin::Thread { stream, thread } = block.origin else {
                panic!("not a thread's stream")
            };
            let mut records = sizes.records(&block.records);
            for record in records.by_ref() {
                let n = u64::from_le_bytes(record.bytes[8..16].try_into().unwrap());
                assert!(record.id() != 0);
                list.push((stream, thread.tid, n));
            }
            assert!(records.rest().is_empty(), "the whole block is records");
        }
        list
    }
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|e| e.key.as_str()).collect()
}

/// Waits for something that another thread does.
fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end, "timed out");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The number of a process that has ended.
#[test]
fn a_program_is_armed_recorded_and_disarmed() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, false, SCHEMA_TEXT);
    program.begin_thread(0, 71);
    assert!(program.log(0, TICK, 99));
    let recording = Recording::start(&folder, Scope::All, &[], 64 << 20);
    until(|| program.is_on(TICK) && program.is_on(SAY) && program.is_on(MARK_ID));
    for n in 0..400 {
        let id = if n % 3 == 0 { SAY } else { TICK };
        if !program.log(0, id, n) {
            panic!("{n} did not fit: the ring was not drained");
        }
        if n % 100 == 99 {
            program.call();
            thread::sleep(Duration::from_millis(120));
        }
    }
    let (recorded, seen) = recording.stop();
    assert_eq!((recorded.programs, keys(&recorded.entries)), (1, vec![]));
    assert_eq!(seen.added.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["TICK", "SAY"]);
    // Events logged before the recording are not in it.
    assert_eq!(seen.events(), (0..400).map(|n| (1, 71, n)).collect::<Vec<_>>());
    let mut serial = 0;
    for block in &seen.blocks {
        assert_eq!(block.first_serial, serial);
        serial += block.events;
    }
    assert!(!program.is_on(TICK) && !program.is_on(MARK_ID));
    assert_eq!(program.map.word(AT_ARMED).load(Ordering::Relaxed), 0);
    assert!(program.path.exists(), "the program runs on, and its file stays");
}

#[test]
fn a_slot_is_drained_before_another_thread_may_take_it() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, true, SCHEMA_TEXT);
    let recording = Recording::start(&folder, Scope::All, &[SCHEMA_TEXT], 64 << 20);
    for thread in 0..5u32 {
        // Slot 280: in the second page of slots, of which the first is in use too.
        for slot in [0, 280] {
            program.begin_thread(slot, 100 + thread);
            (0..10).for_each(|n| assert!(program.log(slot, TICK, n)));
            program.end_thread(slot);
        }
        program.call();
        for slot in [0, 280] {
            let word = |at| program.slot_word(slot, at).load(Ordering::Acquire);
            until(|| word(SLOT_EMPTIED) == word(SLOT_USE));
        }
    }
    let (recorded, seen) = recording.stop();
    assert_eq!(keys(&recorded.entries), Vec::<&str>::new());
    let mut streams: Vec<(u32, u32)> =
        seen.events().iter().map(|(stream, tid, _)| (*stream, *tid)).collect();
    assert_eq!(streams.len(), 100);
    streams.dedup();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 10, "each use of a slot is a stream: {streams:?}");
}

#[test]
fn events_of_ended_programs_are_saved_and_their_files_removed() {
    let folder = TempDir::new().unwrap();
    let pid = dead_pid();
    let program = Double::new(folder.path(), pid, 1, true, SCHEMA_TEXT);
    program.begin_thread(3, pid);
    let logged = (0..5_000).filter(|n| program.log(3, TICK, *n)).count() as u64;
    drop(program.map);
    let recording =
        Recording::start(&folder, Scope::Command { pid: 1 << 30 }, &[SCHEMA_TEXT], 64 << 20);
    until(|| !program.path.exists());
    let (recorded, seen) = recording.stop();
    assert_eq!(logged, RING as u64 / 16);
    let lost: Vec<_> =
        recorded.entries.iter().map(|e| (e.key.as_str(), e.event.as_deref(), e.count)).collect();
    assert_eq!(lost, [("ring_full", Some("TICK"), 5_000 - logged)]);
    let events = seen.events();
    assert_eq!(events.len() as u64, logged + 1);
    // The last is LOST.
    assert_eq!(events.last(), Some(&(1, pid, 5_000 - logged)));
}

#[test]
fn another_version_of_a_schema_is_refused_and_switched_off() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, true, SCHEMA_TEXT);
    program.begin_thread(0, 5);
    assert!(program.log(0, TICK, 1));
    let other = "schema my \"x\"\nevent TICK { u32 n }\nevent SAY { u64 n  string text }\n";
    let recording = Recording::start(&folder, Scope::All, &[other], 64 << 20);
    until(|| !program.is_on(TICK) && !program.is_on(SAY));
    let (recorded, seen) = recording.stop();
    assert_eq!(seen.events(), []);
    assert_eq!(keys(&recorded.entries), ["user_refused", "user_refused"]);
    assert!(
        recorded.entries[0]
            .text
            .contains("is another version than my.klogger; rebuild the program")
    );
    assert_eq!(recorded.entries[1].count, 1);
}

#[test]
fn a_file_that_is_cut_off_costs_its_own_events_only() {
    let folder = TempDir::new().unwrap();
    let pid = std::process::id();
    let good = Double::new(folder.path(), pid, 1, true, SCHEMA_TEXT);
    let bad = Double::new(folder.path(), pid, 2, true, SCHEMA_TEXT);
    let recording = Recording::start(&folder, Scope::All, &[SCHEMA_TEXT], 64 << 20);
    for program in [&good, &bad] {
        program.begin_thread(0, 9);
        assert!(program.log(0, TICK, 1));
        program.call();
    }
    until(|| {
        good.u64_at(Double::ring(0) + 32) > RING as u64
            && bad.u64_at(Double::ring(0) + 32) > RING as u64
    });
    bad.log(0, TICK, 2);
    bad.file.set_len((Double::ring(0) + 4096) as u64).unwrap();
    thread::sleep(Duration::from_millis(150));
    assert!(good.log(0, TICK, 3));
    let (recorded, seen) = recording.stop();
    assert_eq!(keys(&recorded.entries), ["user_hostile"]);
    let mut values: Vec<u64> = seen.events().iter().map(|e| e.2).collect();
    values.sort_unstable();
    assert_eq!(values, [1, 1, 3]);
}

#[test]
fn memory_is_bounded() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, false, SCHEMA_TEXT);
    let most = 8 * slot_memory(RING as u64);
    let recording = Recording::start(&folder, Scope::All, &[], most);
    let allowed = || program.map.word(AT_SLOTS_ALLOWED).load(Ordering::Relaxed);
    until(|| program.is_on(TICK));
    assert_eq!(allowed(), 8);
    let other = Double::new(folder.path(), std::process::id(), 2, false, SCHEMA_TEXT);
    until(|| other.is_on(TICK));
    (0..5).for_each(|slot| program.begin_thread(slot, 50 + slot as u32));
    until(|| other.map.word(AT_SLOTS_ALLOWED).load(Ordering::Relaxed) == 3);
    assert_eq!(allowed(), 8);
    (0..3).for_each(|slot| other.begin_thread(slot, 60 + slot as u32));
    until(|| allowed() == 5 && other.map.word(AT_SLOTS_ALLOWED).load(Ordering::Relaxed) == 3);
    other.put(AT_LOST + 8 * usize::from(TICK), 17);
    other.map.word(AT_FAILED).store(libc::ENOMEM as u32, Ordering::Relaxed);
    let (recorded, _) = recording.stop();
    let entries: Vec<_> =
        recorded.entries.iter().map(|e| (e.key.as_str(), e.event.as_deref(), e.count)).collect();
    assert_eq!(entries, [(Key::UserMemory.info().name, Some("TICK"), 17)]);
}

#[test]
fn events_are_switched_while_it_records() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, false, SCHEMA_TEXT);
    let recording = Recording::start(&folder, Scope::All, &[], 64 << 20);
    until(|| program.is_on(TICK) && program.is_on(SAY));
    assert_eq!(recording.programs.switch("TOCK", false), None);
    assert!(recording.programs.switch("TICK", false).is_some());
    until(|| !program.is_on(TICK) && program.is_on(SAY));
    let late = Double::new(folder.path(), std::process::id(), 2, false, SCHEMA_TEXT);
    until(|| late.is_on(SAY));
    assert!(!late.is_on(TICK));
    recording.programs.switch("TICK", true);
    until(|| program.is_on(TICK) && late.is_on(TICK));
    assert_eq!(recording.stop().0.programs, 2);
}

#[test]
fn programs_out_of_scope_are_left_alone() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, false, SCHEMA_TEXT);
    let dead = Double::new(folder.path(), dead_pid(), 2, false, SCHEMA_TEXT);
    let recording = Recording::start(&folder, Scope::Processes(vec![1 << 30]), &[], 64 << 20);
    thread::sleep(Duration::from_millis(400));
    let (recorded, _) = recording.stop();
    assert_eq!((recorded.programs, keys(&recorded.entries)), (0, vec![]));
    assert!(!program.is_on(TICK) && dead.path.exists());
}

/// Where a hostile program writes go: the parts of the file that the recorder reads.
fn places_to_spoil() -> impl Strategy<Value = usize> {
    let ring = Double::ring(0);
    prop_oneof![
        0usize..CONTROL,
        AT_LOST..AT_LOST + 8 * EVENTS_MAX,
        AT_SLOT..AT_SLOT + 4 * SLOT,
        ring..ring + 64,
        ring + 4096..ring + 4096 + 256,
        ring + RING_CONTROL..ring + RING_CONTROL + 4096,
        ring + Rings::stride(RING)..ring + Rings::stride(RING) + 64,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_a_program_writes_the_recorder_goes_on(
        early in proptest::collection::vec((places_to_spoil(), any::<[u8; 8]>()), 0..4),
        late in proptest::collection::vec((places_to_spoil(), any::<[u8; 8]>()), 0..12),
        cut in proptest::option::of(0usize..SLOTS_AT + 2 * slot_bytes(RING)),
    ) {
        let folder = TempDir::new().unwrap();
        let pid = std::process::id();
        let good = Double::new(folder.path(), pid, 1, true, SCHEMA_TEXT);
        good.begin_thread(0, 3);
        prop_assert!(good.log(0, TICK, 42));
        let bad = Double::new(folder.path(), pid, 2, true, SCHEMA_TEXT);
        bad.begin_thread(0, 4);
        for n in 0..100 {
            bad.log(0, SAY, n);
        }
        early.iter().for_each(|(at, bytes)| bad.file.write_all_at(bytes, *at as u64).unwrap());
        let memory = 4 * slot_memory(RING as u64);
        let recording = Recording::start(&folder, Scope::All, &[SCHEMA_TEXT], memory);
        for (at, bytes) in late {
            bad.file.write_all_at(&bytes, at as u64).unwrap();
            bad.map.word(AT_CALL).fetch_add(1, Ordering::Release);
            os::futex::wake(bad.map.word(AT_CALL));
        }
        if let Some(cut) = cut {
            bad.file.set_len(cut as u64).unwrap();
        }
        let (recorded, seen) = recording.stop();
        prop_assert!(recorded.entries.len() < 600);
        // Another, correct program is still recorded.
        prop_assert!(seen.blocks.iter().any(|b| b.origin.thread().is_some_and(|t| t.tid == 3)));
    }
}

/// A program that creates its file, and ends, in the moment between a look at the folder and the
/// end of the recording.
struct AtTheLastMoment<'a> {
    stop: &'a AtomicBool,
    looks: usize,
    file: Found,
}

impl News for AtTheLastMoment<'_> {
    fn news(&mut self) -> Vec<Found> {
        self.looks += 1;
        match self.looks {
            1 => self.stop.store(true, Ordering::Release),
            2 => return vec![self.file.clone()],
            _ => {}
        }
        Vec::new()
    }

    fn wait(&self) {}
}

#[test]
fn a_file_that_appears_before_the_end_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let opened = Folder::open(folder.path(), None).unwrap();
    let file = Found { folder: Arc::new(opened), name: "1.ab".into(), only: None };
    let stop = AtomicBool::new(false);
    let mut found = Vec::new();
    let mut watch = AtTheLastMoment { stop: &stop, looks: 0, file };
    pass_on(&mut watch, &stop, |news| found.extend(news.into_iter().map(|f| f.name)));
    assert_eq!(found, ["1.ab"]);
}
