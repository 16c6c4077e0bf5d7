// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds the blocks of a log: by its index or, if that is missing or invalid, by going through the
//! file.

use crate::damage::{Damage, note};
use crate::format::{
    self, BLOCK_HEADER_SIZE, BLOCK_MAGIC, BlockHeader, Kind, Packing, TRAILER_SIZE,
};
use crate::ledger::Key;
use crate::lock::Writing;
use crate::parts;
use crate::source::Source;
use std::ops::Range;

/// A block, and its position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub offset: u64,
    pub header: BlockHeader,
}

impl Block {
    /// The byte after the block.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.header.span())
    }
}

/// A limit for checksums over bytes that turn out not to be a block, per byte of the file:
/// otherwise a forged file could keep a reader busy for days.
const WASTE_PER_BYTE: u64 = 16;

/// What was found.
#[derive(Default)]
pub(crate) struct Blocks {
    pub blocks: Vec<Block>,
    pub damage: Vec<Damage>,
}

/// Finds all blocks from `start` (the end of the preamble) on.
pub(crate) fn find(source: &Source, start: u64) -> Blocks {
    match by_index(source, Some(start)) {
        Some(blocks) => Blocks { blocks, damage: Vec::new() },
        None => Scan { source, waste: 0, buffer: Vec::new() }.run(start),
    }
}

/// Finds all blocks of a log whose preamble cannot be read. A file that does not begin like a log
/// is searched only if it has an index.
pub(crate) fn find_without_start(source: &Source, may_be_log: bool) -> Option<Blocks> {
    if let Some(blocks) = by_index(source, None) {
        return Some(Blocks { blocks, damage: Vec::new() });
    }
    let mut scan = Scan { source, waste: 0, buffer: Vec::new() };
    let start = if may_be_log { scan.next_sound(0)? } else { return None };
    Some(scan.run(start))
}

/// `None` if there is no index, or if it does not account for every byte of the file, from `start`
/// on if that is known.
fn by_index(source: &Source, start: Option<u64>) -> Option<Vec<Block>> {
    let trailer_at = source.length().checked_sub(TRAILER_SIZE as u64)?;
    let mut trailer = [0; TRAILER_SIZE];
    source.read(trailer_at, &mut trailer).ok()?;
    let offset = format::decode_trailer(&trailer)?;
    let index = Block { offset, header: header_at(source, offset)? };
    if index.header.kind != Kind::Index || index.end() != trailer_at {
        return None;
    }
    let mut bytes = Vec::new();
    let payload = load(source, &index, &mut Vec::new(), &mut bytes).ok()?;
    let mut blocks = Vec::new();
    let mut end = start;
    for entry in bytes[payload].chunks(BLOCK_HEADER_SIZE) {
        let (offset, header) = entry.split_first_chunk::<8>()?;
        let block = Block {
            offset: u64::from_le_bytes(*offset),
            header: BlockHeader::decode(header.try_into().ok()?)?,
        };
        if end.is_some_and(|end| block.offset != end) {
            return None;
        }
        end = Some(block.end());
        blocks.push(block);
    }
    blocks.push(index);
    end.is_none_or(|end| end == offset).then_some(blocks)
}

/// The header at `offset`, if it is valid.
fn header_at(source: &Source, offset: u64) -> Option<BlockHeader> {
    let mut bytes = [0; BLOCK_HEADER_SIZE];
    source.read(offset, &mut bytes).ok()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    head.starts_with(&BLOCK_MAGIC).then(|| BlockHeader::decode(rest.first_chunk()?))?
}

/// Reads and checks one block, and appends its unpacked payload to `out`; returns its range.
/// `scratch` is a buffer for reuse. The error says what is wrong with the block.
pub(crate) fn load(
    source: &Source,
    block: &Block,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<Range<usize>, &'static str> {
    let (header, stored) = (block.header, block.header.stored as usize);
    let size = usize::from(header.size);
    let buffer = match header.packing {
        Packing::None => &mut *out,
        Packing::Zstd => {
            scratch.clear();
            &mut *scratch
        }
    };
    let begin = buffer.len();
    buffer.resize(begin + size + stored, 0);
    let bytes = &mut buffer[begin..];
    source.read(block.offset, bytes).map_err(|_| "it could not be read")?;
    if !header.agrees(bytes) || !parts::all_agree(&header, bytes) {
        return Err("its checksum is wrong");
    }
    if bytes[8..].first_chunk().and_then(BlockHeader::decode) != Some(header) {
        return Err("its header differs from the index");
    }
    match header.packing {
        Packing::None => Ok(begin + size..begin + size + stored),
        Packing::Zstd => {
            let begin = out.len();
            out.resize(begin + header.raw as usize, 0);
            let unpacked = zstd::bulk::decompress_to_buffer(&scratch[size..], &mut out[begin..]);
            match unpacked {
                Ok(n) if n == header.raw as usize => Ok(begin..out.len()),
                Ok(_) | Err(_) => Err("it could not be unpacked"),
            }
        }
    }
}

