// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the addresses of user stacks refer to. It is recorded what processes map as code, because
//! many have ended when the stacks are read.

mod data;
mod files;
mod history;

use files::{Files, MADE, When, kind_of};
use history::{Event, GENERATIONS, Happened, History, NO_FILE};
use klogger_log::code::{Code, Datum, Place, Raw, UserStack, Word};
use klogger_log::seen::Seen;
use klogger_os::code_events::{CodeEvent, CodeEvents, MapKind, What};
use klogger_os::mapped::Mapped;
use klogger_os::maps::{self, Line};
use klogger_os::roots::Roots;
use klogger_os::{Error, machine, processes};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the kernel's records are taken. Its rings have space for some thousand on each CPU.
const INTERVAL: Duration = Duration::from_millis(50);

/// A stack as the engine has it.
pub struct Stack {
    pub number: u64,
    /// Of its first hit, in ns.
    pub time: u64,
    pub pid: u32,
    pub cut: bool,
    /// The innermost first.
    pub addresses: Vec<u64>,
    /// The frame pointer, in bytes above the stack pointer, if it points into the stack.
    pub frame: Option<u64>,
    /// Words that may be return addresses, and saved frame pointers.
    pub words: Vec<Word<u64>>,
}

/// User stacks, and what is missing.
pub struct UserCode {
    pub code: Code,
    /// Of each file of `code`.
    pub mapped: Vec<Mapped>,
    /// Why stacks have no number, and how many.
    pub unnumbered: Vec<(&'static str, u64)>,
    /// Records of what processes have mapped that were lost.
    pub lost: u64,
    /// Those that were not kept, because processes have mapped too much.
    pub forgotten: u64,
    /// Where the files of processes in containers are.
    pub roots: Roots,
    shared: Arc<Shared>,
}

/// What processes map, recorded by a thread.
pub struct Mappings {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Records are taken with the lock.
struct Shared {
    known: Mutex<Known>,
    events: CodeEvents,
    end: AtomicBool,
}

#[derive(Default)]
struct Known {
    history: History,
    lost: u64,
    files: Files,
    roots: Roots,
}

impl Mappings {
    /// Begins to record. What processes had mapped before is read by the thread. `data`: what
    /// addresses of data refer to is wanted as well.
    pub fn watch(data: bool) -> Result<Mappings, Error> {
        let what = if data { "user stacks and names of data" } else { "user stacks" };
        let cannot = |e| {
            Error::new(format!("cannot record what processes map, for {what}: {e}"))
                .help(format!("{what} need CAP_PERFMON and perf events: record without them"))
        };
        let cpus = machine::online_cpus()?.into_iter().max().unwrap_or_default() as usize + 1;
        let events = CodeEvents::new(cpus, data).map_err(cannot)?;
        let (known, end) = Default::default();
        let shared = Arc::new(Shared { known, events, end });
        let theirs = shared.clone();
        let thread = thread::Builder::new().name("klogger-maps".into()).spawn(move || {
            theirs.lock().read_all(data);
            while !theirs.end.load(Ordering::Relaxed) {
                drop(theirs.take());
                thread::sleep(INTERVAL);
            }
        });
        Ok(Mappings { shared, thread: Some(thread.map_err(cannot)?) })
    }

