// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Merges the blocks of a recording that still runs by time.
//!
//! Whoever hands over blocks also says, a few times a second, that everything before some time has
//! been handed over ([`LiveMerge::until`]). An event is held back until all sources have said so.
//! So events come out in the order of time, as far as the sources keep their word. If one is
//! silent, an event is held back for [`HOLD_NS`] at most, and for less if events take too much
//! memory. An event that comes after later ones have been passed on is marked as late.

use crate::event::{EventRef, Layouts};
use crate::origin::Origin;
use crate::record::{LostRecord, SizeTable};
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// The longest time for which an event is held back, unless [`LiveMerge::hold`] says otherwise.
pub const HOLD_NS: u64 = 1_000_000_000;
/// Bytes that are held back at most: records, and what is noted of each; and those of the blocks
/// that they are in, of which an event that is held back keeps all.
const BYTES_MAX: usize = 256 << 20;

/// An event that is held back.
struct Held {
    time: u64,
    origin: Origin,
    serial: u64,
    id: u16,
    at: u32,
    size: u32,
    block: Arc<[u8]>,
}

impl Held {
    fn key(&self) -> (u64, Origin, u64) {
        (self.time, self.origin, self.serial)
    }

    /// Bytes of memory.
    fn taken(&self) -> usize {
        self.size as usize + size_of::<Held>()
    }
}

/// The events of a recording, on their way to whoever follows it.
pub struct LiveMerge<S> {
    layouts: Layouts,
    sizes: SizeTable,
    lost: LostRecord,
    held: Vec<Held>,
    /// Bytes that `held` takes.
    bytes: usize,
    /// The blocks that events are held back of.
    blocks: Vec<Weak<[u8]>>,
    bytes_max: usize,
    hold_ns: u64,
    /// Before which time each source has handed over everything.
    sources: BTreeMap<S, u64>,
    /// The time of the last event that was passed on.
    passed: u64,
}

impl<S: Ord> LiveMerge<S> {
    pub fn new(events: &[EventLayout]) -> LiveMerge<S> {
        let mut merge = LiveMerge {
            layouts: Layouts::default(),
            sizes: SizeTable::default(),
            lost: LostRecord::of(events),
            held: Vec::new(),
            bytes: 0,
            blocks: Vec::new(),
            bytes_max: BYTES_MAX,
            hold_ns: HOLD_NS,
            sources: BTreeMap::new(),
            passed: 0,
        };
        merge.add(events);
        merge
    }

    /// From here on, events are held back for this time at most.
    pub fn hold(&mut self, hold_ns: u64) {
        self.hold_ns = hold_ns;
    }

    /// Learns events that a later block may contain.
    pub fn add(&mut self, events: &[EventLayout]) {
        self.sizes.add(events);
        self.layouts.add(events, |_| true);
    }

    /// Takes in the records of a block, up to one that is invalid, and returns how many bytes they
    /// have. `arrives` gets each event at once, whatever its time.
    pub fn block(
        &mut self,
        origin: Origin,
        time_base: u64,
        first_serial: u64,
        records: &[u8],
        arrives: &mut dyn FnMut(&EventRef),
    ) -> usize {
        let block: Arc<[u8]> = records.into();
        self.blocks.push(Arc::downgrade(&block));
        let (mut at, mut serial) = (0, first_serial);
        for record in self.sizes.records(&block) {
            let size = record.bytes.len();
            let held = Held {
                time: record.time(time_base),
                origin,
                serial,
                id: record.id(),
                at: at as u32,
                size: size as u32,
                block: block.clone(),
            };
            let is_lost = held.id == self.lost.id;
            serial = serial.wrapping_add(if is_lost { self.lost.count(record.bytes) } else { 1 });
            if let Some(event) = self.event(&held) {
                arrives(&event);
            }
            self.bytes += held.taken();
            at += size;
            self.held.push(held);
        }
        at
    }

