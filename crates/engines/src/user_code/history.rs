// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What happened to the memory of processes, as far as it is kept. Programs decide how much they
//! map, and how many they are: each process has a share of the memory, and all have a limit. What a
//! process has mapped too much costs its own past, not the names of others.

use klogger_os::code_events::MapKind;
use std::collections::{BTreeMap, HashMap};

/// Bytes that are kept of a process, and of all.
const OF_PROCESS: usize = 4 << 20;
const OF_ALL: usize = 128 << 20;
/// Of a process without any event.
const PROCESS: usize = 256;

/// In the place of the number of a file.
pub const NO_FILE: u32 = u32::MAX;
/// How far a process is followed through the processes that it was forked from.
pub const GENERATIONS: usize = 64;

/// Something that happened to a process. What was there before the recording has time 0.
#[derive(Clone, Copy)]
pub struct Event {
    pub time: u64,
    pub what: Happened,
}

#[derive(Clone, Copy)]
pub enum Happened {
    /// `file`: [`NO_FILE`] if it is memory.
    Map {
        start: u64,
        length: u64,
        offset: u64,
        file: u32,
        kind: MapKind,
    },
    Exec,
    Fork {
        parent: u32,
    },
}

/// What happened to a process.
#[derive(Default)]
pub struct Process {
    /// In the order in which they were taken; sorted by time before they are looked at.
    events: Vec<(Event, usize)>,
    bytes: usize,
    /// Before this time it is not known what was mapped.
    from: u64,
    /// Where files are mapped, or were, by this process and by those that it was forked from.
    files: Ranges,
    parent: Option<u32>,
}

/// Of each process.
#[derive(Default)]
pub struct History {
    processes: HashMap<u32, Process>,
    bytes: usize,
    /// Events that were not kept.
    forgotten: u64,
}

impl Process {
    /// The latest event first, from those until this time; `None`: they are not known.
    pub fn until(&self, time: u64) -> Option<impl Iterator<Item = &Event>> {
        let known = time >= self.from;
        let events = self.events.iter().map(|(event, _)| event).rev();
        known.then(|| events.filter(move |event| event.time <= time))
    }

    fn sort(&mut self) {
        self.events.sort_by_key(|(event, _)| event.time);
    }

    /// Forgets the past of the older half of the events: of these, what is still mapped after them
    /// is kept, if it is not too much. Returns how many are gone.
    fn forget(&mut self) -> u64 {
        self.sort();
        let before = self.events.len();
        let rest = self.events.split_off(before / 2);
        self.from = self.events.last().map_or(self.from, |(event, _)| event.time);
        let mut kept = Vec::new();
        let (mut later, mut bytes) = (Ranges::default(), 0);
        for (event, size) in self.events.drain(..).rev() {
            if bytes + size > OF_PROCESS / 4 {
                break;
            }
            let is_kept = match event.what {
                Happened::Map { start, length, .. } => later.add(start, length),
                Happened::Exec | Happened::Fork { .. } => true,
            };
            if is_kept {
                bytes += size;
                kept.push((event, size));
            }
            if !matches!(event.what, Happened::Map { .. }) {
                break;
            }
        }
        kept.reverse();
        kept.extend(rest);
        self.events = kept;
        self.files = Ranges::default();
        for (event, _) in &self.events {
            event.what.note(&mut self.files, &mut self.parent);
        }
        self.bytes = self.events.iter().map(|(_, size)| size).sum();
        (before - self.events.len()) as u64
    }
}

impl Happened {
    fn note(self, files: &mut Ranges, parent: &mut Option<u32>) {
        match self {
            Happened::Map { file: NO_FILE, .. } => {}
            Happened::Map { start, length, .. } => drop(files.add(start, length)),
            Happened::Exec => (*files, *parent) = Default::default(),
            Happened::Fork { parent: forked } => {
                (*files, *parent) = (Ranges::default(), Some(forked))
            }
        }
    }
}

/// Ranges of addresses.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// False: all of it was there.
    fn add(&mut self, start: u64, length: u64) -> bool {
        let (mut start, mut end) = (start, start.saturating_add(length));
        let before = self.0.range(..=start).next_back().map(|(from, to)| (*from, *to));
        if before.is_some_and(|(_, to)| to >= end) {
            return false;
        }
        let touches = self.0.range(start..=end).map(|(from, _)| *from);
        let from = before.filter(|(_, to)| *to >= start).map(|(from, _)| from);
        for from in touches.chain(from).collect::<Vec<_>>() {
            start = start.min(from);
            end = end.max(self.0.remove(&from).unwrap_or(end));
        }
        self.0.insert(start, end);
        true
    }
}

impl Ranges {
    fn touch(&self, start: u64, end: u64) -> bool {
        self.0.range(..=end).next_back().is_some_and(|(_, to)| *to >= start)
    }
}

impl History {
    /// Whether a mapping of memory is of interest: it is where a file is mapped or was, or behind
    /// one, where a program has variables that its file does not contain.
    pub fn is_at_file(&self, pid: u32, start: u64, length: u64) -> bool {
        let mut next = pid;
        for _ in 0..GENERATIONS {
            // Of one that was forgotten nothing is known.
            let Some(process) = self.processes.get(&next) else { return next != pid };
            if process.files.touch(start, start.saturating_add(length)) {
                return true;
            }
            let Some(parent) = process.parent else { return false };
            next = parent;
        }
        true
    }

