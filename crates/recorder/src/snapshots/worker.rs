// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The thread that makes snapshots: when one is due, which time it covers, and which files stay.

use super::history::{History, Part};
use super::write::{self, Contents};
use super::{
    Ask, Begin, Ended, Made, Options, RawStacks, SnapshotRequest, Sources, Waiting, now, ns,
};
use crate::file;
use crate::hung::watched;
use klogger_log::ledger::{Entry, Key, Taken};
use klogger_log::preamble::{Hit, Snapshot};
use klogger_os::outputs::{Folder, Old};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Two snapshots of triggers begin at least so far apart; hits in between are gathered for this
/// time at most.
pub const APART_NS: u64 = 1_000_000_000;
/// How often the thread looks at the history while hits are gathered.
const LOOK: Duration = Duration::from_millis(10);
/// How long the events of programs may take to come out of their rings.
const PROGRAMS: Duration = Duration::from_secs(2);
/// Snapshots that the ledger lists, at most.
const LISTED_MAX: usize = 1000;

/// Hits that get one snapshot.
#[derive(Default)]
struct Gathered {
    hits: Vec<Hit>,
    count: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Gathered {
    fn add(&mut self, why: String, at_ns: u64, trigger: u32) {
        self.note(at_ns, 1);
        if self.hits.len() <= Snapshot::HITS_MAX {
            self.hits.push(Hit { why, trigger, at_ns });
        }
    }

    fn note(&mut self, at_ns: u64, count: u64) {
        self.first_ns = if self.count == 0 { at_ns } else { self.first_ns.min(at_ns) };
        self.last_ns = self.last_ns.max(at_ns);
        self.count += count;
    }
}

/// A snapshot to make.
struct Order {
    hits: Vec<Hit>,
    count: u64,
    from_ns: u64,
    to_ns: u64,
    /// Chosen by a user, so that it does not count among those that are kept.
    file: Option<PathBuf>,
}

pub struct Worker {
    begin: Begin,
    sources: Arc<Mutex<Option<Sources>>>,
    waiting: Arc<Waiting>,
    ask: Sender<SyncSender<RawStacks>>,
    bell: UnixStream,
    gathered: Option<Gathered>,
    /// When the last snapshot of triggers began.
    began_ns: u64,
    number: u64,
    taken: Vec<Taken>,
    /// Files, and which of `taken` they are.
    kept: VecDeque<(PathBuf, usize)>,
    removed: u64,
    failed: u64,
    unlisted: u64,
}

impl Worker {
    pub fn new(
        begin: Begin,
        sources: Arc<Mutex<Option<Sources>>>,
        waiting: Arc<Waiting>,
        ask: Sender<SyncSender<RawStacks>>,
        bell: UnixStream,
    ) -> Worker {
        Worker {
            begin,
            sources,
            waiting,
            ask,
            bell,
            gathered: None,
            began_ns: 0,
            number: 0,
            taken: Vec::new(),
            kept: VecDeque::new(),
            removed: 0,
            failed: 0,
            unlisted: 0,
        }
    }

