// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory of tables: made beside the log, reused as long as it matches the log, and never
//! visible half-written.

use crate::VERSION;
use crate::about;
use crate::exporter::{DirectoryExporter, Format, Report};
use crate::table::EventTable;
use klogger_log::damage::Damage;
use klogger_log::decode::Decoder;
use klogger_log::merge::Selection;
use klogger_log::preamble::Preamble;
use klogger_log::process::Processes;
use klogger_log::reader::Reader;
use klogger_schema::layout::EventLayout;
use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The result of an export.
#[derive(Clone, Debug)]
pub struct Export {
    pub dir: PathBuf,
    /// The tables existed already, and match the log.
    pub fresh: bool,
    pub rows: u64,
    /// Damage of the log that was found; empty if the tables existed already.
    pub damage: Vec<Damage>,
}

#[derive(Debug)]
pub enum Error {
    /// The directory cannot be written.
    Unwritable(PathBuf, io::Error),
    /// The directory exists and was not made by klogger.
    Occupied(PathBuf),
    /// The directory has an earlier export.
    Exists(PathBuf),
    /// A trace could not be written.
    Unwritten(PathBuf, io::Error),
    /// A table could not be written.
    Table(PathBuf, ParquetError),
    /// The log could not be read.
    Log(io::Error),
}

impl Error {
    /// What the user can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Error::Unwritable(..) => "name a writable directory with -o DIR",
            Error::Occupied(_) => "name a directory that does not exist yet with -o DIR",
            Error::Exists(_) => "replace it with --force, or name another directory with -o DIR",
            Error::Table(..) | Error::Unwritten(..) => {
                "free some space, or name a directory on another file system with -o DIR"
            }
            Error::Log(_) => "check that the log still exists",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unwritable(path, error) | Error::Unwritten(path, error) => {
                write!(f, "cannot write {}: {error}", path.display())
            }
            Error::Exists(path) => write!(f, "{} exists", path.display()),
            Error::Occupied(path) => {
                write!(f, "{} exists, and was not made by klogger export", path.display())
            }
            Error::Table(path, error) => {
                write!(f, "cannot write a table in {}: {error}", path.display())
            }
            Error::Log(error) => write!(f, "cannot read the log: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Identifies the log, in its current state, to which a directory belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    export: u32,
    klogger: String,
    bytes: u64,
    modified_ns: u64,
    /// Checksum of the log's preamble.
    preamble_crc: u32,
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

    fn about(&self) -> &'static str {
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
    match old_stamp(&dir) {
        Some(old) if old == stamp => {
            return Ok(Export { dir, fresh: true, rows: 0, damage: Vec::new() });
        }
        Some(_) => {}
        None if is_empty(&dir) => {}
        None => return Err(Error::Occupied(dir)),
    }
    let temporary = Temporary::create(&dir)?;
    let (rows, damage) = fill(&temporary.path, log, reader, &stamp, progress)?;
    temporary.replace(&dir)?;
    Ok(Export { dir, fresh: false, rows, damage })
}

/// `x.klog-parquet` for `x.klog` and `-parquet`.
pub fn beside(log: &Path, suffix: &str) -> PathBuf {
    let mut name = log.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    log.with_file_name(name)
}

fn stamp(log: &Path, reader: &Reader) -> io::Result<Stamp> {
    let modified = fs::metadata(log)?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Stamp {
        export: VERSION,
        klogger: env!("CARGO_PKG_VERSION").into(),
        bytes: reader.length(),
        modified_ns: modified.as_nanos() as u64,
        preamble_crc: reader.preamble_crc(),
    })
}

fn old_stamp(dir: &Path) -> Option<Stamp> {
    let meta: MetaStamp = serde_json::from_slice(&fs::read(dir.join("meta.json")).ok()?).ok()?;
    Some(meta.stamp)
}

/// Whether `dir` can be replaced without loss.
pub fn is_empty(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        // A file of that name counts; a path that cannot be reached fails when it is created.
        Err(_) => fs::symlink_metadata(dir).is_err(),
    }
}

/// A directory that is removed when dropped, unless it has replaced the target.
pub struct Temporary {
    pub path: PathBuf,
}

