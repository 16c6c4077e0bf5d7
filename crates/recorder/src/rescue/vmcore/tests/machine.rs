// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A synthetic machine with a recording, and images of its memory.

use super::super::*;
use klogger_engines::anchor::format::{self, Index, Moment, PAGE, Range, RingsAt};
use klogger_log::preamble::{Clock as LogClock, Preamble, Recorder};
use klogger_os::{Mapping, memory};
use klogger_ring::block::Builtin;
use klogger_ring::{CONTROL, EVENTS_MAX, NESTED, Rings, STAMP};
use klogger_schema::layout::EventLayout;
use klogger_toolchain::bundled;
use std::fs;
use std::sync::Arc;

pub const SIZE: usize = 16 << 10;
pub const RECORDING: u64 = 77;
/// The machine has just booted.
pub const START_NS: u64 = 5_000_000_000;
/// Bytes of a DUMP_BEGIN record.
pub const RECORD: usize = 16;

pub fn layouts() -> Vec<EventLayout> {
    bundled::builtin().unwrap().layouts(1)
}

pub fn facts(overwrite: bool) -> Facts {
    let preamble = Preamble {
        engine: "bpf".into(),
        clock: LogClock { start_ns: START_NS, ..LogClock::default() },
        recorder: Recorder {
            pid: 4711,
            buffer_size: SIZE as u64,
            overwrite,
            ..Recorder::default()
        },
        events: layouts(),
        ..Preamble::default()
    };
    Facts { log: "/nonexistent/run.klog".into(), rings: 1, preamble }
}

/// The memory of a machine with one CPU.
pub struct Machine {
    pub rings: Mapping,
    pub ringless: Mapping,
    pub index: Index,
    pub facts: Facts,
    pub newest: Moment,
    /// The first frame of the anchor, and when the anchor was made.
    pub at: u64,
    pub made: u64,
    /// The first frame of its nested ring.
    pub nested_at: u64,
}

/// Pages of a machine, by frame.
pub type Pages = BTreeMap<u64, Vec<u8>>;

impl Machine {
    pub fn new(overwrite: bool, counter: bool) -> Machine {
        let (main, nested) = (Rings::stride(SIZE), Rings::stride(NESTED));
        let range = |at: usize, bytes: usize| Range { at: at / PAGE, count: bytes / PAGE };
        let rings =
            RingsAt { cpu: 0, size: SIZE, main: range(0, main), nested: range(main, nested) };
        let ringless = range(main + nested, 8 * EVENTS_MAX);
        let moment =
            |ns: u64| Moment { ticks: if counter { 2 * (ns - START_NS) + 5 } else { ns }, ns };
        let machine = Machine {
            rings: memory::zeros(main + nested).unwrap(),
            ringless: memory::zeros(8 * EVENTS_MAX).unwrap(),
            index: Index {
                page: PAGE as u64,
                counter,
                first: moment(START_NS),
                rings: vec![rings],
                ringless,
            },
            facts: facts(overwrite),
            newest: moment(START_NS + 1_000_000),
            at: 100,
            made: 1,
            nested_at: 100,
        };
        for (nested, at) in [0, main].into_iter().enumerate() {
            machine.set(at + STAMP, RECORDING);
            machine.set(at + STAMP + 8, nested as u64);
        }
        machine
    }

    /// The same machine, with other rings.
    pub fn another() -> Machine {
        Machine { at: 1000, made: 2, nested_at: 1000, ..Machine::new(false, false) }
    }

    /// Frames are out of order.
    pub fn frame(&self, n: usize) -> u64 {
        let nested = Rings::stride(SIZE) / PAGE..self.rings.length() / PAGE;
        let at = if nested.contains(&n) { self.nested_at } else { self.at };
        at + (n as u64 * 37) % 128
    }

    pub fn set(&self, at: usize, word: u64) {
        self.rings.word(at).store(word, Ordering::Relaxed);
    }

    pub fn head(&self) -> &std::sync::atomic::AtomicU64 {
        self.rings.word(0)
    }

    /// Events with these numbers, 100 ns apart.
    pub fn log(&self, numbers: std::ops::Range<u64>) {
        self.log_in(0, SIZE, numbers);
    }

