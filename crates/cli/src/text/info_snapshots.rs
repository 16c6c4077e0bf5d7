// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What `klogger info` says of snapshots: of which part of a recording a log is one, and which were
//! made of a recording.

use super::layout::grouped;
use klogger_log::ledger::Taken;
use klogger_log::preamble::{Hit, Snapshot};
use std::fmt::Write;

/// Of a log that is a snapshot. Times are since the recording began.
pub fn of_log(snapshot: &Snapshot) -> String {
    let Snapshot { number, first, hits, from_ns, to_ns, log, recording_start_ns, .. } = snapshot;
    let at = |ns: u64| seconds(ns, *recording_start_ns);
    let more = match hits.saturating_sub(1) {
        0 => String::new(),
        1 => ", and 1 more hit".into(),
        more => format!(", and {} more hits", grouped(more)),
    };
    let (from, to, hit) = (at(*from_ns), at(*to_ns), at(first.at_ns));
    format!("number {number} of {log}, from {from} to {to}; {} at {hit}{more}", why(first))
}

fn why(hit: &Hit) -> String {
    match (hit.trigger, hit.why.as_str()) {
        (0, "") => "asked for".into(),
        (0, why) => format!("asked for ({why})"),
        (trigger, why) => format!("trigger {trigger} ({why})"),
    }
}

/// The snapshots of a recording, as a table.
pub fn taken(snapshots: &[Taken], start_ns: u64, out: &mut String) {
    if snapshots.is_empty() {
        return;
    }
    let titles = ("snapshot", "from", "to", "events", "hits");
    let _ = writeln!(
        out,
        "\n{:>8} {:>12} {:>12} {:>14} {:>8}  file, and why",
        titles.0, titles.1, titles.2, titles.3, titles.4
    );
    for one in snapshots {
        let (from, to) = (seconds(one.from_ns, start_ns), seconds(one.to_ns, start_ns));
        let (events, hits) = (grouped(one.events), grouped(one.hits));
        let file = if one.missing.is_empty() { &one.file } else { &one.missing };
        let why = if one.why.is_empty() { String::new() } else { format!(": {}", one.why) };
        let number = one.number;
        let _ =
            writeln!(out, "{number:>8} {from:>12} {to:>12} {events:>14} {hits:>8}  {file}{why}");
    }
}

fn seconds(ns: u64, start_ns: u64) -> String {
    format!("{:.3} s", ns.saturating_sub(start_ns) as f64 / 1e9)
}
