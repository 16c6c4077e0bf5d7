// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Sorts the events of one origin by time. Within and across blocks they may be slightly out of
//! order.
//!
//! An event is held back until no later block can contain an earlier one. Blocks have the time of
//! their earliest record, so this is exact as far as the stream looks ahead ([`LOOKAHEAD`] blocks,
//! far more than an interrupt can last). An event that comes even later is dropped and counted. The
//! number of events held back is limited to those of that many blocks, whatever the headers of a
//! forged log say. So a stream takes time in proportion to its bytes, and the memory of a few
//! blocks.

use crate::damage::{Damage, note};
use crate::ledger::Key;
use crate::origin::Origin;
use crate::parts::{self, Piece};
use crate::record::LostRecord;
use crate::record::{Header, SizeTable};
use crate::scan::{self, Block};
use crate::source::Source;
use klogger_schema::layout::HEADER_SIZE;
use std::collections::VecDeque;

/// How many blocks a stream looks ahead for an earlier time. This also limits its memory.
const LOOKAHEAD: usize = 8;
/// Most bytes of memory per byte of a block: the byte itself, and an [`Item`] for each record, in a
/// `Vec` that may have grown to twice its size.
const MEMORY_PER_BYTE: usize = 1 + 2 * size_of::<Item>() / HEADER_SIZE as usize;

/// One record of [`Stream::bytes`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub time: u64,
    pub serial: u64,
    pub at: u32,
    pub size: u16,
    pub id: u16,
}

/// State shared by all streams of a merge.
pub(crate) struct Shared<'r> {
    pub source: &'r Source,
    pub sizes: SizeTable,
    pub lost: LostRecord,
    pub damage: Vec<Damage>,
    pub scratch: Vec<u8>,
    /// Time of the last event that was returned, of all streams, when the merge last changed its
    /// current stream.
    pub reached: u64,
    /// Bytes of memory that streams may still take.
    pub room: usize,
}

impl Shared<'_> {
    fn note(&mut self, damage: Damage) {
        note(&mut self.damage, self.source.named(damage));
    }

    /// Notes a block that cannot be read because its file was removed; false if it is there.
    fn note_removed(&mut self, block: &Block) -> bool {
        let Some(name) = self.source.removed(block.offset) else { return false };
        let header = &block.header;
        let (events, times) = (u64::from(header.events), (header.first_time, header.last_time));
        let is_it =
            |d: &&mut Damage| d.key == Key::SegmentsMissing && d.file.as_ref() == Some(&name);
        if let Some(known) = self.damage.iter_mut().find(is_it) {
            known.add(events, times.0, times.1);
            return true;
        }
        let what = format!("{name} was removed while the log was read");
        let mut damage = Damage::new(Key::SegmentsMissing, 0, 0, what);
        damage.file = Some(name);
        damage.add(events, times.0, times.1);
        note(&mut self.damage, damage);
        true
    }
}

pub(crate) struct Stream {
    pub origin: Origin,
    blocks: Vec<Block>,
    /// Which of the blocks is to be loaded next.
    next: usize,
    pub bytes: Vec<u8>,
    /// Sorted by (time, serial); those before `done` have been returned.
    items: Vec<Item>,
    done: usize,
    /// Items before this one can be returned.
    ready: usize,
    /// Time of the last item that was returned or is ready.
    reached: u64,
    /// How many items the last [`LOOKAHEAD`] blocks had.
    latest: VecDeque<usize>,
    /// Bytes of memory taken from [`Shared::room`].
    charged: usize,
}

impl Stream {
    pub fn new(origin: Origin, blocks: Vec<Block>) -> Stream {
        let (bytes, items, latest) = (Vec::new(), Vec::new(), VecDeque::new());
        Stream {
            origin,
            blocks,
            next: 0,
            bytes,
            items,
            done: 0,
            ready: 0,
            reached: 0,
            latest,
            charged: 0,
        }
    }

    /// The next event, if it is loaded.
    #[inline]
    pub fn head(&self) -> Option<&Item> {
        if self.done < self.ready { Some(&self.items[self.done]) } else { None }
    }

    /// Steps over the event that [`Stream::head`] returns.
    #[inline]
    pub fn step(&mut self) {
        self.done += 1;
    }

    /// Time of the last event that was stepped over since the last block was loaded.
    pub fn last(&self) -> Option<u64> {
        self.done.checked_sub(1).map(|last| self.items[last].time)
    }

    /// No event in a block that is not loaded is earlier than this.
    pub fn bound(&self) -> u64 {
        let ahead = self.blocks[self.next..].iter().take(LOOKAHEAD);
        ahead.map(|b| b.header.first_time).min().unwrap_or(u64::MAX)
    }

    /// Loads blocks until an event is ready; false at the end of the stream.
    pub fn refill(&mut self, shared: &mut Shared) -> bool {
        while self.done == self.ready {
            if self.next == self.blocks.len() && self.done == self.items.len() {
                (self.bytes, self.items) = (Vec::new(), Vec::new());
                (self.done, self.ready) = (0, 0);
                self.charge(shared);
                return false;
            }
            self.carry();
            if self.next < self.blocks.len() {
                let before = self.items.len();
                self.load(shared);
                self.charge(shared);
                self.latest.push_back(self.items.len().saturating_sub(before));
                if self.latest.len() > LOOKAHEAD {
                    self.latest.pop_front();
                }
            }
            let bound = self.bound();
            let surplus = self.items.len().saturating_sub(self.latest.iter().sum());
            self.ready = self.items.partition_point(|i| i.time <= bound).max(surplus);
            self.reached =
                self.ready.checked_sub(1).map_or(self.reached, |last| self.items[last].time);
        }
        true
    }

