// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The segments of a recording, as `klogger info` shows them.

use super::layout::grouped;
use super::times::duration;
use klogger_log::reader::SegmentFile;
use std::fmt::Write;

/// Rows of the table at most, half of them of the oldest segments.
const ROWS_MAX: usize = 20;

/// How many there are, and their numbers; empty for a log in one file.
pub fn line(segments: &[SegmentFile]) -> String {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return String::new();
    };
    let count = match segments.len() {
        1 => "1 segment".into(),
        n => format!("{} segments", grouped(n as u64)),
    };
    match first.number == last.number {
        true => format!("{count}, number {}", first.number),
        false => format!("{count}, number {} to {}", first.number, last.number),
    }
}

/// A row for each; of many, the oldest and the newest. Times are since `start_ns`.
pub fn table(segments: &[SegmentFile], start_ns: u64) -> String {
    let mut out = String::new();
    if segments.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "\n{:>7} {:>14} {:>12} {:>14} {:>16}  state",
        "segment", "begins", "lasts", "logged", "bytes"
    );
    let left_out = segments.len().saturating_sub(ROWS_MAX);
    let from = if left_out > 0 { ROWS_MAX / 2 } else { segments.len() };
    for (n, segment) in segments.iter().enumerate() {
        if n == from {
            let _ = writeln!(out, "    ... {} more", grouped(left_out as u64));
        }
        if (from..from + left_out).contains(&n) {
            continue;
        }
        let begins = (segment.start_ns as i128 - start_ns as i128) as f64 / 1e9;
        let state = match (segment.complete, segment.being_written) {
            (true, _) => "complete",
            (false, true) => "being written",
            (false, false) => "without its end",
        };
        let _ = writeln!(
            out,
            "{:>7} {begins:>12.3} s {:>12} {:>14} {:>16}  {state}",
            segment.number,
            duration(segment.end_ns - segment.start_ns),
            grouped(segment.events),
            grouped(segment.bytes)
        );
    }
    out
}
