// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Copies a log with other names for the code of its user stacks. All other blocks are copied byte
//! by byte.

use super::{Sink, Writer};
use crate::code::Code;
use crate::format::{self, BLOCK_RAW_MAX, Kind};
use crate::reader::Reader;
use std::io;

/// Bytes that are copied at a time.
const CHUNK: u64 = 1 << 20;

/// Writes a copy of a complete log to `sink`, which must be empty.
pub fn with_code<S: Sink>(log: &Reader, code: &Code, sink: S) -> io::Result<()> {
    let mut writer = Writer::empty(sink, log.preamble(), None)?;
    let first = log.blocks().first().map_or(log.length(), |b| b.offset);
    copy(log, 0, first, &mut writer)?;
    let mut waiting = Some(code);
    for block in log.blocks() {
        let kind = block.header.kind;
        if matches!(kind, Kind::Code | Kind::Index) {
            continue;
        }
        // The order in which a recorder writes them.
        if matches!(kind, Kind::Symbols | Kind::Preamble | Kind::Ledger)
            && let Some(code) = waiting.take()
        {
            writer.code(code)?;
        }
        writer.index.push((writer.offset, block.header));
        copy(log, block.offset, block.end(), &mut writer)?;
    }
    if let Some(code) = waiting {
        writer.code(code)?;
    }
    let at = writer.offset;
    let index = writer.encoded_index();
    if index.len() <= BLOCK_RAW_MAX {
        writer.append(format::BlockHeader::plain(Kind::Index), &index, false)?;
    }
    writer.put(&[&format::encode_trailer(at)])?;
    writer.sink.flush()
}

fn copy<S: Sink>(log: &Reader, from: u64, to: u64, writer: &mut Writer<S>) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let mut bytes = vec![0; (to - at).min(CHUNK) as usize];
        log.source.read(at, &mut bytes)?;
        writer.put(&[&bytes])?;
        at += bytes.len() as u64;
    }
    Ok(())
}
