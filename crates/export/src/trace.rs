// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory of a CTF trace: it is complete or does not exist, and never replaces anything
//! else.

use crate::output::{Error, Export, Temporary, beside, is_empty};
use klogger_log::damage::Damage;
use klogger_log::reader::Reader;
use std::fs;
use std::io;
use std::path::Path;

/// Makes the directory of a CTF trace of `log`: `dir`, or beside the log with `suffix` if `None`.
/// An existing trace is replaced only with `force`; other contents are never replaced.
///
/// `write` fills an empty directory; it returns the number of events, and what was damaged.
pub fn export(
    log: &Path,
    reader: &Reader,
    dir: Option<&Path>,
    suffix: &str,
    force: bool,
    write: impl FnOnce(&Path) -> io::Result<(u64, Vec<Damage>)>,
) -> Result<Export, Error> {
    let dir = dir.map_or_else(|| beside(log, suffix), Path::to_path_buf);
    if !is_empty(&dir) {
        match is_trace(&dir) {
            true if force => {}
            true => return Err(Error::Exists(dir)),
            false => return Err(Error::Occupied(dir)),
        }
    }
    let temporary = Temporary::create(&dir)?;
    let failed = |e: io::Error| Error::Unwritten(dir.clone(), e);
    let (rows, later) = write(&temporary.path).map_err(failed)?;
    temporary.replace(&dir)?;
    let damage = reader.damage().iter().chain(&later).cloned().collect();
    Ok(Export { dir, fresh: false, rows, damage })
}

/// Whether klogger made it: a trace names its tracer or, if that is LTTng's, the program that made
/// it.
fn is_trace(dir: &Path) -> bool {
    let ours = |line: &str| {
        line.contains("\"klogger\"")
            && ["tracer_name", "converted_by"].iter().any(|name| line.contains(name))
    };
    let made = |text: Vec<u8>| String::from_utf8_lossy(&text).lines().any(ours);
    ["metadata", "kernel/metadata"].iter().any(|file| fs::read(dir.join(file)).is_ok_and(made))
}
