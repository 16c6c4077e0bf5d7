// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads the TSC together with the kernel's clock.

use super::monotonic_ns;

/// (ticks, CLOCK_MONOTONIC in ns, uncertainty in ns): the best of several readings, all made after
/// everything that precedes the call.
#[cfg(target_arch = "x86_64")]
pub fn pair() -> (u64, u64, u64) {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    let ticks = || {
        // SAFETY: every x86-64 CPU has both instructions. The fences keep loads, which include
        // those of the clock, on their side.
        unsafe {
            _mm_lfence();
            let ticks = _rdtsc();
            _mm_lfence();
            ticks
        }
    };
    let readings = (0..16).map(|_| {
        let before = ticks();
        let ns = monotonic_ns();
        let after = ticks();
        (before + (after - before) / 2, ns, after - before)
    });
    let (ticks, ns, width) = readings.min_by_key(|r| r.2).unwrap_or_default();
    // An invariant TSC has at least 1 tick per ns on all CPUs, so this is not too small.
    (ticks, ns, width.div_ceil(2))
}

#[cfg(not(target_arch = "x86_64"))]
pub fn pair() -> (u64, u64, u64) {
    let ns = monotonic_ns();
    (ns, ns, 0)
}

/// Whether the TSC is invariant, that is, runs at a constant rate in all CPU states.
#[cfg(target_arch = "x86_64")]
pub fn is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    const ADVANCED_POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx >> 8 & 1 == 1
}

#[cfg(not(target_arch = "x86_64"))]
pub fn is_invariant() -> bool {
    false
}
