// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The two rings of a CPU or a thread, read as one: the main ring, and the nested ring, which takes
//! nested hits.
//!
//! Each ring is in the order of time, or nearly so (an interrupt can interrupt an interrupt).
//! Nested records are few. They are merged into those of the main ring by their time, so that the
//! caller sees one sequence.

mod order;
mod still;

pub use order::{last_in_order, last_time};
pub use still::Still;

use crate::{Counters, NESTED, Note, RecordKinds, RingReader, Taken};
use order::{later, put_in, records};

/// Bytes of nested records that may wait for older records of the main ring, at least; up to as
/// many as that ring has, because if the disk is slow, all its records may be older. Only a writer
/// with invalid times needs more.
const WAITING_MAX: usize = 4 * NESTED;

pub struct CpuReader {
    main: RingReader,
    /// The nested ring of a thread is opened when it is first used.
    nested: Option<RingReader>,
    /// Nested records that are later than all records taken from the main ring.
    waiting: Vec<u8>,
    /// Serial numbers taken by the records that are out of the rings.
    serials: u64,
}

impl CpuReader {
    /// The reader's side of both rings of a CPU or a thread. There must be only one at a time.
    pub fn new(main: RingReader, nested: Option<RingReader>) -> CpuReader {
        CpuReader { main, nested, waiting: Vec::new(), serials: 0 }
    }

    pub fn has_nested(&self) -> bool {
        self.nested.is_some()
    }

    pub fn add_nested(&mut self, nested: RingReader) {
        self.nested = Some(nested);
    }

    /// Whether the positions in both rings are plausible.
    pub fn is_plausible(&self) -> bool {
        self.main.is_plausible() && self.nested.as_ref().is_none_or(RingReader::is_plausible)
    }

    /// The same in overwrite mode.
    pub fn is_plausible_round(&self) -> bool {
        self.main.is_plausible_round()
            && self.nested.as_ref().is_none_or(RingReader::is_plausible_round)
    }

    /// Whether a hit was being logged; a part of it may be in the main ring.
    pub fn is_busy(&self) -> bool {
        self.main.is_busy()
    }

    /// Continues from where another reader of this CPU has ended.
    pub fn follow(&mut self, serials: u64) {
        self.serials = serials;
        self.main.leave(self.here());
    }

    /// Bytes that are not yet taken out. Programs may write anything as their positions.
    pub fn fill(&self) -> u64 {
        let nested = self.nested.as_ref().map_or(0, RingReader::fill);
        self.main.fill().saturating_add(nested).saturating_add(self.waiting.len() as u64)
    }

    /// Whether the main ring has overwritten records.
    pub fn has_overwritten(&self) -> bool {
        self.main.head() > self.main.size()
    }

    /// Events lost since the last LOST records, and the time of the first (ns).
    pub fn missed(&self) -> (u64, u64) {
        both(self.main.missed(), self.nested.as_ref().map_or((0, 0), RingReader::missed))
    }

    /// Takes these numbers out, so that no LOST record will count them again.
    pub fn take_missed(&self) -> (u64, u64) {
        both(self.main.take_missed(), self.nested.as_ref().map_or((0, 0), RingReader::take_missed))
    }

    /// Attempts to log by event id; counted only in overwrite mode.
    pub fn attempts(&self, id: u16) -> u64 {
        let nested = self.nested.as_ref().map_or(0, |n| n.attempts(id));
        self.main.attempts(id).saturating_add(nested)
    }

    /// Adds up the counters of both rings by event id.
    pub fn count(&self, counters: &mut Counters) {
        self.main.count(counters);
        self.nested.iter().for_each(|n| n.count(counters));
    }

    /// The writers' positions in both rings.
    pub fn heads(&self) -> (u64, u64) {
        (self.main.head(), self.nested.as_ref().map_or(0, RingReader::head))
    }

    /// Skips what is before these positions, which the writers had at an earlier time.
    pub fn skip_to(&mut self, (main, nested): (u64, u64)) {
        self.main.skip_to(main);
        self.nested.iter_mut().for_each(|n| n.skip_to(nested));
        self.main.leave(self.here());
    }

    /// Opens the rings for writers; in overwrite mode without a limit.
    pub fn open(&self, overwrite: bool) {
        self.nested.iter().for_each(|n| n.open(overwrite));
        self.main.open(overwrite);
    }

    /// Bytes of the main ring.
    pub fn size(&self) -> u64 {
        self.main.size()
    }

    /// Bytes of the main ring that are free when a writer wakes the reader.
    pub fn reserve(&self) -> u64 {
        self.main.reserve()
    }

    /// From the next time on that space is freed, writers wake the reader when half of the main
    /// ring is full.
    pub fn wake_at_half(&mut self) {
        self.main.wake_at_half();
    }

