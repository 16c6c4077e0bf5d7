// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `context otel`: tells the programs of the kernel which processes have a variable with the
//! request of each thread, and where. A thread of the recorder looks at the files that processes
//! map as code: those that they had mapped before, and from then on all.

mod files;
mod place;

use super::load::{OTEL_PLACES, OTEL_UNREAD, map_fd, map_memory};
use crate::bpf::Loaded;
use files::Files;
use klogger_log::ledger::{Entry, Key};
use klogger_os::code_events::{CodeEvent, CodeEvents, MapKind, What};
use klogger_os::maps::{self, Line};
use klogger_os::{Error, Mapping, machine, process_memory, processes, threads};
use klogger_programs::thread_local::ThreadLocal;
use klogger_toolchain::host_kernel;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use place::VariablePlace;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How often the kernel's records of what is mapped are taken.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long a recording waits for the first look at all processes, and for the end of the last one:
/// a file system may not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Processes that have the variable, but whose loader has not noted where. They are looked at in
/// each round, and after so many in some only.
const WAITING: usize = 4096;
const EACH_ROUND: u32 = 100;
const SOME_ROUNDS: u32 = 50;
/// Files of one process that are waited for.
const OF_PROCESS: usize = 8;

/// The processes of a recording.
pub struct Otel {
    shared: Arc<Shared>,
    unread: Mapping,
    ended: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    /// When it has begun to look at processes, if it does so; 0 if it waits.
    looks_ns: AtomicU64,
    /// 1: those that were there were not all known when the recording began.
    slow: AtomicU64,
    /// Processes for which the table had no room.
    full: AtomicU64,
    /// Processes that could not be remembered until their loader has noted where it is.
    crowded: AtomicU64,
    /// Records of what processes mapped that were lost.
    lost: AtomicU64,
    /// Processes that have the variable, but it is not known where.
    unknown: AtomicU64,
}

impl Otel {
    /// Begins to look at processes, and returns when those have been looked at that are there.
    /// `None`: no schema asks for it.
    pub(super) fn watch(objects: &[Loaded]) -> Result<Option<Otel>, Error> {
        let maps = || objects.iter().flat_map(|loaded| loaded.object.maps());
        let Some(map) = maps().find(|map| map.name() == OTEL_PLACES) else { return Ok(None) };
        if cfg!(not(target_arch = "x86_64")) {
            let why = "`context otel` is for x86-64: where threads of other machines have their \
                       variables is not known";
            return Err(Error::new(why).help("record without it"));
        }
        // Programs of the kernel know processes by its own numbers.
        host_kernel::check_pid_namespace().map_err(|_| {
            let why = "`context otel` is not for recordings from inside a pid namespace (a \
                       container): numbers of processes differ";
            Error::new(why).help("record without it, or run klogger on the host")
        })?;
        let table = MapHandle::try_from(&map)
            .map_err(|e| Error::new(format!("cannot use the map '{OTEL_PLACES}': {e}")))?;
        let object = objects.iter().find(|o| o.object.maps().any(|m| m.name() == OTEL_UNREAD));
        let object = object.ok_or_else(|| Error::new("a map of `context otel` is missing"))?;
        let unread = map_memory(&map_fd(&object.object, OTEL_UNREAD)?, 8)?;
        let cpus = machine::online_cpus()?.into_iter().max().unwrap_or_default() as usize + 1;
        let events = CodeEvents::new(cpus, false).map_err(|e| {
            Error::new(format!("cannot record what processes map, for `context otel`: {e}"))
                .help("it needs CAP_PERFMON and perf events: record without it")
        })?;
        let shared = Arc::new(Shared::default());
        let processes = Processes::new(table, shared.clone());
        let (tell, first) = channel();
        let (end, ended) = channel();
        let run = move || watch(processes, &events, &tell, &end);
        // It is not joined: it may hang.
        drop(threads::start("klogger-otel", run)?);
        if first.recv_timeout(PATIENCE).is_err() {
            shared.slow.store(1, Ordering::Relaxed);
        }
        Ok(Some(Otel { shared, unread, ended }))
    }

    /// 1 if it looks at a process for so long that others are not looked at.
    fn hangs(&self) -> u64 {
        let since_ns = self.shared.looks_ns.load(Ordering::Relaxed);
        let now_ns = klogger_os::monotonic_ns();
        u64::from(since_ns > 0 && now_ns.saturating_sub(since_ns) > PATIENCE.as_nanos() as u64)
    }

