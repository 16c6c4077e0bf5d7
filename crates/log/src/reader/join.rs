// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Opens the segments in a folder as one log.
//!
//! The blocks of all files are listed one behind the other, so that those of a stream follow each
//! other as in one file. Files that are missing or cannot be read are holes between the others:
//! what their serial numbers say is missing is counted with the hole.

use super::Reader;
use crate::damage::{Damage, note};
use crate::error::Error;
use crate::format::Kind;
use crate::ledger::{Entry, Key, Ledger};
use crate::lock::Writing;
use crate::preamble::{Preamble, Segment};
use crate::scan::Block;
use crate::segments;
use crate::source::{Folder, Source};
use crate::validate::Known;
use crc32c::crc32c_append;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::path::Path;

/// A file of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentFile {
    pub number: u32,
    pub file: String,
    pub bytes: u64,
    pub events: u64,
    /// Full ns of the log clock.
    pub start_ns: u64,
    pub end_ns: u64,
    pub complete: bool,
    pub being_written: bool,
    /// Offset of its first byte.
    #[serde(skip)]
    pub(super) begin: u64,
}

/// What is missing between two files.
pub(super) struct Hole {
    /// Offset of the first byte behind it.
    at: u64,
    damage: Damage,
}

/// Counts events that are missing between two offsets with a hole that is there; false if there is
/// none.
pub(super) fn fill(
    holes: &mut [Hole],
    between: (u64, u64),
    missing: u64,
    times: (u64, u64),
) -> bool {
    let is_there = |hole: &&mut Hole| between.0 <= hole.at && hole.at <= between.1;
    let found = holes.iter_mut().find(is_there);
    found.map(|hole| hole.damage.add(missing, times.0, times.1)).is_some()
}

pub(super) fn open(path: &Path) -> Result<Reader, Error> {
    let mut join = Join {
        folder: Folder::new(path)?,
        first: None,
        preamble: Preamble::default(),
        crc: 0,
        blocks: Vec::new(),
        damage: Vec::new(),
        ledger: Joined::default(),
        complete: false,
        segments: Vec::new(),
        holes: Vec::new(),
        unreadable: Vec::new(),
        last: 0,
        failed: None,
    };
    for number in segments::numbers(path)? {
        join.add(number)?;
    }
    join.finish()
}

struct Join {
    folder: Folder,
    /// What the first file that could be read says of itself.
    first: Option<Segment>,
    preamble: Preamble,
    crc: u32,
    blocks: Vec<Block>,
    damage: Vec<Damage>,
    ledger: Joined,
    complete: bool,
    segments: Vec<SegmentFile>,
    holes: Vec<Hole>,
    /// Files since the last one that could be read.
    unreadable: Vec<Damage>,
    /// The number of the last file.
    last: u32,
    /// Why the first file could not be read that could not.
    failed: Option<Error>,
}

/// A file that is being added.
struct Candidate {
    number: u32,
    name: String,
    found: Metadata,
    length: u64,
    writing: Writing,
}

impl Join {
    fn add(&mut self, number: u32) -> Result<(), Error> {
        let name = segments::file_name(number);
        let of_file = |e: io::Error| io::Error::new(e.kind(), format!("{name}: {e}"));
        let file = match self.folder.open_named(&name) {
            // It was removed since the folder was listed.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(of_file)?,
        };
        let found = file.metadata().map_err(of_file)?;
        let source = Source::file(file).map_err(of_file)?;
        let (length, writing) = (source.length(), source.writing());
        if writing == Writing::Yes {
            self.folder.writing = Writing::Yes;
        }
        let file = Candidate { number, name: name.clone(), found, length, writing };
        match Reader::parse(source) {
            Ok(reader) => self.join(file, reader)?,
            Err(Error::Io(e)) => return Err(of_file(e).into()),
            // It was begun just now.
            Err(_) if writing == Writing::Yes => self.complete = false,
            Err(error) => self.skip(&file, error),
        }
        self.last = number;
        Ok(())
    }

