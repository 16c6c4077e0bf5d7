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
use klogger_log::record::{Header, SizeTable, full_time};
use klogger_log::trigger::Trigger;
use klogger_log::trigger::matcher::{Found, Limits, Matcher};
use klogger_os as os;
use klogger_ring::block::Source;
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often events are looked at, at most.
const EVERY: Duration = Duration::from_millis(10);

pub struct Watcher {
    matcher: Matcher<Source>,
    sizes: SizeTable,
    triggered: EventLayout,
    /// Not later than any of the recorder's own events.
    own_base: u64,
    /// The recorder's own events that wait, by time and by the order in which they came.
    held: BTreeMap<(u64, u64), Vec<u8>>,
    came: u64,
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
            held: BTreeMap::new(),
            came: 0,
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
    pub fn see(&mut self, origin: Origin, time_base: u64, records: &[u8]) {
        self.wanted.clear();
        let mut rest = records;
        while let (Some(header), Some(size)) = (Header::read(rest), self.sizes.size(rest)) {
            let (record, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            if self.matcher.wants(header.id()) {
                self.wanted.extend_from_slice(record);
            }
        }
        if !self.wanted.is_empty() {
            self.matcher.block(origin, time_base, &self.wanted);
        }
    }

    /// Events of the recorder itself, which wait here.
    pub fn own(&mut self, records: &[u8]) {
        self.see(Origin::Recorder, self.own_base, records);
        let mut rest = records;
        while let (Some(header), Some(size)) = (Header::read(rest), self.sizes.size(rest)) {
            let (record, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            self.hold(full_time(self.own_base, header.time48()), record.to_vec());
        }
    }

    fn hold(&mut self, time_ns: u64, record: Vec<u8>) {
        self.came += 1;
        self.held.insert((time_ns, self.came), record);
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
            fired.push((found.time_ns, found.trigger, found.id));
            hit(found);
        });
        self.log(fired);
        self.take(reached, own);
        Some(reached)
    }

    /// Looks at all events: the recording ended at this time.
    pub fn finish(&mut self, end_ns: u64, own: &mut Vec<u8>, hit: &mut dyn FnMut(Found)) {
        let mut fired = Vec::new();
        self.matcher.finish(end_ns, &mut |found| {
            fired.push((found.time_ns, found.trigger, found.id));
            hit(found);
        });
        self.log(fired);
        self.take(u64::MAX, own);
    }

    /// What triggers have forgotten, because it was too much.
    pub fn forgotten(&self) -> Vec<(u16, u64)> {
        self.matcher.forgotten()
    }

    fn log(&mut self, fired: Vec<(u64, u16, u16)>) {
        for (time_ns, trigger, id) in fired {
            let record = RecordBuilder::new(&self.triggered);
            let mut bytes = Vec::new();
            let record = record.int("trigger", trigger.into()).int("id", id.into());
            record.finish(time_ns, &mut bytes);
            self.hold(time_ns, bytes);
        }
    }

    /// Moves the events before this time, in the order of time.
    fn take(&mut self, before_ns: u64, own: &mut Vec<u8>) {
        let later = self.held.split_off(&(before_ns, 0));
        for record in std::mem::replace(&mut self.held, later).into_values() {
            own.extend_from_slice(&record);
        }
    }
}
