// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the reader knows about the records in a ring, and counts for those that it takes out.

use crate::layout::ring::EVENTS_MAX;
use klogger_log::record::{Header, SizeTable};
use klogger_schema::layout::EventLayout;

/// What `take` needs to know about events: their sizes, and which one is LOST.
pub struct RecordKinds {
    pub sizes: SizeTable,
    pub lost_id: u16,
    pub lost_count_offset: usize,
    pub lost_since_offset: usize,
}

impl RecordKinds {
    pub fn new(layouts: &[EventLayout]) -> RecordKinds {
        let lost = layouts.iter().find(|e| e.name == "LOST");
        let offset = |name: &str| {
            let field = lost.and_then(|l| l.fields.iter().find(|f| f.name == name));
            field.map_or(0, |f| f.offset as usize)
        };
        RecordKinds {
            sizes: SizeTable::new(layouts),
            lost_id: lost.map_or(0, |l| l.id),
            lost_count_offset: offset("count"),
            lost_since_offset: offset("since"),
        }
    }
}

/// What one [`crate::RingReader::copy`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub bytes: u64,
    /// Serial numbers that the records take: one each, or the count of a LOST record.
    pub serials: u64,
    /// Events counted by LOST records, and the full time of the first of them (ns).
    pub lost: u64,
    pub lost_since: Option<u64>,
    pub records: u64,
    /// The ring held an invalid record; everything up to the writers' position was skipped.
    pub torn: bool,
}

impl Taken {
    /// Counts whole records.
    pub fn of(kinds: &RecordKinds, records: &[u8]) -> Taken {
        let mut taken = Taken { bytes: records.len() as u64, ..Taken::default() };
        kinds.sizes.records(records).for_each(|record| taken.count(kinds, record.bytes));
        taken
    }

    /// Counts one record.
    #[inline]
    pub fn count(&mut self, kinds: &RecordKinds, record: &[u8]) {
        self.records += 1;
        if Header::read(record).is_some_and(|h| h.id() == kinds.lost_id) {
            let word = |at: usize| {
                record.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
            };
            let (count, since) = (word(kinds.lost_count_offset), word(kinds.lost_since_offset));
            // The count in a program's record is untrusted; the user engine checks it separately.
            self.serials = self.serials.wrapping_add(count);
            self.lost = self.lost.wrapping_add(count);
            self.lost_since = Some(self.lost_since.map_or(since, |t| t.min(since)));
        } else {
            self.serials = self.serials.wrapping_add(1);
        }
    }
}

/// Counters of rings by event id. They are all that is kept of a ring that is replaced.
pub struct Counters {
    pub lost: Vec<u64>,
    /// Counted only in overwrite mode.
    pub attempts: Vec<u64>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { lost: vec![0; EVENTS_MAX], attempts: vec![0; EVENTS_MAX] }
    }
}

impl Counters {
    pub fn lost(&self, id: u16) -> u64 {
        self.lost.get(usize::from(id)).copied().unwrap_or_default()
    }

    pub fn attempts(&self, id: u16) -> u64 {
        self.attempts.get(usize::from(id)).copied().unwrap_or_default()
    }
}