    fn join(&mut self, file: Candidate, reader: Reader) -> Result<(), Error> {
        self.check(&file, reader.preamble.segment.as_ref())?;
        let joined = match with_older(reader.preamble.clone(), &self.preamble) {
            Ok(joined) => joined,
            Err(why) => {
                self.skip(&file, Error::PreambleCorrupt(why));
                return Ok(());
            }
        };
        let begin = self.folder.push(file.name.clone(), file.length, &file.found);
        self.note_holes(file.number, begin);
        self.segments.push(about(&file, &reader, begin));
        self.preamble = joined;
        self.crc = crc32c_append(self.crc, &file.number.to_le_bytes());
        self.crc = crc32c_append(self.crc, &reader.preamble_crc.to_le_bytes());
        self.complete = reader.complete;
        let at = |block: Block| Block { offset: block.offset + begin, ..block };
        self.blocks.extend(reader.blocks.into_iter().map(at));
        for damage in reader.damage {
            let (from, to) = (damage.from + begin, damage.to.saturating_add(begin));
            note(&mut self.damage, Damage { from, to, ..damage });
        }
        self.ledger.add(reader.ledger);
        Ok(())
    }

    /// Whether it belongs to the others.
    fn check(&mut self, file: &Candidate, segment: Option<&Segment>) -> Result<(), Error> {
        let name = &file.name;
        let Some(segment) = segment else {
            return Err(Error::Segments(format!("{name} is not a segment of a recording")));
        };
        if segment.number != file.number {
            let what = format!("{name} was recorded as {}", segments::file_name(segment.number));
            return Err(Error::Segments(what));
        }
        let first = self.first.get_or_insert_with(|| segment.clone());
        if segment.recording == first.recording {
            return Ok(());
        }
        let first = segments::file_name(first.number);
        Err(Error::Segments(format!("{first} and {name} are of two recordings")))
    }

    /// Goes on without a file.
    fn skip(&mut self, file: &Candidate, error: Error) {
        // A recorder that is killed when it begins a segment leaves such a file.
        let key = match error {
            Error::Empty | Error::PreambleCut { .. } => Key::RecorderKilled,
            _ => Key::BlockCorrupt,
        };
        let damage = Damage::new(key, 0, file.length, format!("none of it can be read: {error}"));
        note(&mut self.unreadable, Damage { file: Some(file.name.clone()), ..damage });
        self.complete = false;
        self.failed.get_or_insert(error);
    }

    /// Notes what is missing before the file with this number, which begins at `at`.
    fn note_holes(&mut self, number: u32, at: u64) {
        let holes = self.unreadable.drain(..).map(|damage| Hole { at, damage });
        self.holes.extend(holes);
        let (first, last) = (self.last.saturating_add(1), number - 1);
        if first <= last {
            let key = if self.last == 0 { Key::SegmentsRemoved } else { Key::SegmentsMissing };
            let what = match first == last {
                true => format!("segment {first}"),
                false => format!("segments {first} to {last}"),
            };
            self.holes.push(Hole { at, damage: Damage::new(key, 0, 0, what) });
        }
    }

    fn finish(self) -> Result<Reader, Error> {
        if self.segments.is_empty() {
            return Err(self.failed.unwrap_or(Error::NoSegments));
        }
        let writing = self.folder.writing == Writing::Yes;
        let mut ledger = self.ledger.ledger;
        if !self.complete {
            ledger.end_ns = ledger.end_ns.max(self.segments.last().map(|last| last.end_ns));
        }
        let mut removed = self.ledger.removed;
        let mut reader = Reader {
            source: Source::Folder(self.folder),
            preamble: self.preamble,
            preamble_crc: self.crc,
            blocks: self.blocks,
            damage: self.damage,
            ledger,
            complete: self.complete && !writing,
            segments: self.segments,
            holes: self.holes,
        };
        reader.check_serials();
        reader.note_unknown();
        let damage = std::mem::take(&mut reader.damage);
        reader.damage = damage.into_iter().map(|d| reader.source.named(d)).collect();
        for Hole { damage, .. } in std::mem::take(&mut reader.holes) {
            match damage.key {
                Key::SegmentsRemoved => removed = later(removed, removed_entry(&damage)),
                _ => note(&mut reader.damage, damage),
            }
        }
        reader.ledger.entries.extend(removed);
        for damage in self.unreadable {
            note(&mut reader.damage, damage);
        }
        reader.preamble.segment = self.first;
        reader.begin_at_segment();
        Ok(reader)
    }
}

