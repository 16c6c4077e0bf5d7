// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One thread for each CPU moves records from its ring to the writer.
//!
//! Nothing wakes it: a wake-up in the writers' path would cost more than several events. It looks at the fill level
//! often enough that even the fastest writer cannot fill the ring between two looks, and empties it when, at the rate
//! seen, the low-water mark would be passed before the look after next, or when records have waited for a second.

use crate::ring::{RecordKinds, RingReader, Taken};
use crate::sys;
use crate::writer::{Block, Pool, Status, ToWriter};
use klogger_log::ledger::{Entry, Key};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes moved at a time.
const BLOCK: usize = 1 << 20;
/// Faster than any CPU has been seen to write.
const BYTES_PER_SECOND_MAX: f64 = 400e6;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// Clocks are read before space is reserved, so a record can be a little older than the last look at the ring.
const CLOCK_MARGIN_NS: u64 = 60_000_000_000;

/// What all drain threads share.
#[derive(Clone)]
pub struct Shared {
    pub kinds: Arc<RecordKinds>,
    pub to_writer: SyncSender<ToWriter>,
    pub pool: Arc<Pool>,
    pub status: Arc<Status>,
    /// Percent of the ring that should stay free.
    pub lowwater: u32,
    /// Layout-independent LOST record: count, since, time -> bytes.
    pub lost_record: Arc<dyn Fn(u64, u64, u64) -> Vec<u8> + Send + Sync>,
    pub stop: Arc<AtomicBool>,
}

/// A running drain thread.
pub struct Drain {
    thread: JoinHandle<Finished>,
    pub tid: u32,
    pub notes: Vec<String>,
}

/// What a drain thread leaves when it ends.
pub struct Finished {
    pub reader: RingReader,
    pub cpu: u16,
    pub entries: Vec<Entry>,
    /// (first loss, last loss), if any.
    pub lost_between: Option<(u64, u64)>,
}

impl Drain {
    pub fn start(cpu: u16, reader: RingReader, shared: Shared) -> Drain {
        let (hello, hear): (Sender<(u32, Vec<String>)>, Receiver<_>) = channel();
        let thread = thread::Builder::new().name(format!("klogger/{cpu}")).spawn(move || {
            let mut notes = Vec::new();
            if let Err(e) = sys::pin_to_cpu(u32::from(cpu)) {
                notes.push(format!("the drain thread of CPU {cpu} is not bound to it: {e}"));
            }
            if let Err(e) = sys::become_fifo() {
                notes.push(format!("the drain thread of CPU {cpu} has no real-time priority: {e}"));
            }
            // The other end is waiting for this.
            let _ = hello.send((sys::gettid(), notes));
            Worker::new(cpu, reader, shared).run()
        });
        let thread = thread.expect("a thread can be made");
        let (tid, notes) = hear.recv().unwrap_or_default();
        Drain { thread, tid, notes }
    }

    /// Wakes the thread if it sleeps, so that it sees `stop`.
    pub fn wake(&self) {
        self.thread.thread().unpark();
    }

    pub fn join(self) -> Option<Finished> {
        self.thread.join().ok()
    }
}

struct Worker {
    cpu: u16,
    reader: RingReader,
    shared: Shared,
    serial: u64,
    dumps: u32,
    /// When the ring was last seen, and how full it was then.
    looked_ns: u64,
    looked_fill: u64,
    emptied_ns: u64,
    entries: Vec<Entry>,
    lost_between: Option<(u64, u64)>,
}

impl Worker {
    fn new(cpu: u16, reader: RingReader, shared: Shared) -> Worker {
        let now = sys::monotonic_ns();
        Worker {
            cpu,
            reader,
            shared,
            serial: 0,
            dumps: 0,
            looked_ns: now,
            looked_fill: 0,
            emptied_ns: now,
            entries: Vec::new(),
            lost_between: None,
        }
    }

    fn run(mut self) -> Finished {
        let pause = self.pause();
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.is_due(pause) {
                self.empty();
            }
            thread::park_timeout(pause);
        }
        self.finish();
        Finished { reader: self.reader, cpu: self.cpu, entries: self.entries, lost_between: self.lost_between }
    }

    /// Time between two looks: in it, a writer at full speed fills at most a quarter of the ring.
    fn pause(&self) -> Duration {
        let seconds = self.reader.size() as f64 / 4.0 / BYTES_PER_SECOND_MAX;
        Duration::from_secs_f64(seconds.clamp(0.000_2, 0.01))
    }

    fn is_due(&mut self, pause: Duration) -> bool {
        let (now, fill) = (sys::monotonic_ns(), self.reader.fill());
        let elapsed = (now - self.looked_ns).max(1) as f64;
        let rate = fill.saturating_sub(self.looked_fill) as f64 / elapsed;
        (self.looked_ns, self.looked_fill) = (now, fill);
        let mark = self.reader.size() as f64 * f64::from(100 - self.shared.lowwater) / 100.0;
        // The thread may be late by as much as it slept.
        let expected = fill as f64 + rate * 2.0 * pause.as_nanos() as f64;
        fill > 0 && (expected >= mark || now - self.emptied_ns >= LONGEST_WAIT_NS)
    }

    /// Moves what is in the ring to the writer, unless the writer is so far behind that no buffer is free.
    fn empty(&mut self) {
        let mut late = true;
        while let Some(mut records) = self.shared.pool.get() {
            let begin_ns = sys::monotonic_ns();
            let taken = self.reader.take(&self.shared.kinds, &mut records, BLOCK);
            late = false;
            let done = (taken.bytes as usize) < BLOCK;
            self.send(records, taken, begin_ns);
            if done {
                self.emptied_ns = begin_ns;
                break;
            }
        }
        self.looked_fill = self.reader.fill();
        if late {
            self.shared.status.late.fetch_add(1, Ordering::Relaxed);
        }
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
        let block =
            Block { cpu: self.cpu, first_serial: self.serial, time_base, dump: Some((self.dumps, begin_ns)), records };
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

    /// After the programs have been detached: everything that is left, and what was lost last of all.
    fn finish(&mut self) {
        loop {
            let begin_ns = sys::monotonic_ns();
            let mut records = self.shared.pool.get_anyway();
            let taken = self.reader.take(&self.shared.kinds, &mut records, BLOCK);
            let done = (taken.bytes as usize) < BLOCK;
            self.send(records, taken, begin_ns);
            if done {
                break;
            }
        }
        let (missed, since) = self.reader.missed();
        if missed > 0 {
            let now = sys::monotonic_ns();
            let records = (self.shared.lost_record)(missed, since, now);
            let taken = Taken { serials: missed, lost: missed, lost_since: Some(since), ..Taken::default() };
            self.emptied_ns = self.emptied_ns.min(since);
            self.send(records, taken, now);
        }
    }
}
