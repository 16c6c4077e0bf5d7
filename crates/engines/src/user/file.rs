// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A program's file: opened, checked, and mapped.
//!
//! What a program writes once is read from the file, once, and checked. Slots are read from the
//! file as well, because to touch an unused page in the mapping would allocate it. Rings are
//! touched only when the program has opened them.

use super::facts::{Facts, Unusable, is_name, read_facts, u32_at, u64_at};
use super::folder::Folder;
use super::layout::*;
use super::map::SharedFile;
use klogger_os as os;
use klogger_os::files::FileId;
use klogger_os::robust::{Kept, Robust};
use klogger_ring::{EVENTS_MAX, LOST, NESTED, RingReader, Rings};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A slot's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub used: u32,
    pub tid: u32,
    pub emptied: u32,
}

pub struct ProgramFile {
    file: File,
    pub folder: Arc<Folder>,
    pub name: OsString,
    pub id: FileId,
    pub facts: Facts,
    map: SharedFile,
}

impl ProgramFile {
    pub fn open(folder: &Arc<Folder>, name: &OsString) -> Result<ProgramFile, Unusable> {
        if !is_name(&name.to_string_lossy()) {
            return Err(Unusable::Foreign);
        }
        let cannot = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => Unusable::Foreign,
            _ => Unusable::Refused(format!("it cannot be opened: {e}")),
        };
        let seen = os::files::look_in(&folder.file, name).map_err(cannot)?;
        let about = seen
            .metadata()
            .map_err(|e| Unusable::Refused(format!("its attributes cannot be read: {e}")))?;
        let hostile = |why: &str| Err(Unusable::Hostile(why.into()));
        if !about.is_file() || about.nlink() > 1 {
            return hostile("it is not a regular file, or has further links");
        }
        if about.uid() != folder.uid {
            return hostile("it does not belong to the owner of its folder");
        }
        if about.mode() & 0o077 != 0 {
            return Err(Unusable::Refused("others than its owner may open it".into()));
        }
        // Only a regular file is opened: opening a device can have effects.
        let file = os::files::open_seen(&seen).map_err(cannot)?;
        let facts = read_facts(&file, about.len())?;
        let map = SharedFile::new(&file, facts.size)
            .map_err(|e| Unusable::Refused(format!("no memory for it: {e}")))?;
        Ok(ProgramFile {
            file,
            folder: folder.clone(),
            name: name.clone(),
            id: FileId::of(&about),
            facts,
            map,
        })
    }

    /// The same file as it is now. What is taken out of the copy stays in the file.
    pub fn copy(&self) -> io::Result<ProgramFile> {
        Ok(ProgramFile {
            file: self.file.try_clone()?,
            folder: self.folder.clone(),
            name: self.name.clone(),
            id: self.id,
            facts: self.facts.clone(),
            map: SharedFile::copy(&self.file, self.facts.size)?,
        })
    }

    /// Whether a part of it was truncated.
    pub fn is_broken(&self) -> bool {
        self.map.is_broken()
    }

    /// Sets the token by which the recorder recognizes children of the program: they inherit a copy
    /// of it, which no other user can read.
    pub fn set_token(&self, token: u64) {
        self.map.long(AT_TOKEN).store(token, Ordering::Relaxed);
    }

    /// From now on the program can see when this thread has died.
    pub fn keep(&self, list: &Robust) -> Option<Kept> {
        self.map.long(AT_ABANDONED).store(0, Ordering::Relaxed);
        list.keep(&self.map.mapping, self.map.word(AT_KEEPER))
    }

    /// Its recorder was killed, and it has not noticed, because its rings still have room.
    pub fn is_orphaned(&self) -> bool {
        self.map.word(AT_KEEPER).load(Ordering::Acquire) & KEEPER_DIED != 0
    }

    /// The time, by its clock, at which it noticed that the recorder had died and turned its events
    /// off.
    pub fn abandoned(&self) -> Option<u64> {
        Some(self.map.long(AT_ABANDONED).load(Ordering::Acquire)).filter(|time| *time != 0)
    }

    /// Whether it turned its events off in the moment in which a recorder turned them on; the
    /// recorder must turn them on again. Pairs with klogger_give_up().
    pub fn gave_up_too_late(&self) -> bool {
        self.map.long(AT_ABANDONED).swap(0, Ordering::AcqRel) != 0
    }

    /// Turns off the events of a program whose recorder died. Its records stay for `klogger
    /// rescue`.
    pub fn silence(&self) {
        (1..EVENTS_MAX as u16).for_each(|id| self.set_on(id, false));
    }

    pub fn pid_armed(&self) -> u32 {
        self.map.word(AT_ARMED).load(Ordering::Acquire)
    }

    pub fn failed(&self) -> i32 {
        self.map.word(AT_FAILED).load(Ordering::Relaxed) as i32
    }

    /// The futex by which the program wakes the recorder.
    pub fn call(&self) -> &AtomicU32 {
        self.map.word(AT_CALL)
    }

    /// The ids of events that are on.
    pub fn events_on(&self) -> impl Iterator<Item = u16> + '_ {
        (1..EVENTS_MAX as u16).filter(|id| self.is_on(*id))
    }

    /// Sets whether the program logs an event. Stores only changes, because the program's threads
    /// read these cache lines all the time.
    pub fn set_on(&self, id: u16, on: bool) {
        let byte = self.map.byte(AT_ON + usize::from(id) % EVENTS_MAX);
        if byte.load(Ordering::Relaxed) != u8::from(on) {
            byte.store(on.into(), Ordering::Relaxed);
        }
    }

    pub fn allow_slots(&self, slots: u32) {
        self.map.word(AT_SLOTS_ALLOWED).store(slots, Ordering::Relaxed);
    }

    /// Claims the program for recorder `pid`, unless another recorder has done so since `seen`; the
    /// error is its pid. Nothing is logged before events are switched on.
    pub fn claim(&self, seen: u32, pid: u32) -> Result<(), u32> {
        let armed = self.map.word(AT_ARMED);
        armed.compare_exchange(seen, pid, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    pub fn is_on(&self, id: u16) -> bool {
        self.map.byte(AT_ON + usize::from(id) % EVENTS_MAX).load(Ordering::Relaxed) != 0
    }

    /// Disarms the program: only events that were already begun are still logged.
    pub fn disarm(&self) {
        self.silence();
        self.let_go();
    }

    /// Lets another recorder have the program.
    pub fn let_go(&self) {
        self.map.word(AT_KEEPER).store(0, Ordering::Relaxed);
        self.map.word(AT_ARMED).store(0, Ordering::Release);
    }

    /// All slots up to the last page of slots in use. Fails if the file was truncated.
    pub fn slots(&self) -> io::Result<Vec<Slot>> {
        const AT_ONCE: usize = 4096 / SLOT;
        let mut list = Vec::new();
        while list.len() < self.facts.slots {
            let count = AT_ONCE.min(self.facts.slots - list.len());
            let mut bytes = [0; AT_ONCE * SLOT];
            let bytes = &mut bytes[..count * SLOT];
            self.file.read_exact_at(bytes, (AT_SLOT + list.len() * SLOT) as u64)?;
            if bytes.iter().all(|b| *b == 0) {
                break;
            }
            list.extend(bytes.chunks_exact(SLOT).map(|b| Slot {
                used: u32_at(b, SLOT_USE),
                tid: u32_at(b, SLOT_TID),
                emptied: u32_at(b, SLOT_EMPTIED),
            }));
        }
        // Pairs with klogger_end_thread(): a slot that is seen to be free holds all of its records.
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(list)
    }

    fn slot_word(&self, slot: usize, at: usize) -> &AtomicU32 {
        self.map.word(AT_SLOT + slot * SLOT + at)
    }

    /// The slot is drained and can be reused. Pairs with klogger_slot_is_free().
    pub fn set_emptied(&self, slot: usize, used: u32) {
        self.slot_word(slot, SLOT_EMPTIED).store(used, Ordering::Release);
    }

    /// Ends the use of a slot whose thread has ended without doing so itself.
    pub fn free_slot(&self, slot: usize, used: u32) {
        let next = used.wrapping_add(1);
        let _ = self.slot_word(slot, SLOT_USE).compare_exchange(
            used,
            next,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// The reader's side of a slot's main ring; `None` if no thread has opened it yet.
    pub fn main_ring(&self, slot: usize) -> io::Result<Option<RingReader>> {
        self.ring(SLOTS_AT + slot * slot_bytes(self.facts.ring_size), self.facts.ring_size)
    }

    /// The same for the nested ring.
    pub fn nested_ring(&self, slot: usize) -> io::Result<Option<RingReader>> {
        let main = SLOTS_AT + slot * slot_bytes(self.facts.ring_size);
        self.ring(main + Rings::stride(self.facts.ring_size), NESTED)
    }

    fn ring(&self, base: usize, size: usize) -> io::Result<Option<RingReader>> {
        let mut words = [0; 64];
        self.file.read_exact_at(&mut words, base as u64)?;
        let (head, hard) = (u64_at(&words, 0), u64_at(&words, 32));
        if hard == 0 && head == 0 {
            return Ok(None);
        }
        let overwritten = self.facts.flight && size == self.facts.ring_size;
        let tail = if overwritten { 0 } else { hard.saturating_sub(size as u64) };
        Ok(Some(RingReader::of_program(self.map.mapping.clone(), base, size, tail)))
    }

    /// Bytes of records in all main rings.
    pub fn waiting(&self) -> io::Result<u64> {
        let mut sum = 0u64;
        for number in 0..self.slots()?.len() {
            let mut words = [0; 64];
            self.file.read_exact_at(
                &mut words,
                (SLOTS_AT + number * slot_bytes(self.facts.ring_size)) as u64,
            )?;
            let (head, size) = (u64_at(&words, 0), self.facts.ring_size as u64);
            let tail = if self.facts.flight { 0 } else { u64_at(&words, 32).saturating_sub(size) };
            sum += head.saturating_sub(tail).min(size);
        }
        Ok(sum)
    }

    /// Events that a slot has lost, by local id, both rings together.
    pub fn lost_in(&self, slot: usize) -> io::Result<Vec<u64>> {
        let main = SLOTS_AT + slot * slot_bytes(self.facts.ring_size);
        let (a, b) = (
            self.counters(main + LOST)?,
            self.counters(main + Rings::stride(self.facts.ring_size) + LOST)?,
        );
        Ok(a.iter().zip(b).map(|(a, b)| a.saturating_add(b)).collect())
    }

    /// Events that threads without a ring have lost, by local id.
    pub fn lost_without_ring(&self) -> io::Result<Vec<u64>> {
        self.counters(AT_LOST)
    }

    /// They have been told, and are not counted again. The program may count others meanwhile.
    pub fn forget_without_ring(&self, told: &[u64]) {
        for (id, count) in told.iter().enumerate().take(EVENTS_MAX).filter(|(_, n)| **n > 0) {
            self.map.long(AT_LOST + 8 * id).fetch_sub(*count, Ordering::Relaxed);
        }
    }

    fn counters(&self, at: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; 8 * EVENTS_MAX];
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok(bytes.chunks_exact(8).map(|b| u64_at(b, 0)).collect())
    }

    /// Removes the file, if its name still refers to it. A file that we may not remove is left to
    /// programs that start later, which remove files without a recorder.
    pub fn remove(&self) {
        if self.folder.lent {
            return self.disarm();
        }
        let there = os::files::look_in(&self.folder.file, &self.name).and_then(|f| f.metadata());
        if there.is_ok_and(|m| FileId::of(&m) == self.id) {
            let _ = os::files::remove_in(&self.folder.file, &self.name);
        }
    }
}
