// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The writer thread, which writes the log. Drain threads only copy records; checksums, compression
//! and disk writes are done here, at ordinary priority.

mod discarded;
mod names;

pub use names::Names;

use crate::actions::finder::Finder;
use crate::destination::Destination;
use crate::follower::Feed;
use crate::names::ThreadNames;
use crate::reached::Reached;
use crate::segments::{Closing, Seams};
use crate::snapshots::history::History;
use discarded::Discarded;
use klogger_log::ledger::{Entry, Ledger};
use klogger_log::origin::Origin;
use klogger_log::preamble::Addition;
use klogger_log::seen::Seen;
use klogger_log::writer::{EventBlock, Summary, Writer};
use klogger_os as os;
use klogger_ring::block::{Block, Builtin, Followed, Pool, Source, Status, ToWriter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The recorder's own events are written after this many bytes, or after FLUSH.
const OWN_BYTES: usize = 16 << 10;
const FLUSH: Duration = Duration::from_millis(500);

pub struct LogWriter {
    writer: Writer<Destination>,
    builtin: Builtin,
    status: Arc<Status>,
    pool: Arc<Pool>,
    own: Vec<u8>,
    flushed: Instant,
    own_serial: u64,
    /// Not later than any of the recorder's own records.
    own_base: u64,
    discarded: Discarded,
    /// In a recording of some threads.
    threads: Option<ThreadNames>,
    /// If somebody follows the recording.
    feed: Option<Feed>,
    /// If there may be snapshots.
    history: Option<Arc<History>>,
    /// What of `own` has been fed: bytes, and serial numbers.
    fed: (usize, u64),
    reached: Reached,
    /// If there are triggers.
    finder: Option<Finder>,
    /// If the log consists of segments.
    seams: Option<Seams>,
    /// What is in the segments that have ended.
    ended: Summary,
}

impl LogWriter {
    pub fn new(
        writer: Writer<Destination>,
        builtin: Builtin,
        status: Arc<Status>,
        pool: Arc<Pool>,
        own_base: u64,
    ) -> LogWriter {
        let (own, flushed, discarded) = (Vec::new(), Instant::now(), Discarded::new(&builtin.0));
        LogWriter {
            writer,
            builtin,
            status,
            pool,
            own,
            flushed,
            own_serial: 0,
            own_base,
            discarded,
            threads: None,
            feed: None,
            history: None,
            finder: None,
            fed: (0, 0),
            reached: Reached::default(),
            seams: None,
            ended: Summary::default(),
        }
    }

    /// Writes names of threads as well.
    pub fn naming(self, threads: Option<ThreadNames>) -> LogWriter {
        LogWriter { threads, ..self }
    }

    /// Passes everything on to whoever follows the recording.
    pub fn feeding(self, feed: Option<Feed>) -> LogWriter {
        LogWriter { feed, ..self }
    }

    /// Says in the log how far it is complete, while somebody follows it.
    pub fn followed(self, followed: Arc<Followed>, sources: Vec<Source>) -> LogWriter {
        LogWriter { reached: Reached::new(followed, sources), ..self }
    }

    /// Keeps the newest blocks in memory as well.
    pub fn keeping(self, history: Option<Arc<History>>) -> LogWriter {
        LogWriter { history, ..self }
    }

    /// Looks for hits of triggers.
    pub fn finding(self, mut finder: Option<Finder>) -> LogWriter {
        let watches = finder.as_mut().is_some_and(|finder| finder.watcher().is_some());
        if let (true, Some(feed)) = (watches, &self.feed) {
            feed.until(Source::Triggers, 0);
        }
        LogWriter { finder, ..self }
    }

    /// Divides the log into segments.
    pub fn divided(self, seams: Option<Seams>) -> LogWriter {
        LogWriter { seams, ..self }
    }

    /// Begins the next segment if one is due before `more` bytes are written.
    fn seam_in_time(&mut self, more: u64) {
        let bytes = self.writer.bytes();
        let due = self.seams.as_ref().is_some_and(|seams| seams.is_due(bytes, more));
        if !due || self.status.has_failed() {
            return;
        }
        if let Err(e) = self.flush() {
            return self.fail(e);
        }
        let Some(seams) = &mut self.seams else { return };
        // After an error this segment becomes longer.
        let Some((next, about)) = seams.go_on() else { return };
        let writer = std::mem::replace(&mut self.writer, next);
        self.ended.add(&writer.summary());
        seams.shelf().put(Closing { about, writer });
        self.note_bytes();
    }

    fn note_bytes(&self) {
        let bytes = self.writer.bytes();
        self.status.segment.store(bytes, Ordering::Relaxed);
        self.status.bytes.store(self.ended.bytes + bytes, Ordering::Relaxed);
    }

    /// Of a ledger of the whole recording, what is not in those of earlier segments.
    pub fn untold(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        match &mut self.seams {
            Some(seams) => seams.untold(entries),
            None => entries,
        }
    }

    /// What is said of segments that were removed.
    pub fn removed(&self) -> Option<Entry> {
        self.seams.as_ref()?.shelf().deleted()
    }

    /// The addresses of data in events.
    pub fn data(&self) -> &Seen {
        self.writer.data()
    }

    /// How many threads have no name.
    pub fn unnamed(&self) -> u64 {
        self.threads.as_ref().map_or(0, ThreadNames::unnamed)
    }

    /// Looks up the names of threads. `last`: no more events will come.
    fn name_threads(&mut self, last: bool) {
        if let Some(threads) = &mut self.threads {
            let mut found = Vec::new();
            threads.look_up(&self.builtin, last, &mut found);
            self.keep_own(&found);
        }
    }

    /// Takes in events of the recorder itself.
    fn keep_own(&mut self, records: &[u8]) {
        match &mut self.finder {
            Some(finder) => finder.own(records, &mut self.own),
            None => self.own.extend_from_slice(records),
        }
    }

    /// Looks for the hits of triggers that are compiled into no event.
    fn look(&mut self) -> io::Result<()> {
        let reached = self.finder.as_mut().and_then(|finder| finder.look(&mut self.own));
        match reached {
            Some(reached) => self.reached(Source::Triggers, reached),
            None => Ok(()),
        }
    }

    /// No more events will come; the recording ended at this time, if it is known.
    fn end(&mut self, end_ns: Option<u64>) {
        let Some(finder) = &mut self.finder else { return };
        if finder.watcher().is_some() {
            finder.finish(end_ns, &mut self.own);
            self.feed_own();
            self.feed.iter().for_each(|feed| feed.until(Source::Triggers, u64::MAX));
        }
    }

    /// A source has handed over everything before this time.
    fn reached(&mut self, source: Source, time_ns: u64) -> io::Result<()> {
        self.feed_own();
        self.history.iter().for_each(|history| history.until(source, time_ns));
        self.feed.iter().for_each(|feed| feed.until(source, time_ns));
        self.until(source, time_ns)
    }

    /// Runs until all senders are dropped.
    pub fn run(mut self, messages: Receiver<ToWriter>) -> LogWriter {
        loop {
            let patience = self.seams.as_ref().map_or(FLUSH, |seams| seams.patience(FLUSH));
            let result = match messages.recv_timeout(patience) {
                Ok(ToWriter::Block(block)) => self.block(block),
                Ok(ToWriter::Addition(addition)) => self.add(&addition),
                Ok(ToWriter::Own(record)) => self.own(&record),
                Ok(ToWriter::NameThreads(done)) => {
                    self.name_threads(true);
                    // Fails only if nobody waits any more.
                    let _ = done.send(());
                    Ok(())
                }
                Ok(ToWriter::Settle(done)) => {
                    let flushed = self.flush();
                    // Fails only if nobody waits any more.
                    let _ = done.send(());
                    flushed
                }
                Ok(ToWriter::Ended(end_ns)) => {
                    self.end(Some(end_ns));
                    self.history.iter().for_each(|h| h.until(Source::Programs, u64::MAX));
                    Ok(())
                }
                Ok(ToWriter::Until(source, time_ns)) => {
                    let watcher = self.finder.as_mut().and_then(Finder::watcher);
                    watcher.into_iter().for_each(|watcher| watcher.until(source, time_ns));
                    self.reached(source, time_ns).and_then(|()| self.look())
                }
                Err(RecvTimeoutError::Timeout) => self.look().and_then(|()| self.flush()),
                Err(RecvTimeoutError::Disconnected) => {
                    self.name_threads(true);
                    self.end(None);
                    self.feed_own();
                    self.feed = None;
                    return self;
                }
            };
            self.name_threads(false);
            self.feed_own();
            if let Err(e) = result {
                self.fail(e);
            }
            self.seam_in_time(0);
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
        self.feed.iter().for_each(|feed| feed.block(&block, events));
        let failed = self.status.has_failed();
        // First, because a disk may be slow. What is not written is no hit in the log.
        if let Some(finder) = self.finder.as_mut().filter(|_| !failed) {
            finder.see(origin, time_base, &records);
        }
        self.seam_in_time(records.len() as u64);
        let before = self.writer.summary().events;
        let mut result = Ok(());
        if !failed {
            result = self.write(&block);
        }
        if failed || result.is_err() {
            // The first part of a large block may have been written.
            self.discarded.add(&block, self.writer.summary().events - before);
        } else if let (Some((index, begin_ns)), Some(cpu)) = (dump, origin.cpu()) {
            let bytes = records.len() as i64;
            let mark = |name| {
                self.builtin.event(name).int("of_cpu", cpu.into()).int("index", index.into())
            };
            let mut own = Vec::new();
            mark("DUMP_BEGIN").finish(begin_ns, &mut own);
            mark("DUMP_FINISH").int("bytes", bytes).finish(os::monotonic_ns(), &mut own);
            self.keep_own(&own);
        }
        if let (Some(threads), Some(_)) = (&mut self.threads, origin.cpu()) {
            threads.see(&records, time_base);
        }
        self.pool.put(records);
        result?;
        self.flush_in_time()
    }

    fn write(&mut self, block: &EventBlock) -> io::Result<()> {
        let lost = self.writer.lost();
        let next_serial = self.writer.block(block)?;
        if block.origin == Origin::Recorder {
            self.own_serial = next_serial;
        }
        if let Some(history) = &self.history {
            history.keep(block, self.writer.last(), next_serial);
        }
        if let Some(seams) = &mut self.seams {
            seams.see(block, self.writer.lost() - lost);
        }
        self.note_bytes();
        Ok(())
    }

    fn add(&mut self, addition: &Addition) -> io::Result<()> {
        self.discarded.learn(&addition.events);
        self.feed.iter().for_each(|feed| feed.add(addition));
        self.history.iter().for_each(|history| history.add(addition));
        self.finder.iter_mut().for_each(|finder| finder.add(addition));
        if self.status.has_failed() {
            return Ok(());
        }
        self.writer.add(addition)?;
        self.seams.iter_mut().for_each(|seams| seams.add(addition));
        Ok(())
    }

    fn own(&mut self, record: &[u8]) -> io::Result<()> {
        self.keep_own(record);
        self.flush_in_time()
    }

    /// Feeds the recorder's own events that are new.
    fn feed_own(&mut self) {
        let Some(feed) = &self.feed else { return };
        let (bytes, serial) = self.fed;
        let records = &self.own[bytes..];
        if records.is_empty() {
            return;
        }
        let events = self.discarded.count(records);
        let (origin, time_base) = (Origin::Recorder, self.own_base);
        let block = EventBlock { origin, time_base, first_serial: serial, records };
        feed.block(&block, events);
        self.fed = (self.own.len(), serial + events);
    }

    /// A source has handed over everything before this time.
    fn until(&mut self, source: Source, time_ns: u64) -> io::Result<()> {
        let Some(reached_ns) = self.reached.until(source, time_ns) else {
            return self.flush_in_time();
        };
        self.flush()?;
        if self.status.has_failed() { Ok(()) } else { self.writer.progress(reached_ns) }
    }

    fn flush_in_time(&mut self) -> io::Result<()> {
        let due = self.own.len() >= OWN_BYTES || self.flushed.elapsed() >= FLUSH;
        if due { self.flush() } else { Ok(()) }
    }

    /// Writes the recorder's own events. If that fails, they are kept: there may be room at the
    /// end.
    fn flush(&mut self) -> io::Result<()> {
        self.feed_own();
        self.flushed = Instant::now();
        if self.own.is_empty() || self.status.has_failed() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.own);
        self.fed.0 = 0;
        let block = EventBlock {
            origin: Origin::Recorder,
            time_base: self.own_base,
            first_serial: self.own_serial,
            records: &records,
        };
        if let Err(e) = self.write(&block) {
            self.fed.0 = records.len();
            self.own = records;
            return Err(e);
        }
        Ok(())
    }

    /// Writes the recorder's own events that are due; returns how many events the log has now.
    /// [`Self::finish`] adds at least one, unless it has to make room.
    pub fn settle(&mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.ended.events + self.writer.summary().events)
    }

    /// Completes the log: KLOGGER_FINISH, stacks and symbols if some event needs them, ledger,
    /// index.
    pub fn finish(mut self, names: &Names, ledger: &Ledger, end_ns: u64) -> io::Result<Summary> {
        let mut own = Vec::new();
        self.builtin.event("KLOGGER_FINISH").finish(end_ns, &mut own);
        self.own.extend_from_slice(&own);
        // On a full disk these may fail; the ledger then frees space for itself, and reports what
        // is missing.
        let flushed = self.flush();
        let mut ledger = Ledger { end_ns: Some(end_ns), ..ledger.clone() };
        if let Err(e) = &flushed {
            ledger.entries.extend(self.own_discarded(&e.to_string()));
        }
        let named = names.write(&mut self.writer);
        let summary = self.writer.finish(&ledger)?;
        self.ended.add(&summary);
        flushed.and(named).map(|()| self.ended)
    }

    /// The recorder's own events that could not be written at the end either.
    fn own_discarded(&self, why: &str) -> Vec<Entry> {
        let mut own = Discarded::new(&self.builtin.0);
        let (origin, time_base, first_serial) = (Origin::Recorder, self.own_base, self.own_serial);
        own.add(&EventBlock { origin, time_base, first_serial, records: &self.own }, 0);
        own.entries(why)
    }

    /// Events that were taken from the rings, but could not be written.
    pub fn discarded(&self, why: &str) -> Vec<Entry> {
        self.discarded.entries(why)
    }

    pub fn summary(&self) -> Summary {
        let mut all = self.ended.clone();
        all.add(&self.writer.summary());
        all
    }
}
