// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A log that comes in piece by piece: through a pipe, or from a file that is being written.
//!
//! Nothing is read twice, so only what is in the log before a block is known when the block is
//! read. A block that is damaged, and bytes that are none, are noted and skipped.

use crate::damage::{Damage, note};
use crate::error::Error;
use crate::format::{self, BLOCK_HEADER_SIZE, BLOCK_MAGIC, BlockHeader, Kind, TRAILER_SIZE};
use crate::ledger::{Key, Ledger};
use crate::origin::Origin;
use crate::parts;
use crate::preamble::{Addition, Preamble, SchemaText};
use crate::reader::{Head, read_addition, read_head};
use crate::scan::{self, Block};
use crate::source::Source;
use crate::validate::Known;
use klogger_schema::layout::EventLayout;
use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

/// Streams whose serial numbers are compared. A forged log may have any number of streams.
const STREAMS_MAX: usize = 1 << 20;
/// A limit for checksums over bytes that turn out not to be a block, per byte that has come.
const WASTE_PER_BYTE: u64 = 16;

/// What comes next.
#[derive(Debug)]
pub enum Piece {
    /// The preamble is known from here on.
    Begin,
    /// Records of one stream, as in [`crate::writer::EventBlock`].
    Events { origin: Origin, time_base: u64, last_time: u64, first_serial: u64, records: Vec<u8> },
    /// The preamble has become longer.
    Addition(Addition),
    /// All events before this time have come.
    Progress(u64),
    /// The log is complete.
    End,
}

/// The state of reading a log from its beginning to where it has come.
#[derive(Default)]
pub struct Arriving {
    /// What has come. From `start` on it has not been read.
    bytes: Vec<u8>,
    start: usize,
    /// Where in the log that is.
    offset: u64,
    /// Bytes that are needed to go on.
    need: usize,
    preamble: Option<Preamble>,
    known: Known,
    /// Bytes that further schemata may have.
    room: usize,
    /// What was read of one block.
    ready: VecDeque<Piece>,
    /// By stream: the serial number that comes next.
    serials: BTreeMap<Origin, u64>,
    ledger: Option<Ledger>,
    /// By the headers of blocks.
    lost: u64,
    damage: Vec<Damage>,
    waste: u64,
    /// Where bytes began that are no block.
    lost_at: Option<u64>,
    complete: bool,
    /// The preamble of this log is still to come.
    in_head: bool,
    /// There was another log before this one.
    begun: bool,
}

impl Arriving {
    pub fn new() -> Arriving {
        Arriving { room: format::ADDITIONS_MAX, in_head: true, ..Arriving::default() }
    }