    /// Which events may have no request, although their threads had one.
    pub fn entries(&self) -> Vec<Entry> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let causes = [
            (self.unread.word(0).load(Ordering::Relaxed), "records of threads could not be read"),
            (count(&self.shared.full), "processes were too many for the table"),
            (count(&self.shared.crowded), "processes were too many to wait for their loader"),
            (count(&self.shared.unknown), "processes have it where it was not found"),
            (count(&self.shared.lost), "records of what processes map came too fast"),
            (
                count(&self.shared.slow),
                "first look at processes took longer than the recording waits",
            ),
            (self.hangs(), "look at processes has not ended: a file system may not answer"),
        ];
        let entry = |(count, why): (u64, &str)| {
            Entry::new(Key::RequestUnknown).count(count).detail(&format!("{count} {why}"))
        };
        causes.into_iter().filter(|(count, _)| *count > 0).map(entry).collect()
    }
}

impl Drop for Otel {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// The thread. `first`: hears of the first look. When it returns, `end` is dropped.
fn watch(mut processes: Processes, events: &CodeEvents, first: &Sender<()>, _end: &Sender<()>) {
    let shared = processes.shared.clone();
    let begins = || shared.looks_ns.store(klogger_os::monotonic_ns(), Ordering::Relaxed);
    let ended = || shared.looks_ns.store(0, Ordering::Relaxed);
    begins();
    processes.look_at_all();
    ended();
    let _ = first.send(());
    let mut found = Vec::new();
    while !shared.end.load(Ordering::Relaxed) {
        shared.lost.fetch_add(events.take(&mut found), Ordering::Relaxed);
        for event in found.drain(..) {
            begins();
            processes.event(&event);
        }
        begins();
        processes.look_again();
        ended();
        std::thread::sleep(INTERVAL);
    }
}

/// A process that has mapped a file with the variable.
#[derive(Clone)]
struct Mapper {
    pid: u32,
    /// See [`processes::stack_of`].
    stack: u64,
    base: u64,
    variable: Arc<ThreadLocal>,
    rounds: u32,
}

/// What the thread knows.
struct Processes {
    shared: Arc<Shared>,
    table: MapHandle,
    files: Files,
    /// What is in the table.
    places: HashMap<u32, (VariablePlace, u64)>,
    waiting: Vec<Mapper>,
}

impl Processes {
    fn new(table: MapHandle, shared: Arc<Shared>) -> Processes {
        let (files, places, waiting) = Default::default();
        Processes { shared, table, files, places, waiting }
    }

    fn look_at_all(&mut self) {
        for pid in processes::all_processes() {
            // It may have ended.
            let Ok(text) = maps::text_of(pid) else { continue };
            for line in text.lines().filter_map(Line::read).filter(|l| l.mode.contains('x')) {
                if line.file.inode != 0 {
                    self.mapped(pid, (line.start, line.end), line.offset);
                }
            }
        }
    }

    fn event(&mut self, event: &CodeEvent) {
        let pid = event.pid;
        match &event.what {
            What::Exec => self.forget(pid),
            What::Fork { parent } => self.forked(pid, *parent),
            What::Map { start, length, offset, kind: MapKind::Code, path, .. } => {
                if path.starts_with('/') {
                    self.mapped(pid, (*start, start.saturating_add(*length)), *offset);
                }
            }
            What::Map { .. } => {}
        }
    }

    /// A process has mapped a file. The first one that has the variable is the one that counts, as
    /// it is for the loader.
    fn mapped(&mut self, pid: u32, range: (u64, u64), offset: u64) {
        // Another program may run in between, which has a stack of its own.
        let stack = processes::stack_of(pid);
        if stack.is_some_and(|stack| self.has(pid, stack)) {
            return;
        }
        let Some(variable) = self.files.variable_in(pid, range) else { return };
        let Some(stack) = stack else { return };
        let Some(base) = variable.base(range.0, offset) else { return };
        self.find(Mapper { pid, stack, base, variable, rounds: 0 });
    }

    /// Whether it is in the table, as the program that has this stack.
    fn has(&self, pid: u32, stack: u64) -> bool {
        self.places.get(&pid).is_some_and(|(_, known)| *known == stack)
    }

