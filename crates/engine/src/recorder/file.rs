// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The log's file: made without harm to what was there, and taken back if there is nothing to record.

use crate::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Makes the log file; true if one that existed is kept as NAME.old.
pub fn open(path: &Path) -> Result<(File, bool), Error> {
    let before = path.metadata();
    // Opening a pipe would wait for a reader, and a log that cannot be cut could not survive a full disk.
    if before.as_ref().is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_socket()) {
        return Err(cannot_write(path, io::Error::other("it is a pipe or a socket, and a log must be a file")));
    }
    let keep_old = before.is_ok_and(|m| m.is_file() && m.len() > 0);
    if keep_old {
        std::fs::rename(path, old_name(path)).map_err(|e| cannot_write(path, e))?;
    }
    Ok((File::create(path).map_err(|e| cannot_write(path, e))?, keep_old))
}

/// After a recording that did not come about: as if open() had never been called. A device stays, of course.
pub fn discard(path: &Path, kept_old: bool) {
    if path.metadata().is_ok_and(|m| m.is_file()) {
        let _ = match kept_old {
            true => std::fs::rename(old_name(path), path),
            false => std::fs::remove_file(path),
        };
    }
}

fn old_name(path: &Path) -> OsString {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old
}

/// The error of a log that cannot be written.
pub fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(format!("cannot write {}: {error}", path.display())).help("choose another file with -o FILE")
}
