// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue from a memory image of a crashed kernel: finds the rings of recordings, and makes logs of
//! them.
//!
//! A recorder leaves an [`anchor`] in the kernel's memory, which lists the pages of its rings.
//! [`save`] looks for anchors in an image ([`dump`]), assembles the rings, and continues as for a
//! recorder that was killed. An image is untrusted: each value is checked before use.

mod anchor;
mod dump;
#[cfg(test)]
mod tests;

use crate::file::{self, Whole};
use crate::rescue::begun;
use crate::rescue::check_whole;
use crate::rescue::rings::earlier::Earlier;
use crate::rescue::rings::{self, Facts, Salvage, Salvaged};
use crate::writer::Names;
use anchor::{Anchor, read_anchor};
use dump::Dump;
use klogger_engines::anchor::format::{self, Key};
use klogger_log::ledger::{Entry, Key as LedgerKey, Ledger};
use klogger_log::preamble::EventClock;
use klogger_log::reader::Reader;
use klogger_log::writer::Compression;
use klogger_os::Error;
use klogger_os::files::cannot_write;
use klogger_os::outputs::Old;
use klogger_ring::clock::Clock;
use klogger_schema::model::Decode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Recordings in one image, at most.
const RECORDINGS_MAX: usize = 64;
/// Anchors of a recording, at most: one for its rings, one for each ring that was replaced.
const ANCHORS_MAX: usize = 256;

/// A log that was written.
pub struct Rescued {
    pub output: PathBuf,
    /// Process id of the recorder.
    pub pid: u32,
    /// Whether an unfinished log on disk is a part of it.
    pub has_log: bool,
    pub salvaged: Salvaged,
}

/// Makes a log of each recording in the image `vmcore`. `log`: what the recorder had written; by
/// default it is looked for where the recorder wrote it. If there are several recordings, each log
/// has the recorder's process id in its name.
pub fn save(
    vmcore: &Path,
    log: Option<&Path>,
    output: &Path,
    compression: Compression,
) -> Result<Vec<Rescued>, Error> {
    let dump = Dump::open(vmcore)?;
    let mut found = find(&dump, vmcore)?;
    let mut logs = logs(&found, log)?;
    for (recording, old) in found.iter_mut().zip(&mut logs) {
        recording.find_segments(log.filter(|_| old.is_some()), old);
    }
    let several = found.len() > 1;
    let mut rescued = Vec::new();
    for (recording, old) in found.iter_mut().zip(&logs) {
        let pid = recording.facts.preamble.recorder.pid;
        let output = if several { numbered(output, pid) } else { output.to_path_buf() };
        let mut salvaged = recording.save(&dump, old.as_ref(), &output, compression)?;
        if let (Some(log), Some(_)) = (log, old) {
            salvaged.log = log.to_path_buf();
        }
        rescued.push(Rescued { output, pid, has_log: old.is_some(), salvaged });
    }
    Ok(rescued)
}

/// `rescue.klog`: `rescue-4711.klog`
fn numbered(output: &Path, pid: u32) -> PathBuf {
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{pid}"));
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    output.with_file_name(name)
}

/// For each recording, the unfinished log, if it is found.
fn logs(found: &[Recording], given: Option<&Path>) -> Result<Vec<Option<Reader>>, Error> {
    let Some(path) = given else {
        let is_of =
            |r: &Recording| begun(&r.facts.log).filter(|old| rings::is_of(old, &r.facts.preamble));
        return Ok(found.iter().map(|r| is_of(r).filter(|old| !old.is_complete())).collect());
    };
    let cannot = |e| Error::new(format!("cannot read {}: {e}", path.display()));
    Reader::open(path).map_err(cannot)?;
    let mut logs: Vec<Option<Reader>> = Vec::new();
    for r in found {
        logs.push(begun(path).filter(|old| rings::is_of(old, &r.facts.preamble)));
    }
    match logs.iter().flatten().next() {
        None => Err(Error::new(format!(
            "{} is not the log of a recording in this image",
            path.display()
        ))
        .help("without --log, the log is looked for where the recorder wrote it")),
        Some(old) if old.is_complete() => Err(Error::new(format!(
            "{} is complete: its recording had ended before",
            path.display()
        ))
        .help("there is nothing to save")),
        Some(_) => Ok(logs),
    }
}

/// One recording, as its anchors describe it.
struct Recording {
    facts: Facts,
    /// In the order in which they were in use. The rings of all but the last have been replaced.
    anchors: Vec<Anchor>,
    /// If the log consists of segments.
    earlier: Option<Earlier>,
}

/// The offsets of the pages of anchors, by page number.
type Places = BTreeMap<Key, BTreeMap<u32, u64>>;

