// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The times of records in rings, and their conversion to the log clock.

use klogger_log::preamble::EventClock;
use klogger_log::record::{Header, TIME_MASK};
use klogger_ring::clock::{Converter, SharedClock};
use klogger_ring::{RecordKinds, Taken};

/// The clock of the times in rings.
#[derive(Clone)]
pub enum Times {
    /// The log clock.
    Ns,
    /// The TSC.
    Counter(SharedClock),
}

impl Times {
    pub fn event_clock(&self) -> Option<EventClock> {
        match self {
            Times::Ns => None,
            Times::Counter(clock) => Some(clock.event_clock()),
        }
    }

    /// Must be called several times a second where rings are drained seldom.
    pub fn look(&self) {
        if let Times::Counter(clock) = self {
            clock.look();
        }
    }

    /// The span of time that the low 48 bits of a time can cover, ns.
    pub fn reach_ns(&self) -> u64 {
        match self {
            Times::Ns => TIME_MASK,
            Times::Counter(clock) => clock.reach_ns().min(TIME_MASK),
        }
    }

    /// Converts records that were taken out of a ring, and what was found among them, to the log
    /// clock.
    pub fn convert(&self, kinds: &RecordKinds, records: &mut [u8], taken: &mut Taken) {
        let (Times::Counter(clock), Some(first)) = (self, Header::read(records)) else { return };
        let first = taken
            .lost_since
            .map_or(first.time48(), |since| earlier(first.time48(), since & TIME_MASK));
        let part = clock.part(first);
        let mut converter = Converter::of_counter(&part);
        converter.records(kinds, records);
        taken.lost_since = taken.lost_since.map(|since| converter.ns(since & TIME_MASK));
    }

    /// Converts a full time.
    pub fn ns(&self, time: u64) -> u64 {
        match self {
            Times::Ns => time,
            Times::Counter(clock) => {
                Converter::of_counter(&clock.part(time & TIME_MASK)).ns(time & TIME_MASK)
            }
        }
    }
}

/// The earlier one of two times of 48 bits.
fn earlier(a: u64, b: u64) -> u64 {
    if (a.wrapping_sub(b) << 16) as i64 > 0 { b } else { a }
}
