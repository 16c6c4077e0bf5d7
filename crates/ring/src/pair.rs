// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The two rings of a CPU, or of a thread, as one: the main ring, and the nested one for probe hits
//! that interrupt others.
//!
//! Either is in the order of time, or nearly so (an interrupt can interrupt an interrupt). Nested
//! records are few; they are put in among the main ring's by their time, so that whoever reads on
//! sees one sequence.

use crate::{Counters, NESTED, Note, RecordKinds, RingReader, Taken};
use klogger_log::record::Header;
use std::io;
use std::sync::atomic::{Ordering, fence};

/// Bytes of nested records that may wait for the main ring to catch up, or as many as that ring
/// has: if the disk is slow, all that it holds may be older. Only a writer that lies about times
/// needs more.
const WAITING_MAX: usize = 4 * NESTED;

/// So often is looked for a moment at which no hit is at work.
const LOOKS: usize = 1 << 16;

/// Both rings of a CPU while no hit is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Still {
    /// Where their writers are.
    main: u64,
    nested: u64,
    /// To log, ever.
    pub attempts: u64,
    /// Lost, since the last LOST record; since when (as events have it).
    pub missed: u64,
    pub since: u64,
}

pub struct CpuReader {
    main: RingReader,
    /// A thread's comes to be when it is needed.
    nested: Option<RingReader>,
    /// Nested records that are later than all that has been taken from the main ring.
    waiting: Vec<u8>,
    /// Numbers that the records took which are out of the rings.
    serials: u64,
}

impl CpuReader {
    /// The reader's end of both rings of a CPU, or of a thread. There must be only one at a time.
    pub fn new(main: RingReader, nested: Option<RingReader>) -> CpuReader {
        CpuReader { main, nested, waiting: Vec::new(), serials: 0 }
    }

    pub fn has_nested(&self) -> bool {
        self.nested.is_some()
    }

    pub fn add_nested(&mut self, nested: RingReader) {
        self.nested = Some(nested);
    }

    /// Whether both rings hold positions that there can be.
    pub fn is_plausible(&self) -> bool {
        self.main.is_plausible() && self.nested.as_ref().is_none_or(RingReader::is_plausible)
    }

    /// The same, for rings that run round and round.
    pub fn is_plausible_round(&self) -> bool {
        self.main.is_plausible_round()
            && self.nested.as_ref().is_none_or(RingReader::is_plausible_round)
    }

    /// Whether a hit was being logged, of which a part may be in the main ring.
    pub fn is_busy(&self) -> bool {
        self.main.is_busy()
    }

    /// Goes on from where another reader of this CPU has ended.
    pub fn follow(&mut self, serials: u64) {
        self.serials = serials;
        self.main.leave(self.here());
    }

    /// Bytes that wait to be taken out.
    pub fn fill(&self) -> u64 {
        self.main.fill()
            + self.nested.as_ref().map_or(0, RingReader::fill)
            + self.waiting.len() as u64
    }

    /// Whether the main ring has been round more than once.
    pub fn has_overwritten(&self) -> bool {
        self.main.head() > self.main.size()
    }

    /// Events lost since the last LOST records, and the time of the first (ns).
    pub fn missed(&self) -> (u64, u64) {
        both(self.main.missed(), self.nested.as_ref().map_or((0, 0), RingReader::missed))
    }

    /// The same, and from now on they are told.
    pub fn take_missed(&self) -> (u64, u64) {
        both(self.main.take_missed(), self.nested.as_ref().map_or((0, 0), RingReader::take_missed))
    }

    /// Attempts by event id; counted only in overwrite mode.
    pub fn attempts(&self, id: u16) -> u64 {
        self.main.attempts(id) + self.nested.as_ref().map_or(0, |n| n.attempts(id))
    }

    /// Adds up what the rings have counted by event id.
    pub fn count(&self, counters: &mut Counters) {
        self.main.count(counters);
        self.nested.iter().for_each(|n| n.count(counters));
    }

