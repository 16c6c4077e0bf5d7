// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a session does for a log that consists of segments.

use super::Session;
use crate::destination::Destination;
use crate::pipeline::Pipeline;
use crate::segments::{Closer, Job, Shelf, room};
use crate::taps::seams::Seams;
use crate::{file, ledger};
use klogger_log::ledger::Ledger;
use klogger_log::preamble::{Preamble, Segment};
use klogger_log::segments;
use klogger_log::writer::Writer;
use klogger_os::outputs::Folder;
use klogger_os::{Error, files};
use klogger_ring::block::Builtin;
use std::path::PathBuf;
use std::sync::Arc;

/// The segments of a recording that runs.
pub(super) struct Segments {
    shelf: Arc<Shelf>,
    closer: Closer,
    made: file::MadeFolder,
    recording: String,
}

impl Session {
    /// The file of the log, or of its first segment.
    pub(super) fn log(&self) -> PathBuf {
        match &self.options.segments {
            Some(_) => self.options.output.join(segments::file_name(1)),
            None => self.options.output.clone(),
        }
    }

    /// Makes the folder for segments, if the log is to have some. It begins a thread, whose name is
    /// in the preamble.
    pub(super) fn divide(&mut self, pipeline: &Pipeline) -> Result<(), Error> {
        let Some(plan) = &self.options.segments else { return Ok(()) };
        let output = &self.options.output;
        let made = file::MadeFolder::new(output)?;
        let folder = made.folder.try_clone().map_err(|e| files::cannot_write(output, e))?;
        let shelf = Arc::new(Shelf::new(folder, plan.clone()));
        let closer = Closer::start(shelf.clone(), pipeline.outlet().status)
            .inspect_err(|_| made.abandon())?;
        let recording = format!("{:016x}{:016x}", files::random(), files::random());
        self.segments = Some(Segments { shelf, closer, made, recording });
        Ok(())
    }

    /// The folder for segments, if the log has some.
    pub(super) fn folder(&self) -> Option<&Folder> {
        self.segments.as_ref().map(|segments| &segments.made.folder)
    }

    /// What the first log says of itself.
    pub(super) fn first_segment(&self, start_ns: u64) -> Option<Segment> {
        let recording = self.segments.as_ref()?.recording.clone();
        Some(Segment { recording, number: 1, start_ns, threads: Vec::new() })
    }

    /// For the writer thread, whose first log is `writer`.
    pub(super) fn seams(
        &self,
        preamble: &Preamble,
        writer: &mut Writer<Destination>,
    ) -> Option<Seams> {
        let (plan, shelf) = (self.options.segments.clone()?, &self.segments.as_ref()?.shelf);
        writer.set_room(room(shelf));
        let (mode, compression) = (self.options.mode, self.options.compression);
        Some(Seams::new(plan, shelf.clone(), mode, compression, preamble.clone(), writer.bytes()))
    }

    /// Has segments completed that have ended; returns messages.
    pub(super) fn close_segments(&self, events: &Builtin) -> Vec<String> {
        let Some(Segments { shelf, closer, .. }) = &self.segments else { return Vec::new() };
        while let Some(closing) = shelf.take() {
            let span = (closing.about.start_ns, closing.about.end_ns);
            let mut entries = ledger::excluded(&self.recorder(), span);
            for engine in &self.engines {
                entries.extend(ledger::of_engine(&**engine, &self.layouts, span));
            }
            let ledger = Ledger { entries, triggers: self.trigger_counts(), ..Ledger::default() };
            let (events, stacks) = (events.clone(), self.raw_stacks());
            closer.close(Job { closing, events, stacks, ledger });
        }
        shelf.take_notes()
    }

    /// Waits until all segments but the last are complete.
    pub(super) fn end_segments(&mut self, events: &Builtin) {
        let mut notes = self.close_segments(events);
        if let Some(Segments { shelf, closer, .. }) = self.segments.take() {
            notes.extend(closer.stop().err().map(|e| e.message));
            notes.extend(shelf.take_notes());
        }
        self.notes.extend(notes);
    }

    /// Removes the folder: the recording did not start.
    pub(super) fn abandon_segments(&mut self) {
        let Some(Segments { closer, made, .. }) = self.segments.take() else { return };
        // Nothing has been closed, so that the thread ends at once.
        let _ = closer.stop();
        let _ = made.folder.remove(segments::file_name(1).as_ref());
        made.abandon();
    }
}
