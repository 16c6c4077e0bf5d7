// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which files have the variable: each is looked at once.

use klogger_os::files::{FileId, look_at, open_seen_regular};
use klogger_os::{maps, missed};
use klogger_programs::thread_local::{ThreadLocal, find};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The variable, as the specification calls it.
const NAME: &str = "otel_thread_ctx_v1";
/// Files that are remembered.
const FILES: usize = 65536;

/// A file, and when it was changed: its number may be that of a file that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    id: FileId,
    changed: (i64, i64),
    size: u64,
}

#[derive(Default)]
pub struct Files {
    known: HashMap<Version, Option<Arc<ThreadLocal>>>,
}

impl Files {
    /// The variable that a file has which a process has mapped there.
    pub fn variable_in(&mut self, pid: u32, (start, end): (u64, u64)) -> Option<Arc<ThreadLocal>> {
        let found = look_at(maps::link_to(pid, start, end));
        let seen = missed::noting_unless_gone("/proc/PID/map_files", found)?;
        let about = seen.metadata().ok()?;
        let changed = (about.ctime(), about.ctime_nsec());
        let version = Version { id: FileId::of(&about), changed, size: about.len() };
        if let Some(known) = self.known.get(&version) {
            return known.clone();
        }
        // What is no program has none, whatever is wrong with it.
        let file = open_seen_regular(&seen).ok();
        let found = file.and_then(|file| find(file, NAME).ok().flatten()).map(Arc::new);
        if self.known.len() >= FILES {
            self.known.clear();
        }
        self.known.insert(version, found.clone());
        found
    }
}
