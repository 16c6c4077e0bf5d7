// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue from the rings of programs that have no recorder: those whose recorder was killed, and
//! flight recorders.

use crate::destination::Destination;
use crate::file::{self, Whole};
use crate::host;
use crate::ledger;
use crate::pipeline::{Log, Pipeline};
use crate::rescue::check_whole;
use crate::taps::Consumers;
use crate::writer::Names;
use klogger_engines::request::{FIRST_ID, schema_text};
use klogger_engines::user::{
    Catalogue, Folder, Output, Owner, Places, Program, ProgramFile, Unusable, is_recorder, owner,
    title,
};
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::preamble::{Preamble, Recorder};
use klogger_log::record::TIME_MASK;
use klogger_log::writer::{Compression, Summary, Writer};
use klogger_os::files::cannot_write;
use klogger_os::outputs::Old;
use klogger_os::{self as os, missed};
use klogger_os::{Error, Uninterrupted};
use klogger_ring::clock::{Converter, Source};
use klogger_toolchain::bundled;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The longer the TSC is compared with the clock, the more exact are times of long ago.
const CLOCK_LOOK: Duration = Duration::from_millis(200);
/// Bytes on the way to the log at once, of one thread.
const BUFFER: u64 = 4 << 20;
/// How long to wait for events that were begun before their program was stopped.
const LAST_EVENTS: Duration = Duration::from_millis(5);

/// A program's file.
pub struct Remains {
    file: ProgramFile,
    owner: Owner,
    /// `NAME[PID]`
    pub title: String,
    pub path: PathBuf,
    pub alive: bool,
    /// The process that has claimed it; 0: none.
    armed: u32,
    /// The process that records it now.
    pub recorder: Option<u32>,
    /// Its recorder was killed.
    pub orphan: bool,
    /// It is a flight recorder: it keeps its newest events.
    pub flight: bool,
    pub schemata: Vec<String>,
    /// Number of events that are on.
    pub events_on: usize,
    /// Bytes of records in its rings.
    pub bytes: u64,
}

/// The result of a rescue.
pub struct Saved {
    pub summary: Summary,
    pub ledger: Ledger,
    pub programs: usize,
    /// Files that were removed, because their programs have ended.
    pub removed: usize,
}

/// All programs with a file.
pub fn list() -> Vec<Remains> {
    let folders = Places::from_environment().open().into_iter().map(Arc::new);
    let files = folders
        .flat_map(|folder| folder.names().into_iter().map(move |name| (folder.clone(), name)));
    let found = |(folder, name): (Arc<Folder>, OsString)| match remains(&folder, &name) {
        Ok(found) => Some(found),
        Err(Unusable::Foreign) => None,
        Err(Unusable::Refused(why) | Unusable::Hostile(why)) => {
            let what = format!("a program's file {}", folder.path.join(&name).display());
            missed::note(&what, &io::Error::other(why));
            None
        }
    };
    files.filter_map(found).collect()
}

fn remains(folder: &Arc<Folder>, name: &OsString) -> Result<Remains, Unusable> {
    let file = ProgramFile::open(folder, name)?;
    let owner = owner(file.facts.pid, file.id.inode, &name.to_string_lossy());
    let (pid, alive) = match owner {
        Owner::Process(pid) => (pid, true),
        Owner::Unknown => (file.facts.pid, true),
        Owner::Nobody => (file.facts.pid, false),
    };
    let armed = file.pid_armed();
    Ok(Remains {
        title: if alive { title(pid) } else { format!("[{pid}]") },
        path: folder.path.join(name),
        alive,
        armed,
        recorder: (armed != 0 && is_recorder(armed)).then_some(armed),
        orphan: file.is_orphaned() || file.abandoned().is_some(),
        flight: file.facts.flight,
        schemata: file.facts.schemata.iter().map(|s| s.name.clone()).collect(),
        events_on: file.events_on().count(),
        bytes: file.waiting().unwrap_or(0),
        owner,
        file,
    })
}

