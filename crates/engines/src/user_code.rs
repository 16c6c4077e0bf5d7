// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the addresses of user stacks refer to. It is recorded what processes map as code, because
//! many have ended when the stacks are read.

use klogger_log::code::{Caller, Code, File, Place, UserStack};
use klogger_os::code_events::{CodeEvent, CodeEvents, What};
use klogger_os::roots::Roots;
use klogger_os::{Error, machine, patient, processes};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the kernel's records are taken. Its rings have space for some thousand on each CPU.
const INTERVAL: Duration = Duration::from_millis(50);
/// What is kept: some hundred bytes each.
const EVENTS_MAX: usize = 4 << 20;
/// How far a process is followed through the processes that it was forked from.
const GENERATIONS: usize = 64;

/// How the code is called that a process has made.
const MADE: &str = "[perf map ";

/// A stack as the engine has it.
pub struct Stack {
    pub number: u64,
    /// Of its first hit, in ns.
    pub time: u64,
    pub pid: u32,
    pub cut: bool,
    /// The innermost first.
    pub addresses: Vec<u64>,
    /// What may be the return address of the innermost function, and how many bytes above the
    /// stack pointer it is.
    pub caller: Option<(u64, u64)>,
}

/// User stacks, and what is missing.
pub struct UserCode {
    pub code: Code,
    /// Why stacks have no number, and how many.
    pub unnumbered: Vec<(&'static str, u64)>,
    /// Records of what processes have mapped that were lost.
    pub lost: u64,
    /// Where the files of processes in containers are.
    pub roots: Roots,
}

/// What processes map, recorded by a thread.
pub struct Mappings {
    known: Arc<Mutex<Known>>,
    end: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Known {
    /// Of each process, in the order in which they were taken.
    events: HashMap<u32, Vec<Event>>,
    count: usize,
    lost: u64,
    files: Files,
    roots: Roots,
}

/// Something that happened to a process. What was there before the recording has time 0.
struct Event {
    time: u64,
    what: Happened,
}

enum Happened {
    Map { start: u64, length: u64, offset: u64, file: u32 },
    Exec,
    Fork { parent: u32 },
}

#[derive(Default)]
struct Files {
    list: Vec<File>,
    numbers: HashMap<(String, String), u32>,
}

impl Mappings {
    /// Begins to record. What processes had mapped before is read by the thread.
    pub fn watch() -> Result<Mappings, Error> {
        let cannot = |e| {
            Error::new(format!("cannot record what processes map, for user stacks: {e}"))
                .help("user stacks need CAP_PERFMON and perf events: record without them")
        };
        let cpus = machine::online_cpus()?.into_iter().max().unwrap_or_default() as usize + 1;
        let events = CodeEvents::new(cpus).map_err(cannot)?;
        let known: Arc<Mutex<Known>> = Arc::default();
        let end = Arc::new(AtomicBool::new(false));
        let (theirs, ends) = (known.clone(), end.clone());
        let thread = thread::Builder::new().name("klogger-maps".into()).spawn(move || {
            lock(&theirs).read_all();
            loop {
                let last = ends.load(Ordering::Relaxed);
                lock(&theirs).take(&events);
                if last {
                    break;
                }
                thread::sleep(INTERVAL);
            }
        });
        let thread = Mutex::new(Some(thread.map_err(cannot)?));
        Ok(Mappings { known, end, thread })
    }

