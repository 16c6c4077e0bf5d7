// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Watches the machine's clocks and CPUs during a recording. The kernel does not notify the
//! recorder of changes, so it compares clocks and CPUs a few times a second, when it is awake
//! anyway. A change happened between two samples.
//!
//! Events carry CLOCK_MONOTONIC. It is slewed together with the wall clock, so the difference of
//! the two changes only when the wall clock is set, or when the machine sleeps, which
//! CLOCK_BOOTTIME counts as well.

use klogger_log::ledger::{Entry, Key};
use klogger_os as os;
use klogger_os::clocks::{self, Clocks};
use klogger_os::machine;
use klogger_ring::clock::{SLEW_PPM, STEP_NS, Source, best_source};
use std::collections::{BTreeMap, BTreeSet};

/// One sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    clocks: Clocks,
    /// The TSC, if clocks are derived from it, with CLOCK_MONOTONIC at that moment and the
    /// uncertainty.
    counter: Option<(u64, u64, u64)>,
    /// `None`: it could not be read, which is in the ledger, and is no change.
    source: Option<String>,
    online: Option<BTreeSet<u32>>,
}

impl Look {
    fn now(counter: bool) -> Look {
        Look {
            clocks: clocks::read(),
            counter: counter.then(os::tsc::pair),
            source: machine::clock_source(),
            online: machine::online_cpus_now().map(BTreeSet::from_iter),
        }
    }
}

/// The last sample, and what the samples have shown.
pub struct Watch {
    last: Look,
    /// Speed of the TSC: ns in 2^32 ticks, between the first two samples that were far enough
    /// apart.
    speed: Option<u64>,
    first: Option<(u64, u64, u64)>,
    counter: bool,
    /// CPUs that went offline, and when they were last seen online.
    gone: BTreeMap<u32, u64>,
    /// CPUs that were not online at the beginning, and when they were last seen offline.
    pub came: BTreeMap<u32, u64>,
    entries: Vec<Entry>,
}

impl Watch {
    pub fn start() -> Watch {
        let counter = best_source() == Source::Tsc;
        Watch::from(Look::now(counter), counter)
    }

    fn from(first: Look, counter: bool) -> Watch {
        let (gone, came) = (BTreeMap::new(), BTreeMap::new());
        Watch {
            first: first.counter,
            last: first,
            speed: None,
            counter,
            gone,
            came,
            entries: Vec::new(),
        }
    }

    pub fn look(&mut self) {
        self.see(Look::now(self.counter));
    }

    fn see(&mut self, mut now: Look) {
        self.see_clocks(&now.clocks);
        if let (Some(before), Some(after)) = (&self.last.source, &now.source)
            && before != after
        {
            let text = format!("the kernel's clock source changed from {before} to {after}");
            self.step(&now.clocks, &text);
        }
        if let Some(counter) = now.counter {
            self.see_counter(counter, &now.clocks);
        }
        self.see_cpus(&now);
        now.source = now.source.or(self.last.source.take());
        now.online = now.online.or(self.last.online.take());
        self.last = now;
    }

    fn step(&mut self, now: &Clocks, what: &str) {
        let entry = Entry::new(Key::ClockStep).between(self.last.clocks.monotonic, now.monotonic);
        self.entries.push(entry.detail(what));
    }

    fn see_clocks(&mut self, now: &Clocks) {
        let last = self.last.clocks;
        let moved = |a: u64, b: u64| {
            i128::from(a) - i128::from(now.monotonic) - (i128::from(b) - i128::from(last.monotonic))
        };
        let (wall, slept) = (moved(now.wall, last.wall), moved(now.boot, last.boot));
        let noise = i128::from(now.within + last.within + STEP_NS);
        if slept > noise {
            self.step(
                now,
                &format!(
                    "the machine slept for {}; the times of events do not include it",
                    seconds(slept)
                ),
            );
        }
        let set = if slept > noise { wall - slept } else { wall };
        if set.abs() > noise {
            let way = if set > 0 { "forward" } else { "back" };
            self.step(now, &format!("the wall clock was set {way} by {}", seconds(set.abs())));
        }
    }

