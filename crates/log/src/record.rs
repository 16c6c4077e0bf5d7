// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The bytes of one record, which are the same in a ring and in a log. All numbers are
//! little-endian.
//!
//! ```text
//! byte 0      2                   8
//!      +------+-------------------+----------------------------------------+
//!      |  id  |  time, ns, low 48 |  fields, offsets as in EventLayout     |  ... padding to 8
//!      +------+-------------------+----------------------------------------+
//! ```
//! The header is one 64-bit word, `time << 16 | id`. Ids start at 1, so that a zero word is never a
//! header: in a ring it marks a record that is not yet committed. 48 bits of nanoseconds wrap after
//! 78 hours. Therefore code that stores records also stores one full time that is not later than
//! the earliest of them (see [`full_time`]).
//! (see [`full_time`]).

use crate::builtin::Builtin;
use klogger_schema::layout::{EventLayout, HEADER_SIZE, RECORD_MAX, pad8};

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub u64);

pub const TIME_MASK: u64 = (1 << 48) - 1;

impl Header {
    pub fn new(time: u64, id: u16) -> Header {
        Header(time << 16 | u64::from(id))
    }

    /// Reads the first 8 of `bytes`, or `None` if there are fewer.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Header> {
        bytes.first_chunk().map(|b| Header(u64::from_le_bytes(*b)))
    }

    #[inline]
    pub fn id(self) -> u16 {
        self.0 as u16
    }

    /// The low 48 bits of the time.
    #[inline]
    pub fn time48(self) -> u64 {
        self.0 >> 16
    }
}

/// The full time of a record that is not earlier than `base`, and less than 78 hours later.
#[inline]
pub fn full_time(base: u64, time48: u64) -> u64 {
    base.wrapping_add(time48.wrapping_sub(base) & TIME_MASK)
}

/// Sizes of records by event id, for stepping through bytes.
#[derive(Clone, Debug, Default)]
pub struct SizeTable {
    entries: Vec<Sizes>,
    /// Offsets of the u16 lengths of `string` fields.
    tails: Vec<u32>,
}

/// Of an event's records. Unknown ids have fixed == 0.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    fixed: u32,
    /// The size of each record, if all have the same; else 0.
    same: u32,
    /// The part of `tails` that belongs to the event.
    tails: (u32, u32),
}

impl SizeTable {
    pub fn new<'a>(events: impl IntoIterator<Item = &'a EventLayout>) -> SizeTable {
        let mut table = SizeTable::default();
        table.add(events);
        table
    }

    pub fn add<'a>(&mut self, events: impl IntoIterator<Item = &'a EventLayout>) {
        for e in events {
            let at = usize::from(e.id);
            if self.entries.len() <= at {
                self.entries.resize(at + 1, Sizes::default());
            }
            let from = self.tails.len() as u32;
            self.tails.extend(e.tails().map(|(f, _)| f.offset));
            let tails = (from, self.tails.len() as u32);
            let is_same = tails.0 == tails.1 && (HEADER_SIZE..=RECORD_MAX).contains(&e.fixed);
            let same = if is_same { pad8(e.fixed) } else { 0 };
            self.entries[at] = Sizes { fixed: e.fixed, same, tails };
        }
    }

    /// Whether the size of this event's records is known.
    pub fn knows(&self, id: u16) -> bool {
        self.entries.get(usize::from(id)).is_some_and(|e| e.fixed >= HEADER_SIZE)
    }

    /// The size of each of this event's records; `None` if it is unknown, or they differ.
    #[inline]
    pub fn same(&self, id: u16) -> Option<usize> {
        let same = self.entries.get(usize::from(id))?.same as usize;
        (same != 0).then_some(same)
    }

    /// The size of the record at the start of `bytes`; `None` if its id is unknown, or if `bytes`
    /// ends before it does.
    #[inline]
    pub fn size(&self, bytes: &[u8]) -> Option<usize> {
        let header = Header::read(bytes)?;
        let entry = self.entries.get(usize::from(header.id()))?;
        let same = entry.same as usize;
        if same != 0 {
            return (same <= bytes.len()).then_some(same);
        }
        self.size_with_texts(*entry, bytes)
    }

    /// The records at the start of `bytes`.
    #[inline]
    pub fn records<'a>(&self, bytes: &'a [u8]) -> Records<'_, 'a> {
        Records { sizes: self, rest: bytes }
    }

    fn size_with_texts(&self, entry: Sizes, bytes: &[u8]) -> Option<usize> {
        if entry.fixed < HEADER_SIZE {
            return None;
        }
        let mut size = entry.fixed;
        for &at in self.tails.get(entry.tails.0 as usize..entry.tails.1 as usize)? {
            let at = at as usize;
            size += u32::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        }
        let size = pad8(size);
        (size <= RECORD_MAX && size as usize <= bytes.len()).then_some(size as usize)
    }
}

/// One record of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub header: Header,
    pub bytes: &'a [u8],
}

impl Record<'_> {
    #[inline]
    pub fn id(&self) -> u16 {
        self.header.id()
    }

    /// Its full time, if it is not earlier than `base`, and less than 78 hours later.
    #[inline]
    pub fn time(&self, base: u64) -> u64 {
        full_time(base, self.header.time48())
    }
}

/// The records at the start of some bytes, up to the first one that is invalid or cut off.
#[derive(Clone, Debug)]
pub struct Records<'s, 'a> {
    sizes: &'s SizeTable,
    rest: &'a [u8],
}

impl<'a> Records<'_, 'a> {
    /// What follows the records that came already.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'_, 'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let header = Header::read(self.rest)?;
        let (bytes, rest) = self.rest.split_at_checked(self.sizes.size(self.rest)?)?;
        self.rest = rest;
        Some(Record { header, bytes })
    }
}

/// Offset of the count in a `LOST` record; id 0, which no record has, if the log has none.
#[derive(Clone, Copy, Default)]
pub(crate) struct LostRecord {
    pub id: u16,
    pub count_at: usize,
}

impl LostRecord {
    pub fn of(events: &[EventLayout]) -> LostRecord {
        let find = || {
            let layout = events.iter().find(|e| Builtin::of(e) == Some(Builtin::Lost))?;
            let count = layout.fields.iter().find(|f| f.name == "count")?;
            Some(LostRecord { id: layout.id, count_at: count.offset as usize })
        };
        find().unwrap_or_default()
    }

    /// How many serial numbers the record takes: its count if it is a `LOST` record.
    #[inline]
    pub fn count(self, bytes: &[u8]) -> u64 {
        let word = bytes.get(self.count_at..).and_then(|b| b.first_chunk());
        word.map_or(0, |b| u64::from_le_bytes(*b))
    }
}
