// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Converts the times of records from the clock of events to the log clock.

use super::segment::Segment;
use super::{Clock, Source, base};
use crate::RecordKinds;
use klogger_log::record::{Header, TIME_MASK, full_time};
use klogger_os as os;

/// How far a time may be ahead of the newest pair in the memory image of a crashed machine, where
/// no pair may have been added for as long.
const AHEAD_OF_CRASH: u64 = 1 << 44;

/// Converts times that were stored before it was made.
pub struct Converter<'a> {
    pub(super) clock: &'a Clock,
    pub(super) source: Source,
    /// 48 bits before the latest time that can come, in the clock of events.
    pub(super) base: u64,
    pub(super) segment: Segment,
}

impl<'a> Converter<'a> {
    /// Adds a new pair, which is later than all records to be converted, so that their times are
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

    /// Converts TSC times from before the clock's newest pair.
    pub fn of_counter(clock: &'a Clock) -> Converter<'a> {
        Converter::until(clock, Source::Tsc, clock.newest().ticks)
    }

    /// Converts TSC times of a crashed machine, which may be far after the clock's newest pair.
    pub fn of_crash(clock: &'a Clock) -> Converter<'a> {
        let newest = clock.newest().ticks;
        let base = (newest + AHEAD_OF_CRASH).saturating_sub(TIME_MASK);
        Converter { base, ..Converter::until(clock, Source::Tsc, newest) }
    }

    fn until(clock: &'a Clock, source: Source, now: u64) -> Converter<'a> {
        Converter { clock, source, base: base(now), segment: Segment::new(clock.around(now)) }
    }

    /// The full time, ns of the log clock, from its low 48 bits.
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
                // Before a step is another segment.
                if self.clock.guessed { ns.max(self.clock.first.ns) } else { ns }
            }
        }
    }

    /// Stores the log's time and this id in the header of a record; returns the full time.
    pub fn header(&mut self, record: &mut [u8], id: u16) -> Option<u64> {
        let word = record.first_chunk_mut()?;
        let ns = self.ns(Header(u64::from_le_bytes(*word)).time48());
        *word = Header::new(ns, id).0.to_le_bytes();
        Some(ns)
    }

    /// Converts a full time that is a field of a record.
    pub fn field(&mut self, record: &mut [u8], offset: usize) -> Option<u64> {
        let word = record.get_mut(offset..)?.first_chunk_mut()?;
        let ns = self.ns(u64::from_le_bytes(*word) & TIME_MASK);
        *word = ns.to_le_bytes();
        Some(ns)
    }

    /// Converts all times of some records. The records of one ring are in order, also across steps.
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
