// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
use super::*;
use crate::reader::model::{kinds, record};
use crate::{CONTROL, Rings};
use klogger_os::Mapping;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn nested_records_are_merged_by_time() {
    let bytes = |times: &[u64]| times.iter().flat_map(|t| record(9, *t)).collect::<Vec<u8>>();
    let mut out = bytes(&[1, 10, 20, 30]);
    let mut taken = Taken::default();
    put_in(&kinds(), &mut out, 8, &bytes(&[5, 25, 40]), &mut taken);
    assert_eq!(out, bytes(&[1, 5, 10, 20, 25, 30, 40]));
    assert_eq!((taken.serials, taken.records, taken.bytes, taken.lost), (3, 3, 24, 0));
}

/// Records of 8 bytes, in a ring at `at`.
fn write(shared: &Mapping, at: usize, size: usize, times: Range<u64>) {
    let head = shared.word(at);
    for time in times {
        let to = head.fetch_add(8, Ordering::Relaxed) as usize % size;
        shared.word(at + CONTROL + to).store(time << 16 | 9, Ordering::Relaxed);
    }
}

/// The main ring is full of older records; meanwhile the nested ring gets more than it can hold.
#[test]
fn a_reader_that_is_behind_keeps_the_order() {
    let (kinds, size) = (kinds(), 1 << 20);
    let memory = tempfile::tempfile().unwrap();
    let nested_at = Rings::stride(size);
    memory.set_len((nested_at + Rings::stride(NESTED)) as u64).unwrap();
    let shared = Arc::new(Mapping::new(memory.as_fd(), nested_at + Rings::stride(NESTED)).unwrap());
    let ring = |at: usize, size: usize| RingReader::of_kernel(shared.clone(), at, size);
    let mut reader = CpuReader::new(ring(0, size), Some(ring(nested_at, NESTED)));
    let mut out = Vec::new();
    reader.open(false);
    write(&shared, 0, size, 1..100_001);
    for n in 0..10 {
        write(&shared, nested_at, NESTED, 100_001 + n * 8000..100_001 + (n + 1) * 8000);
        reader.take(&kinds, &mut out, 1 << 15);
    }
    while reader.fill() > 0 {
        reader.take(&kinds, &mut out, 1 << 15);
    }
    let times: Vec<u64> = records(&kinds, &out).map(|(_, time)| time).collect();
    assert_eq!(times.len(), 180_000);
    assert!(times.is_sorted());
}

/// A new reader continues from any point of `take` at which the old reader was killed.
#[test]
fn the_next_reader_continues_where_the_last_one_was_killed() {
    let kinds = kinds();
    let memory = tempfile::tempfile().unwrap();
    let bytes = Rings::stride(NESTED);
    memory.set_len(2 * bytes as u64).unwrap();
    let mapping = || Mapping::new(memory.as_fd(), 2 * bytes).unwrap();
    let rings = || Rings::new(mapping(), NESTED, 2, 0);
    let reader = || CpuReader::new(rings().reader(0), Some(rings().reader(1)));
    let shared = mapping();
    let write = |ring: usize, times| write(&shared, ring * bytes, NESTED, times);
    let mut first = reader();
    first.open(false);
    write(0, 0..3000);
    write(1, 1000..1007);
    let taken = first.take(&kinds, &mut Vec::new(), NESTED);
    assert_eq!(taken.serials, 3007);
    write(0, 3000..9000);
    write(1, 5000..5011);
    // Killed after it stored its position and zeroed half of the records, up to the middle of one.
    first.nested.as_mut().unwrap().copy(&kinds, &mut Vec::new(), 8 * 4);
    first.main.copy(&kinds, &mut Vec::new(), 8 * 2000);
    first.main.leave(Note { serials: 3007 + 4 + 2000, ..first.here() });
    for at in (3000..4000).map(|n| CONTROL + n * 8 % NESTED) {
        shared.word(at).store(0, Ordering::Relaxed);
    }
    let (mut second, mut out) = (reader(), Vec::new());
    assert_eq!(second.resume(), 5011);
    let taken = second.copy_all(&kinds, &mut out);
    assert_eq!((taken.serials, taken.torn), (4000 + 7, false));
    let times: Vec<u64> = records(&kinds, &out).map(|(_, time)| time).collect();
    assert_eq!((times[0], times.last()), (5000, Some(&8999)));
    assert!(times.is_sorted());
    // Reading has changed nothing.
    assert_eq!(reader().resume(), 5011);
}

#[test]
fn times_wrap() {
    assert!(later(5, 3) && !later(3, 5) && !later(4, 4));
    assert!(later(1, (1 << 48) - 1) && !later((1 << 48) - 1, 1));
}