    /// Compares the TSC with the kernel's clock. After a step the comparison starts anew, so that
    /// each step is reported once.
    fn see_counter(&mut self, now: (u64, u64, u64), clocks: &Clocks) {
        let Some(last) = self.last.counter else { return };
        let ns = now.1.saturating_sub(last.1);
        if now.0 < last.0 {
            return self.counter_step(now, clocks, "stepped back");
        }
        if let Some(speed) = self.speed {
            let led = (u128::from(now.0 - last.0) * u128::from(speed)) >> 32;
            let off = led.abs_diff(u128::from(ns));
            let noise = u128::from(now.2 + last.2 + STEP_NS)
                + u128::from(ns) * u128::from(SLEW_PPM) / 1_000_000;
            if off > noise {
                let way = if led > ns.into() { "ahead of" } else { "behind" };
                self.counter_step(
                    now,
                    clocks,
                    &format!("is now {} {way} the kernel's clock", seconds(off as i128)),
                );
            }
        } else if let Some(first) =
            self.first.filter(|f| now.1.saturating_sub(f.1) >= 1_000_000_000)
        {
            let (ticks, ns) =
                (u128::from(now.0.saturating_sub(first.0)), u128::from(now.1 - first.1));
            self.speed = (ns << 32).checked_div(ticks).and_then(|s| u64::try_from(s).ok());
        }
    }

    /// The code that converts TSC times sees the step as well, and starts a new line.
    fn counter_step(&mut self, now: (u64, u64, u64), clocks: &Clocks, what: &str) {
        let (from, to) = (self.last.clocks.monotonic, clocks.monotonic);
        let mut entry = Entry::new(Key::ClockStep).between(from, to);
        entry.text = format!(
            "the time-stamp counter {what}: times between these two looks that were read from it \
             (programs, the kernel \
             engine) may be wrong by up to {}; those before and after are right",
            seconds(i128::from(to.saturating_sub(from)))
        );
        self.entries.push(entry);
        (self.first, self.speed) = (Some(now), None);
    }

    fn see_cpus(&mut self, now: &Look) {
        let (before, after) = (self.last.clocks.monotonic, now.clocks.monotonic);
        let (Some(last), Some(online)) = (&self.last.online, &now.online) else { return };
        for cpu in last.difference(online) {
            self.gone.insert(*cpu, before);
        }
        for cpu in online.difference(last) {
            match self.gone.remove(cpu) {
                Some(from) => self.entries.push(went(*cpu, from, after)),
                None => drop(self.came.insert(*cpu, before)),
            }
        }
    }

    /// All entries at the end of the recording.
    pub fn finish(mut self, end_ns: u64) -> (Vec<Entry>, BTreeMap<u32, u64>) {
        self.entries
            .extend(self.gone.iter().map(|(cpu, from)| went(*cpu, *from, end_ns.max(*from))));
        (self.entries, self.came)
    }
}

fn went(cpu: u32, from: u64, to: u64) -> Entry {
    let entry = Entry::new(Key::CpuWent).between(from, to);
    match u16::try_from(cpu) {
        Ok(cpu) => entry.cpu(cpu),
        Err(_) => entry,
    }
}

