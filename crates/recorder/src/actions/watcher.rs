// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the hits of triggers that are compiled into no event: sequences, silences, and events of
//! programs and of files. Each is logged as `TRIGGERED` among the recorder's own events, with the
//! time of the event that fired it.
//!
//! Events are looked at when all CPUs have handed over theirs, some hundredths of a second later.
//! So that the recorder's own events stay in the order of time, all of them wait as long.

use klogger_log::builder::RecordBuilder;
use klogger_log::filter::FilterError;
use klogger_log::origin::Origin;
use klogger_log::preamble::{Addition, Preamble};
use klogger_log::record::{Record, SizeTable};
use klogger_log::trigger::Trigger;
use klogger_log::trigger::matcher::{Found, Limits, Matcher};
use klogger_os as os;
use klogger_ring::block::Source;
use klogger_schema::layout::EventLayout;
use std::time::{Duration, Instant};

/// How often events are looked at, at most.
const EVERY: Duration = Duration::from_millis(10);

pub struct Watcher {
    matcher: Matcher<Source>,
    sizes: SizeTable,
    triggered: EventLayout,
    /// Not later than any of the recorder's own events.
    own_base: u64,
    /// The recorder's own events that wait, with their times.
    held: Vec<(u64, Vec<u8>)>,
    looked: Instant,
    /// The records of a block that are looked at.
    wanted: Vec<u8>,
}

impl Watcher {
    /// `triggers`: with their numbers.
    ///
    /// # Errors
    ///
    /// If a trigger does not fit the events of the recording.
    pub fn new<'t>(
        triggers: impl IntoIterator<Item = (u16, &'t Trigger)>,
        preamble: &Preamble,
    ) -> Result<Option<Watcher>, FilterError> {
        let mut triggers = triggers.into_iter().peekable();
        let triggered = preamble.events.iter().find(|e| e.name == "TRIGGERED");
        let (Some(_), Some(triggered)) = (triggers.peek(), triggered) else { return Ok(None) };
        Ok(Some(Watcher {
            matcher: Matcher::new(triggers, preamble, Limits::default())?,
            sizes: SizeTable::new(&preamble.events),
            triggered: triggered.clone(),
            own_base: preamble.clock.start_ns,
            held: Vec::new(),
            looked: Instant::now(),
            wanted: Vec::new(),
        }))
    }

    /// Sources that are there from the beginning, which are waited for.
    pub fn await_all(&mut self, sources: &[Source]) {
        sources.iter().for_each(|source| self.matcher.until(*source, 0));
    }

    pub fn add(&mut self, addition: &Addition) {
        self.sizes.add(&addition.events);
        self.matcher.add(addition);
    }

    /// The records of a block.
    pub fn see<'a>(
        &mut self,
        origin: Origin,
        time_base: u64,
        records: impl Iterator<Item = Record<'a>>,
    ) {
        scan(&mut self.matcher, &mut self.wanted, (origin, time_base), records);
    }

    /// Events of the recorder itself, which wait here.
    pub fn own(&mut self, records: &[u8]) {
        let Watcher { matcher, sizes, own_base, held, wanted, .. } = self;
        scan(matcher, wanted, (Origin::Recorder, *own_base), sizes.records(records));
        let wait = |record: Record| (record.time(*own_base), record.bytes.to_vec());
        held.extend(sizes.records(records).map(wait));
    }

    /// A source has handed over all its events before this time.
    pub fn until(&mut self, source: Source, time_ns: u64) {
        self.matcher.until(source, time_ns);
    }

    /// Looks at events. Appends to `own` those of the recorder that need not wait any longer.
    /// Returns the time that was reached, unless it has just looked.
    pub fn look(&mut self, own: &mut Vec<u8>, hit: &mut dyn FnMut(Found)) -> Option<u64> {
        if self.looked.elapsed() < EVERY {
            return None;
        }
        self.looked = Instant::now();
        let mut fired = Vec::new();
        let reached = self.matcher.release(os::monotonic_ns(), &mut |found| {
            fired.push(Fired::of(&found));
            hit(found);
        });
        self.take(reached, fired, own);
        Some(reached)
    }

    /// Looks at all events: the recording ended at this time.
    pub fn finish(&mut self, end_ns: u64, own: &mut Vec<u8>, hit: &mut dyn FnMut(Found)) {
        let mut fired = Vec::new();
        self.matcher.finish(end_ns, &mut |found| {
            fired.push(Fired::of(&found));
            hit(found);
        });
        self.take(u64::MAX, fired, own);
    }

    /// What triggers have forgotten, because it was too much.
    pub fn forgotten(&self) -> Vec<(u16, u64)> {
        self.matcher.forgotten()
    }

    /// Appends hits, and the held events before this time, in the order of time.
    fn take(&mut self, before_ns: u64, mut fired: Vec<Fired>, own: &mut Vec<u8>) {
        fired.sort_by_key(|fired| fired.time_ns);
        self.held.sort_by_key(|(time_ns, _)| *time_ns);
        let ready = self.held.partition_point(|(time_ns, _)| *time_ns < before_ns);
        let mut fired = fired.into_iter().peekable();
        for (time_ns, record) in self.held.drain(..ready) {
            while let Some(earlier) = fired.next_if(|fired| fired.time_ns <= time_ns) {
                earlier.log(&self.triggered, own);
            }
            own.extend_from_slice(&record);
        }
        fired.for_each(|fired| fired.log(&self.triggered, own));
    }
}

