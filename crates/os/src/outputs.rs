// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Files and folders that klogger makes, replaces and removes: each by a descriptor of its folder.
//!
//! Root records into folders that others may write to, such as /tmp. There, whoever is quicker
//! could put a link, a folder or a file in the place of an output, and have root's files
//! overwritten. So:
//!
//! - A folder is walked to component by component (`walk.rs`), then held: what becomes of its name
//!   later does not matter.
//! - Of links, only our own and root's are followed, where nobody else can give them names.
//! - What is written is a new file (`O_EXCL`), under a random name (`partial.rs`); it takes the
//!   place of another only if that is ours, or of the user who alone may write to the folder.
//! - Who has become root by sudo may do so again: his files and links are as ours (`ours.rs`).
//! - A folder is emptied by its descriptor; only an empty one is removed by its name.
//!
//! Nothing else in klogger opens an output by its path; crates/cli/tests/outputs.rs searches.

mod ours;
mod partial;
mod tree;
mod walk;

pub use self::partial::{Partial, PartialFolder};

use self::ours::Us;
use super::files::{FileId, path_of};
use rustix::fs::{self as sys, AtFlags, Mode, OFlags, RenameFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// A folder that is held open. It stays the same one if its name gets another meaning.
#[derive(Debug)]
pub struct Folder {
    file: File,
    /// As it was named, for messages.
    path: PathBuf,
}

/// Earlier files of one name that are kept, at most.
const OLD_MAX: u32 = 1000;

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// It is replaced.
    Replace,
    /// It gets the name NAME.old. An earlier file of that name is replaced.
    Keep,
    /// It gets the name NAME.old, or NAME.old2 and so on: nothing is replaced.
    KeepAll,
    /// It stays, and the new one is not made (`AlreadyExists`).
    Refuse,
}