    /// Ends the recording, and tells what the addresses of `stacks` refer to.
    pub fn code(&self, stacks: &[Stack], unnumbered: Vec<(&'static str, u64)>) -> UserCode {
        self.stop();
        let mut known = lock(&self.known);
        known.events.values_mut().for_each(|events| events.sort_by_key(|e| e.time));
        let stacks = stacks.iter().map(|stack| known.stack(stack)).collect();
        let code = Code { files: known.files.list.clone(), stacks, ..Code::default() };
        UserCode { code, unnumbered, lost: known.lost, roots: std::mem::take(&mut known.roots) }
    }

    fn stop(&self) {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(known: &Mutex<Known>) -> std::sync::MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// What all processes have mapped now.
    fn read_all(&mut self) {
        for pid in processes::all_processes() {
            // It may have ended.
            let Ok(maps) = patient::read(pid, "maps") else { continue };
            let maps = String::from_utf8_lossy(&maps);
            self.roots.look(pid);
            for (start, length, offset, path) in maps.lines().filter_map(code_mapping) {
                let file = self.file(pid, path, String::new());
                self.add(pid, 0, Happened::Map { start, length, offset, file });
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
                What::Fork { parent } => Happened::Fork { parent },
                What::Map { start, length, offset, path, build_id } => {
                    let id = build_id.iter().map(|b| format!("{b:02x}")).collect();
                    let file = self.file(pid, &path, id);
                    Happened::Map { start, length, offset, file }
                }
            };
            self.add(pid, time, what);
        }
    }

    /// The number of a file that a process maps.
    fn file(&mut self, pid: u32, path: &str, build_id: String) -> u32 {
        let known = self.files.list.len();
        let number = self.files.number(pid, path, build_id);
        if self.files.list.len() > known && self.files.list[known].path.starts_with(MADE) {
            self.roots.look_number(pid);
        }
        number
    }

    fn add(&mut self, pid: u32, time: u64, what: Happened) {
        if self.count == EVENTS_MAX {
            self.lost += 1;
            return;
        }
        self.count += 1;
        self.events.entry(pid).or_default().push(Event { time, what });
    }

    fn stack(&self, stack: &Stack) -> UserStack {
        let place = |(n, address): (usize, &u64)| {
            // In the call, which may be the last instruction of its function.
            self.place(stack, address.wrapping_sub(u64::from(n > 0)))
        };
        let caller = stack.caller.as_ref();
        UserStack {
            number: stack.number,
            pid: stack.pid,
            cut: stack.cut,
            frames: stack.addresses.iter().enumerate().map(place).collect(),
            caller: caller
                .map(|(address, above)| Caller { place: place((1, address)), above: *above }),
            gaps: None,
        }
    }

    /// The mapping that an address was in: the latest one before the stack was taken.
    fn place(&self, stack: &Stack, address: u64) -> Place {
        let (mut pid, mut until) = (stack.pid, stack.time);
        for _ in 0..GENERATIONS {
            let Some(events) = self.events.get(&pid) else { break };
            let mut parent = None;
            for event in events.iter().rev().filter(|e| e.time <= until) {
                match event.what {
                    Happened::Map { start, length, offset, file } => {
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

impl Files {
    /// The number of a file. Code that belongs to none was made by the program.
    fn number(&mut self, pid: u32, path: &str, build_id: String) -> u32 {
        let is_file = path.starts_with('/')
            && !["//anon", "/memfd:", "/dev/zero"].iter().any(|p| path.starts_with(p));
        let path = match is_file || path == "[vdso]" {
            true => path.to_string(),
            false => format!("{MADE}{pid}]"),
        };
        let key = (path, build_id);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.list.len() as u32;
        let (path, build_id) = key.clone();
        self.list.push(File { path, build_id, loads: Vec::new() });
        self.numbers.insert(key, number);
        number
    }
}

/// A line of `/proc/PID/maps` that maps code.
fn code_mapping(line: &str) -> Option<(u64, u64, u64, &str)> {
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = hex(words.next()?)?;
    let path = words.nth(2).unwrap_or_default().trim_start();
    let (start, end) = (hex(start)?, hex(end)?);
    rights.contains('x').then_some((start, end.checked_sub(start)?, offset, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "5581a000-5581c000 r-xp 00002000 08:01 1234     /opt/a b/prog";
        assert_eq!(code_mapping(line), Some((0x5581_a000, 0x2000, 0x2000, "/opt/a b/prog")));
        let anonymous = "7f0000-7f1000 rwxp 00000000 00:00 0 ";
        assert_eq!(code_mapping(anonymous), Some((0x7f_0000, 0x1000, 0, "")));
        assert_eq!(code_mapping("7f0000-7f1000 rw-p 00000000 00:00 0 "), None);
    }

    fn known(events: &[(u32, u64, Happened)]) -> Known {
        let mut known = Known::default();
        known.files.number(0, "/a", String::new());
        known.files.number(0, "/b", String::new());
        known.files.number(5, "//anon", String::new());
        for (pid, time, what) in events {
            let what = match *what {
                Happened::Map { start, length, offset, file } => {
                    Happened::Map { start, length, offset, file }
                }
                Happened::Exec => Happened::Exec,
                Happened::Fork { parent } => Happened::Fork { parent },
            };
            known.add(*pid, *time, what);
        }
        known
    }

    #[test]
    fn an_address_is_in_what_was_mapped_at_the_time() {
        let map = |start, file| Happened::Map { start, length: 0x100, offset: 0x40, file };
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
            let stack = Stack { number: 1, time, pid, cut: false, addresses, caller: None };
            known.stack(&stack).frames[0]
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
