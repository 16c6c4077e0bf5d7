// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Files that processes have mapped, whatever their names lead to by now.

use crate::files::{FileId, inherited_file, look_at};
use crate::maps;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Which file was mapped.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// Unknown, if the build id is known.
    pub id: Option<FileId>,
    /// The process that has mapped it, and from where to where.
    pub by: (u32, u64, u64),
    /// Kept, because its name may be gone when it is needed. Only for inspection (O_PATH).
    pub held: Option<Arc<File>>,
}

/// The same for a process that inherits the descriptors, by their numbers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Passed {
    id: Option<FileId>,
    by: (u32, u64, u64),
    held: Option<RawFd>,
}

impl Passed {
    pub fn of(mapped: &Mapped) -> Passed {
        let held = mapped.held.as_ref().map(|file| file.as_raw_fd());
        Passed { id: mapped.id, by: mapped.by, held }
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.held.into_iter()
    }

    /// In the process that has inherited them.
    pub fn received(self) -> Mapped {
        let held = self.held.and_then(|number| inherited_file(number).ok()).map(Arc::new);
        Mapped { id: self.id, by: self.by, held }
    }
}

impl Mapped {
    /// The file for inspection (O_PATH): the one that was kept, or from the process, if it still
    /// lives. The file system is not asked, which may not answer. If only the build id is known, it
    /// is to be checked: the process may have mapped another file there meanwhile.
    pub fn find(&self) -> Option<Arc<File>> {
        if self.held.is_some() {
            return self.held.clone();
        }
        let (pid, start, end) = self.by;
        let at = look_at(maps::link_to(pid, start, end));
        let is_it = |file: &File| match self.id {
            Some(id) => FileId::known(file).is_ok_and(|known| id.is(known)),
            None => true,
        };
        // What was split, as by mprotect(), has another name there.
        let exe = || look_at(format!("/proc/{pid}/exe")).ok().filter(|_| self.id.is_some());
        at.ok().filter(is_it).or_else(|| exe().filter(is_it)).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_program_is_found_by_its_number_only() {
        let id = FileId::of(&std::fs::metadata("/proc/self/exe").unwrap());
        let by = (std::process::id(), 0, 0);
        assert!(Mapped { id: Some(id), by, held: None }.find().is_some());
        let other = FileId { inode: id.inode + 1, ..id };
        assert!(Mapped { id: Some(other), by, held: None }.find().is_none());
        assert!(Mapped { id: None, by, held: None }.find().is_none());
    }
}
