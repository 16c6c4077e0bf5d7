// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What events of the past said that still holds: the names of threads, and which events are on. A
//! snapshot begins with it.

use crate::names::seen;
use klogger_log::builtin::Builtin as Kind;
use klogger_log::event::{EventRef, Layouts, Value};
use klogger_log::names::{AFTER_EXIT_NS, Processes, Row, is_about_threads};
use klogger_log::preamble::Preamble;
use klogger_log::record::SizeTable;
use klogger_log::writer::EventBlock;
use klogger_ring::block::Builtin;
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known at some time.
#[derive(Clone)]
pub struct Known {
    /// All, those of interest by their ids.
    layouts: Arc<Layouts>,
    sizes: Arc<SizeTable>,
    threads: Processes,
    /// By id of an event, since when it is so.
    states: BTreeMap<i64, (u64, bool)>,
}

impl Known {
    pub fn new(preamble: &Preamble) -> Known {
        let mut known = Known {
            layouts: Arc::default(),
            sizes: Arc::default(),
            threads: Processes::of_blocks(preamble),
            states: BTreeMap::new(),
        };
        known.learn(&preamble.events);
        known
    }

    pub fn learn(&mut self, events: &[EventLayout]) {
        let is_of_interest = |event: &EventLayout| is_state(event) || is_about_threads(event);
        Arc::make_mut(&mut self.layouts).add(events, is_of_interest);
        Arc::make_mut(&mut self.sizes).add(events);
        self.threads.learn(self.layouts.all());
    }

    /// Notes what the events of a block say; with a span of time, inclusive: those before it. Names
    /// of threads out of scope come later than the events that need them, so those that come after
    /// the span are noted as well.
    pub fn see(&mut self, block: &EventBlock, span: Option<(u64, u64)>) {
        let (layouts, sizes) = (self.layouts.clone(), self.sizes.clone());
        for record in sizes.records(block.records) {
            let event = layouts.event(&record, block.origin, block.time_base);
            let counts = |event: &EventRef| span.is_none_or(|span| is_of(event, span));
            match event.filter(counts) {
                Some(event) if is_state(event.layout) => self.note_state(&event),
                Some(event) => self.threads.apply(&event),
                None => {}
            }
        }
    }

    fn note_state(&mut self, event: &EventRef) {
        let state = self.states.entry(int(event, "id")).or_insert((0, true));
        // Events of several CPUs do not come in the order of time.
        if state.0 <= event.time_ns {
            *state = (event.time_ns, int(event, "state") != 0);
        }
    }

    /// Events that say all this, as of `at_ns`. Returns how many they are.
    pub fn events(&self, builtin: &Builtin, at_ns: u64, out: &mut Vec<u8>) -> u64 {
        let mut count = 0;
        for layout in self.layouts.all() {
            let on = self.states.get(&i64::from(layout.id)).is_none_or(|state| state.1);
            builtin.state(layout, on).finish(at_ns, out);
            count += 1;
        }
        for row in self.threads.since(at_ns.saturating_sub(AFTER_EXIT_NS)) {
            tell(row, builtin, at_ns, out);
            count += 1;
        }
        count
    }
}

fn is_state(event: &EventLayout) -> bool {
    event.name == "LOGGING_EVENT"
}

/// Whether an event says what was known when a span of time began, inclusive, or names a thread of
/// it.
fn is_of(event: &EventRef, (from_ns, to_ns): (u64, u64)) -> bool {
    let is_seen = || Kind::of(event.layout) == Some(Kind::Seen);
    let names = || int(event, "since") as u64 <= to_ns;
    event.time_ns < from_ns || (event.time_ns > to_ns && is_seen() && names())
}

/// The event that says this of a thread.
fn tell(row: &Row, builtin: &Builtin, at_ns: u64, out: &mut Vec<u8>) {
    if row.seen {
        return seen(builtin, row, row.from_ns, at_ns, out);
    }
    let exists = builtin.event("PROCESS_EXISTS").int("pid", row.pid).int("tgid", row.tgid);
    let exists = exists.int("ppid", row.parent).int("prio", row.prio);
    let exists = exists.int("policy", row.policy).text("comm", &row.comm);
    exists.text("command", &row.command).finish(at_ns, out);
}

fn int(event: &EventRef, field: &str) -> i64 {
    event.get(field).and_then(Value::int).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::origin::Origin;
    use klogger_toolchain::bundled;

    /// The values of a field in the events of this name.
    fn values(known: &Known, builtin: &Builtin, name: &str, field: &str) -> Vec<i64> {
        let mut records = Vec::new();
        let count = known.events(builtin, 900, &mut records);
        let (mut layouts, sizes) = (Layouts::default(), SizeTable::new(builtin.0.iter()));
        layouts.add(&builtin.0, |_| true);
        let records: Vec<_> = sizes.records(&records).collect();
        assert_eq!(records.len() as u64, count);
        let event = |record| layouts.event(record, Origin::Recorder, 0);
        let events = records.iter().filter_map(event).filter(|event| event.layout.name == name);
        events.map(|event| int(&event, field)).collect()
    }

    #[test]
    fn what_was_said_before_a_time_is_said_again() {
        let events = bundled::builtin().unwrap().layouts(1);
        let builtin = Builtin(Arc::new(events.clone()));
        let mut known = Known::new(&Preamble { events, ..Preamble::default() });
        let mut records = Vec::new();
        let exists = |pid: i64, prio: i64, at: u64, records: &mut Vec<u8>| {
            let exists = builtin.event("PROCESS_EXISTS").int("pid", pid).int("tgid", pid);
            exists.int("prio", prio).text("comm", b"x").finish(at, records);
        };
        // Of real-time threads it is negative.
        exists(7, -51, 100, &mut records);
        exists(8, 20, 600, &mut records);
        let seen = |pid: i64, since: i64, records: &mut Vec<u8>| {
            let seen = builtin.event("PROCESS_SEEN").int("pid", pid).int("since", since);
            seen.text("comm", b"y").finish(1000, records);
        };
        seen(9, 700, &mut records);
        seen(10, 701, &mut records);
        let off = builtin.state(&builtin.0[0], false);
        off.finish(500, &mut records);
        let block = EventBlock {
            origin: Origin::Recorder,
            time_base: 0,
            first_serial: 0,
            records: &records,
        };
        known.see(&block, Some((600, 700)));
        let of = |name: &str, field: &str| values(&known, &builtin, name, field);
        assert_eq!(
            (of("PROCESS_EXISTS", "pid"), of("PROCESS_EXISTS", "prio")),
            (vec![7], vec![-51])
        );
        assert_eq!((of("PROCESS_SEEN", "pid"), of("PROCESS_SEEN", "since")), (vec![9], vec![700]));
        let states = of("LOGGING_EVENT", "state");
        assert_eq!((states[0], states[1..].iter().all(|on| *on == 1)), (0, true));
    }
}