    /// What the addresses of `stacks` refer to. Recording goes on: segments, snapshots and whoever
    /// asks for a stack come before the end.
    pub fn code(&self, stacks: &[Stack], unnumbered: Vec<(&'static str, u64)>) -> UserCode {
        let mut known = self.shared.take();
        known.history.sort();
        let stacks = stacks.iter().map(|stack| known.stack(stack)).collect();
        let code = Code { files: known.files.list.clone(), stacks, ..Code::default() };
        UserCode {
            code,
            mapped: known.files.mapped.clone(),
            unnumbered,
            lost: known.lost,
            forgotten: known.history.forgotten(),
            roots: known.roots.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl UserCode {
    /// Adds what the addresses of data refer to that events have.
    pub fn locate(&mut self, seen: &Seen) {
        let mut known = self.shared.take();
        known.history.sort();
        let (mut data, mut numbers) = (known.data(seen.of_programs()), HashMap::new());
        // A file may have another number by now than when the stacks were read.
        for file in data.iter_mut().filter_map(Datum::file_mut) {
            *file = *numbers.entry(*file).or_insert_with(|| {
                self.code.files.push(known.files.list[*file as usize].clone());
                self.mapped.push(known.files.mapped[*file as usize].clone());
                self.code.files.len() as u32 - 1
            });
        }
        self.code.data = data;
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has come, and returns what is known then.
    fn take(&self) -> MutexGuard<'_, Known> {
        let mut known = self.lock();
        known.take(&self.events);
        known
    }
}

impl Known {
    /// What all processes have mapped now.
    fn read_all(&mut self, data: bool) {
        for pid in processes::all_processes() {
            // It may have ended.
            let Ok(text) = maps::text_of(pid) else { continue };
            self.roots.look(pid);
            for Line { start, end, mode, offset, file, path } in text.lines().filter_map(Line::read)
            {
                let kind = kind_of(mode);
                if kind != MapKind::Code && !data {
                    continue;
                }
                let Some(length) = end.checked_sub(start) else { continue };
                let (id, by) = (Some(file).filter(|file| file.inode != 0), (pid, start, end));
                let mapped = Mapped { id, by, held: None };
                let file = self.file(path, String::new(), mapped, kind, When::BeforeRecording);
                self.add(pid, 0, Happened::Map { start, length, offset, file, kind });
            }
        }
    }

    fn take(&mut self, events: &CodeEvents) {
        let mut found = Vec::new();
        self.lost += events.take(&mut found);
        for CodeEvent { time, pid, what } in found {
            let what = match what {
                What::Exec => {
                    self.roots.look(pid);
                    Happened::Exec
                }
                What::Fork { parent } => {
                    self.roots.fork(pid, parent);
                    Happened::Fork { parent }
                }
                What::Map { start, length, offset, kind, path, build_id, file } => {
                    let build_id = build_id.iter().map(|b| format!("{b:02x}")).collect();
                    let by = (pid, start, start.wrapping_add(length));
                    let mapped = Mapped { id: file, by, held: None };
                    let file = self.file(&path, build_id, mapped, kind, When::WhileRecording);
                    Happened::Map { start, length, offset, file, kind }
                }
            };
            self.add(pid, time, what);
        }
    }

    /// The number of a file that a process maps.
    fn file(
        &mut self,
        path: &str,
        build_id: String,
        mapped: Mapped,
        kind: MapKind,
        when: When,
    ) -> u32 {
        if kind != MapKind::Code {
            return self.files.of_data(path, build_id, mapped);
        }
        let pid = mapped.by.0;
        let number = self.files.number(path, build_id, mapped, when);
        if self.files.list[number as usize].path.starts_with(MADE) {
            self.roots.look_writer(pid);
        }
        number
    }

    fn add(&mut self, pid: u32, time: u64, what: Happened) {
        if let Happened::Map { start, length, file: NO_FILE, .. } = what
            && !self.history.is_at_file(pid, start, length)
        {
            return;
        }
        let path = match what {
            Happened::Map { file, .. } => self.files.list.get(file as usize),
            Happened::Exec | Happened::Fork { .. } => None,
        };
        let bytes = path.map_or(0, |file| file.path.len());
        if self.history.add(pid, Event { time, what }, bytes, processes::exists) {
            self.files.keep_only(self.history.files());
            let history = &self.history;
            self.roots.keep_only(|pid| history.of(pid).is_some());
        }
    }

    fn stack(&self, stack: &Stack) -> UserStack {
        let place = |(n, address): (usize, &u64)| {
            // In the call, which may be the last instruction of its function.
            self.place(stack, address.wrapping_sub(u64::from(n > 0)))
        };
        let word = |word: &Word<u64>| word.with_place(|address| place((1, &address)));
        let words = stack.words.iter().map(word).collect();
        UserStack {
            number: stack.number,
            pid: stack.pid,
            cut: stack.cut,
            is_whole: false,
            frames: stack.addresses.iter().enumerate().map(place).collect(),
            gaps: None,
            raw: Some(Raw { kernel: Vec::new(), frame: stack.frame, words }),
        }
    }

    /// The mapping that an address was in: the latest one before the stack was taken.
    fn place(&self, stack: &Stack, address: u64) -> Place {
        let (mut pid, mut until) = (stack.pid, stack.time);
        for _ in 0..GENERATIONS {
            let Some(events) = self.history.of(pid).and_then(|p| p.until(until)) else { break };
            let mut parent = None;
            for event in events {
                match event.what {
                    Happened::Map { kind, .. } if kind != MapKind::Code => {}
                    Happened::Map { start, length, offset, file, .. } => {
                        if address.wrapping_sub(start) < length {
                            return self.place_in(file, address, address - start + offset);
                        }
                    }
                    Happened::Exec => return Place::Address(address),
                    Happened::Fork { parent: forked } => {
                        parent = Some((forked, event.time));
                        break;
                    }
                }
            }
            let Some(before) = parent else { break };
            (pid, until) = before;
        }
        Place::Address(address)
    }

    fn place_in(&self, file: u32, address: u64, offset: u64) -> Place {
        match self.files.list.get(file as usize) {
            Some(made) if made.path.starts_with(MADE) => Place::File(file, address),
            _ => Place::File(file, offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_log::code::WordIs;

    fn known(events: &[(u32, u64, Happened)]) -> Known {
        let mut known = Known::default();
        for (pid, path) in [(0, "/a"), (0, "/b"), (5, "//anon")] {
            let mapped = Mapped { by: (pid, 0, 0), ..Mapped::default() };
            known.files.number(path, String::new(), mapped, When::WhileRecording);
        }
        events.iter().for_each(|(pid, time, what)| known.add(*pid, *time, *what));
        known
    }

    #[test]
    fn an_address_is_in_what_was_mapped_at_the_time() {
        let map = |start, file| {
            let kind = MapKind::Code;
            Happened::Map { start, length: 0x100, offset: 0x40, file, kind }
        };
        let known = known(&[
            (5, 0, map(0x1000, 0)),
            (5, 20, map(0x1000, 1)),
            (5, 30, map(0x3000, 2)),
            (6, 25, Happened::Fork { parent: 5 }),
            (6, 28, map(0x2000, 0)),
            (6, 40, Happened::Exec),
            (6, 41, map(0x2000, 1)),
        ]);
        let at = |pid, time, address| {
            let addresses = vec![address];
            let words = vec![Word { at: 8, is: WordIs::Return(address + 1) }];
            let stack = Stack { number: 1, time, pid, cut: false, addresses, frame: None, words };
            let stack = known.stack(&stack);
            let expected = [Word { at: 8, is: WordIs::Return(stack.frames[0]) }];
            assert_eq!(stack.raw.unwrap().words, expected);
            stack.frames[0]
        };
        assert_eq!(at(5, 10, 0x1010), Place::File(0, 0x50));
        assert_eq!(at(5, 21, 0x1010), Place::File(1, 0x50));
        assert_eq!(at(5, 31, 0x3010), Place::File(2, 0x3010));
        assert_eq!(at(6, 30, 0x1010), Place::File(1, 0x50));
        assert_eq!(at(6, 30, 0x3010), Place::Address(0x3010));
        assert_eq!(at(6, 50, 0x1010), Place::Address(0x1010));
        assert_eq!(at(6, 50, 0x2010), Place::File(1, 0x50));
        assert_eq!(at(7, 50, 0x2010), Place::Address(0x2010));
    }
}
