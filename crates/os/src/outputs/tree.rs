// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is in a folder, and its removal.

use super::Folder;
use rustix::fs::{AtFlags, Dir, FileType, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The names in a folder; those of folders are followed by true.
fn entries(folder: &File) -> io::Result<Vec<(OsString, bool)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            found.push((name.to_owned(), entry.file_type() == FileType::Directory));
        }
    }
    Ok(found)
}

pub fn names(folder: &File) -> io::Result<Vec<OsString>> {
    Ok(entries(folder)?.into_iter().map(|(name, _)| name).collect())
}

/// Removes a folder and all that is in it. Links are removed, not followed.
pub fn remove(parent: &Folder, name: &OsStr) -> io::Result<()> {
    empty(&parent.folder(name)?)?;
    Ok(unlinkat(&parent.file, name, AtFlags::REMOVEDIR)?)
}

/// Removes all that is in a folder. Links are removed, not followed.
pub fn empty(folder: &Folder) -> io::Result<()> {
    for (inner, is_folder) in entries(&folder.file)? {
        let removed = match is_folder {
            true => remove(folder, &inner),
            false => folder.remove(&inner),
        };
        match removed {
            // The file system does not say what is a folder.
            Err(e) if !is_folder && e.raw_os_error() == Some(libc::EISDIR) => {
                remove(folder, &inner)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}
