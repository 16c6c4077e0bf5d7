// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The tables of a log beside its events: symbols and stacks. Each segment of a recording has those
//! that its events need.

use super::Reader;
use crate::code::{self, Code};
use crate::damage::{Damage, note};
use crate::format::Kind;
use crate::ledger::Key;
use crate::scan::{self, Block};
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use std::collections::HashSet;

/// Bytes of symbol tables at most, and of stacks.
const SYMBOLS_MAX: usize = 128 << 20;

impl Reader {
    /// The symbol table; empty if the log has none, or if it cannot be read (which
    /// [`Reader::check_rest`] reports).
    pub fn symbols(&self) -> Symbols {
        Symbols::new(self.tables(Kind::Symbols).concat())
    }

    /// The stacks of the kernel and of programs; empty if the log has none, or if they cannot be
    /// read (which [`Reader::check_rest`] reports).
    pub fn stacks(&self) -> Stacks {
        let tables = self.tables(Kind::Stacks);
        let stacks = tables.iter().fold(Stacks::default(), |all, text| all.and(Stacks::new(text)));
        stacks.with(&self.code())
    }

    /// The user stacks, and the names of their code.
    pub fn code(&self) -> Code {
        let mut join = code::Join::default();
        self.tables(Kind::Code).iter().for_each(|text| join.add(Code::new(text)));
        join.into_code()
    }

    /// The tables of the segments, each of them once.
    fn tables(&self, kind: Kind) -> Vec<Vec<u8>> {
        let of_kind: Vec<_> = self.blocks.iter().filter(|b| b.header.kind == kind).collect();
        let segment = |block: &Block| self.segments.partition_point(|s| s.begin <= block.offset);
        let (mut tables, mut known, mut total) = (Vec::new(), HashSet::new(), 0);
        for blocks in of_kind.chunk_by(|a, b| segment(a) == segment(b)) {
            let mut text = Vec::new();
            for block in blocks {
                let mut bytes = Vec::new();
                let room = total + text.len() <= SYMBOLS_MAX;
                if let Some(Ok(payload)) =
                    room.then(|| scan::load(&self.source, block, &mut Vec::new(), &mut bytes))
                {
                    text.extend_from_slice(&bytes[payload]);
                }
            }
            if known.insert((text.len(), crc32c::crc32c(&text))) {
                total += text.len();
                tables.push(text);
            }
        }
        tables
    }

    /// Checks the blocks without events, which a [`crate::merge::Merge`] does not read.
    pub fn check_rest(&self) -> Vec<Damage> {
        let mut damage = Vec::new();
        for block in self.blocks.iter().filter(|b| b.header.kind != Kind::Events) {
            if let Err(why) = scan::load(&self.source, block, &mut Vec::new(), &mut Vec::new()) {
                let found =
                    Damage::block(Key::BlockCorrupt, block.offset, block.end(), &block.header, why);
                // Ledger and schemata were read, and their damage noted, when the log was opened.
                if !matches!(block.header.kind, Kind::Ledger | Kind::Schemata)
                    && self.source.removed(block.offset).is_none()
                {
                    note(&mut damage, self.source.named(found));
                }
            }
        }
        damage
    }
}
