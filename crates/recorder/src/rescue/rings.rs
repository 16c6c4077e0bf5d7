// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue of a recording whose recorder was killed: its unfinished log and what its rings still
//! hold are made into a complete log.

pub(super) mod earlier;
mod kept;
mod salvage;

pub use salvage::{Salvage, Still};

use crate::file::{self, Whole};
use crate::rescue::{begun, check_whole};
use earlier::Earlier;
use kept::KeptRings;
use klogger_engines::bpf::pins::{self, Left};
use klogger_log::ledger::Ledger;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, Summary};
use klogger_os::files::cannot_write;
use klogger_os::outputs::Old;
use klogger_os::{Error, missed};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// What is written of programs, and of memory images, unless the user names another file.
pub const OUTPUT: &str = "rescue.klog";

/// What is written of a recorder's log, which is beside it: `x.rescue.klog` for `x.klog`. A log
/// that was to be thrown away has no place.
fn beside(log: &Path) -> PathBuf {
    if log.metadata().is_ok_and(|found| !found.is_file()) {
        return PathBuf::from(OUTPUT);
    }
    let mut name = log.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(OUTPUT);
    log.with_file_name(name)
}

/// The facts that a recorder stores beside its rings.
#[derive(Serialize, Deserialize)]
pub struct Facts {
    pub log: PathBuf,
    /// CPUs that have a ring: numbers below this.
    pub rings: usize,
    pub preamble: Preamble,
}

/// A recorder of kernel events, killed or still running.
pub struct Remnant {
    left: Left,
    pub pid: u32,
    pub alive: bool,
    /// Where it writes, or wrote, its log; `None` if it was killed before the log was begun.
    pub log: Option<PathBuf>,
    /// Bytes of records in its rings.
    pub bytes: u64,
}

/// A completed log.
pub struct Salvaged {
    pub summary: Summary,
    pub ledger: Ledger,
    /// The log that the recorder had begun.
    pub log: PathBuf,
    /// The complete one.
    pub output: PathBuf,
    /// Events in that log, and events from its rings.
    pub written: u64,
    pub rescued: u64,
}

/// All recorders with pinned rings.
pub fn list() -> Vec<Remnant> {
    let remnant = |left: Left| {
        let what = format!("what recorder {} left", left.pid);
        let seen = |e: Error| io::Error::other(e.message);
        let found = missed::noting(&what, facts(&left).map_err(seen)).flatten();
        let found = found.and_then(|f| {
            Some((missed::noting(&what, KeptRings::open(&left, &f).map_err(seen))?, f))
        });
        let bytes = found.as_ref().map_or(0, |(rings, _)| rings.bytes());
        Remnant { pid: left.pid, alive: left.alive, log: found.map(|(_, f)| f.log), bytes, left }
    };
    pins::left().into_iter().map(remnant).collect()
}

/// The recorder of that process id.
pub fn find(pid: u32) -> Option<Remnant> {
    list().into_iter().find(|r| r.pid == pid)
}

/// `None`: the recorder was killed before it had begun its log.
fn facts(left: &Left) -> Result<Option<Facts>, Error> {
    let stays = format!("nothing is removed; 'rm -r {}' gives it up", left.folder().display());
    let text = left.facts().map_err(|e| e.help(&stays))?;
    text.map(|text| read(&text).map_err(|e| e.help(&stays))).transpose()
}

fn read(facts: &[u8]) -> Result<Facts, Error> {
    serde_json::from_slice(facts).map_err(|e| {
        let why = "perhaps it was another version of klogger";
        Error::new(format!("what the recorder left cannot be read ({why}): {e}"))
    })
}

/// Writes the log to `output`, and frees the rings when the disk has it. Of a recording in segments
/// it is the last one. Files that are there get the names NAME.old, NAME.old2 and so on.
pub fn save(
    remnant: Remnant,
    output: Option<&Path>,
    compression: Compression,
) -> Result<Salvaged, Error> {
    let left = remnant.left;
    if left.alive {
        return Err(Error::new(format!("process {} is still recording", left.pid))
            .help(format!("end its recording in order: kill -INT {}", left.pid)));
    }
    let Some(mut facts) = facts(&left)? else {
        left.remove();
        return Err(Error::new("the recorder was killed before it had begun its log")
            .help("there is nothing to save; what it had in the kernel has been freed"));
    };
    let rings = KeptRings::open(&left, &facts)?;
    let (earlier, old) = match Earlier::of(&mut facts, rings.bytes() == 0) {
        Some((earlier, old)) => (Some(earlier), old),
        None => (None, begun(&facts.log).filter(|old| is_of(old, &facts.preamble))),
    };
    // The last segment takes its place among the others.
    let output = match (output, &earlier) {
        (Some(output), _) => output.to_path_buf(),
        (None, Some(_)) => facts.log.clone(),
        (None, None) => beside(&facts.log),
    };
    let output = output.as_path();
    if old.as_ref().is_some_and(Reader::is_complete) {
        left.remove();
        return Err(Error::new(format!(
            "{} is complete: the recorder was killed after it",
            facts.log.display()
        ))
        .help("there is nothing to save; what it had in the kernel has been freed"));
    }
    let cannot = |e| cannot_write(output, e);
    let whole = Whole::begin(output, file::PRIVATE)?;
    let log = whole.file().map_err(cannot)?;
    let mut salvage = Salvage::new(&facts, old.as_ref(), log, compression, Still::here())
        .map(|salvage| salvage.after(earlier))
        .map_err(cannot)?;
    let written = salvage.events();
    salvage.rings(&rings).map_err(cannot)?;
    let rescued = salvage.events() - written;
    let (summary, ledger) = salvage.finish_here(&rings, &left).map_err(cannot)?;
    check_whole(&summary, written + rescued).map_err(cannot)?;
    whole.complete_synced(Old::KeepAll).map_err(cannot)?;
    left.remove();
    let output = output.to_path_buf();
    Ok(Salvaged { summary, ledger, log: facts.log, output, written, rescued })
}

/// Whether a log belongs to this recording.
pub fn is_of(log: &Reader, preamble: &Preamble) -> bool {
    let recording = |p: &Preamble| p.segment.as_ref().map(|segment| segment.recording.clone());
    let made_by = |p: &Preamble| (p.clock.start_ns, p.recorder.pid);
    match (recording(log.preamble()), recording(preamble)) {
        (None, None) => made_by(log.preamble()) == made_by(preamble),
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_another_version_are_an_error() {
        let error = read(br#"{"log": "x.klog", "rings": 1}"#).err().unwrap();
        assert!(error.message.contains("another version"), "{error}");
    }
}
