// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Merges the events of all streams by time; equal times are ordered by origin, then by serial
//! number.

use crate::damage::Damage;
use crate::event::EventRef;
use crate::format::Kind;
use crate::origin::Origin;
use crate::reader::Reader;
use crate::record::LostRecord;
use crate::record::SizeTable;
use crate::scan::Block;
use crate::stream::{Shared, Stream};
use klogger_schema::layout::EventLayout;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The most memory in bytes for blocks and their lists of records, over all streams. A real log
/// needs a few MiB per stream.
const MEMORY_MAX: u64 = 2 << 30;
/// The least value of that limit, to which bytes in proportion to the file are added: a forged log
/// of a few kB may unpack to many GiB.
const MEMORY_MIN: u64 = 256 << 20;
const MEMORY_PER_BYTE: u64 = 64;

/// Which events a merge returns. Times are full ns of the log clock.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// All, if `None`.
    pub origins: Option<Vec<Origin>>,
    /// Nothing before this time.
    pub from_ns: Option<u64>,
    /// Nothing after this time.
    pub to_ns: Option<u64>,
}

/// A pass through a log in the order of time.
pub struct Merge<'r> {
    layouts: &'r [EventLayout],
    /// By event id: which of `layouts`.
    by_id: Vec<u32>,
    shared: Shared<'r>,
    streams: Vec<Stream>,
    /// (time before which the stream has no events, index into `streams`, which is in the order of
    /// origins)
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream that is being read, until it passes `limit`.
    current: usize,
    limit: (u64, usize),
    from_ns: u64,
    to_ns: u64,
    /// Bytes of the file in the blocks to be read.
    total: u64,
}

/// Bytes of memory that merging a log of this length may take.
fn room(length: u64) -> usize {
    MEMORY_MAX.min(MEMORY_MIN.saturating_add(length.saturating_mul(MEMORY_PER_BYTE))) as usize
}

impl Reader {
    /// The events of all CPUs and threads in the order of time.
    pub fn merge(&self, selection: &Selection) -> Merge<'_> {
        Merge::new(self, selection)
    }
}

impl<'r> Merge<'r> {
    fn new(reader: &'r Reader, selection: &Selection) -> Merge<'r> {
        let (from_ns, to_ns) =
            (selection.from_ns.unwrap_or(0), selection.to_ns.unwrap_or(u64::MAX));
        let mut by_origin: BTreeMap<Origin, Vec<Block>> = BTreeMap::new();
        let mut total = 0;
        for block in reader.blocks().iter().filter(|b| b.header.kind == Kind::Events) {
            let header = block.header;
            let wanted =
                selection.origins.as_ref().is_none_or(|origins| origins.contains(&header.origin));
            if wanted && header.last_time >= from_ns && header.first_time <= to_ns {
                by_origin.entry(header.origin).or_default().push(*block);
                total += header.span();
            }
        }
        let layouts = &reader.preamble().events;
        let mut by_id = vec![0; layouts.iter().map(|e| usize::from(e.id) + 1).max().unwrap_or(0)];
        for (index, layout) in layouts.iter().enumerate() {
            by_id[usize::from(layout.id)] = index as u32;
        }
        let streams: Vec<_> =
            by_origin.into_iter().map(|(origin, blocks)| Stream::new(origin, blocks)).collect();
        let shared = Shared {
            source: &reader.source,
            sizes: SizeTable::new(layouts),
            lost: LostRecord::of(layouts),
            damage: Vec::new(),
            scratch: Vec::new(),
            reached: 0,
            room: room(reader.length()),
        };
        let waiting = streams.iter().enumerate().map(|(i, s)| Reverse((s.bound(), i))).collect();
        // No stream is current yet: the first call of `next` takes one of those that wait.
        let current = streams.len();
        Merge {
            layouts,
            by_id,
            shared,
            streams,
            waiting,
            current,
            limit: (0, 0),
            from_ns,
            to_ns,
            total,
        }
    }

    /// Bytes of the file that will be read, to report progress.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// The damage found so far.
    pub fn damage(&self) -> &[Damage] {
        &self.shared.damage
    }

    /// The next event, or `None` at the end.
    #[inline]
    #[allow(clippy::should_implement_trait)] // It lends, which an Iterator cannot.
    pub fn next(&mut self) -> Option<EventRef<'_>> {
        loop {
            let found = self.streams.get(self.current).and_then(Stream::head).copied();
            let Some(item) = found.filter(|i| (i.time, self.current) <= self.limit) else {
                self.choose()?;
                continue;
            };
            self.streams[self.current].step();
            if item.time > self.to_ns {
                return None;
            }
            if item.time >= self.from_ns {
                let stream = &self.streams[self.current];
                let index = self.by_id[usize::from(item.id)] as usize;
                let at = item.at as usize;
                return Some(EventRef {
                    layout: &self.layouts[index],
                    index,
                    time_ns: item.time,
                    origin: stream.origin,
                    serial: item.serial,
                    bytes: &stream.bytes[at..at + usize::from(item.size)],
                });
            }
        }
    }

    /// Makes the stream with the earliest event the current one; `None` if there are no more
    /// events.
    fn choose(&mut self) -> Option<()> {
        let last = self.streams.get(self.current).and_then(Stream::last);
        self.shared.reached = self.shared.reached.max(last.unwrap_or(0));
        if let Some(stream) = self.streams.get_mut(self.current)
            && stream.refill(&mut self.shared)
        {
            let key = stream.head().map_or(stream.bound(), |item| item.time);
            self.waiting.push(Reverse((key, self.current)));
        }
        let Reverse((_, next)) = self.waiting.pop()?;
        self.current = next;
        self.limit = self.waiting.peek().map_or((u64::MAX, usize::MAX), |Reverse(key)| *key);
        // It may not have been loaded yet. If it turns out to be later than another stream, that
        // one comes next.
        self.streams[next].refill(&mut self.shared);
        Some(())
    }
}
