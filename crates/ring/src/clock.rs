// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Converts times from the clock of events to the log clock. Programs and the kernel engine read
//! the TSC, which costs half of what the kernel's clock costs. The recorder reads both clocks
//! together, again and again; such a reading is a pair. Between pairs it interpolates on straight
//! lines.
//!
//! The lines are joined and rise. So no two events change their order as long as they are converted
//! by the lines of one clock.
//!
//! A TSC may step: back to zero when a machine was suspended, or to any value and another speed
//! when a virtual machine was migrated. Then a new segment of lines begins at the time of the last
//! pair before the step. Only times between this pair and the next are uncertain, by the time
//! between the two.

mod converter;
mod segment;
mod shared;
mod source;

pub use converter::Converter;
pub use shared::SharedClock;
pub use source::{Source, best_source};

use klogger_log::preamble::EventClock;
use klogger_log::record::{TIME_MASK, full_time};
use klogger_os as os;
use std::collections::VecDeque;
use std::sync::Arc;

/// Pairs that are kept; older times are on the line from the very first pair to the oldest of
/// these. Each drain of a ring makes a pair, and rings are drained every second.
const PAIRS: usize = 1 << 16;
/// A time may be a little ahead of the newest pair, because the TSCs of CPUs differ.
const AHEAD: u64 = 1 << 20;
/// Segments that are kept.
const STRETCHES: usize = 16;
/// A step: a deviation from the line that is larger than noise, and larger than the slewing of the
/// kernel's clock explains.
pub const STEP_NS: u64 = 10_000;
pub const SLEW_PPM: u64 = 1_000;
/// A shorter line does not give the speed of the TSC exactly enough.
const LONG_NS: u64 = 10_000_000;

/// Both clocks, read at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub ticks: u64,
    pub ns: u64,
    /// How far apart the readings may be, in ns.
    pub within: u64,
}

impl Pair {
    fn now() -> Pair {
        let (ticks, ns, within) = os::tsc::pair();
        Pair { ticks, ns, within }
    }
}

/// The TSC compared with the kernel's clock.
#[derive(Clone)]
pub struct Clock {
    first: Pair,
    /// There was a step; `first` was not read after it, but extrapolated with the speed before.
    guessed: bool,
    pairs: VecDeque<Pair>,
    error_ns: u64,
    /// Where the segment ends. Times that it maps beyond this belong to the next segment.
    until_ns: u64,
    /// Segments before the last steps.
    past: Vec<Arc<Clock>>,
}

impl Clock {
    pub fn start() -> Clock {
        Clock::from(Pair::now())
    }

    fn from(first: Pair) -> Clock {
        let (pairs, error_ns) = (VecDeque::from([first]), first.within);
        Clock { first, guessed: false, pairs, error_ns, until_ns: u64::MAX, past: Vec::new() }
    }

    /// Reads both clocks, and adds the pair.
    pub fn look(&mut self) {
        self.add(Pair::now());
    }

    /// A clock of one straight line; `None` if it does not rise, or if the clocks are further apart
    /// than possible.
    pub fn on_line(first: (u64, u64), newest: (u64, u64)) -> Option<Clock> {
        let rises = first.0 < newest.0 && first.1 < newest.1 && newest.0.max(newest.1) < 1 << 62;
        let pair = |(ticks, ns): (u64, u64)| Pair { ticks, ns, within: 0 };
        let (first, newest) = (pair(first), pair(newest));
        rises.then(|| Clock { pairs: VecDeque::from([first, newest]), ..Clock::from(first) })
    }

    fn newest(&self) -> Pair {
        self.pairs.back().copied().unwrap_or(self.first)
    }

