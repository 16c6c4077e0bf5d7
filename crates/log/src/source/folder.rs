// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The segments of a recording as one source: each file has a range of offsets of its own.
//!
//! A recording may have thousands of segments, so only those are open that were read last.

use crate::damage::Damage;
use crate::lock::Writing;
use klogger_os::files::{look_in, open_seen_regular};
use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Files that are open at the same time. The streams of a log are read at about the same time of
/// the recording, so these are in few of its segments.
const OPEN_MAX: usize = 16;
/// Offsets between two files, so that the end of one is not the beginning of the next.
const GAP: u64 = 8;

/// One of the files, as it was when it was opened first.
pub(crate) struct Part {
    pub name: String,
    /// Offset of its first byte.
    pub begin: u64,
    pub length: u64,
    id: Id,
}

/// Of a file: device, inode, and when it was created, because inodes are used again.
type Id = (u64, u64, Option<SystemTime>);

fn id(found: &Metadata) -> Id {
    (found.dev(), found.ino(), found.created().ok())
}

pub(crate) struct Folder {
    /// Whatever becomes of its name.
    folder: File,
    /// In the order of their offsets.
    pub parts: Vec<Part>,
    /// Whether one was being written when it was opened.
    pub writing: Writing,
    /// By index into `parts`; the last that was used is the last.
    open: Mutex<VecDeque<(usize, File)>>,
}

impl Folder {
    pub fn new(path: &Path) -> io::Result<Folder> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let folder = File::options().read(true).custom_flags(flags).open(path)?;
        Ok(Folder { folder, parts: Vec::new(), writing: Writing::No, open: Mutex::default() })
    }

    /// Opens a file of the folder: a regular one, and no link. Others may have put it there.
    pub fn open_named(&self, name: &str) -> io::Result<File> {
        open_seen_regular(&look_in(&self.folder, name.as_ref())?)
    }

    /// Adds a file; returns the offset of its first byte.
    pub fn push(&mut self, name: String, length: u64, found: &Metadata) -> u64 {
        let begin = self.parts.last().map_or(0, |last| last.begin + last.length + GAP);
        self.parts.push(Part { name, begin, length, id: id(found) });
        begin
    }

    /// Bytes of all files.
    pub fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.length).sum()
    }

    /// Which file has this offset.
    pub fn part_at(&self, offset: u64) -> Option<usize> {
        self.parts.partition_point(|part| part.begin <= offset).checked_sub(1)
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let index = self.part_at(offset).ok_or(ErrorKind::UnexpectedEof)?;
        let at = offset - self.parts[index].begin;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found = open.iter().position(|(of, _)| *of == index);
        let entry = match found.and_then(|place| open.remove(place)) {
            Some(entry) => entry,
            None => (index, self.open(index)?),
        };
        let read = entry.1.read_exact_at(out, at);
        if open.len() >= OPEN_MAX {
            open.pop_front();
        }
        open.push_back(entry);
        read
    }

    /// Opens a file again, which must be the one that it was.
    fn open(&self, index: usize) -> io::Result<File> {
        let part = &self.parts[index];
        let file = self.open_named(&part.name)?;
        match id(&file.metadata()?) == part.id {
            true => Ok(file),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    pub fn removed(&self, offset: u64) -> Option<String> {
        let index = self.part_at(offset)?;
        let is_open = |open: &VecDeque<(usize, File)>| open.iter().any(|(of, _)| *of == index);
        if is_open(&self.open.lock().unwrap_or_else(PoisonError::into_inner)) {
            return None;
        }
        let gone = self.open(index).err()?.kind() == ErrorKind::NotFound;
        gone.then(|| self.parts[index].name.clone())
    }

    pub fn named(&self, damage: Damage) -> Damage {
        let Some(index) = self.part_at(damage.from).filter(|_| damage.file.is_none()) else {
            return damage;
        };
        let Part { name, begin, length, .. } = &self.parts[index];
        let from = damage.from - begin;
        let to = damage.to.saturating_sub(*begin).min(*length).max(from);
        Damage { file: Some(name.clone()), from, to, ..damage }
    }
}
