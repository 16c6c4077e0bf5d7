// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Each tap alone: what comes, and what becomes of it.

use super::*;
use crate::actions::Actions;
use crate::actions::watcher::Watcher;
use crate::destination::Destination;
use crate::follower::{self, Follower};
use crate::segments::{Plan, Shelf};
use crate::snapshots::history::Limits;
use klogger_engines::scope::{SCOPE_BYTES, Scope};
use klogger_log::event::EventRef;
use klogger_log::ledger::Key;
use klogger_log::origin::Origin;
use klogger_log::preamble::{Clock, Preamble, Segment};
use klogger_log::record::Record;
use klogger_log::trigger;
use klogger_log::writer::{Compression, Writer};
use klogger_os::outputs::Folder;
use klogger_os::{self as os, Mapping};
use klogger_toolchain::bundled;
use seams::Seams;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// A full time before all events. In a far future, so that nobody gives events on because time has
/// passed, and then others late.
const BASE: u64 = 1 << 59;

fn builtin() -> Builtin {
    Builtin(Arc::new(bundled::builtin().unwrap().layouts(1)))
}

fn preamble(builtin: &Builtin) -> Preamble {
    let clock = Clock { start_ns: BASE, ..Clock::default() };
    Preamble { events: builtin.0.to_vec(), clock, ..Preamble::default() }
}

fn id(builtin: &Builtin, name: &str) -> u16 {
    builtin.0.iter().find(|e| e.name == name).unwrap().id
}

/// Marks with these numbers, which are their times after [`BASE`] as well.
fn marks(builtin: &Builtin, numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut records = Vec::new();
    for n in numbers {
        let mark = builtin.event("MARK").int("number", n as i64).text("text", b"x");
        mark.finish(BASE + n, &mut records);
    }
    records
}

/// A thread forks another one at this time.
fn fork(builtin: &Builtin, parent: u32, time_ns: u64) -> Vec<u8> {
    let mut records = Vec::new();
    let fork = builtin.event("PROCESS_FORK").int("pid", 4_000_003).int("parent", parent.into());
    fork.finish(time_ns, &mut records);
    records
}

fn block(origin: Origin, records: &[u8]) -> EventBlock<'_> {
    EventBlock { origin, time_base: BASE, first_serial: 0, records }
}

/// What the log has of a block of so many events.
fn written(events: u64, lost: u64) -> Written {
    let extent = Extent { first_ns: BASE + 1, last_ns: BASE + 9, events, lost };
    Written { extent, next_serial: events + lost }
}

const ARRIVED: Arrived = Arrived { events: 1, unwritable: false };

/// A log in a pipe, which cannot be written any more when the other end is gone.
fn file(builtin: &Builtin, seams: Option<Seams>) -> (File, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let to = Destination::Stream(std::fs::File::from(OwnedFd::from(writer)));
    let writer = Writer::new(to, &preamble(builtin), Compression::None).unwrap();
    (File::new(writer, seams, builtin, Arc::default()), reader)
}

/// What is known of a recording, and its taps.
struct Story {
    builtin: Builtin,
    taps: Taps,
    /// The recorder's own events that may be written.
    own: Vec<u8>,
}

impl Story {
    fn new(list: Vec<Box<dyn Tap>>) -> Story {
        let builtin = builtin();
        let taps = Taps::new(list, &builtin.0);
        Story { builtin, taps, own: Vec::new() }
    }

    fn come(&mut self, block: EventBlock, arrived: Arrived) {
        self.taps.block(block, arrived);
    }

    fn log(&mut self, origin: Origin, records: &[u8], written: &Written) {
        self.taps.logged(block(origin, records), written);
    }

    fn turn(&mut self, moment: Moment) -> Vec<(Source, u64)> {
        self.taps.turn(moment, &mut self.own)
    }

    fn own(&mut self, records: Vec<u8>) {
        let records = self.taps.own(records);
        self.own.extend(records);
    }

    /// Names of the events in `own`.
    fn names(&self) -> Vec<&str> {
        let name =
            |record: Record| &*self.builtin.0.iter().find(|e| e.id == record.id()).unwrap().name;
        SizeTable::new(&*self.builtin.0).records(&self.own).map(name).collect()
    }
}

/// Notes what it is told.
#[derive(Clone, Default)]
struct Noted {
    told: Arc<Mutex<Vec<String>>>,
    /// What it finds at each message.
    finds: Vec<u8>,
    /// The recorder's own events stay here.
    holds: bool,
}

