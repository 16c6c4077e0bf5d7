// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads the file that a program shares with recorders (program_shm.h), with the layouts that
//! klogger-schema computes.

use klogger_codegen::BUILTIN_SCHEMA;
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Scalar, Shape};
use klogger_schema::{Options, parse};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub const RING_SIZE: u64 = 16384;
const MAGIC: u64 = 0x6c72_7463_6767_766b;
/// Offsets in the file, in a schema's description, and in a ring.
const DESCRIPTIONS: u64 = 240;
const LOST: u64 = 4096 + (1 << 18);
const SLOTS: u64 = LOST + 8 * 1024;
const RING_LOST: u64 = 4096;
const RING_DATA: u64 = 4096 + 2 * 8 * 1024;
const SLACK: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Numbers(Vec<i128>),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub time: u64,
    /// In the order of the declaration.
    pub fields: Vec<Value>,
}

impl Event {
    /// A field that is one number.
    pub fn number(&self, field: usize) -> i128 {
        match &self.fields[field] {
            Value::Numbers(numbers) => numbers[0],
            Value::Text(text) => panic!("{text} is no number"),
        }
    }
}

/// A program's file, as the recorder reads it.
pub struct Shared {
    file: File,
    pub pid: u32,
    pub parent: u32,
    slots_at: u64,
    stride: u64,
    layouts: BTreeMap<u16, EventLayout>,
}

/// Every file in the folder, parents before their children.
pub fn all(folder: &Path) -> Vec<Shared> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| Shared::open(&path)).collect();
    files.sort_by_key(|f| (f.parent != 0, f.pid));
    files
}

impl Shared {
    fn open(path: &Path) -> Shared {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut shared =
            Shared { file, pid: 0, parent: 0, slots_at: 0, stride: 0, layouts: BTreeMap::new() };
        assert_eq!(shared.u64(0), MAGIC);
        (shared.pid, shared.parent) = (shared.u32(12), shared.u32(72));
        (shared.slots_at, shared.stride) = (shared.u64(48), shared.u64(56));
        shared.add(BUILTIN_SCHEMA, 1);
        for at in (0..u64::from(shared.u32(68))).map(|n| DESCRIPTIONS + 64 * n) {
            let text = shared.bytes(u64::from(shared.u32(at + 8)), u64::from(shared.u32(at + 12)));
            shared.add(&String::from_utf8(text).unwrap(), shared.u32(at) as u16);
        }
        shared
    }

    fn add(&mut self, text: &str, base: u16) {
        let options = Options { builtin: base == 1, ..Options::default() };
        let schema = parse("a", text, &options).unwrap().schema;
        let layouts = schema
            .events
            .iter()
            .zip(base..)
            .map(|(e, id)| (id, EventLayout::new(&schema.name, e, id)));
        self.layouts.extend(layouts);
    }

    fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes(at, 8).try_into().unwrap())
    }

    fn u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.bytes(at, 4).try_into().unwrap())
    }

    /// Number of schemata besides klogger's own.
    pub fn schemata(&self) -> u32 {
        self.u32(68)
    }

    fn id(&self, event: &str) -> u64 {
        u64::from(*self.layouts.iter().find(|(_, l)| l.name == event).unwrap().0)
    }

    /// (number of takes and frees, thread) of each slot that was ever used.
    pub fn slots(&self) -> Vec<(u32, u32)> {
        let slots = (0..64).map(|n| SLOTS + 16 * n).map(|at| (self.u32(at), self.u32(at + 4)));
        slots.take_while(|(used, _)| *used > 0).collect()
    }

    fn ring(&self, slot: u64, nested: bool) -> u64 {
        let main = self.slots_at + slot * self.stride;
        if nested { main + RING_DATA + RING_SIZE + SLACK } else { main }
    }

    pub fn events(&self, slot: u64) -> Vec<Event> {
        self.walk(self.ring(slot, false))
    }

    pub fn nested_events(&self, slot: u64) -> Vec<Event> {
        self.walk(self.ring(slot, true))
    }

    /// Number of active hits in the slot.
    pub fn nest(&self, slot: u64) -> u64 {
        self.u64(self.ring(slot, false) + 40)
    }

    /// Events of this type that one of the slot's rings counted as lost.
    pub fn lost(&self, slot: u64, nested: bool, event: &str) -> u64 {
        self.u64(self.ring(slot, nested) + RING_LOST + 8 * self.id(event))
    }

    /// Losses of threads that had no ring.
    pub fn lost_without_ring(&self, event: &str) -> u64 {
        self.u64(LOST + 8 * self.id(event))
    }

    /// Takes all records out of the slot's main ring, as the drain does.
    pub fn drain(&self, slot: u64) -> Vec<Event> {
        let (ring, events) = (self.ring(slot, false), self.events(slot));
        let head = self.u64(ring);
        assert!(head <= RING_SIZE, "taken out once before");
        self.file.write_all_at(&vec![0; (RING_SIZE + SLACK) as usize], ring + RING_DATA).unwrap();
        self.file.write_all_at(&(head + RING_SIZE).to_le_bytes(), ring + 32).unwrap();
        self.file.write_all_at(&(head + RING_SIZE / 2).to_le_bytes(), ring + 8).unwrap();
        events
    }

    /// The records between the reader's position and the head.
    fn walk(&self, ring: u64) -> Vec<Event> {
        let (head, hard) = (self.u64(ring), self.u64(ring + 32));
        let size = if hard == 0 || ring == self.ring(0, true) { 65536 } else { RING_SIZE };
        let (data, mut at, mut events) =
            (self.bytes(ring + RING_DATA, size + SLACK), hard.max(size) - size, Vec::new());
        while at < head {
            let (event, bytes) = self.event(&data[(at & (size - 1)) as usize..]);
            events.push(event);
            at += u64::from(bytes);
        }
        assert_eq!(at, head, "the last record ends at the writers' position");
        events
    }

    fn event(&self, bytes: &[u8]) -> (Event, u32) {
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let layout =
            self.layouts.get(&(header as u16)).unwrap_or_else(|| panic!("header {header:#x}"));
        let mut texts = &bytes[layout.fixed as usize..];
        let mut sum = 0;
        let mut fields = Vec::new();
        for f in &layout.fields {
            let mut text: &[u8] = &[];
            if f.shape.tail_max().is_some() {
                let length = number(&bytes[f.offset as usize..], Scalar::U16) as usize;
                (text, texts) = texts.split_at(length);
                sum += length as u32;
            }
            fields.push(value(f, bytes, text));
        }
        let event = Event { name: layout.name.clone(), time: header >> 16, fields };
        (event, layout.record_size(sum))
    }
}

fn value(f: &FieldLayout, record: &[u8], tail: &[u8]) -> Value {
    let at = &record[f.offset as usize..];
    let size = f.scalar.size() as usize;
    match f.shape {
        Shape::One => Value::Numbers(vec![number(at, f.scalar)]),
        Shape::Array(n) => {
            Value::Numbers((0..n as usize).map(|i| number(&at[i * size..], f.scalar)).collect())
        }
        Shape::Text(n) => Value::Text(String::from_utf8(at[..n as usize].to_vec()).unwrap()),
        Shape::Tail(_) => Value::Text(String::from_utf8(tail.to_vec()).unwrap()),
    }
}

fn number(bytes: &[u8], scalar: Scalar) -> i128 {
    let size = scalar.size() as usize;
    let mut wide = [0; 16];
    wide[..size].copy_from_slice(&bytes[..size]);
    let unused = 128 - 8 * size;
    let value = i128::from_le_bytes(wide) << unused;
    if scalar.signed() { value >> unused } else { (value as u128 >> unused) as i128 }
}
