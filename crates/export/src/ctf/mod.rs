// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to ctf` and `--to ctf2`: a trace in the Common Trace Format, for babeltrace2, Trace Compass and others.
//!
//! Both versions have the same files of events ([`stream`]), and a file `metadata` that says how to read them: in a
//! language of its own ([`tsdl`]) or as JSON ([`json`]).

mod json;
mod metadata;
mod stream;
mod tsdl;
mod types;

use klogger_log::damage::Damage;
use klogger_log::event::{EventRef, Value};
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use metadata::Metadata;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use stream::{Class, Stream};

/// Bytes that wait in all streams at most. Programs may have had thousands of threads.
const WAITING_MAX: usize = 64 << 20;
/// Events between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.8
    One,
    /// 2
    Two,
}

impl Version {
    /// Of the directory's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Version::One => "ctf",
            Version::Two => "ctf2",
        }
    }
}

/// Writes the whole log into `dir`, an empty directory; returns how many events there were, and what of the log could
/// not be read.
pub fn write(
    reader: &Reader,
    dir: &Path,
    version: Version,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<(u64, Vec<Damage>)> {
    let mut streams = Streams { streams: BTreeMap::new(), dir, uuid: metadata::uuid(reader), lost: lost_event(reader) };
    let mut merge = reader.merge(&Selection::default());
    let (mut done, total) = (0, reader.totals().0);
    while let Some(event) = merge.next() {
        streams.push(&event)?;
        done += 1;
        if done % REPORT_EVERY == 0 {
            progress(done, total);
            streams.limit()?;
        }
    }
    streams.flush()?;
    let mut damage = merge.damage().to_vec();
    damage.extend(reader.check_rest());
    let classes = streams.streams.keys().map(|origin| Class::of(*origin)).collect();
    let metadata = Metadata::new(reader, &reader.ledger(&damage), classes);
    let text = match version {
        Version::One => tsdl::text(&metadata),
        Version::Two => json::text(&metadata),
    };
    fs::write(dir.join("metadata"), text)?;
    Ok((done, damage))
}

/// Which event is `LOST`.
fn lost_event(reader: &Reader) -> Option<usize> {
    reader.preamble().events.iter().position(|e| e.name == "LOST")
}

struct Streams<'d> {
    streams: BTreeMap<Origin, Stream>,
    dir: &'d Path,
    uuid: [u8; 16],
    lost: Option<usize>,
}

impl Streams<'_> {
    fn push(&mut self, event: &EventRef) -> io::Result<()> {
        let instance = self.streams.len() as u64;
        let (dir, uuid) = (self.dir, self.uuid);
        let stream = self.streams.entry(event.origin).or_insert_with(|| Stream::new(dir, event.origin, uuid, instance));
        if self.lost != Some(event.index) {
            return stream.push(event);
        }
        let number = |field| event.get(field).and_then(Value::bits).unwrap_or_default();
        stream.push_lost(event, number("count"), number("since"))
    }

    /// Keeps memory within bounds.
    fn limit(&mut self) -> io::Result<()> {
        if self.streams.values().map(Stream::waiting).sum::<usize>() > WAITING_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.streams.values_mut().try_for_each(Stream::flush)
    }
}
