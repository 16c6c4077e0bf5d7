// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! How much memory the control groups of this process leave it, in versions 1 and 2. The kernel
//! kills in a group that has reached its limit, however much the machine has.

use crate::missed;
use crate::mounts::{self, Mount};
use std::fs;
use std::path::{Path, PathBuf};

/// The tightest limit of all groups that this process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// That can still be used.
    pub bytes: u64,
    pub limit: u64,
    /// The folder of the group.
    pub group: PathBuf,
}

/// Names of the files of a version: limit, use, and what of it the kernel reclaims before it kills.
struct Files {
    limit: &'static str,
    used: &'static str,
    reclaimable: &'static [&'static str],
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
};
const V2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
};

/// `None`: there is no limit, or it is not known, which the ledger says.
pub fn left() -> Option<Left> {
    let read = |path| missed::noting_unless_gone(path, fs::read_to_string(path));
    let (groups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
    let found = folders(&groups, &mounts).into_iter();
    found
        .flat_map(|(mount, folder, files)| tightest(&mount, &folder, files))
        .min_by_key(|l| l.bytes)
}

/// Where the memory of this process is counted: the mount, and the folder of its group in it.
fn folders(groups: &str, mounts: &str) -> Vec<(PathBuf, PathBuf, &'static Files)> {
    let folder = |Mount { at, root, kind, options }: Mount| {
        let of_memory = || options.split(',').any(|option| option == "memory");
        let (files, path) = match kind.as_str() {
            "cgroup2" => (&V2, groups.lines().find_map(|line| line.strip_prefix("0::"))?),
            "cgroup" if of_memory() => (&V1, groups.lines().find_map(of_v1)?),
            _ => return None,
        };
        // A container may see only a part of the groups.
        let below = Path::new(path).strip_prefix(root).ok().unwrap_or(Path::new(""));
        Some((at.clone(), at.join(below), files))
    };
    mounts::of_list(mounts).filter_map(folder).collect()
}

/// The path in a line such as `9:memory:/a/b`.
fn of_v1(line: &str) -> Option<&str> {
    let mut words = line.splitn(3, ':').skip(1);
    words.next()?.split(',').any(|controller| controller == "memory").then_some(words.next()?)
}

/// Of a group and those that it is in, the one that leaves least.
fn tightest(mount: &Path, folder: &Path, files: &Files) -> Option<Left> {
    let groups = folder.ancestors().take_while(|group| group.starts_with(mount));
    groups.filter_map(|group| of_group(group, files)).min_by_key(|left| left.bytes)
}

fn of_group(group: &Path, files: &Files) -> Option<Left> {
    // The root of all groups has none of these files.
    let read = |name: &str| {
        let path = group.join(name);
        missed::noting_unless_gone(&path.display().to_string(), fs::read_to_string(&path))
    };
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // `max`, or about 2^63: no limit.
    let limit = number(files.limit).filter(|limit| *limit < i64::MAX as u64 / 2)?;
    let stat = read("memory.stat").unwrap_or_default();
    let of_stat = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        files.reclaimable.contains(&name).then(|| bytes.parse::<u64>().ok())?
    };
    let reclaimable = stat.lines().filter_map(of_stat).sum();
    let used = number(files.used)?.saturating_sub(reclaimable);
    Some(Left { bytes: limit.saturating_sub(used), limit, group: group.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_both_versions_are_found() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n\
            31 23 0:27 /box /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
            32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let groups = "9:cpu:/c\n8:memory,hugetlb:/box/in\n0::/a/b\n";
        let found = folders(groups, mounts);
        let places: Vec<_> =
            found.iter().map(|(_, at, f)| (at.to_str().unwrap(), f.limit)).collect();
        let v1 = ("/sys/fs/cgroup/memory/in", "memory.limit_in_bytes");
        assert_eq!(places, [("/sys/fs/cgroup/a/b", "memory.max"), v1]);
    }

    #[test]
    fn the_tightest_group_of_all_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |group: &str, name: &str, text: &str| {
            fs::create_dir_all(folder.path().join(group)).unwrap();
            fs::write(folder.path().join(group).join(name), text).unwrap();
        };
        for (group, limit, used) in [("a", "1000\n", "700\n"), ("a/b", "max\n", "500\n")] {
            write(group, "memory.max", limit);
            write(group, "memory.current", used);
        }
        write("a", "memory.stat", "anon 600\ninactive_file 100\n");
        let found = tightest(folder.path(), &folder.path().join("a/b"), &V2).unwrap();
        let group = folder.path().join("a");
        assert_eq!(found, Left { bytes: 400, limit: 1000, group });
        write("a/b", "memory.max", "550");
        assert_eq!(tightest(folder.path(), &folder.path().join("a/b"), &V2).unwrap().bytes, 50);
        assert_eq!(tightest(folder.path(), folder.path(), &V2), None);
    }
}
