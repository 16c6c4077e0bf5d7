// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The parts of a block of events: checks them, and reads what is intact in a damaged block.

use crate::format::{BLOCK_HEADER_SIZE, BlockHeader, PART_SIZE, Packing, Part};
use crate::source::Source;
use std::ops::Range;

/// Consecutive records that were read, and the serial number of the first.
pub(crate) struct Piece {
    pub records: Range<usize>,
    pub first_serial: u64,
}

/// The parts of a block, with their checksums. `bytes` begin with the block's header.
fn parts<'a>(header: &BlockHeader, bytes: &'a [u8]) -> impl Iterator<Item = (Part, u32)> + use<'a> {
    let table = bytes.get(BLOCK_HEADER_SIZE..).unwrap_or_default();
    let table = table.get(..PART_SIZE * usize::from(header.parts)).unwrap_or_default();
    table.chunks_exact(PART_SIZE).filter_map(|b| Some(Part::decode(b.first_chunk()?)))
}

/// Whether every part matches its checksum, and together they are the whole payload. True if there
/// are none.
pub(crate) fn all_agree(header: &BlockHeader, bytes: &[u8]) -> bool {
    let payload = bytes.get(usize::from(header.size)..).unwrap_or_default();
    let mut end = 0;
    for (part, crc) in parts(header, bytes) {
        let stored = payload.get(part.start as usize..part.end as usize);
        if part.start != end || !stored.is_some_and(|b| part.agrees(crc, b)) {
            return false;
        }
        end = part.end;
    }
    header.parts == 0 || end == header.stored
}

/// Appends to `out` the records of the intact parts of a damaged block, which begins at `offset`.
/// The header may come from the index, because the parts have their own checksums.
pub(crate) fn salvage(
    source: &Source,
    offset: u64,
    header: &BlockHeader,
    out: &mut Vec<u8>,
) -> Vec<Piece> {
    let size = usize::from(header.size);
    let mut bytes = vec![0; size + header.stored as usize];
    if header.parts == 0 || source.read(offset, &mut bytes).is_err() {
        return Vec::new();
    }
    let (mut end, mut looked_at, begin) = (0, 0, out.len());
    let mut pieces = Vec::new();
    for (part, crc) in parts(header, &bytes) {
        let Some(stored) = bytes[size..].get(part.start as usize..part.end as usize) else {
            continue;
        };
        // Valid parts are contiguous. So a forged table cannot make the reader check the same bytes
        // again and again.
        looked_at += stored.len() as u64;
        if part.start < end || looked_at > 2 * u64::from(header.stored) || !part.agrees(crc, stored)
        {
            continue;
        }
        end = part.end;
        let from = out.len();
        if unpack(header.packing, stored, header.raw as usize - (from - begin), out) {
            let first_serial = header.first_serial.wrapping_add(part.serial.into());
            pieces.push(Piece { records: from..out.len(), first_serial });
        }
    }
    pieces
}

/// Appends a part to `out`, if it has no more than `room` bytes.
fn unpack(packing: Packing, stored: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    let from = out.len();
    match packing {
        Packing::None => {
            out.extend_from_slice(&stored[..stored.len().min(room)]);
            stored.len() <= room
        }
        Packing::Zstd => {
            out.resize(from + room, 0);
            let unpacked = zstd::bulk::decompress_to_buffer(stored, &mut out[from..]);
            out.truncate(from + unpacked.as_ref().map_or(0, |n| *n));
            unpacked.is_ok()
        }
    }
}
