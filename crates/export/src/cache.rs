// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory of tables: made beside the log, and reused as long as it matches the log.

use crate::VERSION;
use crate::about;
use crate::exporter::{DirectoryExporter, Format, Report};
use crate::output::{Error, Export, Place, beside, is_empty};
use crate::table::EventTable;
use crate::writing::Writing;
use klogger_log::damage::Damage;
use klogger_log::decode::Decoder;
use klogger_log::event::EventRef;
use klogger_log::ledger::{Entry, Key};
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_os::outputs::{Folder, Old};
use klogger_schema::layout::EventLayout;
use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::thread;
use std::time::UNIX_EPOCH;

/// Identifies the log, in its current state, to which a directory belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    export: u32,
    klogger: String,
    bytes: u64,
    modified_ns: u64,
    /// Checksum of the log's preamble.
    preamble_crc: u32,
    /// A recorder was writing it. If that is killed, the ledger changes and the log does not.
    #[serde(default)]
    being_written: bool,
}

/// `meta.json`. Times are full ns of the log's clock.
#[derive(Serialize)]
struct Meta<'a> {
    stamp: &'a Stamp,
    /// The log's file name.
    log: String,
    /// Origin of the tables' times.
    start_ns: u64,
    end_ns: u64,
    complete: bool,
    rows: u64,
    preamble: &'a klogger_log::preamble::Preamble,
    damage: &'a [Damage],
}

#[derive(Deserialize)]
struct MetaStamp {
    stamp: Stamp,
}

/// A directory of tables.
pub struct Parquet;

impl Format for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn description(&self) -> &'static str {
        "A table for each event, for SQL and data frames"
    }

    fn suffix(&self) -> &'static str {
        "-parquet"
    }
}

impl DirectoryExporter for Parquet {
    /// Keeps tables that match the log, and makes outdated ones again.
    fn export(
        &self,
        log: &Path,
        reader: &Reader,
        dir: Option<&Path>,
        _force: bool,
        report: Report,
    ) -> Result<Export, Error> {
        export(log, reader, dir, report)
    }
}

/// Makes the tables of `log` in `dir` (`LOG-parquet` beside the log if `None`), unless they exist
/// and match.
///
/// `progress` is called with the number of events that have been read, and of all (if known).
pub fn export(
    log: &Path,
    reader: &Reader,
    dir: Option<&Path>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Export, Error> {
    let dir = dir.map_or_else(|| beside(log, Parquet.suffix()), Path::to_path_buf);
    let stamp = stamp(log, reader).map_err(Error::Log)?;
    let may = |there: &Folder| match old_stamp(there) {
        Some(old) => Ok(old != stamp),
        None if is_empty(there) => Ok(true),
        None => Err(Error::Occupied(dir.clone())),
    };
    let place = Place::find(&dir)?;
    let made = place.make(may, |folder| fill(folder, &dir, log, reader, &stamp, progress))?;
    let fresh = made.is_none();
    let (rows, damage) = made.unwrap_or_default();
    Ok(Export { dir, fresh, rows, damage })
}

fn stamp(log: &Path, reader: &Reader) -> io::Result<Stamp> {
    let files = reader.segments().iter().map(|segment| log.join(&segment.file));
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    // One that was removed just now changes the folder.
    let latest = files.filter_map(|file| modified(&file).ok()).max();
    let latest = latest.into_iter().chain([modified(log)?]).max().unwrap_or(UNIX_EPOCH);
    let modified = latest.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Stamp {
        export: VERSION,
        klogger: env!("CARGO_PKG_VERSION").into(),
        bytes: reader.length(),
        modified_ns: modified.as_nanos() as u64,
        preamble_crc: reader.preamble_crc(),
        being_written: reader.is_being_written(),
    })
}

/// Bytes of `meta.json`, at most.
const META_MAX: u64 = 64 << 20;

fn old_stamp(there: &Folder) -> Option<Stamp> {
    let file = there.read("meta.json".as_ref()).ok()?;
    let meta: MetaStamp = serde_json::from_reader(BufReader::new(file.take(META_MAX))).ok()?;
    Some(meta.stamp)
}