    /// Updates the memory that the stream takes from the common limit.
    fn charge(&mut self, shared: &mut Shared) {
        let taken = self.bytes.capacity() + self.items.capacity() * size_of::<Item>();
        shared.room = (shared.room + self.charged).saturating_sub(taken);
        self.charged = taken;
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
        let loaded = if block.header.raw as usize * MEMORY_PER_BYTE > shared.room {
            Err("too many blocks would have to be in memory at once")
        } else {
            scan::load(shared.source, &block, &mut shared.scratch, &mut self.bytes)
        };
        let sorted = match loaded {
            Ok(payload) => self.walk(
                &block,
                &Piece { records: payload, first_serial: block.header.first_serial },
                shared,
            ),
            Err(_) if shared.note_removed(&block) => true,
            Err(why) => self.salvage(&block, why, shared),
        };
        if !sorted {
            self.items.sort_by_key(|i| (i.time, i.serial));
        }
        self.drop_late(&block, shared);
    }

    /// Adds what can be read of a damaged block, and notes the rest as damage; returns whether all
    /// items are in order.
    fn salvage(&mut self, block: &Block, why: &str, shared: &mut Shared) -> bool {
        let (events, noted) = (self.events(shared), shared.damage.len());
        let fits = block.header.raw as usize * MEMORY_PER_BYTE <= shared.room;
        let pieces = if fits {
            parts::salvage(shared.source, block.offset, &block.header, &mut self.bytes)
        } else {
            Vec::new()
        };
        if pieces.is_empty() {
            let damage =
                Damage::block(Key::BlockCorrupt, block.offset, block.end(), &block.header, why);
            shared.note(damage);
            return true;
        }
        let mut sorted = true;
        for piece in &pieces {
            sorted &= self.walk(block, piece, shared);
        }
        shared.damage.truncate(noted);
        let missing =
            block.header.events.saturating_sub(self.events(shared).saturating_sub(events) as u32);
        shared.note(Damage::partial(block.offset, block.end(), &block.header, missing, why));
        sorted
    }

    /// Events among the items.
    fn events(&self, shared: &Shared) -> usize {
        self.items.iter().filter(|i| i.id != shared.lost.id).count()
    }

    /// Adds an item for each record; returns whether all items are in order.
    fn walk(&mut self, block: &Block, piece: &Piece, shared: &mut Shared) -> bool {
        let base = block.header.first_time;
        let mut serial = piece.first_serial;
        let mut last = self.items.last().map_or(0, |i| i.time);
        let (mut at, mut walked, mut sorted) = (piece.records.start, 0, true);
        let mut records = shared.sizes.records(&self.bytes[piece.records.clone()]);
        for record in records.by_ref() {
            let (time, size) = (record.time(base), record.bytes.len());
            let id = record.id();
            self.items.push(Item { time, serial, at: at as u32, size: size as u16, id });
            let is_lost = id == shared.lost.id;
            let taken = if is_lost { shared.lost.count(record.bytes) } else { 1 };
            walked += u32::from(!is_lost);
            serial = serial.wrapping_add(taken);
            sorted &= last <= time;
            last = time;
            at += size;
        }
        let rest = records.rest();
        if !rest.is_empty() {
            let header = Header::read(rest);
            self.note_malformed(block, at - piece.records.start, header, walked, shared);
        }
        sorted
    }

    /// A record of unknown size: the begin of the next one is unknown. `walked` events of the block
    /// came before it.
    fn note_malformed(
        &self,
        block: &Block,
        at: usize,
        header: Option<Header>,
        walked: u32,
        shared: &mut Shared,
    ) {
        let why = match header {
            Some(header) if !shared.sizes.knows(header.id()) => {
                format!("is of an event that the log does not describe (id {})", header.id())
            }
            Some(_) | None => "is malformed".into(),
        };
        let what =
            format!("the record at byte {at} of the block {why}; it and what follows are dropped");
        let damage =
            Damage::new(Key::BlockCorrupt, block.offset, block.end(), what).of(self.origin);
        let events = u64::from(block.header.events.saturating_sub(walked));
        shared.note(Damage { events, ..damage });
    }

    /// Drops events that are earlier than those already returned, so that time never runs
    /// backwards.
    fn drop_late(&mut self, block: &Block, shared: &mut Shared) {
        let reached = self.reached.max(shared.reached);
        let late = self.items.partition_point(|i| i.time < reached);
        if late > 0 {
            let what = format!("{late} events are earlier than events long before them");
            let damage = Damage {
                events: late as u64,
                times: Some((self.items[0].time, reached)),
                ..Damage::new(Key::TimeDisorder, block.offset, block.end(), what).of(self.origin)
            };
            shared.note(damage);
            self.items.drain(..late);
        }
    }
}
