// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One program that is recorded: one module (executable or library) of a process, through its file.

mod losses;

use super::catalogue::Catalogue;
use super::file::{ProgramFile, Slot};
use super::layout::slot_bytes;
use super::output::Output;
use super::process::{self, Owner};
use super::slot::{Fault, Round, SlotReader};
use super::translate::{Ids, ProgramSchema};
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Thread;
use klogger_os as os;
use klogger_os::robust::{Kept, Robust};
use klogger_os::{missed, processes};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The next number for a thread whose number is not known: above those of all threads.
static UNKNOWN: AtomicU32 = AtomicU32::new(THREADS_MAX + 1);
/// The kernel's limit of numbers of threads (PID_MAX_LIMIT).
const THREADS_MAX: u32 = 1 << 22;

/// Bytes that one program may take of a round, so that others get their turn.
const ROUND: u64 = 16 << 20;

pub struct Program {
    pub file: ProgramFile,
    pub pid: u32,
    /// `NAME[PID]`, for messages.
    pub title: String,
    /// Readable when the process has ended.
    process: Option<OwnedFd>,
    /// Its process is known for certain.
    owned: bool,
    ids: Ids,
    readers: Vec<Option<SlotReader>>,
    /// Of slots of a program in another PID namespace: the use, and the kernel's number of the
    /// thread.
    threads: HashMap<usize, (u32, u32)>,
    /// The slot at which the next round begins.
    cursor: usize,
    /// One more than the highest slot that was ever in use.
    pub slots_used: usize,
    /// Events lost before recording began, by slot and local id.
    lost_before: HashMap<usize, Vec<u64>>,
    ringless_before: Vec<u64>,
    failed_before: i32,
    refused: u64,
    /// Tells the program when this thread has died.
    kept: Option<Kept>,
}

/// Why a program is not recorded; `None`: it has no event that is recorded.
pub struct Refused {
    pub why: Option<String>,
    pub file: ProgramFile,
}

impl Program {
    /// Takes in the schemata of a program, and adds new ones to the log. A program that is `ours`
    /// from the beginning may have no recorded schema: its only event is then MARK.
    pub fn new(
        file: ProgramFile,
        owner: Owner,
        ours: bool,
        catalogue: &mut Catalogue,
        out: &mut Output,
    ) -> Result<Program, Box<Refused>> {
        let pid = number(&file, owner);
        let title = title(pid);
        let schemata = match schemata(&file, &title, catalogue, out) {
            Ok(schemata) if schemata.is_empty() && !ours => {
                return Err(Box::new(Refused { why: None, file }));
            }
            Ok(schemata) => schemata,
            Err(why) => return Err(Box::new(Refused { why: Some(why), file })),
        };
        let builtin: Vec<_> =
            out.builtin.0.iter().filter(|e| e.schema == "klogger").cloned().collect();
        let ids = Ids::new(&builtin, &schemata);
        if pid > THREADS_MAX {
            let what = format!("{title}: process {} in its namespace", file.facts.pid);
            out.complaints.add(Key::UserThread, Entry::new(Key::UserThread).detail(&what));
        }
        let process = match watch_process(pid, owner) {
            Ok(process) => process,
            Err(e) => {
                return Err(Box::new(Refused {
                    why: Some(format!("its end cannot be watched: {e}")),
                    file,
                }));
            }
        };
        Ok(Program {
            file,
            pid,
            title,
            process,
            owned: matches!(owner, Owner::Process(_)),
            ids,
            readers: Vec::new(),
            threads: HashMap::new(),
            cursor: 0,
            slots_used: 0,
            lost_before: HashMap::new(),
            ringless_before: Vec::new(),
            failed_before: 0,
            refused: 0,
            kept: None,
        })
    }

    pub fn notify_of_death(&mut self, list: Option<&Robust>) {
        self.kept = list.and_then(|list| self.file.keep(list));
    }

    /// Bytes of memory of all slots that are or were in use.
    pub fn memory(&self) -> u64 {
        self.slots_used as u64 * self.slot_bytes()
    }

    pub fn slot_bytes(&self) -> u64 {
        slot_bytes(self.file.facts.ring_size) as u64
    }

    /// Discards the records in the rings, which were logged before this recording.
    pub fn forget_past(&mut self) -> io::Result<()> {
        for (number, slot) in (0..).zip(self.file.slots()?).filter(|(_, s)| s.used != 0) {
            self.lost_before.insert(number, self.file.lost_in(number)?);
            if let Some(mut reader) = SlotReader::open(&self.file, number, &slot)? {
                reader.forget(&self.file, &self.ids)?;
                self.keep(number, reader);
            }
        }
        self.ringless_before = self.file.lost_without_ring()?;
        self.failed_before = self.file.failed();
        Ok(())
    }

