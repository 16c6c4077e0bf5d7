// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Files and folders that are not complete. Each has a random name of its own, so that nobody can
//! have put something there, and two processes do not meet; it gets the name that is meant when it
//! is complete, and is removed otherwise.
//!
//! While it is being made it is locked, so that what a killed process left is recognised.

use super::ours::Us;
use super::{Folder, Old, is_same};
use crate::files::random;
use rustix::fs::{self as sys, FlockOperation, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Another process may change what is there just as often.
const TRIES: u32 = 64;
const MIDDLE: &str = ".part-";
const ASIDE: &str = ".aside-";
/// Bytes of a name, at most.
const NAME_MAX: usize = 255;

/// `.NAME.part-` of the name that is meant, cut to what has room with 16 digits.
fn prefix(name: &OsStr, middle: &str) -> Vec<u8> {
    let room = NAME_MAX - 1 - middle.len() - 16;
    let name = name.as_bytes();
    [b".", &name[..name.len().min(room)], middle.as_bytes()].concat()
}

fn random_name(name: &OsStr) -> OsString {
    name_with(name, MIDDLE)
}

fn name_with(name: &OsStr, middle: &str) -> OsString {
    let mut made = OsStr::from_bytes(&prefix(name, middle)).to_owned();
    made.push(format!("{:016x}", random()));
    made
}

/// Takes the lock that says that somebody is making it. False: another process looks whether
/// somebody does.
fn lock(file: &File) -> bool {
    // Not all file systems have locks; there, nothing is taken for a leftover.
    !matches!(sys::flock(file, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK))
}

/// Removes what killed processes left behind of ours. Not in a folder of somebody else, who could
/// give such a name to another folder of ours that is there.
fn remove_leftovers(folder: &Folder, name: &OsStr) {
    if !folder.is_safe() {
        return;
    }
    let prefix = prefix(name, MIDDLE);
    let Ok(names) = folder.names() else { return };
    let us = Us::here(folder);
    let is_ours =
        |name: &OsStr| folder.look(name).ok().flatten().is_some_and(|found| us.is_owner(&found));
    for left in names.iter().filter(|n| is_partial(n, &prefix) && is_ours(n)) {
        let file = folder.read(left);
        let (file, is_folder) = match file {
            Ok(file) => (file, false),
            Err(_) => match folder.folder(left) {
                Ok(inner) => (inner.file, true),
                Err(_) => continue,
            },
        };
        let locked = sys::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if locked {
            let _ = match is_folder {
                true => folder.remove_all(left),
                false => folder.remove(left),
            };
        }
    }
}

fn is_partial(name: &OsStr, prefix: &[u8]) -> bool {
    let rest = name.as_bytes().strip_prefix(prefix);
    rest.is_some_and(|rest| rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit))
}

/// A file that has another name until it is complete. Dropped before, it is removed.
#[derive(Debug)]
pub struct Partial {
    folder: Folder,
    file: File,
    own: OsString,
    name: OsString,
    done: bool,
}

impl Partial {
    /// Begins a file that will be `name` in `folder`, for reading and writing.
    ///
    /// # Errors
    /// Those of the system; that something of another user has the name.
    pub fn begin(folder: &Folder, name: &OsStr, mode: u32) -> io::Result<Partial> {
        folder.check_free(name)?;
        Partial::beside(folder, name, mode)
    }

    /// The same, whosever file has the name: for [`Partial::complete_over`].
    pub fn beside(folder: &Folder, name: &OsStr, mode: u32) -> io::Result<Partial> {
        remove_leftovers(folder, name);
        for _ in 0..TRIES {
            let own = random_name(name);
            let file = folder.create(&own, mode)?;
            let folder = folder.try_clone()?;
            let partial = Partial { folder, file, own, name: name.into(), done: false };
            if lock(&partial.file) && partial.is_there() {
                return Ok(partial);
            }
        }
        Err(ErrorKind::ResourceBusy.into())
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its name has not been taken by somebody who took it for a leftover.
    fn is_there(&self) -> bool {
        is_here(&self.folder, &self.own, &self.file)
    }

    /// Sets the mode, whatever the umask.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    /// Gives it its name.
    pub fn complete(mut self, old: Old) -> io::Result<()> {
        if !self.is_there() {
            return Err(io::Error::new(ErrorKind::NotFound, "it was removed meanwhile"));
        }
        self.folder.rename(&self.own, &self.name, old)?;
        self.done = true;
        Ok(())
    }

    /// Takes the place of exactly this file, which may belong to somebody else, when the disk has
    /// all of it.
    pub fn complete_over(mut self, was: &Metadata) -> io::Result<()> {
        self.file.sync_all()?;
        let there = self.folder.look(&self.name)?;
        if !self.is_there() || !there.is_some_and(|there| is_same(&there, was)) {
            return Err(io::Error::other("it is another file by now"));
        }
        sys::renameat(&self.folder.file, &self.own, &self.folder.file, &self.name)?;
        self.done = true;
        self.folder.sync()
    }

    /// Gives it its name when the disk has all of it, and waits until the disk has the name.
    pub fn complete_synced(self, old: Old) -> io::Result<()> {
        self.file.sync_all()?;
        let folder = self.folder.try_clone()?;
        self.complete(old)?;
        folder.sync()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.done && self.is_there() {
            let _ = self.folder.remove(&self.own);
        }
    }
}

fn is_here(folder: &Folder, name: &OsStr, file: &File) -> bool {
    match (folder.look(name), file.metadata()) {
        (Ok(Some(found)), Ok(ours)) => is_same(&found, &ours),
        _ => false,
    }
}

/// A folder that has another name until it is complete. Dropped before, it is removed.
#[derive(Debug)]
pub struct PartialFolder {
    parent: Folder,
    folder: Folder,
    own: OsString,
    name: OsString,
    done: bool,
}

impl PartialFolder {
    /// Begins a folder that will be `name` in `parent`.
    ///
    /// # Errors
    /// Those of the system; that something of another user has the name.
    pub fn begin(parent: &Folder, name: &OsStr, mode: u32) -> io::Result<PartialFolder> {
        parent.check_free(name)?;
        remove_leftovers(parent, name);
        let mut why = ErrorKind::ResourceBusy.into();
        for _ in 0..TRIES {
            let own = random_name(name);
            let folder = match parent.make_folder(&own, mode) {
                // Somebody else has taken it for a leftover before it was opened.
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    why = e;
                    continue;
                }
                made => made?,
            };
            let parent = parent.try_clone()?;
            let made = PartialFolder { parent, folder, own, name: name.into(), done: false };
            if lock(&made.folder.file) && is_here(&made.parent, &made.own, &made.folder.file) {
                return Ok(made);
            }
        }
        Err(why)
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// What has its name now, if that is ours: for [`PartialFolder::complete`].
    pub fn there(&self) -> io::Result<Option<Folder>> {
        match self.parent.check_free(&self.name)? {
            Some(_) => {
                let there = self.parent.folder(&self.name)?;
                there.check_ours()?;
                Ok(Some(there))
            }
            None => Ok(None),
        }
    }