    /// Adds the process to the table; or it is looked at again.
    fn find(&mut self, mut mapper: Mapper) {
        let pid = mapper.pid;
        let word = |at| process_memory::words::<1>(pid, at).ok().map(|[word]| word);
        let glibc = || maps::text_of(pid).is_ok_and(|text| has_glibc(&text));
        let access = &mapper.variable.access;
        let found = place::place(access, mapper.base, true, &word);
        let found = found.filter(|place| place.module.is_none() || glibc());
        if processes::stack_of(pid) != Some(mapper.stack) || self.has(pid, mapper.stack) {
            return;
        }
        mapper.rounds += 1;
        match found {
            Some(place) => self.add(pid, place, mapper.stack),
            None => self.wait(mapper),
        }
        self.count_waiting();
    }

    /// A process may map a file again and again, and many files.
    fn wait(&mut self, mapper: Mapper) {
        let key = |mapper: &Mapper| (mapper.pid, mapper.stack, mapper.base);
        if self.waiting.iter().any(|other| key(other) == key(&mapper)) {
            return;
        }
        let own = self.waiting.iter().filter(|other| other.pid == mapper.pid).count();
        match self.waiting.len() < WAITING && own < OF_PROCESS {
            true => self.waiting.push(mapper),
            false => drop(self.shared.crowded.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn look_again(&mut self) {
        for mapper in std::mem::take(&mut self.waiting) {
            if mapper.rounds < EACH_ROUND || mapper.rounds % SOME_ROUNDS == 0 {
                self.find(mapper);
            } else {
                self.waiting.push(Mapper { rounds: mapper.rounds + 1, ..mapper });
            }
        }
        self.count_waiting();
    }

    fn count_waiting(&self) {
        self.shared.unknown.store(self.waiting.len() as u64, Ordering::Relaxed);
    }

    fn forget(&mut self, pid: u32) {
        self.waiting.retain(|mapper| mapper.pid != pid);
        if self.places.remove(&pid).is_some() {
            let _ = self.table.delete(&pid.to_ne_bytes());
        }
    }

    /// A child has the memory of its parent. Its number may have been that of another process.
    fn forked(&mut self, pid: u32, parent: u32) {
        let is_known = || processes::stack_of(pid).is_some_and(|stack| self.has(pid, stack));
        if self.places.contains_key(&pid) && is_known() {
            return;
        }
        self.forget(pid);
        if let Some((place, stack)) = self.places.get(&parent).copied() {
            self.add(pid, place, stack);
        }
        let of_parent = |mapper: &&Mapper| mapper.pid == parent;
        let waiting: Vec<_> = self.waiting.iter().filter(of_parent).cloned().collect();
        for mapper in waiting {
            self.find(Mapper { pid, rounds: 0, ..mapper });
        }
    }

    fn update(&self, pid: u32, value: &[u8]) -> libbpf_rs::Result<()> {
        self.table.update(&pid.to_ne_bytes(), value, MapFlags::ANY)
    }

    fn add(&mut self, pid: u32, place: VariablePlace, stack: u64) {
        let value = place.bytes(stack);
        if self.update(pid, &value).is_err() {
            // Those that have ended make room.
            let all = self.places.keys().copied();
            let ended: Vec<u32> = all.filter(|pid| !processes::exists(*pid)).collect();
            ended.into_iter().for_each(|pid| self.forget(pid));
            if self.update(pid, &value).is_err() {
                self.shared.full.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        self.places.insert(pid, (place, stack));
    }
}

/// Whether a process has the loader of glibc, by the text of its `maps`.
fn has_glibc(maps: &str) -> bool {
    let names = maps.lines().filter_map(|line| line.rsplit_once('/').map(|(_, name)| name));
    names.into_iter().any(|name| name.starts_with("ld-linux") || name.starts_with("ld-2."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_tells_which_libc_it_is() {
        let line = |path: &str| format!("7f00-7f10 r-xp 00000000 08:01 9   {path}\n");
        assert!(has_glibc(&(line("/bin/a") + &line("/lib64/ld-linux-x86-64.so.2"))));
        assert!(has_glibc(&line("/lib/x86_64-linux-gnu/ld-2.31.so")));
        assert!(!has_glibc(&(line("/bin/ld-linuxed/a") + &line("/lib/ld-musl-x86_64.so.1"))));
        assert!(!has_glibc("7f00-7f10 r-xp 00000000 00:00 0\n"));
    }
}
