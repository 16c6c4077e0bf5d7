// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Collects the code addresses in events, so that a log contains only the symbols that it needs,
//! not all of the kernel's.

use crate::event::{Value, value};
use crate::record::{Header, SizeTable};
use crate::symbols::SYMBOL_SIZE_MAX;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::Decode;
use std::collections::BTreeSet;

/// Number of different addresses that are noted; a log with more of them gets all symbols.
const ADDRESSES_MAX: usize = 1 << 18;
/// Entries of a cache of recent addresses, by the low bits of their hash: most events have one of a
/// few.
const RECENT: usize = 1 << 10;

#[derive(Default)]
pub(crate) struct Codes {
    /// By id, for events with code addresses: their layout, and these fields. Empty if no event has
    /// any.
    events: Vec<Option<(EventLayout, Vec<FieldLayout>)>>,
    recent: Vec<u64>,
    seen: BTreeSet<u64>,
}

impl Codes {
    pub fn learn(&mut self, events: &[EventLayout]) {
        for event in events {
            let fields: Vec<_> =
                event.fields.iter().filter(|f| f.decode == Decode::Code).cloned().collect();
            if !fields.is_empty() {
                let id = usize::from(event.id);
                self.events.resize(self.events.len().max(id + 1), None);
                self.events[id] = Some((event.clone(), fields));
            }
        }
        self.recent.resize(if self.events.is_empty() { 0 } else { RECENT }, 0);
    }

    /// Notes the addresses in whole records.
    pub fn note(&mut self, mut records: &[u8], sizes: &SizeTable) {
        if self.events.is_empty() {
            return;
        }
        while let (Some(header), Some(size)) = (Header::read(records), sizes.size(records)) {
            if let Some(Some((layout, fields))) = self.events.get(usize::from(header.id())) {
                for field in fields {
                    match value(layout, field, &records[..size]) {
                        Value::Array(elements) => elements
                            .iter()
                            .filter_map(Value::bits)
                            .for_each(|address| see(address, &mut self.recent, &mut self.seen)),
                        one => one
                            .bits()
                            .into_iter()
                            .for_each(|a| see(a, &mut self.recent, &mut self.seen)),
                    }
                }
            }
            records = &records[size..];
        }
    }

    /// Of lines `ADDRESS NAME` in ascending order, those whose symbols contain the noted addresses.
    pub fn needed(&self, symbols: &str) -> String {
        if self.seen.len() >= ADDRESSES_MAX {
            return symbols.into();
        }
        let address = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
        let mut lines = symbols.lines().filter_map(|l| Some((address(l)?, l))).peekable();
        let mut needed = String::new();
        while let Some((start, line)) = lines.next() {
            let end = lines
                .peek()
                .map_or(u64::MAX, |next| next.0)
                .min(start.saturating_add(SYMBOL_SIZE_MAX));
            if start < end && self.seen.range(start..end).next().is_some() {
                needed.push_str(line);
                needed.push('\n');
            }
        }
        needed
    }
}

fn see(address: u64, recent: &mut [u64], seen: &mut BTreeSet<u64>) {
    let place = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    if let Some(last) = recent.get_mut(place as usize).filter(|last| **last != address) {
        *last = address;
        if seen.len() < ADDRESSES_MAX {
            seen.insert(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Symbols;

    #[test]
    fn symbols_that_no_address_needs_are_left_out() {
        let all =
            "1000 alpha\n1000 alias\n2000 beta\n2800 gamma [module]\n3000 delta\n900000 far\n";
        let mut codes = Codes { recent: vec![0; RECENT], ..Codes::default() };
        let addresses = [0xfff, 0x1000, 0x27ff, 0x2800, 0x27ff, 0x80_0000, 0x9f_ffff, 0xa0_0001];
        addresses.into_iter().for_each(|a| see(a, &mut codes.recent, &mut codes.seen));
        let needed = codes.needed(all);
        assert_eq!(needed, "1000 alias\n2000 beta\n2800 gamma [module]\n900000 far\n");
        let (few, many) =
            (Symbols::new(needed.into_bytes()), Symbols::new(all.as_bytes().to_vec()));
        // Between the remaining symbols no address is looked up, because the log has none there.
        addresses.into_iter().for_each(|a| assert_eq!(few.find(a), many.find(a), "{a:x}"));
    }
}
