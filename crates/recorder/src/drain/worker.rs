// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a drain thread does: moves records from its rings to the writer thread, asks for a larger
//! ring where this one is too small, and notes losses and delays.

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
/// The longest time that records wait in a ring.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Times of another clock than the kernel's, and of writers on another CPU, are wrong by so much.
const FOLLOWED_MARGIN_NS: u64 = 2_000_000;
/// How long interrupts or a hypervisor, for example, may delay a reader.
const HELD_UP_NS: u64 = 50_000_000;
/// A ring is drained late if it was full for this time, or waited this long after [`LONGEST_WAIT`].
const LATE_NS: u64 = 250_000_000;
/// How many delays of a ring are listed one by one.
const LATE_MAX: usize = 16;

/// A time during which a ring was not drained.
#[derive(Debug, PartialEq, Eq)]
struct Late {
    from: u64,
    to: u64,
    /// No buffer was free.
    starved: bool,
}

impl Late {
    /// The delay, if there was one. `looked_ns`: when the ring was drained last; `full_ns`: since
    /// when it has lost events.
    fn of(looked_ns: u64, full_ns: Option<u64>, now: u64, starved: bool) -> Option<Late> {
        let is_over = now.saturating_sub(looked_ns) > LONGEST_WAIT.as_nanos() as u64 + LATE_NS;
        // Losses before the last drain do not show a delay now.
        let full_ns = full_ns.filter(|full| *full > looked_ns);
        let is_late = is_over || full_ns.is_some_and(|full| now.saturating_sub(full) > LATE_NS);
        is_late.then_some(Late { from: looked_ns, to: now, starved })
    }

    fn entry(&self, cpu: u16) -> Entry {
        let ms = (self.to - self.from) / 1_000_000;
        let why = if self.starved {
            "because no buffer was free"
        } else {
            "because its thread did not run"
        };
        let entry = Entry::new(Key::DrainLate).cpu(cpu).between(self.from, self.to);
        entry.detail(&format!("not drained for {ms} ms, {why}"))
    }
}

/// How long `room` bytes last, if `fill` bytes came in the last `ns`.
fn holds_ns(room: u64, fill: u64, ns: u64) -> u64 {
    let holds = u128::from(room) * u128::from(ns) / u128::from(fill.max(1));
    holds.min(u128::from(u64::MAX)) as u64
}

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
            self.go_home();
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

    /// Binds the thread to its CPU again: when a CPU goes offline, the kernel moves the thread to
    /// another one for good. While the CPU is offline, there is nothing to do.
    fn go_home(&self) {
        if os::this_cpu() != Some(u32::from(self.cpu)) {
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

    /// Asks for a larger ring, if this one would be full before a delayed reader could drain it.
    /// `late`: the writer thread is behind as well.
    fn ask_for_more(&mut self, fill: u64, late: bool) {
        let ns = os::monotonic_ns().saturating_sub(self.emptied_ns);
        let enough = fill >= self.reader.size() / 8;
        if self.may_grow
            && (late || (enough && holds_ns(self.reader.reserve(), fill, ns) < HELD_UP_NS))
        {
            self.may_grow = false;
            // Fails only if the thread that makes rings has ended.
            if let Some(grow) = &self.shared.grow {
                let _ = grow.send(self.cpu);
            }
        }
    }

    /// Moves records from the ring to the writer thread. If no buffer is free, because the disk is
    /// too slow, waits for one: events that find the ring full meanwhile are lost and counted.
    fn empty(&mut self) {
        self.ask_for_more(self.reader.fill(), false);
        let mut starved = false;
        while self.reader.fill() > 0 && !self.shared.stop.load(Ordering::Acquire) {
            let Some(mut records) = self.shared.outlet.pool.get() else {
                starved = true;
                self.ask_for_more(0, true);
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

    #[test]
    fn a_ring_is_late_if_it_was_full_or_waited_for_too_long() {
        const MS: u64 = 1_000_000;
        let late = |full: Option<u64>, now: u64| {
            Late::of(1000 * MS, full.map(|ms| ms * MS), now * MS, false)
        };
        let from_to =
            |from: u64, to: u64| Some(Late { from: from * MS, to: to * MS, starved: false });
        assert_eq!(late(None, 2250), None);
        assert_eq!(late(None, 2251), from_to(1000, 2251));
        assert_eq!(late(Some(1100), 1300), None);
        assert_eq!(late(Some(1100), 1351), from_to(1000, 1351));
        assert_eq!(late(Some(900), 1351), None, "lost before the last drain");
    }

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

    #[test]
    fn how_long_the_room_in_a_ring_lasts() {
        assert_eq!(holds_ns(1 << 20, 1 << 19, 1_000_000), 2_000_000);
        assert_eq!(holds_ns(4 << 20, 4 << 20, HELD_UP_NS), HELD_UP_NS);
        assert_eq!(holds_ns(1 << 20, 0, 1_000), 1_000 << 20);
        assert_eq!(holds_ns(1 << 28, 1, u64::MAX), u64::MAX);
    }
}
