// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The last seconds of a recording, in memory: the blocks as they came from the rings, and what
//! older ones said of threads and of events that are on.
//!
//! The writer thread adds copies of blocks: buffers of drain threads have room for the largest
//! block, and drain threads, which must be fast, get them back with their pages. A snapshot shares
//! the copies, so that the lock is held for a moment only.

use super::Waiting;
use super::known::Known;
use klogger_log::origin::Origin;
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::record::{Header, full_time};
use klogger_log::writer::{EventBlock, Extent};
use klogger_os as os;
use klogger_ring::block::Source;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the list itself takes for a block, roughly.
const ENTRY_BYTES: usize = 128;

/// A block of one stream.
pub struct Kept {
    pub origin: Origin,
    pub time_base: u64,
    pub first_serial: u64,
    pub records: Box<[u8]>,
    pub extent: Extent,
}

impl Kept {
    pub fn block(&self) -> EventBlock<'_> {
        let Kept { origin, time_base, first_serial, records, .. } = self;
        EventBlock { origin: *origin, time_base: *time_base, first_serial: *first_serial, records }
    }

    fn bytes(&self) -> usize {
        self.records.len() + ENTRY_BYTES
    }
}

/// What a snapshot needs of the history.
pub struct Part {
    pub blocks: Vec<Arc<Kept>>,
    /// All events from this time on are in the blocks.
    pub whole_ns: u64,
    /// What was known before the first of the blocks.
    pub known: Known,
    /// With all schemata that are known by now.
    pub preamble: Arc<Preamble>,
}

pub struct Limits {
    pub bytes: usize,
    /// How old an event may become.
    pub age_ns: u64,
    /// What a hit needs before it.
    pub before_ns: u64,
}

pub struct History {
    inner: Mutex<Inner>,
}

struct Inner {
    blocks: VecDeque<Arc<Kept>>,
    bytes: usize,
    limits: Limits,
    waiting: Arc<Waiting>,
    /// Blocks with events after this time are kept as long as there is room.
    needed_ns: u64,
    whole_ns: u64,
    known: Known,
    preamble: Arc<Preamble>,
    /// At which serial number each stream goes on.
    next: BTreeMap<Origin, u64>,
    /// Before this time all events of programs have been added.
    programs_ns: Option<u64>,
}

