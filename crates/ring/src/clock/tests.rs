// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
use super::segment::Segment;
use super::*;
use klogger_log::record::Header;
use proptest::prelude::*;

fn pair(ticks: u64, ns: u64) -> Pair {
    Pair { ticks, ns, within: 20 }
}

/// A counter of 2 ticks per ns which began at `ticks`.
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
    // From here on 500 ppm slower, which is how far the kernel may slew its clock.
    let (ticks, ns) = (200_000_000, 101_000_000);
    (1..=100u64).for_each(|n| c.add(pair(ticks + n * 2_000_000, ns + n * 999_500)));
    assert!(on(&c, ticks + 50 * 2_000_000 + 1_000_000).abs_diff(ns + 50 * 999_500 + 499_750) <= 1);
    // Each new pair was up to 500 ns from the extrapolation of the old line.
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
    assert!(os::monotonic_ns().abs_diff(ns) < 10_000_000_000, "{ns}");
    let mut convert = Converter::new(&mut c, Source::Monotonic);
    let now = os::monotonic_ns();
    assert_eq!(convert.ns(now & TIME_MASK), now);
}

#[test]
fn all_times_of_records_are_converted() {
    let (mut c, kinds) = (clock(5_000, [1_000, 2_000, 3_000]), crate::reader::model::kinds());
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
    assert_eq!(
        [at(0), at(1), words[2], words[3], at(4)],
        [1_000_200, 1_002_000, 7, 1_001_750, 1_002_500]
    );
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
