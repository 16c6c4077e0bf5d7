// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From a program's clock to the log's. A program reads the time-stamp counter, which costs half of what the kernel's
//! clock costs. The recorder reads both side by side again and again, and draws straight lines between these pairs.
//!
//! The lines are joined, and rise: so no two events of a thread change places.

use crate::{host, sys};
use klogger_log::preamble::UserClock;
use klogger_log::record::{TIME_MASK, full_time};
use std::collections::VecDeque;

/// Pairs that are kept; older times lie on the line from the first pair of all to the oldest of these.
const PAIRS: usize = 4096;
/// A time may be a little ahead of the newest pair: CPUs read their counters a moment apart.
const AHEAD: u64 = 1 << 20;
/// A line that is shorter says little about the counter's speed.
const LONG_NS: u64 = 10_000_000;

/// What a program's times are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// CLOCK_MONOTONIC, ns.
    Monotonic,
    Tsc,
}

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub ticks: u64,
    pub ns: u64,
    /// How far apart the readings may be, in ns.
    pub within: u64,
}

impl Pair {
    fn now() -> Pair {
        let (ticks, ns, within) = sys::tsc::pair();
        Pair { ticks, ns, within }
    }
}

/// The counter's way beside the kernel's clock.
pub struct Clock {
    first: Pair,
    pairs: VecDeque<Pair>,
    error_ns: u64,
}

/// What programs should read on this machine.
pub fn best_source() -> Source {
    let trusted = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    match sys::tsc::is_invariant() && trusted.contains(&host::clock_source().as_str()) {
        true => Source::Tsc,
        false => Source::Monotonic,
    }
}

impl Clock {
    pub fn start() -> Clock {
        Clock::from(Pair::now())
    }

    fn from(first: Pair) -> Clock {
        Clock { first, pairs: VecDeque::from([first]), error_ns: first.within }
    }

    /// Reads both clocks.
    pub fn look(&mut self) {
        self.add(Pair::now());
    }

    fn newest(&self) -> Pair {
        self.pairs.back().copied().unwrap_or(self.first)
    }

    fn add(&mut self, pair: Pair) {
        let newest = self.newest();
        // Lines must rise. A pair that does not fit in is one too many.
        if pair.ticks <= newest.ticks || pair.ns <= newest.ns {
            return;
        }
        self.error_ns = self.error_ns.max(pair.within + self.deviation(pair));
        if self.pairs.len() == PAIRS {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
    }

    /// How far a new pair is from where the line before it leads: a line that is as long as the way to it, or else the
    /// noise of two readings would be taken for a change of speed. None of that length: not known.
    fn deviation(&self, pair: Pair) -> u64 {
        let newest = self.newest();
        let long = LONG_NS.max(pair.ns - newest.ns);
        let from = newest.ns.checked_sub(long);
        let Some(base) = from.and_then(|from| self.at_or_before(from)) else { return 0 };
        line(base, newest, pair.ticks).abs_diff(pair.ns)
    }

    fn at_or_before(&self, ns: u64) -> Option<Pair> {
        let later = self.pairs.partition_point(|p| p.ns <= ns);
        match later.checked_sub(1) {
            Some(at) => self.pairs.get(at).copied(),
            None => Some(self.first).filter(|p| p.ns <= ns),
        }
    }

    /// The two pairs whose line a time is on: those around it; the first two, or the last two, for one outside.
    fn around(&self, ticks: u64) -> (Pair, Pair) {
        let later = self.pairs.partition_point(|p| p.ticks <= ticks);
        let last = self.pairs.len() - 1;
        match later {
            0 => (self.first, if self.first == self.pairs[0] { self.pairs[last.min(1)] } else { self.pairs[0] }),
            _ if later <= last => (self.pairs[later - 1], self.pairs[later]),
            _ if last > 0 => (self.pairs[last - 1], self.pairs[last]),
            _ => (self.first, self.pairs[0]),
        }
    }

    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// For the log: `source` is what most programs read.
    pub fn about(&self, source: Source) -> UserClock {
        match source {
            Source::Monotonic => UserClock { source: "clock_gettime".into(), khz: 0, error_ns: 0 },
            Source::Tsc => UserClock { source: "tsc".into(), khz: self.khz(), error_ns: self.error_ns },
        }
    }

    fn khz(&self) -> u64 {
        let newest = self.newest();
        let (ticks, ns) = (newest.ticks - self.first.ticks, newest.ns - self.first.ns);
        if ns == 0 { 0 } else { ((u128::from(ticks) * 1_000_000 + u128::from(ns) / 2) / u128::from(ns)) as u64 }
    }

    /// How far from the truth a time before the first pair may be: the counter's speed is known no better than the two
    /// readings that it follows from.
    pub fn extend_error(&mut self, ns: u64) {
        let newest = self.newest();
        let (before, known) = (self.first.ns.saturating_sub(ns), newest.ns - self.first.ns);
        if before > 0 && known > 0 {
            let noise = u128::from(self.first.within + newest.within);
            let error = noise * u128::from(before) / u128::from(known);
            self.error_ns = self.error_ns.max(self.first.within + error.min(u64::MAX as u128 / 2) as u64);
        }
    }
}

/// Where the line through two pairs is at `ticks`.
fn line(a: Pair, b: Pair, ticks: u64) -> u64 {
    let (dt, dn) = (i128::from(b.ticks - a.ticks), i128::from(b.ns - a.ns));
    let ns = match dt {
        0 => a.ns.into(),
        _ => i128::from(a.ns) + (i128::from(ticks) - i128::from(a.ticks)) * dn / dt,
    };
    ns.clamp(0, i128::from(u64::MAX)) as u64
}

/// Converts times that programs have published before it was made.
pub struct Converter<'a> {
    clock: &'a Clock,
    source: Source,
    /// 48 bits before what is ahead of every time that can come, in the program's clock.
    base: u64,
    segment: Segment,
}

