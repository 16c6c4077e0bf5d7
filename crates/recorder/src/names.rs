// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Names of threads out of scope that events name.
//!
//! When a block has been drained, the ids in its fields that hold threads are noted, each once.
//! Then the names are looked up: in what threads left when they ended or were renamed, else in
//! /proc. So an event costs nothing more where it happens, and a name is that of the time of the
//! event. Ids are reused, so a name is only used if its thread had started by then.

use klogger_engines::left_names::{LeftName, LeftNames};
use klogger_engines::scope::{SCOPE_BYTES, Scope};
use klogger_log::builtin::Builtin as Kind;
use klogger_log::names::{Past, Row};
use klogger_log::record::Record;
use klogger_os::clocks::{self, Clocks};
use klogger_os::processes::{self, Named};
use klogger_ring::block::Builtin;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Ids that wait for their names, at most. Further ones are counted.
const WAITING_MAX: usize = 4096;
/// Names that are looked up in /proc at a time, and how often.
const LOOKUPS: usize = 256;
const PAUSE: Duration = Duration::from_millis(100);
/// The rings of all CPUs are drained within this time, so a thread in scope has been named by its
/// own events.
const PATIENCE: Duration = Duration::from_secs(4);
/// Names that threads have left are kept so long, because events of other CPUs may need them.
const KEPT_NS: u64 = 10_000_000_000;
const KEPT_MAX: usize = 4096;
/// Until when a thread has a name that it still has.
const NOW: u64 = u64::MAX;
/// Start times in /proc are in hundredths of a second.
const TICK_NS: u64 = 20_000_000;

/// A bit for each thread id.
struct Bits(Vec<u64>);

impl Bits {
    fn new() -> Bits {
        Bits(vec![0; SCOPE_BYTES / 8])
    }

    fn has(&self, tid: u32) -> bool {
        self.0.get(tid as usize / 64).is_some_and(|word| word >> (tid % 64) & 1 != 0)
    }

    fn set(&mut self, tid: u32, on: bool) {
        if let Some(word) = self.0.get_mut(tid as usize / 64) {
            *word = *word & !(1 << (tid % 64)) | u64::from(on) << (tid % 64);
        }
    }
}

/// The ids of an event's threads.
#[derive(Clone, Default)]
struct Fields {
    /// Offsets.
    threads: Vec<usize>,
    /// What it says of the thread in its field `pid`, if it is a built-in event.
    kind: Option<Kind>,
    pid: usize,
}

/// What is known of ids.
struct Ids {
    /// Ids that need no look-up: they wait, or the log has their names.
    known: Bits,
    /// Those of them that are not in scope: their later names are of interest as well.
    asked: Bits,
    /// Ids that events of the log named by now: those of threads in scope.
    own: Bits,
    /// Ids, each with the time at which it needs a name, and when that was noted.
    waiting: BTreeMap<(u32, u64), Instant>,
    /// How many names were not found.
    unnamed: u64,
}

impl Ids {
    fn note(&mut self, tid: u32, since_ns: u64) {
        if tid == 0 || tid as usize >= SCOPE_BYTES * 8 {
            return;
        }
        self.known.set(tid, true);
        self.asked.set(tid, true);
        self.wait(tid, since_ns);
    }

    fn wait(&mut self, tid: u32, since_ns: u64) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.insert((tid, since_ns), Instant::now());
        } else {
            self.unnamed += 1;
        }
    }
}

/// What is known of the names of threads.
pub struct ThreadNames {
    events: Vec<Fields>,
    scope: Scope,
    left: Option<LeftNames>,
    ids: Ids,
    /// Names that threads left; each is said to be from the start of its thread on.
    kept: Past,
    /// Those that the log has, by id, and the time until which a thread had the name.
    told: BTreeSet<(u32, u64)>,
    looked: Instant,
}

impl ThreadNames {
    /// `recorder`: threads that the log names already.
    pub fn new(
        events: &[EventLayout],
        scope: Scope,
        left: Option<LeftNames>,
        recorder: &[u32],
    ) -> ThreadNames {
        let (known, asked, own) = (Bits::new(), Bits::new(), Bits::new());
        let mut ids = Ids { known, asked, own, waiting: BTreeMap::new(), unnamed: 0 };
        recorder.iter().for_each(|tid| ids.known.set(*tid, true));
        let last = events.iter().map(|event| usize::from(event.id)).max().unwrap_or(0);
        let mut threads = vec![Fields::default(); last + 1];
        events.iter().for_each(|event| threads[usize::from(event.id)] = fields(event));
        ThreadNames {
            events: threads,
            scope,
            left,
            ids,
            kept: Past::default(),
            told: BTreeSet::new(),
            looked: Instant::now(),
        }
    }

