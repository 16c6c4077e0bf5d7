// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The thread that completes segments, and deletes those that need not be kept.

use super::SegmentEnd;
use super::shelf::{Closing, Shelf};
use crate::snapshots::RawStacks;
use crate::writer::Names;
use klogger_log::ledger::Ledger;
use klogger_log::writer::{Sink, Writer};
use klogger_os::Error;
use klogger_ring::block::{Builtin, Status};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the ages and sizes of segments are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A segment, and what only engines know of it.
pub struct Job {
    pub closing: Closing,
    pub events: Builtin,
    pub stacks: RawStacks,
    pub ledger: Ledger,
}

/// A handle of the thread.
pub struct Closer {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Closer {
    pub fn start(shelf: Arc<Shelf>, status: Arc<Status>) -> Result<Closer, Error> {
        let (jobs, work) = channel();
        let thread = thread::Builder::new().name("klogger/segments".into());
        let thread = thread.spawn(move || run(&work, &shelf, &status));
        let thread =
            thread.map_err(|e| Error::new(format!("cannot start a thread for segments: {e}")))?;
        Ok(Closer { jobs, thread })
    }

    pub fn close(&self, job: Job) {
        // Fails only if the thread has panicked, which is seen when it is joined.
        let _ = self.jobs.send(job);
    }

    /// Waits until all are complete.
    pub fn stop(self) -> Result<(), Error> {
        drop(self.jobs);
        self.thread.join().map_err(|_| Error::new("the thread for segments has panicked"))
    }
}

fn run(work: &Receiver<Job>, shelf: &Arc<Shelf>, status: &Status) {
    loop {
        match work.recv_timeout(LOOK) {
            Ok(job) => {
                let number = job.closing.about.number;
                if let Err(e) = complete(job, shelf) {
                    shelf.note(format!("segment {number} is not complete: {e}"));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        shelf.trim(status.segment.load(Ordering::Relaxed));
    }
}

fn complete(job: Job, shelf: &Arc<Shelf>) -> io::Result<()> {
    let Job { closing, events, stacks, mut ledger } = job;
    let Closing { about, writer } = closing;
    let SegmentEnd { number, losses, start_ns, end_ns } = about;
    // Those of the stacks are of the whole recording as well.
    let mut named = Ledger::default();
    let mut names = Names::of(&events.0, stacks.kernel, &mut named);
    if let Some(code) = stacks.user {
        names = names.with_code(code, writer.data(), &mut named, None);
    }
    names = names.with_kernel_data(writer.data(), &mut named);
    ledger.end_ns = Some(end_ns);
    ledger.entries.append(&mut named.entries);
    ledger.entries = shelf.untold(ledger.entries, start_ns);
    ledger.entries.extend(losses);
    ledger.entries.extend(shelf.deleted());
    finish(number, writer, &names, &ledger, shelf)
}

/// Writes the end of a segment. On a full disk, older ones go for it, if any may; without any, it
/// goes itself, as the writer would have it deleted to go on. If all are to be kept, its last
/// events make room for its ledger, which counts them, as at the end of a log in one file.
pub(super) fn finish<S: Sink>(
    number: u32,
    mut writer: Writer<S>,
    names: &Names,
    ledger: &Ledger,
    shelf: &Arc<Shelf>,
) -> io::Result<()> {
    let refused = Arc::new(AtomicBool::new(false));
    let (room, no_room) = (shelf.clone(), refused.clone());
    // Here nobody waits for this segment.
    writer.set_room(Box::new(move || {
        let made = room.make_room_now();
        no_room.fetch_or(!made && room.may_delete(), Ordering::Relaxed);
        made
    }));
    let before = writer.summary();
    let done = names.write(&mut writer).and_then(|()| writer.finish(ledger));
    if refused.load(Ordering::Relaxed) {
        shelf.given_up(number, &before);
        return Ok(());
    }
    shelf.completed(number, done.as_ref().unwrap_or(&before));
    done.map(drop)
}
