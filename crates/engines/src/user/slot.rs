// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The reader's side of one slot: the two rings of a thread, and later those of the thread that
//! reuses the slot.

use super::file::{ProgramFile, Slot};
use super::output::{Output, Stream};
use super::translate::{Batch, Ids, LOST_MAX};
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Thread;
use klogger_log::record::TIME_MASK;
use klogger_ring::CpuReader;
use klogger_ring::clock::Converter;
use klogger_schema::layout::RECORD_MAX;
use std::io;
use std::sync::atomic::Ordering;

/// Bytes moved at a time.
const BLOCK: usize = 1 << 20;

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub bytes: u64,
    /// More records remain.
    pub more: bool,
    /// No buffer was free: the disk is slower than the events.
    pub starved: bool,
}

impl Round {
    pub fn add(&mut self, part: Round) {
        self.bytes += part.bytes;
        self.more |= part.more;
        self.starved |= part.starved;
    }
}

pub struct SlotReader {
    number: usize,
    reader: CpuReader,
    /// The use of the slot that is being read.
    used: u32,
    stream: Option<Stream>,
    last_thread: Option<Thread>,
    /// Lost events, according to LOST records, and the streams that have some.
    lost: u64,
    losers: u32,
    refused: u64,
    /// Its contents are invalid, and it is not read any more.
    given_up: bool,
}

/// What is wrong with a slot.
pub enum Fault {
    Hostile(String),
    /// Bytes after an event that was never committed.
    Cut(u64),
}