/// Events between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// Writes all files; returns the number of events, and what was damaged.
fn fill(
    dir: &Folder,
    shown: &Path,
    log: &Path,
    reader: &Reader,
    stamp: &Stamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, Vec<Damage>), Error> {
    let failed = |e| Error::Table(shown.to_path_buf(), e);
    let preamble = reader.preamble();
    let (start_ns, end_ns) = reader.span();
    let last_ns = reader.times().map_or(start_ns, |t| t.1);
    let events = preamble.events.iter().zip(preamble.user_events());
    let tables = events.map(|(e, user)| {
        EventTable::create(dir, &file_stem(&e.name), e, user, about_log(preamble, e, start_ns))
    });
    let tables = tables.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let (mut tables, files): (Vec<_>, Vec<_>) = tables.into_iter().unzip();
    let decoder = Decoder::new(reader);
    let mut processes = Processes::with_history(reader);
    let mut merge = reader.merge(&Selection::default());
    let total = reader.totals().0;
    let mut rows = 0;
    let mut read = |event: &EventRef| {
        processes.apply(event);
        rows += 1;
        if rows % REPORT_EVERY == 0 {
            progress(rows, total);
        }
    };
    thread::scope(|scope| {
        let writing = Writing::start(scope, files)?;
        let symbols = decoder.symbols();
        while let Some(event) = merge.next() {
            read(&event);
            let table = &mut tables[event.index];
            if table.push(&event, start_ns, symbols) && !writing.send(event.index, table.take()?) {
                break;
            }
        }
        for (index, table) in tables.iter_mut().enumerate() {
            writing.send(index, table.take()?);
        }
        writing.finish()
    })
    .map_err(failed)?;
    let logged: Vec<u64> = tables.iter().map(|t| t.rows).collect();
    let early = before_start(&preamble.events, &tables, start_ns);
    let mut later = merge.damage().to_vec();
    later.extend(reader.check_rest());
    let mut ledger = reader.ledger(&later);
    ledger.entries.extend(early);
    about::write_processes(
        dir,
        &processes.into_rows(last_ns.max(end_ns).saturating_add(1)),
        start_ns,
    )
    .map_err(failed)?;
    about::write_ledger(dir, &ledger, start_ns).map_err(failed)?;
    about::write_events(dir, preamble, &logged, &ledger).map_err(failed)?;
    about::write_decodings(dir, preamble).map_err(failed)?;
    about::write_parameters(dir, preamble).map_err(failed)?;
    about::write_stacks(dir, decoder.stacks()).map_err(failed)?;
    about::write_symbols(dir, decoder.symbols()).map_err(failed)?;
    about::write_variables(dir, decoder.data(), start_ns).map_err(failed)?;
    let damage: Vec<Damage> = reader.damage().iter().chain(&later).cloned().collect();
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let complete = reader.is_complete();
    let meta =
        Meta { stamp, log: name, start_ns, end_ns, complete, rows, preamble, damage: &damage };
    let json =
        serde_json::to_vec(&meta).map_err(|e| failed(ParquetError::External(Box::new(e))))?;
    dir.write("meta.json".as_ref(), 0o666, Old::Refuse, &json)
        .map_err(|e| Error::Unwritable(shown.to_path_buf(), e))?;
    Ok((rows, damage))
}

/// What the ledger says of events whose clock was behind.
fn before_start(events: &[EventLayout], tables: &[EventTable], start_ns: u64) -> Vec<Entry> {
    let entry = |(event, table): (&EventLayout, &EventTable)| {
        let entry = Entry::reading(Key::BeforeStart).event(&event.name).count(table.early);
        (table.early > 0).then(|| entry.between(start_ns, start_ns))
    };
    events.iter().zip(tables).filter_map(entry).collect()
}

/// Metadata of a table: what it contains, and where it was recorded.
fn about_log(preamble: &Preamble, event: &EventLayout, start_ns: u64) -> BTreeMap<String, String> {
    let (host, clock) = (&preamble.host, &preamble.clock);
    let text = preamble
        .schemas
        .iter()
        .find(|s| s.name == event.schema)
        .map(|s| crc32c::crc32c(s.text.as_bytes()));
    let known = [
        ("event", event.name.clone()),
        ("doc", event.doc.clone().unwrap_or_default()),
        ("schema", event.schema.clone()),
        ("schema_crc32c", text.map_or(String::new(), |crc| format!("{crc:08x}"))),
        ("klogger", preamble.klogger.clone()),
        ("host", host.name.clone()),
        ("kernel", host.kernel.clone()),
        ("machine", host.machine.clone()),
        ("clock", clock.name.clone()),
        ("clock_source", clock.source.clone()),
        ("start_ns", start_ns.to_string()),
        ("start_realtime_ns", clock.start_realtime_ns.to_string()),
    ];
    let known = known.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, text)| (format!("klogger.{name}"), text)).collect()
}

/// The file name of an event; the names of the tables about the log are reserved.
fn file_stem(event: &str) -> String {
    match event {
        "process" | "ledger" | "event" | "decoding" | "stack" | "symbol" | "variable"
        | "parameter" => format!("{event}_"),
        _ => event.into(),
    }
}
