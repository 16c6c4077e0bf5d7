// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue from files that test doubles of programs have written.

use crate::rescue::programs as rescue;
use crate::socket;
use klogger_engines::user::double::*;
use klogger_engines::user::layout::*;
use klogger_log::reader::Reader;
use klogger_log::stats::Stats;
use klogger_log::writer::Compression;
use std::path::Path;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

fn says(log: &Path) -> u64 {
    let reader = Reader::open(log).unwrap();
    let say = reader.preamble().events.iter().position(|e| e.name == "SAY");
    Stats::new(&reader).events[say.expect("the log knows the program's schema")].events
}

#[test]
fn a_program_without_a_recorder_is_rescued_once() {
    let folder = TempDir::new().unwrap();
    let dead = Double::new(folder.path(), dead_pid(), 1, true, SCHEMA_TEXT);
    // Its recorder has ended as well.
    dead.map.word(AT_ARMED).store(dead_pid(), Ordering::Relaxed);
    dead.begin_thread(0, 6);
    (0..10).for_each(|n| assert!(dead.log(0, SAY, n)));
    let (log, file) = (folder.path().join("x.klog"), dead.path.to_string_lossy().into_owned());
    let save =
        |keep| rescue::save(std::slice::from_ref(&file), &log, Compression::None, keep, vec![]);
    let saved = save(true).unwrap();
    assert_eq!((saved.programs, saved.removed, saved.ledger.lost()), (1, 0, 0));
    assert_eq!(says(&log), 10);
    assert!(dead.path.exists());
    // With --keep, what was saved stays in the rings.
    let saved = save(false).unwrap();
    assert_eq!((saved.removed, says(&log)), (1, 10));
    assert!(!dead.path.exists() && save(false).is_err());
}

#[test]
fn a_program_that_is_recorded_is_not_rescued() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, false, SCHEMA_TEXT);
    // A process that listens under this name is a recorder.
    let _listener = socket::Listener::new();
    program.map.word(AT_ARMED).store(std::process::id(), Ordering::Relaxed);
    let (log, file) = (folder.path().join("x.klog"), program.path.to_string_lossy().into_owned());
    let error = rescue::save(&[file], &log, Compression::None, false, vec![]).err().unwrap();
    assert!(
        error.message.ends_with(&format!("is being recorded by process {}", std::process::id())),
        "{error}"
    );
    assert!(!log.exists());
}

#[test]
fn records_of_a_program_that_runs_are_freed_when_the_disk_has_them() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, true, SCHEMA_TEXT);
    program.map.word(AT_ARMED).store(dead_pid(), Ordering::Relaxed);
    program.begin_thread(0, 6);
    program.begin_thread(1, 7);
    (0..10).for_each(|n| assert!(program.log(0, SAY, n) && program.log(1, SAY, n)));
    program.end_thread(1);
    let (log, file) = (folder.path().join("x.klog"), program.path.to_string_lossy().into_owned());
    let save = |keep| {
        let words = std::slice::from_ref(&file);
        rescue::save(words, &log, Compression::None, keep, vec![]).unwrap();
        says(&log)
    };
    assert_eq!((save(true), save(true)), (20, 20), "--keep frees nothing");
    let emptied = program.slot_word(1, SLOT_EMPTIED);
    assert_eq!(emptied.load(Ordering::Relaxed), 0);
    assert_eq!((save(false), save(false)), (20, 0));
    assert_eq!(emptied.load(Ordering::Relaxed), 2, "the slot can be used again");
    assert_eq!(program.map.word(AT_ARMED).load(Ordering::Relaxed), 0);
    // The ring works as before: three times as much as it holds goes through it.
    let mut saved = 0;
    for n in 0..3 * RING as u64 / 40 {
        if !program.log(0, SAY, n) {
            saved += save(false);
            assert!(program.log(0, SAY, n));
        }
    }
    assert_eq!(saved + save(false), 3 * RING as u64 / 40);
}

#[test]
fn a_flight_recorder_goes_on_afterwards() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, false, SCHEMA_TEXT);
    program.map.word(AT_FLIGHT).store(1, Ordering::Relaxed);
    program.map.byte(AT_ON + usize::from(SAY)).store(1, Ordering::Relaxed);
    let (log, file) = (folder.path().join("x.klog"), program.path.to_string_lossy().into_owned());
    let saved = rescue::save(&[file], &log, Compression::None, false, vec![]);
    assert_eq!((saved.is_ok(), program.is_on(SAY), program.is_on(TICK)), (true, true, false));
    assert_eq!(program.map.word(AT_ARMED).load(Ordering::Relaxed), 0);
}

#[test]
fn losses_without_a_ring_are_told_once() {
    let folder = TempDir::new().unwrap();
    let program = Double::new(folder.path(), std::process::id(), 1, true, SCHEMA_TEXT);
    program.map.word(AT_ARMED).store(dead_pid(), Ordering::Relaxed);
    let lost = program.map.long(AT_LOST + 8 * usize::from(SAY));
    lost.store(7, Ordering::Relaxed);
    let (log, file) = (folder.path().join("x.klog"), program.path.to_string_lossy().into_owned());
    let save = |keep| {
        let words = std::slice::from_ref(&file);
        rescue::save(words, &log, Compression::None, keep, vec![]).unwrap().ledger.lost()
    };
    assert_eq!((save(true), save(true)), (7, 7), "--keep changes nothing");
    assert_eq!((save(false), save(false)), (7, 0));
    lost.fetch_add(2, Ordering::Relaxed);
    assert_eq!(save(false), 2);
}
