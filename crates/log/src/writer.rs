// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Writes a log: preamble, blocks as the rings are drained, then symbols, ledger, index and
//! trailer.
//!
//! Every block is complete in the sink before the next begins, so that a log can be read however
//! its recording ends.

mod parts;
pub mod rewrite;
mod sink;

pub use self::parts::Extent;
pub use self::sink::Sink;
use crate::code::Code;
use crate::format::{
    self, ADDITIONS_MAX, BLOCK_HEADER_SIZE, BLOCK_RAW_MAX, BlockHeader, CPU_MAX, FILE_HEADER_SIZE,
    Kind, Packing,
};
use crate::ledger::{Entry, Key, Ledger};
use crate::origin::Origin;
use crate::preamble::{Addition, Preamble};
use crate::record::{LostRecord, SizeTable};
use crate::seen::Seen;
use crate::symbols;
use crate::validate::Known;
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    /// Level 1 (fast) to 19 (small).
    Zstd(i32),
}

/// Records of one stream, in the order in which space was reserved for them in the ring.
#[derive(Clone, Copy, Debug)]
pub struct EventBlock<'a> {
    pub origin: Origin,
    /// A full time (ns) which is not later than that of any record, and less than 78 hours before
    /// each.
    pub time_base: u64,
    /// Serial number of the first record. [`Writer::block`] returns the number at which the next
    /// block of this stream begins.
    pub first_serial: u64,
    pub records: &'a [u8],
}

/// What has been written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Of the file.
    pub bytes: u64,
    /// Without `LOST` records.
    pub events: u64,
    /// The sum of the counts in `LOST` records.
    pub lost: u64,
    /// (event id, records), `LOST` records included, in ascending order of ids.
    pub counts: Vec<(u16, u64)>,
}

impl Summary {
    /// Adds what is in another log.
    pub fn add(&mut self, other: &Summary) {
        self.bytes += other.bytes;
        self.events += other.events;
        self.lost = self.lost.saturating_add(other.lost);
        let mut counts: BTreeMap<u16, u64> = std::mem::take(&mut self.counts).into_iter().collect();
        other.counts.iter().for_each(|(id, n)| *counts.entry(*id).or_insert(0) += n);
        self.counts = counts.into_iter().collect();
    }
}

/// Writes one log.
pub struct Writer<S: Sink> {
    sink: S,
    /// The encoded preamble, for its copy at the end.
    head: Vec<u8>,
    /// Bytes in the sink; always the end of a complete block.
    offset: u64,
    known: Known,
    /// Bytes of all additions.
    added: usize,
    sizes: SizeTable,
    lost: LostRecord,
    code: Seen,
    data: Seen,
    packer: Option<zstd::bulk::Compressor<'static>>,
    /// Where the parts of the current block end, unpacked, and the serial number of each.
    parts: Vec<(usize, u32)>,
    index: Vec<(u64, BlockHeader)>,
    events: u64,
    losses: u64,
    counts: Vec<u64>,
    last: Extent,
    forgets: bool,
    /// A write failed and could not be undone, so nothing may follow.
    torn: bool,
    room: Option<Room>,
}

/// Makes room on a full disk; false if it cannot.
pub type Room = Box<dyn FnMut() -> bool + Send>;

/// Whether a disk is full, or a quota: other files are in the way.
pub fn needs_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether that is so, or the file is as large as it may be. FileTooLarge: RLIMIT_FSIZE, or the
/// file system's own limit.
fn is_full(error: &io::Error) -> bool {
    needs_room(error) || error.kind() == ErrorKind::FileTooLarge
}

