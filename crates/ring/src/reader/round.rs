// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rings in overwrite mode: reads what is still whole in them.

use super::{RecordKinds, RingReader, Rings, Taken};
use crate::layout::ring::{CONTROL, FIRST, GRID, MARK, SLACK};
use klogger_os::Mapping;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

impl RingReader {
    /// In overwrite mode, with writers stopped: appends everything since the last call that is
    /// still whole. Returns what was found. `tail` moves to the writers' position.
    pub fn take_overwritten(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>) -> Taken {
        let head = self.head();
        let oldest = head.saturating_sub(self.size()).max(self.being_zeroed());
        self.take_round(kinds, out, oldest, head)
    }

    /// Up to where a program's ring may be half zeroed. Its writer zeroes a part of the grid before
    /// it moves on, and the program may have been killed meanwhile: see klogger_overwrite().
    fn being_zeroed(&self) -> u64 {
        let at = if self.trusted { 0 } else { self.word(MARK).load(Ordering::Acquire) };
        let end = at.saturating_add(self.size() / GRID as u64).saturating_sub(self.size());
        if at == 0 { 0 } else { end }
    }

    /// The same while writers go on: up to `head`, before which every record is committed. Records
    /// that are overwritten meanwhile are left out.
    pub fn take_running(
        &mut self,
        kinds: &RecordKinds,
        out: &mut Vec<u8>,
        head: u64,
    ) -> io::Result<Taken> {
        let mut image = self.image(head)?;
        // Pairs with the writers, who advance `head` before they store: if bytes of a writer are in
        // the copy, its advance of `head` is seen here.
        fence(Ordering::Acquire);
        let oldest = self.head().saturating_sub(self.size());
        let taken = image.take_round(kinds, out, oldest, head);
        self.tail = head;
        Ok(taken)
    }

    /// A copy of the ring up to `head`, and of where records begin, the oldest first.
    pub(super) fn image(&self, head: u64) -> io::Result<RingReader> {
        let mapping = Arc::new(Mapping::own(Rings::stride(self.size))?);
        let image =
            RingReader { tail: self.tail, ..RingReader::new(mapping, 0, self.size, self.mark) };
        let from = self.tail.max(head.saturating_sub(self.size()));
        let (start, length) = (from as usize & (self.size - 1), (head - from) as usize);
        if start + length <= self.size {
            image.put(start, self.bytes(start, length));
        } else {
            image.put(start, self.bytes(start, self.size + SLACK - start));
            image.put(0, self.bytes(0, start + length - self.size));
        }
        for n in (0..GRID).map(|n| FIRST + 8 * n) {
            image.word(n).store(self.word(n).load(Ordering::Acquire), Ordering::Relaxed);
        }
        Ok(image)
    }

    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        let at = self.mapping.at(self.base + CONTROL + offset, bytes.len());
        // SAFETY: within the mapping, which is not shared yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    }

    /// Takes what is in a ring between `oldest` and `head`, which does not change.
    pub(super) fn take_round(
        &mut self,
        kinds: &RecordKinds,
        out: &mut Vec<u8>,
        oldest: u64,
        head: u64,
    ) -> Taken {
        if self.tail < oldest {
            let firsts = (0..GRID).map(|n| self.word(FIRST + 8 * n).load(Ordering::Acquire));
            self.tail = firsts
                .filter(|p| (oldest..=head).contains(p) && p.is_multiple_of(8))
                .min()
                .unwrap_or(head);
        }
        let mut taken = Taken::default();
        while self.tail < head && !taken.torn {
            let run = self.run(kinds, head, usize::MAX, &mut taken);
            if run == 0 {
                break;
            }
            let start = self.offset();
            out.extend_from_slice(self.bytes(start, run));
            self.tail += run as u64;
            taken.bytes += run as u64;
        }
        self.tail = head;
        taken
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::ring::{FIRST, GRID, HEAD, LIMIT, MARK};
    use crate::reader::model::{kinds, record, records};
    use crate::{RingReader, Rings};
    use klogger_os::Mapping;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    const SIZE: usize = 1 << 14;
    const PART: u64 = (SIZE / GRID) as u64;

    /// A program's ring that was overwritten more than once, as klogger_overwrite() does it, and
    /// all records that were logged.
    fn ring() -> (RingReader, Vec<u8>) {
        let mapping = Arc::new(Mapping::own(Rings::stride(SIZE)).unwrap());
        let reader = RingReader::of_program(mapping, 0, SIZE, 0);
        let (mut all, mut limit) = (Vec::new(), 0);
        for time in 0.. {
            let at = all.len() as u64;
            if at > 5 * SIZE as u64 / 2 {
                break;
            }
            let bytes = record(9 + (time % 3) as u16, time);
            let end = at + bytes.len() as u64;
            while end > limit {
                reader.zero(limit as usize % SIZE, PART as usize);
                let first = if at == limit { at } else { end };
                let entry = FIRST + 8 * ((limit / PART) as usize % GRID);
                reader.word(entry).store(first, Ordering::Relaxed);
                limit += PART;
            }
            reader.put(at as usize % SIZE, &bytes);
            all.extend(bytes);
            reader.word(HEAD).store(end, Ordering::Relaxed);
            reader.word(LIMIT).store(limit, Ordering::Relaxed);
        }
        (reader, all)
    }

    /// The writer was killed when so many bytes of the next part were zeroed, from its beginning or
    /// from its end.
    #[test]
    fn a_part_that_is_half_zeroed_is_left_out() {
        for (from, zeroed) in [(0, 0), (0, 8), (0, PART), (PART - 64, 64), (40, 8)] {
            let (mut reader, all) = ring();
            let limit = reader.word(LIMIT).load(Ordering::Relaxed);
            reader.word(MARK).store(limit, Ordering::Relaxed);
            reader.zero((limit + from) as usize % SIZE, zeroed as usize);
            let mut out = Vec::new();
            let taken = reader.take_overwritten(&kinds(), &mut out);
            assert!(!taken.torn && records(&all).ends_with(&records(&out)));
            let least = SIZE - 2 * PART as usize - 1024;
            assert!(out.len() > least, "{} of {SIZE} bytes, zeroed {zeroed} at {from}", out.len());
        }
    }

    #[test]
    fn otherwise_the_whole_ring_is_there() {
        let (mut reader, all) = ring();
        let mut out = Vec::new();
        reader.take_overwritten(&kinds(), &mut out);
        assert!(all.ends_with(&out) && out.len() > SIZE - PART as usize - 1024);
    }
}