/// A pass through a file without an index.
struct Scan<'a> {
    source: &'a Source,
    waste: u64,
    buffer: Vec<u8>,
}

impl Scan<'_> {
    fn run(mut self, start: u64) -> Blocks {
        let mut found = Blocks::default();
        let length = self.source.length();
        let mut at = start.min(length);
        let mut ended = false;
        while at < length {
            if let Some(block) = self.sound(at) {
                at = block.end().min(length);
                found.blocks.push(block);
            } else if self.is_trailer(at) {
                at += TRAILER_SIZE as u64;
                ended = true;
            } else {
                let next = self.next_sound(at + 1);
                if next.is_some() || !self.is_begun(at) {
                    note(
                        &mut found.damage,
                        self.describe(at, next.unwrap_or(length), next.is_none()),
                    );
                }
                at = next.unwrap_or(length);
            }
        }
        if !ended {
            note(&mut found.damage, self.no_end(length));
        }
        found
    }

    /// The block at `at`, if its checksum is correct.
    fn sound(&mut self, at: u64) -> Option<Block> {
        let block = Block { offset: at, header: header_at(self.source, at)? };
        let header = block.header;
        let bytes = header.checked();
        let whole = u64::from(header.size) + u64::from(header.stored);
        if whole > self.source.length() - at
            || self.waste > self.source.length().saturating_mul(WASTE_PER_BYTE)
        {
            return None;
        }
        self.buffer.resize(bytes as usize, 0);
        self.source.read(at, &mut self.buffer).ok()?;
        if !header.agrees(&self.buffer) {
            self.waste += bytes;
            return None;
        }
        Some(block)
    }

    /// Whether the bytes from `at` to the end may be a block that is being written.
    fn is_begun(&self, at: u64) -> bool {
        let is_short = self.source.length() - at < BLOCK_HEADER_SIZE as u64;
        let is_longer =
            |header: BlockHeader| at.saturating_add(header.span()) > self.source.length();
        self.source.writing() == Writing::Yes
            && (is_short || header_at(self.source, at).is_some_and(is_longer))
    }

    fn no_end(&self, length: u64) -> Damage {
        let (key, what) = match self.source.writing() {
            Writing::Yes => (Key::BeingWritten, "ledger and index are still to come"),
            Writing::No => (Key::RecorderKilled, "ledger and index are missing"),
            Writing::Unknown => (
                Key::RecorderKilled,
                "ledger and index are missing; if another machine writes this file, they may be \
                 still to come",
            ),
        };
        Damage::new(key, length, length, what)
    }

    fn is_trailer(&self, at: u64) -> bool {
        let mut trailer = [0; TRAILER_SIZE];
        self.source.read(at, &mut trailer).is_ok() && format::decode_trailer(&trailer).is_some()
    }

    /// Where the next valid block, or the trailer, begins.
    fn next_sound(&mut self, from: u64) -> Option<u64> {
        const WINDOW: u64 = 1 << 20;
        let length = self.source.length();
        let trailer_at =
            length.checked_sub(TRAILER_SIZE as u64).filter(|&at| at >= from && self.is_trailer(at));
        let mut window = Vec::new();
        let mut at = from;
        while at < length {
            // Windows overlap, so that magic bytes across their border are found.
            let size = (length - at).min(WINDOW + BLOCK_MAGIC.len() as u64 - 1);
            window.resize(size as usize, 0);
            self.source.read(at, &mut window).ok()?;
            for i in magics(&window) {
                if self.sound(at + i as u64).is_some() {
                    return Some(at + i as u64);
                }
            }
            at += WINDOW;
        }
        trailer_at
    }

    /// Describes a range that contains no valid block.
    fn describe(&self, from: u64, to: u64, last: bool) -> Damage {
        let Some(header) = header_at(self.source, from) else {
            return Damage::new(Key::BlockCorrupt, from, to, "these bytes are not a block");
        };
        let block = Block { offset: from, header };
        if last && block.end() > self.source.length() {
            Damage::block(Key::FileCut, from, to, &header, "the block is incomplete")
        } else if block.end() == to {
            Damage::block(Key::BlockCorrupt, from, to, &header, "the checksum is wrong")
        } else {
            Damage::new(
                Key::BlockCorrupt,
                from,
                to,
                "at least one block that was here cannot be read",
            )
        }
    }
}

fn magics(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(BLOCK_MAGIC.len()).enumerate().filter(|(_, w)| **w == BLOCK_MAGIC).map(|(i, _)| i)
}
