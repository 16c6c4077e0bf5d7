// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where segments meet: when the next one is due, and what it and the ledger of the one before need
//! to know.
//!
//! It is a tap of what the log has. The [`File`] holds it, because it has the file changed.
//!
//! [`File`]: super::File

use super::{Batch, Tap, Written};
use crate::destination::Destination;
use crate::file;
use crate::hung::{Watched, watched};
use crate::segments::{Plan, SegmentEnd, Shelf, room};
use klogger_log::event::Layouts;
use klogger_log::ledger::{Entry, Key};
use klogger_log::names::{Processes, is_about_threads};
use klogger_log::origin::Origin;
use klogger_log::preamble::{Addition, Preamble, Segment};
use klogger_log::segments;
use klogger_log::writer::{Compression, EventBlock, Extent, Writer, needs_room};
use klogger_os as os;
use klogger_os::outputs::Folder;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A ring's contents reach the writer within this time. The first events of a segment may be so
/// much older than it.
const DRAINED_NS: u64 = 1_000_000_000;
/// Bytes of a segment for its ledger, index and tables.
const TAIL: u64 = 64 << 10;
/// Threads that a segment has from those before it, at most.
const THREADS_MAX: usize = 32 << 10;
/// After a new segment could not be begun.
const RETRY: Duration = Duration::from_secs(1);

/// What the writer thread knows of the segments of its recording.
pub struct Seams {
    plan: Plan,
    shelf: Arc<Shelf>,
    mode: u32,
    compression: Compression,
    /// Of the segment that is being written, with all additions.
    preamble: Preamble,
    due: Instant,
    /// Bytes before the first block of the segment.
    head: u64,
    /// Events about threads.
    about: Layouts,
    threads: Processes,
    /// By stream, of this segment: how many events were lost, and between which times.
    lost: BTreeMap<Origin, (u64, u64, u64)>,
    /// By place: what the ledgers of earlier segments have.
    told: BTreeMap<Option<u16>, u64>,
    began_ns: u64,
    /// Since when the next segment cannot be begun, and why.
    failed: Option<(u64, String)>,
}

impl Seams {
    /// `preamble`, `head`: those of the first segment.
    pub fn new(
        plan: Plan,
        shelf: Arc<Shelf>,
        mode: u32,
        compression: Compression,
        preamble: Preamble,
        head: u64,
    ) -> Seams {
        let mut about = Layouts::default();
        about.add(&preamble.events, is_about_threads);
        Seams {
            head,
            due: due(&plan, Instant::now()),
            about,
            threads: Processes::of_blocks(&preamble),
            plan,
            shelf,
            mode,
            compression,
            began_ns: preamble.clock.start_ns,
            preamble,
            lost: BTreeMap::new(),
            told: BTreeMap::new(),
            failed: None,
        }
    }

    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// The time until the next segment is due, `most` at most.
    pub fn patience(&self, most: Duration) -> Duration {
        self.due.saturating_duration_since(Instant::now()).min(most)
    }

    /// Whether a segment of so many bytes must end before records of `more` bytes are added. One
    /// without any goes on, however large they are.
    pub fn is_due(&self, bytes: u64, more: u64) -> bool {
        let now = Instant::now();
        let then = bytes.saturating_add(more + more / 64 + TAIL);
        let full = bytes > self.head && self.plan.size.is_some_and(|size| then > size);
        let wanted = now >= self.due || (full && self.shelf.may_retry(now));
        wanted && !self.shelf.is_behind()
    }

    /// Begins the next segment, and returns its writer and what is said of the one before. After an
    /// error the old one goes on, and this is tried again later.
    pub fn go_on(&mut self) -> Option<(Writer<Destination>, SegmentEnd)> {
        let (now, number) = (Instant::now(), self.number());
        match self.begin() {
            Ok(writer) => {
                self.due = due(&self.plan, now);
                let (start_ns, end_ns) = (self.began_ns, os::monotonic_ns());
                self.began_ns = end_ns;
                Some((writer, SegmentEnd { number, losses: self.losses(), start_ns, end_ns }))
            }
            Err(e) => {
                self.due = now + RETRY;
                self.shelf.retry_at(now + RETRY);
                if self.failed.is_none() {
                    let what = format!("segment {} could not be begun: {e}", number + 1);
                    self.shelf.note(format!("{what}; the one before it goes on"));
                    self.failed = Some((os::monotonic_ns(), what));
                }
                None
            }
        }
    }