impl History {
    pub fn new(preamble: &Preamble, limits: Limits, waiting: Arc<Waiting>) -> History {
        History {
            inner: Mutex::new(Inner {
                blocks: VecDeque::new(),
                bytes: 0,
                limits,
                waiting,
                needed_ns: u64::MAX,
                whole_ns: preamble.clock.start_ns,
                known: Known::new(preamble),
                preamble: Arc::new(preamble.clone()),
                next: BTreeMap::new(),
                programs_ns: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block whose stream goes on at `next_serial`.
    pub fn keep(&self, block: &EventBlock, extent: Extent, next_serial: u64) {
        let EventBlock { origin, time_base, first_serial, records } = *block;
        let records: Box<[u8]> = records.into();
        let now_ns = os::monotonic_ns();
        let mut inner = self.lock();
        inner.note_gap(block, next_serial);
        let kept = Kept { origin, time_base, first_serial, records, extent };
        inner.bytes += kept.bytes();
        inner.blocks.push_back(Arc::new(kept));
        let mut old = Vec::new();
        while let Some(block) = inner.pop(now_ns) {
            old.push(block);
        }
        drop(inner);
        // Not under the lock: this returns memory to the system.
        drop(old);
    }

    /// Events that the preamble does not have.
    pub fn add(&self, addition: &Addition) {
        let mut inner = self.lock();
        let preamble = Arc::make_mut(&mut inner.preamble);
        preamble.schemas.extend(addition.schemas.iter().cloned());
        preamble.events.extend(addition.events.iter().cloned());
        let known = |name: &str| preamble.decodings.iter().any(|d| d.name == name);
        let new: Vec<_> = addition.decodings.iter().filter(|d| !known(&d.name)).cloned().collect();
        preamble.decodings.extend(new);
        inner.known.learn(&addition.events);
    }

    /// This source has handed over its events before this time.
    pub fn until(&self, source: Source, time_ns: u64) {
        if source == Source::Programs {
            self.lock().programs_ns = Some(time_ns);
        }
    }

    /// Whether all events of programs before this time are there; true if no programs are recorded.
    pub fn has_programs_until(&self, time_ns: u64) -> bool {
        self.lock().programs_ns.is_none_or(|until| until > time_ns)
    }

    /// A snapshot will need what came after this time; `u64::MAX`: none will.
    pub fn need(&self, from_ns: u64) {
        self.lock().needed_ns = from_ns;
    }

    /// All events from this time on are there.
    pub fn whole_ns(&self) -> u64 {
        self.lock().whole_ns
    }

    /// What there is now.
    pub fn part(&self) -> Part {
        let inner = self.lock();
        Part {
            blocks: inner.blocks.iter().cloned().collect(),
            whole_ns: inner.whole_ns,
            known: inner.known.clone(),
            preamble: inner.preamble.clone(),
        }
    }
}

impl Inner {
    /// Removes the oldest block, if it is too old, or if there are too many.
    fn pop(&mut self, now_ns: u64) -> Option<Arc<Kept>> {
        let oldest = self.blocks.front()?;
        let Limits { bytes, age_ns, before_ns } = self.limits;
        let first_hit_ns = self.waiting.first_ns.load(Ordering::Relaxed);
        let needed_ns = self.needed_ns.min(first_hit_ns.saturating_sub(before_ns));
        let oldest_ns = now_ns.saturating_sub(age_ns).min(needed_ns);
        let full = self.bytes > bytes && self.blocks.len() > 1;
        if !full && oldest.extent.last_ns >= oldest_ns {
            return None;
        }
        self.bytes -= oldest.bytes();
        self.whole_ns = self.whole_ns.max(oldest.extent.last_ns + 1);
        self.known.see(&oldest.block(), None);
        self.blocks.pop_front()
    }

    /// Serial numbers that are missing were overwritten, or lost without a record.
    fn note_gap(&mut self, block: &EventBlock, next_serial: u64) {
        let expected = self.next.insert(block.origin, next_serial).unwrap_or(0);
        if block.first_serial > expected
            && let Some(header) = Header::read(block.records)
        {
            self.whole_ns = self.whole_ns.max(full_time(block.time_base, header.time48()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_toolchain::bundled;

    const SECOND: u64 = 1_000_000_000;

    fn history(age_ns: u64, bytes: usize) -> History {
        let events = bundled::builtin().unwrap().layouts(1);
        let limits = Limits { bytes, age_ns, before_ns: 2 * SECOND };
        History::new(&Preamble { events, ..Preamble::default() }, limits, Arc::default())
    }

    /// A block of a CPU with so many bytes, whose events were at this time.
    fn keep(history: &History, serial: u64, at_ns: u64, bytes: usize) {
        let (origin, time_base) = (Origin::Cpu(0), at_ns);
        let block =
            EventBlock { origin, time_base, first_serial: serial, records: &vec![0; bytes] };
        let extent = Extent { first_ns: at_ns, last_ns: at_ns, events: 1, lost: 0 };
        history.keep(&block, extent, serial + 1);
    }

    #[test]
    fn memory_is_bounded_and_what_is_gone_is_known() {
        let (history, now) = (history(u64::MAX, 10 * (1000 + ENTRY_BYTES)), os::monotonic_ns());
        for n in 0..100 {
            keep(&history, n, now + n, 1000);
            let part = history.part();
            let bytes: usize = part.blocks.iter().map(|b| b.bytes()).sum();
            assert!(bytes <= 10 * (1000 + ENTRY_BYTES));
            // Each block has one moment.
            assert_eq!(part.blocks.len() as u64, (n + 1).min(10));
            assert_eq!(part.whole_ns, if n < 10 { 0 } else { now + n - 9 });
        }
        // One block that is larger than all of the memory is kept alone.
        keep(&history, 100, now + 100, 1 << 20);
        assert_eq!(history.part().blocks.len(), 1);
    }

    #[test]
    fn old_blocks_go_unless_they_are_needed() {
        let (history, now) = (history(5 * SECOND, 1 << 30), os::monotonic_ns());
        let of = |second: u64| now - (20 - second) * SECOND;
        history.need(of(8));
        (0..20).for_each(|n| keep(&history, n, of(n), 100));
        assert_eq!(history.part().blocks[0].first_serial, 8);
        // A hit that waits needs two seconds before it.
        history.need(u64::MAX);
        history.lock().waiting.first_ns.store(of(12), Ordering::Relaxed);
        keep(&history, 20, now, 100);
        assert_eq!(history.part().blocks[0].first_serial, 10);
        history.lock().waiting.first_ns.store(u64::MAX, Ordering::Relaxed);
        keep(&history, 21, now, 100);
        let part = history.part();
        assert!(part.blocks[0].first_serial >= 15, "{}", part.blocks[0].first_serial);
        assert_eq!(part.whole_ns, part.blocks[0].extent.first_ns - SECOND + 1);
    }

    #[test]
    fn what_was_overwritten_is_not_whole() {
        let (history, builtin) = (history(u64::MAX, 1 << 30), bundled::builtin().unwrap());
        let builtin = klogger_ring::block::Builtin(Arc::new(builtin.layouts(1)));
        let block = |serial: u64, at: u64| {
            let records = builtin.lost(1, at, at);
            let (origin, time_base) = (Origin::Cpu(3), 0);
            let block = EventBlock { origin, time_base, first_serial: serial, records: &records };
            let extent = Extent { first_ns: at, last_ns: at, events: 0, lost: 1 };
            history.keep(&block, extent, serial + 1);
            history.whole_ns()
        };
        assert_eq!([block(0, 10), block(1, 20)], [0, 0]);
        assert_eq!([block(7, 30), block(8, 40)], [30, 30]);
    }

    #[test]
    fn programs_are_waited_for_only_if_there_are_any() {
        let history = history(u64::MAX, 1 << 20);
        assert!(history.has_programs_until(7));
        history.until(Source::Programs, 7);
        assert!(history.has_programs_until(6) && !history.has_programs_until(7));
    }
}
