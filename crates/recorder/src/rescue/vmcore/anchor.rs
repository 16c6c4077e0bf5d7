// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One anchor in an image, and the rings that it describes.

use super::dump::Dump;
use crate::rescue::rings::{Facts, Still};
use klogger_engines::anchor::format::{self, Index, Key, Moment, PAGE, Range, RingsAt};
use klogger_engines::anchor::ring_number;
use klogger_os::{Error, Mapping, memory};
use klogger_ring::clock::Clock;
use klogger_ring::{CpuReader, EVENTS_MAX, NESTED, RingReader, Rings, STAMP};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Larger counters are invalid: no recording logs so many events.
const COUNT_MAX: u64 = 1 << 40;

/// The contents of one anchor.
pub struct Anchor {
    pub recording: u64,
    pub index: Index,
    pub frames: Vec<u64>,
    pub newest: Moment,
}

pub fn read_anchor(dump: &Dump, key: &Key, pages: &BTreeMap<u32, u64>) -> Option<(Facts, Anchor)> {
    if pages.len() != key.pages as usize {
        return None;
    }
    let (mut text, mut page) = (Vec::new(), [0; PAGE]);
    let mut newest = Moment::default();
    for (number, address) in pages {
        dump.read(*address, &mut page).then_some(())?;
        match number {
            0 => newest = format::read_time(&page)?,
            _ => text.extend_from_slice(format::part(&page)),
        }
    }
    let (facts, index, frames) = format::read_text(&text)?;
    let facts = serde_json::from_slice(facts).ok()?;
    let anchor = Anchor { recording: key.recording, index, frames, newest };
    anchor.is_sound().then_some((facts, anchor))
}

impl Anchor {
    /// Whether it is plausible: valid sizes of rings, and no page in two rings; otherwise a small
    /// image could contain large rings.
    pub fn is_sound(&self) -> bool {
        let Index { page, first, rings, ringless, .. } = &self.index;
        // First: all that follows counts in pages, and divides by their size.
        if !page.is_power_of_two() || !(PAGE as u64..=1 << 16).contains(page) {
            return false;
        }
        let sound = |r: &RingsAt| {
            r.size.is_power_of_two()
                && (crate::BUFFER_MIN..=crate::BUFFER_MAX).contains(&(r.size as u64))
                && self.holds(r.main, Rings::stride(r.size))
                && self.holds(r.nested, Rings::stride(NESTED))
        };
        let once = self.frames.iter().collect::<HashSet<_>>().len() == self.frames.len();
        let uses = rings.iter().fold(ringless.count, |sum, r| {
            sum.saturating_add(r.main.count).saturating_add(r.nested.count)
        });
        let cpus = rings.iter().map(|r| r.cpu).collect::<HashSet<_>>().len() == rings.len();
        let times = first.ticks.max(first.ns).max(self.newest.ticks).max(self.newest.ns) < 1 << 62;
        let fits = self.holds(*ringless, 8 * EVENTS_MAX) && rings.iter().all(sound);
        times && cpus && fits && once && uses <= self.frames.len()
    }

    /// Whether a range is within the list of frames, and has exactly so many bytes.
    pub fn holds(&self, range: Range, bytes: usize) -> bool {
        let end = range.at.checked_add(range.count);
        end.is_some_and(|end| end <= self.frames.len())
            && range.count == bytes.div_ceil(self.index.page as usize)
    }

    /// Copies a range to our memory; returns whether all of it is in the image.
    pub fn copy(
        &self,
        dump: &Dump,
        range: Range,
        to: &Mapping,
        offset: usize,
        length: usize,
    ) -> bool {
        let page = self.index.page as usize;
        let (mut all, mut bytes) = (true, vec![0; page]);
        for (n, frame) in self.frames.iter().skip(range.at).take(range.count).enumerate() {
            let at = n * page;
            let part = page.min(length.saturating_sub(at));
            let whole = frame
                .checked_mul(page as u64)
                .is_some_and(|address| dump.read(address, &mut bytes[..part]));
            all &= whole;
            // Memory that stays zero is not allocated.
            if bytes[..part].iter().any(|b| *b != 0) {
                let (words, _) = bytes[..part].as_chunks();
                for (i, word) in words.iter().enumerate() {
                    to.word(offset + at + 8 * i)
                        .store(u64::from_le_bytes(*word), Ordering::Relaxed);
                }
            }
        }
        all
    }

    pub fn of_cpu(&self, cpu: u16) -> Option<&RingsAt> {
        self.index.rings.iter().find(|r| r.cpu == cpu)
    }

    pub fn frames(&self, range: Range) -> Option<&[u64]> {
        self.frames.get(range.at..range.at.checked_add(range.count)?)
    }

    /// Both rings of a CPU, or the main one; `None`: their pages have been reused for something
    /// else.
    pub fn reader(
        &self,
        dump: &Dump,
        rings: &RingsAt,
        with_nested: bool,
    ) -> Result<Option<CpuReader>, Error> {
        let (main, nested) = (Rings::stride(rings.size), Rings::stride(NESTED));
        let memory = memory::zeros(main + nested);
        let memory = memory.map_err(|e| {
            Error::new(format!("no memory for a ring of {} bytes: {e}", rings.size))
        })?;
        self.copy(dump, rings.main, &memory, 0, main);
        self.copy(dump, rings.nested, &memory, main, nested);
        let is = |at: usize, nested: usize| {
            let word = |n: usize| memory.word(at + STAMP + 8 * n).load(Ordering::Relaxed);
            (word(0), word(1)) == (self.recording, ring_number(rings.cpu, nested))
        };
        if !(is(0, 0) && is(main, 1)) {
            return Ok(None);
        }
        bound_counters(&memory, 0);
        bound_counters(&memory, main);
        let memory = Arc::new(memory);
        let ring = |at: usize, size: usize| RingReader::of_kernel(memory.clone(), at, size);
        Ok(Some(CpuReader::new(ring(0, rings.size), with_nested.then(|| ring(main, NESTED)))))
    }

    pub fn ringless(&self, dump: &Dump) -> Result<Mapping, Error> {
        let memory =
            memory::zeros(8 * EVENTS_MAX).map_err(|e| Error::new(format!("no memory: {e}")))?;
        self.copy(dump, self.index.ringless, &memory, 0, 8 * EVENTS_MAX);
        (0..EVENTS_MAX).for_each(|id| bound(&memory, 8 * id));
        Ok(memory)
    }

    /// The clocks when the machine crashed, or up to a second earlier.
    pub fn still(&self) -> Option<Still> {
        let Index { counter, first, .. } = self.index;
        let pair = |m: Moment| (m.ticks, m.ns);
        let clock =
            if counter { Some(Clock::on_line(pair(first), pair(self.newest))?) } else { None };
        Some(Still { now_ns: self.newest.ns, clock, crashed: true })
    }
}

/// Limits counters, so that their sums do not overflow.
fn bound_counters(memory: &Mapping, ring: usize) {
    let counters = (0..2 * EVENTS_MAX).map(|n| klogger_ring::LOST + 8 * n);
    counters.chain([klogger_ring::MISSED]).for_each(|at| bound(memory, ring + at));
}

fn bound(memory: &Mapping, at: usize) {
    let word = memory.word(at);
    word.store(word.load(Ordering::Relaxed).min(COUNT_MAX), Ordering::Relaxed);
}
