// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The way to a folder, one component after the other, as the kernel walks it, but with its rule
//! for links in folders such as /tmp (`fs.protected_symlinks`) everywhere: a link of somebody else
//! is not followed, because he chooses where it leads to.

use super::ours::{STICKY, belongs, is_friend, is_host, is_of_one};
use crate::files::look_in;
use rustix::fs::{self as sys, CWD, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const LINKS_MAX: u32 = 40;

/// Opens the folder of that path.
pub fn to_folder(path: &Path) -> io::Result<File> {
    let mut way = Way::new(path)?;
    while let Some(next) = way.pending.pop() {
        way.go(&next)?;
    }
    Ok(way.here)
}

/// Opens a folder in another one; `shown` is its path, for messages.
pub fn on(folder: &File, name: &OsStr, shown: &Path) -> io::Result<File> {
    let here = folder.try_clone()?;
    let pending = vec![Step::Down(name.into())];
    let shown = shown.parent().unwrap_or(Path::new("")).into();
    let mut way = Way { here, pending, links: 0, shown };
    while let Some(next) = way.pending.pop() {
        way.go(&next)?;
    }
    Ok(way.here)
}

/// Opens the folder of a file; returns it, the file's name, and the path of the folder. Links are
/// followed also in the last place, which may be free.
pub fn to_file(path: &Path) -> io::Result<(File, OsString, PathBuf)> {
    let mut way = Way::new(path)?;
    loop {
        let next = way.pending.pop().ok_or(ErrorKind::InvalidInput)?;
        match next {
            Step::Down(name) if way.pending.is_empty() => {
                let seen = match look_in(&way.here, &name) {
                    Err(e) if e.kind() == ErrorKind::NotFound => None,
                    seen => Some(seen?),
                };
                let link = match &seen {
                    Some(seen) => Some(seen.metadata()?).filter(Metadata::is_symlink),
                    None => None,
                };
                match (seen, link) {
                    (Some(seen), Some(link)) => {
                        way.check_link(&link, &name)?;
                        if way.is_magic()? {
                            return Ok((way.here, name, way.shown));
                        }
                        way.follow(&seen)?;
                    }
                    _ => return Ok((way.here, name, way.shown)),
                }
            }
            step => way.go(&step)?,
        }
    }
}

enum Step {
    Root,
    Up,
    Down(OsString),
}

struct Way {
    here: File,
    /// In the opposite order.
    pending: Vec<Step>,
    links: u32,
    shown: PathBuf,
}

/// For [`look_in`]: it names a folder and does no more, so that those that may not be read can be
/// passed.
fn open_folder(root: impl std::os::fd::AsFd, name: &OsStr) -> rustix::io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(root, name, flags, Mode::empty()).map(File::from)
}

impl Way {
    fn new(path: &Path) -> io::Result<Way> {
        let here = open_folder(CWD, ".".as_ref())?;
        let mut way = Way { here, pending: Vec::new(), links: 0, shown: PathBuf::new() };
        if path.as_os_str().is_empty() {
            return Err(ErrorKind::NotFound.into());
        }
        way.push(path);
        Ok(way)
    }

    fn push(&mut self, path: &Path) {
        let steps = path.components().rev().filter_map(|component| match component {
            Component::RootDir => Some(Step::Root),
            Component::ParentDir => Some(Step::Up),
            Component::Normal(name) => Some(Step::Down(name.into())),
            Component::CurDir | Component::Prefix(_) => None,
        });
        self.pending.extend(steps);
    }

    fn go(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Root => {
                self.here = open_folder(CWD, "/".as_ref())?;
                self.shown = PathBuf::from("/");
            }
            Step::Up => {
                self.here = open_folder(&self.here, "..".as_ref())?;
                self.shown.push("..");
            }
            Step::Down(name) => return self.down(name),
        }
        Ok(())
    }

    fn down(&mut self, name: &OsStr) -> io::Result<()> {
        let why = match open_folder(&self.here, name) {
            Ok(folder) => {
                self.here = folder;
                self.shown.push(name);
                return Ok(());
            }
            Err(why) => why,
        };
        // A link is none.
        if !matches!(why, rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) {
            return Err(why.into());
        }
        let seen = look_in(&self.here, name)?;
        let link = seen.metadata()?;
        if !link.is_symlink() {
            return Err(why.into());
        }
        self.check_link(&link, name)?;
        if self.is_magic()? {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.here = sys::openat(&self.here, name, flags, Mode::empty())?.into();
            self.shown.push(name);
            return Ok(());
        }
        self.follow(&seen)
    }

    /// Whether a link may be followed that is here.
    fn check_link(&mut self, link: &Metadata, name: &OsStr) -> io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(rustix::io::Errno::LOOP.into());
        }
        // The kernel makes them, and shows them as of the process's user.
        if self.is_magic()? {
            return Ok(());
        }
        let path = self.shown.join(name);
        let folder = self.here.metadata()?;
        let of_host = is_host(link.uid()) && is_of_one(&folder, link.uid());
        if !is_friend(link.uid()) && !of_host {
            return Err(belongs(&path, link, "and is not followed"));
        }
        // Otherwise others could have given this name to a link of ours.
        let sticky = folder.mode() & STICKY != 0;
        let keeps = is_friend(folder.uid()) || is_host(folder.uid());
        let why = match keeps && (is_of_one(&folder, folder.uid()) || sticky) {
            false => "other users may write to its folder",
            true if sticky && link.nlink() > 1 => "it has another name, too",
            true => return Ok(()),
        };
        let path = path.display();
        Err(io::Error::other(format!("the link {path} is not followed, because {why}")))
    }

    fn follow(&mut self, link: &File) -> io::Result<()> {
        let target = sys::readlinkat(link, "", Vec::new())?;
        self.push(Path::new(&OsString::from_vec(target.into_bytes())));
        Ok(())
    }

    /// Links of /proc lead to what a process has open, which their texts do not name.
    fn is_magic(&self) -> io::Result<bool> {
        is_proc(&self.here)
    }
}

pub fn is_proc(folder: &File) -> io::Result<bool> {
    Ok(sys::fstatfs(folder)?.f_type == libc::PROC_SUPER_MAGIC)
}
