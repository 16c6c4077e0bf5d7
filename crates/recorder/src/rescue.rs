// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue of recordings that did not end normally: from files of programs, from pinned rings, and
//! from memory images of crashed kernels.

mod killed;
pub mod programs;
pub mod rings;
pub mod vmcore;

pub use killed::killed_recorders;

use klogger_log::reader::Reader;
use klogger_log::writer::Summary;
use klogger_os::{answers, missed};
use std::io;
use std::path::Path;

/// A log that was begun; `None` if it is not there, or cannot be read, which the ledger says. Only
/// a regular file is opened, since a pipe would wait for a writer.
fn begun(path: &Path) -> Option<Reader> {
    let what = format!("the log {}", path.display());
    // Its file system may be what the recorder has waited for.
    missed::noting_unless_gone(&what, answers::check(path))?;
    let found = missed::noting_unless_gone(&what, path.metadata())?;
    let open = || Reader::open(path).map_err(io::Error::other);
    found.is_file().then(|| missed::noting(&what, open())).flatten()
}

/// Fails if events were left out to make room for the ledger: what is rescued must be whole before
/// its source goes.
fn check_whole(summary: &Summary, events: u64) -> io::Result<()> {
    match summary.events < events {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}