impl SlotReader {
    /// `None` if no thread has opened the rings yet.
    pub fn open(file: &ProgramFile, number: usize, slot: &Slot) -> io::Result<Option<SlotReader>> {
        let reader = file.main_ring(number)?.map(|main| CpuReader::new(main, None));
        Ok(reader.map(|reader| SlotReader {
            number,
            reader,
            used: slot.used,
            stream: None,
            last_thread: None,
            lost: 0,
            losers: 0,
            refused: 0,
            given_up: false,
        }))
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of streams that have lost events.
    pub fn losers(&self) -> u32 {
        self.losers
    }

    pub fn last_thread(&self) -> Option<Thread> {
        self.last_thread
    }

    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Discards the records in the rings.
    pub fn forget(&mut self, file: &ProgramFile, ids: &Ids) -> io::Result<()> {
        self.look_for_nested(file)?;
        if self.reader.is_plausible() {
            self.reader.take(&ids.kinds, &mut Vec::new(), usize::MAX);
            self.reader.take_missed();
        }
        Ok(())
    }

    /// Moves records to the log: one block or, at the last call, all.
    pub fn drain(
        &mut self,
        file: &ProgramFile,
        ids: &Ids,
        slot: &Slot,
        thread: Thread,
        out: &mut Output,
        last: bool,
    ) -> io::Result<(Round, Option<Fault>)> {
        if self.given_up {
            return Ok((Round::default(), None));
        }
        if slot.used != self.used {
            self.change_use(slot);
        }
        let over = slot.used.is_multiple_of(2);
        if over && slot.emptied == slot.used && !last {
            return Ok((Round::default(), None));
        }
        if last || over || self.reader.fill() > 0 {
            self.look_for_nested(file)?;
        }
        let (round, mut fault) = self.empty(file, ids, thread, out, last);
        if fault.is_none() && !round.more && !round.starved && (over || last) && !file.is_broken() {
            fault = self.end_stream(file, thread, out);
            if over && !self.given_up {
                file.set_emptied(self.number, slot.used);
            }
        }
        Ok((round, fault))
    }

    /// Frees in `file` what was taken out of the copy of it that this reads. `now`: the slot there.
    pub fn free_in(&self, file: &ProgramFile, ids: &Ids, now: &Slot) -> io::Result<()> {
        if self.given_up || file.is_broken() {
            return Ok(());
        }
        let mut rings = match file.main_ring(self.number)? {
            Some(main) => CpuReader::new(main, file.nested_ring(self.number)?),
            None => return Ok(()),
        };
        // Rings in overwrite mode need no space freed.
        if !file.facts.flight {
            rings.free_as_in(&self.reader, &ids.kinds);
        }
        // What was logged after the copy was made stays, and the slot with it.
        let is_empty = file.facts.flight || rings.fill() == 0;
        if is_empty && self.used.is_multiple_of(2) && now.used == self.used {
            file.set_emptied(self.number, self.used);
        }
        Ok(())
    }

    /// Starts a new stream when the slot is used anew. The use count is odd (k) while a thread has
    /// the slot, and k + 1 after that thread has ended: both belong to the same stream.
    fn change_use(&mut self, slot: &Slot) {
        let ended = self.used % 2 == 1 && slot.used == self.used.wrapping_add(1);
        if !ended {
            self.stream = None;
        }
        self.used = slot.used;
    }

    fn look_for_nested(&mut self, file: &ProgramFile) -> io::Result<()> {
        if !self.reader.has_nested()
            && let Some(nested) = file.nested_ring(self.number)?
        {
            self.reader.add_nested(nested);
        }
        Ok(())
    }

    fn empty(
        &mut self,
        file: &ProgramFile,
        ids: &Ids,
        thread: Thread,
        out: &mut Output,
        last: bool,
    ) -> (Round, Option<Fault>) {
        if file.facts.flight {
            return self.empty_overwritten(file, ids, thread, out);
        }
        let mut round = Round::default();
        // A ring into which a program keeps writing has no end, so the last call is bounded.
        let most = 2 * (file.facts.ring_size / BLOCK + 1);
        for _ in 0..if last { most } else { 1 } {
            if !self.reader.is_plausible() {
                return (round, self.give_up("the position of a ring is invalid"));
            }
            if self.reader.fill() == 0 {
                return (Round { more: false, ..round }, None);
            }
            let buffer = if last { Some(out.pool.get_anyway()) } else { out.pool.get() };
            let Some(mut records) = buffer else {
                out.status.late.fetch_add(1, Ordering::Relaxed);
                return (Round { starved: true, ..round }, None);
            };
            let taken = self.reader.take(&ids.kinds, &mut records, BLOCK);
            let batch =
                ids.translate(&mut records, &mut Converter::new(&mut out.clock, file.facts.clock));
            round.bytes += taken.bytes;
            round.more = taken.bytes >= BLOCK as u64;
            self.refused += batch.refused;
            if file.is_broken() {
                out.pool.put(records);
                return (round, None);
            }
            self.send(records, &batch, thread, out);
            if taken.torn || !batch.sound {
                return (round, self.give_up("a ring held an invalid record"));
            }
            if !round.more {
                break;
            }
        }
        (round, None)
    }

    /// What a flight recorder's rings still hold; its threads have stopped. How many events were
    /// overwritten is not known.
    fn empty_overwritten(
        &mut self,
        file: &ProgramFile,
        ids: &Ids,
        thread: Thread,
        out: &mut Output,
    ) -> (Round, Option<Fault>) {
        let mut records = out.pool.get_anyway();
        if self.reader.has_overwritten() {
            out.complaints.add(
                Key::Overwritten,
                Entry::new(Key::Overwritten).thread(thread.tid, thread.tgid),
            );
        }
        let taken = self.reader.take_overwritten(&ids.kinds, &mut records);
        let batch =
            ids.translate(&mut records, &mut Converter::new(&mut out.clock, file.facts.clock));
        let round = Round { bytes: taken.bytes, ..Round::default() };
        if file.is_broken() {
            out.pool.put(records);
            return (round, None);
        }
        self.send(records, &batch, thread, out);
        let sound = !taken.torn && batch.sound;
        (round, if sound { None } else { self.give_up("a ring held an invalid record") })
    }

    fn send(&mut self, records: Vec<u8>, batch: &Batch, thread: Thread, out: &mut Output) {
        if records.is_empty() {
            return out.pool.put(records);
        }
        self.count_lost(batch.lost, thread, out);
        let stream = self.stream.get_or_insert_with(|| out.open_stream(thread));
        self.last_thread = stream.thread();
        out.send(stream, records, batch);
    }

    fn count_lost(&mut self, lost: u64, thread: Thread, out: &mut Output) {
        self.lost = self.lost.wrapping_add(lost);
        let stream = self.stream.get_or_insert_with(|| out.open_stream(thread));
        if lost > 0 && !std::mem::replace(&mut stream.has_lost, true) {
            self.losers += 1;
        }
    }

    fn give_up(&mut self, why: &str) -> Option<Fault> {
        self.given_up = true;
        Some(Fault::Hostile(why.into()))
    }

    /// The last losses of a stream, and bytes after an event that was never committed. That event
    /// itself is not counted as lost: its thread ended in the middle of it.
    fn end_stream(
        &mut self,
        file: &ProgramFile,
        thread: Thread,
        out: &mut Output,
    ) -> Option<Fault> {
        let left = self.reader.fill();
        if left > 0 && self.used.is_multiple_of(2) {
            // The next user of the slot would be stuck as well.
            self.given_up = true;
        }
        let (missed, since) = self.reader.take_missed();
        if missed > 0 && missed <= LOST_MAX {
            let since = Converter::new(&mut out.clock, file.facts.clock).ns(since & TIME_MASK);
            self.count_lost(missed, thread, out);
            let stream = self.stream.get_or_insert_with(|| out.open_stream(thread));
            self.last_thread = stream.thread();
            out.send_lost(stream, missed, since);
        }
        if self.used.is_multiple_of(2) {
            self.stream = None;
        }
        (left > u64::from(RECORD_MAX)).then_some(Fault::Cut(left))
    }
}
