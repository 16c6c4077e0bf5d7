// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One clock for several threads.

use super::{AHEAD, Clock, Source, base};
use klogger_log::preamble::EventClock;
use klogger_log::record::{TIME_MASK, full_time};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One clock for all threads that drain the rings of CPUs.
#[derive(Clone)]
pub struct SharedClock(Arc<Mutex<Clock>>);

impl SharedClock {
    pub fn start() -> SharedClock {
        SharedClock(Arc::new(Mutex::new(Clock::start())))
    }

    fn lock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pair, so that times which are converted much later are between pairs close to each
    /// other.
    pub fn look(&self) {
        self.lock().look();
    }

    /// A copy of the lines for records that were taken out already, the first of which has these
    /// low 48 bits. With a copy, a long conversion delays no other thread.
    pub fn part(&self, first48: u64) -> Clock {
        let mut clock = self.lock();
        clock.look();
        clock.part(full_time(base(clock.newest().ticks), first48))
    }

    /// The span of time that the low 48 bits of a time can cover, ns.
    pub fn reach_ns(&self) -> u64 {
        let ticks = u128::from(TIME_MASK - AHEAD);
        let ns = (ticks * 1_000_000).checked_div(self.lock().khz().into());
        ns.and_then(|ns| ns.try_into().ok()).unwrap_or(u64::MAX)
    }

    /// For the log.
    pub fn event_clock(&self) -> EventClock {
        self.lock().event_clock(Source::Tsc)
    }

    /// (ticks, ns) at the beginning.
    pub fn first(&self) -> (u64, u64) {
        let first = self.lock().first;
        (first.ticks, first.ns)
    }
}