    fn begin(&mut self) -> io::Result<Writer<Destination>> {
        let now_ns = os::monotonic_ns();
        let old = self.preamble.segment.clone().unwrap_or_default();
        // A thread that ended before that has no events any more.
        let threads = self.threads.known(now_ns.saturating_sub(DRAINED_NS), THREADS_MAX);
        let number = old.number + 1;
        let mut preamble = self.preamble.clone();
        preamble.segment = Some(Segment { number, start_ns: now_ns, threads, ..old });
        let name = segments::file_name(number);
        let folder = self.shelf.folder();
        let mut writer = loop {
            match create(folder, name.as_ref(), self.mode, &preamble, self.compression) {
                Err(e) if needs_room(&e) && self.shelf.make_room() => {}
                made => break made?,
            }
        };
        writer.set_room(room(&self.shelf));
        self.head = writer.bytes();
        self.preamble = preamble;
        Ok(writer)
    }

    /// The number of the segment that is being written.
    fn number(&self) -> u32 {
        self.preamble.segment.as_ref().map_or(0, |segment| segment.number)
    }

    /// What the ledger of the segment has that ends now: its losses.
    pub fn losses(&mut self) -> Vec<Entry> {
        let lost = std::mem::take(&mut self.lost);
        let entry = |(origin, (count, from, to)): (&Origin, &(u64, u64, u64))| {
            Entry::new(Key::RingFull).of(*origin).count(*count).between(*from, *to)
        };
        let mut entries: Vec<Entry> = lost.iter().map(entry).collect();
        for (origin, (count, ..)) in lost {
            *self.told.entry(origin.cpu()).or_insert(0) += count;
        }
        entries.extend(self.not_begun());
        entries
    }

    fn not_begun(&mut self) -> Option<Entry> {
        let (since_ns, why) = self.failed.take()?;
        let entry = Entry::new(Key::SegmentNotBegun).between(since_ns, os::monotonic_ns());
        Some(entry.detail(&why))
    }

    /// Of a ledger of the whole recording, what is for the last segment.
    pub fn untold(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut rest = self.shelf.untold(self.ring_full(entries), self.began_ns);
        rest.extend(self.not_begun());
        rest.extend(self.shelf.deleted());
        rest
    }

    /// Takes from the losses of rings what earlier segments have said. Those do not know which
    /// events were lost, so what is left at such a place has no names.
    fn ring_full(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let ring_full = Key::RingFull.info().name;
        let (of_told, mut rest): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|e| e.key == ring_full && self.told.contains_key(&e.cpu));
        let mut sums: BTreeMap<Option<u16>, Entry> = BTreeMap::new();
        for entry in of_told {
            let none = || Entry { cpu: entry.cpu, ..Entry::new(Key::RingFull) };
            let sum = sums.entry(entry.cpu).or_insert_with(none);
            sum.count = sum.count.saturating_add(entry.count);
            sum.to_ns = sum.to_ns.max(entry.to_ns);
        }
        for (cpu, mut sum) in sums {
            sum.count = sum.count.saturating_sub(self.told[&cpu]);
            sum.from_ns = sum.to_ns.map(|to| to.min(self.began_ns));
            rest.extend((sum.count > 0).then_some(sum));
        }
        rest
    }
}

impl Tap for Seams {
    fn declared(&mut self, addition: &Addition) {
        let preamble = &mut self.preamble;
        preamble.schemas.extend(addition.schemas.iter().cloned());
        preamble.events.extend(addition.events.iter().cloned());
        for decoding in &addition.decodings {
            if preamble.decodings.iter().all(|known| known.name != decoding.name) {
                preamble.decodings.push(decoding.clone());
            }
        }
        self.about.add(&addition.events, is_about_threads);
        self.threads.learn(&preamble.events);
    }

    /// Notes what a block says of threads, and how many events were lost before its events.
    fn logged(&mut self, batch: &Batch, written: &Written) {
        let EventBlock { origin, time_base, .. } = batch.block;
        let event = |record| self.about.event(&record, origin, time_base);
        batch.records().filter_map(event).for_each(|event| self.threads.apply(&event));
        let Extent { lost, last_ns, .. } = written.extent;
        if lost > 0 {
            let found = self.lost.entry(origin).or_insert((0, u64::MAX, 0));
            *found = (found.0.saturating_add(lost), found.1.min(time_base), found.2.max(last_ns));
        }
    }
}

/// A year, if there is no limit.
fn due(plan: &Plan, now: Instant) -> Instant {
    now + plan.age.unwrap_or(Duration::from_secs(365 * 24 * 3600))
}

fn create(
    folder: &Folder,
    name: &OsStr,
    mode: u32,
    preamble: &Preamble,
    compression: Compression,
) -> io::Result<Writer<Destination>> {
    let path: Arc<Path> = folder.path().join(name).into();
    let file = watched(path.clone(), || file::create(folder, name, mode))?;
    let file = Destination::File(Watched::new(path.clone(), file));
    let made = Writer::new(file, preamble, compression);
    made.inspect_err(|_| drop(watched(path, || folder.remove(name))))
}
