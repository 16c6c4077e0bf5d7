// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Cuts blocks of records to a span of time, event by event.

use crate::ledger::{Entry, Key};
use crate::origin::Origin;
use crate::preamble::LeftOut;
use crate::record::{LostRecord, SizeTable};
use crate::writer::{EventBlock, Extent};
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;

/// A stream between two of its parts.
#[derive(Default)]
struct Between {
    /// Something of it is in the span.
    begun: bool,
    /// The first serial number since then that is not, and how many.
    left_out: Option<(u64, u64)>,
    /// Its losses in the span: how many, and the times of the first and the last `LOST` record.
    lost: Option<(u64, u64, u64)>,
}

impl Between {
    /// Something in the span follows; returns what was left out before it.
    fn go_on(&mut self, origin: Origin) -> Option<LeftOut> {
        self.begun = true;
        let (serial, count) = self.left_out.take()?;
        Some(LeftOut { cpu: origin.cpu(), stream: origin.stream(), serial, count })
    }
}

/// Cuts the blocks of some streams, those of each stream in their order.
pub struct Cutter {
    sizes: SizeTable,
    lost: LostRecord,
    /// Inclusive.
    from_ns: u64,
    to_ns: u64,
    streams: BTreeMap<Origin, Between>,
    left_out: Vec<LeftOut>,
    /// How many events are in the span, `LOST` records not counted.
    pub events: u64,
}

impl Cutter {
    pub fn new(events: &[EventLayout], from_ns: u64, to_ns: u64) -> Cutter {
        Cutter {
            sizes: SizeTable::new(events),
            lost: LostRecord::of(events),
            from_ns,
            to_ns,
            streams: BTreeMap::new(),
            left_out: Vec::new(),
            events: 0,
        }
    }

    /// The parts of a block that are in the span: one, or none, unless hits were nested. `extent`:
    /// of its records.
    pub fn cut<'a>(&mut self, block: &EventBlock<'a>, extent: Extent) -> Vec<EventBlock<'a>> {
        let span = self.from_ns..=self.to_ns;
        let stream = self.streams.entry(block.origin).or_default();
        if span.contains(&extent.first_ns) && span.contains(&extent.last_ns) && extent.lost == 0 {
            self.events += extent.events;
            self.left_out.extend(stream.go_on(block.origin));
            return vec![*block];
        }
        let (mut parts, mut open) = (Vec::new(), None);
        let (mut at, mut serial) = (0, block.first_serial);
        let part = |(from, first_serial): (usize, u64), to: usize| EventBlock {
            first_serial,
            records: &block.records[from..to],
            ..*block
        };
        for record in self.sizes.records(block.records) {
            let time = record.time(block.time_base);
            let is_lost = record.id() == self.lost.id;
            let takes = if is_lost { self.lost.count(record.bytes) } else { 1 };
            if (self.from_ns..=self.to_ns).contains(&time) {
                self.events += u64::from(!is_lost);
                if is_lost {
                    let (count, from, _) = stream.lost.unwrap_or((0, time, time));
                    stream.lost = Some((count.saturating_add(takes), from, time));
                }
                if open.is_none() {
                    open = Some((at, serial));
                    self.left_out.extend(stream.go_on(block.origin));
                }
            } else {
                parts.extend(open.take().map(|begin| part(begin, at)));
                if stream.begun {
                    let (_, count) = stream.left_out.get_or_insert((serial, 0));
                    *count = count.saturating_add(takes);
                }
            }
            at += record.bytes.len();
            serial = serial.wrapping_add(takes);
        }
        parts.extend(open.map(|begin| part(begin, at)));
        parts
    }

    /// The losses in the span, as ledger entries.
    pub fn losses(&self) -> Vec<Entry> {
        let lost = self.streams.iter().filter_map(|(origin, stream)| Some((origin, stream.lost?)));
        let entry = |(origin, (count, from, to)): (&Origin, (u64, u64, u64))| {
            Entry::new(Key::RingFull).of(*origin).count(count).between(from, to)
        };
        lost.map(entry).collect()
    }

    /// The serial numbers between the parts of streams that are outside of the span.
    pub fn left_out(self) -> Vec<LeftOut> {
        self.left_out
    }
}
