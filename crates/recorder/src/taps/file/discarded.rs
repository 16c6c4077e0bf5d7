// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What could not be written, for the ledger.

use klogger_log::ledger::{Entry, Key};
use klogger_log::record::SizeTable;
use klogger_log::writer::EventBlock;
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;

/// Events that came after writing had failed, by event and CPU; all threads of programs count
/// together.
pub struct Discarded {
    sizes: SizeTable,
    names: BTreeMap<u16, String>,
    found: BTreeMap<(u16, Option<u16>), Missing>,
}

/// How many, and between which times.
struct Missing {
    count: u64,
    from: u64,
    to: u64,
}

impl Discarded {
    pub fn new(events: &[EventLayout]) -> Discarded {
        let mut discarded = Discarded {
            sizes: SizeTable::default(),
            names: BTreeMap::new(),
            found: BTreeMap::new(),
        };
        discarded.learn(events);
        discarded
    }

    pub fn learn(&mut self, events: &[EventLayout]) {
        self.sizes.add(events);
        self.names.extend(events.iter().map(|e| (e.id, e.name.clone())));
    }

    /// Counts the events of a block except the first ones, which were written. LOST records do not
    /// count: the ledger has their losses already.
    pub fn add(&mut self, block: &EventBlock, mut written: u64) {
        for record in self.sizes.records(block.records) {
            let is_event = self.names.get(&record.id()).is_some_and(|name| name != "LOST");
            if !is_event {
                continue;
            }
            if written > 0 {
                written -= 1;
                continue;
            }
            let time = record.time(block.time_base);
            let place = (record.id(), block.origin.cpu());
            let missing =
                self.found.entry(place).or_insert(Missing { count: 0, from: time, to: time });
            missing.count += 1;
            (missing.from, missing.to) = (missing.from.min(time), missing.to.max(time));
        }
    }

    pub fn entries(&self, why: &str) -> Vec<Entry> {
        let entry = |((id, cpu), missing): (&(u16, Option<u16>), &Missing)| {
            let entry = Entry::new(Key::DiskFull)
                .count(missing.count)
                .between(missing.from, missing.to)
                .detail(why);
            Entry { event: self.names.get(id).cloned(), cpu: *cpu, ..entry }
        };
        self.found.iter().map(entry).collect()
    }
}
