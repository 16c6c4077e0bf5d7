// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The clock of events, and which one is best on this machine.

use klogger_os as os;
use klogger_os::machine;

/// The clock of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// CLOCK_MONOTONIC, ns.
    Monotonic,
    Tsc,
}

/// What programs should read on this machine.
pub fn best_source() -> Source {
    let trusted = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    match os::tsc::is_invariant()
        && machine::clock_source().is_some_and(|source| trusted.contains(&source.as_str()))
    {
        true => Source::Tsc,
        false => Source::Monotonic,
    }
}
