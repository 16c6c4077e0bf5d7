// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The counters of schemata with `arch` blocks: performance events of each CPU, which programs read
//! by a map.

use super::load::COUNTERS;
use klogger_codegen::bpf::counters_max;
use klogger_log::ledger::{Entry, Key};
use klogger_os::perf_events::{self, Attributes, Count, Opener};
use klogger_os::{Error, machine};
use klogger_schema::model::{Counter, Schema};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The counters of one schema.
pub struct Counters {
    schema: String,
    counters: Vec<Counter>,
    map: MapHandle,
    /// Places in the map for one CPU.
    max: u32,
    /// CPUs that have places in the map: numbers below this.
    cpus: usize,
    opened: BTreeSet<u32>,
    events: Vec<OwnedFd>,
    /// Numbers of optional ones that this machine does not have.
    missing: BTreeSet<u32>,
}

impl Counters {
    /// Of all CPUs that are online. `None` if the schema has none.
    pub fn open(schema: &Schema, object: &Object, cpus: usize) -> Result<Option<Counters>, Error> {
        let Some(map) = object.maps().find(|m| m.name() == COUNTERS) else { return Ok(None) };
        let cannot = |e| Error::new(format!("cannot use the map '{COUNTERS}': {e}"));
        let mut counters = Counters {
            schema: schema.name.clone(),
            counters: schema.counters().cloned().collect(),
            map: MapHandle::try_from(&map).map_err(cannot)?,
            max: counters_max(schema),
            cpus,
            opened: BTreeSet::new(),
            events: Vec::new(),
            missing: BTreeSet::new(),
        };
        counters.come(&perf_events::Kernel, &machine::online_cpus()?)?;
        Ok(Some(counters))
    }

    /// Opens those of CPUs that came online. One that cannot be had is tried again next time.
    pub fn look(&mut self) {
        if let Ok(online) = machine::online_cpus() {
            self.opened.retain(|cpu| online.contains(cpu));
            let _ = self.come(&perf_events::Kernel, &online);
        }
    }

    fn come(&mut self, opener: &dyn Opener, online: &[u32]) -> Result<(), Error> {
        for &cpu in online.iter().filter(|cpu| (**cpu as usize) < self.cpus) {
            if !self.opened.contains(&cpu) {
                for counter in &self.counters {
                    match open(opener, counter, cpu)? {
                        Some(event) => {
                            let place = (cpu * self.max + counter.number).to_ne_bytes();
                            let number = event.as_raw_fd().to_ne_bytes();
                            let stored = self.map.update(&place, &number, MapFlags::ANY);
                            stored.map_err(|e| cannot(counter, cpu, &e.to_string()))?;
                            self.events.push(event);
                        }
                        None => {
                            self.missing.insert(counter.number);
                        }
                    }
                }
                self.opened.insert(cpu);
            }
        }
        Ok(())
    }

    /// They count from 0 on.
    pub fn reset(&self) {
        for event in &self.events {
            let _ = perf_events::reset(event.as_fd());
        }
    }

    /// Those that read 0, for the ledger.
    pub fn entries(&self) -> Vec<Entry> {
        let missing = self.counters.iter().filter(|c| self.missing.contains(&c.number));
        let entry = |c: &Counter| {
            let what = format!("counter{} {} (schema {})", c.number, c.event, self.schema);
            Entry::new(Key::CounterMissing).detail(&what)
        };
        missing.map(entry).collect()
    }
}

/// `None` if the machine has none, and need not have one.
fn open(opener: &dyn Opener, counter: &Counter, cpu: u32) -> Result<Option<OwnedFd>, Error> {
    let attributes = Attributes::count(counter.counted.kind, counter.counted.config).pinned();
    let event = match opener.open(&attributes, cpu) {
        Ok(event) => event,
        Err(e) if counter.optional && perf_events::is_unknown(&e) => return Ok(None),
        Err(e) => return Err(cannot(counter, cpu, &e.to_string())),
    };
    perf_events::enable(event.as_fd()).map_err(|e| cannot(counter, cpu, &e.to_string()))?;
    // A pinned event that finds no counter of the CPU ends at once.
    match Count::read(event.as_fd()) {
        Some(_) => Ok(Some(event)),
        None if counter.optional => Ok(None),
        None => Err(cannot(counter, cpu, "all counters of the CPU are in use")
            .help("use fewer counters, or end other tools that count (perf, the NMI watchdog)")),
    }
}

fn cannot(counter: &Counter, cpu: u32, why: &str) -> Error {
    let Counter { number, event, .. } = counter;
    Error::new(format!("cannot count '{event}' on CPU {cpu} (counter{number}): {why}")).help(
        format!("write 'counter{number} {event} optional' to record without it: then it reads 0"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_schema::model::Counted;
    use std::cell::RefCell;
    use std::io;

    /// A machine with some counters, by a double of the system call: the events are files, which
    /// cannot be enabled.
    struct Double {
        error: Option<i32>,
        asked: RefCell<Vec<(Attributes, u32)>>,
    }

    impl Opener for Double {
        fn open(&self, attributes: &Attributes, cpu: u32) -> io::Result<OwnedFd> {
            self.asked.borrow_mut().push((*attributes, cpu));
            match self.error {
                Some(error) => Err(io::Error::from_raw_os_error(error)),
                None => Ok(std::fs::File::open("/dev/null")?.into()),
            }
        }
    }

    fn counter(optional: bool) -> Counter {
        let (number, event) = (3, "l2_cache_misses".to_string());
        let counted = Counted::of(&event).unwrap();
        Counter { number, event, counted, optional, span: Default::default() }
    }

    fn opened(error: Option<i32>, optional: bool) -> (Result<Option<OwnedFd>, Error>, Double) {
        let double = Double { error, asked: RefCell::default() };
        (open(&double, &counter(optional), 5), double)
    }

    #[test]
    fn hardware_is_counted_all_the_time() {
        let (_, double) = opened(None, false);
        assert_eq!(*double.asked.borrow(), [(Attributes::count(0, 3).pinned(), 5)]);
    }

    #[test]
    fn a_machine_without_the_counter() {
        let (refused, _) = opened(Some(libc::ENOENT), false);
        let error = refused.unwrap_err();
        let what = "cannot count 'l2_cache_misses' on CPU 5 (counter3): No such file or directory \
                    (os error 2)";
        assert_eq!(error.message, what);
        let help =
            "write 'counter3 l2_cache_misses optional' to record without it: then it reads 0";
        assert_eq!(error.help.as_deref(), Some(help));
        assert!(opened(Some(libc::ENOENT), true).0.unwrap().is_none());
        // Any other error is one, optional or not.
        assert!(opened(Some(libc::EMFILE), true).0.is_err());
    }
}
