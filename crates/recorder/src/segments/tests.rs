// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A full disk, while segments wait to be completed or are being completed.

use super::closer::finish;
use super::*;
use crate::destination::Destination;
use crate::hung::Watched;
use crate::writer::Names;
use klogger_log::ledger::Ledger;
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_log::segments;
use klogger_log::writer::{Compression, EventBlock, Sink, Writer};
use klogger_os::outputs;
use klogger_ring::block::Builtin;
use klogger_toolchain::bundled;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::thread;

/// Events of each segment.
const EVENTS: u64 = 7;

/// A disk that is full as long as this file exists.
struct FullWith(PathBuf);

impl Write for FullWith {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.exists() { Err(ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for FullWith {
    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// With some events.
fn writer<S: Sink>(sink: S) -> Writer<S> {
    let events = bundled::builtin().unwrap().layouts(1);
    let builtin = Builtin(Arc::new(events.clone()));
    let preamble = Preamble { events, ..Preamble::default() };
    let mut records = Vec::new();
    for n in 0..EVENTS {
        builtin.event("MARK").int("number", n as i64).finish(100 + n, &mut records);
    }
    let (origin, time_base, first_serial) = (Origin::Cpu(0), 100, 0);
    let mut writer = Writer::new(sink, &preamble, Compression::None).unwrap();
    writer.block(&EventBlock { origin, time_base, first_serial, records: &records }).unwrap();
    writer
}

/// With which segments are deleted on a full disk.
fn plan() -> Plan {
    Plan { keep: Keep { segments: Some(100), ..Keep::default() }, ..Plan::default() }
}

struct Folder {
    folder: tempfile::TempDir,
    shelf: Arc<Shelf>,
}

impl Folder {
    /// Nobody waits for what is being completed.
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(outputs::Folder::open(folder.path()).unwrap(), plan());
        Folder { shelf: Arc::new(shelf.patient(Duration::ZERO)), folder }
    }

    /// Segments that wait to be completed.
    fn wait(&self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            let file = File::create_new(self.path(number)).unwrap();
            let about = SegmentEnd { number, losses: Vec::new(), start_ns: 100, end_ns: 200 };
            self.shelf.put(Closing {
                about,
                writer: writer(Destination::File(Watched::new(self.path(number), file))),
            });
        }
    }

    /// A segment that is being completed, of which there is only the file.
    fn begin_to_complete(&self, number: u32) {
        self.wait([number]);
        drop(self.shelf.take());
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.path().join(segments::file_name(number))
    }

    fn left(&self) -> Vec<u32> {
        segments::numbers(self.folder.path()).unwrap()
    }

    fn complete<S: Sink>(&self, number: u32, writer: Writer<S>) {
        finish(number, writer, &Names::default(), &Ledger::default(), &self.shelf).unwrap();
    }

    /// Has the oldest that waits completed.
    fn complete_one(&self) {
        let Closing { about, writer } = self.shelf.take().unwrap();
        self.complete(about.number, writer);
    }

    /// What the ledger says of those that were removed.
    fn check_removed(&self, last: u32) {
        let entry = self.shelf.deleted().unwrap();
        assert_eq!(entry.count, u64::from(last) * EVENTS);
        let which = if last == 1 { "segment 1".into() } else { format!("segments 1 to {last}") };
        assert!(entry.text.starts_with(&format!("{which}, at times because the disk was full")));
        assert_eq!(self.shelf.take_notes().len(), 1, "it is said once");
    }
}

#[test]
fn those_that_wait_are_given_up_after_those_that_are_complete() {
    let all = Folder::new();
    all.wait(1..=8);
    assert!(all.shelf.is_behind());
    (0..2).for_each(|_| all.complete_one());
    for removed in 1..=8 {
        assert!(all.shelf.make_room());
        assert_eq!(all.left(), (removed + 1..=8).collect::<Vec<_>>());
    }
    assert!(!all.shelf.make_room(), "there is none");
    assert!(!all.shelf.is_behind() && all.shelf.take().is_none());
    all.check_removed(8);
}

#[test]
fn none_is_given_up_while_an_older_one_is_being_completed() {
    let all = Folder::new();
    all.wait(1..=2);
    let Closing { about, writer } = all.shelf.take().unwrap();
    assert!(!all.shelf.make_room() && !all.shelf.make_room_now());
    assert_eq!(all.left(), [1, 2]);
    all.complete(about.number, writer);
    assert!(all.shelf.make_room() && all.left() == [2]);
    assert!(all.shelf.make_room() && all.left().is_empty());
    all.check_removed(2);
}

#[test]
fn one_that_is_being_completed_takes_the_room_of_an_older_one() {
    let all = Folder::new();
    let second = writer(FullWith(all.path(1)));
    all.wait([1]);
    all.complete_one();
    all.begin_to_complete(2);
    all.complete(2, second);
    assert_eq!(all.left(), [2]);
    all.check_removed(1);
    assert!(all.shelf.make_room_now(), "it is complete");
}

#[test]
fn one_that_finds_no_room_to_be_completed_is_given_up() {
    let all = Folder::new();
    let first = writer(FullWith(all.path(1)));
    all.begin_to_complete(1);
    all.wait([2]);
    all.complete(1, first);
    assert_eq!(all.left(), [2]);
    all.check_removed(1);
    // The writer has that room before another segment goes.
    assert!(all.shelf.make_room() && all.left() == [2]);
    assert!(all.shelf.make_room() && all.left().is_empty());
    assert!(!all.shelf.make_room());
}

#[test]
fn who_waits_for_room_goes_on_when_there_is_some() {
    let Folder { folder, .. } = Folder::new();
    let shelf = Arc::new(Shelf::new(outputs::Folder::open(folder.path()).unwrap(), plan()));
    let all = Folder { folder, shelf };
    for number in 1..=2 {
        // The second one finds no room.
        let segment = writer(FullWith(all.path(2)));
        all.begin_to_complete(number);
        let shelf = all.shelf.clone();
        let waits = thread::spawn(move || shelf.make_room());
        all.complete(number, segment);
        assert!(waits.join().unwrap());
        assert!(all.left().is_empty());
    }
    all.check_removed(2);
}

#[test]
fn without_keep_one_that_finds_no_room_stays() {
    let Folder { folder, .. } = Folder::new();
    let shelf = Shelf::new(outputs::Folder::open(folder.path()).unwrap(), Plan::default());
    let all = Folder { folder, shelf: Arc::new(shelf) };
    let first = writer(FullWith(all.path(1)));
    all.begin_to_complete(1);
    // There is no room for its ledger either.
    let done = finish(1, first, &Names::default(), &Ledger::default(), &all.shelf);
    assert_eq!(done.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(all.left(), [1]);
    assert!(all.shelf.deleted().is_none() && all.shelf.take_notes().is_empty());
    assert!(!all.shelf.is_behind(), "it is not waited for");
}
