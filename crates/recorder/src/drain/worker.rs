// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a drain thread does: moves records from its rings to the writer thread, asks for a larger
//! ring where this one is too small, and notes losses and delays.

use super::late::{LONGEST_WAIT, Late};
use super::room::Remedy;
use super::{CLOCK_MARGIN_NS, Finished, Next, Shared};
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Origin;
use klogger_os as os;
use klogger_ring::block::{Block, Source, ToWriter};
use klogger_ring::{Counters, CpuReader, RingReader, Taken};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// Bytes moved at a time.
const BLOCK: usize = 1 << 20;
/// How long to wait for a free buffer before looking again.
const BUFFER_WAIT: Duration = Duration::from_millis(2);
/// Times of another clock than the kernel's, and of writers on another CPU, are wrong by so much.
const FOLLOWED_MARGIN_NS: u64 = 2_000_000;
/// How many delays of a ring are listed one by one.
const LATE_MAX: usize = 16;

pub struct Worker {
    cpu: u16,
    reader: CpuReader,
    replacements: Receiver<Next>,
    /// May still ask for a larger ring.
    may_grow: bool,
    /// Writers use a larger ring already, which is not read yet.
    retired: bool,
    /// Counters of rings that have been replaced.
    counters: Counters,
    shared: Shared,
    serial: u64,
    dumps: u32,
    emptied_ns: u64,
    /// When the ring was drained last.
    looked_ns: u64,
    late: Vec<Late>,
    entries: Vec<Entry>,
    lost_between: Option<(u64, u64)>,
}

impl Worker {
    pub fn new(
        cpu: u16,
        reader: CpuReader,
        replacements: Receiver<Next>,
        shared: Shared,
    ) -> Worker {
        let may_grow = shared.grow.is_some();
        let (counters, entries) = (Counters::default(), Vec::new());
        let emptied_ns = os::monotonic_ns();
        Worker {
            cpu,
            reader,
            replacements,
            may_grow,
            retired: false,
            counters,
            shared,
            serial: 0,
            dumps: 0,
            emptied_ns,
            looked_ns: emptied_ns,
            late: Vec::new(),
            entries,
            lost_between: None,
        }
    }

    pub fn run(mut self) -> Finished {
        while !self.shared.stop.load(Ordering::Acquire) {
            // A wake-up that came while the thread was awake makes this return at once.
            let wait = self.shared.outlet.followed.wait();
            thread::park_timeout(wait.unwrap_or(LONGEST_WAIT));
            self.rebind();
            self.replace();
            let begin_ns = os::monotonic_ns();
            self.empty();
            // What is being logged now has an earlier time.
            if wait.is_some() && !self.retired && !self.reader.is_busy() {
                self.tell(begin_ns);
            }
        }
        self.replace();
        self.finish(true);
        self.reader.count(&mut self.counters);
        self.entries.extend(self.late.iter().map(|late| late.entry(self.cpu)));
        Finished {
            counters: self.counters,
            cpu: self.cpu,
            entries: self.entries,
            lost_between: self.lost_between,
        }
    }

    /// Tells those who follow that the rings were empty at this time.
    fn tell(&self, at_ns: u64) {
        let until = at_ns.saturating_sub(FOLLOWED_MARGIN_NS);
        // Fails only if the writer thread has ended with an error, which it has reported.
        let _ = self.shared.outlet.to_writer.send(ToWriter::Until(Source::Cpu(self.cpu), until));
    }

    /// Binds the thread to its CPU again: when a CPU goes offline, the kernel lets the thread run
    /// on all others, and does not take that back. While it is offline, there is nothing to do.
    fn rebind(&self) {
        if !os::is_bound_to(u32::from(self.cpu)) {
            let _ = os::pin_to_cpu(u32::from(self.cpu));
        }
    }

    /// Switches to new rings if there are some, after the records of the old ones.
    fn replace(&mut self) {
        while let Ok(next) = self.replacements.try_recv() {
            match next {
                Next::Rings(new) => self.exchange(new),
                Next::Retire(done) => {
                    self.reader.retire();
                    self.retired = true;
                    // Fails only if the other thread has ended.
                    let _ = done.send(());
                }
                Next::Larger(larger) => self.grow(larger),
                Next::Turn(done) => drop(done.send(())),
            }
        }
    }

    fn exchange(&mut self, mut new: CpuReader) {
        self.finish(false);
        new.follow(self.serial);
        let old = std::mem::replace(&mut self.reader, new);
        old.count(&mut self.counters);
    }

    /// Switches to the larger ring. No writer is left in the old one, which has been retired.
    fn grow(&mut self, larger: RingReader) {
        self.retired = false;
        let (before, after) = (self.reader.size(), larger.size());
        self.finish(false);
        // The last losses have serial numbers too, which the ring does not know.
        self.reader.follow(self.serial);
        self.reader.go_on_with(larger).count(&mut self.counters);
        let now = os::monotonic_ns();
        let entry = Entry::new(Key::RingGrown).cpu(self.cpu).between(now, now);
        self.entries.push(entry.detail(&format!(
            "from {} KiB to {} KiB",
            before >> 10,
            after >> 10
        )));
    }

    /// Sees to it that this ring is not full before a delayed reader can drain it.
    fn make_room(&mut self, fill: u64) {
        if !self.may_grow {
            return;
        }
        let ns = os::monotonic_ns().saturating_sub(self.emptied_ns);
        match Remedy::of(self.reader.size(), self.reader.reserve(), fill, ns) {
            Remedy::Nothing => {}
            Remedy::WakeEarlier => self.reader.wake_at_half(),
            Remedy::Grow => self.ask_for_larger(),
        }
    }

