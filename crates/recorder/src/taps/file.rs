// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The log: a file, one segment after the other, or a pipe.
//!
//! It is no [`Tap`], because it can fail. Then what comes is counted, for the ledger of a log for
//! whose end there may be room.
//!
//! [`Tap`]: super::Tap

mod discarded;

use super::seams::Seams;
use super::{Arrived, Batch, Tap, Written};
use crate::destination::Destination;
use crate::segments::Closing;
use crate::writer::Names;
use discarded::Discarded;
use klogger_log::ledger::{Entry, Ledger};
use klogger_log::preamble::Addition;
use klogger_log::seen::Seen;
use klogger_log::writer::{EventBlock, Summary, Writer};
use klogger_ring::block::{Builtin, Status};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub struct File {
    writer: Writer<Destination>,
    status: Arc<Status>,
    /// If the log consists of segments.
    seams: Option<Seams>,
    /// What is in the segments that have ended.
    ended: Summary,
    discarded: Discarded,
}

impl File {
    /// `builtin`: all events that are known.
    pub fn new(
        writer: Writer<Destination>,
        seams: Option<Seams>,
        builtin: &Builtin,
        status: Arc<Status>,
    ) -> File {
        let discarded = Discarded::new(&builtin.0);
        File { writer, status, seams, ended: Summary::default(), discarded }
    }

    /// Later blocks may have these events as well.
    pub fn declared(&mut self, addition: &Addition) -> io::Result<()> {
        self.discarded.learn(&addition.events);
        if self.status.has_failed() {
            return Ok(());
        }
        self.writer.add(addition)?;
        self.seams.iter_mut().for_each(|seams| seams.declared(addition));
        Ok(())
    }

    /// Writes a block that has come from a ring. What cannot be written is counted; nothing is
    /// returned if that is known from the start.
    pub fn block(&mut self, batch: &Batch, arrived: Arrived) -> io::Result<Option<Written>> {
        if arrived.unwritable {
            self.discarded.add(&batch.block, 0);
            return Ok(None);
        }
        let before = self.writer.summary().events;
        let written = self.write(batch);
        if written.is_err() {
            // The first part of a large block may have been written.
            self.discarded.add(&batch.block, self.writer.summary().events - before);
        }
        written.map(Some)
    }

    /// Writes a block, if that is possible.
    pub fn write(&mut self, batch: &Batch) -> io::Result<Written> {
        let next_serial = self.writer.block(&batch.block)?;
        let written = Written { extent: self.writer.last(), next_serial };
        self.seams.iter_mut().for_each(|seams| seams.logged(batch, &written));
        self.note_bytes();
        Ok(written)
    }

    /// Says in the log that all events before this time are in it.
    pub fn progress(&mut self, until_ns: u64) -> io::Result<()> {
        if self.status.has_failed() { Ok(()) } else { self.writer.progress(until_ns) }
    }

    /// The time until the next segment is due, `most` at most.
    pub fn patience(&self, most: Duration) -> Duration {
        self.seams.as_ref().map_or(most, |seams| seams.patience(most))
    }

    /// Whether the next segment is due before `more` bytes are written.
    pub fn ends_before(&self, more: u64) -> bool {
        let bytes = self.writer.bytes();
        self.seams.as_ref().is_some_and(|seams| seams.is_due(bytes, more))
    }

    /// Begins the next segment. After an error this one becomes longer.
    pub fn go_on(&mut self) {
        let Some(seams) = &mut self.seams else { return };
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

    /// Events that came from rings, but could not be written.
    pub fn discarded(&self, why: &str) -> Vec<Entry> {
        self.discarded.entries(why)
    }

    /// What has been written so far.
    pub fn summary(&self) -> Summary {
        let mut all = self.ended.clone();
        all.add(&self.writer.summary());
        all
    }

    /// Completes the log: stacks and symbols if some event needs them, ledger, index. The summary
    /// comes with what went wrong with the names.
    pub fn finish(
        mut self,
        names: &Names,
        ledger: &Ledger,
    ) -> io::Result<(Summary, io::Result<()>)> {
        let named = names.write(&mut self.writer);
        let summary = self.writer.finish(ledger)?;
        self.ended.add(&summary);
        Ok((self.ended, named))
    }
}

/// What the ledger says of these records, which could not be written.
pub fn unwritten(block: &EventBlock, builtin: &Builtin, why: &str) -> Vec<Entry> {
    let mut discarded = Discarded::new(&builtin.0);
    discarded.add(block, 0);
    discarded.entries(why)
}