/// Of what the recorder wrote last of the oldest segments and what their serial numbers say, that
/// which is later: it has more events.
fn later(recorded: Option<Entry>, found: Entry) -> Option<Entry> {
    recorded.filter(|recorded| recorded.count >= found.count).or(Some(found))
}

/// As an entry only: nothing is damaged.
fn removed_entry(damage: &Damage) -> Entry {
    let entry = Entry::reading(damage.key).count(damage.events).detail(&damage.what);
    damage.times.map_or(entry.clone(), |(from, to)| entry.between(from, to))
}

fn about(file: &Candidate, reader: &Reader, begin: u64) -> SegmentFile {
    let segment = reader.preamble.segment.as_ref();
    let times = reader.times();
    let start_ns = segment.map(|s| s.start_ns).filter(|start| *start > 0);
    let start_ns = start_ns.or(times.map(|t| t.0)).unwrap_or(reader.preamble.clock.start_ns);
    let end_ns = reader.ledger.end_ns.or(times.map(|t| t.1)).unwrap_or(start_ns);
    let events = reader.blocks.iter().filter(|b| b.header.kind == Kind::Events);
    SegmentFile {
        number: file.number,
        file: file.name.clone(),
        bytes: file.length,
        events: events.map(|b| u64::from(b.header.events)).sum(),
        start_ns,
        end_ns: end_ns.max(start_ns),
        complete: reader.complete,
        being_written: !reader.complete && file.writing == Writing::Yes,
        begin,
    }
}

/// A preamble, and what that of the segments before has besides. The error says what contradicts
/// them.
fn with_older(mut new: Preamble, old: &Preamble) -> Result<Preamble, String> {
    let events: BTreeMap<u16, _> = new.events.iter().map(|e| (e.id, e)).collect();
    let mut lacking = Vec::new();
    for event in &old.events {
        match events.get(&event.id) {
            Some(same) if *same == event => {}
            Some(_) => {
                return Err(format!("event {} is not that of the segments before", event.name));
            }
            None => lacking.push(event.clone()),
        }
    }
    let schemas: HashSet<_> = new.schemas.iter().map(|s| s.name.clone()).collect();
    let decodings: HashSet<_> = new.decodings.iter().map(|d| d.name.clone()).collect();
    new.events.extend(lacking);
    new.schemas.extend(old.schemas.iter().filter(|s| !schemas.contains(&s.name)).cloned());
    new.decodings.extend(old.decodings.iter().filter(|d| !decodings.contains(&d.name)).cloned());
    new.costs = new.costs.or_else(|| old.costs.clone());
    Known::new(&new)?;
    Ok(new)
}

/// The ledgers of some logs as one.
#[derive(Default)]
struct Joined {
    ledger: Ledger,
    /// By cause: which entry.
    places: HashMap<String, usize>,
    /// The last of its kind: each has the sum of all up to then.
    removed: Option<Entry>,
}

impl Joined {
    fn add(&mut self, other: Ledger) {
        let Ledger { entries, user_clock, kernel_clock, end_ns, snapshots, triggers } = other;
        for entry in entries {
            if entry.key == Key::SegmentsRemoved.info().name {
                self.removed = Some(entry);
                continue;
            }
            let next = self.ledger.entries.len();
            match *self.places.entry(entry.cause()).or_insert(next) {
                place if place == next => self.ledger.entries.push(entry),
                place => unite(&mut self.ledger.entries[place], &entry),
            }
        }
        let all = &mut self.ledger;
        all.user_clock = user_clock.or(all.user_clock.take());
        all.kernel_clock = kernel_clock.or(all.kernel_clock.take());
        all.end_ns = all.end_ns.max(end_ns);
        // Each ledger has all up to then.
        if !snapshots.is_empty() {
            all.snapshots = snapshots;
        }
        if !triggers.is_empty() {
            all.triggers = triggers;
        }
    }
}

fn unite(sum: &mut Entry, entry: &Entry) {
    sum.recount(sum.count.saturating_add(entry.count));
    sum.from_ns = sum.from_ns.into_iter().chain(entry.from_ns).min();
    sum.to_ns = sum.to_ns.max(entry.to_ns);
}
