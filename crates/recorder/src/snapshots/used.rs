// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which stacks events have the numbers of, and which addresses of data.

use klogger_log::event::{Value, value};
use klogger_log::record::SizeTable;
use klogger_log::seen::Seen;
use klogger_log::writer::EventBlock;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::Decode;
use std::collections::{HashMap, HashSet};

/// The numbers in fields `as stack`.
pub fn stacks(blocks: &[EventBlock], events: &[EventLayout]) -> HashSet<u64> {
    let fields = |e: &'_ EventLayout| -> Vec<FieldLayout> {
        e.fields.iter().filter(|f| f.decode == Decode::Stack).cloned().collect()
    };
    let of_interest: HashMap<u16, (&EventLayout, Vec<FieldLayout>)> = events
        .iter()
        .map(|e| (e.id, (e, fields(e))))
        .filter(|(_, (_, fields))| !fields.is_empty())
        .collect();
    let mut used = HashSet::new();
    if of_interest.is_empty() {
        return used;
    }
    let sizes = SizeTable::new(events);
    for block in blocks {
        for record in sizes.records(block.records) {
            let Some((layout, fields)) = of_interest.get(&record.id()) else { continue };
            let numbers = fields.iter().filter_map(|f| number(value(layout, f, record.bytes)));
            used.extend(numbers);
        }
    }
    used
}

/// The addresses in fields `as data`.
pub fn data(blocks: &[EventBlock], events: &[EventLayout]) -> Seen {
    let mut seen = Seen::data();
    seen.learn(events);
    let sizes = SizeTable::new(events);
    blocks.iter().for_each(|block| seen.note(block.origin, block.records, &sizes));
    seen
}

fn number(value: Value) -> Option<u64> {
    value.int().and_then(|number| u64::try_from(number).ok())
}
