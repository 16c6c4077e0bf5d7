// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Samplers with a double of the system call that opens events: machines with hardware counters,
//! and CPUs that come and go.

use super::*;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;

/// Opens events whose counts are given, and notes what it was asked for.
#[derive(Default)]
struct Double {
    asked: RefCell<Vec<(Attributes, u32)>>,
    /// What each `read()` of an event returns: value, time enabled, time running.
    readings: Vec<[u64; 3]>,
    /// Fails on this CPU.
    fails: Option<(u32, i32)>,
}

impl Opener for Double {
    fn open(&self, attributes: &Attributes, cpu: u32) -> io::Result<OwnedFd> {
        self.asked.borrow_mut().push((*attributes, cpu));
        if let Some((_, error)) = self.fails.filter(|(fails, _)| *fails == cpu) {
            return Err(io::Error::from_raw_os_error(error));
        }
        let (reader, writer) = io::pipe()?;
        let mut writer = File::from(OwnedFd::from(writer));
        for word in self.readings.as_flattened() {
            writer.write_all(&word.to_ne_bytes())?;
        }
        Ok(reader.into())
    }
}

fn wanted(kind: ProbeKind, name: &str) -> Wanted {
    Wanted::of(&Target::bare(kind, name)).unwrap()
}

fn nothing(_: OwnedFd) -> Result<Option<Link>, Error> {
    Ok(None)
}

#[test]
fn hardware_events_are_opened_on_each_cpu() {
    let cycles = wanted(ProbeKind::Sample, "cycles every 1M");
    let mut sampler = Sampler::none(cycles);
    let double = Double { readings: vec![[5_500_000, 10, 10]], ..Double::default() };
    sampler.come(&[0, 3], &double, &nothing).unwrap();
    let attributes = Attributes::count(0, 0).every(1_000_000);
    assert_eq!(*double.asked.borrow(), [(attributes, 0), (attributes, 3)]);
    // Five samples on each CPU.
    assert_eq!(sampler.due(true), 10);
    // Without asking the CPUs.
    assert_eq!(sampler.due(false), 10);
}

#[test]
fn the_time_without_a_counter_is_accounted_for() {
    let mut sampler = Sampler::none(wanted(ProbeKind::Sample, "r01c2 every 1000"));
    let double = Double { readings: vec![[5000, 100, 50]], ..Double::default() };
    sampler.come(&[0], &double, &nothing).unwrap();
    assert_eq!(sampler.due(true), 10);
    assert_eq!(double.asked.borrow()[0].0, Attributes::count(4, 0x1c2).every(1000));
}

#[test]
fn rates_and_names_become_attributes() {
    let of = |name| wanted(ProbeKind::Sample, name);
    assert_eq!(of("LLC-load-misses at 99Hz").attributes, Attributes::count(3, 0x1_0002).at_hz(99));
    assert_eq!(of("LLC-load-misses at 99Hz").due, Due::Unknown);
    assert_eq!(of("cpu-clock every 1M").due, Due::Ns(1_000_000));
    let timer = wanted(ProbeKind::Timer, "1kHz");
    assert_eq!(timer.attributes, Attributes::count(1, 0).every(1_000_000));
    assert_eq!((timer.due, timer.hz), (Due::Ns(1_000_000), Some(1000)));
    let watch = wanted(ProbeKind::Breakpoint, "0x1000:4 rw");
    assert_eq!(watch.attributes, Attributes::breakpoint(0x1000, 4, Access::ReadWrite));
}

#[test]
fn a_timer_is_due_once_a_period() {
    let double = Double::default();
    let event = double.open(&Attributes::default(), 0).unwrap();
    let own = OnCpu { cpu: 0, event, _link: None, since_ns: 1000 };
    let due = |now| Due::Ns(100).of(&own, now);
    // The hit of 1100 may be late by half a period.
    assert_eq!([1000, 1100, 1149, 1150, 1249, 1250].map(due), [0, 0, 0, 1, 1, 2]);
}

#[test]
fn cpus_come_and_go() {
    let mut sampler = Sampler::none(wanted(ProbeKind::Sample, "page-faults every 10"));
    let double = Double { readings: vec![[100, 1, 1], [200, 1, 1]], ..Double::default() };
    sampler.come(&[0, 1], &double, &nothing).unwrap();
    assert_eq!(sampler.due(true), 20);
    // CPU 1 had counted 200 when it went.
    sampler.go(&[0]);
    assert_eq!(sampler.cpus.len(), 1);
    assert_eq!(sampler.due(true), 20 + 20);
    // It comes back, with a new event.
    sampler.come(&[0, 1], &double, &nothing).unwrap();
    assert_eq!(double.asked.borrow().iter().map(|a| a.1).collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
fn no_debug_register_is_left() {
    let mut sampler = Sampler::none(wanted(ProbeKind::Breakpoint, "0x1000:8 w"));
    let double = Double { fails: Some((1, libc::ENOSPC)), ..Double::default() };
    let error = sampler.come(&[0, 1], &double, &nothing).unwrap_err();
    assert_eq!(error.message, "all debug registers of a CPU are in use");
    assert!(error.help.unwrap().starts_with("x86 has four, for all tools together"));
}

#[test]
fn a_symbol_that_is_missing() {
    let target = Target::bare(ProbeKind::Breakpoint, "no_such_variable_of_any_kernel:8 w");
    let error = Wanted::of(&target).unwrap_err();
    let what = "this kernel has no symbol 'no_such_variable_of_any_kernel'";
    assert_eq!(error.message, what);
}
