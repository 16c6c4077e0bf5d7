// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kernel's clocks beside each other.

use super::clock_ns;

/// Read at one moment, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub monotonic: u64,
    pub wall: u64,
    /// Runs on while the machine sleeps.
    pub boot: u64,
    /// How far apart the readings may be.
    pub within: u64,
}

/// The closest of several readings.
pub fn read() -> Clocks {
    let reading = |_| {
        let before = clock_ns(libc::CLOCK_MONOTONIC);
        let (wall, boot) = (clock_ns(libc::CLOCK_REALTIME), clock_ns(libc::CLOCK_BOOTTIME));
        let within = clock_ns(libc::CLOCK_MONOTONIC) - before;
        Clocks { monotonic: before + within / 2, wall, boot, within }
    };
    (0..8).map(reading).min_by_key(|c| c.within).unwrap_or_default()
}
