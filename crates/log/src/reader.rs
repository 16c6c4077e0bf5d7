// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens a log: preamble, list of blocks, ledger, symbols. [`crate::merge::Merge`] reads the
//! events.

mod head;

use self::head::read_copy;
pub(crate) use self::head::{Head, read_addition, read_head};
use crate::code::Code;
use crate::damage::{Damage, note};
use crate::error::Error;
use crate::format::{self, BlockHeader, Kind};
use crate::ledger::{Entry, Key, Ledger};
use crate::lock::Writing;
use crate::origin::Origin;
use crate::parts::{self, Piece};
use crate::preamble::{Addition, Preamble};
use crate::scan::{self, Block};
use crate::source::Source;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::validate::Known;
use crate::writer::{EventBlock, Sink, Writer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes of symbol tables at most, and of stacks.
const SYMBOLS_MAX: usize = 128 << 20;

/// An open log.
pub struct Reader {
    pub(crate) source: Source,
    preamble: Preamble,
    preamble_crc: u32,
    blocks: Vec<Block>,
    damage: Vec<Damage>,
    /// As the recorder wrote it; `None` if it is missing.
    recorded: Option<Ledger>,
}

impl Reader {
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
        Reader::from_source(Source::file(File::open(path)?)?)
    }

    /// Reads a log from an open file.
    pub fn of(file: File) -> Result<Reader, Error> {
        Reader::from_source(Source::file(file)?)
    }

    /// Opens a log in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, Error> {
        Reader::from_source(Source::Memory(bytes))
    }

    fn from_source(source: Source) -> Result<Reader, Error> {
        let (head, found) = match read_head(&source) {
            Ok(head) => {
                let found = scan::find(&source, head.end);
                (head, found)
            }
            Err(error) => read_copy(&source, &error).ok_or(error)?,
        };
        let known = Known::new(&head.preamble).map_err(Error::PreambleCorrupt)?;
        let (blocks, damage) = (found.blocks, found.damage);
        let Head { preamble, crc: preamble_crc, .. } = head;
        let mut reader = Reader { source, preamble, preamble_crc, blocks, damage, recorded: None };
        reader.read_additions(known);
        reader.read_ledger();
        reader.check_serials();
        reader.note_unknown();
        Ok(reader)
    }

    /// The preamble at the beginning of the log, with the schemata that were added later.
    pub fn preamble(&self) -> &Preamble {
        &self.preamble
    }

    /// The checksum of the log's preamble, which identifies the recording.
    pub fn preamble_crc(&self) -> u32 {
        self.preamble_crc
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.source.length()
    }

    /// All blocks that were found, in the order of the file.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The damage found when the log was opened. Damage inside a block is found when it is read:
    /// see [`crate::merge::Merge::damage`].
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The recorder's ledger entries, and those added by opening the log. `later`: damage found
    /// since, by a [`crate::merge::Merge`].
    pub fn ledger(&self, later: &[Damage]) -> Ledger {
        let mut ledger = self.recorded.clone().unwrap_or_default();
        if self.recorded.is_none() {
            ledger.entries.extend(self.losses_by_origin());
        }
        ledger.entries.extend(self.damage.iter().chain(later).map(Damage::entry));
        ledger
    }

    /// Whether the log was completed by its recorder.
    pub fn is_complete(&self) -> bool {
        self.recorded.is_some()
    }

    /// Whether a recorder was writing the log when it was opened.
    pub fn is_being_written(&self) -> bool {
        !self.is_complete() && self.source.writing() == Writing::Yes
    }

    /// Earliest and latest time of the events, from the headers of blocks; `None` if there are no
    /// events.
    pub fn times(&self) -> Option<(u64, u64)> {
        let events = || self.blocks.iter().filter(|b| b.header.kind == Kind::Events);
        Some((
            events().map(|b| b.header.first_time).min()?,
            events().map(|b| b.header.last_time).max()?,
        ))
    }

    /// When recording began, which is the origin of the times that are shown, and when it ended:
    /// from the preamble's start to the end in the ledger; in a log without either, the first and
    /// the last event.
    pub fn span(&self) -> (u64, u64) {
        let first = self.times().map_or(0, |t| t.0);
        let start = Some(self.preamble.clock.start_ns).filter(|s| *s != 0).unwrap_or(first);
        let end =
            self.recorded.as_ref().and_then(|ledger| ledger.end_ns).or(self.times().map(|t| t.1));
        (start, end.unwrap_or(start).max(start))
    }

    /// Events by the headers of blocks, `LOST` records not counted: (events, losses).
    pub fn totals(&self) -> (u64, u64) {
        let events = self.blocks.iter().filter(|b| b.header.kind == Kind::Events);
        events.fold((0, 0), |(n, lost), b| {
            (n + u64::from(b.header.events), b.header.lost.saturating_add(lost))
        })
    }

    /// The blocks of one stream, in the order of the file.
    pub fn blocks_of(&self, origin: Origin) -> Vec<Block> {
        let is_one = |b: &&Block| b.header.kind == Kind::Events && b.header.origin == origin;
        self.blocks.iter().filter(is_one).copied().collect()
    }

    /// Copies all events to another log with the same preamble, which may be continued. Those that
    /// cannot be read are left out; gaps in the serial numbers then show what is missing.
    pub fn copy_to<S: Sink>(&self, writer: &mut Writer<S>) -> io::Result<()> {
        let (mut scratch, mut bytes) = (Vec::new(), Vec::new());
        for block in &self.blocks {
            bytes.clear();
            let BlockHeader { kind, origin, first_time: time_base, first_serial, .. } =
                block.header;
            let Ok(payload) = scan::load(&self.source, block, &mut scratch, &mut bytes) else {
                bytes.clear();
                for Piece { records, first_serial } in
                    parts::salvage(&self.source, block.offset, &block.header, &mut bytes)
                {
                    writer.block(&EventBlock {
                        origin,
                        time_base,
                        first_serial,
                        records: &bytes[records],
                    })?;
                }
                continue;
            };
            let records = &bytes[payload];
            match kind {
                Kind::Events => {
                    writer.block(&EventBlock { origin, time_base, first_serial, records })?;
                }
                Kind::Schemata => {
                    if let Ok(addition) = serde_json::from_slice(records) {
                        writer.add(&addition)?;
                    }
                }
                Kind::Symbols
                | Kind::Ledger
                | Kind::Index
                | Kind::Stacks
                | Kind::Preamble
                | Kind::Code
                | Kind::Progress
                | Kind::Other(_) => {}
            }
        }
        Ok(())
    }

    /// The symbol table; empty if the log has none, or if it cannot be read (which
    /// [`Reader::check_rest`] reports).
    pub fn symbols(&self) -> Symbols {
        Symbols::new(self.lines(Kind::Symbols))
    }

    /// The stacks of the kernel and of programs; empty if the log has none, or if they cannot be
    /// read (which [`Reader::check_rest`] reports).
    pub fn stacks(&self) -> Stacks {
        Stacks::new(&self.lines(Kind::Stacks)).with(&self.code())
    }

    /// The user stacks, and the names of their code.
    pub fn code(&self) -> Code {
        Code::new(&self.lines(Kind::Code))
    }

    fn lines(&self, kind: Kind) -> Vec<u8> {
        let mut text = Vec::new();
        for block in self.blocks.iter().filter(|b| b.header.kind == kind) {
            if text.len() > SYMBOLS_MAX {
                break;
            }
            let mut bytes = Vec::new();
            if let Ok(payload) = scan::load(&self.source, block, &mut Vec::new(), &mut bytes) {
                text.extend_from_slice(&bytes[payload]);
            }
        }
        text
    }

    /// Checks the blocks without events, which a [`crate::merge::Merge`] does not read.
    pub fn check_rest(&self) -> Vec<Damage> {
        let mut damage = Vec::new();
        for block in self.blocks.iter().filter(|b| b.header.kind != Kind::Events) {
            if let Err(why) = scan::load(&self.source, block, &mut Vec::new(), &mut Vec::new()) {
                let found =
                    Damage::block(Key::BlockCorrupt, block.offset, block.end(), &block.header, why);
                // Ledger and schemata were read, and their damage noted, when the log was opened.
                if !matches!(block.header.kind, Kind::Ledger | Kind::Schemata) {
                    note(&mut damage, found);
                }
            }
        }
        damage
    }

    /// Adds later schemata to the preamble. An invalid one is left out, with its events.
    fn read_additions(&mut self, mut known: Known) {
        let mut room = format::ADDITIONS_MAX;
        for i in 0..self.blocks.len() {
            let block = self.blocks[i];
            if block.header.kind != Kind::Schemata {
                continue;
            }
            let addition = read_addition(&self.source, &block, &mut room)
                .and_then(|addition| self.add(addition, &mut known));
            if let Err(why) = addition {
                note(
                    &mut self.damage,
                    Damage::block(
                        Key::BlockCorrupt,
                        block.offset,
                        block.end(),
                        &block.header,
                        &why,
                    ),
                );
            }
        }
    }

    fn add(&mut self, addition: Addition, known: &mut Known) -> Result<(), String> {
        let new = known.check(&addition)?;
        self.preamble.schemas.extend(addition.schemas);
        self.preamble.events.extend(addition.events);
        self.preamble.decodings.extend(new.decodings.values().cloned());
        known.extend(new);
        Ok(())
    }

    fn read_ledger(&mut self) {
        let Some(block) = self.blocks.iter().rev().find(|b| b.header.kind == Kind::Ledger) else {
            return;
        };
        let mut bytes = Vec::new();
        let loaded = scan::load(&self.source, block, &mut Vec::new(), &mut bytes);
        let parsed = loaded.and_then(|at| {
            serde_json::from_slice(&bytes[at]).map_err(|_| "its contents are invalid")
        });
        match parsed {
            Ok(ledger) => self.recorded = Some(ledger),
            Err(why) => {
                let damage =
                    Damage::block(Key::BlockCorrupt, block.offset, block.end(), &block.header, why);
                note(&mut self.damage, damage);
            }
        }
    }

    /// Compares each block's first serial number with the end of the block before it in the same
    /// stream.
    fn check_serials(&mut self) {
        let mut expected = BTreeMap::new();
        for block in self.blocks.iter().filter(|b| b.header.kind == Kind::Events) {
            let header = block.header;
            let before = expected
                .insert(header.origin, (header.next_serial(), header.last_time, block.end()));
            let Some((serial, since, end)) =
                before.filter(|(serial, ..)| *serial != header.first_serial)
            else {
                continue;
            };
            let missing = header.first_serial.wrapping_sub(serial);
            let key =
                if self.preamble.recorder.overwrite { Key::Overwritten } else { Key::SerialGap };
            let mut damage = Damage::new(key, block.offset, block.offset, "");
            if missing > i64::MAX as u64 {
                damage.what = format!("serial numbers of {} go back", header.origin);
            } else {
                damage.what = format!("{missing} serial numbers of {} are missing", header.origin);
                // The events of its damaged blocks have been counted with the blocks.
                let is_here = |d: &&Damage| {
                    let here = end <= d.from && d.to <= block.offset;
                    here && (d.cpu, d.thread) == (header.origin.cpu(), header.origin.thread())
                };
                let counted = self
                    .damage
                    .iter()
                    .filter(is_here)
                    .fold(0, |sum: u64, d| sum.saturating_add(d.serials));
                let left_out = self.left_out(header.origin, serial, header.first_serial);
                damage.events = missing.saturating_sub(counted.saturating_add(left_out));
                if damage.events == 0 {
                    continue;
                }
            }
            damage.times = Some((since.min(header.first_time), since.max(header.first_time)));
            note(&mut self.damage, damage.of(header.origin));
        }
    }

    /// How many serial numbers of a stream, from `serial` on and before `next`, a snapshot leaves
    /// out because of their times.
    fn left_out(&self, origin: Origin, serial: u64, next: u64) -> u64 {
        let parts = self.preamble.snapshot.iter().flat_map(|snapshot| &snapshot.left_out);
        let here = parts.filter(|part| {
            (part.cpu, part.stream) == (origin.cpu(), origin.stream())
                && (serial..next).contains(&part.serial)
        });
        here.fold(0, |sum: u64, part| sum.saturating_add(part.count))
    }

    fn note_unknown(&mut self) {
        let unknown = self.blocks.iter().filter(|b| matches!(b.header.kind, Kind::Other(_)));
        let (count, first) = (unknown.clone().count(), unknown.clone().next().copied());
        if let Some(block) = first {
            let what = format!("{count} blocks of unknown kind were skipped");
            note(&mut self.damage, Damage::new(Key::UnknownBlock, block.offset, block.end(), what));
        }
    }

    /// Ledger entries from `LOST` records, for a log whose ledger is missing.
    fn losses_by_origin(&self) -> Vec<Entry> {
        let mut losses: BTreeMap<Origin, (u64, u64, u64)> = BTreeMap::new();
        for block in
            self.blocks.iter().filter(|b| b.header.kind == Kind::Events && b.header.lost > 0)
        {
            let header = block.header;
            let sum = losses.entry(header.origin).or_insert((0, u64::MAX, 0));
            *sum = (
                sum.0.saturating_add(header.lost),
                sum.1.min(header.first_time),
                sum.2.max(header.last_time),
            );
        }
        let entry = |(origin, (count, from, to))| {
            Entry::reading(Key::RingFull).of(origin).count(count).between(from, to)
        };
        losses.into_iter().map(entry).collect()
    }
}