    /// `bytes`: what the event needs besides its own size. Returns whether files may have become
    /// unused.
    pub fn add(
        &mut self,
        pid: u32,
        event: Event,
        bytes: usize,
        lives: impl Fn(u32) -> bool,
    ) -> bool {
        let size = size_of::<(Event, usize)>() + bytes;
        let added = if self.processes.contains_key(&pid) { size } else { size + PROCESS };
        let process = self.processes.entry(pid).or_default();
        process.events.push((event, size));
        event.what.note(&mut process.files, &mut process.parent);
        process.bytes += size;
        self.bytes += added;
        let mut forgot = false;
        if process.bytes > OF_PROCESS {
            let before = process.bytes;
            self.forgotten += process.forget();
            self.bytes -= before - process.bytes;
            forgot = true;
        }
        if self.bytes > OF_ALL {
            self.forget_processes(pid, lives);
            forgot = true;
        }
        forgot
    }

    /// Forgets a quarter: processes that have ended, the oldest first; then those of which there is
    /// most.
    fn forget_processes(&mut self, but: u32, lives: impl Fn(u32) -> bool) {
        let key = |(pid, process): (&u32, &Process)| {
            let last = process.events.iter().map(|(event, _)| event.time).max();
            let key = match lives(*pid) {
                false => (false, last.unwrap_or_default()),
                true => (true, u64::MAX - process.bytes as u64),
            };
            (key, *pid)
        };
        let mut order: Vec<_> = self.processes.iter().map(key).collect();
        order.sort_unstable();
        for (_, pid) in order.into_iter().filter(|(_, pid)| *pid != but) {
            if self.bytes <= OF_ALL / 4 * 3 {
                break;
            }
            if let Some(process) = self.processes.remove(&pid) {
                self.bytes -= process.bytes + PROCESS;
                self.forgotten += process.events.len() as u64;
            }
        }
    }

    pub fn sort(&mut self) {
        self.processes.values_mut().for_each(Process::sort);
    }

    pub fn of(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The files that events name.
    pub fn files(&self) -> impl Iterator<Item = u32> {
        let events = self.processes.values().flat_map(|process| &process.events);
        events.filter_map(|(event, _)| match event.what {
            Happened::Map { file, .. } => Some(file).filter(|file| *file != NO_FILE),
            Happened::Exec | Happened::Fork { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(time: u64, start: u64, file: u32) -> Event {
        Event {
            time,
            what: Happened::Map { start, length: 0x1000, offset: 0, file, kind: MapKind::Code },
        }
    }

    fn file_at(process: &Process, time: u64, address: u64) -> Option<u32> {
        process.until(time)?.find_map(|event| match event.what {
            Happened::Map { start, length, file, .. } => {
                (address.wrapping_sub(start) < length).then_some(file)
            }
            _ => None,
        })
    }

    #[test]
    fn a_process_that_maps_without_end_keeps_what_is_mapped() {
        let mut history = History::default();
        history.add(7, map(1, 0x40_0000, 1), 0, |_| true);
        let count = 1_000_000;
        for time in 2..count {
            history.add(7, map(time, 0x7000_0000, 2), 0, |_| true);
            assert!(history.bytes <= OF_PROCESS + PROCESS);
        }
        let process = history.of(7).unwrap();
        assert_eq!(process.events.len() as u64 + history.forgotten(), count - 1);
        assert_eq!(file_at(process, count, 0x40_0010), Some(1));
        assert_eq!(file_at(process, count, 0x7000_0010), Some(2));
        // What was there in the past is not known any more, and is not guessed.
        assert!(process.until(5).is_none());
    }

    #[test]
    fn what_is_mapped_at_ever_new_addresses_is_bounded_too() {
        let mut history = History::default();
        for n in 0..300_000 {
            history.add(7, map(n, n << 13, n as u32), 200, |_| true);
        }
        assert!(history.bytes <= OF_PROCESS + PROCESS);
        let process = history.of(7).unwrap();
        assert_eq!(file_at(process, 300_000, 299_999 << 13), Some(299_999));
        assert_eq!(file_at(process, 300_000, 0), None);
    }

    #[test]
    fn of_many_processes_those_that_have_ended_are_forgotten_first() {
        let mut history = History::default();
        let lives = |pid| pid % 2 == 0;
        let mut pid = 2;
        while history.forgotten() == 0 {
            pid += 1;
            history.add(pid, map(pid.into(), 0, pid), 4096, lives);
            assert!(history.bytes <= OF_ALL + 2 * 4096);
        }
        assert!(history.bytes <= OF_ALL / 4 * 3);
        assert!((3..pid).all(|pid| history.of(pid).is_some() || !lives(pid)));
        assert!(history.of(3).is_none() && history.of(4).is_some());
    }

    #[test]
    fn ranges_are_joined() {
        let mut ranges = Ranges::default();
        assert!(ranges.add(10, 10) && ranges.add(30, 10) && !ranges.add(12, 5));
        assert!(ranges.add(15, 20) && !ranges.add(10, 30) && ranges.add(5, 40));
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(5, 45)]);
    }
}
