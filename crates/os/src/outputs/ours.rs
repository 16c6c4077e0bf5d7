// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whose a file is: ours, root's, or somebody else's.

use super::Folder;
use crate::files::{effective_gid, effective_uid, random};
use std::cell::OnceCell;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub const STICKY: u32 = 0o1000;

/// Who we are among the owners of files in a folder.
pub struct Us<'a> {
    folder: &'a Folder,
    mapped: OnceCell<Option<u32>>,
}

impl<'a> Us<'a> {
    pub fn here(folder: &'a Folder) -> Us<'a> {
        Us { folder, mapped: OnceCell::new() }
    }

    /// Whether it belongs to us, to root, or to who has become root by sudo.
    pub fn is_owner(&self, found: &Metadata) -> bool {
        is_friend(found.uid()) || *self.mapped.get_or_init(|| self.mapped()) == Some(found.uid())
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

/// The same, or who has become root by sudo: he may do so again.
pub fn is_friend(uid: u32) -> bool {
    is_trusted(uid) || by_sudo("SUDO_UID") == Some(uid)
}

/// The user, or the group, from which sudo has made us root.
fn by_sudo(variable: &str) -> Option<u32> {
    let number = || std::env::var(variable).ok()?.parse().ok();
    (effective_uid() == 0).then(number)?
}

/// Whether this user is the owner of the folder, and nobody else may write to it. His own group,
/// which many systems make for each user with the same number, is nobody else.
pub fn is_of_one(folder: &Metadata, uid: u32) -> bool {
    let (mode, group) = (folder.mode(), folder.gid());
    let private = group == uid && own_group(uid) == Some(group);
    let others = if private { 0o002 } else { 0o022 };
    folder.uid() == uid && mode & others == 0
}

/// The first group of a user, if he is one whose groups we know.
fn own_group(uid: u32) -> Option<u32> {
    if uid == effective_uid() {
        return Some(effective_gid());
    }
    by_sudo("SUDO_GID").filter(|_| by_sudo("SUDO_UID") == Some(uid))
}

/// Whether this is the user as whom the host's root is shown in a user namespace that does not know
/// him. So are all others that it does not know.
pub fn is_host(uid: u32) -> bool {
    uid != 0 && stand_in() == Some(uid)
}

/// As whom the host's root is shown here; `None` if he is shown as what he is.
fn stand_in() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    if knows_root(&map) {
        return None;
    }
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// Whether one of the ranges (inside, outside, length) has the outer root.
fn knows_root(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().nth(1) == Some("0"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_may_know_root() {
        assert!(knows_root("         0          0 4294967295\n"));
        assert!(!knows_root(
            "         0       1000          1\n         1     100000      65536\n"
        ));
        assert!(knows_root("0 1000 1\n1 0 1\n"));
    }
}