    /// More bytes of the log have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..take(&mut self.start));
        self.bytes.extend_from_slice(bytes);
    }

    /// What has not been read.
    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Another log goes on where this one ends: the next segment of its recording. Streams and
    /// events keep their numbers.
    pub fn restart(&mut self) {
        let before = take(self);
        *self = Arriving {
            begun: before.preamble.is_some(),
            preamble: before.preamble,
            known: before.known,
            room: before.room,
            serials: before.serials,
            lost: before.lost,
            damage: before.damage,
            ..Arriving::default()
        };
        self.in_head = true;
    }

    /// How much of the log has come.
    pub fn length(&self) -> u64 {
        self.offset + self.rest().len() as u64
    }

    /// `None` until [`Piece::Begin`].
    pub fn preamble(&self) -> Option<&Preamble> {
        self.preamble.as_ref()
    }

    /// Whether the end of the log has come.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// What was damaged, up to here.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The recorder's ledger, once it has come.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// How many events are lost according to what has come.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Notes that a piece had records, from the byte `at` on, which are invalid.
    pub fn note_malformed(&mut self, origin: Origin, at: usize) {
        let what = format!(
            "the record at byte {at} of the block before is malformed; it and what follows are \
             dropped"
        );
        note(
            &mut self.damage,
            Damage::new(Key::BlockCorrupt, self.offset, self.offset, what).of(origin),
        );
    }

    /// The next piece, if all of it has come.
    ///
    /// # Errors
    ///
    /// If this is no log. An incomplete preamble is an error only of [`Arriving::finish`].
    pub fn next_piece(&mut self) -> Result<Option<Piece>, Error> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if self.rest().len() < self.need || self.complete {
                return Ok(None);
            }
            let more = if self.in_head { self.read_preamble()? } else { self.read_block() };
            if !more {
                return Ok(None);
            }
        }
    }

    /// No more bytes will come: notes how the log ends, if it is not complete. `why`: what that
    /// means.
    ///
    /// # Errors
    ///
    /// If there is no preamble.
    pub fn finish(&mut self, why: Key) -> Result<(), Error> {
        if self.in_head {
            read_head(&Source::Memory(take(&mut self.bytes)))?;
        }
        if self.complete {
            return Ok(());
        }
        let end = self.length();
        if !self.rest().is_empty() {
            let what = "the block is incomplete";
            let damage = match header_at(self.rest()) {
                Some(header) => Damage::block(Key::FileCut, self.offset, end, &header, what),
                None => Damage::new(Key::FileCut, self.offset, end, what),
            };
            note(&mut self.damage, damage);
        }
        let what = "ledger and index are missing";
        note(&mut self.damage, Damage::new(why, end, end, what));
        Ok(())
    }

    /// False if more has to come.
    fn read_preamble(&mut self) -> Result<bool, Error> {
        if self.bytes.is_empty() {
            return Ok(false);
        }
        let source = Source::Memory(take(&mut self.bytes));
        let head = read_head(&source);
        let Source::Memory(bytes) = source else { return Ok(false) };
        self.bytes = bytes;
        match head {
            Ok(Head { preamble, end, .. }) if end <= self.bytes.len() as u64 => {
                self.begin(preamble).map_err(Error::PreambleCorrupt)?;
                self.in_head = false;
                self.pass(end as usize);
                Ok(true)
            }
            Ok(Head { end, .. }) => {
                self.need = end as usize;
                Ok(false)
            }
            Err(Error::PreambleCut { need, .. }) => {
                self.need = need as usize;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    fn begin(&mut self, preamble: Preamble) -> Result<(), String> {
        let known = Known::new(&preamble)?;
        if !self.begun {
            self.known = known;
            self.preamble = Some(preamble);
            self.ready.push_back(Piece::Begin);
            return Ok(());
        }
        // What the segments before this one have learned is in its preamble.
        let Some(before) = &self.preamble else { return Ok(()) };
        let is_same = |event: &EventLayout| preamble.events.iter().any(|e| e == event);
        let recording = |p: &Preamble| p.segment.as_ref().map(|s| s.recording.clone());
        if recording(before) != recording(&preamble) || !before.events.iter().all(is_same) {
            return Err("it is not of the same recording as the segment before it".into());
        }
        let new_event = |e: &EventLayout| before.events.iter().all(|known| known.id != e.id);
        let new_schema = |s: &SchemaText| before.schemas.iter().all(|known| known.name != s.name);
        let addition = Addition {
            schemas: preamble.schemas.into_iter().filter(new_schema).collect(),
            events: preamble.events.into_iter().filter(new_event).collect(),
            decodings: preamble.decodings,
        };
        if addition.events.is_empty() { Ok(()) } else { self.add(addition) }
    }

    /// Steps over `count` bytes.
    fn pass(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
        self.need = 0;
    }

    /// Reads a block, the trailer, or what is neither. False if more has to come.
    fn read_block(&mut self) -> bool {
        let rest = self.rest();
        if is_trailer(rest) {
            self.found();
            self.pass(TRAILER_SIZE);
            self.complete = true;
            self.ready.push_back(Piece::End);
            return true;
        }
        let is_begun = rest.len() < BLOCK_HEADER_SIZE && rest.starts_with(&BLOCK_MAGIC);
        if rest.len() < TRAILER_SIZE || is_begun {
            self.need = if is_begun { BLOCK_HEADER_SIZE } else { TRAILER_SIZE };
            return false;
        }
        let Some(header) = header_at(rest) else {
            self.skip();
            return true;
        };
        let span = header.span() as usize;
        if rest.len() < span {
            self.need = span;
            return false;
        }
        if self.take_block(header, span) {
            self.found();
            self.pass(span);
        } else {
            self.skip();
        }
        true
    }

    /// Reads a block that has come; false if it is none.
    fn take_block(&mut self, header: BlockHeader, span: usize) -> bool {
        if self.lost_at.is_some() {
            // Among bytes that are no blocks, most headers are none either.
            self.waste += header.checked();
            if self.waste > self.length().saturating_mul(WASTE_PER_BYTE) {
                return false;
            }
        }
        let block = Block { offset: 0, header };
        let source = Source::Memory(self.rest()[..span].to_vec());
        let mut bytes = Vec::new();
        match scan::load(&source, &block, &mut Vec::new(), &mut bytes) {
            Ok(payload) => {
                bytes.truncate(payload.end);
                bytes.drain(..payload.start);
                self.take_payload(&source, &block, bytes);
                true
            }
            Err(why) => self.salvage(&source, &block, why),
        }
    }

    fn take_payload(&mut self, source: &Source, block: &Block, payload: Vec<u8>) {
        let header = block.header;
        match header.kind {
            Kind::Events => {
                self.check_serial(&header);
                self.ready.push_back(events(&header, header.first_serial, payload));
            }
            Kind::Progress => self.ready.push_back(Piece::Progress(header.first_time)),
            Kind::Schemata => {
                let addition = read_addition(source, block, &mut self.room);
                if let Err(why) = addition.and_then(|addition| self.add(addition)) {
                    self.note(block, &why);
                }
            }
            Kind::Ledger => match serde_json::from_slice(&payload) {
                Ok(ledger) => self.ledger = Some(ledger),
                Err(_) => self.note(block, "its contents are invalid"),
            },
            Kind::Symbols
            | Kind::Stacks
            | Kind::Code
            | Kind::Preamble
            | Kind::Index
            | Kind::Other(_) => {}
        }
    }

    fn add(&mut self, addition: Addition) -> Result<(), String> {
        let new = self.known.check(&addition)?;
        let Some(preamble) = &mut self.preamble else { return Ok(()) };
        preamble.schemas.extend(addition.schemas.iter().cloned());
        preamble.events.extend(addition.events.iter().cloned());
        preamble.decodings.extend(new.decodings.values().cloned());
        self.known.extend(new);
        self.ready.push_back(Piece::Addition(addition));
        Ok(())
    }

    fn note(&mut self, block: &Block, why: &str) {
        let (from, to) = (self.offset, self.offset + block.header.span());
        let damage = Damage::block(Key::BlockCorrupt, from, to, &block.header, why);
        note(&mut self.damage, damage);
    }

    /// Reads what is intact of a damaged block; false if nothing is.
    fn salvage(&mut self, source: &Source, block: &Block, why: &str) -> bool {
        let header = block.header;
        let mut bytes = Vec::new();
        let pieces = parts::salvage(source, 0, &header, &mut bytes);
        if pieces.is_empty() {
            return false;
        }
        self.check_serial(&header);
        for parts::Piece { records, first_serial } in pieces {
            let records = bytes[records].to_vec();
            self.ready.push_back(events(&header, first_serial, records));
        }
        let (from, to) = (self.offset, self.offset + header.span());
        let what = format!("a part of the {} events of {}: {why}", header.events, header.origin);
        let damage = Damage::new(Key::BlockCorrupt, from, to, what).of(header.origin);
        note(&mut self.damage, damage);
        true
    }

    /// Compares a block's first serial number with the end of the block before it in its stream.
    fn check_serial(&mut self, header: &BlockHeader) {
        self.lost = self.lost.saturating_add(header.lost);
        let full = self.serials.len() >= STREAMS_MAX;
        let before = match self.serials.get_mut(&header.origin) {
            Some(next) => Some(std::mem::replace(next, header.next_serial())),
            None if full => None,
            None => self.serials.insert(header.origin, header.next_serial()),
        };
        let Some(before) = before.filter(|serial| *serial != header.first_serial) else { return };
        let missing = header.first_serial.wrapping_sub(before);
        let damage = Damage::new(Key::SerialGap, self.offset, self.offset, "").of(header.origin);
        let damage = match missing > i64::MAX as u64 {
            true => {
                Damage { what: format!("serial numbers of {} go back", header.origin), ..damage }
            }
            false => Damage {
                what: format!("{missing} serial numbers of {} are missing", header.origin),
                events: missing,
                ..damage
            },
        };
        note(&mut self.damage, damage);
    }

    /// Steps over bytes that are no block, up to what may be the next one.
    fn skip(&mut self) {
        self.lost_at.get_or_insert(self.offset);
        let rest = &self.rest()[1..];
        let next = (0..rest.len())
            .find(|at| rest[*at..].starts_with(&BLOCK_MAGIC) || is_trailer(&rest[*at..]));
        // A magic number, or the trailer, may have come in part.
        let most = rest.len().saturating_sub(TRAILER_SIZE - 2).max(1);
        self.pass(next.map_or(most, |at| at + 1));
    }

    /// What is at this place is sound: notes what was skipped before it.
    fn found(&mut self) {
        if let Some(from) = self.lost_at.take() {
            let what = "these bytes are not a block, or a damaged one";
            note(&mut self.damage, Damage::new(Key::BlockCorrupt, from, self.offset, what));
        }
    }
}

fn is_trailer(bytes: &[u8]) -> bool {
    bytes.first_chunk().and_then(format::decode_trailer).is_some()
}

fn header_at(bytes: &[u8]) -> Option<BlockHeader> {
    let bytes: &[u8; BLOCK_HEADER_SIZE] = bytes.first_chunk()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    head.starts_with(&BLOCK_MAGIC).then(|| BlockHeader::decode(rest.first_chunk()?))?
}

fn events(header: &BlockHeader, first_serial: u64, records: Vec<u8>) -> Piece {
    let BlockHeader { origin, first_time: time_base, last_time, .. } = *header;
    Piece::Events { origin, time_base, last_time, first_serial, records }
}
