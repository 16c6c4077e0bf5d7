// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! When events are missing from a log, so that a rule cannot be decided.

use crate::builtin::Builtin;
use crate::event::Value;
use crate::format::Kind;
use crate::ledger::{Entry, Key, Severity};
use crate::merge::Selection;
use crate::origin::Origin;
use crate::reader::Reader;
use std::collections::BTreeMap;

/// A recorder takes out of each ring at least so often, ns.
const DRAINED_EVERY_NS: u64 = 1_000_000_000;
/// Gaps at most; more are joined with those before them.
const GAPS_MAX: usize = 1 << 20;

/// Times during which events may be missing, ns, with both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps(Vec<(u64, u64)>);

impl Gaps {
    pub fn new(mut spans: Vec<(u64, u64)>) -> Gaps {
        spans.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in spans {
            let full = joined.len() >= GAPS_MAX;
            match joined.last_mut() {
                Some(last) if from <= last.1 || full => last.1 = last.1.max(to),
                Some(_) | None => joined.push((from, to)),
            }
        }
        Gaps(joined)
    }

    /// Whether one of them is between these times.
    #[inline]
    pub fn are_in(&self, from: u64, to: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let next = self.0.partition_point(|gap| gap.1 < from);
        self.0.get(next).is_some_and(|gap| gap.0 <= to)
    }
}

/// A time during which an event may be missing; `None`: any event.
pub struct Missing {
    pub event: Option<String>,
    pub span: (u64, u64),
}

/// What is missing from a log: by its `LOST` records, which have exact times, and by its ledger.
pub fn missing(reader: &Reader) -> Vec<Missing> {
    let whole = reader.span();
    let lost = lost_records(reader);
    let exact = !lost.is_empty();
    let any = |span| Missing { event: None, span };
    let at_end = [Key::RecorderKilled, Key::InFlight, Key::FileCut].map(|key| key.info().name);
    let earliest =
        |e: &Entry| if at_end.contains(&e.key.as_str()) { last_drained(reader) } else { whole.0 };
    let of_entry = |e: &Entry| Missing {
        event: e.event.clone(),
        span: (e.from_ns.unwrap_or(earliest(e)), e.to_ns.unwrap_or(whole.1)),
    };
    let ledger = reader.ledger(&[]);
    // Those of a ring of the kernel are what LOST records say, with the times of all of them.
    let told = |e: &&Entry| !(exact && e.key == Key::RingFull.info().name && e.cpu.is_some());
    let entries = ledger.entries.iter().filter(|e| is_missing(e)).filter(told).map(of_entry);
    lost.into_iter().map(any).chain(entries).collect()
}

/// From when on events may have been in the rings of a recorder that was killed, and not in the
/// log: the CPUs' last blocks do not end at the same time. A CPU without a block has no stream.
fn last_drained(reader: &Reader) -> u64 {
    let mut last: BTreeMap<Origin, u64> = BTreeMap::new();
    for block in reader.blocks().iter().filter(|b| b.header.kind == Kind::Events) {
        let header = &block.header;
        if header.origin.cpu().is_some() {
            let time = last.entry(header.origin).or_default();
            *time = header.last_time.max(*time);
        }
    }
    let (start, end) = reader.span();
    let first = last.into_values().min().unwrap_or(end);
    first.min(end.saturating_sub(DRAINED_EVERY_NS)).max(start)
}

/// Whether events of such an entry happened and are not in the log.
fn is_missing(entry: &Entry) -> bool {
    let keys = [
        Key::EventsDisabled,
        Key::RateLimited,
        Key::Excluded,
        Key::Overwritten,
        Key::ProbeNotAttached,
    ];
    entry.severity >= Severity::Loss || keys.iter().any(|key| key.info().name == entry.key)
}

fn lost_records(reader: &Reader) -> Vec<(u64, u64)> {
    let mut spans = Vec::new();
    if reader.totals().1 == 0 {
        return spans;
    }
    let mut merge = reader.merge(&Selection::default());
    while let Some(event) = merge.next() {
        if Builtin::of(event.layout) == Some(Builtin::Lost) {
            let since = event.get("since").and_then(Value::bits).unwrap_or(0);
            spans.push((since.min(event.time_ns), event.time_ns));
            if spans.len() >= 2 * GAPS_MAX {
                spans = Gaps::new(spans).0;
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_where_they_touch() {
        let gaps = Gaps::new(vec![(30, 40), (10, 20), (15, 22), (50, 50)]);
        assert_eq!(gaps.0, [(10, 22), (30, 40), (50, 50)]);
        for (from, to, expected) in
            [(0, 9, false), (0, 10, true), (22, 25, true), (23, 29, false), (45, 60, true)]
        {
            assert_eq!(gaps.are_in(from, to), expected, "{from}..{to}");
        }
        assert!(!gaps.are_in(51, u64::MAX));
        assert!(!Gaps::default().are_in(0, u64::MAX));
    }
}
