// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Counts the events of a whole log, by event and by origin. Reads every block, and checks its
//! checksum.

use crate::damage::Damage;
use crate::ledger::{Ledger, Severity};
use crate::merge::Selection;
use crate::origin::Origin;
use crate::reader::Reader;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub events: u64,
    /// Of the records, before compression.
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// In the order of the preamble's events.
    pub events: Vec<Count>,
    pub origins: BTreeMap<Origin, Count>,
    /// Full ns of the log clock; `None` if there are no events.
    pub times: Option<(u64, u64)>,
    /// Damage found on the way, in addition to [`Reader::damage`].
    pub damage: Vec<Damage>,
}

impl Stats {
    pub fn new(reader: &Reader) -> Stats {
        let mut stats = Stats {
            events: vec![Count::default(); reader.preamble().events.len()],
            ..Stats::default()
        };
        let mut merge = reader.merge(&Selection::default());
        while let Some(event) = merge.next() {
            let bytes = event.bytes.len() as u64;
            for count in
                [&mut stats.events[event.index], stats.origins.entry(event.origin).or_default()]
            {
                count.events += 1;
                count.bytes += bytes;
            }
            stats.times = Some((stats.times.map_or(event.time_ns, |t| t.0), event.time_ns));
        }
        stats.damage = merge.damage().to_vec();
        stats.damage.extend(reader.check_rest());
        stats
    }

    pub fn total(&self) -> Count {
        let add =
            |a: Count, b: &Count| Count { events: a.events + b.events, bytes: a.bytes + b.bytes };
        self.events.iter().fold(Count::default(), add)
    }
}

/// Events of this name that are lost according to the ledger.
pub fn lost(ledger: &Ledger, event: &str) -> u64 {
    let losses = ledger
        .entries
        .iter()
        .filter(|e| e.severity >= Severity::Loss && e.event.as_deref() == Some(event));
    losses.fold(0, |sum, e| sum.saturating_add(e.count))
}
