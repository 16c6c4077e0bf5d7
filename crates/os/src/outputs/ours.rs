// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whose a file is: ours, root's, or somebody else's.

use super::Folder;
use crate::files::{effective_uid, random};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who we are among the owners of files in a folder.
pub struct Us<'a> {
    folder: &'a Folder,
}

impl<'a> Us<'a> {
    pub fn here(folder: &'a Folder) -> Us<'a> {
        Us { folder }
    }

    /// Whether it belongs to us or root.
    pub fn is_owner(&self, found: &Metadata) -> bool {
        is_trusted(found.uid()) || self.mapped().is_some_and(|us| us == found.uid())
    }

    pub fn check(&self, found: &Metadata, path: &Path) -> io::Result<()> {
        match self.is_owner(found) {
            true => Ok(()),
            false => Err(belongs(path, found, "and is neither used nor replaced")),
        }
    }

    /// On some file systems (NFS with root squashed, VFAT, shared folders of guests) what we make
    /// belongs to another user than we are. A file that is made and removed shows to whom.
    fn mapped(&self) -> Option<u32> {
        let name = format!(".klogger-{:016x}", random());
        let made = self.folder.create(name.as_ref(), 0o600).ok()?;
        let owner = made.metadata().ok().map(|found| found.uid());
        let _ = self.folder.remove(name.as_ref());
        owner
    }
}

/// Whether a user is one who may as well change what we do: ourselves, or root.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == effective_uid()
}

/// The error that names the owner of what stands in the way. `rest`: what follows of it.
pub fn belongs(path: &Path, found: &Metadata, rest: &str) -> io::Error {
    let what = match found.file_type() {
        kind if kind.is_symlink() => "link",
        kind if kind.is_dir() => "folder",
        _ => "file",
    };
    let owner = found.uid();
    let path = path.display();
    io::Error::other(format!("the {what} {path} belongs to another user ({owner}), {rest}"))
}
