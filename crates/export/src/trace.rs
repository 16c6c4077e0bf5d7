// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The directory of a CTF trace: it is complete or does not exist, and never replaces anything
//! else.

use crate::cache::{Error, Export, Temporary, is_empty};
use crate::ctf::{self, Version};
use crate::exporter::Format;
use klogger_log::reader::Reader;
use std::fs;
use std::io;
use std::path::Path;

/// Writes `log` as a CTF trace to `dir` (`LOG-ctf` or `LOG-ctf2` beside the log if `None`). An
/// existing trace is replaced only with `force`; other contents are never replaced.
///
/// `progress` is called with the number of events that have been read, and of all (if known).
pub fn export(
    log: &Path,
    reader: &Reader,
    dir: Option<&Path>,
    version: Version,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Export, Error> {
    let dir = dir.map_or_else(|| crate::cache::beside(log, version.suffix()), Path::to_path_buf);
    if !is_empty(&dir) {
        match is_trace(&dir) {
            true if force => {}
            true => return Err(Error::Exists(dir)),
            false => return Err(Error::Occupied(dir)),
        }
    }
    let temporary = Temporary::create(&dir)?;
    let failed = |e: io::Error| Error::Unwritten(dir.clone(), e);
    let (rows, later) = ctf::write(reader, &temporary.path, version, progress).map_err(failed)?;
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