    fn keep(&mut self, number: usize, reader: SlotReader) {
        self.readers.resize_with(self.readers.len().max(number + 1), || None);
        self.readers[number] = Some(reader);
    }

    /// Lets the program log the events that are on, in at most `slots` threads at a time.
    pub fn open(&self, slots: u32, catalogue: &Catalogue) {
        self.file.allow_slots(slots);
        self.switch(catalogue);
    }

    /// Turns events on and off as the recording has them. Events that are not in the log are off.
    pub fn switch(&self, catalogue: &Catalogue) {
        let names: HashMap<u16, &str> =
            catalogue.events().iter().map(|e| (e.id, e.name.as_str())).collect();
        let on: HashMap<u16, bool> = self
            .ids
            .events()
            .map(|(local, log)| (local, names.get(&log).is_some_and(|name| catalogue.is_on(name))))
            .collect();
        for local in 1..klogger_ring::EVENTS_MAX as u16 {
            self.file.set_on(local, on.get(&local).copied().unwrap_or(false));
        }
    }

    pub fn disarm(&self) {
        self.file.disarm();
    }

    pub fn has_ended(&self) -> bool {
        let ended = |process: &OwnedFd| {
            os::poll_readable(&[process.as_fd()], Duration::ZERO)
                .is_ok_and(|ready| ready.first() == Some(&true))
        };
        self.process.as_ref().is_none_or(ended)
    }

    /// Whether the process has called exec, or unloaded the library: then no thread writes to the
    /// file any more.
    pub fn has_let_go(&self) -> bool {
        self.owned
            && process::maps(self.pid, self.file.id.inode, &self.file.name.to_string_lossy())
                == Some(false)
    }

    /// Moves records from the rings to the log, a part of them if there are many. `last`: no thread
    /// writes any more, so all of them; a record that is not complete now never will be. Fails if
    /// the file is broken.
    pub fn drain(&mut self, out: &mut Output, last: bool) -> io::Result<Round> {
        let slots = self.file.slots()?;
        let used = slots.iter().rposition(|s| s.used != 0).map_or(0, |n| n + 1);
        self.slots_used = self.slots_used.max(used);
        let mut round = Round::default();
        for n in 0..used {
            let number = (self.cursor + n) % used;
            if slots[number].used == 0 {
                continue;
            }
            let part = self.drain_slot(out, number, &slots[number], last)?;
            round.add(part);
            if self.file.is_broken() {
                return Err(broken());
            }
            if round.bytes > ROUND && !last {
                self.cursor = (number + 1) % used;
                return Ok(Round { more: true, ..round });
            }
        }
        Ok(round)
    }

    /// Frees in `file` what was taken out of the copy of it that this program is read from.
    pub fn free_in(&self, file: &ProgramFile) -> io::Result<()> {
        let slots = file.slots()?;
        for (reader, slot) in self.readers.iter().zip(&slots) {
            reader.iter().try_for_each(|r| r.free_in(file, &self.ids, slot))?;
        }
        file.forget_without_ring(&self.file.lost_without_ring()?);
        Ok(())
    }

    fn drain_slot(
        &mut self,
        out: &mut Output,
        number: usize,
        slot: &Slot,
        last: bool,
    ) -> io::Result<Round> {
        if self.readers.get(number).is_none_or(Option::is_none) {
            match SlotReader::open(&self.file, number, slot)? {
                Some(reader) => self.keep(number, reader),
                None => return self.nothing_in(number, slot),
            }
        }
        let thread = self.thread(number, slot, out);
        let Some(Some(reader)) = self.readers.get_mut(number) else { return Ok(Round::default()) };
        let (round, fault) = reader.drain(&self.file, &self.ids, slot, thread, out, last)?;
        self.refused += reader.take_refused();
        if let Some(fault) = fault {
            let (key, what) = match fault {
                Fault::Hostile(what) => (Key::UserHostile, what),
                Fault::Cut(bytes) => (
                    Key::BlockCorrupt,
                    format!("{bytes} bytes of a ring follow an event that was never committed"),
                ),
            };
            let entry = Entry::new(key).thread(thread.tid, thread.tgid);
            out.complaints.add(key, entry.detail(&format!("{}: {what}", self.title)));
        }
        Ok(round)
    }