impl Folder {
    /// Opens a folder that is there. Links of others are not followed.
    ///
    /// # Errors
    /// Those of the system; a link that is not followed is named.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Ok(Folder { file: walk::to_folder(path)?, path: path.into() })
    }

    /// Opens the folder of a file, and returns the file's name in it. If that is a link of our own
    /// or of root, it is where the link leads to.
    pub fn of(path: &Path) -> io::Result<(Folder, OsString)> {
        let (file, name, path) = walk::to_file(path)?;
        Ok((Folder { file, path }, name))
    }

    /// The same, but a link in the last place is left as it is.
    pub fn of_name(path: &Path) -> io::Result<(Folder, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((Folder::open(super::files::folder_of(path))?, name.into()))
    }

    /// Opens a folder, and makes it and those above it that are not there (mode 0777 less the
    /// umask).
    pub fn make(path: &Path) -> io::Result<Folder> {
        Folder::make_with(path, 0o777)
    }

    /// The same with another mode for those that are made.
    pub fn make_with(path: &Path, mode: u32) -> io::Result<Folder> {
        let begin = if path.is_absolute() { "/" } else { "." };
        let mut folder = Folder::open(Path::new(begin))?;
        let mut shown = PathBuf::new();
        for component in path.components() {
            shown.push(component);
            let Component::Normal(name) = component else {
                folder = Folder::open(&shown)?;
                continue;
            };
            folder = folder.make_one(name, mode, &shown)?;
        }
        Ok(folder)
    }

    /// One that is there is not made: file systems that may not be written to, and those that make
    /// a folder when it is looked for, have other errors for it than that it exists.
    fn make_one(&self, name: &OsStr, mode: u32, shown: &Path) -> io::Result<Folder> {
        let step = || -> io::Result<Folder> {
            Ok(Folder { file: walk::on(&self.file, name, shown)?, path: shown.into() })
        };
        match step() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            there => return there,
        }
        match self.make_folder(name, mode) {
            // Another process has made it at the same time.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => step(),
            made => Ok(Folder { path: shown.into(), ..made? }),
        }
    }

    /// As it was named, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another descriptor of it.
    pub fn try_clone(&self) -> io::Result<Folder> {
        Ok(Folder { file: self.file.try_clone()?, path: self.path.clone() })
    }

    /// What has this name; a link is not followed. `None`: nothing.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Metadata>> {
        match super::files::look_in(&self.file, name) {
            Ok(seen) => seen.metadata().map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens a file of it for reading if it is a regular one, without waiting and without effects
    /// on devices. A link is not followed.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        super::files::open_seen_regular(&super::files::look_in(&self.file, name)?)
    }

    /// A folder in it. A link is not followed.
    pub fn folder(&self, name: &OsStr) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = sys::openat(&self.file, name, flags, Mode::empty())?;
        Ok(Folder { file: file.into(), path: self.path.join(name) })
    }

    /// Fails if the folder belongs to neither us nor root.
    pub fn check_ours(&self) -> io::Result<()> {
        Us::here(self).check(&self.file.metadata()?, &self.path)
    }

    /// Whether this entry belongs to us or to root; false if there is none.
    pub fn is_ours(&self, name: &OsStr) -> bool {
        let found = self.look(name).ok().flatten();
        found.is_some_and(|found| Us::here(self).is_owner(&found))
    }

    /// Fails if something of somebody else has this name. Returns what has it.
    ///
    /// A file of the user who alone may write to the folder is free: to replace its name does not
    /// write to it, and he could have made it under any name that he likes.
    pub fn check_free(&self, name: &OsStr) -> io::Result<Option<Metadata>> {
        let found = self.look(name)?;
        if let Some(found) = &found
            && !(found.is_file() && ours::is_of_one(&self.file.metadata()?, found.uid()))
        {
            Us::here(self).check(found, &self.path.join(name))?;
        }
        Ok(found)
    }

    /// The same for what is replaced by another file, which must not be a device or a pipe.
    fn check_replaced(&self, name: &OsStr) -> io::Result<Option<Metadata>> {
        let found = self.check_free(name)?;
        if found.as_ref().is_some_and(|found| is_special(found) && !found.is_symlink()) {
            let path = self.path.join(name);
            let why = "is a device or a pipe, which is not replaced by a file";
            return Err(io::Error::other(format!("{} {why}", path.display())));
        }
        Ok(found)
    }

    /// Makes a file, which must not exist, for reading and writing.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        check_name(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = sys::openat(&self.file, name, flags, Mode::from_bits_truncate(mode))?;
        Ok(file.into())
    }

    /// Opens a file that we have made in it, to write at its end.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        check_name(name)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(sys::openat(&self.file, name, flags, Mode::empty())?.into())
    }

    /// Makes a folder, which must not exist.
    ///
    /// In a folder of somebody else, he may put another in its place at once, such as one of ours
    /// from elsewhere in his. It must be empty: then nothing in it can be taken for what we have
    /// made, and be removed.
    pub fn make_folder(&self, name: &OsStr, mode: u32) -> io::Result<Folder> {
        check_name(name)?;
        sys::mkdirat(&self.file, name, Mode::from_bits_truncate(mode))?;
        let made = self.folder(name)?;
        match made.names()?.is_empty() {
            true => Ok(made),
            false => Err(io::Error::other("another folder has been put in its place")),
        }
    }

    /// Whether nobody else can give names in it to what is ours.
    fn is_safe(&self) -> bool {
        self.file.metadata().is_ok_and(|found| {
            let alone = ours::is_of_one(&found, found.uid()) || found.mode() & ours::STICKY != 0;
            ours::is_trusted(found.uid()) && alone
        })
    }

    /// Writes a file that is complete, or does not exist under this name.
    pub fn write(&self, name: &OsStr, mode: u32, old: Old, bytes: &[u8]) -> io::Result<()> {
        let mut partial = Partial::begin(self, name, mode)?;
        partial.file().write_all(bytes)?;
        partial.complete(old)
    }

    /// Gives an entry another name. `Keep` means that of what had this name before.
    pub fn rename(&self, from: &OsStr, to: &OsStr, old: Old) -> io::Result<()> {
        match old {
            Old::Refuse => return self.rename_new(from, to),
            Old::KeepAll => return self.rename_and_keep(from, to),
            Old::Replace => {
                self.check_replaced(to)?;
            }
            Old::Keep => {
                if self.check_replaced(to)?.as_ref().is_some_and(has_content) {
                    self.keep_old(to)?;
                }
            }
        }
        Ok(sys::renameat(&self.file, from, &self.file, to)?)
    }

    /// Another process may give files this name just as often.
    fn rename_and_keep(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        for _ in 0..OLD_MAX {
            match self.check_replaced(to)? {
                Some(found) if has_content(&found) => match self.keep_also(to) {
                    // Another process has given it another name.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    kept => kept?,
                },
                Some(_) => return Ok(sys::renameat(&self.file, from, &self.file, to)?),
                None => {}
            }
            match self.rename_new(from, to) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Gives a file the name NAME.old.
    pub fn keep_old(&self, name: &OsStr) -> io::Result<()> {
        self.rename(name, &old_name(name), Old::Replace)
    }

    /// Gives a file the first of the names NAME.old, NAME.old2 and so on that is free.
    fn keep_also(&self, name: &OsStr) -> io::Result<()> {
        let mut old = old_name(name);
        for number in 2..OLD_MAX {
            match self.rename_new(name, &old) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done,
            }
            old = old_name(name);
            old.push(number.to_string());
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Undoes [`Folder::keep_old`]; what has the name now is replaced.
    pub fn put_back_old(&self, name: &OsStr) -> io::Result<()> {
        self.rename(&old_name(name), name, Old::Replace)
    }

    /// File systems without this kind of renaming have hard links, or are used by one process.
    fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match sys::renameat_with(&self.file, from, &self.file, to, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match self.look(to)? {
                Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
                None => Ok(sys::renameat(&self.file, from, &self.file, to)?),
            },
            done => Ok(done?),
        }
    }

    /// Removes a file, or a link.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(sys::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(sys::unlinkat(&self.file, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a folder and all that is in it.
    ///
    /// # Errors
    /// Those of the system; that somebody else could give this name to another folder of ours.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        match self.is_safe() {
            true => tree::remove(self, name),
            false => Err(io::Error::other(format!(
                "other users may rename what is in {}, so that nothing in it is removed",
                self.path.display()
            ))),
        }
    }

    /// Removes all that is in it.
    fn empty(&self) -> io::Result<()> {
        tree::empty(self)
    }

    /// Whether this name is still that of the file.
    pub fn is_here(&self, name: &OsStr, file: &Metadata) -> bool {
        self.look(name).is_ok_and(|found| found.is_some_and(|found| is_same(&found, file)))
    }

    /// The names of what is in it.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        tree::names(&self.readable()?)
    }

    /// Waits until the disk has what was made, renamed and removed in it.
    pub fn sync(&self) -> io::Result<()> {
        match sys::fsync(self.readable()?) {
            // Some file systems cannot do it for folders.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::BADF) => Ok(()),
            done => Ok(done?),
        }
    }

    /// A descriptor that does more than to name it.
    fn readable(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(sys::openat(&self.file, ".", flags, Mode::empty())?.into())
    }
}

