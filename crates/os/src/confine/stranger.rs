// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A user that nobody else is.

use crate::files::random;
use crate::missed;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// Ids that no convention gives to users, services or containers, and that fit into 31 bits: see
/// "Users, Groups, UIDs and GIDs on systemd Systems". Those of SSSD end at 2,000,200,000.
const UNUSED: Range<u32> = 0x7800_0000..0x7ffe_0000;
/// In a user namespace without these, so many of its last ones.
const LAST: u32 = 1 << 12;
/// The user nobody stands for many.
const NOBODY: u32 = 65534;

/// An id for a user and a group; always the same in this process, and random.
pub fn id() -> u32 {
    static ID: OnceLock<u32> = OnceLock::new();
    *ID.get_or_init(|| {
        let maps = ["uid_map", "gid_map"].map(|name| map(&format!("/proc/self/{name}")));
        let [users, groups] = &maps;
        let both = |id: &u32| {
            users.iter().any(|r| r.contains(id)) && groups.iter().any(|r| r.contains(id))
        };
        let last = users.iter().map(|r| r.end).max().unwrap_or(0);
        let range = if both(&UNUSED.start) { UNUSED } else { last.saturating_sub(LAST)..last };
        let taken = taken();
        let free = |id: &u32| *id != 0 && *id != NOBODY && both(id) && !taken.contains(id);
        // If all are taken, or there are no others, the change of users fails.
        let tries = (0..64).map(|_| range.start + (random() % range.len().max(1) as u64) as u32);
        tries.into_iter().find(free).unwrap_or(UNUSED.start)
    })
}

/// The ids of this user namespace. Each line: first id here, first id outside, how many.
fn map(path: &str) -> Vec<Range<u32>> {
    // Without /proc or namespaces, all ids are there.
    let text = fs::read_to_string(path).unwrap_or_else(|_| format!("0 0 {}", u32::MAX));
    let range = |line: &str| {
        let mut words = line.split_whitespace();
        let first: u32 = words.next()?.parse().ok()?;
        let count: u32 = words.nth(1)?.parse().ok()?;
        Some(first..first.saturating_add(count))
    };
    text.lines().filter_map(range).collect()
}

/// Users of processes. Others have no file at which a process of theirs could wait for us.
fn taken() -> Vec<u32> {
    let what = "users of processes in /proc";
    let processes = missed::noting(what, fs::read_dir("/proc")).into_iter().flatten();
    let processes = processes.filter_map(|p| missed::noting_unless_gone(what, p));
    let found = processes.filter_map(|p| missed::noting_unless_gone(what, p.metadata()));
    found.map(|m| m.uid()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_namespace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "         0       1000          1\n         1     100000      65536\n")
            .unwrap();
        assert_eq!(map(file.path().to_str().unwrap()), [0..1, 1..65537]);
        assert!(map("/nonexistent").contains(&(0..u32::MAX)));
    }

    #[test]
    fn one_id_per_process_that_is_of_nobody_else() {
        assert_eq!(id(), id());
        assert!(id() != 0 && id() != NOBODY && !taken().contains(&id()));
    }
}