/// A line, prepared for many times on it.
struct Segment {
    a: Pair,
    b: Pair,
    /// ns in a tick, 32 bits of them behind the point, so that a time is at most 1 ns too early; 0 if the line is too
    /// long for that.
    slope: u64,
}

impl Segment {
    fn new((a, b): (Pair, Pair)) -> Segment {
        let (ticks, ns) = (b.ticks - a.ticks, b.ns - a.ns);
        let short = (1..1 << 32).contains(&ticks) && ns < 1 << 32;
        Segment { a, b, slope: if short { (ns << 32) / ticks } else { 0 } }
    }

    fn holds(&self, ticks: u64) -> bool {
        (self.a.ticks..=self.b.ticks).contains(&ticks)
    }

    /// A division is as dear as all the rest that is done with a record.
    fn at(&self, ticks: u64) -> u64 {
        match self.slope != 0 && self.holds(ticks) {
            true => self.a.ns + ((u128::from(ticks - self.a.ticks) * u128::from(self.slope)) >> 32) as u64,
            false => line(self.a, self.b, ticks),
        }
    }
}

impl<'a> Converter<'a> {
    /// Takes a new pair, which is later than all that is in hand already: so those times are between pairs.
    pub fn new(clock: &'a mut Clock, source: Source) -> Converter<'a> {
        let now = match source {
            Source::Monotonic => sys::monotonic_ns(),
            Source::Tsc => {
                clock.look();
                clock.newest().ticks
            }
        };
        let segment = Segment::new(clock.around(now));
        Converter { clock, source, base: (now + AHEAD).saturating_sub(TIME_MASK), segment }
    }

    /// The full time, ns of the log's clock, from its low 48 bits.
    pub fn ns(&mut self, time48: u64) -> u64 {
        let time = full_time(self.base, time48);
        match self.source {
            Source::Monotonic => time,
            Source::Tsc => {
                if !self.segment.holds(time) {
                    self.segment = Segment::new(self.clock.around(time));
                }
                self.segment.at(time)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(ticks: u64, ns: u64) -> Pair {
        Pair { ticks, ns, within: 20 }
    }

    /// A counter of 2 ticks in a ns which began at `ticks`.
    fn clock(ticks: u64, ns: impl IntoIterator<Item = u64>) -> Clock {
        let mut clock = Clock::from(pair(ticks, 1_000_000));
        ns.into_iter().for_each(|n| clock.add(pair(ticks + 2 * n, 1_000_000 + n)));
        clock
    }

    fn on(clock: &Clock, ticks: u64) -> u64 {
        Segment::new(clock.around(ticks)).at(ticks)
    }

    #[test]
    fn a_steady_counter_is_followed_exactly() {
        let c = clock(5_000, (1..20_000).map(|n| n * 100_000));
        for n in [0, 1, 77, 99_999, 100_000, 123_456_789, 1_999_900_000] {
            assert_eq!(on(&c, 5_000 + 2 * n), 1_000_000 + n, "{n}");
        }
        assert_eq!(on(&c, 4_000), 999_500);
        assert_eq!((c.khz(), c.error_ns()), (2_000_000, 20));
    }

    #[test]
    fn a_change_of_speed_is_followed_and_measured() {
        let mut c = clock(0, (1..=100).map(|n| n * 1_000_000));
        // From here on 500 ppm slower, as the kernel may let its clock run to set it.
        let (ticks, ns) = (200_000_000, 101_000_000);
        (1..=100u64).for_each(|n| c.add(pair(ticks + n * 2_000_000, ns + n * 999_500)));
        assert!(on(&c, ticks + 50 * 2_000_000 + 1_000_000).abs_diff(ns + 50 * 999_500 + 499_750) <= 1);
        // Each new pair was up to 500 ns from where the line of old speed would have led.
        assert!((500..=540).contains(&c.error_ns()), "{}", c.error_ns());
    }

    #[test]
    fn noise_of_readings_is_not_taken_for_a_change_of_speed() {
        let noisy = (1..5_000u64).map(|n| (n * 100_000, n * 100_000 + (n * 7919) % 31));
        let mut c = Clock::from(pair(0, 0));
        noisy.for_each(|(ticks, ns)| c.add(pair(ticks, ns)));
        assert!(c.error_ns() <= 20 + 62, "{}", c.error_ns());
    }

    #[test]
    fn pairs_that_run_backwards_are_left_out() {
        let mut c = clock(0, [1_000, 2_000]);
        c.add(pair(3_999, 1_003_000));
        c.add(pair(5_000, 1_001_000));
        assert_eq!(c.newest(), pair(4_000, 1_002_000));
    }

    #[test]
    fn the_far_past_is_as_uncertain_as_the_speed() {
        let mut c = clock(0, [200_000_000]);
        c.extend_error(1_000_000);
        assert_eq!(c.error_ns(), 20);
        let mut c = Clock::from(pair(0, 3_600_000_000_000));
        c.add(pair(400_000_000, 3_600_200_000_000));
        c.extend_error(0);
        assert_eq!(c.error_ns(), 20 + 40 * 3_600_000_000_000 / 200_000_000);
    }

    #[test]
    fn times_of_48_bits_are_full_again() {
        let mut c = Clock::start();
        std::thread::sleep(std::time::Duration::from_millis(2));
        c.look();
        let now = c.newest().ticks;
        let mut convert = Converter::new(&mut c, Source::Tsc);
        let ns = convert.ns(now & TIME_MASK);
        let earlier = convert.ns(now.wrapping_sub(1 << 20) & TIME_MASK);
        assert!(earlier < ns, "{earlier} {ns}");
        assert!(sys::monotonic_ns().abs_diff(ns) < 10_000_000_000, "{ns}");
        let mut convert = Converter::new(&mut c, Source::Monotonic);
        let now = sys::monotonic_ns();
        assert_eq!(convert.ns(now & TIME_MASK), now);
    }

    proptest! {
        #[test]
        fn order_is_kept(steps in proptest::collection::vec((1u64..1_000_000, 1u64..1_000_000), 2..50),
                         mut times in proptest::collection::vec(0u64..60_000_000, 2..100)) {
            let mut c = Clock::from(pair(1_000, 1_000_000_000));
            for (ticks, ns) in steps {
                let n = c.newest();
                c.add(pair(n.ticks + ticks, n.ns + ns));
            }
            times.sort_unstable();
            let ns: Vec<u64> = times.iter().map(|t| on(&c, *t)).collect();
            prop_assert!(ns.is_sorted());
        }
    }
}
