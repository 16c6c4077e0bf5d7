// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Blocks of records on their way from a drain thread to the writer thread, and the buffers that
//! hold them.

use crate::Taken;
use klogger_log::builder::RecordBuilder;
use klogger_log::origin::Origin;
use klogger_log::preamble::Addition;
use klogger_os::processes::Thread;
use klogger_schema::layout::EventLayout;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Buffers between drain threads and the writer thread. If all are in use, the disk is slower than
/// the events.
const BUFFERS_MAX: u32 = 64;
const BUFFERS_MIN: u32 = 4;

/// How long records wait in a ring at most if somebody follows the recording, or its log.
const DIRECTLY_MS: u32 = 50;
const IN_LOG_MS: u32 = 200;

/// A message to the writer thread.
pub enum ToWriter {
    Block(Block),
    /// Events that the preamble does not have.
    Addition(Box<Addition>),
    /// A record of the recorder's own stream.
    Own(Vec<u8>),
    /// All events have been handed over: look up the names of threads, and answer.
    NameThreads(Sender<()>),
    /// Write what has come so far, and answer.
    Settle(Sender<()>),
    /// All events have been handed over: the recording ended at this time.
    Ended(u64),
    /// This source has handed over all its events before this time (ns), as far as it knows. Only
    /// if somebody follows the recording.
    Until(Source, u64),
}

/// Who hands over blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The drain thread of a CPU.
    Cpu(u16),
    /// The thread that drains the rings of programs.
    Programs,
    /// What finds sequences and silences, whose hits have the times of events.
    Triggers,
}

pub struct Block {
    pub origin: Origin,
    pub first_serial: u64,
    pub time_base: u64,
    /// In overwrite mode, the number of the dump on its CPU, and when it began. Rings of threads
    /// have none.
    pub dump: Option<(u32, u64)>,
    /// Number of events among the records.
    pub events: u64,
    pub records: Vec<u8>,
}

/// Where a drain thread hands over its blocks, and where it takes buffers from.
#[derive(Clone)]
pub struct Outlet {
    pub to_writer: SyncSender<ToWriter>,
    pub pool: Arc<Pool>,
    pub status: Arc<Status>,
    pub builtin: Builtin,
    pub followed: Arc<Followed>,
}

/// Whether somebody follows the recording. Then rings are drained more often, and messages
/// [`ToWriter::Until`] are sent.
#[derive(Default)]
pub struct Followed {
    /// 0: nobody does.
    wait_ms: AtomicU32,
    /// They read the log, which says how far it is complete.
    in_log: AtomicBool,
    /// A history is kept, which has to know how far the events of programs are complete.
    kept: AtomicBool,
}

impl Followed {
    /// The longest time that records may wait in a ring, if it is shortened.
    pub fn wait(&self) -> Option<Duration> {
        let ms = self.wait_ms.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms.into()))
    }

    /// Whether [`ToWriter::Until`] are sent for [`Source::Programs`].
    pub fn hears_of_programs(&self) -> bool {
        self.wait().is_some() || self.kept.load(Ordering::Relaxed)
    }

    /// A history of the recording will be kept.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    pub fn is_in_log(&self) -> bool {
        self.in_log.load(Ordering::Relaxed)
    }

    /// Somebody takes events from the recorder itself.
    pub fn directly(&self) {
        self.wait_ms.store(DIRECTLY_MS, Ordering::Relaxed);
    }

    /// Somebody reads the log while it is written, or does not any more.
    pub fn in_log(&self, yes: bool) {
        self.in_log.store(yes, Ordering::Relaxed);
        let (from, to) = if yes { (0, IN_LOG_MS) } else { (IN_LOG_MS, 0) };
        let _ = self.wait_ms.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The progress of a recording, for reports and for the ledger.
#[derive(Default)]
pub struct Status {
    pub events: AtomicU64,
    pub lost: AtomicU64,
    /// Bytes of the log file.
    pub bytes: AtomicU64,
    /// Bytes of the segment that is being written, if the log consists of segments.
    pub segment: AtomicU64,
    /// How often a drain thread found no free buffer.
    pub late: AtomicU64,
    /// Set once, when writing failed.
    pub failure: Mutex<Option<io::Error>>,
}

impl Status {
    pub fn count(&self, taken: &Taken) {
        self.add(taken.serials - taken.lost, taken.lost);
    }

    pub fn add(&self, events: u64, lost: u64) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    pub fn has_failed(&self) -> bool {
        self.failure.lock().is_ok_and(|f| f.is_some())
    }
}

/// Buffers that are reused between drain threads and the writer thread.
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    made: AtomicU32,
    most: u32,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { free: Mutex::default(), made: AtomicU32::new(0), most: BUFFERS_MAX }
    }
}

impl Pool {
    /// Of buffers of at most `each` bytes, for which there are `room` bytes; at least some.
    pub fn within(room: u64, each: u64) -> Pool {
        let most = (room / each.max(1)).clamp(BUFFERS_MIN.into(), BUFFERS_MAX.into());
        Pool { most: most as u32, ..Pool::default() }
    }

    pub fn get(&self) -> Option<Vec<u8>> {
        let free = self.free.lock().ok()?.pop();
        free.or_else(|| (self.made.fetch_add(1, Ordering::Relaxed) < self.most).then(Vec::new))
    }

    /// A buffer even if all are in use: at the end of a recording no record may stay in a ring.
    pub fn get_anyway(&self) -> Vec<u8> {
        self.free.lock().ok().and_then(|mut free| free.pop()).unwrap_or_default()
    }

    pub fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        if let Ok(mut free) = self.free.lock() {
            free.push(buffer);
        }
    }
}

/// Layouts of the built-in events, by name.
#[derive(Clone)]
pub struct Builtin(pub Arc<Vec<EventLayout>>);

impl Builtin {
    /// A builder for a built-in event; its name is one of those in klogger.klogger.
    pub fn event(&self, name: &str) -> RecordBuilder<'_> {
        let layout = self.0.iter().find(|e| e.name == name);
        RecordBuilder::new(layout.expect("klogger.klogger declares it"))
    }

    /// LOGGING_EVENT: whether an event is on.
    pub fn state(&self, layout: &EventLayout, on: bool) -> RecordBuilder<'_> {
        let state = self.event("LOGGING_EVENT").int("id", layout.id.into()).int("state", on.into());
        state.text("name", layout.name.as_bytes())
    }

    /// PROCESS_EXISTS: a thread that exists.
    pub fn exists(&self, t: &Thread) -> RecordBuilder<'_> {
        let exists = self.event("PROCESS_EXISTS");
        let exists =
            exists.int("pid", t.tid.into()).int("tgid", t.tgid.into()).int("ppid", t.ppid.into());
        let exists = exists.int("prio", t.prio.into()).int("policy", t.policy.into());
        exists.text("comm", &t.comm).text("command", &t.command)
    }

    /// A LOST record: how many events, the time of the first, and its own time, in ns.
    pub fn lost(&self, count: u64, since: u64, time: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.event("LOST")
            .int("count", count as i64)
            .int("since", since as i64)
            .finish(time, &mut bytes);
        bytes
    }
}