    /// `source` has handed over all its events before this time. It is waited for from now on;
    /// not with `u64::MAX`, until it says another time.
    pub fn until(&mut self, source: S, time_ns: u64) {
        self.sources.insert(source, time_ns);
    }

    /// Passes on the events that need not be held back any longer, and whether each is late.
    pub fn release(&mut self, now_ns: u64, pass: &mut dyn FnMut(&EventRef, bool)) {
        self.pass_on(self.reached(now_ns), pass);
    }

    /// The time before which events need not be held back any longer.
    pub fn reached(&self, now_ns: u64) -> u64 {
        let told = self.sources.values().min().copied().unwrap_or(0);
        told.max(now_ns.saturating_sub(self.hold_ns))
    }

    /// Passes on all events: no more will come.
    pub fn finish(&mut self, pass: &mut dyn FnMut(&EventRef, bool)) {
        self.pass_on(u64::MAX, pass);
    }

    /// Passes on the events before this time, and the earliest others if they take too much
    /// memory.
    pub fn pass_on(&mut self, until: u64, pass: &mut dyn FnMut(&EventRef, bool)) {
        // Each block is in the order of time, or nearly so: the sort merges a few runs.
        self.held.sort_by_key(Held::key);
        let mut count = self.held.partition_point(|held| held.time < until);
        let mut left = self.bytes - bytes_of(&self.held[..count]);
        while left > self.bytes_max {
            left -= self.held[count].taken();
            count += 1;
        }
        if self.in_blocks() > self.bytes_max {
            (count, left) = (self.held.len(), 0);
        }
        let rest = self.held.split_off(count);
        let ready = std::mem::replace(&mut self.held, rest);
        self.bytes = left;
        for held in &ready {
            let late = held.time < self.passed;
            self.passed = self.passed.max(held.time);
            if let Some(event) = self.event(held) {
                pass(&event, late);
            }
        }
    }

    /// Bytes of the blocks that events are held back of.
    fn in_blocks(&mut self) -> usize {
        self.blocks.retain(|block| block.strong_count() > 0);
        self.blocks.iter().filter_map(Weak::upgrade).map(|block| block.len()).sum()
    }

    fn event<'a>(&'a self, held: &'a Held) -> Option<EventRef<'a>> {
        let (index, layout) = self.layouts.get(held.id)?;
        let from = held.at as usize;
        Some(EventRef {
            layout,
            index,
            time_ns: held.time,
            origin: held.origin,
            serial: held.serial,
            bytes: &held.block[from..from + held.size as usize],
        })
    }
}

