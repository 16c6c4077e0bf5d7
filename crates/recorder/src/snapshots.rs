// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Snapshots: the last seconds of a recording as a log of their own, while the recording goes on.
//!
//! The writer thread keeps the newest blocks in memory ([`history`]). Whoever wants a snapshot asks
//! by [`Requests`]. A thread of its own, at ordinary priority, empties the rings, and writes the
//! log ([`worker`], [`write`]), so that neither the rings nor the log of the recording wait for it.
//!
//! Requests of triggers are gathered: those that come close to each other get one snapshot, which
//! has all of them. So there is a hit without a snapshot only where the ledger of the recording
//! says so.

pub mod history;
mod known;
mod used;
mod worker;
mod write;

#[cfg(test)]
mod tests;

use crate::drains::Drains;
use crate::dump::FlightRecorder;
use history::{History, Limits};
use klogger_engines::user_code::UserCode;
use klogger_log::ledger::{Entry, Taken};
use klogger_log::preamble::Preamble;
use klogger_log::writer::Compression;
use klogger_os as os;
use klogger_ring::block::{Builtin, Status, ToWriter};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Requests that wait, at most. Further ones are counted.
const WAITING_MAX: usize = 1024;
/// How long it may take from a hit to the time when its blocks are taken out of the history.
const SLACK_NS: u64 = 3_000_000_000;

/// How snapshots are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What they have before the hit, and after it.
    pub before: Duration,
    pub after: Duration,
    /// Bytes of the history, at most.
    pub memory: u64,
    /// How many files are kept. The oldest goes first.
    pub keep: u32,
    /// Folder and name of the files, which `.snapshot-001.klog` is added to.
    pub base: PathBuf,
}

impl Options {
    pub fn file(&self, number: u64) -> PathBuf {
        let mut name = self.base.clone().into_os_string();
        name.push(format!(".snapshot-{number:03}.klog"));
        name.into()
    }
}

/// A snapshot that is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub file: PathBuf,
    pub number: u64,
    pub events: u64,
    pub bytes: u64,
    /// Full ns of the log clock.
    pub from_ns: u64,
    pub to_ns: u64,
    /// The history did not reach back to the beginning of what was asked for.
    pub short: bool,
}

/// Gets the result of a request.
type Tell = Box<dyn FnOnce(Result<Made, String>) + Send>;

/// A snapshot that somebody waits for: of the time until now.
pub struct SnapshotRequest {
    pub why: String,
    /// How much of it, if not [`Options::before`].
    pub last: Option<Duration>,
    /// The file, if not one beside the log.
    pub file: Option<PathBuf>,
    pub tell: Tell,
}

enum Ask {
    Hit {
        why: String,
        at_ns: u64,
        trigger: u32,
    },
    Snapshot(SnapshotRequest),
    /// The recording has ended.
    End,
}

/// Where snapshots are asked for, from any thread.
#[derive(Clone)]
pub struct Requests {
    to: SyncSender<Ask>,
    waiting: Arc<Waiting>,
}

/// What the thread has not heard of yet.
#[derive(Debug)]
pub struct Waiting {
    /// Hits for which the queue had no room, and the time of the last one.
    missed: AtomicU64,
    last_ns: AtomicU64,
    /// The time of the first hit in the queue.
    first_ns: AtomicU64,
}

impl Default for Waiting {
    fn default() -> Waiting {
        let zero = || AtomicU64::new(0);
        Waiting { missed: zero(), last_ns: zero(), first_ns: AtomicU64::new(u64::MAX) }
    }
}

impl Requests {
    /// A trigger was hit at this time (ns of the log clock): makes a snapshot of the time around
    /// it. `trigger`: its number, from 1. Returns at once.
    pub fn hit(&self, why: &str, at_ns: u64, trigger: u32) {
        let ask = Ask::Hit { why: why.into(), at_ns, trigger };
        self.waiting.first_ns.fetch_min(at_ns, Ordering::Relaxed);
        if self.to.try_send(ask).is_err() {
            self.waiting.last_ns.fetch_max(at_ns, Ordering::Relaxed);
            self.waiting.missed.fetch_add(1, Ordering::Release);
        }
    }

    /// Makes a snapshot of the time until now. The request comes back if too many wait.
    pub fn snapshot(&self, request: SnapshotRequest) -> Result<(), SnapshotRequest> {
        self.to.try_send(Ask::Snapshot(request)).map_err(|e| match e {
            TrySendError::Full(Ask::Snapshot(request))
            | TrySendError::Disconnected(Ask::Snapshot(request)) => request,
            TrySendError::Full(_) | TrySendError::Disconnected(_) => {
                unreachable!("it was a request for a snapshot")
            }
        })
    }
}

/// The stacks that events have the numbers of, as the engines have them.
#[derive(Default)]
pub struct RawStacks {
    pub kernel: Option<Vec<(u32, Vec<u64>)>>,
    pub user: Option<UserCode>,
}