    /// Where the writers of both rings are.
    pub fn heads(&self) -> (u64, u64) {
        (self.main.head(), self.nested.as_ref().map_or(0, RingReader::head))
    }

    /// What stands before these positions, which the writers once had, is not to be read any more.
    pub fn skip_to(&mut self, (main, nested): (u64, u64)) {
        self.main.skip_to(main);
        self.nested.iter_mut().for_each(|n| n.skip_to(nested));
        self.main.leave(self.here());
    }

    /// Lets writers in, in overwrite mode without end.
    pub fn open(&self, overwrite: bool) {
        self.nested.iter().for_each(|n| n.open(overwrite));
        self.main.open(overwrite);
    }

    /// Bytes of the main ring.
    pub fn size(&self) -> u64 {
        self.main.size()
    }

    /// Bytes of the main ring that are free when a writer calls its reader.
    pub fn reserve(&self) -> u64 {
        self.main.reserve()
    }

    /// Sends writers to a larger main ring, which is open already.
    pub fn retire(&mut self) {
        self.main.retire();
    }

    /// Goes on with the larger main ring; returns the one before, which must be empty.
    pub fn go_on_with(&mut self, larger: RingReader) -> RingReader {
        let before = std::mem::replace(&mut self.main, larger);
        self.main.leave(self.here());
        before
    }

    /// Appends whole records to `out`, about `max` bytes, and gives their space back.
    pub fn take(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>, max: usize) -> Taken {
        // First, so that what is nested in a main record which is taken now is at hand.
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

    /// For overwrite mode, with writers stopped: appends everything that is still whole since the
    /// last time.
    pub fn take_overwritten(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>) -> Taken {
        let taken = self.both_rings(kinds, out, |ring, out| ring.take_overwritten(kinds, out));
        self.main.leave(self.here());
        taken
    }

    /// The same while writers go on. Returns also how many attempts to log there were until then,
    /// lost ones included. `ids`: those that count attempts.
    pub fn take_running(
        &mut self,
        kinds: &RecordKinds,
        ids: &[u16],
        out: &mut Vec<u8>,
    ) -> io::Result<(Taken, Still)> {
        let still = self.still(ids);
        let (mut part, start) = (Vec::new(), out.len());
        let nested = match &mut self.nested {
            Some(nested) => nested.take_running(kinds, &mut part, still.nested)?,
            None => Taken::default(),
        };
        let mut taken = self.main.take_running(kinds, out, still.main)?;
        taken.torn |= nested.torn;
        put_in(kinds, out, start, &part, &mut taken);
        self.main.leave(self.here());
        Ok((taken, still))
    }

    /// A moment at which no hit was at work. Most hits take less time than a look; on the writers'
    /// own CPU, which only interrupts take from the caller, the first look is nearly always good.
    fn still(&self, ids: &[u16]) -> Still {
        let look = || {
            let nested = self.nested.as_ref().map_or(0, RingReader::head);
            let (main, (missed, since)) = (self.main.head(), self.missed());
            let attempts = ids.iter().map(|id| self.attempts(*id)).sum();
            Still { main, nested, attempts, missed, since }
        };
        let mut before = look();
        for _ in 0..LOOKS {
            // Whoever began after the first look shows in the second one, or is still at work.
            fence(Ordering::Acquire);
            let busy = self.is_busy();
            fence(Ordering::Acquire);
            let now = look();
            if now == before && !busy {
                break;
            }
            before = now;
        }
        before
    }

    /// Appends what `take` finds in either ring, as one sequence.
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

    /// Goes on where a reader that has died stopped; returns how many numbers the records took that
    /// it had taken out.
    pub fn resume(&mut self) -> u64 {
        let note = self.main.note();
        self.main.resume_at(note.main);
        self.nested.iter_mut().for_each(|n| n.resume_at(note.nested));
        self.serials = note.serials;
        note.serials
    }

    /// Whether a reader that has died had taken out everything.
    pub fn has_ended(&self) -> bool {
        let note = self.main.note();
        self.main.head() == note.main
            && self.nested.as_ref().is_none_or(|n| n.head() == note.nested)
    }

    /// Appends all whole records, and leaves them where they are.
    pub fn copy_all(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>) -> Taken {
        self.both_rings(kinds, out, |ring, out| ring.copy(kinds, out, usize::MAX))
    }

    /// Takes the waiting records up to a time, or all.
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

/// (how many, since when) of two rings together.
fn both(main: (u64, u64), nested: (u64, u64)) -> (u64, u64) {
    match (main, nested) {
        (main, (0, _)) => main,
        ((0, _), nested) => nested,
        (main, nested) => (main.0.saturating_add(nested.0), main.1.min(nested.1)),
    }
}

/// The records in `bytes`, each with the low 48 bits of its time; up to the first that is none.
fn records<'a>(kinds: &'a RecordKinds, bytes: &'a [u8]) -> impl Iterator<Item = (&'a [u8], u64)> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = Header::read(rest)?;
        let (record, after) = rest.split_at(kinds.sizes.size(rest)?);
        rest = after;
        Some((record, header.time48()))
    })
}