impl Temporary {
    /// Creates it beside `dir`, so that it can be renamed to it.
    pub fn create(dir: &Path) -> Result<Temporary, Error> {
        let unwritable = |e| Error::Unwritable(dir.to_path_buf(), e);
        let parent = match dir.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            Some(_) | None => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(unwritable)?;
        let name = dir.file_name().ok_or_else(|| unwritable(ErrorKind::InvalidFilename.into()))?;
        let prefix = format!(".{}.tmp-", name.to_string_lossy());
        remove_orphans(parent, &prefix);
        let path = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir_all(&path).map_err(unwritable)?;
        Ok(Temporary { path })
    }

    pub fn replace(self, dir: &Path) -> Result<(), Error> {
        let unwritable = |e| Error::Unwritable(dir.to_path_buf(), e);
        let old = self.path.with_extension("old");
        let had_old = fs::rename(dir, &old).is_ok();
        let renamed = fs::rename(&self.path, dir);
        if had_old {
            match &renamed {
                Ok(()) => fs::remove_dir_all(&old).map_err(unwritable)?,
                Err(_) => fs::rename(&old, dir).map_err(unwritable)?,
            }
        }
        renamed.map_err(unwritable)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After `replace` it no longer exists under this name.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what a killed export left behind.
fn remove_orphans(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|n| n.strip_prefix(prefix))
            .and_then(|rest| rest.split('.').next());
        let gone = pid.is_some_and(|pid| {
            pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()
        });
        if gone && Path::new("/proc/self").exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Events between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// Writes all files; returns the number of events, and what was damaged.
fn fill(
    dir: &Path,
    log: &Path,
    reader: &Reader,
    stamp: &Stamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, Vec<Damage>), Error> {
    let failed = |e| Error::Table(dir.to_path_buf(), e);
    let preamble = reader.preamble();
    let (start_ns, end_ns) = reader.span();
    let last_ns = reader.times().map_or(start_ns, |t| t.1);
    let path = |name: &str| dir.join(format!("{}.parquet", file_stem(name)));
    let events = preamble.events.iter().zip(preamble.user_events());
    let tables = events.map(|(e, user)| {
        EventTable::create(&path(&e.name), e, user, about_log(preamble, e, start_ns))
    });
    let mut tables = tables.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let decoder = Decoder::new(reader);
    let mut processes = Processes::with_history(reader);
    let mut merge = reader.merge(&Selection::default());
    let total = reader.totals().0;
    let mut rows = 0;
    while let Some(event) = merge.next() {
        processes.see(&event);
        tables[event.index].push(&event, start_ns, decoder.symbols()).map_err(failed)?;
        rows += 1;
        if rows % REPORT_EVERY == 0 {
            progress(rows, total);
        }
    }
    let logged: Vec<u64> = tables.iter().map(|t| t.rows).collect();
    for table in tables {
        table.finish().map_err(failed)?;
    }
    let mut later = merge.damage().to_vec();
    later.extend(reader.check_rest());
    let ledger = reader.ledger(&later);
    about::write_processes(
        dir,
        &processes.into_rows(last_ns.max(end_ns).saturating_add(1)),
        start_ns,
    )
    .map_err(failed)?;
    about::write_ledger(dir, &ledger, start_ns).map_err(failed)?;
    about::write_events(dir, preamble, &logged, &ledger).map_err(failed)?;
    about::write_decodings(dir, preamble).map_err(failed)?;
    about::write_stacks(dir, decoder.stacks()).map_err(failed)?;
    let damage: Vec<Damage> = reader.damage().iter().chain(&later).cloned().collect();
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let complete = reader.is_complete();
    let meta =
        Meta { stamp, log: name, start_ns, end_ns, complete, rows, preamble, damage: &damage };
    let json =
        serde_json::to_vec(&meta).map_err(|e| failed(ParquetError::External(Box::new(e))))?;
    fs::write(dir.join("meta.json"), json).map_err(|e| Error::Unwritable(dir.to_path_buf(), e))?;
    Ok((rows, damage))
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
        "process" | "ledger" | "event" | "decoding" => format!("{event}_"),
        _ => event.into(),
    }
}