    /// Directs writers to a larger main ring, which is open already.
    pub fn retire(&mut self) {
        self.main.retire();
    }

    /// Continues with the larger main ring; returns the old one, which must be empty.
    pub fn go_on_with(&mut self, larger: RingReader) -> RingReader {
        let before = std::mem::replace(&mut self.main, larger);
        self.main.leave(self.here());
        before
    }

    /// Appends whole records to `out`, about `max` bytes, and frees their space in the rings.
    pub fn take(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>, max: usize) -> Taken {
        // The nested ring first, so that records nested in a main record taken now are at hand.
        let nested = self
            .nested
            .as_mut()
            .map(|n| n.copy(kinds, &mut self.waiting, NESTED))
            .unwrap_or_default();
        let start = out.len();
        let mut taken = self.main.copy(kinds, out, max);
        self.serials = self.serials.wrapping_add(nested.serials).wrapping_add(taken.serials);
        self.main.leave(self.here());
        self.nested.iter_mut().for_each(RingReader::release);
        self.main.release();
        taken.torn |= nested.torn;
        if !self.waiting.is_empty() {
            let waiting_max = WAITING_MAX.max(self.main.size() as usize);
            let all = (taken.bytes as usize) < max || self.waiting.len() > waiting_max;
            let last = if all { None } else { last_time(kinds, &out[start..]) };
            let part = self.waiting_until(kinds, last);
            put_in(kinds, out, start, &part, &mut taken);
        }
        taken
    }

    /// Frees in these rings what was taken out of `copy`, a copy of both.
    pub fn free_as_in(&mut self, copy: &CpuReader, kinds: &RecordKinds) {
        let Note { main, nested, .. } = copy.here();
        self.main.free_to(kinds, main);
        self.nested.iter_mut().for_each(|n| n.free_to(kinds, nested));
        self.take_missed();
    }

    /// In overwrite mode, with writers stopped: appends everything since the last call that is
    /// still whole.
    pub fn take_overwritten(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>) -> Taken {
        let taken = self.both_rings(kinds, out, |ring, out| ring.take_overwritten(kinds, out));
        self.main.leave(self.here());
        taken
    }

    /// Appends what `take` finds in both rings, as one sequence.
    fn both_rings(
        &mut self,
        kinds: &RecordKinds,
        out: &mut Vec<u8>,
        take: impl Fn(&mut RingReader, &mut Vec<u8>) -> Taken,
    ) -> Taken {
        let mut part = Vec::new();
        let nested = self.nested.as_mut().map(|n| take(n, &mut part)).unwrap_or_default();
        let start = out.len();
        let mut taken = take(&mut self.main, out);
        taken.torn |= nested.torn;
        put_in(kinds, out, start, &part, &mut taken);
        taken
    }

    fn here(&self) -> Note {
        let nested = self.nested.as_ref().map_or(0, RingReader::tail);
        Note { main: self.main.tail(), nested, serials: self.serials }
    }

    /// Continues where a reader that was killed had stopped; returns how many serial numbers were
    /// used by the records that it had taken out.
    pub fn resume(&mut self) -> u64 {
        let note = self.main.note();
        self.main.resume_at(note.main);
        self.nested.iter_mut().for_each(|n| n.resume_at(note.nested));
        self.serials = note.serials;
        note.serials
    }

    /// Whether a reader that was killed had taken out everything.
    pub fn has_ended(&self) -> bool {
        let note = self.main.note();
        self.main.head() == note.main
            && self.nested.as_ref().is_none_or(|n| n.head() == note.nested)
    }

    /// Appends all whole records, and leaves them in the rings.
    pub fn copy_all(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>) -> Taken {
        self.both_rings(kinds, out, |ring, out| ring.copy(kinds, out, usize::MAX))
    }

    /// Takes the waiting nested records up to a time, or all.
    fn waiting_until(&mut self, kinds: &RecordKinds, last: Option<u64>) -> Vec<u8> {
        let Some(last) = last else { return std::mem::take(&mut self.waiting) };
        let mut end = 0;
        for (bytes, time) in records(kinds, &self.waiting) {
            if later(time, last) {
                break;
            }
            end += bytes.len();
        }
        self.waiting.drain(..end).collect()
    }
}

/// (how many, since when) of both rings together.
fn both(main: (u64, u64), nested: (u64, u64)) -> (u64, u64) {
    match (main, nested) {
        (main, (0, _)) => main,
        ((0, _), nested) => nested,
        (main, nested) => (main.0.saturating_add(nested.0), main.1.min(nested.1)),
    }
}

#[cfg(test)]
mod running;
#[cfg(test)]
mod tests;
