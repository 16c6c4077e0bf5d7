// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the addresses of data refer to: by what a process had mapped at the time.
//!
//! A variable of a program or library is at a fixed distance from its code. So it is enough to know
//! that an address is in what the loader has mapped of the file, or in the memory behind that where
//! the variables are that begin as 0 (.bss); and where the code of the same file is. Which variable
//! it is, and whether the file has any there, is read from the file when the log ends.

use super::history::{Event, GENERATIONS, Happened, NO_FILE};
use super::{Known, MADE};
use klogger_log::code::{DataPlace, Datum};
use klogger_os::code_events::MapKind;

/// How often an address may become another one; later ones have no names.
const CHANGES_MAX: usize = 64;

/// A mapping.
#[derive(Clone, Copy)]
struct Map {
    start: u64,
    length: u64,
    offset: u64,
    file: u32,
    kind: MapKind,
}

impl Map {
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.length
    }

    fn end(&self) -> u64 {
        self.start.wrapping_add(self.length)
    }
}

/// The mappings of a process at some time and before, the latest first.
struct View(Vec<Map>);

impl Known {
    /// Of each process and address, one for each time at which it became something else.
    pub(super) fn data(&self, wanted: impl Iterator<Item = (u32, u64)>) -> Vec<Datum> {
        let mut all: Vec<Datum> = Vec::new();
        for (pid, address) in wanted {
            let begin = all.len();
            for time in self.changes(pid, address) {
                let at = self.data_at(pid, time, address);
                let before = all[begin..].last().map_or(DataPlace::Nowhere, |datum| datum.at);
                if at != before {
                    all.push(Datum { pid, address, from: time, at, name: None });
                }
            }
        }
        all
    }

    /// When it may have become something else.
    fn changes(&self, pid: u32, address: u64) -> Vec<u64> {
        let events = self.history.of(pid).into_iter().flat_map(|p| p.until(u64::MAX)).flatten();
        let concerns = |event: &&Event| match event.what {
            Happened::Map { start, length, .. } => address.wrapping_sub(start) < length,
            Happened::Exec | Happened::Fork { .. } => true,
        };
        let mut times: Vec<u64> = events.filter(concerns).map(|event| event.time).collect();
        times.reverse();
        times.dedup();
        let last = times.get(CHANGES_MAX).copied();
        times.truncate(CHANGES_MAX);
        times.extend(last);
        times
    }

    fn data_at(&self, pid: u32, time: u64, address: u64) -> DataPlace {
        let view = self.view(pid, time);
        match view.at(address) {
            Some(Map { file: NO_FILE, .. }) => view
                .before(address)
                .and_then(|loaded| self.image(&view, loaded, address))
                .unwrap_or_default(),
            Some(Map { start, offset, file, kind: MapKind::SharedData, .. }) => {
                let offset = offset.wrapping_add(address - start);
                DataPlace::Shared { file, offset }
            }
            Some(map) => self.image(&view, map, address).unwrap_or_default(),
            None => DataPlace::Nowhere,
        }
    }

    fn view(&self, pid: u32, time: u64) -> View {
        let (mut pid, mut until, mut maps) = (pid, time, Vec::new());
        for _ in 0..GENERATIONS {
            let Some(events) = self.history.of(pid).and_then(|p| p.until(until)) else { break };
            let mut parent = None;
            for event in events {
                match event.what {
                    Happened::Map { start, length, offset, file, kind } => {
                        maps.push(Map { start, length, offset, file, kind });
                    }
                    Happened::Exec => return View(maps),
                    Happened::Fork { parent: forked } => {
                        parent = Some((forked, event.time));
                        break;
                    }
                }
            }
            let Some(before) = parent else { break };
            (pid, until) = before;
        }
        View(maps)
    }

