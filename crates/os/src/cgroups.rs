// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Cgroups of version 2, and which threads are in them.

use super::{Error, missed};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The kernel's number of it.
    pub id: u64,
    /// Its path from the root of all cgroups, as in /proc/PID/cgroup: `/` or `/a/b`.
    pub path: String,
}

/// A mounted file system.
pub(crate) struct Mount {
    pub at: PathBuf,
    /// What of it is mounted there: of cgroups, which one.
    pub root: String,
    /// `cgroup` for hierarchies of version 1, `cgroup2` for that of version 2.
    pub kind: String,
    /// Of the file system, for version 1 the controllers: `rw,memory`.
    pub options: String,
}

/// The cgroup of a path in the file system, or of one below the root of all cgroups.
pub fn find(path: &str) -> Result<Cgroup, Error> {
    let info = fs::read_to_string("/proc/self/mountinfo").map_err(|e| {
        Error::new(format!("cannot read /proc/self/mountinfo, which says where cgroups are: {e}"))
            .help("mount /proc: mount -t proc proc /proc")
    })?;
    let mounts: Vec<Mount> = mounts(&info).filter(|mount| mount.kind == "cgroup2").collect();
    let Some(first) = mounts.first() else {
        return Err(Error::new("no cgroups of version 2 are mounted here")
            .help("mount them: mount -t cgroup2 none /sys/fs/cgroup"));
    };
    let see = || format!("'ls {}' shows those there are", first.at.display());
    let named = Path::new(path);
    let below = first.at.join(path.trim_start_matches('/'));
    let folder = [named, &below].into_iter().filter_map(|p| fs::canonicalize(p).ok());
    let mut folders = folder.filter(|p| p.is_dir()).peekable();
    if folders.peek().is_none() {
        return Err(Error::new(format!("there is no cgroup {path}")).help(see()));
    }
    let within = |folder: PathBuf| {
        let mount = mounts.iter().find(|mount| folder.starts_with(&mount.at))?;
        let id = fs::metadata(&folder).ok()?.ino();
        let below = folder.strip_prefix(&mount.at).ok()?.to_str()?;
        Some(Cgroup { id, path: joined(&mount.root, below) })
    };
    folders
        .find_map(within)
        .ok_or_else(|| Error::new(format!("{path} is not a cgroup of version 2")).help(see()))
}

fn joined(root: &str, below: &str) -> String {
    match (root.trim_end_matches('/'), below) {
        ("", "") => "/".into(),
        (root, "") => root.into(),
        (root, below) => format!("{root}/{below}"),
    }
}

/// A line: `30 23 0:26 ROOT PLACE OPTIONS - TYPE SOURCE OPTIONS`.
pub(crate) fn mounts(info: &str) -> impl Iterator<Item = Mount> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Mount {
            root: before.next()?.into(),
            at: before.next()?.into(),
            kind: after.next()?.into(),
            options: after.nth(1)?.into(),
        })
    };
    info.lines().filter_map(mount)
}

/// Where the file system of a path is mounted, by the names alone: none of them is asked. `None`:
/// at the root, or it cannot be told.
pub fn mount_of(path: &Path) -> Option<PathBuf> {
    let info = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let within = mounts(&info).map(|mount| mount.at).filter(|at| path.starts_with(at));
    within.max_by_key(|at| at.as_os_str().len()).filter(|at| at != Path::new("/"))
}

impl Cgroup {
    /// Whether a thread is in it, or in one of its descendants.
    pub fn has(&self, tid: u32) -> bool {
        let list = fs::read_to_string(format!("/proc/{tid}/cgroup"));
        let list = missed::noting_unless_gone("/proc/PID/cgroup", list).unwrap_or_default();
        let path = list.lines().find_map(|line| line.strip_prefix("0::"));
        path.is_some_and(|path| self.has_path(path))
    }

    fn has_path(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path_is_the_innermost() {
        assert_eq!(mount_of(Path::new("/proc/1/exe")), Some("/proc".into()));
        assert_eq!(mount_of(Path::new("/")), None);
    }

    #[test]
    fn mounts_of_both_versions() {
        let info = "30 23 0:26 / /sys/fs/cgroup ro - tmpfs none rw\n\
                    31 30 0:27 /a /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 none rw\n\
                    32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup none rw,memory\n";
        let found: Vec<Mount> = mounts(info).collect();
        let kinds: Vec<&str> = found.iter().map(|mount| mount.kind.as_str()).collect();
        assert_eq!(kinds, ["tmpfs", "cgroup2", "cgroup"]);
        assert_eq!(
            (found[1].at.to_str(), found[1].root.as_str()),
            (Some("/sys/fs/cgroup/unified"), "/a")
        );
        assert_eq!(found[2].options, "rw,memory");
        assert_eq!((joined("/", ""), joined("/", "x/y")), ("/".into(), "/x/y".into()));
        assert_eq!((joined("/a", ""), joined("/a", "x")), ("/a".into(), "/a/x".into()));
    }

    #[test]
    fn descendants_belong_to_a_cgroup() {
        let cgroup = |path: &str| Cgroup { id: 1, path: path.into() };
        let has = |path: &str, other: &str| cgroup(path).has_path(other);
        assert!(has("/", "/") && has("/", "/a") && has("/a", "/a") && has("/a", "/a/b"));
        assert!(!has("/a", "/") && !has("/a", "/ab") && !has("/a/b", "/a"));
    }
}
