// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Tests with TSCs that step: the converted times of events.

use super::*;
use klogger_log::record::Header;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
/// The allowed error in a segment of several pairs: two readings, and the rounding of a slope.
const NEAR: u64 = 1_000;

/// A TSC from some time on.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    ns: u64,
    ticks: u64,
    khz: u64,
}

struct Machine {
    stretches: Vec<Stretch>,
    clock: Clock,
    now: u64,
}

impl Machine {
    fn new(ticks: u64, khz: u64) -> Machine {
        let now = 5_000 * MS;
        let stretches = vec![Stretch { ns: now, ticks, khz }];
        let clock = Clock::from(Pair { ticks, ns: now, within: 20 });
        Machine { stretches, clock, now }
    }

    fn ticks(&self, ns: u64) -> u64 {
        let s = self.stretches.iter().rev().find(|s| s.ns <= ns).unwrap();
        s.ticks + ((u128::from(ns - s.ns) * u128::from(s.khz)) / 1_000_000) as u64
    }

    fn step(&mut self, ticks: u64, khz: u64) {
        self.stretches.push(Stretch { ns: self.now, ticks, khz });
    }

    fn look(&mut self) {
        self.clock.add(Pair { ticks: self.ticks(self.now), ns: self.now, within: 20 });
    }

    /// Adds a pair at regular times.
    fn run(&mut self, ms: u64, every: u64) {
        for _ in 0..ms / every {
            self.now += every * MS;
            self.look();
        }
    }

    fn read(&self, ns: u64) -> u64 {
        Converter::of_counter(&self.clock).ns(self.ticks(ns) & TIME_MASK)
    }

    fn is_right(&self, ns: u64, within: u64) {
        let read = self.read(ns);
        assert!(
            read.abs_diff(ns) <= within,
            "{ns}: {read}, {} off, {:?}",
            read.abs_diff(ns),
            self.stretches
        );
    }
}

#[test]
fn a_counter_reset_to_zero_is_followed() {
    let mut m = Machine::new(900_000_000_000_000, 2_000_000);
    m.run(5_000, 200);
    let stepped = m.now;
    m.step(17, 2_000_000);
    m.run(3_000, 200);
    // Before the step, and after the first pair that showed it.
    (1..50).for_each(|n| m.is_right(stepped - n * 100 * MS, NEAR));
    (3..30).for_each(|n| m.is_right(stepped + n * 100 * MS, NEAR));
    // Between the two pairs, wrong by at most the time between them.
    (0..200).for_each(|n| m.is_right(stepped + n * MS, 200 * MS));
    assert!(m.clock.error_ns() < 1_000, "{}", m.clock.error_ns());
    assert_eq!(m.clock.khz(), 2_000_000);
}

#[test]
fn a_jump_ahead_is_a_step_and_adds_no_error() {
    let mut m = Machine::new(1_000_000, 2_500_000);
    m.run(2_000, 100);
    let stepped = m.now;
    // An hour of suspend, during which the counter ran and the clock did not.
    m.step(m.ticks(m.now) + 9_000_000_000_000, 2_500_000);
    m.run(60_000, 100);
    for n in 2..600 {
        m.is_right(stepped + n * 100 * MS, NEAR);
    }
    (1..19).for_each(|n| m.is_right(stepped - n * 100 * MS, NEAR));
    assert!(m.clock.error_ns() < 1_000, "{}", m.clock.error_ns());
}

#[test]
fn a_new_speed_is_measured() {
    let mut m = Machine::new(1_000_000, 2_000_000);
    m.run(2_000, 100);
    m.step(m.ticks(m.now), 3_000_000);
    m.run(3_000, 100);
    (0..20).for_each(|n| m.is_right(m.now - n * 100 * MS, NEAR));
    assert_eq!(m.clock.khz(), 3_000_000);
    assert_eq!(m.clock.past.len(), 1, "one step");
}

#[test]
fn a_counter_that_stood_still_goes_on() {
    let mut m = Machine::new(1_000_000, 2_000_000);
    m.run(2_000, 100);
    m.step(m.ticks(m.now), 1);
    m.run(2_000, 100);
    m.step(m.ticks(m.now), 2_000_000);
    m.run(2_000, 100);
    (0..10).for_each(|n| m.is_right(m.now - n * 100 * MS, NEAR));
}

proptest! {
    /// Events are converted as drain threads do it: after the next pair, in the order of their
    /// ring.
    #[test]
    fn whatever_the_counter_does_times_are_near(
        steps in proptest::collection::vec((0u64..1 << 30, 1_000_000u64..5_000_000, 300u64..5_000,
            1u64..200), 0..6),
        order in 0u64..64,
        every in 50u64..1_000,
    ) {
        let mut m = Machine::new(65 << 40, 2_400_000);
        m.run(2_000, every);
        let kinds = crate::reader::model::kinds();
        for (n, (ticks, khz, ms, after)) in steps.into_iter().enumerate() {
            // Back and forth, but never to values that it had before: these would be ambiguous.
            let ticks = ticks + (((n as u64 * 37 + order) % 64) << 40);
            let before = m.now;
            m.now += after * MS % (every * MS);
            let stepped = m.now;
            m.step(ticks, khz);
            let mut events: Vec<u64> = (before..stepped).step_by(7 * MS as usize).collect();
            m.now = before + every * MS;
            events.extend((stepped..m.now).step_by(7 * MS as usize));
            m.look();
            let record = |ns: &u64| Header::new(m.ticks(*ns) & TIME_MASK, 9).0.to_le_bytes();
            let mut bytes: Vec<u8> = events.iter().flat_map(record).collect();
            Converter::of_counter(&m.clock).records(&kinds, &mut bytes);
            let time = |b: &[u8; 8]| Header(u64::from_le_bytes(*b)).time48();
            let times: Vec<u64> = bytes.as_chunks().0.iter().map(time).collect();
            prop_assert!(times.is_sorted());
            for (time, event) in times.iter().zip(&events) {
                let off = time.abs_diff(*event);
                prop_assert!(off <= every * MS, "{} off by {}, looks {} apart", event, off,
                    every * MS);
            }
            m.run(ms + 4 * every, every);
            m.is_right(m.now - every * MS, NEAR);
            m.is_right(m.now - every * MS / 2, NEAR);
        }
    }
}