impl Noted {
    fn note(&self, what: String) {
        self.told.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

impl Tap for Noted {
    fn declared(&mut self, addition: &Addition) {
        self.note(format!("declared {}", addition.events.len()));
    }
    fn block(&mut self, batch: &Batch, arrived: Arrived) {
        let times: Vec<u64> = batch.records().map(|r| r.time(BASE) - BASE).collect();
        self.note(format!("block {} {times:?}", arrived.events));
    }
    fn own(&mut self, records: Vec<u8>, _: &SizeTable) -> Vec<u8> {
        self.note(format!("own {}", records.len()));
        if self.holds { Vec::new() } else { records }
    }
    fn logged(&mut self, batch: &Batch, written: &Written) {
        self.note(format!("logged {} {}", batch.records().count(), written.next_serial));
    }
    fn until(&mut self, source: Source, time_ns: u64) {
        self.note(format!("until {source:?} {time_ns}"));
    }
    fn turn(&mut self, _: Moment) -> Found {
        let own = std::mem::take(&mut self.finds);
        let until = (!own.is_empty()).then_some((Source::Triggers, 7));
        Found { own, until }
    }
    fn end(&mut self, span: (u64, u64)) -> Vec<Entry> {
        vec![Entry::new(Key::Excluded).between(span.0, span.1)]
    }
}

#[test]
fn all_get_what_comes_and_what_is_logged_and_know_its_records() {
    let (first, second) = (Noted::default(), Noted::default());
    let mut story = Story::new(vec![boxed(first.clone()), boxed(second.clone())]);
    let mut records = story.builtin.lost(3, BASE, BASE + 1);
    records.extend(marks(&story.builtin, [2]));
    story.come(block(Origin::Cpu(0), &records), ARRIVED);
    story.log(Origin::Recorder, &records, &written(1, 3));
    for noted in [first, second] {
        assert_eq!(noted.take(), ["block 1 [1, 2]", "logged 2 4"]);
    }
}

#[test]
fn records_of_events_that_are_declared_later_are_known_as_well() {
    let all = builtin();
    let mark = all.0.iter().find(|e| e.name == "MARK").unwrap().clone();
    let others: Vec<_> = all.0.iter().filter(|e| e.id != mark.id).cloned().collect();
    let noted = Noted::default();
    let mut taps = Taps::new(vec![boxed(noted.clone())], &others);
    let records = marks(&all, [1, 2]);
    taps.block(block(Origin::Cpu(0), &records), ARRIVED);
    taps.declared(&Addition { events: vec![mark], ..Addition::default() });
    taps.block(block(Origin::Cpu(0), &records), ARRIVED);
    assert_eq!(noted.take(), ["block 1 []", "declared 1", "block 1 [1, 2]"]);
}

#[test]
fn what_one_finds_goes_to_those_after_it() {
    let (first, last) = (Noted::default(), Noted::default());
    let finds = marks(&builtin(), [1]);
    let size = finds.len();
    let finder = Noted { finds, ..Noted::default() };
    let list = vec![boxed(first.clone()), boxed(finder.clone()), boxed(last.clone())];
    let mut story = Story::new(list);
    assert_eq!(story.turn(Moment::Message), [(Source::Triggers, 7)]);
    assert_eq!(first.take(), ["until Triggers 7"]);
    assert_eq!(finder.take(), ["until Triggers 7"]);
    assert_eq!(last.take(), [format!("own {size}"), "until Triggers 7".into()]);
    assert_eq!(story.names(), ["MARK"]);
    assert_eq!(story.turn(Moment::Message), []);
    assert_eq!(story.taps.end((1, 2)).len(), 3);
}

#[test]
fn what_one_holds_does_not_go_on() {
    let (holds, last) = (Noted { holds: true, ..Noted::default() }, Noted::default());
    let mut story = Story::new(vec![boxed(holds.clone()), boxed(last.clone())]);
    story.own(marks(&builtin(), [1]));
    assert_eq!((holds.take().len(), last.take().len(), story.own.len()), (1, 0, 0));
}

#[test]
fn threads_of_others_are_named_also_if_nothing_can_be_written() {
    let builtin = builtin();
    let scope = Scope::new(Mapping::own(SCOPE_BYTES).unwrap());
    let threads = ThreadNames::new(&builtin.0, scope, None, &[]);
    let mut story = Story::new(vec![boxed(Naming::new(threads, &builtin))]);
    let (me, now) = (std::process::id(), os::monotonic_ns());
    let of = |origin, parent, arrived: Arrived, story: &mut Story| {
        let records = fork(&builtin, parent, now);
        story.come(EventBlock { time_base: now, ..block(origin, &records) }, arrived);
    };
    // Of other streams it wants none.
    of(Origin::Recorder, me, ARRIVED, &mut story);
    assert!(story.turn(Moment::AllCame).is_empty() && story.names().is_empty());
    of(Origin::Cpu(0), me, Arrived { events: 1, unwritable: true }, &mut story);
    story.turn(Moment::AllCame);
    assert_eq!(story.names(), ["PROCESS_SEEN"]);
    assert!(story.taps.end((1, 2)).is_empty());
    // Nobody has this id.
    of(Origin::Cpu(0), 4_000_007, ARRIVED, &mut story);
    story.turn(Moment::Ended(None));
    assert_eq!(story.names(), ["PROCESS_SEEN"]);
    let entries = story.taps.end((1, 2));
    assert_eq!((entries.len(), entries[0].count), (1, 1));
}

#[test]
fn a_history_has_what_the_log_has() {
    let builtin = builtin();
    let limits = Limits { bytes: 1 << 20, age_ns: u64::MAX, before_ns: 0 };
    let history = Arc::new(History::new(&preamble(&builtin), limits, Arc::default()));
    let mut story = Story::new(vec![boxed(Keep(history.clone()))]);
    let records = marks(&builtin, [1, 2]);
    story.come(block(Origin::Cpu(0), &records), ARRIVED);
    assert!(history.part().blocks.is_empty());
    story.log(Origin::Cpu(0), &records, &written(2, 0));
    let part = history.part();
    assert_eq!((part.blocks.len(), part.blocks[0].extent), (1, written(2, 0).extent));
    story.taps.until(Source::Programs, 50);
    assert!(!history.has_programs_until(50));
    story.turn(Moment::Ended(Some(60)));
    assert!(history.has_programs_until(1 << 60));
}

/// A follower that notes times after [`BASE`].
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Vec<u64>>>);

impl Follower for Times {
    fn begin(&mut self, _: &Preamble) {}
    fn add(&mut self, _: &Addition) {}
    fn arrives(&mut self, _: &EventRef) {}
    fn event(&mut self, event: &EventRef, late: bool) {
        assert!(!late);
        self.0.lock().unwrap().push(event.time_ns - BASE);
    }
    fn missed(&mut self, _: u64) {}
    fn pause(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_follower_gets_all_that_comes_and_ends_with_it() {
    let (builtin, times) = (builtin(), Times::default());
    let follower = Box::new(times.clone());
    let (feed, thread) = follower::start(follower, &preamble(&builtin), &[0], None).unwrap();
    let mut story = Story::new(vec![boxed(Follow::new(feed, BASE))]);
    let last = Arrived { events: 1, unwritable: true };
    story.own(marks(&builtin, [1, 4]));
    story.come(block(Origin::Cpu(0), &marks(&builtin, [2, 3])), ARRIVED);
    story.own(marks(&builtin, [5]));
    story.come(block(Origin::Cpu(0), &marks(&builtin, [6])), last);
    story.log(Origin::Cpu(0), &marks(&builtin, [2, 3]), &written(2, 0));
    assert_eq!(story.names(), ["MARK"; 3], "they are to be written as well");
    story.turn(Moment::Ended(None));
    thread.join().unwrap();
    assert_eq!(*times.0.lock().unwrap(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_hit_is_what_can_be_written() {
    let builtin = builtin();
    let triggers = [trigger::parse("MARK: stop").unwrap()];
    let (actions, finder) = Actions::new(&triggers, &builtin.0).unwrap();
    let mut story = Story::new(vec![boxed(finder)]);
    let mut records = marks(&builtin, [1]);
    let triggered = builtin.event("TRIGGERED").int("trigger", 1);
    triggered.int("id", id(&builtin, "MARK").into()).finish(BASE + 1, &mut records);
    story.come(block(Origin::Cpu(0), &records), Arrived { events: 2, unwritable: true });
    assert!(actions.take().is_empty());
    story.come(block(Origin::Cpu(0), &records), ARRIVED);
    let hits = actions.take();
    assert_eq!((hits.len(), hits[0].time_ns, hits[0].event.is_some()), (1, BASE + 1, true));
    // Nothing else has to be put among them.
    story.own(marks(&builtin, [2]));
    assert_eq!(story.names(), ["MARK"]);
}

#[test]
fn events_that_fire_triggers_later_hold_the_recorders_own_back() {
    let builtin = builtin();
    let triggers = [trigger::parse("PROCESS_EXIT where pid == 7: stop").unwrap()];
    let (actions, finder) = Actions::new(&triggers, &builtin.0).unwrap();
    let watcher = Watcher::new((1..).zip(&triggers), &preamble(&builtin)).unwrap();
    let mut finder = finder.watching(watcher, false);
    assert!(finder.await_all(&[Source::Cpu(0)]));
    let mut story = Story::new(vec![boxed(finder)]);
    let mut exit = Vec::new();
    builtin.event("PROCESS_EXIT").int("pid", 7).finish(BASE + 3, &mut exit);
    story.own(marks(&builtin, [1, 5]));
    story.come(block(Origin::Cpu(0), &exit), ARRIVED);
    assert!(story.names().is_empty() && actions.take().is_empty());
    story.taps.until(Source::Cpu(0), BASE + 4);
    // Only when it is the moment for it.
    assert!(story.turn(Moment::Message).is_empty());
    story.turn(Moment::Ended(Some(BASE + 9)));
    assert_eq!(story.names(), ["MARK", "TRIGGERED", "MARK"]);
    assert_eq!(actions.take().len(), 1);
    // From here on nothing is held.
    story.own(marks(&builtin, [7]));
    assert_eq!(story.names().len(), 4);
    assert!(story.turn(Moment::Ended(None)).is_empty());
}

#[test]
fn a_segment_begins_with_the_threads_and_the_losses_of_what_was_logged() {
    let builtin = builtin();
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { size: Some(1 << 20), ..Plan::default() };
    let shelf = Arc::new(Shelf::new(Folder::open(folder.path()).unwrap(), plan.clone()));
    let segment = Some(Segment { number: 1, ..Segment::default() });
    let first = Preamble { segment, ..preamble(&builtin) };
    let seams = Seams::new(plan, shelf.clone(), 0o600, Compression::None, first, 0);
    let (mut file, _reader) = file(&builtin, Some(seams));
    let taps = Taps::new(Vec::new(), &builtin.0);
    let mut records = builtin.lost(3, BASE, BASE + 1);
    let thread = builtin.event("PROCESS_EXISTS").int("pid", 77).int("tgid", 77);
    thread.text("comm", b"seven").text("command", b"").finish(BASE + 2, &mut records);
    let batch = taps.batch(block(Origin::Cpu(2), &records));
    let extent = file.block(&batch, ARRIVED).unwrap().unwrap().extent;
    assert_eq!((extent.events, extent.lost), (1, 3));
    assert!(!file.ends_before(0) && file.ends_before(1 << 20));
    file.go_on();
    let ended = shelf.take().unwrap();
    assert_eq!(ended.writer.summary().events, 1);
    let [entry] = &ended.about.losses[..] else { panic!("{:?}", ended.about.losses) };
    assert_eq!((entry.cpu, entry.count, entry.to_ns), (Some(2), 3, Some(BASE + 2)));
    let next = std::fs::read(folder.path().join(klogger_log::segments::file_name(2))).unwrap();
    assert!(next.windows(5).any(|word| word == b"seven"));
    let summary = file.summary();
    assert_eq!((summary.events, summary.lost), (1, 3), "of both");
}

#[test]
fn what_cannot_be_written_is_counted() {
    let builtin = builtin();
    let (mut file, reader) = file(&builtin, None);
    let records = marks(&builtin, [1, 2]);
    let taps = Taps::new(Vec::new(), &builtin.0);
    let batch = taps.batch(block(Origin::Cpu(1), &records));
    let first = file.block(&batch, Arrived { events: 2, unwritable: false }).unwrap().unwrap();
    assert_eq!((first.next_serial, first.extent.events), (2, 2));
    assert!(file.discarded("why").is_empty());
    drop(reader);
    assert!(file.block(&batch, Arrived { events: 2, unwritable: false }).is_err());
    assert_eq!(file.block(&batch, Arrived { events: 2, unwritable: true }).unwrap(), None);
    let [entry] = &file.discarded("why")[..] else { panic!("of one event and CPU") };
    assert_eq!((entry.count, entry.cpu), (4, Some(1)));
    assert_eq!((entry.from_ns, entry.to_ns), (Some(BASE + 1), Some(BASE + 2)));
    assert_eq!(file.summary().events, 2);
}
