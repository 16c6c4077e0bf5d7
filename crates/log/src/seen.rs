// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Collects the addresses in events, so that a log has the names that it needs: of data, which are
//! looked for when it ends, and of the kernel's code, not all of its symbols.

use crate::code::owner;
use crate::event::{Value, process, value};
use crate::origin::Origin;
use crate::record::SizeTable;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::Decode;
use std::collections::BTreeSet;
use std::ops::Range;

/// Number of different addresses of data that are noted. The names of more would take minutes to
/// find.
const DATA_MAX: usize = 1 << 16;
/// The same of code; a log with more of them gets all symbols.
const CODE_MAX: usize = 1 << 18;
/// Entries of a cache of recent addresses, by their hash: most events have one of a few.
const RECENT: usize = 1 << 10;

/// Addresses in fields of one decoding, each with its process (0: the kernel).
#[derive(Clone, Debug)]
pub struct Seen {
    decode: Decode,
    most: usize,
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
    /// Addresses of data.
    pub fn data() -> Seen {
        Seen::of(Decode::Data, DATA_MAX)
    }

    /// Addresses of code: those of programs as well, as if they were the kernel's.
    pub(crate) fn code() -> Seen {
        Seen::of(Decode::Code, CODE_MAX)
    }

    fn of(decode: Decode, most: usize) -> Seen {
        Seen {
            decode,
            most,
            events: Vec::new(),
            recent: Vec::new(),
            all: BTreeSet::new(),
            is_full: false,
        }
    }

    pub fn learn(&mut self, events: &[EventLayout]) {
        for event in events {
            let fields: Vec<_> =
                event.fields.iter().filter(|f| f.decode == self.decode).cloned().collect();
            if !fields.is_empty() {
                let id = usize::from(event.id);
                self.events.resize(self.events.len().max(id + 1), None);
                self.events[id] = Some((event.clone(), fields));
            }
        }
        self.recent.resize(if self.events.is_empty() { 0 } else { RECENT }, (0, 0));
    }

    /// Notes the addresses in whole records of a stream.
    pub fn note(&mut self, origin: Origin, records: &[u8], sizes: &SizeTable) {
        if self.events.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for record in sizes.records(records) {
            if let Some(Some((layout, fields))) = self.events.get(usize::from(record.id())) {
                let pid = process(layout, origin, record.bytes);
                for field in fields {
                    match value(layout, field, record.bytes) {
                        Value::Array(elements) => {
                            found.extend(elements.iter().filter_map(Value::bits))
                        }
                        one => found.extend(one.bits()),
                    }
                }
                for address in found.drain(..).filter(|address| *address > 0) {
                    let of_data = self.decode == Decode::Data;
                    let owner = if of_data { owner(pid, address) } else { Some(0) };
                    owner.into_iter().for_each(|pid| self.see((pid, address)));
                }
            }
        }
    }

    /// Of programs: process and address.
    pub fn of_programs(&self) -> impl Iterator<Item = (u32, u64)> {
        self.all.iter().copied().filter(|(pid, _)| *pid > 0)
    }

    pub fn of_kernel(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter(|(pid, _)| *pid == 0).map(|(_, address)| *address)
    }

    /// Whether any of the kernel's is in `range`.
    pub fn has(&self, range: Range<u64>) -> bool {
        self.all.range((0, range.start)..(0, range.end)).next().is_some()
    }

    /// There were more addresses than are noted.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    fn see(&mut self, key: (u32, u64)) {
        let place = (key.1 ^ u64::from(key.0) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let last = self.recent.get_mut(place as usize).filter(|last| **last != key);
        let Some(last) = last else { return };
        *last = key;
        if self.all.len() < self.most {
            self.all.insert(key);
        } else if !self.all.contains(&key) {
            self.is_full = true;
        }
    }

    /// As if these had been in events.
    #[cfg(test)]
    pub(crate) fn with(mut self, keys: impl IntoIterator<Item = (u32, u64)>) -> Seen {
        self.recent = vec![(0, 0); RECENT];
        keys.into_iter().for_each(|key| self.see(key));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_addresses_than_are_noted_are_told() {
        let keys = (1..=DATA_MAX as u64).map(|n| (7, n << 4));
        let seen = Seen::data().with(keys.clone().chain([(7, 1 << 4)]));
        assert!(!seen.is_full() && seen.of_programs().count() == DATA_MAX);
        let seen = Seen::data().with(keys.chain([(7, 0x10_0000 << 4)]));
        assert!(seen.is_full() && seen.of_programs().count() == DATA_MAX);
    }
}
