// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The reader's side of a ring. `runtime/include/klogger/ring.h` describes the protocol.

mod note;
mod rings;
mod round;
mod taken;

pub use note::Note;
pub use rings::Rings;
pub use taken::{Counters, RecordKinds, Taken};

use crate::layout::ring::*;
use klogger_log::record::Header;
use klogger_os::Mapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the low-water mark of a ring is: how many bytes a writer may fill before it wakes the
/// reader.
#[derive(Clone, Copy)]
enum Mark {
    At(u64),
    /// The ring's own field, because the kernel engine allows changes while it records. In
    /// overwrite mode its writers always take the slow path.
    InRing,
}

/// The reader's side of one ring.
pub struct RingReader {
    mapping: Arc<Mapping>,
    /// Offset of the ring in the mapping.
    base: usize,
    size: usize,
    mark: Mark,
    /// A larger ring has replaced it, and no writer may reserve space in it any more.
    retired: bool,
    /// Bytes taken out so far.
    tail: u64,
    /// Offsets and lengths of what was copied and not yet released.
    copied: Vec<(usize, usize)>,
    /// The writers are part of the kernel: invalid contents are an accident, and their next records
    /// are still read. In a program's ring they are not, and zeroing would allocate memory that the
    /// program has never used.
    trusted: bool,
}

impl RingReader {
    /// A new ring at `base` of a mapping; its size is a power of two.
    fn new(mapping: Arc<Mapping>, base: usize, size: usize, mark: Mark) -> RingReader {
        assert!(size.is_power_of_two() && mapping.length() >= base + Rings::stride(size));
        RingReader {
            mapping,
            base,
            size,
            mark,
            retired: false,
            tail: 0,
            copied: Vec::new(),
            trusted: true,
        }
    }

    /// A ring of the kernel engine.
    pub fn of_kernel(mapping: Arc<Mapping>, base: usize, size: usize) -> RingReader {
        RingReader::new(mapping, base, size, Mark::InRing)
    }

    /// A ring of a program, of which `tail` bytes have been taken out so far.
    pub fn of_program(mapping: Arc<Mapping>, base: usize, size: usize, tail: u64) -> RingReader {
        let mark = Mark::At(size as u64 / 2);
        RingReader { trusted: false, tail, ..RingReader::new(mapping, base, size, mark) }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.mapping.word(self.base + offset)
    }

    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Bytes that writers have reserved so far.
    pub fn head(&self) -> u64 {
        self.word(HEAD).load(Ordering::Acquire)
    }

    /// Bytes that are not yet taken out.
    pub fn fill(&self) -> u64 {
        self.head().saturating_sub(self.tail)
    }

    /// Bytes taken out so far.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether the writers' position is plausible: not before ours, and at most a ring's size after
    /// it.
    pub fn is_plausible(&self) -> bool {
        let fill = self.head().checked_sub(self.tail);
        fill.is_some_and(|fill| fill <= self.size() && self.tail < 1 << 62)
            && self.tail.is_multiple_of(8)
    }

    /// The same in overwrite mode.
    pub fn is_plausible_round(&self) -> bool {
        self.head() < 1 << 62
            && self.head().is_multiple_of(8)
            && self.tail <= self.head()
            && self.tail.is_multiple_of(8)
    }

    /// Whether a hit was being logged.
    pub fn is_busy(&self) -> bool {
        self.word(NEST).load(Ordering::Relaxed) != 0
    }

    /// Events lost since the last LOST record, and the full time of the first, ns.
    pub fn missed(&self) -> (u64, u64) {
        (self.word(MISSED).load(Ordering::Acquire), self.word(MISSED_SINCE).load(Ordering::Relaxed))
    }

    /// Takes these numbers out, so that no LOST record will count them again. Writers also use an
    /// atomic exchange.
    pub fn take_missed(&self) -> (u64, u64) {
        let since = self.missed().1;
        (self.word(MISSED).swap(0, Ordering::AcqRel), since)
    }

    /// Lost events of an id.
    pub fn lost(&self, id: u16) -> u64 {
        self.word(LOST + 8 * usize::from(id)).load(Ordering::Relaxed)
    }

    /// Attempts to log an event; counted only in overwrite mode.
    pub fn attempts(&self, id: u16) -> u64 {
        self.word(ATTEMPTS + 8 * usize::from(id)).load(Ordering::Relaxed)
    }

    /// Adds up the counters of the ring by event id.
    pub fn count(&self, counters: &mut Counters) {
        for (id, (lost, attempts)) in
            counters.lost.iter_mut().zip(&mut counters.attempts).enumerate()
        {
            *lost = lost.saturating_add(self.lost(id as u16));
            *attempts = attempts.saturating_add(self.attempts(id as u16));
        }
    }

    /// Opens the ring for writers: for its size or, in overwrite mode, without a limit.
    pub fn open(&self, overwrite: bool) {
        let (hard, limit) = match (overwrite, self.mark) {
            (true, Mark::At(_)) => (u64::MAX, u64::MAX),
            (true, Mark::InRing) => (u64::MAX, 0),
            (false, Mark::At(mark)) => (self.size(), mark),
            (false, Mark::InRing) => {
                (self.size(), self.word(MARK).load(Ordering::Relaxed).min(self.size()))
            }
        };
        let from = if overwrite { 0 } else { self.tail };
        let (hard, limit) = (from.wrapping_add(hard), from.wrapping_add(limit));
        // Pairs with the writer's loads: a writer that sees these finds zeros.
        self.word(HARD).store(hard, Ordering::Release);
        self.word(LIMIT).store(limit, Ordering::Release);
    }

