// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A recorder that was killed: its log, which has no end, and what its rings still hold, made into
//! a whole log.

mod kept;
mod salvage;

pub use salvage::{Salvage, Still};

use crate::file;
use kept::KeptRings;
use klogger_engines::bpf::pins::{self, Left};
use klogger_log::ledger::Ledger;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, Summary};
use klogger_os::Error;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a recorder leaves beside its rings.
#[derive(Serialize, Deserialize)]
pub struct Facts {
    pub log: PathBuf,
    /// CPUs that have a ring: numbers below this.
    pub rings: usize,
    pub preamble: Preamble,
}

/// A recorder of kernel events, killed or not.
pub struct Remnant {
    left: Left,
    pub pid: u32,
    pub alive: bool,
    /// Where it writes, or wrote, its log; `None` if it was killed before it had begun one.
    pub log: Option<PathBuf>,
    /// Bytes that its rings hold.
    pub bytes: u64,
}

/// A log made whole.
pub struct Salvaged {
    pub summary: Summary,
    pub ledger: Ledger,
    /// The log that the recorder had begun.
    pub log: PathBuf,
    /// Events that it had written to it, and those that its rings held.
    pub written: u64,
    pub rescued: u64,
}

/// All recorders that there are.
pub fn list() -> Vec<Remnant> {
    let remnant = |left: Left| {
        let found = facts(&left).ok().and_then(|f| Some((KeptRings::open(&left, &f).ok()?, f)));
        let bytes = found.as_ref().map_or(0, |(rings, _)| rings.bytes());
        Remnant { pid: left.pid, alive: left.alive, log: found.map(|(_, f)| f.log), bytes, left }
    };
    pins::left().into_iter().map(remnant).collect()
}

/// The recorder of that process id.
pub fn find(pid: u32) -> Option<Remnant> {
    list().into_iter().find(|r| r.pid == pid)
}

fn facts(left: &Left) -> Result<Facts, Error> {
    let text = left
        .about()
        .ok_or_else(|| Error::new("the recorder was killed before it had begun its log"))?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::new(format!("what the recorder left cannot be read: {e}")))
}

/// Writes the whole log to `output`, and frees the rings.
pub fn save(remnant: Remnant, output: &Path, compression: Compression) -> Result<Salvaged, Error> {
    let left = remnant.left;
    if left.alive {
        return Err(Error::new(format!("process {} still records", left.pid))
            .help(format!("end its recording in order: kill -INT {}", left.pid)));
    }
    let facts = match facts(&left) {
        Ok(facts) => facts,
        Err(e) => {
            left.remove();
            return Err(
                e.help("there is nothing to save; what it had in the kernel has been freed")
            );
        }
    };
    let rings = KeptRings::open(&left, &facts)?;
    let old = Reader::open(&facts.log).ok().filter(|old| is_of(old, &facts.preamble));
    if old.as_ref().is_some_and(Reader::is_complete) {
        left.remove();
        return Err(Error::new(format!(
            "{} is whole: the recorder was killed after it",
            facts.log.display()
        ))
        .help("there is nothing to save; what it had in the kernel has been freed"));
    }
    let (log, _) = file::open(output, file::PRIVATE)?;
    let mut salvage = Salvage::new(&facts, old.as_ref(), log, compression, Still::here())
        .map_err(|e| file::cannot_write(output, e))?;
    let written = salvage.events();
    salvage.rings(&rings).map_err(|e| file::cannot_write(output, e))?;
    let rescued = salvage.events() - written;
    let (summary, ledger) =
        salvage.finish_here(&rings, &left).map_err(|e| file::cannot_write(output, e))?;
    left.remove();
    Ok(Salvaged { summary, ledger, log: facts.log, written, rescued })
}

/// Whether a log is this recording's.
pub fn is_of(log: &Reader, preamble: &Preamble) -> bool {
    let made_by = |p: &Preamble| (p.clock.start_ns, p.recorder.pid);
    made_by(log.preamble()) == made_by(preamble)
}
