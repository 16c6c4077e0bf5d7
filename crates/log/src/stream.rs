// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The events of one origin in the order of time, from blocks in which they may be slightly out of it.
//!
//! An event is held back until no later block can bring an earlier one. Blocks say the time of their earliest record,
//! so this is exact, for as far as the stream looks ahead ([`LOOKAHEAD`] blocks, which is far more than an interrupt
//! can last). An event that would come later than that is left out, and counted.

use crate::damage::{Damage, note};
use crate::ledger::Key;
use crate::origin::Origin;
use crate::record::{Header, SizeTable, full_time};
use crate::scan::{self, Block};
use crate::source::Source;
use crate::writer::LostRecord;

/// Blocks that a stream looks ahead for an earlier time. Also the bound of its memory.
const LOOKAHEAD: usize = 8;

/// One record of [`Stream::bytes`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub time: u64,
    pub serial: u64,
    pub at: u32,
    pub size: u16,
    pub id: u16,
}

/// What all streams of a merge share.
pub(crate) struct Shared<'r> {
    pub source: &'r Source,
    pub sizes: SizeTable,
    pub lost: LostRecord,
    pub damage: Vec<Damage>,
    pub scratch: Vec<u8>,
    /// Bytes that may still be loaded.
    pub room: usize,
}

pub(crate) struct Stream {
    pub origin: Origin,
    blocks: Vec<Block>,
    /// Which of the blocks is to be loaded next.
    next: usize,
    pub bytes: Vec<u8>,
    /// Sorted by (time, serial); those before `done` have been handed out.
    items: Vec<Item>,
    done: usize,
    /// Items before this one can be handed out.
    ready: usize,
    /// Time of the last item handed out or ready to be.
    reached: u64,
}

impl Stream {
    pub fn new(origin: Origin, blocks: Vec<Block>) -> Stream {
        Stream { origin, blocks, next: 0, bytes: Vec::new(), items: Vec::new(), done: 0, ready: 0, reached: 0 }
    }

    /// The next event, if it has been loaded.
    #[inline]
    pub fn head(&self) -> Option<&Item> {
        if self.done < self.ready { Some(&self.items[self.done]) } else { None }
    }

    /// Steps over the event that [`Stream::head`] returns.
    #[inline]
    pub fn step(&mut self) {
        self.done += 1;
    }

    /// No event still to come from blocks that are not loaded is earlier.
    pub fn bound(&self) -> u64 {
        let ahead = self.blocks[self.next..].iter().take(LOOKAHEAD);
        ahead.map(|b| b.header.first_time).min().unwrap_or(u64::MAX)
    }

    /// Loads blocks until there is an event to hand out; false at the end of the stream.
    pub fn refill(&mut self, shared: &mut Shared) -> bool {
        while self.done == self.ready {
            if self.next == self.blocks.len() && self.done == self.items.len() {
                shared.room += self.bytes.capacity();
                (self.bytes, self.items) = (Vec::new(), Vec::new());
                (self.done, self.ready) = (0, 0);
                return false;
            }
            self.carry();
            if self.next < self.blocks.len() {
                let before = self.bytes.capacity();
                self.load(shared);
                shared.room = shared.room.saturating_sub(self.bytes.capacity() - before);
            }
            let bound = self.bound();
            self.ready = self.items.partition_point(|i| i.time <= bound);
            self.reached = self.ready.checked_sub(1).map_or(self.reached, |last| self.items[last].time);
        }
        true
    }

    /// Moves what was held back to the front.
    fn carry(&mut self) {
        let held = self.items.split_off(self.done);
        (self.done, self.ready) = (0, 0);
        if held.is_empty() {
            self.items.clear();
            self.bytes.clear();
            return;
        }
        let mut bytes = Vec::new();
        self.items = held;
        for item in &mut self.items {
            let from = item.at as usize;
            item.at = bytes.len() as u32;
            bytes.extend_from_slice(&self.bytes[from..from + usize::from(item.size)]);
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&bytes);
    }

    /// Appends the items of the next block and sorts them in.
    fn load(&mut self, shared: &mut Shared) {
        let block = self.blocks[self.next];
        self.next += 1;
        let loaded = if block.header.raw as usize > shared.room {
            Err("too many blocks would have to be in memory at once")
        } else {
            scan::load(shared.source, &block, &mut shared.scratch, &mut self.bytes)
        };
        let payload = match loaded {
            Ok(payload) => payload,
            Err(why) => {
                let damage = Damage::block(Key::BlockCorrupt, block.offset, block.end(), &block.header, why);
                return note(&mut shared.damage, damage);
            }
        };
        let sorted = self.walk(&block, payload.start, payload.end, shared);
        if !sorted {
            self.items.sort_by_key(|i| (i.time, i.serial));
        }
        self.drop_late(&block, shared);
    }

    /// Adds an item for each record; returns whether all items are in order.
    fn walk(&mut self, block: &Block, mut at: usize, end: usize, shared: &mut Shared) -> bool {
        let base = block.header.first_time;
        let mut serial = block.header.first_serial;
        let mut last = self.items.last().map_or(0, |i| i.time);
        let (start, mut walked) = (at, 0);
        let mut sorted = true;
        while at < end {
            let rest = &self.bytes[at..end];
            let (Some(header), Some(size)) = (Header::read(rest), shared.sizes.size(rest)) else {
                self.note_malformed(block, at - start, Header::read(rest), walked, shared);
                break;
            };
            let time = full_time(base, header.time48());
            self.items.push(Item { time, serial, at: at as u32, size: size as u16, id: header.id() });
            let is_lost = header.id() == shared.lost.id;
            let taken = if is_lost { shared.lost.count(rest) } else { 1 };
            walked += u32::from(!is_lost);
            serial = serial.wrapping_add(taken);
            sorted &= last <= time;
            last = time;
            at += size;
        }
        sorted
    }

    /// A record without a size: nobody knows where the next one begins. `walked` events of the block came before it.
    fn note_malformed(&self, block: &Block, at: usize, header: Option<Header>, walked: u32, shared: &mut Shared) {
        let why = match header {
            Some(header) if !shared.sizes.knows(header.id()) => {
                format!("is of an event that the log does not describe (id {})", header.id())
            }
            Some(_) | None => "is malformed".into(),
        };
        let what = format!("the record at byte {at} of the block {why}; it and what follows are left out");
        let damage = Damage::new(Key::BlockCorrupt, block.offset, block.end(), what).of(self.origin);
        note(&mut shared.damage, Damage { events: u64::from(block.header.events.saturating_sub(walked)), ..damage });
    }

    /// Leaves out what is earlier than what has been handed out, so that time never runs backwards.
    fn drop_late(&mut self, block: &Block, shared: &mut Shared) {
        let late = self.items.partition_point(|i| i.time < self.reached);
        if late > 0 {
            let what = format!("{late} events are earlier than events long before them");
            let damage = Damage {
                events: late as u64,
                times: Some((self.items[0].time, self.reached)),
                ..Damage::new(Key::TimeDisorder, block.offset, block.end(), what).of(self.origin)
            };
            note(&mut shared.damage, damage);
            self.items.drain(..late);
        }
    }
}
