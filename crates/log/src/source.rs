// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Where a log is read from: a file, memory, or the files of a folder.

mod folder;

pub(crate) use self::folder::Folder;
use crate::damage::Damage;
use crate::lock::{self, Writing};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

pub(crate) enum Source {
    /// An open file, its length, and whether it was being written when it was opened.
    File(File, u64, Writing),
    Memory(Vec<u8>),
    /// Several files, one behind the other.
    Folder(Folder),
}

impl Source {
    pub fn file(file: File) -> io::Result<Source> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory"));
        }
        if !meta.is_file() {
            return Err(io::Error::other(
                "a log is read in any order, so it must be a regular file",
            ));
        }
        // The lock is queried before the length: a log that was not locked then is complete.
        let writing = lock::writing(&file);
        let length = file.metadata()?.len();
        Ok(Source::File(file, length, writing))
    }

    /// Length in bytes when it was opened.
    pub fn length(&self) -> u64 {
        match self {
            Source::File(_, length, _) => *length,
            Source::Memory(bytes) => bytes.len() as u64,
            Source::Folder(folder) => folder.length(),
        }
    }

    /// Whether it was being written when it was opened.
    pub fn writing(&self) -> Writing {
        match self {
            Source::File(_, _, writing) => *writing,
            Source::Memory(_) => Writing::No,
            Source::Folder(folder) => folder.writing,
        }
    }

    /// Fills `out` from `offset` on, or fails if the source ends before.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Source::File(file, ..) => file.read_exact_at(out, offset),
            Source::Memory(bytes) => {
                let from =
                    usize::try_from(offset).ok().and_then(|at| bytes.get(at..)?.get(..out.len()));
                out.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Source::Folder(folder) => folder.read(offset, out),
        }
    }

    /// Damage with the file that it is in, if there are several, and the place in this file.
    pub fn named(&self, damage: Damage) -> Damage {
        match self {
            Source::Folder(folder) => folder.named(damage),
            Source::File(..) | Source::Memory(_) => damage,
        }
    }

    /// The name of the file at `offset`, if it was there and is not any more.
    pub fn removed(&self, offset: u64) -> Option<String> {
        match self {
            Source::Folder(folder) => folder.removed(offset),
            Source::File(..) | Source::Memory(_) => None,
        }
    }
}
