// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! When a ring was drained late, and why, for the ledger.

use klogger_log::ledger::{Entry, Key};
use std::time::Duration;

/// The longest time that records wait in a ring.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A ring is drained late if it was full for this time, or waited this long after [`LONGEST_WAIT`].
const LATE_NS: u64 = 250_000_000;

/// A time during which a ring was not drained.
#[derive(Debug, PartialEq, Eq)]
pub struct Late {
    pub from: u64,
    pub to: u64,
    /// No buffer was free.
    starved: bool,
}

impl Late {
    /// The delay, if there was one. `looked_ns`: when the ring was drained last; `full_ns`: since
    /// when it has lost events.
    pub fn of(looked_ns: u64, full_ns: Option<u64>, now: u64, starved: bool) -> Option<Late> {
        let is_over = now.saturating_sub(looked_ns) > LONGEST_WAIT.as_nanos() as u64 + LATE_NS;
        // Losses before the last drain do not show a delay now.
        let full_ns = full_ns.filter(|full| *full > looked_ns);
        let is_late = is_over || full_ns.is_some_and(|full| now.saturating_sub(full) > LATE_NS);
        is_late.then_some(Late { from: looked_ns, to: now, starved })
    }

    pub fn entry(&self, cpu: u16) -> Entry {
        let ms = (self.to - self.from) / 1_000_000;
        let why = if self.starved {
            "because no buffer was free"
        } else {
            "because its thread did not run"
        };
        let entry = Entry::new(Key::DrainLate).cpu(cpu).between(self.from, self.to);
        entry.detail(&format!("not drained for {ms} ms, {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_late_if_it_was_full_or_waited_for_too_long() {
        const MS: u64 = 1_000_000;
        let late = |full: Option<u64>, now: u64| {
            Late::of(1000 * MS, full.map(|ms| ms * MS), now * MS, false)
        };
        let from_to =
            |from: u64, to: u64| Some(Late { from: from * MS, to: to * MS, starved: false });
        assert_eq!(late(None, 2250), None);
        assert_eq!(late(None, 2251), from_to(1000, 2251));
        assert_eq!(late(Some(1100), 1300), None);
        assert_eq!(late(Some(1100), 1351), from_to(1000, 1351));
        assert_eq!(late(Some(900), 1351), None, "lost before the last drain");
    }
}