    pub fn run(mut self, asks: &Receiver<Ask>) -> Ended {
        let mut ends = false;
        while !ends {
            let first = match &self.gathered {
                Some(_) => asks.recv_timeout(LOOK),
                None => asks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            ends = matches!(first, Err(RecvTimeoutError::Disconnected));
            let more = asks.try_iter();
            let all: Vec<Ask> = first.into_iter().chain(more).collect();
            for ask in all {
                match ask {
                    Ask::Hit { why, at_ns, trigger } => {
                        self.gathered.get_or_insert_default().add(why, at_ns, trigger);
                    }
                    Ask::Snapshot(request) => self.answer(request),
                    Ask::End => ends = true,
                }
            }
            self.take_missed();
            if let Some(order) = self.due(now(), ends) {
                self.began_ns = now();
                // The ledger has the error.
                let _ = self.make(order);
            }
        }
        self.end()
    }

    /// Hits for which the queue had no room.
    fn take_missed(&mut self) {
        let count = self.waiting.missed.swap(0, Ordering::Acquire);
        if count > 0 {
            let last = self.waiting.last_ns.load(Ordering::Relaxed);
            self.gathered.get_or_insert_default().note(last, count);
        }
        if let Some(gathered) = &self.gathered {
            let before = ns(self.begin.options.before);
            self.begin.history.need(gathered.first_ns.saturating_sub(before));
        }
        self.waiting.first_ns.store(u64::MAX, Ordering::Relaxed);
    }

    /// What has been gathered, if it is time for it: the time after the last hit has passed, or
    /// the history would lose what is before the first.
    fn due(&mut self, now_ns: u64, ends: bool) -> Option<Order> {
        let gathered = self.gathered.as_ref()?;
        let options = &self.begin.options;
        let (before, after) = (ns(options.before), ns(options.after));
        let from_ns = gathered.first_ns.saturating_sub(before);
        let last = gathered.last_ns.min(gathered.first_ns.saturating_add(APART_NS));
        let due = last.saturating_add(after).max(self.began_ns.saturating_add(APART_NS));
        let presses = self.begin.history.whole_ns() > from_ns.max(self.start_ns());
        if now_ns < due && !ends && !presses {
            return None;
        }
        let to_ns = gathered.last_ns.saturating_add(after).min(now_ns);
        let Gathered { hits, count, .. } = self.gathered.take()?;
        Some(Order { hits, count, from_ns, to_ns, file: None })
    }

    fn start_ns(&self) -> u64 {
        self.begin.preamble.clock.start_ns
    }

    fn answer(&mut self, request: SnapshotRequest) {
        let SnapshotRequest { why, last, file, tell } = request;
        let to_ns = now();
        let from_ns = to_ns.saturating_sub(ns(last.unwrap_or(self.begin.options.before)));
        let hits = vec![Hit { why, trigger: 0, at_ns: to_ns }];
        tell(self.make(Order { hits, count: 1, from_ns, to_ns, file }));
    }

    /// Makes a snapshot, and notes it for the ledger of the recording.
    fn make(&mut self, order: Order) -> Result<Made, String> {
        self.number += 1;
        let counts = order.file.is_none();
        let path = order.file.clone().unwrap_or_else(|| self.begin.options.file(self.number));
        let path = std::path::absolute(&path).unwrap_or(path);
        let why = order.hits.first().map(|hit| hit.why.clone()).unwrap_or_default();
        let (from_ns, to_ns, hits) = (order.from_ns, order.to_ns, order.count);
        let made = if path == self.begin.log {
            Err(format!("{} is the log of the recording", path.display()))
        } else {
            self.write(order, &path)
        };
        self.begin.history.need(u64::MAX);
        let mut taken =
            Taken { number: self.number, why, hits, from_ns, to_ns, ..Taken::default() };
        match &made {
            Ok(made) => {
                taken.file = path.display().to_string();
                (taken.from_ns, taken.to_ns) = (made.from_ns, made.to_ns);
                (taken.events, taken.bytes) = (made.events, made.bytes);
            }
            Err(why) => {
                self.failed += 1;
                taken.missing.clone_from(why);
            }
        }
        if self.taken.len() < LISTED_MAX {
            self.taken.push(taken);
        } else {
            self.unlisted += 1;
        }
        if counts && made.is_ok() {
            self.kept.push_back((path, self.taken.len().wrapping_sub(1)));
            self.remove_oldest();
        }
        made
    }

    fn remove_oldest(&mut self) {
        while self.kept.len() > self.begin.options.keep as usize {
            let Some((path, index)) = self.kept.pop_front() else { return };
            let remove = || Folder::of_name(&path).and_then(|(folder, name)| folder.remove(&name));
            let _ = watched(path.as_path(), remove);
            self.removed += 1;
            if let Some(taken) = self.taken.get_mut(index) {
                taken.file.clear();
                taken.missing = "removed, because newer ones were to be kept".into();
            }
        }
    }

    /// Takes what is in the rings, and writes the log. If that fails, there is no file.
    fn write(&mut self, order: Order, path: &Path) -> Result<Made, String> {
        if let Some(sources) = &*self.sources.lock().unwrap_or_else(PoisonError::into_inner) {
            sources.empty();
            wait_for_programs(&self.begin.history, order.to_ns);
        }
        let part = self.begin.history.part();
        let stacks = if write::needs_stacks(&part.preamble.events) {
            self.stacks()
        } else {
            RawStacks::default()
        };
        let contents = self.contents(&part, order);
        watched(path, || file::check_regular(path)).map_err(|e| e.message)?;
        let cannot = |e: io::Error| format!("cannot write {}: {e}", path.display());
        let mode = self.begin.mode;
        let whole = file::Whole::begin(path, mode).map_err(|e| e.message)?;
        let file = whole.file().map_err(cannot)?;
        let made = write::write(file, contents, &part, stacks, self.begin.compression);
        // What is not completed is closed and removed.
        let complete = move || made.and_then(|made| whole.complete(Old::Keep).map(|()| made));
        let made = watched(path, complete).map_err(cannot)?;
        Ok(Made { file: path.into(), number: self.number, ..made })
    }

    fn contents<'a>(&'a self, part: &Part, order: Order) -> Contents<'a> {
        let mut hits = order.hits.into_iter();
        let from_ns = order.from_ns.max(part.whole_ns).max(self.start_ns()).min(order.to_ns);
        let snapshot = Snapshot {
            number: self.number,
            first: hits.next().unwrap_or_default(),
            also: hits.collect(),
            hits: order.count,
            from_ns,
            to_ns: order.to_ns,
            log: self.begin.log.display().to_string(),
            recording_start_ns: self.start_ns(),
            left_out: Vec::new(),
        };
        let asked_ns = order.from_ns.max(self.start_ns());
        Contents { snapshot, asked_ns, builtin: &self.begin.builtin }
    }

    /// The stacks of the recording so far; none if the recorder does not answer.
    fn stacks(&mut self) -> RawStacks {
        let (to, hear) = sync_channel(1);
        if self.ask.send(to).is_err() {
            return RawStacks::default();
        }
        // If the other end is full, it has not been read, and will be.
        let _ = self.bell.write(&[0]);
        hear.recv().unwrap_or_default()
    }

    fn end(self) -> Ended {
        let Options { keep, .. } = self.begin.options;
        let entry = |count: u64, text: String| {
            (count > 0).then(|| Entry::new(Key::SnapshotMissing).detail(&text))
        };
        let removed =
            entry(self.removed, format!("{} were removed to keep the last {keep}", self.removed));
        let failed = entry(self.failed, format!("{} could not be written", self.failed));
        let unlisted =
            entry(self.unlisted, format!("{} others are not in the list", self.unlisted));
        let entries = removed.into_iter().chain(failed).chain(unlisted).collect();
        Ended { taken: self.taken, entries }
    }
}

/// Their rings are drained by turns of an engine's own.
fn wait_for_programs(history: &History, to_ns: u64) {
    let deadline = std::time::Instant::now() + PROGRAMS;
    while !history.has_programs_until(to_ns) && std::time::Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}
