// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rings in overwrite mode: reads what is still whole in them.

use super::{RecordKinds, RingReader, Rings, Taken};
use crate::layout::ring::{CONTROL, FIRST, GRID, SLACK};
use klogger_os::Mapping;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

impl RingReader {
    /// In overwrite mode, with writers stopped: appends everything since the last call that is
    /// still whole. Returns what was found. `tail` moves to the writers' position.
    pub fn take_overwritten(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>) -> Taken {
        let head = self.head();
        self.take_round(kinds, out, head.saturating_sub(self.size()), head)
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
