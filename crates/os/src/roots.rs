// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The root directories of processes in containers, which are kept, so that their files can be read
//! when the processes have ended; and what processes have written under their own numbers.

use crate::files::{FileId, inherited_file, look_at, open_below, open_of, root_of};
use crate::processes::{exists, is_still, own_number, started, user_of};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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
    /// By process: the index of its root, if it is not the own one; `None`: it is not kept.
    of: HashMap<u32, Option<usize>>,
    writers: HashMap<u32, Writer>,
}

/// A process that may write files with its number in their names.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Writer {
    /// In its own pid namespace.
    number: u32,
    /// Its effective user, when it was looked at.
    user: u32,
    started: u64,
}

/// A mount namespace, and the device and inode of the root directory.
type Key = (u64, u64, u64);

#[derive(Debug)]
struct Root {
    key: Key,
    folder: File,
    /// While it is open, what is mounted there stays.
    mounts: File,
}

impl Default for Roots {
    fn default() -> Roots {
        let own = open(std::process::id()).ok().map(|root| root.key);
        Roots { own, found: Vec::new(), of: HashMap::new(), writers: HashMap::new() }
    }
}

impl Roots {
    /// Looks where the root directory of a process is; it may have ended.
    pub fn look(&mut self, pid: u32) {
        let Ok(root) = open(pid) else { return };
        self.of.remove(&pid);
        if Some(root.key) == self.own {
            return;
        }
        let known = self.found.iter().position(|known| known.key == root.key);
        let index = known.or_else(|| self.keep(root, exists));
        self.of.insert(pid, index);
    }

    /// If there are too many, in place of one whose processes have all ended.
    fn keep(&mut self, root: Root, lives: impl Fn(u32) -> bool) -> Option<usize> {
        if self.found.len() < ROOTS_MAX {
            self.found.push(Arc::new(root));
            return Some(self.found.len() - 1);
        }
        let living = self.of.iter().filter(|(pid, _)| lives(**pid));
        let used: HashSet<usize> = living.filter_map(|(_, index)| *index).collect();
        let free = (0..self.found.len()).find(|index| !used.contains(index))?;
        self.found[free] = Arc::new(root);
        self.of.values_mut().filter(|index| **index == Some(free)).for_each(|index| *index = None);
        Some(free)
    }

    /// A process has the root of its parent. Another one may have had its number before.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        self.writers.remove(&pid);
        match self.of.get(&parent).copied() {
            Some(root) => self.of.insert(pid, root),
            None => self.of.remove(&pid),
        };
    }

    /// Remembers the number that a process has for itself, and its user, once.
    pub fn look_writer(&mut self, pid: u32) {
        if self.writers.contains_key(&pid) {
            return;
        }
        let started = started(pid);
        if let (Some(number), Some(user), Some(started)) = (own_number(pid), user_of(pid), started)
        {
            self.writers.insert(pid, Writer { number, user, started });
        }
    }

    /// Forgets the other processes.
    pub fn keep_only(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.of.retain(|pid, _| is_kept(*pid));
        self.writers.retain(|pid, _| is_kept(*pid));
    }

    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// The file of this path in a root, by its number.
    pub fn file(&self, root: usize, path: &Path) -> io::Result<File> {
        let root = self.found.get(root).ok_or(io::ErrorKind::NotFound)?;
        open_below(&root.folder, path)
    }

    /// A file in a folder of a process, whose name has the number that the process has for itself.
    /// It must be one that the process, or root, has written: any user may have made a file of this
    /// name. The error says who has.
    pub fn written_by(
        &self,
        pid: u32,
        folder: &Path,
        name: impl FnOnce(u32) -> String,
    ) -> io::Result<File> {
        let root = self.of.get(&pid).map(|index| index.and_then(|index| self.found.get(index)));
        let folder = match root {
            Some(Some(root)) => open_below(&root.folder, folder)?,
            Some(None) => {
                return Err(io::Error::other("the program's root directory is not known"));
            }
            None => look_at(folder)?,
        };
        let writer = self.writers.get(&pid);
        let name = name(writer.map_or(pid, |writer| writer.number));
        open_of(&folder, OsStr::new(&name), &self.users_of(pid))
    }

    /// A process may have changed its user since it was looked at. Another process may have its
    /// number by now.
    fn users_of(&self, pid: u32) -> Vec<u32> {
        let Some(writer) = self.writers.get(&pid) else { return vec![0] };
        let lives = is_still(pid, writer.started);
        let now = user_of(pid).filter(|_| lives);
        [0, writer.user].into_iter().chain(now).collect()
    }
}