/// Passes on the records that triggers are about. `place`: their stream, and the base of their
/// times.
fn scan<'a>(
    matcher: &mut Matcher<Source>,
    wanted: &mut Vec<u8>,
    place: (Origin, u64),
    records: impl Iterator<Item = Record<'a>>,
) {
    wanted.clear();
    for record in records.filter(|record| matcher.wants(record.id())) {
        wanted.extend_from_slice(record.bytes);
    }
    if !wanted.is_empty() {
        matcher.block(place.0, place.1, wanted);
    }
}

/// A hit that is to be logged.
struct Fired {
    time_ns: u64,
    trigger: u16,
    id: u16,
}

impl Fired {
    fn of(found: &Found) -> Fired {
        let Found { time_ns, trigger, id, .. } = *found;
        Fired { time_ns, trigger, id }
    }

    fn log(&self, triggered: &EventLayout, own: &mut Vec<u8>) {
        let record = RecordBuilder::new(triggered);
        let record = record.int("trigger", self.trigger.into()).int("id", self.id.into());
        record.finish(self.time_ns, own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::preamble::Clock;
    use klogger_log::trigger::parse;
    use klogger_toolchain::bundled;

    /// (event, time) of each record.
    fn read(layouts: &[EventLayout], own: &[u8]) -> Vec<(String, u64)> {
        let named = |record: Record| {
            let layout = layouts.iter().find(|e| e.id == record.id()).unwrap();
            (layout.name.clone(), record.time(0))
        };
        SizeTable::new(layouts).records(own).map(named).collect()
    }

    #[test]
    fn own_events_wait_and_are_sorted_in_among_the_hits() {
        let events = bundled::builtin().unwrap().layouts(1);
        let clock = Clock { start_ns: 1, ..Clock::default() };
        let preamble = Preamble { events: events.clone(), clock, ..Preamble::default() };
        let of = |name: &str| events.iter().find(|e| e.name == name).unwrap();
        let (exec, mark) = (of("PROCESS_EXIT"), of("MARK"));
        let triggers = [
            parse("PROCESS_EXIT where pid == 2: stop").unwrap(),
            parse("no PROCESS_EXIT within 10ns by pid: stop").unwrap(),
        ];
        let mut watcher = Watcher::new((3..).zip(&triggers), &preamble).unwrap().unwrap();
        watcher.await_all(&[Source::Cpu(0)]);
        let exits = [(2, 100), (1, 104), (2, 105)].map(|(pid, time)| {
            let mut bytes = Vec::new();
            RecordBuilder::new(exec).int("pid", pid).finish(time, &mut bytes);
            bytes
        });
        watcher.see(Origin::Cpu(0), 0, SizeTable::new(&events).records(&exits.concat()));
        for time in [103, 500] {
            let mut bytes = Vec::new();
            RecordBuilder::new(mark).int("number", 1).text("text", b"x").finish(time, &mut bytes);
            watcher.own(&bytes);
        }
        watcher.until(Source::Cpu(0), 120);
        let (mut own, mut hits) = (Vec::new(), Vec::new());
        std::thread::sleep(EVERY);
        let mut note = |found: Found| hits.push((found.trigger, found.time_ns));
        assert!(watcher.look(&mut own, &mut note).is_some_and(|reached| reached >= 120));
        assert!(watcher.look(&mut own, &mut note).is_none(), "too soon");
        watcher.finish(u64::MAX, &mut own, &mut note);
        assert_eq!(hits, [(3, 100), (3, 105), (4, 114), (4, 115)]);
        let names = read(&events, &own);
        let row = |name: &str, time| (name.to_string(), time);
        let triggered = |time| row("TRIGGERED", time);
        assert_eq!(
            names,
            [
                triggered(100),
                row("MARK", 103),
                triggered(105),
                triggered(114),
                triggered(115),
                row("MARK", 500),
            ]
        );
    }
}
