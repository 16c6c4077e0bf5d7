// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The writer thread. Drain threads only copy records; all else that is done with them is done
//! here, at ordinary priority: by those who look at what comes (see [`taps`]), and by the log's
//! file, with its checksums, compression and disk writes.
//!
//! [`taps`]: crate::taps

mod names;
mod own;

pub use names::Names;

use crate::destination::Destination;
use crate::reached::Reached;
use crate::taps::seams::Seams;
use crate::taps::{self, Arrived, Consumers, File, Moment, Taps};
use klogger_log::ledger::{Entry, Ledger};
use klogger_log::preamble::Addition;
use klogger_log::writer::{EventBlock, Summary, Writer};
use klogger_os as os;
use klogger_ring::block::{Block, Builtin, Followed, Outlet, Pool, Source, Status, ToWriter};
use own::{FLUSH, Own};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

pub struct LogWriter {
    file: File,
    taps: Taps,
    own: Own,
    reached: Reached,
    builtin: Builtin,
    status: Arc<Status>,
    pool: Arc<Pool>,
}

impl LogWriter {
    /// `own_base`: not later than the recorder's own events.
    pub fn new(
        writer: Writer<Destination>,
        seams: Option<Seams>,
        consumers: Consumers,
        outlet: &Outlet,
        own_base: u64,
    ) -> LogWriter {
        let Outlet { builtin, status, pool, .. } = outlet;
        let file = File::new(writer, seams, builtin, status.clone());
        let taps = Taps::new(taps::list(consumers, builtin, own_base), &builtin.0);
        LogWriter {
            file,
            taps,
            own: Own::new(own_base),
            reached: Reached::default(),
            builtin: builtin.clone(),
            status: status.clone(),
            pool: pool.clone(),
        }
    }

    /// Says in the log how far it is complete, while somebody follows it.
    pub fn followed(self, followed: Arc<Followed>, sources: Vec<Source>) -> LogWriter {
        LogWriter { reached: Reached::new(followed, sources), ..self }
    }

    /// Runs until all senders are dropped.
    pub fn run(mut self, messages: Receiver<ToWriter>) -> LogWriter {
        loop {
            let result = match messages.recv_timeout(self.file.patience(FLUSH)) {
                Ok(message) => self.message(message),
                Err(RecvTimeoutError::Timeout) => {
                    self.turn(Moment::Time).and_then(|()| self.flush())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.end(None);
                    return self;
                }
            };
            let result = result.and(self.turn(Moment::Message));
            if let Err(e) = result {
                self.fail(e);
            }
            self.go_on_in_time(0);
        }
    }

    fn message(&mut self, message: ToWriter) -> io::Result<()> {
        match message {
            ToWriter::Block(block) => self.block(block),
            ToWriter::Addition(addition) => self.declared(&addition),
            ToWriter::Own(records) => {
                self.own(records);
                self.flush_in_time()
            }
            ToWriter::Until(source, time_ns) => {
                self.taps.until(source, time_ns);
                self.until(source, time_ns).and_then(|()| self.turn(Moment::Time))
            }
            // Those who wait for an answer may have given up.
            ToWriter::NameThreads(done) => {
                let turned = self.turn(Moment::AllCame);
                let _ = done.send(());
                turned
            }
            ToWriter::Settle(done) => {
                let flushed = self.flush();
                let _ = done.send(());
                flushed
            }
            ToWriter::Ended(end_ns) => {
                self.end(Some(end_ns));
                Ok(())
            }
        }
    }

    fn fail(&self, error: io::Error) {
        if let Ok(mut failure) = self.status.failure.lock() {
            failure.get_or_insert(error);
        }
    }

    fn block(&mut self, block: Block) -> io::Result<()> {
        let Block { origin, first_serial, time_base, dump, events, records } = block;
        let block = EventBlock { origin, time_base, first_serial, records: &records };
        let arrived = Arrived { events, unwritable: self.status.has_failed() };
        self.taps.block(block, arrived);
        self.go_on_in_time(records.len() as u64);
        let written = self.file.block(&self.taps.batch(block), arrived);
        if let Ok(Some(written)) = &written {
            self.taps.logged(block, written);
            if let (Some(dump), Some(cpu)) = (dump, origin.cpu()) {
                self.dumped(cpu, dump, records.len());
            }
        }
        self.pool.put(records);
        written?;
        self.flush_in_time()
    }