    /// Notes the ids in records of a CPU. `base`: not later than the earliest of them.
    pub fn see<'a>(&mut self, records: impl Iterator<Item = Record<'a>>, base: u64) {
        for record in records {
            let Some(fields) = self.events.get(usize::from(record.id())) else { continue };
            let own = fields.kind.map(|kind| (kind, id_at(record.bytes, fields.pid)));
            if let Some((Kind::Fork | Kind::Exec | Kind::Rename, tid)) = own {
                self.ids.own.set(tid, true);
                self.ids.known.set(tid, true);
            }
            for tid in fields.threads.iter().map(|offset| id_at(record.bytes, *offset)) {
                if !self.ids.known.has(tid) {
                    self.ids.note(tid, record.time(base));
                }
            }
            if let Some((Kind::Exit, tid)) = own {
                self.ids.known.set(tid, false);
            }
        }
    }

    /// Looks up names of ids that wait, and appends events with them to `out`. `last`: of all.
    pub fn look_up(&mut self, builtin: &Builtin, last: bool, out: &mut Vec<u8>) {
        if !last && self.looked.elapsed() < PAUSE {
            return;
        }
        self.looked = Instant::now();
        self.look_up_some(builtin, if last { WAITING_MAX } else { LOOKUPS }, last, out);
        // A thread that was renamed needs its next name as well.
        while last && !self.ids.waiting.is_empty() {
            self.look_up_some(builtin, WAITING_MAX, last, out);
        }
    }

    fn look_up_some(&mut self, builtin: &Builtin, most: usize, last: bool, out: &mut Vec<u8>) {
        // /proc first: a thread that ends afterwards leaves its name.
        let of_proc = |(at, noted): (&(u32, u64), &Instant)| (*at, *noted, processes::named(at.0));
        let found: Vec<_> = self.ids.waiting.iter().take(most).map(of_proc).collect();
        self.keep_left();
        let clocks = clocks::read();
        for ((tid, since), noted, named) in found {
            self.ids.waiting.remove(&(tid, since));
            if self.scope.contains(tid) {
                continue;
            }
            match self.name_at(tid, since, named, &clocks) {
                Some(name) => {
                    let from = self.earlier(tid, since, builtin, clocks.monotonic, out);
                    seen(builtin, &name, from, clocks.monotonic, out);
                    if name.to_ns < NOW {
                        self.told.insert((tid, name.to_ns));
                    }
                    if name.to_ns < NOW && name.exit_ns.is_none() {
                        self.ids.wait(tid, name.to_ns);
                    }
                }
                None if self.ids.own.has(tid) => {}
                None if last || noted.elapsed() > PATIENCE => self.ids.unnamed += 1,
                None => drop(self.ids.waiting.insert((tid, since), noted)),
            }
        }
    }

    /// The names that the thread with this id had before, as far as they are kept: events that are
    /// drained later may be older. Returns since when it has its name, as far as that is known.
    fn earlier(
        &mut self,
        tid: u32,
        at_ns: u64,
        builtin: &Builtin,
        now: u64,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut since = None;
        for name in self.kept.around(tid.into(), at_ns).0 {
            let from = since.filter(|from| *from > name.from_ns).unwrap_or(name.from_ns);
            if self.told.insert((tid, name.to_ns)) {
                seen(builtin, name, from, now, out);
            }
            since = Some(name.to_ns);
        }
        since.unwrap_or(at_ns)
    }

    /// Takes the names that threads have left. Their ids have other names now, or none.
    fn keep_left(&mut self) {
        let Some(left) = &mut self.left else { return };
        for name in left.take() {
            if name.ended {
                self.ids.known.set(name.tid, false);
                self.ids.asked.set(name.tid, false);
            } else if self.ids.asked.has(name.tid) {
                self.ids.wait(name.tid, name.until_ns);
            }
            self.kept.push(row(name));
        }
        if self.kept.count() > KEPT_MAX {
            let old_ns = clocks::read().monotonic.saturating_sub(KEPT_NS);
            self.kept.forget(old_ns);
            self.told.retain(|(_, until_ns)| *until_ns > old_ns);
        }
    }

    /// The thread that had this id at this time, until [`NOW`] if it still has its name. It keeps
    /// its id for a while after it has ended.
    fn name_at(&self, tid: u32, at_ns: u64, named: Option<Named>, clocks: &Clocks) -> Option<Row> {
        // At the moment of a rename it is the new name.
        let (before, left) = self.kept.around(tid.into(), at_ns);
        if let Some(name) = left.first().filter(|name| name.from_ns <= at_ns) {
            return Some(name.clone());
        }
        // Since boot, which includes the time that the machine slept.
        let at_boot = at_ns + clocks.boot.saturating_sub(clocks.monotonic);
        let named = named.filter(|named| left.is_empty() && named.start_ns <= at_boot + TICK_NS);
        let named = named.map(|named| {
            let row = Row::new(tid.into(), named.comm, at_ns);
            Row { tgid: named.tgid.into(), to_ns: NOW, ..row }
        });
        named.or_else(|| before.last().filter(|name| name.exit_ns.is_some()).cloned())
    }

    /// How many ids have no name in the log, after the last look-up.
    pub fn unnamed(&self) -> u64 {
        self.ids.unnamed
    }
}

/// A name that a thread had, from the start of the thread on.
fn row(left: LeftName) -> Row {
    let LeftName { tid, tgid, comm, start_ns, until_ns, ended } = left;
    let row = Row::new(tid.into(), comm, start_ns);
    Row { tgid: tgid.into(), to_ns: until_ns, exit_ns: ended.then_some(until_ns), ..row }
}

/// PROCESS_SEEN: the name of a thread, and since when it has it.
pub fn seen(builtin: &Builtin, row: &Row, since_ns: u64, time_ns: u64, out: &mut Vec<u8>) {
    let seen = builtin.event("PROCESS_SEEN").int("pid", row.pid).int("tgid", row.tgid);
    seen.int("since", since_ns as i64).text("comm", &row.comm).finish(time_ns, out);
}

/// The threads of an event.
fn fields(event: &EventLayout) -> Fields {
    let is_thread = |f: &&FieldLayout| {
        f.decode == Decode::Thread && f.shape == Shape::One && f.scalar.size() >= 4
    };
    let offset = |f: &FieldLayout| f.offset as usize;
    Fields {
        threads: event.fields.iter().filter(is_thread).map(offset).collect(),
        kind: Kind::of(event).filter(|_| event.fields.iter().any(|f| f.name == "pid")),
        pid: event.fields.iter().find(|f| f.name == "pid").map_or(0, offset),
    }
}

/// An id; 0, which no thread has, if there are not enough bytes.
fn id_at(record: &[u8], offset: usize) -> u32 {
    let bytes = record.get(offset..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
