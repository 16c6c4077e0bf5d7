// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From the clock of events to the log's. Programs and the kernel engine read the time-stamp counter, which costs half of
//! what the kernel's clock costs. The recorder reads both side by side again and again, and draws straight lines between
//! these pairs.
//!
//! The lines are joined, and rise: so no two events change places, as long as they are converted by lines of one clock.

use crate::ring::RecordKinds;
use crate::{host, sys};
use klogger_log::preamble::EventClock;
use klogger_log::record::{Header, TIME_MASK, full_time};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pairs that are kept; older times lie on the line from the first pair of all to the oldest of these. Every ring that is
/// emptied makes one, and rings are emptied every second.
const PAIRS: usize = 1 << 16;
/// A time may be a little ahead of the newest pair: CPUs read their counters a moment apart.
const AHEAD: u64 = 1 << 20;
/// The same, in an image of a machine that has crashed: nobody may have looked at the clock for so long.
const AHEAD_OF_CRASH: u64 = 1 << 44;
/// A line that is shorter says little about the counter's speed.
const LONG_NS: u64 = 10_000_000;

/// What the times of events are.
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

    /// One straight line; `None` if it does not rise, or if the clocks are further than any goes.
    pub fn on_line(first: (u64, u64), newest: (u64, u64)) -> Option<Clock> {
        let rises = first.0 < newest.0 && first.1 < newest.1 && newest.0.max(newest.1) < 1 << 62;
        let pair = |(ticks, ns): (u64, u64)| Pair { ticks, ns, within: 0 };
        let (first, newest) = (pair(first), pair(newest));
        rises.then(|| Clock { first, pairs: VecDeque::from([first, newest]), error_ns: 0 })
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

    /// The lines that times from `since` on are on; the last one goes on behind its end.
    fn part(&self, since: u64) -> Clock {
        let from = self.pairs.partition_point(|p| p.ticks <= since).saturating_sub(1);
        let from = from.min(self.pairs.len().saturating_sub(2));
        Clock { first: self.first, pairs: self.pairs.range(from..).copied().collect(), error_ns: self.error_ns }
    }

    /// For the log: `source` is what most programs read.
    pub fn about(&self, source: Source) -> EventClock {
        match source {
            Source::Monotonic => EventClock { source: "clock_gettime".into(), khz: 0, error_ns: 0 },
            Source::Tsc => EventClock { source: "tsc".into(), khz: self.khz(), error_ns: self.error_ns },
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

/// One clock of the threads that empty the rings of CPUs.
#[derive(Clone)]
pub struct SharedClock(Arc<Mutex<Clock>>);

impl SharedClock {
    pub fn start() -> SharedClock {
        SharedClock(Arc::new(Mutex::new(Clock::start())))
    }

    fn lock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is needed to convert times that are in hand already, of which the first has these low 48 bits. A copy: long
    /// conversions of one thread hold up no other.
    pub fn part(&self, first48: u64) -> Clock {
        let mut clock = self.lock();
        clock.look();
        clock.part(full_time(base(clock.newest().ticks), first48))
    }

    /// For the log.
    pub fn about(&self) -> EventClock {
        self.lock().about(Source::Tsc)
    }

    /// (ticks, ns) at the beginning.
    pub fn first(&self) -> (u64, u64) {
        let first = self.lock().first;
        (first.ticks, first.ns)
    }
}

/// 48 bits before what is ahead of every time that can come after `now`.
fn base(now: u64) -> u64 {
    (now + AHEAD).saturating_sub(TIME_MASK)
}

/// Converts times that were published before it was made.
pub struct Converter<'a> {
    clock: &'a Clock,
    source: Source,
    /// 48 bits before what is ahead of every time that can come, in the events' clock.
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
        Converter::until(clock, source, now)
    }

    /// Of times of the counter that are before the clock's newest pair.
    pub fn of_counter(clock: &'a Clock) -> Converter<'a> {
        Converter::until(clock, Source::Tsc, clock.newest().ticks)
    }

    /// Of times of the counter in a machine that has crashed, which may be far behind the clock's newest pair.
    pub fn of_crash(clock: &'a Clock) -> Converter<'a> {
        let newest = clock.newest().ticks;
        let base = (newest + AHEAD_OF_CRASH).saturating_sub(TIME_MASK);
        Converter { base, ..Converter::until(clock, Source::Tsc, newest) }
    }

    fn until(clock: &'a Clock, source: Source, now: u64) -> Converter<'a> {
        Converter { clock, source, base: base(now), segment: Segment::new(clock.around(now)) }
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

    /// Gives a record the log's time, and this id; returns the full time.
    pub fn header(&mut self, record: &mut [u8], id: u16) -> Option<u64> {
        let word = record.first_chunk_mut()?;
        let ns = self.ns(Header(u64::from_le_bytes(*word)).time48());
        *word = Header::new(ns, id).0.to_le_bytes();
        Some(ns)
    }

    /// The same for a full time which is a field of a record.
    pub fn field(&mut self, record: &mut [u8], offset: usize) -> Option<u64> {
        let word = record.get_mut(offset..)?.first_chunk_mut()?;
        let ns = self.ns(u64::from_le_bytes(*word) & TIME_MASK);
        *word = ns.to_le_bytes();
        Some(ns)
    }

    /// The same for all times of some records.
    pub fn records(&mut self, kinds: &RecordKinds, bytes: &mut [u8]) {
        let mut rest = bytes;
        while let (Some(header), Some(size)) = (Header::read(rest), kinds.sizes.size(rest)) {
            let (record, after) = rest.split_at_mut(size);
            self.header(record, header.id());
            if header.id() == kinds.lost_id {
                self.field(record, kinds.lost_since_offset);
            }
            rest = after;
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
    fn a_part_of_a_clock_gives_the_same_times() {
        // Unequal steps, so that each line has a slope of its own.
        let mut c = Clock::from(pair(1_000, 1_000_000));
        (1..500u64).for_each(|n| c.add(pair(1_000 + n * 2_000, 1_000_000 + n * 1_000 + n % 7 * 20)));
        for since in [0, 1_000, 1_001, 3_000, 77_777, 998_999, 999_000] {
            let part = c.part(since);
            let times = (since.max(1_000)..1_010_000).step_by(611);
            times.for_each(|t| assert_eq!(on(&part, t), on(&c, t), "{t} since {since}"));
            assert!(part.pairs.len() <= 2 + (999_000 - since) as usize / 2_000, "{since}");
        }
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

    #[test]
    fn all_times_of_records_are_converted() {
        let (mut c, kinds) = (clock(5_000, [1_000, 2_000, 3_000]), crate::ring::tests::kinds());
        let record = |ticks: u64, id: u16| Header::new(ticks, id).0.to_le_bytes();
        let mut lost = record(9_000, kinds.lost_id).to_vec();
        lost.extend(7u64.to_le_bytes());
        lost.extend(8_500u64.to_le_bytes());
        let mut bytes = [&record(5_400, 9)[..], &lost, &record(10_000, 9)].concat();
        let (newest, segment) = (c.newest().ticks, Segment::new(c.around(0)));
        let mut convert = Converter { clock: &mut c, source: Source::Tsc, base: base(newest), segment };
        convert.records(&kinds, &mut bytes);
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        let at = |n: usize| Header(words[n]).time48();
        assert_eq!([at(0), at(1), words[2], words[3], at(4)], [1_000_200, 1_002_000, 7, 1_001_750, 1_002_500]);
        assert_eq!(Header(words[1]).id(), kinds.lost_id);
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
