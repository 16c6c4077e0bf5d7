// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One thread for each CPU moves records from its ring to the writer.
//!
//! A thread sleeps until a writer passes the ring's low-water mark and calls it, or for a second. So it disturbs the
//! system only when there is something to do, and what is logged is never in memory alone for much longer than a second.

use crate::cpu::CpuReader;
use crate::probing::Times;
use crate::ring::{Counters, RecordKinds, Taken};
use crate::sys;
use crate::writer::{Block, Builtin, Pool, Status, ToWriter};
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Origin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes moved at a time.
const BLOCK: usize = 1 << 20;
/// How long to wait for the disk before looking again.
const BUFFER_WAIT: Duration = Duration::from_millis(2);
/// What is in a ring is written after this time even if it is little.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Clocks are read before space is reserved, so a record can be a little older than the last look at the ring.
pub const CLOCK_MARGIN_NS: u64 = 60_000_000_000;

/// What all drain threads share.
#[derive(Clone)]
pub struct Shared {
    pub kinds: Arc<RecordKinds>,
    pub times: Times,
    pub to_writer: SyncSender<ToWriter>,
    pub pool: Arc<Pool>,
    pub status: Arc<Status>,
    pub builtin: Builtin,
    pub stop: Arc<AtomicBool>,
}

/// A running drain thread.
pub struct Drain {
    thread: JoinHandle<Finished>,
    next: Sender<CpuReader>,
    pub cpu: u16,
    pub notes: Vec<String>,
}

/// What a drain thread leaves when it ends.
pub struct Finished {
    pub counters: Counters,
    pub cpu: u16,
    pub entries: Vec<Entry>,
    /// (first loss, last loss), if any.
    pub lost_between: Option<(u64, u64)>,
}

impl Drain {
    pub fn start(cpu: u16, reader: CpuReader, shared: Shared) -> Drain {
        let (hello, hear): (Sender<Vec<String>>, Receiver<_>) = channel();
        let (next, replacements) = channel();
        let thread = thread::Builder::new().name(format!("klogger/{cpu}")).spawn(move || {
            let mut notes = Vec::new();
            if let Err(e) = sys::pin_to_cpu(u32::from(cpu)) {
                notes.push(format!("the drain thread of CPU {cpu} is not bound to it: {e}"));
            }
            if let Err(e) = sys::become_fifo() {
                notes.push(format!("the drain thread of CPU {cpu} has no real-time priority: {e}"));
            }
            // The other end is waiting for this.
            let _ = hello.send(notes);
            Worker::new(cpu, reader, replacements, shared).run()
        });
        let thread = thread.expect("a thread can be made");
        let notes = hear.recv().unwrap_or_default();
        Drain { thread, next, cpu, notes }
    }

    /// Wakes the thread: its ring fills up, or it is to see `stop`.
    pub fn wake(&self) {
        self.thread.thread().unpark();
    }

    /// Writers use these rings from now on; no writer is left in those before.
    pub fn replace(&self, reader: CpuReader) {
        // Fails only if the thread has ended already.
        let _ = self.next.send(reader);
        self.wake();
    }

    pub fn join(self) -> Option<Finished> {
        self.thread.join().ok()
    }
}

struct Worker {
    cpu: u16,
    reader: CpuReader,
    replacements: Receiver<CpuReader>,
    /// Of rings that have been replaced.
    counters: Counters,
    shared: Shared,
    serial: u64,
    dumps: u32,
    emptied_ns: u64,
    entries: Vec<Entry>,
    lost_between: Option<(u64, u64)>,
}

impl Worker {
    fn new(cpu: u16, reader: CpuReader, replacements: Receiver<CpuReader>, shared: Shared) -> Worker {
        let (counters, entries) = (Counters::default(), Vec::new());
        let emptied_ns = sys::monotonic_ns();
        Worker {
            cpu,
            reader,
            replacements,
            counters,
            shared,
            serial: 0,
            dumps: 0,
            emptied_ns,
            entries,
            lost_between: None,
        }
    }

