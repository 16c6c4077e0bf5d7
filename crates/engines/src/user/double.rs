// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A test double of a program: writes a file and rings byte by byte as the header does, or in a
//! wrong way.

use super::layout::*;
use super::map::SharedFile;
use super::trial;
use klogger_log::builder::RecordBuilder;
use klogger_os as os;
use klogger_ring::CONTROL as RING_CONTROL;
use klogger_schema::layout::EventLayout;
use klogger_schema::{Options, parse};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub const RING: usize = 1 << 14;
pub const SLOTS: usize = 300;
pub const TOKEN: u64 = 0x1234_5678_9abc_def0;
pub const SCHEMA_TEXT: &str =
    "schema my \"x\"\nevent TICK { u64 n }\nevent SAY { u64 n  string text }\n";
pub const TICK: u16 = 16;
pub const SAY: u16 = 17;

/// A program.
pub struct Double {
    pub file: File,
    pub map: SharedFile,
    pub path: PathBuf,
    pub layouts: Vec<EventLayout>,
}

impl Double {
    /// `armed`: it armed itself, as the recorded command does.
    pub fn new(folder: &Path, pid: u32, image: u32, armed: bool, text: &str) -> Double {
        let size = SLOTS_AT + SLOTS * slot_bytes(RING);
        let path = folder.join(format!("{pid}.{image:x}"));
        let hidden = folder.join(format!(".{pid}.{image:x}"));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&hidden)
            .unwrap();
        file.set_len(size as u64).unwrap();
        let mut page = trial::page(pid, SLOTS, RING, text);
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        if armed {
            put(AT_TOKEN, &TOKEN.to_le_bytes());
            put(AT_ARMED, &std::process::id().to_le_bytes());
            put(AT_SLOTS_ALLOWED, &(SLOTS as u32).to_le_bytes());
            put(AT_ON + usize::from(TICK), &[1, 1]);
        }
        file.write_all_at(&page, 0).unwrap();
        let map = SharedFile::new(&file, size).unwrap();
        std::fs::rename(hidden, &path).unwrap();
        let schema = parse("my.klogger", SCHEMA_TEXT, &Options::default()).unwrap().schema;
        let layouts =
            schema.events.iter().zip(TICK..).map(|(e, id)| EventLayout::new("my", e, id)).collect();
        Double { file, map, path, layouts }
    }

    pub fn u64_at(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at as u64).unwrap();
        u64::from_le_bytes(bytes)
    }

    pub fn put(&self, at: usize, value: u64) {
        self.file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
    }

    pub fn ring(slot: usize) -> usize {
        SLOTS_AT + slot * slot_bytes(RING)
    }

    pub fn is_on(&self, id: u16) -> bool {
        self.map.byte(AT_ON + usize::from(id)).load(Ordering::Acquire) == 1
    }

    pub fn slot_word(&self, slot: usize, at: usize) -> &AtomicU32 {
        self.map.word(AT_SLOT + slot * SLOT + at)
    }

    pub fn begin_thread(&self, slot: usize, tid: u32) {
        let used = self.slot_word(slot, SLOT_USE);
        assert!(used.load(Ordering::Acquire).is_multiple_of(2));
        assert_eq!(
            used.load(Ordering::Acquire),
            self.slot_word(slot, SLOT_EMPTIED).load(Ordering::Acquire)
        );
        used.fetch_add(1, Ordering::AcqRel);
        self.slot_word(slot, SLOT_TID).store(tid, Ordering::Relaxed);
        let ring = Double::ring(slot);
        if self.u64_at(ring + 32) == 0 {
            self.put(ring + 32, RING as u64);
            self.put(ring + 8, RING as u64 / 2);
        }
    }

    pub fn end_thread(&self, slot: usize) {
        self.slot_word(slot, SLOT_USE).fetch_add(1, Ordering::AcqRel);
    }

    /// Logs an event by the slow path's steps. Returns false if it was lost.
    pub fn log(&self, slot: usize, id: u16, n: u64) -> bool {
        let ring = Double::ring(slot);
        let mut record = Vec::new();
        let builder = RecordBuilder::new(&self.layouts[usize::from(id - TICK)]).int("n", n as i64);
        let builder = if id == SAY { builder.text("text", b"hello") } else { builder };
        builder.finish(os::monotonic_ns(), &mut record);
        let (head, hard, missed) =
            (self.u64_at(ring), self.u64_at(ring + 32), self.u64_at(ring + 16));
        if head + record.len() as u64 > hard || missed > 0 {
            self.put(
                ring + 24,
                if missed == 0 { os::monotonic_ns() } else { self.u64_at(ring + 24) },
            );
            self.put(ring + 16, missed + 1);
            let lost = ring + 4096 + 8 * usize::from(id);
            self.put(lost, self.u64_at(lost) + 1);
            return false;
        }
        self.put(ring, head + record.len() as u64);
        let at = ring + RING_CONTROL + (head as usize & (RING - 1));
        self.file.write_all_at(&record[8..], at as u64 + 8).unwrap();
        self.file.write_all_at(&record[..8], at as u64).unwrap();
        true
    }

    pub fn call(&self) {
        self.map.word(AT_CALL).fetch_add(1, Ordering::Release);
        os::futex::wake(self.map.word(AT_CALL));
    }
}

pub fn dead_pid() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}
