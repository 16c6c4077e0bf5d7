// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One pass through a log that makes samples of its events with stacks: each has a thread, a stack,
//! a time and a weight.

use super::frames::{Numbers, Paths};
use super::kinds::{Kind, Weight};
use super::omitted::{OPEN_MAX, Omitted};
use super::opened::OpenSlices;
use crate::exporter::Report;
use crate::pairing::{Key, Part, parts, whose};
use crate::roles::{int, int_of, text_of};
use klogger_log::builtin::Builtin;
use klogger_log::damage::Damage;
use klogger_log::event::EventRef;
use klogger_log::ledger::{Entry, Key as Cause, Severity};
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use klogger_log::stacks::Stacks;
use klogger_schema::layout::EventLayout;
use std::collections::HashMap;

/// Events between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// One sample. Times are ns since the log's start.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which of [`Walk::threads`].
    pub thread: u32,
    /// Which of the paths.
    pub stack: u32,
    pub time_ns: u64,
    /// ns, or 1.
    pub weight: u64,
}

/// A thread while it has one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ThreadName {
    /// 0 if the log does not say.
    pub tid: i64,
    /// Its process; 0 if the log does not say.
    pub tgid: i64,
    pub comm: Vec<u8>,
}

impl ThreadName {
    /// Its name, or its number if it has none.
    pub fn program(&self) -> String {
        match self.comm.is_empty() {
            true => format!("thread {}", self.tid),
            false => String::from_utf8_lossy(&self.comm).into_owned(),
        }
    }
}

/// What a process ran when it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastProgram {
    /// The name of its first thread; empty if the log does not say.
    pub comm: Vec<u8>,
    /// Its command line, or the path of its file; empty if the log does not say.
    pub command: Vec<u8>,
}

impl LastProgram {
    fn of(tgid: i64, processes: &Processes) -> LastProgram {
        // 0 is that of threads whose process is not known.
        let row = processes.row(tgid).filter(|_| tgid != 0);
        row.map_or_else(LastProgram::default, |row| LastProgram {
            comm: row.comm.clone(),
            command: row.command.clone(),
        })
    }
}

/// A mark of the user.
pub struct Mark {
    pub time_ns: u64,
    pub text: String,
}

/// What a pass has found besides the samples.
pub struct Walked {
    pub kind: Kind,
    pub paths: Paths,
    pub threads: Vec<ThreadName>,
    /// By process of these threads: what it ran last.
    pub programs: HashMap<i64, LastProgram>,
    pub marks: Vec<Mark>,
    pub omitted: Omitted,
    pub damage: Vec<Damage>,
    /// ns of the log.
    pub length_ns: u64,
}

impl Walked {
    /// What the reader of an export must know, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let lost = self.omitted.lost;
        let lost = (lost > 0).then(|| format!("losses in the log's ledger: {lost}"));
        lost.into_iter().chain(self.omitted()).collect()
    }

    /// What is omitted besides what was lost.
    pub fn omitted(&self) -> Vec<String> {
        let Kind { name, weight, .. } = &self.kind;
        let done = if weight.is_of_slices() { "ended" } else { "is" };
        let none = (self.omitted.samples == 0)
            .then(|| format!("the export is empty: no {name} {done} in this log"));
        none.into_iter().chain(self.omitted.sentences(weight.word())).collect()
    }
}

/// A slice that has begun.
struct Open {
    time_ns: u64,
    thread: u32,
    stack: u32,
}

/// How the ends of slices are found.
enum Pairs {
    /// There are none: each event is a sample.
    None,
    /// The slice that the kind begins, and by event the same slice if it ends it.
    Slice(Part, Vec<Option<Part>>),
    /// By `pid`: the field of the kind; the event that ends, and its field.
    Switch { pid: usize, to: usize, to_pid: usize },
}

struct Walk {
    stacks: Stacks,
    processes: Processes,
    start_ns: u64,
    pairs: Pairs,
    owners: Vec<Option<usize>>,
    open: OpenSlices<Open>,
    /// By thread id: which of `threads` it is now.
    current: HashMap<i64, u32>,
    known: HashMap<ThreadName, u32>,
    found: Walked,
}