/// The key of a process's root is that of what was opened: it may go elsewhere meanwhile.
fn open(process: u32) -> io::Result<Root> {
    let mounts = File::open(format!("/proc/{process}/ns/mnt"))?;
    let folder = root_of(process)?;
    let root = FileId::known(&folder)?;
    let key = (mounts.metadata()?.ino(), root.device, root.inode);
    Ok(Root { key, folder, mounts })
}

/// A descriptor of the file that programs which are started inherit.
pub fn inherited(file: &File) -> io::Result<OwnedFd> {
    // SAFETY: it copies a descriptor that is open; the copy is new and ours.
    unsafe {
        let copy = super::check(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 3))?;
        Ok(OwnedFd::from_raw_fd(copy))
    }
}

/// The same for a process that inherits the descriptors, by their numbers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Passed {
    own: Option<Key>,
    /// Each with its folder, and its mounts.
    found: Vec<(Key, RawFd, RawFd)>,
    of: HashMap<u32, Option<usize>>,
    writers: HashMap<u32, Writer>,
}

impl Passed {
    pub fn of(roots: &Roots) -> Passed {
        let number =
            |root: &Arc<Root>| (root.key, root.folder.as_raw_fd(), root.mounts.as_raw_fd());
        let found = roots.found.iter().map(number).collect();
        Passed { own: roots.own, found, of: roots.of.clone(), writers: roots.writers.clone() }
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.found.iter().flat_map(|(_, folder, mounts)| [*folder, *mounts])
    }

    /// In the process that has inherited them.
    pub fn received(self) -> io::Result<Roots> {
        let root = |(key, folder, mounts)| {
            let (folder, mounts) = (inherited_file(folder)?, inherited_file(mounts)?);
            Ok(Arc::new(Root { key, folder, mounts }))
        };
        let found = self.found.into_iter().map(root).collect::<io::Result<_>>()?;
        Ok(Roots { own: self.own, found, of: self.of, writers: self.writers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_own_root_is_not_kept() {
        let mut roots = Roots::default();
        roots.look(std::process::id());
        // It has ended.
        roots.look(u32::MAX);
        assert!(roots.found.is_empty() && roots.of.is_empty());
        assert_eq!(roots.count(), 0);
    }

    #[test]
    fn a_root_of_ended_processes_gives_its_place_to_another() {
        let root = |n: usize| Root { key: (n as u64, 0, 0), ..open(std::process::id()).unwrap() };
        let mut roots = Roots::default();
        for n in 0..ROOTS_MAX {
            let index = roots.keep(root(n), |_| true);
            roots.of.insert(n as u32, index);
        }
        assert_eq!(roots.keep(root(ROOTS_MAX), |_| true), None);
        assert_eq!(roots.keep(root(ROOTS_MAX), |pid| pid != 7), Some(7));
        // The root of the process that has ended is not taken for that of the others.
        assert_eq!((roots.of[&7], roots.of[&8], roots.count()), (None, Some(8), ROOTS_MAX));
    }

    #[test]
    fn a_new_process_has_the_root_of_its_parent_and_is_no_writer_yet() {
        let pid = std::process::id();
        let (parent, child) = (u32::MAX - 1, u32::MAX);
        let mut roots = Roots::default();
        roots.look_writer(pid);
        roots.writers.insert(child, roots.writers[&pid]);
        roots.of.insert(parent, None);
        roots.fork(child, parent);
        assert!(!roots.writers.contains_key(&child));
        let name = |_| "x".to_string();
        let why = roots.written_by(child, Path::new("/tmp"), name).unwrap_err().to_string();
        assert_eq!(why, "the program's root directory is not known");
        // Another process of this number, whose parent has the recorder's root.
        roots.fork(child, pid);
        let why = roots.written_by(child, Path::new("/nonexistent"), name).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_of_a_process_has_its_number_and_its_user() {
        let pid = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        let open = |roots: &Roots| {
            roots.written_by(pid, folder.path(), |n| format!("file-{n}")).map_err(|e| e.kind())
        };
        let mut roots = Roots::default();
        fs::write(folder.path().join(format!("file-{pid}")), "x").unwrap();
        // Of a process that was not looked at, only root's files are known to be no forgery.
        assert_eq!(open(&roots).is_ok(), crate::files::effective_uid() == 0);
        roots.look_writer(pid);
        assert!(open(&roots).is_ok());
        roots.writers.get_mut(&pid).unwrap().number = 7;
        assert_eq!(open(&roots).unwrap_err(), io::ErrorKind::NotFound);
        fs::write(folder.path().join("file-7"), "x").unwrap();
        assert!(open(&roots).is_ok());
    }
}