/// The low 48 bits of the time of the last one.
pub fn last_time(kinds: &RecordKinds, bytes: &[u8]) -> Option<u64> {
    records(kinds, bytes).last().map(|(_, time)| time)
}

/// Where the last record begins whose predecessors are all in the order of time, or the first one
/// that is not. For records of which the last one may be nonsense.
pub fn last_in_order(kinds: &RecordKinds, bytes: &[u8]) -> Option<usize> {
    let (mut at, mut found, mut before) = (0, None, None);
    for (record, time) in records(kinds, bytes) {
        found = Some(at);
        if before.is_some_and(|b| later(b, time)) {
            break;
        }
        before = Some(time);
        at += record.len();
    }
    found
}

/// Whether `a` is later than `b`, both of 48 bits, of which one may have wrapped.
fn later(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) << 16) as i64 > 0
}

/// Merges `part` into `out[start..]` by time, and counts it.
fn put_in(kinds: &RecordKinds, out: &mut Vec<u8>, start: usize, part: &[u8], taken: &mut Taken) {
    if part.is_empty() {
        return;
    }
    let main = out.split_off(start);
    let mut nested = records(kinds, part).peekable();
    for (record, time) in records(kinds, &main) {
        while let Some((earlier, _)) = nested.next_if(|(_, t)| later(time, *t)) {
            out.extend_from_slice(earlier);
        }
        out.extend_from_slice(record);
    }
    nested.for_each(|(record, _)| out.extend_from_slice(record));
    for (record, _) in records(kinds, part) {
        taken.count(kinds, record);
    }
    taken.bytes += part.len() as u64;
}

