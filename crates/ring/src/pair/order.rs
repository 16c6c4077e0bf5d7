// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The order of records by time.

use crate::{RecordKinds, Taken};

/// The records in `bytes`, each with the low 48 bits of its time; up to the first invalid one.
pub fn records<'a>(
    kinds: &'a RecordKinds,
    bytes: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], u64)> {
    kinds.sizes.records(bytes).map(|record| (record.bytes, record.header.time48()))
}

/// The low 48 bits of the time of the last one.
pub fn last_time(kinds: &RecordKinds, bytes: &[u8]) -> Option<u64> {
    records(kinds, bytes).last().map(|(_, time)| time)
}

/// Where the last record begins before which all are in the order of time, or the first record out
/// of order. For records the last of which may be invalid.
pub fn last_in_order(kinds: &RecordKinds, bytes: &[u8]) -> Option<usize> {
    let (mut at, mut found, mut before) = (0, None, None);
    for (record, time) in records(kinds, bytes) {
        found = Some(at);
        if before.is_some_and(|b| later(b, time)) {
            break;
        }
        before = Some(time);
        at += record.len();
    }
    found
}

/// Whether `a` is later than `b`, both of 48 bits, of which one may have wrapped.
pub fn later(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) << 16) as i64 > 0
}

/// Merges `part` into `out[start..]` by time, and counts its records.
pub fn put_in(
    kinds: &RecordKinds,
    out: &mut Vec<u8>,
    start: usize,
    part: &[u8],
    taken: &mut Taken,
) {
    if part.is_empty() {
        return;
    }
    let main = out.split_off(start);
    let mut nested = records(kinds, part).peekable();
    for (record, time) in records(kinds, &main) {
        while let Some((earlier, _)) = nested.next_if(|(_, t)| later(time, *t)) {
            out.extend_from_slice(earlier);
        }
        out.extend_from_slice(record);
    }
    nested.for_each(|(record, _)| out.extend_from_slice(record));
    for (record, _) in records(kinds, part) {
        taken.count(kinds, record);
    }
    taken.bytes += part.len() as u64;
}