fn bytes_of(held: &[Held]) -> usize {
    held.iter().map(Held::taken).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::RecordBuilder;

    const S: u64 = 1_000_000_000;

    fn layouts() -> Vec<EventLayout> {
        let field = |name: &str, ty: &str| {
            serde_json::json!({
                "name": name, "type": ty, "scalar": ty, "shape": "one", "offset": 8
            })
        };
        let event = |id: u16, name: &str, field| {
            let layout = serde_json::json!({
                "id": id, "schema": "x", "name": name, "fixed": 16, "fields": [field]
            });
            serde_json::from_value(layout).unwrap()
        };
        vec![event(1, "TICK", field("n", "i64")), event(2, "LOST", field("count", "u64"))]
    }

    struct Run {
        layouts: Vec<EventLayout>,
        merge: LiveMerge<u32>,
        out: Vec<(i64, bool)>,
    }

    impl Run {
        fn new() -> Run {
            let layouts = layouts();
            Run { merge: LiveMerge::new(&layouts), layouts, out: Vec::new() }
        }

        /// Events at these times, in seconds, which are their values too.
        fn block(&mut self, cpu: u16, serial: u64, seconds: &[u64]) {
            let mut records = Vec::new();
            for at in seconds {
                let tick = RecordBuilder::new(&self.layouts[0]).int("n", *at as i64);
                tick.finish(at * S, &mut records);
            }
            self.merge.block(Origin::Cpu(cpu), 0, serial, &records, &mut |_| {});
        }

        fn release(&mut self, now: u64) -> Vec<(i64, bool)> {
            let out = &mut self.out;
            self.merge.release(now * S, &mut |event, late| {
                out.push((event.get("n").unwrap().int().unwrap(), late));
            });
            std::mem::take(out)
        }
    }

    fn on_time(values: &[i64]) -> Vec<(i64, bool)> {
        values.iter().map(|n| (*n, false)).collect()
    }

    #[test]
    fn events_wait_until_all_sources_have_come_so_far() {
        let mut run = Run::new();
        run.merge.until(0, 10 * S);
        run.merge.until(1, 10 * S);
        run.block(0, 0, &[11, 13]);
        run.merge.until(0, 14 * S);
        assert_eq!(run.release(11), []);
        run.block(1, 0, &[12, 15]);
        run.merge.until(1, 16 * S);
        assert_eq!(run.release(11), on_time(&[11, 12, 13]));
        run.merge.until(0, 16 * S);
        assert_eq!(run.release(11), on_time(&[15]));
    }

    #[test]
    fn a_silent_source_is_waited_for_a_second() {
        let mut run = Run::new();
        run.merge.until(0, 10 * S);
        run.merge.until(1, 30 * S);
        run.block(1, 0, &[11, 12]);
        assert_eq!(run.release(11), []);
        assert_eq!(run.release(13), on_time(&[11]));
        run.block(0, 0, &[10, 12]);
        assert_eq!(run.release(14), [(10, true), (12, false), (12, false)]);
    }

    #[test]
    fn what_takes_too_much_memory_is_passed_on_early() {
        let mut run = Run::new();
        let each = size_of::<Held>() + 16;
        run.merge.bytes_max = 2 * each;
        run.merge.until(0, 1);
        run.block(0, 0, &[1, 2, 3, 4]);
        assert_eq!(run.release(1), on_time(&[1, 2]));
        assert_eq!(run.merge.bytes, 2 * each);
    }

    #[test]
    fn an_event_does_not_keep_a_large_block() {
        let mut run = Run::new();
        run.merge.bytes_max = 2 * (size_of::<Held>() + 16);
        run.merge.until(0, 10 * S);
        run.block(0, 0, &[1, 100]);
        assert_eq!(run.release(2), on_time(&[1]));
        run.block(0, 2, &[2; 20]);
        run.block(0, 22, &[101]);
        assert_eq!(run.release(3).len(), 22);
        assert_eq!(run.release(3), []);
    }

    #[test]
    fn equal_times_are_in_the_order_of_origins_and_a_loss_takes_serial_numbers() {
        let mut run = Run::new();
        let (mut records, mut seen) = (Vec::new(), Vec::new());
        let lost = RecordBuilder::new(&run.layouts[1]).int("count", 7);
        lost.finish(5, &mut records);
        RecordBuilder::new(&run.layouts[0]).int("n", 1).finish(5, &mut records);
        for cpu in [1, 0] {
            run.merge.block(Origin::Cpu(cpu), 0, 3, &records, &mut |_| {});
        }
        run.merge.finish(&mut |event, _| {
            seen.push((event.origin.cpu().unwrap(), event.layout.name.clone(), event.serial));
        });
        let row = |cpu, name: &str, serial| (cpu, name.to_string(), serial);
        let (first, second) = (row(0, "LOST", 3), row(0, "TICK", 10));
        assert_eq!(seen, [first, second, row(1, "LOST", 3), row(1, "TICK", 10)]);
    }

    #[test]
    fn what_is_no_record_ends_its_block() {
        let mut run = Run::new();
        run.merge.block(Origin::Cpu(0), 0, 0, &[0xff; 24], &mut |_| panic!());
        run.merge.finish(&mut |_, _| panic!());
    }
}
