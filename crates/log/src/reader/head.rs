// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads the preamble, its copy at the end, and the schemata that were added later.

use crate::damage::Damage;
use crate::error::Error;
use crate::format::{self, FILE_HEADER_SIZE, FILE_MAGIC, Kind};
use crate::ledger::Key;
use crate::preamble::{Addition, Preamble};
use crate::scan::{self, Block};
use crate::source::Source;

/// `room`: bytes that further additions may have.
pub fn read_addition(source: &Source, block: &Block, room: &mut usize) -> Result<Addition, String> {
    let left = room.checked_sub(block.header.raw as usize);
    *room = left.ok_or("there are more than 16 MiB of schemata")?;
    let mut bytes = Vec::new();
    let json = scan::load(source, block, &mut Vec::new(), &mut bytes)?;
    serde_json::from_slice(&bytes[json]).map_err(|e| e.to_string())
}

/// The preamble of a log.
pub struct Head {
    pub preamble: Preamble,
    pub crc: u32,
    /// Offset of the first block.
    pub end: u64,
}

pub fn read_head(source: &Source) -> Result<Head, Error> {
    let length = source.length();
    if length == 0 {
        return Err(Error::Empty);
    }
    let mut head = vec![0; FILE_HEADER_SIZE.min(length as usize)];
    source.read(0, &mut head)?;
    let known = head.len().min(FILE_MAGIC.len());
    if head[..known] != FILE_MAGIC[..known] {
        return Err(Error::NotALog);
    }
    if head.get(7) == Some(&0) {
        return Err(Error::PreambleCorrupt("its version is 0".into()));
    }
    if let Some(&found) = head.get(7).filter(|v| **v > format::VERSION) {
        return Err(Error::NewerVersion { found, known: format::VERSION });
    }
    let Some(&[.., l0, l1, l2, l3, c0, c1, c2, c3]) = head.first_chunk::<FILE_HEADER_SIZE>() else {
        return Err(Error::PreambleCut { have: length, need: FILE_HEADER_SIZE as u64 });
    };
    let json_size = u32::from_le_bytes([l0, l1, l2, l3]);
    let end = FILE_HEADER_SIZE as u64 + u64::from(json_size);
    if json_size as usize > format::PREAMBLE_MAX {
        return Err(Error::PreambleCorrupt(format!(
            "its length, {json_size} bytes, is above the limit"
        )));
    }
    if end > length {
        return Err(Error::PreambleCut { have: length, need: end });
    }
    let mut json = vec![0; json_size as usize];
    source.read(FILE_HEADER_SIZE as u64, &mut json)?;
    let crc = u32::from_le_bytes([c0, c1, c2, c3]);
    if !format::crc_agrees(crc, format::preamble_crc(&head[..12], &json)) {
        return Err(Error::PreambleCorrupt("its checksum is wrong".into()));
    }
    let preamble =
        serde_json::from_slice(&json).map_err(|e| Error::PreambleCorrupt(e.to_string()))?;
    Ok(Head { preamble, crc, end: end.next_multiple_of(8) })
}

/// Reads the copy of the preamble, and the blocks, for a log whose preamble cannot be read.
pub fn read_copy(source: &Source, error: &Error) -> Option<(Head, scan::Blocks)> {
    // A file that does not begin like a log is searched only if it has an index.
    let may_be_log = !matches!(error, Error::NotALog);
    if matches!(error, Error::Io(_) | Error::Empty) {
        return None;
    }
    let mut found = scan::find_without_start(source, may_be_log)?;
    let copy = found.blocks.iter().rev().find(|b| b.header.kind == Kind::Preamble)?;
    let mut bytes = Vec::new();
    let payload = scan::load(source, copy, &mut Vec::new(), &mut bytes).ok()?;
    let head = read_head(&Source::Memory(bytes[payload].to_vec())).ok()?;
    let first = found.blocks.first()?.offset;
    let what = format!("{error}; its copy at the end of the log was read");
    found.damage.insert(0, Damage::new(Key::Mended, 0, first, what));
    Some((head, found))
}
