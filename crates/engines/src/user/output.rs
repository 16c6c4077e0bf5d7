// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Hands the records of programs to the writer thread: blocks of streams, the recorder's own events
//! about processes, and ledger entries.

use super::translate::Batch;
use klogger_log::builder::RecordBuilder;
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::{Origin, Thread};
use klogger_log::preamble::Addition;
use klogger_os as os;
use klogger_os::processes;
use klogger_ring::block::{Block, Builtin, Followed, Outlet, Pool, Source, Status, ToWriter};
use klogger_ring::clock::Clock;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Ledger entries of one kind at most, because programs are untrusted and can cause any number.
const ENTRIES_MAX: usize = 500;

/// How long a thread may be preempted between the time of its event and its end.
const PREEMPTED_NS: u64 = 20_000_000;

/// The way to the writer thread.
pub struct Output {
    pub to_writer: SyncSender<ToWriter>,
    pub pool: Arc<Pool>,
    pub status: Arc<Status>,
    pub builtin: Builtin,
    pub clock: Clock,
    pub complaints: Complaints,
    /// The earliest event of a program so far.
    pub earliest_ns: u64,
    followed: Arc<Followed>,
    streams: u32,
    /// Threads for which PROCESS_EXISTS was logged, by process; `None` if the kernel's probes log
    /// it.
    told: Option<HashMap<u32, HashSet<u32>>>,
}

/// The records of one use of a slot by a thread.
pub struct Stream {
    origin: Origin,
    serial: u64,
    /// It has lost events.
    pub has_lost: bool,
}

impl Stream {
    pub fn thread(&self) -> Option<Thread> {
        self.origin.thread()
    }
}

impl Output {
    /// `tells_processes`: PROCESS_EXISTS is logged here, and not by probes in the kernel.
    pub fn new(outlet: Outlet, tells_processes: bool) -> Output {
        let Outlet { to_writer, pool, status, builtin, followed } = outlet;
        Output {
            to_writer,
            pool,
            status,
            builtin,
            clock: Clock::start(),
            complaints: Complaints::default(),
            earliest_ns: u64::MAX,
            followed,
            streams: 0,
            told: tells_processes.then(HashMap::new),
        }
    }

    pub fn open_stream(&mut self, thread: Thread) -> Stream {
        self.streams += 1;
        self.tell_of(thread.tgid, thread.tid);
        Stream {
            origin: Origin::Thread { stream: self.streams, thread },
            serial: 0,
            has_lost: false,
        }
    }

    /// Hands records to the writer thread.
    pub fn send(&mut self, stream: &mut Stream, records: Vec<u8>, batch: &Batch) {
        if records.is_empty() {
            self.pool.put(records);
            return;
        }
        let block = Block {
            origin: stream.origin,
            first_serial: stream.serial,
            time_base: batch.first_ns,
            dump: None,
            events: batch.serials.wrapping_sub(batch.lost),
            records,
        };
        self.earliest_ns = self.earliest_ns.min(batch.first_ns);
        stream.serial = stream.serial.wrapping_add(batch.serials);
        self.status.add(block.events, batch.lost);
        self.write(ToWriter::Block(block));
    }

    /// Fails only if the writer thread has ended with an error, which it has reported.
    fn write(&self, message: ToWriter) {
        let _ = self.to_writer.send(message);
    }

    /// Logs a LOST record for losses that no record of the program mentions.
    pub fn send_lost(&mut self, stream: &mut Stream, count: u64, since: u64) {
        let now = os::monotonic_ns();
        let batch = Batch { serials: count, lost: count, first_ns: now, ..Batch::default() };
        let records = self.builtin.lost(count, since, now);
        self.send(stream, records, &batch);
    }

    /// Tells those who follow that the rings were empty at this time. A thread that was preempted
    /// in the middle of an event may still be earlier, by [`PREEMPTED_NS`] at most, as a rule.
    /// `None`: there is no ring.
    pub fn emptied(&self, at_ns: Option<u64>) {
        if self.followed.hears_of_programs() {
            let until = at_ns.map_or(u64::MAX, |at| at.saturating_sub(PREEMPTED_NS));
            self.write(ToWriter::Until(Source::Programs, until));
        }
    }

    /// Adds new events to the log, before the first of them.
    pub fn add(&self, addition: Addition, is_on: impl Fn(&str) -> bool) {
        let events = addition.events.clone();
        self.write(ToWriter::Addition(Box::new(addition)));
        for e in &events {
            self.own(self.builtin.state(e, is_on(&e.name)));
        }
    }

    fn own(&self, event: RecordBuilder) {
        let mut bytes = Vec::new();
        event.finish(os::monotonic_ns(), &mut bytes);
        self.write(ToWriter::Own(bytes));
    }

    /// Logs PROCESS_EXISTS once for each thread, first for its process.
    pub fn tell_of(&mut self, pid: u32, tid: u32) {
        let Some(told) = &mut self.told else { return };
        let threads = told.entry(pid).or_default();
        let new: Vec<u32> = [pid, tid].into_iter().filter(|t| threads.insert(*t)).collect();
        for thread in new.into_iter().filter_map(|t| processes::thread(pid, t)) {
            self.own(self.builtin.exists(&thread));
        }
    }

    pub fn process_has_ended(&mut self, pid: u32) {
        if self.told.as_mut().is_some_and(|told| told.remove(&pid).is_some()) {
            self.own(self.builtin.event("PROCESS_EXIT").int("pid", pid.into()));
        }
    }
}

/// Ledger entries, limited in number.
#[derive(Default)]
pub struct Complaints {
    entries: Vec<Entry>,
    counts: HashMap<&'static str, usize>,
    /// Entries beyond the limit: how often, and how many events.
    left_out: HashMap<&'static str, (Key, u64, u64)>,
}

impl Complaints {
    pub fn add(&mut self, key: Key, entry: Entry) {
        let name = key.info().name;
        let count = self.counts.entry(name).or_default();
        if *count < ENTRIES_MAX {
            *count += 1;
            self.entries.push(entry);
        } else {
            let (_, times, events) = self.left_out.entry(name).or_insert((key, 0, 0));
            *times += 1;
            *events = events.saturating_add(entry.count);
        }
    }

    /// Adds an entry about a program.
    pub fn say(&mut self, key: Key, program: &str, what: &str) {
        self.add(key, Entry::new(key).detail(&format!("{program}: {what}")));
    }

    pub fn finish(self, span: (u64, u64)) -> Vec<Entry> {
        let mut entries = self.entries;
        let rest = self.left_out.into_values().map(|(key, times, events)| {
            Entry::new(key)
                .count(events)
                .detail(&format!("{times} more entries of this kind are not listed"))
        });
        entries.extend(rest);
        for e in entries.iter_mut().filter(|e| e.from_ns.is_none()) {
            (e.from_ns, e.to_ns) = (Some(span.0), Some(span.1));
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_and_their_counts_are_not() {
        let mut complaints = Complaints::default();
        for _ in 0..ENTRIES_MAX + 10 {
            complaints.add(Key::RingFull, Entry::new(Key::RingFull).count(3));
        }
        complaints.say(Key::UserHostile, "p[1]", "is odd");
        let entries = complaints.finish((5, 9));
        assert_eq!(entries.len(), ENTRIES_MAX + 2);
        assert_eq!(entries.iter().map(|e| e.count).sum::<u64>(), 3 * (ENTRIES_MAX as u64 + 10));
        assert!(entries.iter().all(|e| (e.from_ns, e.to_ns) == (Some(5), Some(9))));
    }
}