    fn add(&mut self, pair: Pair) {
        let newest = self.newest();
        if pair.ns <= newest.ns {
            return;
        }
        let (off, noise) = self.deviation(pair);
        if off > noise || pair.ticks.saturating_add(AHEAD) < newest.ticks {
            return self.begin_anew(pair);
        }
        // Lines must rise. A pair that does not is dropped: the TSCs of CPUs differ a little.
        if pair.ticks <= newest.ticks {
            return;
        }
        self.error_ns = self.error_ns.max(pair.within + off);
        if self.pairs.len() == PAIRS {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
    }

    /// How far a new pair is from the extrapolated line, and how far it may be. The line must be as
    /// long as the way to the new pair, because otherwise the noise of two readings would be taken
    /// for a change of speed. `None` if there is no line of that length.
    fn deviation(&self, pair: Pair) -> (u64, u64) {
        let newest = self.newest();
        let way = pair.ns - newest.ns;
        let from = newest.ns.checked_sub(LONG_NS.max(way));
        let Some(base) = from.and_then(|from| self.at_or_before(from)) else { return (0, 0) };
        let noise = base.within
            + 2 * newest.within
            + pair.within
            + STEP_NS
            + way.saturating_mul(SLEW_PPM) / 1_000_000;
        (line(base, newest, pair.ticks).abs_diff(pair.ns), noise)
    }

    /// The TSC has stepped since the last pair. The new segment begins right after that pair:
    /// `first` is where the TSC was then, extrapolated back with the speed before.
    fn begin_anew(&mut self, pair: Pair) {
        let newest = self.newest();
        let (ticks, ns) = (newest.ticks - self.first.ticks, newest.ns - self.first.ns);
        let scaled = |n: u64, by: u64, to: u64| {
            (u128::from(n) * u128::from(by)).checked_div(to.into()).unwrap_or(0)
        };
        let since = scaled(pair.ns - newest.ns, ticks, ns).min(pair.ticks.into()) as u64;
        let began = pair.ns - scaled(since, ns, ticks).min((pair.ns - newest.ns).into()) as u64;
        let first = Pair { ticks: pair.ticks - since, ns: began, ..pair };
        let mut past = std::mem::take(&mut self.past);
        if past.len() == STRETCHES {
            past.remove(0);
        }
        let next = Clock {
            guessed: true,
            pairs: VecDeque::from([pair]),
            error_ns: self.error_ns,
            ..Clock::from(first)
        };
        let ended = Clock { until_ns: pair.ns, ..std::mem::replace(self, next) };
        past.push(Arc::new(ended));
        self.past = past;
    }

    fn at_or_before(&self, ns: u64) -> Option<Pair> {
        let later = self.pairs.partition_point(|p| p.ns <= ns);
        match later.checked_sub(1) {
            Some(at) => self.pairs.get(at).copied(),
            None => Some(self.first).filter(|p| p.ns <= ns && !self.guessed),
        }
    }

    /// The two pairs whose line a time is on: those around it; for a time outside, the first two or
    /// the last two.
    fn around(&self, ticks: u64) -> (Pair, Pair) {
        let later = self.pairs.partition_point(|p| p.ticks <= ticks);
        let last = self.pairs.len() - 1;
        match later {
            0 => (
                self.first,
                if self.first == self.pairs[0] { self.pairs[last.min(1)] } else { self.pairs[0] },
            ),
            _ if later <= last => (self.pairs[later - 1], self.pairs[later]),
            _ if last > 0 => (self.pairs[last - 1], self.pairs[last]),
            _ => (self.first, self.pairs[0]),
        }
    }

    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// The lines for times from `since` on; the last one continues beyond its end.
    fn part(&self, since: u64) -> Clock {
        let from = self.pairs.partition_point(|p| p.ticks <= since).saturating_sub(1);
        let from = from.min(self.pairs.len().saturating_sub(2));
        // A time ahead of all pairs belongs to a segment before this one.
        let from = if since > self.newest().ticks { 0 } else { from };
        let pairs = self.pairs.range(from..).copied().collect();
        let (first, guessed, error_ns, until_ns) =
            (self.first, self.guessed, self.error_ns, self.until_ns);
        Clock { first, guessed, pairs, error_ns, until_ns, past: self.past.clone() }
    }

    /// Whether a time is outside of this segment, and its distance from the end of the segment. The
    /// smallest is the most likely, because times to be converted are seldom old.
    fn unlikeness(&self, ticks: u64) -> (bool, u64) {
        let newest = self.newest().ticks;
        let within = (self.first.ticks..=newest.saturating_add(AHEAD)).contains(&ticks);
        (!within, newest.abs_diff(ticks))
    }

    /// The time of these 48 bits if it belongs to a segment before the last step.
    fn before_step(&self, ticks: u64, time48: u64) -> Option<u64> {
        let times = self.past.iter().map(|c| (c, full_time(base(c.newest().ticks), time48)));
        let (clock, time) = times.min_by_key(|(c, time)| c.unlikeness(*time))?;
        let (a, b) = clock.around(time);
        (clock.unlikeness(time) < self.unlikeness(ticks))
            .then(|| line(a, b, time).min(clock.until_ns))
    }

    /// A description for the log: `source` is what most programs read.
    pub fn event_clock(&self, source: Source) -> EventClock {
        match source {
            Source::Monotonic => EventClock { source: "clock_gettime".into(), khz: 0, error_ns: 0 },
            Source::Tsc => {
                EventClock { source: "tsc".into(), khz: self.khz(), error_ns: self.error_ns }
            }
        }
    }

    fn khz(&self) -> u64 {
        let (newest, first) =
            (self.newest(), if self.guessed { self.pairs[0] } else { self.first });
        let (ticks, ns) = (newest.ticks - first.ticks, newest.ns - first.ns);
        if ns == 0 {
            0
        } else {
            ((u128::from(ticks) * 1_000_000 + u128::from(ns) / 2) / u128::from(ns)) as u64
        }
    }

    /// Extends the error for times before the first pair: the speed of the TSC is known only as
    /// exactly as the two readings that it is computed from.
    pub fn extend_error(&mut self, ns: u64) {
        let newest = self.past.first().map_or(self.newest(), |past| past.newest());
        let first = self.past.first().map_or(self.first, |past| past.first);
        let (before, known) = (first.ns.saturating_sub(ns), newest.ns - first.ns);
        if before > 0 && known > 0 {
            let noise = u128::from(first.within + newest.within);
            let error = noise * u128::from(before) / u128::from(known);
            self.error_ns =
                self.error_ns.max(first.within + error.min(u64::MAX as u128 / 2) as u64);
        }
    }
}

/// The value at `ticks` of the line through two pairs.
fn line(a: Pair, b: Pair, ticks: u64) -> u64 {
    let (dt, dn) = (i128::from(b.ticks - a.ticks), i128::from(b.ns - a.ns));
    let ns = match dt {
        0 => a.ns.into(),
        _ => i128::from(a.ns) + (i128::from(ticks) - i128::from(a.ticks)) * dn / dt,
    };
    ns.clamp(0, i128::from(u64::MAX)) as u64
}

/// 48 bits before the latest time that can come after `now`.
fn base(now: u64) -> u64 {
    (now + AHEAD).saturating_sub(TIME_MASK)
}

#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
