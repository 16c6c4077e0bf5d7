// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rings in overwrite mode that are read while writers go on.

use super::CpuReader;
use super::order::put_in;
use crate::{RecordKinds, RingReader, Taken};
use std::io;
use std::sync::atomic::{Ordering, fence};

/// How often the reader looks for a moment without an active hit.
#[cfg(not(test))]
const LOOKS: usize = 1 << 16;
/// A test's writer is a thread, which may be preempted in the middle of a hit for any time.
#[cfg(test)]
const LOOKS: usize = usize::MAX;

/// Both rings of a CPU at a moment without an active hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Still {
    /// The positions of their writers.
    main: u64,
    nested: u64,
    /// All attempts to log so far.
    pub attempts: u64,
    /// Events lost since the last LOST record; since when (in the clock of events).
    pub missed: u64,
    pub since: u64,
    /// A hit was at work at every look: the newest records may be incomplete, and what is counted
    /// may be off by theirs.
    pub busy: bool,
}

impl CpuReader {
    /// [`CpuReader::take_overwritten`] while writers go on. Also returns how many attempts to log
    /// there were until then, lost ones included. `ids`: the events with serial numbers.
    pub fn take_running(
        &mut self,
        kinds: &RecordKinds,
        ids: &[u16],
        out: &mut Vec<u8>,
    ) -> io::Result<(Taken, Still)> {
        let still = self.still(ids, LOOKS);
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

    /// Finds a moment without an active hit. Most hits are shorter than one look; on the writers'
    /// own CPU, where only interrupts preempt the caller, the first look is nearly always good.
    /// After so many `looks` in vain, the last of them is returned, and says so.
    pub(super) fn still(&self, ids: &[u16], looks: usize) -> Still {
        let look = || {
            let nested = self.nested.as_ref().map_or(0, RingReader::head);
            let (main, (missed, since)) = (self.main.head(), self.missed());
            let attempts = ids.iter().map(|id| self.attempts(*id)).sum();
            Still { main, nested, attempts, missed, since, busy: false }
        };
        let mut before = look();
        for _ in 0..looks {
            // A hit that began after the first look shows in the second one, or is still active.
            fence(Ordering::Acquire);
            let busy = self.is_busy();
            fence(Ordering::Acquire);
            let now = look();
            if now == before && !busy {
                return now;
            }
            before = now;
        }
        Still { busy: true, ..before }
    }
}
