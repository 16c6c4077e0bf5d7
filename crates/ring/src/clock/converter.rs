// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The times of records, from the clock of events to the log's.

use super::segment::Segment;
use super::{Clock, Source, base};
use crate::RecordKinds;
use klogger_log::record::{Header, TIME_MASK, full_time};
use klogger_os as os;

/// So far may a time be ahead of the newest pair in an image of a machine that has crashed: nobody
/// may have looked at the clock for so long.
const AHEAD_OF_CRASH: u64 = 1 << 44;

/// Converts times that were published before it was made.
pub struct Converter<'a> {
    pub(super) clock: &'a Clock,
    pub(super) source: Source,
    /// 48 bits before what is ahead of every time that can come, in the events' clock.
    pub(super) base: u64,
    pub(super) segment: Segment,
}

impl<'a> Converter<'a> {
    /// Takes a new pair, which is later than all that is in hand already: so those times are
    /// between pairs.
    pub fn new(clock: &'a mut Clock, source: Source) -> Converter<'a> {
        let now = match source {
            Source::Monotonic => os::monotonic_ns(),
            Source::Tsc => {
                clock.look();
                clock.newest().ticks
            }
        };
        Converter::until(clock, source, now)
    }

    /// Of times of the counter that are before the clock's newest pair.
    pub fn of_counter(clock: &'a Clock) -> Converter<'a> {
        Converter::until(clock, Source::Tsc, clock.newest().ticks)
    }

    /// Of times of the counter in a machine that has crashed, which may be far behind the clock's
    /// newest pair.
    pub fn of_crash(clock: &'a Clock) -> Converter<'a> {
        let newest = clock.newest().ticks;
        let base = (newest + AHEAD_OF_CRASH).saturating_sub(TIME_MASK);
        Converter { base, ..Converter::until(clock, Source::Tsc, newest) }
    }

    fn until(clock: &'a Clock, source: Source, now: u64) -> Converter<'a> {
        Converter { clock, source, base: base(now), segment: Segment::new(clock.around(now)) }
    }

    /// The full time, ns of the log's clock, from its low 48 bits.
    pub fn ns(&mut self, time48: u64) -> u64 {
        let time = full_time(self.base, time48);
        match self.source {
            Source::Monotonic => time,
            Source::Tsc => {
                if let Some(ns) = self.clock.before_step(time, time48) {
                    return ns;
                }
                if !self.segment.holds(time) {
                    self.segment = Segment::new(self.clock.around(time));
                }
                let ns = self.segment.at(time);
                // Before a step is another stretch.
                if self.clock.guessed { ns.max(self.clock.first.ns) } else { ns }
            }
        }
    }

    /// Gives a record the log's time, and this id; returns the full time.
    pub fn header(&mut self, record: &mut [u8], id: u16) -> Option<u64> {
        let word = record.first_chunk_mut()?;
        let ns = self.ns(Header(u64::from_le_bytes(*word)).time48());
        *word = Header::new(ns, id).0.to_le_bytes();
        Some(ns)
    }

    /// The same for a full time which is a field of a record.
    pub fn field(&mut self, record: &mut [u8], offset: usize) -> Option<u64> {
        let word = record.get_mut(offset..)?.first_chunk_mut()?;
        let ns = self.ns(u64::from_le_bytes(*word) & TIME_MASK);
        *word = ns.to_le_bytes();
        Some(ns)
    }

    /// The same for all times of some records. Those of a ring are in order, steps or not.
    pub fn records(&mut self, kinds: &RecordKinds, bytes: &mut [u8]) {
        let (mut rest, mut last) = (bytes, 0);
        while let (Some(header), Some(size)) = (Header::read(rest), kinds.sizes.size(rest)) {
            let (record, after) = rest.split_at_mut(size);
            let ns = self.header(record, header.id()).unwrap_or_default();
            if ns < last && !self.clock.past.is_empty() {
                set_time(record, last);
            }
            last = last.max(ns);
            if header.id() == kinds.lost_id {
                self.field(record, kinds.lost_since_offset);
            }
            rest = after;
        }
    }
}

fn set_time(record: &mut [u8], ns: u64) {
    if let Some(word) = record.first_chunk_mut() {
        let id = Header(u64::from_le_bytes(*word)).id();
        *word = Header::new(ns, id).0.to_le_bytes();
    }
}