    /// The log has so many bytes of a dump. `dump`: its number on this CPU, and when it began.
    fn dumped(&mut self, cpu: u16, dump: (u32, u64), bytes: usize) {
        let mark =
            |name| self.builtin.event(name).int("of_cpu", cpu.into()).int("index", dump.0.into());
        let mut own = Vec::new();
        mark("DUMP_BEGIN").finish(dump.1, &mut own);
        mark("DUMP_FINISH").int("bytes", bytes as i64).finish(os::monotonic_ns(), &mut own);
        self.own(own);
    }

    /// Later blocks may have these events as well.
    fn declared(&mut self, addition: &Addition) -> io::Result<()> {
        self.taps.declared(addition);
        self.file.declared(addition)
    }

    /// Takes in events of the recorder itself.
    fn own(&mut self, records: Vec<u8>) {
        let records = self.taps.own(records);
        self.own.records.extend(records);
    }

    /// A source has handed over everything before this time, and the taps know.
    fn until(&mut self, source: Source, time_ns: u64) -> io::Result<()> {
        let Some(reached_ns) = self.reached.until(source, time_ns) else {
            return self.flush_in_time();
        };
        self.flush()?;
        self.file.progress(reached_ns)
    }

    /// Gives the taps their turn.
    fn turn(&mut self, moment: Moment) -> io::Result<()> {
        let reached = self.taps.turn(moment, &mut self.own.records);
        reached.into_iter().try_for_each(|(source, time_ns)| self.until(source, time_ns))
    }

    /// No more events will come. What is left of them is not written here: there may be no room.
    fn end(&mut self, end_ns: Option<u64>) {
        self.taps.turn(Moment::Ended(end_ns), &mut self.own.records);
    }

    /// Begins the next segment if one is due before `more` bytes are written.
    fn go_on_in_time(&mut self, more: u64) {
        if !self.file.ends_before(more) || self.status.has_failed() {
            return;
        }
        match self.flush() {
            Ok(()) => self.file.go_on(),
            Err(e) => self.fail(e),
        }
    }

    fn flush_in_time(&mut self) -> io::Result<()> {
        if self.own.is_due() { self.flush() } else { Ok(()) }
    }

    /// Writes the recorder's own events. If that fails, they are kept: there may be room at the
    /// end.
    fn flush(&mut self) -> io::Result<()> {
        self.own.begin_to_flush();
        if self.own.records.is_empty() || self.status.has_failed() {
            return Ok(());
        }
        let block = self.own.block();
        let written = self.file.write(&self.taps.batch(block))?;
        self.taps.logged(block, &written);
        self.own.written(written.next_serial);
        Ok(())
    }

    /// Writes the recorder's own events that are due; returns how many events the log has now.
    /// [`Self::finish`] adds at least one, unless it has to make room.
    pub fn settle(&mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.file.summary().events)
    }

    /// Completes the log: KLOGGER_FINISH, stacks and symbols if some event needs them, ledger,
    /// index.
    pub fn finish(mut self, names: &Names, ledger: &Ledger, end_ns: u64) -> io::Result<Summary> {
        self.builtin.event("KLOGGER_FINISH").finish(end_ns, &mut self.own.records);
        // On a full disk these may fail; the ledger then frees space for itself, and reports what
        // is missing.
        let flushed = self.flush();
        let mut ledger = Ledger { end_ns: Some(end_ns), ..ledger.clone() };
        if let Err(e) = &flushed {
            let own = self.own.block();
            ledger.entries.extend(taps::unwritten(&own, &self.builtin, &e.to_string()));
        }
        let (summary, named) = self.file.finish(names, &ledger)?;
        flushed.and(named).map(|()| summary)
    }

    /// What the ledger says of the taps, when the thread has ended.
    pub fn of_taps(&mut self, span: (u64, u64)) -> Vec<Entry> {
        self.taps.end(span)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }
}