    fn run(mut self) -> Finished {
        while !self.shared.stop.load(Ordering::Acquire) {
            // A call that comes while the thread is awake makes this return at once.
            thread::park_timeout(LONGEST_WAIT);
            self.replace();
            self.empty();
        }
        self.replace();
        self.finish(true);
        self.reader.count(&mut self.counters);
        Finished { counters: self.counters, cpu: self.cpu, entries: self.entries, lost_between: self.lost_between }
    }

    /// Goes on with new rings if there are some. What the old ones hold comes before.
    fn replace(&mut self) {
        while let Ok(mut new) = self.replacements.try_recv() {
            self.finish(false);
            new.follow(self.serial);
            let old = std::mem::replace(&mut self.reader, new);
            old.count(&mut self.counters);
        }
    }

    /// Moves what is in the ring to the writer. If that is so far behind that no buffer is free, waits for one: events
    /// that find the ring full in the meantime are lost, and counted.
    fn empty(&mut self) {
        while self.reader.fill() > 0 && !self.shared.stop.load(Ordering::Acquire) {
            let Some(mut records) = self.shared.pool.get() else {
                self.shared.status.late.fetch_add(1, Ordering::Relaxed);
                thread::park_timeout(BUFFER_WAIT);
                continue;
            };
            let begin_ns = sys::monotonic_ns();
            let taken = self.take(&mut records);
            let done = (taken.bytes as usize) < BLOCK;
            self.send(records, taken, begin_ns);
            if done {
                self.emptied_ns = begin_ns;
                break;
            }
        }
    }

    fn take(&mut self, records: &mut Vec<u8>) -> Taken {
        let Shared { kinds, times, .. } = &self.shared;
        let mut taken = self.reader.take(kinds, records, BLOCK);
        times.convert(kinds, records, &mut taken);
        taken
    }

    fn send(&mut self, records: Vec<u8>, taken: Taken, begin_ns: u64) {
        if taken.torn {
            let entry = Entry::new(Key::BlockCorrupt).cpu(self.cpu).between(self.emptied_ns, begin_ns);
            self.entries.push(entry.detail("a ring held something that is no record; what it held was skipped"));
        }
        if let Some(since) = taken.lost_since {
            self.note_loss(since, begin_ns);
        }
        if records.is_empty() {
            self.shared.pool.put(records);
            return;
        }
        let time_base = self.emptied_ns.saturating_sub(CLOCK_MARGIN_NS);
        let events = taken.serials - taken.lost;
        let block = Block {
            origin: Origin::Cpu(self.cpu),
            first_serial: self.serial,
            time_base,
            dump: Some((self.dumps, begin_ns)),
            events,
            records,
        };
        self.serial += taken.serials;
        self.dumps += 1;
        self.shared.status.count(&taken);
        // Fails only if the writer has given up, which it has reported itself.
        let _ = self.shared.to_writer.send(ToWriter::Block(block));
    }

    fn note_loss(&mut self, from: u64, to: u64) {
        let (first, last) = self.lost_between.unwrap_or((from, to));
        self.lost_between = Some((first.min(from), last.max(to)));
    }

    /// When no writer is left: everything that is in the rings, and what was lost last of all. If these are not the last
    /// rings, that loss is dated before all that the next ones hold.
    fn finish(&mut self, last: bool) {
        loop {
            let begin_ns = sys::monotonic_ns();
            let mut records = self.shared.pool.get_anyway();
            let taken = self.take(&mut records);
            let done = (taken.bytes as usize) < BLOCK;
            self.send(records, taken, begin_ns);
            if done {
                break;
            }
        }
        if self.reader.fill() > 0 {
            let entry = Entry::new(Key::BlockCorrupt).cpu(self.cpu).between(self.emptied_ns, sys::monotonic_ns());
            self.entries.push(entry.detail(&format!(
                "{} bytes of a ring stand behind a record that was never completed",
                self.reader.fill()
            )));
        }
        let (missed, since) = self.reader.missed();
        if missed > 0 {
            let (since, now) = (self.shared.times.ns(since), sys::monotonic_ns());
            let records = self.shared.builtin.lost(missed, since, if last { now } else { since });
            let taken = Taken { serials: missed, lost: missed, lost_since: Some(since), ..Taken::default() };
            self.emptied_ns = self.emptied_ns.min(since);
            self.send(records, taken, now);
        }
    }
}