    /// Appends whole records to `out` until `max` bytes or the first record that is not committed.
    /// They stay in the ring until [`RingReader::release`].
    pub fn copy(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>, max: usize) -> Taken {
        let head = self.head();
        let mut taken = Taken::default();
        while self.tail < head && (taken.bytes as usize) < max && !taken.torn {
            let run = self.run(kinds, head, max - taken.bytes as usize, &mut taken);
            if run == 0 {
                break;
            }
            let start = self.offset();
            out.extend_from_slice(self.bytes(start, run));
            self.copied.push((start, run));
            self.tail += run as u64;
            taken.bytes += run as u64;
        }
        if taken.torn {
            if self.trusted {
                self.copied.push((0, self.size + SLACK));
            }
            self.tail = head;
        }
        taken
    }

    /// Zeroes what was copied, and frees its space.
    pub fn release(&mut self) {
        self.copied.iter().for_each(|(start, length)| self.zero(*start, *length));
        self.copied.clear();
        if !self.retired {
            self.open(false);
        }
    }

    /// Frees the space of the records before `position`, at which one begins. They are saved
    /// already, from a copy of this ring.
    pub fn free_to(&mut self, kinds: &RecordKinds, position: u64) {
        let mut saved = Vec::new();
        // A program may have stored any position.
        let is_near = position.saturating_sub(self.tail) <= self.size();
        while is_near && self.is_plausible() && self.tail < position {
            saved.clear();
            if self.copy(kinds, &mut saved, (position - self.tail) as usize).bytes == 0 {
                break;
            }
        }
        self.release();
    }

    /// Whether the ring was ever opened for writers.
    pub fn is_open(&self) -> bool {
        self.word(HARD).load(Ordering::Acquire) > 0
    }

    /// Bytes that are free when a writer wakes the reader.
    pub fn reserve(&self) -> u64 {
        let mark = match self.mark {
            Mark::At(mark) => mark,
            Mark::InRing => self.word(MARK).load(Ordering::Relaxed),
        };
        self.size().saturating_sub(mark)
    }

    /// Moves the low-water mark to half of the ring, if it is beyond, and the reader's to choose.
    pub fn wake_at_half(&mut self) {
        if let Mark::At(mark) = &mut self.mark {
            *mark = (*mark).min(self.size as u64 / 2);
        }
    }

    /// Directs writers to the larger ring of this CPU, which is open. Writers that are active may
    /// still use this ring: their records are taken out when none of them is left.
    pub fn retire(&mut self) {
        self.retired = true;
        self.word(MASK).store(1, Ordering::Relaxed);
        self.word(LIMIT).store(0, Ordering::Release);
    }

    /// Skips what is before this position, at which a record begins.
    pub fn skip_to(&mut self, position: u64) {
        self.tail = self.tail.max(position);
    }

    /// Continues where the last reader stopped.
    pub fn resume_at(&mut self, tail: u64) {
        self.tail = tail;
    }

    fn offset(&self) -> usize {
        self.tail as usize & (self.size - 1)
    }

    /// Bytes of whole records that are contiguous from the tail on: up to the end of the ring, and
    /// beyond it by the one record that begins before the end.
    fn run(&self, kinds: &RecordKinds, head: u64, max: usize, taken: &mut Taken) -> usize {
        let start = self.offset();
        // A program may have stored any position.
        let written = start.saturating_add((head - self.tail) as usize).min(self.size + SLACK);
        let end = written.min(self.size).min(start.saturating_add(max)).saturating_sub(start);
        let rest = self.bytes(start, written.saturating_sub(start));
        // In one piece, so that what is done for each record is short.
        let words = self.mapping.words(self.base + CONTROL + start, rest.len().div_ceil(8));
        let (mut at, mut plain) = (0, 0);
        while at < end {
            // Pairs with klogger_publish(): a header word other than zero precedes a complete
            // record.
            let header = Header(words[at / 8].load(Ordering::Acquire));
            if header.0 == 0 {
                break;
            }
            let same = kinds.sizes.same(header.id()).filter(|size| *size <= rest.len() - at);
            let Some(size) = same.or_else(|| kinds.sizes.size(&rest[at..])) else {
                taken.torn = true;
                break;
            };
            if header.id() == kinds.lost_id {
                taken.count(kinds, &rest[at..at + size]);
            } else {
                plain += 1;
            }
            at += size;
        }
        taken.records += plain;
        taken.serials = taken.serials.wrapping_add(plain);
        at
    }

    fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        let at = self.mapping.at(self.base + CONTROL + offset, length);
        // SAFETY: within the mapping. Writers are done with records whose header is set, and do not
        // write there again before `hard` is raised; sizes are read from such records only. If a
        // program writes nevertheless, the copy has invalid contents; its records are checked
        // before use.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    fn zero(&self, offset: usize, length: usize) {
        let at = self.mapping.at(self.base + CONTROL + offset, length);
        // SAFETY: within the mapping, and taken out, so that no writer touches it before `hard` is
        // raised.
        unsafe { std::ptr::write_bytes(at, 0, length) };
    }
}

#[cfg(test)]
pub mod model;
#[cfg(test)]
mod preempted;