    /// Gives it its name. What has the name must be `old`, and is removed; or nothing.
    ///
    /// # Errors
    /// `AlreadyExists`: something else has the name by now.
    pub fn complete(&mut self, old: Option<&Folder>) -> io::Result<()> {
        let Some(old) = old else {
            self.parent.rename_new(&self.own, &self.name)?;
            self.done = true;
            return Ok(());
        };
        let was = old.file.metadata()?;
        let aside = self.exchange(&was)?;
        self.done = true;
        // What cannot be removed is a leftover.
        let _ = old.empty().and_then(|()| self.parent.remove_folder(&aside));
        Ok(())
    }

    /// Both names change their folders at once, so that there is a complete one at any time.
    /// Returns the name that the old one has now.
    fn exchange(&self, was: &Metadata) -> io::Result<OsString> {
        let (parent, own, name) = (&self.parent.file, &self.own, &self.name);
        match sys::renameat_with(parent, own, parent, name, RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => return Err(ErrorKind::AlreadyExists.into()),
            Err(Errno::INVAL | Errno::NOSYS) => return self.exchange_slowly(was),
            done => done?,
        }
        let is_it = |found: &Metadata| found.ino() == was.ino() && found.dev() == was.dev();
        if self.parent.look(own)?.as_ref().is_some_and(is_it) {
            return Ok(own.clone());
        }
        // Somebody has put another in its place.
        sys::renameat_with(parent, own, parent, name, RenameFlags::EXCHANGE)?;
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Where the file system cannot do that. The old one gets a name that is no leftover's: if we
    /// are killed between, it is the only one.
    fn exchange_slowly(&self, was: &Metadata) -> io::Result<OsString> {
        let aside = name_with(&self.name, ASIDE);
        if !self.parent.look(&self.name)?.is_some_and(|found| is_same(&found, was)) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.parent.rename_new(&self.name, &aside)?;
        if let Err(why) = self.parent.rename_new(&self.own, &self.name) {
            self.parent.rename_new(&aside, &self.name)?;
            return Err(why);
        }
        Ok(aside)
    }
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        if !self.done && is_here(&self.parent, &self.own, &self.folder.file) {
            // By the descriptor: somebody else may give this name to another one of ours.
            let _ = self.folder.empty().and_then(|()| self.parent.remove_folder(&self.own));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    #[test]
    fn what_is_begun_is_no_leftover_of_others() {
        let all = tempfile::tempdir().unwrap();
        let parent = Folder::open(all.path()).unwrap();
        let begun = AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                while begun.load(Relaxed) {
                    remove_leftovers(&parent, OsStr::new("x"));
                }
            });
            let each = (0..2000).map(|_| PartialFolder::begin(&parent, OsStr::new("x"), 0o700));
            let failed: Vec<_> = each.filter_map(Result::err).collect();
            begun.store(false, Relaxed);
            assert!(failed.is_empty(), "{failed:?}");
        });
    }

    #[test]
    fn an_old_folder_that_is_put_aside_is_no_leftover_and_comes_back() {
        let all = tempfile::tempdir().unwrap();
        let parent = Folder::open(all.path()).unwrap();
        let name = OsStr::new("x");
        fs::create_dir(all.path().join("x")).unwrap();
        fs::write(all.path().join("x/precious"), "").unwrap();
        let was = parent.look(name).unwrap().unwrap();
        let made = PartialFolder::begin(&parent, name, 0o755).unwrap();
        let own = made.own.clone();
        parent.remove_folder(&own).unwrap();
        assert_eq!(made.exchange_slowly(&was).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(all.path().join("x/precious").exists());

        let made = PartialFolder::begin(&parent, name, 0o755).unwrap();
        let aside = made.exchange_slowly(&was).unwrap();
        remove_leftovers(&parent, name);
        assert!(all.path().join(aside).join("precious").exists());
        assert!(parent.folder(name).unwrap().names().unwrap().is_empty());
    }
}
