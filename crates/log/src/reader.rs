// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens a log: preamble, list of blocks, ledger, symbols. [`crate::merge::Merge`] reads the
//! events.

mod head;
mod join;
mod tables;

use self::head::read_copy;
pub(crate) use self::head::{Head, read_addition, read_head};
use self::join::Hole;
pub use self::join::SegmentFile;
use crate::damage::{Damage, note};
use crate::error::Error;
use crate::format::{self, BlockHeader, Kind};
use crate::ledger::{Entry, Key, Ledger};
use crate::lock::Writing;
use crate::origin::Origin;
use crate::parts::{self, Piece};
use crate::preamble::{Addition, Preamble, Segment};
use crate::scan::{self, Block};
use crate::source::Source;
use crate::validate::Known;
use crate::writer::{EventBlock, Sink, Writer};
use klogger_os::files::open_regular;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// An open log.
pub struct Reader {
    pub(crate) source: Source,
    preamble: Preamble,
    preamble_crc: u32,
    blocks: Vec<Block>,
    damage: Vec<Damage>,
    /// As the recorder wrote it; if it is missing, what `LOST` records say.
    ledger: Ledger,
    complete: bool,
    /// If the log is a folder.
    segments: Vec<SegmentFile>,
    /// What is missing between them.
    holes: Vec<Hole>,
}

impl Reader {
    /// Opens a file, or the segments in a folder as one log. What is no regular file is not opened:
    /// a FIFO would wait for a writer, and a device may do something.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
        let path = path.as_ref();
        match path.is_dir() {
            true => join::open(path),
            false => Reader::from_source(Source::file(open_regular(path)?)?),
        }
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
        let mut reader = Reader::parse(source)?;
        reader.check_serials();
        reader.note_unknown();
        reader.begin_at_segment();
        Ok(reader)
    }

    /// Reads all but the events, whose serial numbers are not checked.
    fn parse(source: Source) -> Result<Reader, Error> {
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
        let mut reader = Reader {
            source,
            preamble,
            preamble_crc,
            blocks,
            damage,
            ledger: Ledger::default(),
            complete: false,
            segments: Vec::new(),
            holes: Vec::new(),
        };
        reader.read_additions(known);
        reader.read_ledger();
        Ok(reader)
    }

    /// The preamble at the beginning of the log, with the schemata that were added later.
    pub fn preamble(&self) -> &Preamble {
        &self.preamble
    }

    /// The preamble as it was written when the log was begun: without later schemata, and of a
    /// segment with the clock of the whole recording.
    pub fn as_begun(&self) -> Result<Preamble, Error> {
        let read = |error| read_copy(&self.source, &error).map(|(head, _)| head).ok_or(error);
        Ok(read_head(&self.source).or_else(read)?.preamble)
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
        let mut ledger = self.ledger.clone();
        ledger.entries.extend(self.damage.iter().chain(later).map(Damage::entry));
        ledger
    }

    /// Whether the log was completed by its recorder.
    pub fn is_complete(&self) -> bool {
        self.complete
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
        let end = self.ledger.end_ns.or(self.times().map(|t| t.1));
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

    /// The segments, if the log is a folder.
    pub fn segments(&self) -> &[SegmentFile] {
        &self.segments
    }

    /// A segment alone, or the first one that is there, is a log that begins with it.
    fn begin_at_segment(&mut self) {
        let Some(Segment { start_ns, number: 2.., .. }) = self.preamble.segment else { return };
        let first = self.times().map(|t| t.0);
        // What was in a ring at the end of a segment is in the next one.
        let start = Some(start_ns).filter(|s| *s > 0).into_iter().chain(first).min();
        let clock = &mut self.preamble.clock;
        if let Some(later) = start.and_then(|start| start.checked_sub(clock.start_ns)) {
            clock.start_realtime_ns = clock.start_realtime_ns.saturating_add(later);
            clock.start_ns += later;
        }
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
        self.ledger.entries = self.losses_by_origin();
        let Some(block) = self.blocks.iter().rev().find(|b| b.header.kind == Kind::Ledger) else {
            return;
        };
        let mut bytes = Vec::new();
        let loaded = scan::load(&self.source, block, &mut Vec::new(), &mut bytes);
        let parsed = loaded.and_then(|at| {
            serde_json::from_slice(&bytes[at]).map_err(|_| "its contents are invalid")
        });
        match parsed {
            Ok(ledger) => (self.ledger, self.complete) = (ledger, true),
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
            // A stream that begins behind a hole may have begun in it.
            let begin = if self.holes.is_empty() { header.first_serial } else { 0 };
            let (serial, since, end) = before.unwrap_or((begin, header.first_time, 0));
            if serial == header.first_serial {
                continue;
            }
            let missing = header.first_serial.wrapping_sub(serial);
            let times = (since.min(header.first_time), since.max(header.first_time));
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
                let between = (end, block.offset);
                if damage.events == 0 || join::fill(&mut self.holes, between, damage.events, times)
                {
                    continue;
                }
            }
            if before.is_none() {
                continue;
            }
            damage.times = Some(times);
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
