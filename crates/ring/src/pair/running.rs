// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tests: rings are read while a writer, in another thread, goes on. That is at least as hard as
//! interrupts on the reader's own CPU.

use super::*;
use crate::reader::model::{kinds, record};
use crate::{CONTROL, EVENTS_MAX, GRID, LOST, Rings};
use klogger_os::Mapping;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

const SIZE: usize = 1 << 16;
const ID: u16 = 10;
const NEST: usize = 40;
const FIRST: usize = 64;
const ATTEMPTS: usize = LOST + 8 * EVENTS_MAX + 8 * ID as usize;

/// The steps of a writer in overwrite mode (klogger.bpf.h). The time of an event is its serial
/// number.
fn write(ring: &Mapping, stop: &AtomicBool) {
    let (mut head, mut time) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        ring.word(NEST).store(1, Ordering::Relaxed);
        let bytes = record(ID, time);
        let end = head + bytes.len();
        ring.word(0).store(end as u64, Ordering::Relaxed);
        ring.word(ATTEMPTS).store(time + 1, Ordering::Relaxed);
        let part = SIZE / GRID;
        if head / part != end / part {
            ring.word(FIRST + 8 * (end / part % GRID)).store(end as u64, Ordering::Relaxed);
        }
        // Pairs with take_running().
        fence(Ordering::Release);
        for (n, word) in bytes.chunks_exact(8).enumerate().rev() {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            ring.word(CONTROL + head % SIZE + 8 * n).store(word, Ordering::Release);
        }
        ring.word(NEST).store(0, Ordering::Release);
        (head, time) = (end, time + 1);
        // On a machine with one free CPU, the reader could see nothing but overwritten records.
        if time.is_multiple_of(1000) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// Stops the writer, also when a check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_hit_that_is_at_work_at_every_look_is_told() {
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(Rings::stride(SIZE) as u64).unwrap();
    let mapping = || Mapping::new(memory.as_fd(), Rings::stride(SIZE)).unwrap();
    let (shared, rings) = (mapping(), Rings::new(mapping(), SIZE, 1, 10));
    let reader = CpuReader::new(rings.reader(0), None);
    shared.word(ATTEMPTS).store(7, Ordering::Relaxed);
    let look = |looks| {
        let still = reader.still(&[ID], looks);
        (still.attempts, still.busy)
    };
    assert_eq!(look(1), (7, false));
    shared.word(NEST).store(1, Ordering::Relaxed);
    assert_eq!(look(100), (7, true));
}

#[test]
fn records_are_whole_and_numbered_while_a_writer_goes_on() {
    let (kinds, memory, stop) = (kinds(), tempfile::tempfile().unwrap(), AtomicBool::new(false));
    memory.set_len(Rings::stride(SIZE) as u64).unwrap();
    let mapping = || Mapping::new(memory.as_fd(), Rings::stride(SIZE)).unwrap();
    let (shared, rings) = (Arc::new(mapping()), Rings::new(mapping(), SIZE, 1, 10));
    let mut reader = CpuReader::new(rings.reader(0), None);
    reader.open(true);
    std::thread::scope(|scope| {
        scope.spawn(|| write(&shared, &stop));
        let _stop = Stop(&stop);
        let (mut next, mut seen) = (0, 0);
        for turn in 0.. {
            if turn >= 200 && seen > 0 {
                break;
            }
            let mut out = Vec::new();
            let (taken, still) = reader.take_running(&kinds, &[ID], &mut out).unwrap();
            let first = still.attempts - taken.serials;
            let times = records(&kinds, &out).map(|(_, time)| time);
            assert!(times.eq(first..still.attempts), "{taken:?} {still:?}");
            assert!(first >= next, "no record comes twice");
            (next, seen) = (still.attempts, seen + taken.records);
        }
    });
}