fn find(dump: &Dump, path: &Path) -> Result<Vec<Recording>, Error> {
    let mut places = Places::new();
    let scanned = dump.pages(|address, page| {
        if let Some((key, number)) = format::read_head(page) {
            places.entry(key).or_default().insert(number, address);
        }
    });
    scanned.map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))?;
    let mut recordings: BTreeMap<u64, Recording> = BTreeMap::new();
    // In the order in which the anchors were made.
    for (key, pages) in &places {
        let Some((facts, anchor)) = read_anchor(dump, key, pages) else { continue };
        let recording = recordings.entry(key.recording).or_insert_with(|| Recording {
            facts,
            anchors: Vec::new(),
            earlier: None,
        });
        if recording.anchors.len() < ANCHORS_MAX {
            recording.anchors.push(anchor);
        }
    }
    let mut found: Vec<Recording> = recordings.into_values().take(RECORDINGS_MAX).collect();
    found.sort_by_key(|r| (r.facts.preamble.clock.start_ns, r.facts.preamble.recorder.pid));
    match (found.is_empty(), places.is_empty()) {
        (false, _) => Ok(found),
        (true, false) => Err(Error::new(format!(
            "{} holds traces of a recording, but not all of its anchor",
            path.display()
        ))
        .help(
            "the recording may have ended long before; if not, the image was cut, or leaves out \
             memory of the kernel",
        )),
        (true, true) => Err(Error::new(format!("{} holds no rings of klogger", path.display()))
            .help(
                "was 'klogger record' running when the machine crashed? A recording that ended in \
             order leaves nothing",
            )),
    }
}

impl Recording {
    /// If the log consists of segments, what the image has belongs to the last of them. `moved`:
    /// where one of them is now.
    fn find_segments(&mut self, moved: Option<&Path>, old: &mut Option<Reader>) {
        if let Some(moved) = moved {
            self.facts.log = moved.to_path_buf();
        }
        if let Some((earlier, last)) = Earlier::of(&mut self.facts, false) {
            self.earlier = Some(earlier);
            *old = last;
        }
    }

    fn save(
        &mut self,
        dump: &Dump,
        old: Option<&Reader>,
        output: &Path,
        compression: Compression,
    ) -> Result<Salvaged, Error> {
        let cannot = |e| cannot_write(output, e);
        let last = self.anchors.last().ok_or_else(|| Error::new("a recording has no rings"))?;
        let still = last.still().ok_or_else(|| {
            Error::new("the clock of a recording in this image does not run")
                .help("the image is damaged")
        })?;
        let mut ledger = Ledger { entries: vec![rescued(&self.facts, old)], ..Ledger::default() };
        ledger.entries.extend(unnamed(&self.facts));
        ledger.kernel_clock = still.clock.as_ref().map(clock_of_events);
        let whole = Whole::begin(output, file::PRIVATE)?;
        let log = whole.file().map_err(cannot)?;
        let earlier = self.earlier.take();
        let salvage = Salvage::new(&self.facts, old, log, compression, still).map_err(cannot)?;
        let mut salvage = salvage.after(earlier);
        let written = salvage.events();
        for (n, anchor) in self.anchors.iter().enumerate() {
            for rings in &anchor.index.rings {
                // The rings of the same CPU that replaced these; perhaps only the main ring.
                let next =
                    self.anchors[n + 1..].iter().find_map(|a| Some((a, a.of_cpu(rings.cpu)?)));
                let shares = next
                    .is_some_and(|(a, next)| anchor.frames(rings.nested) == a.frames(next.nested));
                match anchor.reader(dump, rings, !shares)? {
                    // Rings that were replaced are empty, unless the crash came right after.
                    Some(reader) if next.is_none() || !reader.has_ended() => {
                        salvage.ring(rings.cpu, reader).map_err(cannot)?;
                    }
                    None if next.is_none() => ledger.entries.push(gone(rings.cpu)),
                    Some(_) | None => {}
                }
            }
        }
        let rescued = salvage.events() - written;
        let ringless = last.ringless(dump)?;
        let ringless = |id: u16| ringless.word(8 * usize::from(id)).load(Ordering::Relaxed);
        let (summary, ledger) =
            salvage.finish(ledger, &ringless, &Names::default()).map_err(cannot)?;
        check_whole(&summary, written + rescued).map_err(cannot)?;
        whole.complete_synced(Old::KeepAll).map_err(cannot)?;
        let (log, output) = (self.facts.log.clone(), output.to_path_buf());
        Ok(Salvaged { summary, ledger, log, output, written, rescued })
    }
}

fn rescued(facts: &Facts, old: Option<&Reader>) -> Entry {
    let log = facts.log.display();
    Entry::new(LedgerKey::Rescued).detail(&match old {
        Some(_) => format!(
            "the machine crashed; the events are those of {log}, and of the rings \
                            in an image of its memory"
        ),
        None => format!(
            "the machine crashed; the events are those of the rings in an image of its memory. \
             What the recorder had written \
             to {log} before is not in this log, and counts as in_flight"
        ),
    })
}

/// Entries for what a recorder asks the kernel at the end of a recording.
fn unnamed(facts: &Facts) -> Vec<Entry> {
    let has = |decode: Decode| {
        facts.preamble.events.iter().flat_map(|e| &e.fields).any(|f| f.decode == decode)
    };
    let mut entries = Vec::new();
    if has(Decode::Code) {
        entries.push(
            Entry::new(LedgerKey::SymbolsHidden).detail("the names are not looked for in an image"),
        );
    }
    if has(Decode::Stack) {
        entries.push(
            Entry::new(LedgerKey::StackUnknown).detail("stacks are not looked for in an image"),
        );
    }
    entries
}

fn gone(cpu: u16) -> Entry {
    let entry = Entry::new(LedgerKey::BlockCorrupt).cpu(cpu);
    entry.detail("the rings of this CPU are missing in the image, or were overwritten")
}

/// How exact the times are is unknown: as exact as the TSC is steady.
fn clock_of_events(clock: &Clock) -> EventClock {
    clock.event_clock(klogger_ring::clock::Source::Tsc)
}