/// The programs that the user has chosen: by process ids, or files.
fn find(words: &[String]) -> Result<Vec<Remains>, Error> {
    let mut found = Vec::new();
    let mut all = list();
    for word in words {
        let before = found.len();
        match word.parse::<u32>() {
            Ok(pid) => {
                let (mine, others) = all.into_iter().partition(|r| r.is_of(pid));
                found.extend::<Vec<Remains>>(mine);
                all = others;
            }
            Err(_) => found.push(open(Path::new(word))?),
        }
        if found.len() == before {
            return Err(Error::new(format!("process {word} has no klogger file"))
                .help("'klogger rescue' without arguments lists those there are"));
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Result<Remains, Error> {
    let cannot = |why: &dyn std::fmt::Display| {
        Error::new(format!("cannot use {}: {why}", path.display()))
            .help("'klogger rescue' without arguments lists the files of programs")
    };
    let folder = Folder::open(os::files::folder_of(path), None).map_err(|e| cannot(&e))?;
    let name = path.file_name().ok_or_else(|| cannot(&"it is not a file"))?;
    remains(&Arc::new(folder), &name.to_owned()).map_err(|e| match e {
        Unusable::Foreign => cannot(&"it is not there, or not a program's file"),
        Unusable::Refused(why) | Unusable::Hostile(why) => cannot(&why),
    })
}

impl Remains {
    fn is_of(&self, pid: u32) -> bool {
        match self.owner {
            Owner::Process(owner) => owner == pid,
            Owner::Unknown | Owner::Nobody => self.file.facts.pid == pid,
        }
    }
}

/// Writes the records in the rings of these programs to a log. When the disk has it, frees them,
/// unless `keep`: removes the files of programs that have ended, and empties the rings of others.
/// Until then, the rings are only copied.
pub fn save(
    words: &[String],
    output: &Path,
    compression: Compression,
    keep: bool,
    command_line: Vec<String>,
) -> Result<Saved, Error> {
    let found = find(words)?;
    if let Some((taken, recorder)) = found.iter().find_map(|r| Some((r, r.recorder?))) {
        return Err(Error::new(format!("{} is being recorded by process {recorder}", taken.title))
            .help(format!("end that recording: kill -INT {recorder}")));
    }
    let builtin = bundled::builtin()?;
    let layouts = builtin.layouts(FIRST_ID);
    let start = host::clock();
    let buffer_size = found.iter().map(|r| r.file.facts.ring_size as u64).max().unwrap_or(0);
    let preamble = Preamble {
        klogger: env!("CARGO_PKG_VERSION").into(),
        engine: "user".into(),
        host: host::host()?,
        clock: start,
        command_line,
        scope: "processes".into(),
        recorder: Recorder { pid: std::process::id(), buffer_size, ..Recorder::default() },
        schemas: vec![schema_text(&builtin.schema, false)],
        events: layouts.clone(),
        decodings: builtin.schema.decodings.clone(),
        ..Preamble::default()
    };
    let start_ns = preamble.clock.start_ns;
    let whole = Whole::begin(output, file::PRIVATE)?;
    let log = whole.file().map_err(|e| cannot_write(output, e))?;
    let mut pipeline = Pipeline::new(&layouts, BUFFER)?;
    pipeline.write(Log {
        writer: Writer::new(Destination::File(log), &preamble, compression)
            .map_err(|e| cannot_write(output, e))?,
        start_ns,
        seams: None,
        programs: true,
        consumers: Consumers::default(),
    });
    let catalogue = Catalogue::new([(&builtin, false)], true, &[]);
    let mut rescue =
        Rescue { out: Output::new(pipeline.outlet(), true), catalogue, copied: Vec::new() };
    thread::sleep(CLOCK_LOOK);
    found.into_iter().for_each(|r| rescue.program(r));
    let (mut saved, copies) = rescue.finish(pipeline, output, start_ns)?;
    whole.complete_synced(Old::KeepAll).map_err(|e| cannot_write(output, e))?;
    if !keep {
        saved.removed = copies.into_iter().map(Copied::free).filter(|removed| *removed).count();
    }
    Ok(saved)
}

struct Rescue {
    out: Output,
    catalogue: Catalogue,
    copied: Vec<Copied>,
}

/// A program of which all is in the log.
struct Copied {
    /// Read from a copy.
    program: Program,
    original: Original,
}

impl Copied {
    /// Frees what the log has; returns whether the file was removed.
    fn free(self) -> bool {
        if !self.original.alive {
            self.original.file.remove();
            return true;
        }
        // A file that cannot be read any more was cut off: it holds nothing.
        let _ = self.program.free_in(&self.original.file);
        false
    }
}

/// The file of a program, which is stopped while its rings are copied.
struct Original {
    file: ProgramFile,
    alive: bool,
    /// The events of a flight recorder that are turned on again.
    was_on: Vec<u16>,
}

impl Original {
    /// Keeps other recorders away, and turns off the events of a program that runs: rings in
    /// overwrite mode can be read only while no thread writes. `armed`: the recorder that it had
    /// when it was found to have none that lives; another one may have come since.
    fn stop(file: ProgramFile, alive: bool, armed: u32) -> Result<Original, String> {
        let was_on = if file.facts.flight { file.events_on().collect() } else { Vec::new() };
        if alive {
            let taken = |recorder| format!("it is being recorded by process {recorder}");
            file.claim(armed, std::process::id()).map_err(taken)?;
            file.silence();
            thread::sleep(LAST_EVENTS);
        }
        Ok(Original { file, alive, was_on })
    }

    fn copy(&self) -> Result<ProgramFile, String> {
        self.file.copy().map_err(|e| format!("no memory for it: {e}"))
    }

    /// Lets a flight recorder go on: its rings need no space freed. While it is claimed, its new
    /// threads would get no rings.
    fn resume(&mut self) {
        if self.alive && self.file.facts.flight {
            self.file.let_go();
            self.was_on.drain(..).for_each(|id| self.file.set_on(id, true));
        }
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        match self.file.facts.flight {
            true => self.resume(),
            false if self.alive => self.file.let_go(),
            false => {}
        }
    }
}

impl Rescue {
    fn program(&mut self, remains: Remains) {
        let Remains { file, owner, title, alive, armed, .. } = remains;
        let abandoned = file.abandoned();
        // An end in between would leave a flight recorder's events off.
        let _uninterrupted = Uninterrupted::begin();
        let opened = Original::stop(file, alive, armed).and_then(|original| {
            let copy = original.copy()?;
            let program = Program::new(copy, owner, true, &mut self.catalogue, &mut self.out)
                .map_err(|refused| refused.why.unwrap_or_default())?;
            Ok(Copied { program, original })
        });
        let Copied { mut program, mut original } = match opened {
            Ok(copied) => copied,
            Err(why) => return self.out.complaints.say(Key::UserRefused, &title, &why),
        };
        if alive {
            self.out.tell_of(program.pid, program.pid);
        }
        if program.drain(&mut self.out, true).is_err() || program.file.is_broken() {
            self.out.complaints.say(Key::UserHostile, &title, "its file has been cut off");
            return;
        }
        program.account(&mut self.out, &self.catalogue);
        original.resume();
        if let Some(time) = abandoned {
            self.tell_abandoned(&program, &title, time);
        }
        self.copied.push(Copied { program, original });
    }

    /// `time`: when the program turned its events off, by its own clock.
    fn tell_abandoned(&mut self, program: &Program, title: &str, time: u64) {
        let from =
            Converter::new(&mut self.out.clock, program.file.facts.clock).ns(time & TIME_MASK);
        let why = "its recorder was killed; when a ring was full, the program turned all of its \
                   events off";
        let entry = Entry::new(Key::EventsDisabled).between(from, os::monotonic_ns());
        self.out.complaints.add(Key::EventsDisabled, entry.detail(&format!("{title}: {why}")));
    }

    /// Ends the log; returns the programs of which it has all.
    fn finish(
        self,
        pipeline: Pipeline,
        output: &Path,
        start_ns: u64,
    ) -> Result<(Saved, Vec<Copied>), Error> {
        let Rescue { mut out, copied, .. } = self;
        out.clock.look();
        out.clock.extend_error(out.earliest_ns);
        let tsc = copied.iter().any(|c| c.program.file.facts.clock == Source::Tsc);
        let source = if tsc { Source::Tsc } else { Source::Monotonic };
        let user_clock = Some(out.clock.event_clock(source));
        let mut entries = out.complaints.finish((start_ns, os::monotonic_ns()));
        entries.extend(ledger::missed());
        // The writer thread ends when all senders are dropped.
        drop(out.to_writer);
        let (_, mut writer) = pipeline.stop();
        let ledger = Ledger { entries, user_clock, ..Ledger::default() };
        if let Some(e) = writer.failure() {
            return Err(cannot_write(output, e));
        }
        let events = writer.settle().map_err(|e| cannot_write(output, e))?;
        let summary = writer
            .finish(&Names::default(), &ledger, os::monotonic_ns())
            .and_then(|summary| check_whole(&summary, events + 1).map(|()| summary))
            .map_err(|e| cannot_write(output, e))?;
        Ok((Saved { summary, ledger, programs: copied.len(), removed: 0 }, copied))
    }
}

#[cfg(test)]
mod tests;
