// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The root directories of processes in containers, which are kept, so that their files can be read
//! when the processes have ended; and the numbers of processes in their own pid namespaces.

use crate::files::{open_below, open_regular, root_of};
use crate::processes::own_number;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Each holds two descriptors, and what is mounted in a container.
const ROOTS_MAX: usize = 64;

/// Roots other than the recorder's own. A copy has the same descriptors.
#[derive(Clone, Debug)]
pub struct Roots {
    own: Option<Key>,
    found: Vec<Arc<Root>>,
    /// By process: the index of its root, if it is not the own one.
    of: HashMap<u32, usize>,
    numbers: HashMap<u32, u32>,
}

/// A mount namespace, and the device and inode of the root directory.
type Key = (u64, u64, u64);

#[derive(Debug)]
struct Root {
    key: Key,
    folder: File,
    /// While it is open, what is mounted there stays.
    _mounts: File,
}

impl Default for Roots {
    fn default() -> Roots {
        let own = key(std::process::id()).ok();
        Roots { own, found: Vec::new(), of: HashMap::new(), numbers: HashMap::new() }
    }
}

impl Roots {
    /// Looks where the root directory of a process is; it may have ended.
    pub fn look(&mut self, pid: u32) {
        let Ok(key) = key(pid) else { return };
        self.of.remove(&pid);
        if Some(key) == self.own {
            return;
        }
        let known = self.found.iter().position(|root| root.key == key);
        let index = known.or_else(|| {
            let root = open(pid).ok().filter(|_| self.found.len() < ROOTS_MAX)?;
            self.found.push(Arc::new(root));
            Some(self.found.len() - 1)
        });
        if let Some(index) = index {
            self.of.insert(pid, index);
        }
    }

    /// Remembers the number that a process has for itself.
    pub fn look_number(&mut self, pid: u32) {
        if let Some(number) = own_number(pid) {
            self.numbers.insert(pid, number);
        }
    }

    /// The file of this path in each of the roots.
    pub fn files<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = File> + 'a {
        self.found.iter().filter_map(move |root| open_below(&root.folder, path).ok())
    }

    /// A file of a process whose path has the number that it has for itself.
    pub fn numbered(&self, pid: u32, path: impl FnOnce(u32) -> String) -> io::Result<File> {
        let path = path(self.numbers.get(&pid).copied().unwrap_or(pid));
        match self.of.get(&pid).and_then(|index| self.found.get(*index)) {
            Some(root) => open_below(&root.folder, Path::new(&path)),
            None => open_regular(Path::new(&path)),
        }
    }
}

fn key(process: u32) -> io::Result<Key> {
    let mounts = fs::metadata(format!("/proc/{process}/ns/mnt"))?;
    let root = fs::metadata(format!("/proc/{process}/root"))?;
    Ok((mounts.ino(), root.dev(), root.ino()))
}

/// The process may go elsewhere meanwhile, so the key is that of what was opened.
fn open(process: u32) -> io::Result<Root> {
    let mounts = File::open(format!("/proc/{process}/ns/mnt"))?;
    let folder = root_of(process)?;
    let about = folder.metadata()?;
    let key = (mounts.metadata()?.ino(), about.dev(), about.ino());
    Ok(Root { key, folder, _mounts: mounts })
}

/// A descriptor of the file that programs which are started inherit.
pub fn inherited(file: &File) -> io::Result<OwnedFd> {
    // SAFETY: it copies a descriptor that is open; the copy is new and ours.
    unsafe {
        let copy = super::check(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 3))?;
        Ok(OwnedFd::from_raw_fd(copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_root_is_not_kept() {
        let mut roots = Roots::default();
        roots.look(std::process::id());
        // It has ended.
        roots.look(u32::MAX);
        assert!(roots.found.is_empty() && roots.of.is_empty());
        assert_eq!(roots.files(Path::new("/proc/self/status")).count(), 0);
    }

    #[test]
    fn a_file_may_have_the_number_of_a_process_in_its_name() {
        let pid = std::process::id();
        let mut roots = Roots::default();
        let number = |roots: &Roots| {
            let mut asked = None;
            let path = |n| format!("/proc/self/task/{n}/no-such-file");
            assert!(roots.numbered(pid, |n| (asked = Some(n), path(n)).1).is_err());
            asked
        };
        assert_eq!(number(&roots), Some(pid));
        roots.numbers.insert(pid, 7);
        assert_eq!(number(&roots), Some(7));
    }
}