    /// Once only.
    fn ask_for_larger(&mut self) {
        if !std::mem::take(&mut self.may_grow) {
            return;
        }
        // Fails only if the thread that makes rings has ended.
        if let Some(grow) = &self.shared.grow {
            let _ = grow.send(self.cpu);
        }
    }

    /// Moves records from the ring to the writer thread. If no buffer is free, because the disk is
    /// too slow, waits for one: events that find the ring full meanwhile are lost and counted.
    fn empty(&mut self) {
        self.make_room(self.reader.fill());
        let mut starved = false;
        while self.reader.fill() > 0 && !self.shared.stop.load(Ordering::Acquire) {
            let Some(mut records) = self.shared.outlet.pool.get() else {
                starved = true;
                self.ask_for_larger();
                thread::park_timeout(BUFFER_WAIT);
                continue;
            };
            self.note_late(starved);
            starved = false;
            let begin_ns = os::monotonic_ns();
            let taken = self.take(&mut records);
            self.looked_ns = os::monotonic_ns();
            let done = (taken.bytes as usize) < BLOCK;
            self.send(records, taken, begin_ns);
            if done {
                self.emptied_ns = begin_ns;
                break;
            }
        }
        self.looked_ns = os::monotonic_ns();
    }

    /// Called before the ring is drained: notes whether it waited too long.
    fn note_late(&mut self, starved: bool) {
        if self.reader.fill() == 0 {
            return;
        }
        let (missed, since) = self.reader.missed();
        let full_ns = (missed > 0).then(|| self.shared.times.ns(since));
        let Some(late) = Late::of(self.looked_ns, full_ns, os::monotonic_ns(), starved) else {
            return;
        };
        if self.late.len() < LATE_MAX {
            self.late.push(late);
        } else if let Some(last) = self.late.last_mut() {
            last.to = late.to;
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
            let entry =
                Entry::new(Key::BlockCorrupt).cpu(self.cpu).between(self.emptied_ns, begin_ns);
            self.entries
                .push(entry.detail("a ring held an invalid record; its contents were skipped"));
        }
        if let Some(since) = taken.lost_since {
            self.note_loss(since, begin_ns);
        }
        if records.is_empty() {
            self.shared.outlet.pool.put(records);
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
        self.shared.outlet.status.count(&taken);
        // Fails only if the writer thread has ended with an error, which it has reported.
        let _ = self.shared.outlet.to_writer.send(ToWriter::Block(block));
    }

    fn note_loss(&mut self, from: u64, to: u64) {
        let (first, last) = self.lost_between.unwrap_or((from, to));
        self.lost_between = Some((first.min(from), last.max(to)));
    }

    /// Called when no writer is left: takes everything in the rings, and the last losses. If these
    /// are not the last rings, those losses are dated before all records of the next ones.
    fn finish(&mut self, last: bool) {
        self.note_late(false);
        loop {
            let begin_ns = os::monotonic_ns();
            let mut records = self.shared.outlet.pool.get_anyway();
            let taken = self.take(&mut records);
            let done = (taken.bytes as usize) < BLOCK;
            self.send(records, taken, begin_ns);
            if done {
                break;
            }
        }
        if self.reader.fill() > 0 {
            let entry = Entry::new(Key::BlockCorrupt)
                .cpu(self.cpu)
                .between(self.emptied_ns, os::monotonic_ns());
            self.entries.push(entry.detail(&format!(
                "{} bytes of a ring follow a record that was never committed",
                self.reader.fill()
            )));
        }
        // Taken out, because the nested ring may be used on with other rings, and would report it
        // again.
        let (missed, since) = self.reader.take_missed();
        if missed > 0 {
            let (since, now) = (self.shared.times.ns(since), os::monotonic_ns());
            let records =
                self.shared.outlet.builtin.lost(missed, since, if last { now } else { since });
            let taken = Taken {
                serials: missed,
                lost: missed,
                lost_since: Some(since),
                ..Taken::default()
            };
            self.emptied_ns = self.emptied_ns.min(since);
            self.send(records, taken, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_engines::times::Times;
    use klogger_ring::RecordKinds;
    use klogger_ring::block::{Builtin, Outlet};
    use klogger_ring::{MISSED, NESTED, Rings};
    use klogger_toolchain::bundled;
    use std::sync::Arc;
    use std::sync::mpsc::{channel, sync_channel};

    /// The nested ring stays when the main one grows.
    #[test]
    fn losses_of_a_nested_ring_are_reported_once() {
        let (size, nested_at) = (NESTED, 2 * Rings::stride(NESTED));
        let memory = Arc::new(os::memory::zeros(3 * Rings::stride(size)).unwrap());
        let ring = |n: usize| RingReader::of_kernel(memory.clone(), n * Rings::stride(size), size);
        let layouts = bundled::builtin().unwrap().layouts(1);
        let (to_writer, blocks) = sync_channel(16);
        let shared = Shared {
            kinds: Arc::new(RecordKinds::new(&layouts)),
            times: Times::Ns,
            outlet: Outlet {
                to_writer,
                pool: Arc::default(),
                status: Arc::default(),
                builtin: Builtin(Arc::new(layouts)),
                followed: Arc::default(),
            },
            grow: None,
            stop: Arc::default(),
        };
        let mut worker =
            Worker::new(0, CpuReader::new(ring(0), Some(ring(2))), channel().1, shared);
        memory.word(MISSED).store(5, Ordering::Relaxed);
        memory.word(nested_at + MISSED).store(3, Ordering::Relaxed);
        worker.reader.retire();
        worker.grow(ring(1));
        memory.word(nested_at + MISSED).fetch_add(1, Ordering::Relaxed);
        worker.finish(true);
        assert_eq!(worker.serial, 5 + 3 + 1);
        drop(worker);
        assert_eq!(blocks.iter().count(), 2);
    }
}