impl<S: Sink> Writer<S> {
    /// Begins a log in `sink`, which must be empty.
    pub fn new(sink: S, preamble: &Preamble, compression: Compression) -> io::Result<Writer<S>> {
        let packer = match compression {
            Compression::None => None,
            Compression::Zstd(level) => Some(zstd::bulk::Compressor::new(level)?),
        };
        let json = serde_json::to_vec(preamble)?;
        if json.len() > format::PREAMBLE_MAX {
            return Err(invalid("the schemata of this log are larger than 16 MiB"));
        }
        let mut head = Vec::with_capacity(FILE_HEADER_SIZE + json.len());
        head.extend_from_slice(&format::encode_file_header(&json));
        head.extend_from_slice(&json);
        let mut writer = Writer::empty(sink, preamble, packer)?;
        writer.put(&[&head, padding(head.len())])?;
        writer.head = head;
        writer.code.learn(&preamble.events);
        writer.data.learn(&preamble.events);
        Ok(writer)
    }

    /// What is asked for room when the disk is full, before a write fails.
    pub fn set_room(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// Nothing has been written yet.
    fn empty(
        sink: S,
        preamble: &Preamble,
        packer: Option<zstd::bulk::Compressor<'static>>,
    ) -> io::Result<Writer<S>> {
        Ok(Writer {
            sink,
            head: Vec::new(),
            offset: 0,
            known: Known::new(preamble).map_err(|why| invalid(&why))?,
            added: 0,
            sizes: SizeTable::new(&preamble.events),
            lost: LostRecord::of(&preamble.events),
            code: Seen::code(),
            data: Seen::data(),
            packer,
            parts: Vec::new(),
            index: Vec::new(),
            events: 0,
            losses: 0,
            counts: vec![0; ids(&preamble.events)],
            last: Extent::default(),
            forgets: false,
            torn: false,
            room: None,
        })
    }

    /// Appends the description of events that the preamble does not have; from here on they may be
    /// logged.
    ///
    /// After an error nothing has changed. It is of kind `InvalidData` if the description
    /// contradicts what is there.
    pub fn add(&mut self, addition: &Addition) -> io::Result<()> {
        let json = serde_json::to_vec(addition)?;
        if self.added + json.len() > ADDITIONS_MAX {
            return Err(invalid("the schemata of all programs are larger than 16 MiB"));
        }
        let new = self.known.check(addition).map_err(|why| invalid(&why))?;
        self.append(BlockHeader::plain(Kind::Schemata), &json, self.packer.is_some())?;
        self.known.extend(new);
        self.added += json.len();
        self.sizes.add(&addition.events);
        self.code.learn(&addition.events);
        self.data.learn(&addition.events);
        self.counts.resize(self.counts.len().max(ids(&addition.events)), 0);
        if self.lost.id == 0 {
            self.lost = LostRecord::of(&addition.events);
        }
        Ok(())
    }

    /// Appends records of one stream, as one block or, if they are many, as several; returns the
    /// next serial number.
    ///
    /// An error of kind `InvalidData` means that a record is invalid; those before it are in the
    /// log. After any other error the log ends with its last complete block, and can still be
    /// finished.
    pub fn block(&mut self, block: &EventBlock) -> io::Result<u64> {
        match block.origin {
            Origin::Cpu(cpu) if cpu > CPU_MAX => {
                return Err(invalid(&format!("CPU {cpu} is above {CPU_MAX}")));
            }
            Origin::Thread { stream: 0, thread } => {
                return Err(invalid(&format!("{thread} has no stream")));
            }
            Origin::Cpu(_) | Origin::Recorder | Origin::Thread { .. } => {}
        }
        let mut serial = block.first_serial;
        let mut rest = block.records;
        self.last = Extent { first_ns: u64::MAX, ..Extent::default() };
        if self.forgets {
            self.index.clear();
        }
        while !rest.is_empty() {
            let chunk = self.walk(rest, block.time_base);
            if chunk.bytes == 0 {
                let at = block.records.len() - rest.len();
                let origin = block.origin;
                return Err(invalid(&format!(
                    "the record at byte {at} of a block of {origin} is malformed"
                )));
            }
            let header = BlockHeader {
                origin: block.origin,
                first_time: chunk.first_time,
                last_time: chunk.last_time,
                first_serial: serial,
                lost: chunk.lost,
                events: chunk.events,
                ..BlockHeader::plain(Kind::Events)
            };
            let (records, later) = rest.split_at(chunk.bytes);
            if let Err(error) = self.append_events(header, records) {
                self.uncount(records);
                return Err(error);
            }
            self.code.note(block.origin, records, &self.sizes);
            self.data.note(block.origin, records, &self.sizes);
            self.last.add(&chunk);
            self.events += u64::from(chunk.events);
            self.losses = self.losses.saturating_add(chunk.lost);
            serial = header.next_serial();
            rest = later;
        }
        Ok(serial)
    }

    /// Appends those of all kernel symbols that contain the code addresses in the log's events: a
    /// line `ADDRESS NAME` for each, ascending.
    pub fn symbols(&mut self, all: &str) -> io::Result<()> {
        let needed = symbols::needed(all, &self.code);
        self.lines(Kind::Symbols, &needed)
    }

    /// Appends the stacks whose numbers are in events: a line `NUMBER FRAME FRAME ...` for each.
    pub fn stacks(&mut self, text: &str) -> io::Result<()> {
        self.lines(Kind::Stacks, text)
    }

    /// Appends user stacks, and the names of their code.
    pub fn code(&mut self, code: &Code) -> io::Result<()> {
        self.lines(Kind::Code, &code.lines())
    }

    fn lines(&mut self, kind: Kind, text: &str) -> io::Result<()> {
        let mut rest = text.as_bytes();
        self.need_packer()?;
        while !rest.is_empty() {
            let room = &rest[..rest.len().min(BLOCK_RAW_MAX)];
            let whole = room.iter().rposition(|&b| b == b'\n').map_or(room.len(), |at| at + 1);
            let (lines, later) = rest.split_at(whole);
            self.append(BlockHeader::plain(kind), lines, true)?;
            rest = later;
        }
        Ok(())
    }

    /// Says that all events before this time have been appended, for those who follow the log.
    pub fn progress(&mut self, until_ns: u64) -> io::Result<()> {
        let (first_time, last_time) = (until_ns, until_ns);
        self.append(
            BlockHeader { first_time, last_time, ..BlockHeader::plain(Kind::Progress) },
            &[],
            false,
        )
    }

    /// What is known of the last records that [`Writer::block`] was given.
    pub fn last(&self) -> Extent {
        self.last
    }

    /// Keeps no list of blocks, for a sink that nothing can be read from again: otherwise the list
    /// grows with the recording.
    pub fn forgetting(self, forgets: bool) -> Writer<S> {
        Writer { forgets, ..self }
    }

    /// Bytes that have been written.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// The sum of the counts in `LOST` records.
    pub fn lost(&self) -> u64 {
        self.losses
    }

    /// The addresses of data in the events so far.
    pub fn data(&self) -> &Seen {
        &self.data
    }

    /// What has been written so far.
    pub fn summary(&self) -> Summary {
        let counts = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        Summary {
            bytes: self.offset,
            events: self.events,
            lost: self.losses,
            counts: counts.map(|(id, n)| (id as u16, *n)).collect(),
        }
    }

    /// Appends ledger, index and trailer.
    ///
    /// If the disk is full, discards the last blocks until there is room, and adds this to the
    /// ledger. Their events are subtracted from the summary's total, but not from its counts.
    pub fn finish(mut self, ledger: &Ledger) -> io::Result<Summary> {
        let mut ledger = ledger.clone();
        // Without room for the copy, the log is still complete.
        let _ = self.copy_head();
        loop {
            let (end, blocks) = (self.offset, self.index.len());
            let Err(error) = self.close(&ledger) else { break };
            self.index.truncate(blocks);
            self.rewind(end);
            match self.index.pop() {
                Some((offset, header)) if is_full(&error) => {
                    self.give_up(offset, &header, &mut ledger)
                }
                _ => return Err(error),
            }
        }
        self.sink.flush()?;
        Ok(self.summary())
    }

    /// Appends a copy of the preamble.
    fn copy_head(&mut self) -> io::Result<()> {
        let head = std::mem::take(&mut self.head);
        if head.len() > BLOCK_RAW_MAX {
            return Ok(());
        }
        self.need_packer()?;
        self.append(BlockHeader::plain(Kind::Preamble), &head, true)
    }

    fn need_packer(&mut self) -> io::Result<()> {
        if self.packer.is_none() {
            self.packer = Some(zstd::bulk::Compressor::new(1)?);
        }
        Ok(())
    }

    fn close(&mut self, ledger: &Ledger) -> io::Result<()> {
        let json = serde_json::to_vec(ledger)?;
        if json.len() > BLOCK_RAW_MAX {
            return Err(invalid("the ledger is larger than 16 MiB"));
        }
        self.append(BlockHeader::plain(Kind::Ledger), &json, false)?;
        let index_offset = self.offset;
        let index = self.encoded_index();
        // Without an index, a log of so many blocks is read block by block.
        if index.len() <= BLOCK_RAW_MAX {
            self.append(BlockHeader::plain(Kind::Index), &index, false)?;
        }
        self.put(&[&format::encode_trailer(index_offset)])
    }

    fn encoded_index(&self) -> Vec<u8> {
        let mut index = Vec::with_capacity(self.index.len() * BLOCK_HEADER_SIZE);
        for (offset, header) in &self.index {
            index.extend_from_slice(&offset.to_le_bytes());
            index.extend_from_slice(&header.encode(&[])[8..]);
        }
        index
    }

    /// Discards the last block to make room.
    fn give_up(&mut self, offset: u64, header: &BlockHeader, ledger: &mut Ledger) {
        self.rewind(offset);
        if header.kind == Kind::Events {
            // The ledger has the losses of its LOST records already.
            self.events -= u64::from(header.events);
            self.losses -= header.lost.min(self.losses);
            let entry = Entry::new(Key::DiskFull)
                .of(header.origin)
                .count(u64::from(header.events))
                .between(header.first_time, header.last_time)
                .detail("the last block was discarded to make room for this ledger");
            ledger.entries.push(entry);
        }
    }

    fn append(&mut self, header: BlockHeader, raw: &[u8], pack: bool) -> io::Result<()> {
        let packed = match &mut self.packer {
            Some(packer) if pack => Some(packer.compress(raw)?).filter(|p| p.len() < raw.len()),
            Some(_) | None => None,
        };
        let (packing, stored) = match &packed {
            Some(packed) => (Packing::Zstd, packed.as_slice()),
            None => (Packing::None, raw),
        };
        let header =
            BlockHeader { packing, raw: raw.len() as u32, stored: stored.len() as u32, ..header };
        self.put_block(header, &[], stored)
    }

    /// `table`: the table of parts, if there are any.
    fn put_block(&mut self, header: BlockHeader, table: &[u8], stored: &[u8]) -> io::Result<()> {
        let offset = self.offset;
        let head = header.encode(if table.is_empty() { stored } else { table });
        self.put(&[&head, table, stored, padding(stored.len())])?;
        self.index.push((offset, header));
        Ok(())
    }

    /// Writes all parts, or none of them.
    fn put(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if self.torn {
            return Err(io::Error::other(
                "an earlier write failed, and the log cannot be continued",
            ));
        }
        while let Err(error) = parts.iter().try_for_each(|part| self.sink.write_all(part)) {
            self.rewind(self.offset);
            let retry = needs_room(&error) && !self.torn;
            if !retry || !self.room.as_mut().is_some_and(|room| room()) {
                return Err(error);
            }
        }
        self.offset += parts.iter().map(|p| p.len() as u64).sum::<u64>();
        Ok(())
    }

    /// Goes back to the end of a complete block. If the sink cannot do that, a reader recognizes
    /// the partial block by its checksum.
    fn rewind(&mut self, length: u64) {
        match self.sink.cut(length) {
            Ok(()) => self.offset = length,
            Err(_) => self.torn = true,
        }
    }
}

/// Zeros up to a multiple of 8.
fn padding(length: usize) -> &'static [u8] {
    &[0; 8][..length.next_multiple_of(8) - length]
}

/// One more than the highest id.
fn ids(events: &[EventLayout]) -> usize {
    events.iter().map(|e| usize::from(e.id) + 1).max().unwrap_or(0)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}
