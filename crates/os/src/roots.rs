// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The root directories of processes in containers, which are kept, so that their files can be read
//! when the processes have ended; and what processes have written under their own numbers.

use crate::files::{look_at, open_below, open_of, root_of};
use crate::processes::{is_still, own_number, started, user_of};
use std::collections::HashMap;
use std::ffi::OsStr;
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
    /// By process: the index of its root, if it is not the own one; `None`: it is not kept.
    of: HashMap<u32, Option<usize>>,
    writers: HashMap<u32, Writer>,
}

/// A process that may write files with its number in their names.
#[derive(Clone, Copy, Debug)]
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
    _mounts: File,
}

impl Default for Roots {
    fn default() -> Roots {
        let own = key(std::process::id()).ok();
        Roots { own, found: Vec::new(), of: HashMap::new(), writers: HashMap::new() }
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
        self.of.insert(pid, index);
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

    /// The file of this path in each of the roots.
    pub fn files<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = File> + 'a {
        self.found.iter().filter_map(move |root| open_below(&root.folder, path).ok())
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
