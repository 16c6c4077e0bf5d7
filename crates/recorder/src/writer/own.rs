// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The recorder's own events, which wait to be written together.

use klogger_log::origin::Origin;
use klogger_log::writer::EventBlock;
use std::time::{Duration, Instant};

/// They are written after this many bytes, or after FLUSH.
const BYTES: usize = 16 << 10;
pub const FLUSH: Duration = Duration::from_millis(500);

pub struct Own {
    pub records: Vec<u8>,
    /// The serial number of the first of them.
    pub serial: u64,
    /// Not later than any of the recorder's own events.
    base: u64,
    flushed: Instant,
}

impl Own {
    pub fn new(base: u64) -> Own {
        Own { records: Vec::new(), serial: 0, base, flushed: Instant::now() }
    }

    pub fn is_due(&self) -> bool {
        self.records.len() >= BYTES || self.flushed.elapsed() >= FLUSH
    }

    /// They are about to be written, if there are any.
    pub fn begin_to_flush(&mut self) {
        self.flushed = Instant::now();
    }

    pub fn block(&self) -> EventBlock<'_> {
        EventBlock {
            origin: Origin::Recorder,
            time_base: self.base,
            first_serial: self.serial,
            records: &self.records,
        }
    }

    /// They are in the log, whose stream goes on at `next_serial`.
    pub fn written(&mut self, next_serial: u64) {
        self.records.clear();
        self.serial = next_serial;
    }
}
