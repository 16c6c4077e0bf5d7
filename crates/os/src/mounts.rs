// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What is mounted where, by the names alone: no file system is asked, which may not answer.

use crate::missed;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

pub(crate) const LIST: &str = "/proc/self/mountinfo";

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    /// What of it is mounted there: of cgroups, which one.
    pub(crate) root: String,
    /// `cgroup` for hierarchies of version 1, `cgroup2` for that of version 2.
    pub(crate) kind: String,
    /// Of the file system, for version 1 of cgroups the controllers: `rw,memory`.
    pub(crate) options: String,
}

/// All of them, read once for as many paths as are looked at in a row.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// None at all if the list cannot be read, which is noted.
    pub fn read() -> Mounts {
        let list = missed::noting(LIST, fs::read_to_string(LIST)).unwrap_or_default();
        Mounts(of_list(&list).collect())
    }

    /// The list could not be read: there is always a root.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a file system of this kind is mounted anywhere.
    pub fn have(&self, kind: &str) -> bool {
        self.0.iter().any(|mount| mount.kind == kind)
    }

    /// Where the file system of a path is mounted. `None`: at the root, or it cannot be told.
    pub fn around(&self, place: &Path) -> Option<&Mount> {
        let within = self.0.iter().filter(|mount| place.starts_with(&mount.at));
        // Of several at one place, the last one covers the others.
        let found = within.max_by_key(|mount| mount.at.as_os_str().len());
        found.filter(|mount| mount.at != Path::new("/"))
    }
}

/// A line: `30 23 0:26 ROOT PLACE OPTIONS - TYPE SOURCE OPTIONS`.
pub(crate) fn of_list(list: &str) -> impl Iterator<Item = Mount> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Mount {
            root: plain(before.next()?).to_string_lossy().into_owned(),
            at: plain(before.next()?).into(),
            kind: after.next()?.into(),
            options: after.nth(1)?.into(),
        })
    };
    list.lines().filter_map(mount)
}

/// Without the `\040` that the kernel writes for a space, and the like.
fn plain(word: &str) -> OsString {
    let mut parts = word.as_bytes().split(|byte| *byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part[3..]);
            }
            None => {
                bytes.push(b'\\');
                bytes.extend_from_slice(part);
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path_is_the_innermost() {
        let mounts = Mounts::read();
        let at = |path: &str| mounts.around(Path::new(path)).map(|mount| mount.at.clone());
        assert_eq!(at("/proc/1/exe"), Some("/proc".into()));
        assert!(mounts.have("proc") && !mounts.have("nosuchfs"));
        assert_eq!(at("/"), None);
    }

    #[test]
    fn mounts_of_both_versions() {
        let list = "30 23 0:26 / /sys/fs/cgroup ro - tmpfs none rw\n\
                    31 30 0:27 /a /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 none rw\n\
                    32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup none rw,memory\n";
        let found: Vec<Mount> = of_list(list).collect();
        let kinds: Vec<&str> = found.iter().map(|mount| mount.kind.as_str()).collect();
        assert_eq!(kinds, ["tmpfs", "cgroup2", "cgroup"]);
        assert_eq!(
            (found[1].at.to_str(), found[1].root.as_str()),
            (Some("/sys/fs/cgroup/unified"), "/a")
        );
        assert_eq!(found[2].options, "rw,memory");
    }

    #[test]
    fn a_path_may_have_a_space() {
        let list = "40 23 0:40 / /mnt/my\\040disk rw - fuse.x none rw\n\
                    41 23 0:41 / /mnt/a\\134b rw - nfs none rw\n";
        let mounts = Mounts(of_list(list).collect());
        let kind = |path: &str| mounts.around(Path::new(path)).map(|mount| mount.kind.as_str());
        assert_eq!(kind("/mnt/my disk/file"), Some("fuse.x"));
        assert_eq!(kind("/mnt/a\\b/file"), Some("nfs"));
        assert_eq!(kind("/mnt/other"), None);
    }
}