fn seconds(ns: i128) -> String {
    format!("{:.6} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A quiet machine at this second: a TSC of 2 ticks per ns, and a wall clock that began 10,000
    /// s earlier.
    fn at(second: u64) -> Look {
        let ns = second * S;
        Look {
            clocks: Clocks { monotonic: ns, wall: ns + 10_000 * S, boot: ns + 5 * S, within: 300 },
            counter: Some((2 * ns, ns, 40)),
            source: Some("tsc".into()),
            online: Some(BTreeSet::from([0, 1])),
        }
    }

    fn seen(looks: impl IntoIterator<Item = Look>) -> Vec<(String, Option<u16>, u64, u64, String)> {
        let mut watch = Watch::from(at(0), true);
        looks.into_iter().for_each(|l| watch.see(l));
        let row = |e: Entry| {
            (
                e.key,
                e.cpu,
                e.from_ns.unwrap() / S,
                e.to_ns.unwrap() / S,
                e.text.split(": ").next().unwrap().into(),
            )
        };
        watch.finish(100 * S).0.into_iter().map(row).collect()
    }

    fn step(from: u64, to: u64, text: &str) -> (String, Option<u16>, u64, u64, String) {
        ("clock_step".into(), None, from, to, text.into())
    }

    #[test]
    fn a_quiet_machine_gives_no_entries() {
        assert_eq!(seen((1..50).map(at)), []);
    }

    #[test]
    fn noise_and_slewing_are_no_steps() {
        let noisy = (1..50).map(|n| {
            let mut look = at(n);
            look.clocks.wall += n * 7919 % 300;
            // The kernel's clocks run 500 ppm faster than the counter, from the tenth second on.
            if n > 10 {
                let slewed = |ns: u64| ns + (n - 10) * 500_000;
                let c = look.clocks;
                look.clocks = Clocks {
                    monotonic: slewed(c.monotonic),
                    wall: slewed(c.wall),
                    boot: slewed(c.boot),
                    ..c
                };
                look.counter = look.counter.map(|(ticks, ns, w)| (ticks, slewed(ns), w));
            }
            look
        });
        assert_eq!(seen(noisy), []);
    }

    #[test]
    fn a_wall_clock_that_is_set() {
        let set = |by: i64| {
            move |n| {
                let mut look = at(n);
                look.clocks.wall = look.clocks.wall.strict_add_signed(by);
                look
            }
        };
        let looks = (1..4)
            .map(at)
            .chain((4..6).map(set(-3_600_500_000_000)))
            .chain((6..8).map(set(20_000)));
        assert_eq!(
            seen(looks),
            [
                step(3, 4, "the wall clock was set back by 3600.500000 s"),
                step(5, 6, "the wall clock was set forward by 3600.500020 s"),
            ]
        );
    }

    #[test]
    fn a_machine_that_sleeps() {
        let slept = |n| {
            let mut look = at(n);
            (look.clocks.wall, look.clocks.boot) =
                (look.clocks.wall + 90 * S, look.clocks.boot + 90 * S);
            look
        };
        let text = "the machine slept for 90.000000 s; the times of events do not include it";
        assert_eq!(seen((1..3).map(at).chain((3..6).map(slept))), [step(2, 3, text)]);
    }

    #[test]
    fn a_counter_that_jumps_or_stops() {
        let ahead = |n| {
            let mut look = at(n);
            look.counter = look.counter.map(|(ticks, ns, w)| (ticks + 2 * S, ns, w));
            look
        };
        let jump =
            step(4, 5, "the time-stamp counter is now 1.000000 s ahead of the kernel's clock");
        assert_eq!(seen((1..5).map(at).chain((5..9).map(ahead))), [jump]);
        let back = step(8, 9, "the time-stamp counter stepped back");
        let slow =
            |n| Look { counter: at(n - 5).counter.map(|(ticks, _, w)| (ticks, n * S, w)), ..at(n) };
        assert_eq!(seen((1..9).map(at).chain((9..10).map(slow))), [back]);
    }

    #[test]
    fn each_step_of_a_counter_is_reported_once() {
        // From the fifth second on half as fast; from the ninth on anew from 0.
        let moved = |n| Look {
            counter: at(n).counter.map(|(_, ns, w)| (10 * S + (n - 5) * S, ns, w)),
            ..at(n)
        };
        let anew =
            |n| Look { counter: at(n).counter.map(|(_, ns, w)| ((n - 9) * S, ns, w)), ..at(n) };
        let slow = step(5, 6, "the time-stamp counter is now 0.500000 s behind the kernel's clock");
        let back = step(8, 9, "the time-stamp counter stepped back");
        assert_eq!(
            seen((1..6).map(at).chain((6..9).map(moved)).chain((9..20).map(anew))),
            [slow, back]
        );
    }

    #[test]
    fn another_clock_source() {
        let hpet = |n| Look { source: Some("hpet".into()), counter: None, ..at(n) };
        let changed = step(2, 3, "the kernel's clock source changed from tsc to hpet");
        assert_eq!(seen((1..3).map(at).chain((3..5).map(hpet))), [changed]);
    }

    #[test]
    fn what_cannot_be_read_is_no_change() {
        let blind = |n| Look { source: None, online: None, ..at(n) };
        assert_eq!(seen((1..3).map(blind).chain((3..5).map(at)).chain((5..7).map(blind))), []);
        let mut watch = Watch::from(blind(0), true);
        (1..3).for_each(|n| watch.see(at(n)));
        let (entries, came) = watch.finish(100 * S);
        assert!(entries.is_empty() && came.is_empty());
    }

    #[test]
    fn cpus_that_come_and_go() {
        let with = |n, cpus: &[u32]| Look { online: Some(cpus.iter().copied().collect()), ..at(n) };
        let looks = [with(1, &[0, 1]), with(2, &[0]), with(3, &[0, 1, 2]), with(4, &[1, 2])];
        let rows = seen(looks.clone());
        let short: Vec<_> = rows.iter().map(|r| (r.0.as_str(), r.1, r.2, r.3)).collect();
        assert_eq!(short, [("cpu_went", Some(1), 1, 3), ("cpu_went", Some(0), 3, 100)]);
        let mut watch = Watch::from(at(0), true);
        looks.into_iter().for_each(|l| watch.see(l));
        assert_eq!(watch.came, BTreeMap::from([(2, 2 * S)]));
    }
}