/// Calls `take` with each sample: that of a slice when the slice has ended, but with the time of
/// its beginning.
pub fn walk(reader: &Reader, kind: &Kind, report: Report, take: &mut dyn FnMut(Sample)) -> Walked {
    let mut walk = Walk::new(reader, kind);
    let builtin: Vec<_> = reader.preamble().events.iter().map(Builtin::of).collect();
    let mut serials = Serials::default();
    let mut merge = reader.merge(&Selection::default());
    let (mut done, total) = (0, reader.totals().0);
    while let Some(event) = merge.next() {
        let builtin = builtin[event.index];
        walk.processes.apply(&event);
        if serials.missing(&event) || builtin == Some(Builtin::Lost) {
            walk.lost(event.origin);
        }
        match builtin {
            Some(Builtin::Mark) => walk.mark(&event),
            Some(Builtin::Exit) => walk.exit(&event, take),
            _ => walk.event(&event, take),
        }
        done += 1;
        if done % REPORT_EVERY == 0 {
            report(done, total);
        }
    }
    let damage = merge.damage().to_vec();
    walk.finish(reader, damage)
}

/// The serial number that comes next in each stream.
#[derive(Default)]
struct Serials(HashMap<Origin, u64>);

impl Serials {
    /// Whether events of the stream are missing before this one.
    fn missing(&mut self, event: &EventRef) -> bool {
        // A damaged or forged log may have any number.
        let next = self.0.insert(event.origin, event.serial.wrapping_add(1));
        next.is_some_and(|next| event.serial > next)
    }
}

impl Walk {
    fn new(reader: &Reader, kind: &Kind) -> Walk {
        let (start_ns, end_ns) = reader.span();
        let events = &reader.preamble().events;
        Walk {
            stacks: reader.stacks(),
            processes: Processes::new(reader),
            start_ns,
            pairs: Pairs::of(kind, events),
            owners: events.iter().map(crate::roles::owner).collect(),
            open: OpenSlices::default(),
            current: HashMap::new(),
            known: HashMap::new(),
            found: Walked {
                kind: kind.clone(),
                paths: Paths::default(),
                threads: Vec::new(),
                programs: HashMap::new(),
                marks: Vec::new(),
                omitted: Omitted::default(),
                damage: Vec::new(),
                length_ns: end_ns - start_ns,
            },
        }
    }

    fn event(&mut self, event: &EventRef, take: &mut dyn FnMut(Sample)) {
        if let Some(key) = self.pairs.end(event, self.tid(event)) {
            self.end(&key, event.time_ns, take);
        }
        if event.index != self.found.kind.event {
            return;
        }
        let tid = self.tid(event);
        let Some(key) = self.pairs.begin(event, tid) else {
            let sample = self.begun(event);
            let weight = match self.found.kind.weight {
                Weight::Period(field) => event.value(&event.layout.fields[field]).bits(),
                Weight::One | Weight::Slice(_) | Weight::Switch { .. } => Some(1),
            };
            return self.take(&sample, weight.unwrap_or(1), take);
        };
        // A second beginning ends what was begun before.
        self.end(&key, event.time_ns, take);
        // A thread that has exited does not come back.
        if tid.and_then(|tid| self.processes.row(tid)).is_some_and(|row| row.exit_ns.is_some()) {
            return;
        }
        if self.open.len() >= OPEN_MAX {
            self.found.omitted.too_many += 1;
            return;
        }
        let open = self.begun(event);
        self.open.insert(key, open);
    }

    fn begun(&mut self, event: &EventRef) -> Open {
        let mut numbers: Numbers = [0; 2];
        for (number, field) in numbers.iter_mut().zip(&self.found.kind.stacks) {
            *number = event.value(&event.layout.fields[*field]).bits().unwrap_or_default();
        }
        let stack = self.found.paths.of(numbers, &self.stacks);
        Open { time_ns: event.time_ns, thread: self.thread(event), stack }
    }

    fn end(&mut self, key: &Key, time_ns: u64, take: &mut dyn FnMut(Sample)) {
        if let Some(open) = self.open.remove(key) {
            self.take(&open, time_ns.saturating_sub(open.time_ns), take);
        }
    }

    fn take(&mut self, open: &Open, weight: u64, take: &mut dyn FnMut(Sample)) {
        let omitted = &mut self.found.omitted;
        omitted.samples += 1;
        omitted.all = omitted.all.saturating_add(weight);
        if self.found.paths.partial[open.stack as usize] {
            omitted.partial = omitted.partial.saturating_add(weight);
        }
        let time_ns = open.time_ns.saturating_sub(self.start_ns);
        take(Sample { thread: open.thread, stack: open.stack, time_ns, weight });
    }

    /// The thread of an event of the kernel.
    fn tid(&self, event: &EventRef) -> Option<i64> {
        match event.origin {
            Origin::Thread { .. } => None,
            Origin::Cpu(_) | Origin::Recorder => int(event, self.owners[event.index]),
        }
    }