    /// An address in a program or library of which `part` is mapped: by its distance from the code
    /// of the same file, which loaders map first.
    fn image(&self, view: &View, part: Map, address: u64) -> Option<DataPlace> {
        let path = |file: u32| Some(&self.files.list.get(file as usize)?.path);
        let own = path(part.file)?;
        let is_code = |map: &&Map| {
            map.kind == MapKind::Code
                && map.start <= part.start
                && path(map.file).is_some_and(|other| other == own && !other.starts_with(MADE))
        };
        let mut code: Vec<&Map> = view.0.iter().filter(is_code).collect();
        code.sort_by_key(|map| std::cmp::Reverse(map.start));
        // What something else was mapped over since is of a file that is gone.
        let is_there = |map: &&&Map| {
            let latest = view.at(map.start);
            latest.is_some_and(|l| path(l.file) == path(map.file) && l.kind == MapKind::Code)
        };
        let Map { start, offset, file, .. } = **code.iter().find(is_there)?;
        Some(DataPlace::Image { file, segment: offset, distance: address - start })
    }
}

impl View {
    fn at(&self, address: u64) -> Option<Map> {
        self.0.iter().find(|map| map.has(address)).copied()
    }

    /// What the memory at an address was mapped behind, if that is .bss: loaders map this next
    /// after the variables that the file contains. If it is longer by now, it was joined with other
    /// memory behind it.
    fn before(&self, address: u64) -> Option<Map> {
        let at = self.0.iter().position(|map| map.has(address))?;
        let since = &self.0[at..];
        let start = since[0].start;
        let is_bss = |pair: &[Map]| {
            let [memory, loaded] = pair else { return false };
            let loads = loaded.kind == MapKind::Variables && loaded.file != NO_FILE;
            memory.file == NO_FILE && memory.start == start && loads && loaded.end() == start
        };
        let first = since.windows(2).position(is_bss)?;
        let (bss, loaded) = (since[first], since[first + 1]);
        // Other memory may have been mapped there since.
        let joined =
            |map: &Map| map.file == NO_FILE && map.start == start && map.length > bss.length;
        let is_bss_still = since[..first].iter().filter(|map| map.has(start)).all(joined);
        let there = self.at(start.checked_sub(1)?).is_some_and(|map| map.file == loaded.file);
        (is_bss_still && there).then_some(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_os::mapped::Mapped;

    const SEGMENT: u64 = 0x1000;

    struct Process(Known, u64);

    impl Process {
        fn new() -> Process {
            let mut known = Known::default();
            for path in ["/prog", "/lib", "/dev/shm/queue"] {
                known.files.of_data(path, String::new(), Mapped::default());
            }
            Process(known, 0)
        }

        fn happens(&mut self, pid: u32, what: Happened) -> u64 {
            self.1 += 10;
            self.0.add(pid, self.1, what);
            self.1
        }

        fn map(&mut self, kind: MapKind, file: u32, (start, end): (u64, u64), offset: u64) -> u64 {
            self.happens(7, Happened::Map { start, length: end - start, offset, file, kind })
        }

        /// As a loader does: code, data, and .bss.
        fn load(&mut self, file: u32, at: u64) {
            self.map(MapKind::Data, file, (at, at + 0x5000), 0);
            self.map(MapKind::Code, file, (at + 0x1000, at + 0x2000), SEGMENT);
            self.map(MapKind::Variables, file, (at + 0x3000, at + 0x4000), 0x2000);
            self.memory(at + 0x4000, at + 0x5000);
        }

        fn memory(&mut self, start: u64, end: u64) -> u64 {
            self.map(MapKind::Variables, NO_FILE, (start, end), 0)
        }

        fn at(&mut self, pid: u32, address: u64) -> Vec<(u64, DataPlace)> {
            self.0.history.sort();
            let all = self.0.data([(pid, address)].into_iter());
            all.into_iter().map(|datum| (datum.from, datum.at)).collect()
        }

        fn now(&mut self, address: u64) -> DataPlace {
            self.at(7, address).last().map(|(_, at)| *at).unwrap_or_default()
        }
    }

    fn image(file: u32, distance: u64) -> DataPlace {
        DataPlace::Image { file, segment: SEGMENT, distance }
    }

    #[test]
    fn data_and_bss_are_at_a_distance_from_the_code() {
        let mut process = Process::new();
        process.load(0, 0x40_0000);
        process.load(1, 0x7000_0000);
        // Protected when it is relocated.
        process.map(MapKind::Data, 1, (0x7000_3000, 0x7000_3800), 0x2000);
        assert_eq!(process.now(0x40_3010), image(0, 0x2010));
        assert_eq!(process.now(0x40_4010), image(0, 0x3010));
        assert_eq!(process.now(0x7000_3010), image(1, 0x2010));
        assert_eq!(process.now(0x7000_4010), image(1, 0x3010));
        assert_eq!(process.now(0x7000_5010), DataPlace::Nowhere);
        // The heap is joined with .bss.
        process.memory(0x40_4000, 0x40_9000);
        assert_eq!(process.now(0x40_4010), image(0, 0x3010));
        let shared = process.map(MapKind::SharedData, 2, (0x9000, 0xb000), 0x4000);
        let at = DataPlace::Shared { file: 2, offset: 0x4010 };
        assert_eq!(process.at(7, 0x9010), [(shared, at)]);
    }

    #[test]
    fn what_was_mapped_over_a_library_is_none() {
        let mut process = Process::new();
        process.load(0, 0x40_0000);
        process.load(1, 0x7000_0000);
        let other = process.memory(0x7000_3000, 0x7000_5000);
        for address in [0x7000_3010, 0x7000_4010] {
            assert_eq!(process.at(7, address).last(), Some(&(other, DataPlace::Nowhere)));
        }
        process.load(1, 0x7000_0000);
        assert_eq!(process.now(0x7000_4010), image(1, 0x3010));
        // Memory behind the part that cannot be written after relocation.
        process.map(MapKind::Data, 1, (0x7000_3000, 0x7000_3800), 0x2000);
        process.memory(0x7000_3800, 0x7000_5000);
        assert_eq!(process.now(0x7000_3810), DataPlace::Nowhere);
        process.load(1, 0x7000_0000);
        // Memory of the same size where .bss was.
        process.memory(0x7000_4000, 0x7000_5000);
        assert_eq!(process.now(0x7000_4010), DataPlace::Nowhere);
        // Another library, whose data are where the code of the first was.
        process.load(0, 0x6fff_e000);
        assert_eq!(process.now(0x7000_1010), image(0, 0x2010));
    }

    #[test]
    fn children_have_the_data_of_their_parents_until_they_run_another_program() {
        let mut process = Process::new();
        process.load(0, 0x40_0000);
        let fork = process.happens(8, Happened::Fork { parent: 7 });
        // What the parent maps later is not the child's.
        process.memory(0x40_3000, 0x40_4000);
        let own = Happened::Map {
            start: 0x40_4000,
            length: 0x1000,
            offset: 0,
            file: NO_FILE,
            kind: MapKind::Data,
        };
        let over = process.happens(8, own);
        let exec = process.happens(8, Happened::Exec);
        let none = DataPlace::Nowhere;
        assert_eq!(process.at(8, 0x40_3010), [(fork, image(0, 0x2010)), (exec, none)]);
        assert_eq!(process.at(8, 0x40_4010), [(fork, image(0, 0x3010)), (over, none)]);
    }

    #[test]
    fn memory_far_from_files_is_not_kept() {
        let mut process = Process::new();
        process.load(0, 0x40_0000);
        let count = |process: &mut Process| {
            process.0.history.of(7).unwrap().until(u64::MAX).unwrap().count()
        };
        let before = count(&mut process);
        process.memory(0x50_0000, 0x60_0000);
        assert_eq!(count(&mut process), before);
        process.memory(0x40_4800, 0x60_0000);
        assert_eq!(count(&mut process), before + 1);
    }
}