    /// A slot that was taken, but got no memory.
    fn nothing_in(&self, number: usize, slot: &Slot) -> io::Result<Round> {
        if slot.used.is_multiple_of(2) && slot.emptied != slot.used {
            self.file.set_emptied(number, slot.used);
        }
        Ok(Round::default())
    }

    /// The thread that uses a slot, which has its number for itself.
    fn thread(&mut self, number: usize, slot: &Slot, out: &mut Output) -> Thread {
        let tgid = self.pid;
        if tgid == self.file.facts.pid {
            return Thread { tid: slot.tid, tgid };
        }
        if slot.tid == self.file.facts.pid {
            return Thread { tid: tgid, tgid };
        }
        // Odd while it is in use, and one more afterwards.
        let used = slot.used.div_ceil(2);
        if let Some((_, tid)) = self.threads.get(&number).filter(|(of, _)| *of == used) {
            return Thread { tid: *tid, tgid };
        }
        let known = processes::thread_of_own_number(tgid, slot.tid);
        let tid = known.unwrap_or_else(|| UNKNOWN.fetch_add(1, Ordering::Relaxed));
        if known.is_none() {
            let what = format!("{}: thread {} in its namespace", self.title, slot.tid);
            out.complaints.add(Key::UserThread, Entry::new(Key::UserThread).detail(&what));
        }
        self.threads.insert(number, (used, tid));
        Thread { tid, tgid }
    }

    /// Frees slots of threads that have ended without doing so.
    pub fn free_slots_of_the_dead(&self) -> io::Result<()> {
        if !self.owned || self.pid != self.file.facts.pid {
            return Ok(());
        }
        for (number, slot) in (0..).zip(self.file.slots()?) {
            if slot.used % 2 == 1 && slot.tid != 0 && !process::thread_exists(self.pid, slot.tid) {
                self.file.free_slot(number, slot.used);
            }
        }
        Ok(())
    }
}

/// The kernel's number of a program. If it has ended, that in its own namespace may be another's.
fn number(file: &ProgramFile, owner: Owner) -> u32 {
    let foreign = || {
        let path = "/proc/self/ns/pid";
        let own = missed::noting(path, std::fs::metadata(path)).map_or(0, |about| about.ino());
        file.facts.pid_ns != 0 && file.facts.pid_ns != own
    };
    match owner {
        Owner::Process(pid) => pid,
        // One that may be inspected would have been found.
        Owner::Nobody | Owner::Unknown if foreign() => UNKNOWN.fetch_add(1, Ordering::Relaxed),
        Owner::Nobody | Owner::Unknown => file.facts.pid,
    }
}

/// `None` if the process has ended already. Other failures are not errors here.
fn watch_process(pid: u32, owner: Owner) -> io::Result<Option<OwnedFd>> {
    if owner == Owner::Nobody {
        return Ok(None);
    }
    match os::pidfd_open(pid) {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        result => result.map(Some),
    }
}

/// The result for each recorded schema of a program. New ones are added to the log.
fn schemata(
    file: &ProgramFile,
    title: &str,
    catalogue: &mut Catalogue,
    out: &mut Output,
) -> Result<Vec<(u16, ProgramSchema)>, String> {
    let mut schemata = Vec::new();
    for schema in &file.facts.schemata {
        if !catalogue.wants(&schema.name) {
            continue;
        }
        match catalogue.admit(file.folder.uid, &schema.name, &schema.text) {
            Ok((admitted, _)) if admitted.layouts.len() != usize::from(schema.events) => {
                return Err(format!(
                    "schema '{}' does not have the number of events that it declares",
                    schema.name
                ));
            }
            Ok((admitted, addition)) => {
                addition.into_iter().for_each(|a| out.add(a, |event| catalogue.is_on(event)));
                schemata.push((schema.base, ProgramSchema::Admitted(admitted)));
            }
            Err(refusal) => {
                let layouts = refusal.layouts.filter(|l| l.len() == usize::from(schema.events));
                let Some(layouts) = layouts else { return Err(refusal.why) };
                out.complaints.say(Key::UserRefused, title, &refusal.why);
                schemata.push((schema.base, ProgramSchema::Refused(layouts)));
            }
        }
    }
    Ok(schemata)
}

/// `NAME[PID]`
pub fn title(pid: u32) -> String {
    let comm = processes::thread(pid, pid)
        .map(|t| t.comm)
        .unwrap_or_else(|| b"a program that has ended".to_vec());
    let comm: String = String::from_utf8_lossy(&comm).chars().filter(|c| !c.is_control()).collect();
    format!("{comm}[{pid}]")
}

pub fn broken() -> io::Error {
    io::Error::other("its file has been cut off")
}
