// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Divides records into blocks and parts, and packs them.

use super::{Sink, Writer};
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCK_TARGET, BlockHeader, PACKED_PART_TARGET, PART_SIZE, PART_TARGET,
    Packing, Part,
};
use crate::record::TIME_MASK;
use std::io;

/// The result of one pass over the records of a block.
pub(super) struct Chunk {
    pub(super) bytes: usize,
    pub(super) first_time: u64,
    pub(super) last_time: u64,
    pub(super) events: u32,
    pub(super) lost: u64,
}

/// What is known of the records of a block. Times are full ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub first_ns: u64,
    pub last_ns: u64,
    /// `LOST` records not counted.
    pub events: u64,
    /// The sum of their counts.
    pub lost: u64,
}

impl Extent {
    pub(super) fn add(&mut self, chunk: &Chunk) {
        self.first_ns = self.first_ns.min(chunk.first_time);
        self.last_ns = self.last_ns.max(chunk.last_time);
        self.events += u64::from(chunk.events);
        self.lost = self.lost.saturating_add(chunk.lost);
    }
}

impl<S: Sink> Writer<S> {
    /// Steps over records up to the first malformed one, or to about [`BLOCK_TARGET`], and finds
    /// the parts.
    pub(super) fn walk(&mut self, records: &[u8], base: u64) -> Chunk {
        let part = if self.packer.is_some() { PACKED_PART_TARGET } else { PART_TARGET };
        let mut chunk = Chunk { bytes: 0, first_time: u64::MAX, last_time: 0, events: 0, lost: 0 };
        self.parts.clear();
        while chunk.bytes < BLOCK_TARGET {
            let begin = chunk.bytes;
            // More than 2^32 losses end a block, so that the number of a part fits into its header.
            let Ok(serial) = u32::try_from(chunk.lost.saturating_add(chunk.events.into())) else {
                break;
            };
            let whole = self.walk_part(records, base, begin + part, &mut chunk);
            if chunk.bytes > begin {
                self.parts.push((chunk.bytes, serial));
            }
            if !whole {
                break;
            }
        }
        chunk
    }

    /// Continues to `end` or a bit farther; false at the first malformed record.
    fn walk_part(&mut self, records: &[u8], base: u64, end: usize, chunk: &mut Chunk) -> bool {
        // In variables of their own, which stay in registers. Times are relative to the base.
        let (mut bytes, mut events) = (0, 0);
        let (mut first, mut last) = (u64::MAX, 0);
        let enough = end.saturating_sub(chunk.bytes);
        let mut rest = self.sizes.records(&records[chunk.bytes..]);
        let mut whole = true;
        while bytes < enough {
            let Some(record) = rest.next() else {
                whole = false;
                break;
            };
            let time = record.header.time48().wrapping_sub(base) & TIME_MASK;
            (first, last) = (first.min(time), last.max(time));
            if record.id() == self.lost.id {
                chunk.lost = chunk.lost.saturating_add(self.lost.count(record.bytes));
            } else {
                events += 1;
            }
            self.counts[usize::from(record.id())] += 1;
            bytes += record.bytes.len();
        }
        if bytes > 0 {
            chunk.first_time = chunk.first_time.min(base.wrapping_add(first));
            chunk.last_time = chunk.last_time.max(base.wrapping_add(last));
        }
        chunk.bytes += bytes;
        chunk.events += events;
        whole
    }

    /// Undoes the counts of [`Writer::walk`].
    pub(super) fn uncount(&mut self, records: &[u8]) {
        for record in self.sizes.records(records) {
            self.counts[usize::from(record.id())] -= 1;
        }
    }

    /// Appends a block of the parts that [`Writer::walk`] has found.
    pub(super) fn append_events(&mut self, header: BlockHeader, raw: &[u8]) -> io::Result<()> {
        if self.parts.len() < 2 {
            return self.append(header, raw, self.packer.is_some());
        }
        let (packing, packed, ends) = self.pack(raw)?;
        let stored = if packing == Packing::Zstd { packed.as_slice() } else { raw };
        let mut table = Vec::with_capacity(ends.len() * PART_SIZE);
        let mut start = 0;
        for (end, (_, serial)) in ends.iter().zip(&self.parts) {
            let part = Part { start: start as u32, end: *end as u32, serial: *serial };
            table.extend_from_slice(&part.encode(&stored[start..*end]));
            start = *end;
        }
        let (raw, stored_bytes) = (raw.len() as u32, stored.len() as u32);
        let size = (BLOCK_HEADER_SIZE + table.len()) as u16;
        let parts = ends.len() as u16;
        self.put_block(
            BlockHeader { size, packing, raw, stored: stored_bytes, parts, ..header },
            &table,
            stored,
        )
    }

    /// How the parts are stored, their bytes if they are packed, and where each of them ends.
    fn pack(&mut self, raw: &[u8]) -> io::Result<(Packing, Vec<u8>, Vec<usize>)> {
        let mut packed = Vec::new();
        if let Some(packer) = &mut self.packer {
            let (mut ends, mut start) = (Vec::new(), 0);
            for (end, _) in &self.parts {
                packed.extend_from_slice(&packer.compress(&raw[start..*end])?);
                ends.push(packed.len());
                start = *end;
            }
            if packed.len() < raw.len() {
                return Ok((Packing::Zstd, packed, ends));
            }
        }
        Ok((Packing::None, Vec::new(), self.parts.iter().map(|(end, _)| *end).collect()))
    }
}