#[cfg(test)]
mod running;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::model::{kinds, record};
    use crate::{CONTROL, Rings};
    use klogger_os::Mapping;
    use std::ops::Range;
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn nested_records_are_put_in_by_time() {
        let bytes = |times: &[u64]| times.iter().flat_map(|t| record(9, *t)).collect::<Vec<u8>>();
        let mut out = bytes(&[1, 10, 20, 30]);
        let mut taken = Taken::default();
        put_in(&kinds(), &mut out, 8, &bytes(&[5, 25, 40]), &mut taken);
        assert_eq!(out, bytes(&[1, 5, 10, 20, 25, 30, 40]));
        assert_eq!((taken.serials, taken.records, taken.bytes, taken.lost), (3, 3, 24, 0));
    }

    /// Records of 8 bytes, in a ring at `at`.
    fn write(shared: &Mapping, at: usize, size: usize, times: Range<u64>) {
        let head = shared.word(at);
        for time in times {
            let to = head.fetch_add(8, Ordering::Relaxed) as usize % size;
            shared.word(at + CONTROL + to).store(time << 16 | 9, Ordering::Relaxed);
        }
    }

    /// The main ring is full of older records; of the nested ring more comes in the meantime than
    /// it holds.
    #[test]
    fn a_reader_that_is_behind_keeps_the_order() {
        let (kinds, size) = (kinds(), 1 << 20);
        let memory = tempfile::tempfile().unwrap();
        let nested_at = Rings::stride(size);
        memory.set_len((nested_at + Rings::stride(NESTED)) as u64).unwrap();
        let shared =
            Arc::new(Mapping::new(memory.as_fd(), nested_at + Rings::stride(NESTED)).unwrap());
        let ring = |at: usize, size: usize| RingReader::of_kernel(shared.clone(), at, size);
        let mut reader = CpuReader::new(ring(0, size), Some(ring(nested_at, NESTED)));
        let mut out = Vec::new();
        reader.open(false);
        write(&shared, 0, size, 1..100_001);
        for n in 0..10 {
            write(&shared, nested_at, NESTED, 100_001 + n * 8000..100_001 + (n + 1) * 8000);
            reader.take(&kinds, &mut out, 1 << 15);
        }
        while reader.fill() > 0 {
            reader.take(&kinds, &mut out, 1 << 15);
        }
        let times: Vec<u64> = records(&kinds, &out).map(|(_, time)| time).collect();
        assert_eq!(times.len(), 180_000);
        assert!(times.is_sorted());
    }

    /// What a reader that is killed leaves to the next one, wherever in `take` it was.
    #[test]
    fn the_next_reader_goes_on_where_the_last_one_was_killed() {
        let kinds = kinds();
        let memory = tempfile::tempfile().unwrap();
        let bytes = Rings::stride(NESTED);
        memory.set_len(2 * bytes as u64).unwrap();
        let mapping = || Mapping::new(memory.as_fd(), 2 * bytes).unwrap();
        let rings = || Rings::new(mapping(), NESTED, 2, 0);
        let reader = || CpuReader::new(rings().reader(0), Some(rings().reader(1)));
        let shared = mapping();
        let write = |ring: usize, times| write(&shared, ring * bytes, NESTED, times);
        let mut first = reader();
        first.open(false);
        write(0, 0..3000);
        write(1, 1000..1007);
        let taken = first.take(&kinds, &mut Vec::new(), NESTED);
        assert_eq!(taken.serials, 3007);
        write(0, 3000..9000);
        write(1, 5000..5011);
        // Killed after it has said how far it is, and zeroed half of it, up to the middle of
        // nowhere.
        first.nested.as_mut().unwrap().copy(&kinds, &mut Vec::new(), 8 * 4);
        first.main.copy(&kinds, &mut Vec::new(), 8 * 2000);
        first.main.leave(Note { serials: 3007 + 4 + 2000, ..first.here() });
        for at in (3000..4000).map(|n| CONTROL + n * 8 % NESTED) {
            shared.word(at).store(0, Ordering::Relaxed);
        }
        let (mut second, mut out) = (reader(), Vec::new());
        assert_eq!(second.resume(), 5011);
        let taken = second.copy_all(&kinds, &mut out);
        assert_eq!((taken.serials, taken.torn), (4000 + 7, false));
        let times: Vec<u64> = records(&kinds, &out).map(|(_, time)| time).collect();
        assert_eq!((times[0], times.last()), (5000, Some(&8999)));
        assert!(times.is_sorted());
        // It has taken nothing away.
        assert_eq!(reader().resume(), 5011);
    }

    #[test]
    fn times_wrap() {
        assert!(later(5, 3) && !later(3, 5) && !later(4, 4));
        assert!(later(1, (1 << 48) - 1) && !later((1 << 48) - 1, 1));
    }
}
