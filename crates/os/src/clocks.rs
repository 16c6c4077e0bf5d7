// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads several clocks of the kernel together.

use crate::missed;

/// Readings of one moment, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub monotonic: u64,
    pub wall: u64,
    /// Includes the time during which the machine was suspended.
    pub boot: u64,
    /// The uncertainty: how far apart the readings may be.
    pub within: u64,
}

/// The reading with the least uncertainty of several.
pub fn read() -> Clocks {
    let reading = |_| {
        let before = clock_ns(libc::CLOCK_MONOTONIC);
        let (wall, boot) = (clock_ns(libc::CLOCK_REALTIME), clock_ns(libc::CLOCK_BOOTTIME));
        let within = clock_ns(libc::CLOCK_MONOTONIC) - before;
        Clocks { monotonic: before + within / 2, wall, boot, within }
    };
    (0..8).map(reading).min_by_key(|c| c.within).unwrap_or_default()
}

/// CLOCK_MONOTONIC, the clock of all records, in ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: t is valid; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// (monotonic, wall clock, uncertainty), in ns: the best of several pairs.
pub fn clock_pair() -> (u64, u64, u64) {
    let readings = (0..16).map(|_| {
        let before = monotonic_ns();
        let wall = clock_ns(libc::CLOCK_REALTIME);
        let after = monotonic_ns();
        (before + (after - before) / 2, wall, after - before)
    });
    readings.min_by_key(|r| r.2).unwrap_or_default()
}

/// By how much the clocks of this time namespace differ from the kernel's: CLOCK_MONOTONIC
/// and CLOCK_BOOTTIME, in ns. Kernels without such namespaces have no such file.
pub fn time_namespace() -> (i128, i128) {
    let path = "/proc/self/timens_offsets";
    let offsets = missed::noting_unless_gone(path, std::fs::read_to_string(path));
    let offsets = offsets.unwrap_or_default();
    let of = |clock| {
        let line = offsets.lines().find_map(|line| line.strip_prefix(clock));
        let mut words = line.unwrap_or_default().split_whitespace().map(|w| w.parse().unwrap_or(0));
        let mut next = || i128::from(words.next().unwrap_or(0i64));
        1_000_000_000 * next() + next()
    };
    (of("monotonic"), of("boottime"))
}

/// CPU time of the calling thread, in ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}