    /// Logs into one of the rings.
    pub fn log_in(&self, ring: usize, size: usize, numbers: std::ops::Range<u64>) {
        let builtin = Builtin(Arc::new(self.facts.preamble.events.clone()));
        for n in numbers {
            let (mut bytes, ns) = (Vec::new(), START_NS + 100 * n);
            let time = if self.index.counter { 2 * (ns - START_NS) + 5 } else { ns };
            builtin
                .event("DUMP_BEGIN")
                .int("of_cpu", 0)
                .int("index", n as i64)
                .finish(time, &mut bytes);
            assert_eq!(bytes.len(), RECORD);
            let head = self.rings.word(ring).fetch_add(RECORD as u64, Ordering::Relaxed);
            let at = ring + CONTROL + head as usize % size;
            let (words, _) = bytes.as_chunks();
            words
                .iter()
                .enumerate()
                .for_each(|(i, w)| self.set(at + 8 * i, u64::from_le_bytes(*w)));
        }
    }

    /// The text of its anchor.
    pub fn text(&self) -> Vec<u8> {
        let frames: Vec<u64> = (0..self.rings.length() / PAGE + 2).map(|n| self.frame(n)).collect();
        format::text(&serde_json::to_vec(&self.facts).unwrap(), &self.index, &frames)
    }

    pub fn image(&self, text: &[u8]) -> Vec<u8> {
        let mut pages = Pages::new();
        self.put_in(&mut pages, text);
        elf(&pages)
    }

    pub fn put_in(&self, pages: &mut Pages, text: &[u8]) {
        let mut put = |at: u64, from: &Mapping, n: usize| {
            let words = (0..PAGE / 8)
                .flat_map(|i| from.word(n * PAGE + 8 * i).load(Ordering::Relaxed).to_le_bytes());
            pages.insert(at, words.collect());
        };
        let rings = self.rings.length() / PAGE;
        (0..rings).for_each(|n| put(self.frame(n), &self.rings, n));
        (0..2).for_each(|n| put(self.frame(rings + n), &self.ringless, n));
        let anchor = memory::zeros(format::size(text.len())).unwrap();
        (0..2).for_each(|_| format::put_time(&anchor, self.newest));
        format::write(&anchor, RECORDING, self.made, text);
        (0..anchor.length() / PAGE).for_each(|n| put(self.at + 500 - n as u64, &anchor, n));
    }

    pub fn rescued(&self) -> (Result<Vec<Rescued>, Error>, tempfile::TempDir) {
        save_bytes(&self.image(&self.text()))
    }
}

/// One segment for each run of pages.
pub fn elf(pages: &Pages) -> Vec<u8> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, page) in pages {
        match runs.last_mut() {
            Some((first, bytes)) if *first + (bytes.len() / PAGE) as u64 == *at => {
                bytes.extend_from_slice(page)
            }
            _ => runs.push((*at, page.clone())),
        }
    }
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |n: u16| n.to_le_bytes().to_vec();
    let word = |n: u64| n.to_le_bytes().to_vec();
    let numbers = [half(4), half(62), vec![1, 0, 0, 0], word(0), word(64), word(0), vec![0; 4]];
    file.extend(numbers.concat());
    file.extend([half(64), half(56), half(runs.len() as u16), half(64), half(0), half(0)].concat());
    let mut offset = 64 + 56 * runs.len() as u64;
    for (first, bytes) in &runs {
        let length = bytes.len() as u64;
        let parts = [offset, 0, first * PAGE as u64, length, length, 0];
        file.extend([1, 0, 0, 0, 6, 0, 0, 0]);
        file.extend(parts.into_iter().flat_map(u64::to_le_bytes));
        offset += length;
    }
    file.extend(runs.into_iter().flat_map(|(_, bytes)| bytes));
    file
}

pub fn save_bytes(image: &[u8]) -> (Result<Vec<Rescued>, Error>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let vmcore = folder.path().join("vmcore");
    fs::write(&vmcore, image).unwrap();
    (save(&vmcore, None, &folder.path().join("out.klog"), Compression::None), folder)
}