    fn thread(&mut self, event: &EventRef) -> u32 {
        let (tid, tgid) = match event.origin {
            Origin::Thread { thread, .. } => (thread.tid.into(), thread.tgid.into()),
            Origin::Cpu(_) | Origin::Recorder => {
                let tid = self.tid(event).unwrap_or_default();
                (tid, self.processes.row(tid).map_or(0, |row| row.tgid.max(0)))
            }
        };
        let comm = self.processes.name(tid).unwrap_or_default();
        let same = |index: &&u32| {
            let known = &self.found.threads[**index as usize];
            known.comm == comm && known.tgid == tgid
        };
        if let Some(index) = self.current.get(&tid).filter(same) {
            return *index;
        }
        let name = ThreadName { tid, tgid, comm: comm.to_vec() };
        let next = self.found.threads.len() as u32;
        let index = *self.known.entry(name.clone()).or_insert(next);
        if index == next {
            self.found.threads.push(name);
        }
        self.current.insert(tid, index);
        index
    }

    fn mark(&mut self, event: &EventRef) {
        let number = int_of(event, "number").unwrap_or_default();
        let text = text_of(event, "text").filter(|text| !text.is_empty());
        self.found.marks.push(Mark {
            time_ns: event.time_ns.saturating_sub(self.start_ns),
            text: text.unwrap_or_else(|| format!("mark {number}")),
        });
    }

    /// The slices of a thread that has exited end there.
    fn exit(&mut self, event: &EventRef, take: &mut dyn FnMut(Sample)) {
        let Some(tid) = int_of(event, "pid") else { return };
        for open in self.open.of_thread(tid) {
            self.take(&open, event.time_ns.saturating_sub(open.time_ns), take);
        }
    }

    /// Events of `origin` are missing, perhaps ends.
    fn lost(&mut self, origin: Origin) {
        self.found.omitted.uncertain += self.open.lose(origin) as u64;
    }

    fn finish(mut self, reader: &Reader, damage: Vec<Damage>) -> Walked {
        let ledger = reader.ledger(&damage);
        // The time of a sample that a timer has missed is in the period of the next.
        let is_in_next = |e: &Entry| {
            matches!(self.found.kind.weight, Weight::Period(_))
                && e.key == Cause::SampleMissed.info().name
        };
        let losses =
            ledger.entries.iter().filter(|e| e.severity >= Severity::Loss && !is_in_next(e));
        self.found.omitted.lost = losses.fold(0, |sum, e| sum.saturating_add(e.count));
        self.found.omitted.open = self.open.len() as u64;
        let tgids = self.found.threads.iter().map(|thread| thread.tgid);
        self.found.programs =
            tgids.map(|tgid| (tgid, LastProgram::of(tgid, &self.processes))).collect();
        self.found.damage = reader.damage().iter().chain(&damage).cloned().collect();
        self.found
    }
}

impl Pairs {
    fn of(kind: &Kind, events: &[EventLayout]) -> Pairs {
        match &kind.weight {
            Weight::One | Weight::Period(_) => Pairs::None,
            Weight::Switch { pid, to, to_pid } => {
                Pairs::Switch { pid: *pid, to: *to, to_pid: *to_pid }
            }
            Weight::Slice(name) => {
                let parts = parts(events);
                let begin = parts[kind.event].0.iter().find(|part| part.name == *name);
                let Some(begin) = begin.cloned() else { return Pairs::None };
                let same = |ends: &[Part]| ends.iter().find(|p| p.slice == begin.slice).cloned();
                let ends = parts.iter().map(|(_, ends)| same(ends)).collect();
                Pairs::Slice(begin, ends)
            }
        }
    }

    fn begin(&self, event: &EventRef, tid: Option<i64>) -> Option<Key> {
        match self {
            Pairs::None => None,
            Pairs::Slice(part, _) => Some(part.key(event, whose(event, part.on, tid))),
            Pairs::Switch { pid, .. } => Key::of_switch(event, *pid),
        }
    }

    /// Of what the event is the end, if it is one.
    fn end(&self, event: &EventRef, tid: Option<i64>) -> Option<Key> {
        match self {
            Pairs::None => None,
            Pairs::Slice(_, ends) => {
                let part = ends[event.index].as_ref()?;
                Some(part.key(event, whose(event, part.on, tid)))
            }
            Pairs::Switch { to, to_pid, .. } if *to == event.index => {
                Key::of_switch(event, *to_pid)
            }
            Pairs::Switch { .. } => None,
        }
    }
}
