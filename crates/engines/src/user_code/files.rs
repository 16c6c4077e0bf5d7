// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The files that processes map, by their numbers in a log. Names are looked up when a recording
//! ends; until then a file may be deleted or replaced, and the processes that have mapped it may
//! have ended. So code is kept open when it is first seen.

use super::history::NO_FILE;
use klogger_log::code::File;
use klogger_os::code_events::MapKind;
use klogger_os::files::{self, FileId};
use klogger_os::mapped::Mapped;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How the code is called that a process has made.
pub(super) const MADE: &str = "[perf map ";
/// What the kernel adds to a path that leads to the file no more.
const DELETED: &str = " (deleted)";
/// Files that are kept open; and beyond how many only those that no name leads to any more.
const HELD_MAX: usize = 256;
const NAMED_MAX: usize = HELD_MAX / 2;

/// The path, the build id, and which file it is.
type Key = (String, String, Option<FileId>);

/// What came of looking at a file.
enum Look {
    /// It is open from now on, or was before.
    Kept(Arc<std::fs::File>),
    /// A name leads to it, and it is not kept.
    Left,
    /// Its process has ended, or too many are kept, or it was there before.
    Gone,
}

#[derive(Default)]
pub(super) struct Files {
    pub list: Vec<File>,
    /// Of each of them.
    pub mapped: Vec<Mapped>,
    numbers: HashMap<Key, u32>,
    /// Of the lists, what no process has mapped any more.
    unused: Vec<u32>,
    held: usize,
    /// Those that were found, and are not kept open while a name leads to them.
    left: HashSet<u32>,
    /// Of the recorder's root directory, once it is known.
    root_mount: Option<u64>,
}

/// When a file was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// There may be many: only those that no name leads to are kept.
    BeforeRecording,
    WhileRecording,
}

impl Files {
    /// The number of a file of code. Code that belongs to none was made by the program.
    pub fn number(&mut self, path: &str, build_id: String, mut mapped: Mapped, when: When) -> u32 {
        let made = format!("{MADE}{}]", mapped.by.0);
        if path == "[vdso]" || !is_file(path) {
            let path = if path == "[vdso]" { path.into() } else { made };
            return self.numbered((path, build_id, mapped.id), mapped);
        }
        let own = path.strip_suffix(DELETED).unwrap_or(path);
        let is_named = own.len() == path.len();
        let key = (own.to_string(), build_id, mapped.id);
        let look = self.look(&key, &mapped, is_named, when);
        let is_left = matches!(look, Look::Left);
        if let Look::Kept(held) = look {
            mapped.held = Some(held);
        }
        // Compilers at run time make code in such files as well, which have no functions.
        let has_functions =
            || !key.1.is_empty() || mapped.held.as_ref().is_some_and(|held| is_elf(held));
        if own.starts_with("/memfd:") && !has_functions() {
            let (_, build_id, id) = key;
            return self.numbered((made, build_id, id), Mapped { held: None, ..mapped });
        }
        let number = self.numbered(key, mapped);
        if is_left {
            self.left.insert(number);
        }
        number
    }

    /// The same of data, which are memory if they belong to none. No file is kept for them: those
    /// of programs are kept for their code.
    pub fn of_data(&mut self, path: &str, build_id: String, mapped: Mapped) -> u32 {
        if !is_file(path) {
            return NO_FILE;
        }
        let path = path.strip_suffix(DELETED).unwrap_or(path);
        self.numbered((path.into(), build_id, mapped.id), mapped)
    }

    /// What is open cannot be unmounted. So a file with a name is kept only where the recorder's
    /// own root directory is, which cannot be unmounted anyway.
    fn look(&mut self, key: &Key, mapped: &Mapped, is_named: bool, when: When) -> Look {
        if let Some(number) = self.numbers.get(key) {
            if let Some(held) = &self.mapped[*number as usize].held {
                return Look::Kept(held.clone());
            }
            if is_named && self.left.contains(number) {
                return Look::Left;
            }
        }
        if is_named && when == When::BeforeRecording {
            return Look::Gone;
        }
        if self.held >= if is_named { NAMED_MAX } else { HELD_MAX } {
            return Look::Gone;
        }
        let Some(found) = mapped.find() else { return Look::Gone };
        if !is_named {
            return Look::Kept(found);
        }
        let root = || files::look_at("/").and_then(|root| files::mount_number(&root)).ok();
        self.root_mount = self.root_mount.or_else(root);
        let mount = files::mount_number(&found).ok();
        match mount.is_some() && mount == self.root_mount {
            true => Look::Kept(found),
            false => Look::Left,
        }
    }

    fn numbered(&mut self, key: Key, mapped: Mapped) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            let known = &mut self.mapped[*number as usize];
            if known.held.is_none() {
                // Of several processes the last one is the most likely to live when it is asked.
                self.held += usize::from(mapped.held.is_some());
                *known = mapped;
            }
            return *number;
        }
        let (path, build_id, _) = key.clone();
        self.held += usize::from(mapped.held.is_some());
        let file = File { path, build_id, loads: Vec::new() };
        let number = self.unused.pop().unwrap_or_else(|| {
            self.list.push(File::default());
            self.mapped.push(Mapped::default());
            self.list.len() as u32 - 1
        });
        self.list[number as usize] = file;
        self.mapped[number as usize] = mapped;
        self.numbers.insert(key, number);
        number
    }

    /// Forgets all other files.
    pub fn keep_only(&mut self, used: impl Iterator<Item = u32>) {
        let used: HashSet<u32> = used.collect();
        self.numbers.retain(|_, number| used.contains(number));
        self.left.retain(|number| used.contains(number));
        self.unused = (0..self.list.len() as u32).filter(|n| !used.contains(n)).collect();
        for number in &self.unused {
            let number = *number as usize;
            self.list[number] = File::default();
            self.held -= usize::from(self.mapped[number].held.is_some());
            self.mapped[number] = Mapped::default();
        }
    }
}

pub(super) fn kind_of(mode: &str) -> MapKind {
    match mode {
        _ if mode.contains('x') => MapKind::Code,
        _ if mode.ends_with('s') => MapKind::SharedData,
        _ if mode.contains('w') => MapKind::Variables,
        _ => MapKind::Data,
    }
}

/// Whether what is mapped is a file, and not memory.
fn is_file(path: &str) -> bool {
    path.starts_with('/') && !["//anon", "/dev/zero"].iter().any(|p| path.starts_with(p))
}

/// Only asked of files in memory.
fn is_elf(held: &std::fs::File) -> bool {
    let mut begin = [0; 4];
    let file = files::open_seen_regular(held);
    file.and_then(|file| file.read_exact_at(&mut begin, 0)).is_ok() && begin == *b"\x7fELF"
}
