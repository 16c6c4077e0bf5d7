// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `--to ctf`, `--to ctf2` and `--to lttng`: a trace in the Common Trace Format, for babeltrace2,
//! Trace Compass and others.
//!
//! Both versions have the same files of events ([`stream`]), and a file `metadata` that describes
//! them: in a language of its own ([`tsdl`]) or as JSON ([`json`]). With the names of LTTng's
//! events it is version 1.8; see [`lttng`].

mod json;
mod lttng;
mod metadata;
mod stream;
mod tsdl;
mod types;

use crate::exporter::{DirectoryExporter, Format, Report};
use crate::output::{Error, Export};
use crate::trace;
use klogger_log::builtin::Builtin;
use klogger_log::damage::Damage;
use klogger_log::event::{EventRef, Value};
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use klogger_os::outputs::{Folder, Old};
use metadata::Metadata;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use stream::{Class, Stream};

/// Bytes that are buffered in all streams at most. There may be streams of thousands of threads.
const WAITING_MAX: usize = 64 << 20;
/// Events between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.8
    One,
    /// 2
    Two,
    /// 1.8, with the events of LTTng's kernel tracer.
    Lttng,
}

impl Format for Version {
    fn name(&self) -> &'static str {
        match self {
            Version::One => "ctf",
            Version::Two => "ctf2",
            Version::Lttng => "lttng",
        }
    }

    fn description(&self) -> &'static str {
        match self {
            Version::One => {
                "A trace in the Common Trace Format 1.8, for babeltrace2 and Trace Compass"
            }
            Version::Two => "A trace in the Common Trace Format 2",
            Version::Lttng => {
                "CTF with the events of LTTng's kernel tracer, for the LTTng analyses and Trace \
                 Compass"
            }
        }
    }

    fn suffix(&self) -> &'static str {
        match self {
            Version::One => "-ctf",
            Version::Two => "-ctf2",
            Version::Lttng => "-lttng",
        }
    }
}

impl DirectoryExporter for Version {
    fn export(
        &self,
        log: &Path,
        reader: &Reader,
        dir: Option<&Path>,
        force: bool,
        report: Report,
    ) -> Result<Export, Error> {
        let write = |dir: &Folder| write(reader, dir, *self, report);
        trace::export(log, reader, dir, self.suffix(), force, write)
    }
}

/// Writes the whole log into `dir`, an empty directory; returns the number of events, and the
/// damage found in the log.
fn write(
    reader: &Reader,
    dir: &Folder,
    version: Version,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<(u64, Vec<Damage>)> {
    if version == Version::Lttng {
        return lttng::write(reader, dir, progress);
    }
    let mut streams = Streams::new(reader, dir);
    let (done, damage) = each(reader, &mut streams, progress, |event, streams| {
        streams.push(event, event.layout.id)
    })?;
    streams.flush()?;
    let metadata = Metadata::new(reader, &reader.ledger(&damage), streams.classes());
    let text = match version {
        Version::One | Version::Lttng => tsdl::text(&metadata),
        Version::Two => json::text(&metadata),
    };
    dir.write("metadata".as_ref(), 0o666, Old::Refuse, text.as_bytes())?;
    Ok((done, damage))
}

/// Calls `push` with each event of the log.
fn each(
    reader: &Reader,
    streams: &mut Streams,
    progress: &mut dyn FnMut(u64, u64),
    mut push: impl FnMut(&EventRef, &mut Streams) -> io::Result<()>,
) -> io::Result<(u64, Vec<Damage>)> {
    let mut merge = reader.merge(&Selection::default());
    let (mut done, total) = (0, reader.totals().0);
    while let Some(event) = merge.next() {
        push(&event, streams)?;
        done += 1;
        if done % REPORT_EVERY == 0 {
            progress(done, total);
            streams.limit()?;
        }
    }
    let mut damage = merge.damage().to_vec();
    damage.extend(reader.check_rest());
    Ok((done, damage))
}

/// The event with the number of lost events.
fn lost_event(reader: &Reader) -> Option<usize> {
    reader.preamble().events.iter().position(|e| Builtin::of(e) == Some(Builtin::Lost))
}

struct Streams<'d> {
    streams: BTreeMap<Origin, Stream<'d>>,
    dir: &'d Folder,
    uuid: [u8; 16],
    lost: Option<usize>,
    /// When all streams begin, if not with their first events.
    begin_ns: Option<u64>,
}

impl<'d> Streams<'d> {
    fn new(reader: &Reader, dir: &'d Folder) -> Streams<'d> {
        let (uuid, lost) = (metadata::uuid(reader), lost_event(reader));
        Streams { streams: BTreeMap::new(), dir, uuid, lost, begin_ns: None }
    }

    fn of(&mut self, origin: Origin) -> &mut Stream<'d> {
        let (dir, uuid, instance, begin_ns) =
            (self.dir, self.uuid, self.streams.len() as u64, self.begin_ns);
        self.streams
            .entry(origin)
            .or_insert_with(|| Stream::new(dir, origin, uuid, instance, begin_ns))
    }

    /// Writes an event as logged, under the number `id`.
    fn push(&mut self, event: &EventRef, id: u16) -> io::Result<()> {
        let lost = self.lost == Some(event.index);
        let stream = self.of(event.origin);
        if !lost {
            return stream.push(event, id);
        }
        let number = |field| event.get(field).and_then(Value::bits).unwrap_or_default();
        stream.push_lost(event, id, number("count"), number("since"))
    }

    fn classes(&self) -> BTreeSet<Class> {
        self.streams.keys().map(|origin| Class::of(*origin)).collect()
    }

    /// Limits the buffered memory.
    fn limit(&mut self) -> io::Result<()> {
        if self.streams.values().map(Stream::waiting).sum::<usize>() > WAITING_MAX {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn close(&mut self, end_ns: u64) -> io::Result<()> {
        self.streams.values_mut().try_for_each(|stream| stream.close(end_ns))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.streams.values_mut().try_for_each(Stream::flush)
    }
}
