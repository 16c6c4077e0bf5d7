// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Collects the addresses of data in events, so that their names can be looked for when a log ends.

use crate::code::owner;
use crate::event::{Value, process, value};
use crate::origin::Origin;
use crate::record::{Header, SizeTable};
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::Decode;
use std::collections::BTreeSet;

/// Number of different addresses that are noted. The names of more would take minutes to find.
const ADDRESSES_MAX: usize = 1 << 16;
/// Entries of a cache of recent addresses, by their hash: most events have one of a few.
const RECENT: usize = 1 << 10;

/// Addresses of data, each with its process (0: the kernel).
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By id, for events with such addresses: their layout, and these fields. Empty if no event has
    /// any.
    events: Vec<Option<(EventLayout, Vec<FieldLayout>)>>,
    recent: Vec<(u32, u64)>,
    all: BTreeSet<(u32, u64)>,
    is_full: bool,
}

/// Whether an event has an address of data.
pub fn has_data(events: &[EventLayout]) -> bool {
    events.iter().flat_map(|e| &e.fields).any(|f| f.decode == Decode::Data)
}

impl Seen {
    pub fn learn(&mut self, events: &[EventLayout]) {
        for event in events {
            let fields: Vec<_> =
                event.fields.iter().filter(|f| f.decode == Decode::Data).cloned().collect();
            if !fields.is_empty() {
                let id = usize::from(event.id);
                self.events.resize(self.events.len().max(id + 1), None);
                self.events[id] = Some((event.clone(), fields));
            }
        }
        self.recent.resize(if self.events.is_empty() { 0 } else { RECENT }, (0, 0));
    }

    /// Notes the addresses in whole records of a stream.
    pub fn note(&mut self, origin: Origin, mut records: &[u8], sizes: &SizeTable) {
        if self.events.is_empty() {
            return;
        }
        let mut found = Vec::new();
        while let (Some(header), Some(size)) = (Header::read(records), sizes.size(records)) {
            if let Some(Some((layout, fields))) = self.events.get(usize::from(header.id())) {
                let record = &records[..size];
                let pid = process(layout, origin, record);
                for field in fields {
                    match value(layout, field, record) {
                        Value::Array(elements) => {
                            found.extend(elements.iter().filter_map(Value::bits))
                        }
                        one => found.extend(one.bits()),
                    }
                }
                for address in found.drain(..) {
                    if let Some(pid) = owner(pid, address).filter(|_| address > 0) {
                        see(&mut self.recent, &mut self.all, &mut self.is_full, (pid, address));
                    }
                }
            }
            records = &records[size..];
        }
    }

    /// Of programs: process and address.
    pub fn of_programs(&self) -> impl Iterator<Item = (u32, u64)> {
        self.all.iter().copied().filter(|(pid, _)| *pid > 0)
    }

    pub fn of_kernel(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter(|(pid, _)| *pid == 0).map(|(_, address)| *address)
    }

    /// There were more addresses than are noted.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

fn see(
    recent: &mut [(u32, u64)],
    all: &mut BTreeSet<(u32, u64)>,
    is_full: &mut bool,
    key: (u32, u64),
) {
    let place = (key.1 ^ u64::from(key.0) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    let Some(last) = recent.get_mut(place as usize).filter(|last| **last != key) else { return };
    *last = key;
    if all.len() < ADDRESSES_MAX {
        all.insert(key);
    } else if !all.contains(&key) {
        *is_full = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_addresses_than_are_noted_are_told() {
        let mut seen = Seen { recent: vec![(0, 0); RECENT], ..Seen::default() };
        (1..=ADDRESSES_MAX as u64).for_each(|n| one(&mut seen, n));
        one(&mut seen, 1);
        assert!(!seen.is_full() && seen.of_programs().count() == ADDRESSES_MAX);
        one(&mut seen, 0x10_0000);
        assert!(seen.is_full() && seen.of_programs().count() == ADDRESSES_MAX);
    }

    fn one(seen: &mut Seen, n: u64) {
        see(&mut seen.recent, &mut seen.all, &mut seen.is_full, (7, n << 4));
    }
}
