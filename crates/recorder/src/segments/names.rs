// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The names of threads that a segment has from those before it.

use klogger_log::builtin::Builtin;
use klogger_log::event::EventRef;
use klogger_log::origin::Origin;
use klogger_log::preamble::{KnownThread, Preamble};
use klogger_log::process::Processes;
use klogger_log::record::Record;

/// Threads at most.
const THREADS_MAX: usize = 32 << 10;
/// Events about threads that wait to be put into the order of time.
const PENDING_MAX: usize = 16 << 10;

/// An event about a thread: its time, which of the preamble's events it is, and its record.
type Pending = (u64, usize, Vec<u8>);

/// The names of threads, as of the last block.
pub struct Names {
    /// By event id: which of the preamble's events, if it is about a thread.
    about: Vec<Option<usize>>,
    pending: Vec<Pending>,
    table: Processes,
}

impl Names {
    pub fn new(preamble: &Preamble) -> Names {
        let mut names =
            Names { about: Vec::new(), pending: Vec::new(), table: Processes::live(preamble) };
        names.learn(preamble);
        names
    }

    pub fn learn(&mut self, preamble: &Preamble) {
        let ids = preamble.events.iter().map(|e| usize::from(e.id) + 1).max().unwrap_or(0);
        self.about = vec![None; ids];
        for (index, event) in preamble.events.iter().enumerate() {
            let about = Builtin::of(event).is_some_and(|kind| !kind.is_of_any_stream());
            self.about[usize::from(event.id)] = about.then_some(index);
        }
        self.table.extend(preamble);
    }

    /// Notes the events about threads in a block.
    pub fn see<'a>(
        &mut self,
        records: impl Iterator<Item = Record<'a>>,
        time_base: u64,
        preamble: &Preamble,
    ) {
        for record in records {
            if let Some(Some(index)) = self.about.get(usize::from(record.id())) {
                self.pending.push((record.time(time_base), *index, record.bytes.to_vec()));
            }
        }
        if self.pending.len() >= PENDING_MAX {
            self.apply(preamble);
        }
    }

    /// The threads that had names at the last block, for a segment that begins at `start_ns`.
    pub fn known(&mut self, preamble: &Preamble, start_ns: u64) -> Vec<KnownThread> {
        self.apply(preamble);
        self.table.known(start_ns, THREADS_MAX)
    }

    /// Brings the table up to date.
    fn apply(&mut self, preamble: &Preamble) {
        self.pending.sort_by_key(|(time, ..)| *time);
        for (time_ns, index, bytes) in self.pending.drain(..) {
            let Some(layout) = preamble.events.get(index) else { continue };
            let origin = Origin::Recorder;
            self.table.see(&EventRef { layout, index, time_ns, origin, serial: 0, bytes: &bytes });
        }
    }
}
