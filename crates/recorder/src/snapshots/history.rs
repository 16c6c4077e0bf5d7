// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The last seconds of a recording, in memory: the blocks as they came from the rings, and what
//! older ones said of threads and of events that are on.
//!
//! The writer thread adds copies of blocks: buffers of drain threads have room for the largest block,
//! and drain threads, which must be fast, get them back with their pages. A snapshot shares the
//! copies, so that the lock is held for a moment only.

use super::known::Known;
use klogger_log::origin::Origin;
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::record::{Header, full_time};
use klogger_log::writer::{EventBlock, Extent};
use klogger_os as os;
use klogger_ring::block::Source;
use std::collections::{BTreeMap, VecDeque};
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
        EventBlock {
            origin: *origin,
            time_base: *time_base,
            first_serial: *first_serial,
            records,
        }
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

pub struct History {
    inner: Mutex<Inner>,
}

struct Inner {
    blocks: VecDeque<Arc<Kept>>,
    /// Of `blocks`, and their limit.
    bytes: usize,
    bytes_max: usize,
    /// How old a block may become.
    age_ns: u64,
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
    pub fn new(preamble: &Preamble, age_ns: u64, bytes_max: usize) -> History {
        History {
            inner: Mutex::new(Inner {
                blocks: VecDeque::new(),
                bytes: 0,
                bytes_max,
                age_ns,
                needed_ns: u64::MAX,
                whole_ns: preamble.clock.start_ns,
                known: Known::new(&preamble.events),
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
        let new: Vec<_> =
            addition.decodings.iter().filter(|d| !known(&d.name)).cloned().collect();
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
        let oldest_ns = now_ns.saturating_sub(self.age_ns).min(self.needed_ns);
        let full = self.bytes > self.bytes_max && self.blocks.len() > 1;
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