/// What takes records from the rings, for as long as the recording runs.
pub struct Sources {
    pub to_writer: SyncSender<ToWriter>,
    pub status: Arc<Status>,
    pub drains: Option<Arc<Drains>>,
    pub flight: Option<Arc<Mutex<FlightRecorder>>>,
}

impl Sources {
    /// Takes out what is in the rings, and waits until it is in the history.
    fn empty(&self) {
        self.drains.iter().for_each(|drains| drains.empty_all());
        if let Some(flight) = &self.flight {
            let mut flight = flight.lock().unwrap_or_else(PoisonError::into_inner);
            // What it lacks is in the ledger.
            let _ = flight.dump(false, &self.status, &self.to_writer);
        }
        let (done, hear) = channel();
        if self.to_writer.send(ToWriter::Settle(done)).is_ok() {
            // The writer answers, or ends.
            let _ = hear.recv();
        }
    }
}

/// What is known when the log begins.
pub struct Begin {
    pub options: Options,
    pub preamble: Preamble,
    pub builtin: Builtin,
    pub history: Arc<History>,
    pub log: PathBuf,
    pub mode: u32,
    pub compression: Compression,
}

/// What became of the snapshots of a recording.
#[derive(Default)]
pub struct Ended {
    pub taken: Vec<Taken>,
    pub entries: Vec<Entry>,
}

/// The thread that makes snapshots.
pub struct Snapshots {
    pub requests: Requests,
    begin: Option<Sender<Begin>>,
    sources: Arc<Mutex<Option<Sources>>>,
    thread: JoinHandle<Ended>,
    /// The thread asks for stacks, and makes the other one readable.
    asked: Receiver<SyncSender<RawStacks>>,
    bell: UnixStream,
}

impl Snapshots {
    /// Starts the thread, which waits for the log. It is there before the log begins, whose
    /// preamble has the names of the recorder's threads.
    pub fn start() -> std::io::Result<Snapshots> {
        let (to, asks) = sync_channel(WAITING_MAX);
        let requests = Requests { to, waiting: Arc::default() };
        let waiting = requests.waiting.clone();
        let (begin, begun) = channel::<Begin>();
        let (ask, asked) = channel();
        let (bell, rings) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rings.set_nonblocking(true)?;
        let sources = Arc::new(Mutex::new(None));
        let shared = sources.clone();
        let (named, has_name) = channel();
        let run = move || {
            let _ = named.send(());
            let Ok(begin) = begun.recv() else { return Ended::default() };
            worker::Worker::new(begin, shared, waiting, ask, rings).run(&asks)
        };
        let thread = thread::Builder::new().name("klogger/snapshot".into()).spawn(run)?;
        let _ = has_name.recv();
        Ok(Snapshots { requests, begin: Some(begin), sources, thread, asked, bell })
    }

    /// A history for a recording whose dumps have so many bytes, if it makes any: a dump and the
    /// one before it fit.
    pub fn history(&self, options: &Options, preamble: &Preamble, dump_bytes: u64) -> History {
        let (before_ns, after_ns) = (ns(options.before), ns(options.after));
        let bytes = options.memory.max(dump_bytes.saturating_mul(2));
        let limits = Limits {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            age_ns: before_ns.saturating_add(after_ns).saturating_add(SLACK_NS),
            before_ns,
        };
        History::new(preamble, limits, self.requests.waiting.clone())
    }

    /// From here on there is a log.
    pub fn begin(&mut self, begin: Begin, sources: Sources) {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) = Some(sources);
        if let Some(to) = self.begin.take() {
            // Fails only if the thread has died, which is seen when it is joined.
            let _ = to.send(begin);
        }
    }

    /// The rings are about to end: nothing may hold on to them. What is still asked for is made of
    /// what is in the history then.
    pub fn release(&self) {
        drop(self.sources.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Answers the thread if it has asked for stacks.
    pub fn answer(&self, stacks: impl Fn() -> RawStacks) {
        let mut scratch = [0; 16];
        while std::io::Read::read(&mut &self.bell, &mut scratch).is_ok_and(|n| n > 0) {}
        self.asked.try_iter().for_each(|to| drop(to.send(stacks())));
    }

    /// Makes what is still asked for, and ends. All records are in the history.
    pub fn end(mut self, stacks: impl Fn() -> RawStacks) -> Ended {
        self.begin = None;
        // Fails only if the thread has ended.
        let _ = self.requests.to.send(Ask::End);
        loop {
            match self.asked.recv_timeout(Duration::from_millis(100)) {
                Ok(to) => drop(to.send(stacks())),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if self.thread.is_finished() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.thread.join().unwrap_or_default()
    }
}

impl AsFd for Snapshots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Now, in ns of the log clock.
fn now() -> u64 {
    os::monotonic_ns()
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
