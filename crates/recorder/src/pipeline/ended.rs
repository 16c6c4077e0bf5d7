// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is left of a pipeline when its input has ended, until the log is complete.

use crate::taps::File;
use crate::writer::{LogWriter, Names};
use klogger_log::ledger::{Entry, Ledger};
use klogger_log::seen::Seen;
use klogger_log::writer::Summary;
use klogger_ring::block::Status;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A pipeline whose input has ended.
pub struct Ended {
    pub(super) writer: Option<LogWriter>,
    pub(super) status: Arc<Status>,
    /// The error with which listening for wake-ups ended early, if it did.
    pub listener_error: Option<String>,
    /// Warnings for the user.
    pub notes: Vec<String>,
    /// What happened to clocks and CPUs.
    pub seen: Vec<Entry>,
    /// CPUs that were not online at the beginning, and the last time at which they were not.
    pub came: BTreeMap<u32, u64>,
}

impl Ended {
    pub fn summary(&self) -> Summary {
        self.file().map(File::summary).unwrap_or_default()
    }

    fn file(&self) -> Option<&File> {
        self.writer.as_ref().map(LogWriter::file)
    }

    /// What the ledger says of those who got what came.
    pub fn of_taps(&mut self, span: (u64, u64)) -> Vec<Entry> {
        self.writer.as_mut().map(|writer| writer.of_taps(span)).unwrap_or_default()
    }

    /// The addresses of data in the events of the last file.
    pub fn data(&self) -> Seen {
        self.file().map_or_else(Seen::data, |file| file.data().clone())
    }

    /// What could not be written, for the ledger.
    pub fn discarded(&self, why: &str) -> Vec<Entry> {
        self.file().map(|file| file.discarded(why)).unwrap_or_default()
    }

    /// Of a ledger of the whole recording, what is for the last segment.
    pub fn untold(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        match &mut self.writer {
            Some(writer) => writer.file_mut().untold(entries),
            None => entries,
        }
    }

    /// What is said of segments that were removed.
    pub fn removed(&self) -> Option<Entry> {
        self.file().and_then(File::removed)
    }

    /// Why writing failed, if it did.
    pub fn why_failed(&self) -> Option<String> {
        self.status.failure.lock().ok()?.as_ref().map(io::Error::to_string)
    }

    pub fn failure(&self) -> Option<io::Error> {
        self.status.failure.lock().ok().and_then(|mut f| f.take())
    }

    /// See [`LogWriter::settle`].
    pub fn settle(&mut self) -> io::Result<u64> {
        match &mut self.writer {
            Some(writer) => writer.settle(),
            None => Err(io::Error::other("the writer thread has panicked")),
        }
    }

    pub fn finish(self, names: &Names, ledger: &Ledger, end_ns: u64) -> io::Result<Summary> {
        match self.writer {
            Some(writer) => writer.finish(names, ledger, end_ns),
            None => Err(io::Error::other("the writer thread has panicked")),
        }
    }
}
