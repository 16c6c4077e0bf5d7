// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory of a CTF trace: it is complete or does not exist, and never replaces anything
//! else.

use crate::output::{Error, Export, Place, beside, is_empty};
use klogger_log::damage::Damage;
use klogger_log::reader::Reader;
use klogger_os::outputs::Folder;
use std::io::{self, Read};
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
    write: impl FnOnce(&Folder) -> io::Result<(u64, Vec<Damage>)>,
) -> Result<Export, Error> {
    let dir = dir.map_or_else(|| beside(log, suffix), Path::to_path_buf);
    let may = |there: &Folder| match (is_empty(there), is_trace(there)) {
        (true, _) => Ok(true),
        (false, true) if force => Ok(true),
        (false, true) => Err(Error::Exists(dir.clone())),
        (false, false) => Err(Error::Occupied(dir.clone())),
    };
    let failed = |e: io::Error| Error::Unwritten(dir.clone(), e);
    let made = Place::find(&dir)?.make(may, |folder| write(folder).map_err(failed))?;
    let (rows, later) = made.unwrap_or_default();
    let damage = reader.damage().iter().chain(&later).cloned().collect();
    Ok(Export { dir, fresh: false, rows, damage })
}

/// Bytes of a description of a trace, at most.
const METADATA_MAX: u64 = 16 << 20;

/// Whether klogger made it: a trace names its tracer or, if that is LTTng's, the program that made
/// it.
fn is_trace(there: &Folder) -> bool {
    let ours = |line: &str| {
        line.contains("\"klogger\"")
            && ["tracer_name", "converted_by"].iter().any(|name| line.contains(name))
    };
    let made = |folder: &Folder| {
        let mut text = Vec::new();
        let file = folder.read("metadata".as_ref());
        file.is_ok_and(|file| file.take(METADATA_MAX).read_to_end(&mut text).is_ok())
            && String::from_utf8_lossy(&text).lines().any(ours)
    };
    made(there) || there.folder("kernel".as_ref()).is_ok_and(|inner| made(&inner))
}