/// Whether a descriptor and an entry are the same file.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    FileId::of(one) == FileId::of(other)
}

/// What is written to as it is: neither a file nor a folder.
fn is_special(found: &Metadata) -> bool {
    !found.is_file() && !found.is_dir()
}

fn has_content(found: &Metadata) -> bool {
    found.is_file() && found.len() > 0
}

/// A name that comes from a log, or a schema, does not lead out of the folder.
fn check_name(name: &OsStr) -> io::Result<()> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(()),
        _ => Err(io::ErrorKind::InvalidFilename.into()),
    }
}

fn old_name(name: &OsStr) -> OsString {
    let mut old = name.to_owned();
    old.push(".old");
    old
}

/// Writes a file that is complete, or does not exist; an earlier one of ours is replaced. What is
/// no regular file is written to.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (folder, name) = Folder::of(path)?;
    if folder.look(&name)?.as_ref().is_some_and(is_special) {
        return folder.open_special(&name)?.write_all(bytes);
    }
    folder.write(&name, 0o666, Old::Replace, bytes)
}

/// A new file, which replaces one of ours at once; what is no regular file is opened to be written
/// to.
///
/// # Errors
/// Those of the system, or that the place is taken by another user.
pub fn begin(path: &Path, mode: u32) -> io::Result<File> {
    let (folder, name) = Folder::of(path)?;
    if folder.look(&name)?.is_some_and(|found| !found.is_file()) {
        return folder.open_special(&name);
    }
    let mut partial = Partial::begin(&folder, &name, mode)?;
    let file = partial.file().try_clone()?;
    partial.complete(Old::Replace)?;
    Ok(file)
}

impl Folder {
    /// Opens what is no regular file: a device or a pipe. Only root can make devices; a pipe of
    /// somebody else is not written to. Of links, only those of /proc are followed, which stand for
    /// what a process has open: others have been put here after the path was walked.
    pub fn open_special(&self, name: &OsStr) -> io::Result<File> {
        let kind = self.look(name)?.ok_or(io::ErrorKind::NotFound)?.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if kind.is_symlink() {
            return self.open_magic(name);
        }
        let seen = super::files::look_in(&self.file, name)?;
        let kind = seen.metadata()?.file_type();
        if !kind.is_char_device() && !kind.is_block_device() {
            Us::here(self).check(&seen.metadata()?, &self.path.join(name))?;
        }
        File::options().write(true).custom_flags(libc::O_NOCTTY).open(path_of(&seen))
    }

    /// Opens what a link of /proc stands for. A pipe that nobody reads is an error.
    fn open_magic(&self, name: &OsStr) -> io::Result<File> {
        if !walk::is_proc(&self.file)? {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = sys::openat(&self.file, name, flags | OFlags::CLOEXEC, Mode::empty())?;
        let flags = sys::fcntl_getfl(&file)?;
        sys::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file.into())
    }
}

#[cfg(test)]
mod tests;
