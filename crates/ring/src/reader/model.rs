// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The reader against a model of the writers: the steps of runtime/bpf/klogger.bpf.h, one by one,
//! in any order that interrupts allow, in ordinary memory. The model is of the nested ring, because
//! no interrupt writes to the main ring in the middle of a record.

use super::*;
use klogger_log::record::{Header, SizeTable};
use klogger_schema::layout::{EventLayout, FieldLayout};
use klogger_schema::model::{Decode, Scalar, Shape};
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::AsFd;

const SIZE: usize = 16 << 10;
pub(super) const LOST_ID: u16 = 8;

fn layout(id: u16, words: u32) -> EventLayout {
    let field = |n: u32| FieldLayout {
        name: format!("f{n}"),
        type_name: "u64".into(),
        scalar: Scalar::U64,
        shape: Shape::One,
        offset: 8 * (n + 1),
        unit: None,
        decode: Decode::Plain,
        doc: None,
        context: None,
    };
    let fields = (0..words).map(field).collect();
    EventLayout {
        id,
        schema: "t".into(),
        name: format!("E{id}"),
        doc: None,
        fixed: 8 + 8 * words,
        fields,
        about: vec![],
        role: None,
        begins: vec![],
        ends: vec![],
        line: None,
    }
}

pub fn kinds() -> RecordKinds {
    // Ids 9, 10, 11 have records of 8, 24 and 512 bytes.
    let layouts = [layout(LOST_ID, 2), layout(9, 0), layout(10, 2), layout(11, 63)];
    RecordKinds {
        sizes: SizeTable::new(&layouts),
        lost_id: LOST_ID,
        lost_count_offset: 8,
        lost_since_offset: 16,
    }
}

pub(super) fn record_size(id: u16) -> u64 {
    match id {
        LOST_ID => 24,
        9 => 8,
        10 => 24,
        _ => 512,
    }
}

impl RingReader {
    pub(super) fn take(&mut self, kinds: &RecordKinds, out: &mut Vec<u8>, max: usize) -> Taken {
        let taken = self.copy(kinds, out, max);
        self.release();
        taken
    }
}

/// The writers of one CPU.
pub(super) struct Writers {
    pub(super) reader: RingReader,
    pub(super) time: u64,
    pub(super) overwrite: bool,
    /// How often a writer woke the reader.
    pub(super) calls: u32,
}

/// A record whose space is taken, but whose header is not stored yet.
pub(super) struct Open {
    pub(super) id: u16,
    pub(super) at: u64,
    pub(super) time: u64,
}

impl Writers {
    pub(super) fn new(overwrite: bool) -> Writers {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(Rings::stride(SIZE) as u64).unwrap();
        let file: &File = &memory;
        let rings =
            Rings::new(Mapping::new(file.as_fd(), Rings::stride(SIZE)).unwrap(), SIZE, 1, 10);
        let reader = rings.reader(0);
        reader.open(overwrite);
        Writers { reader, time: 0, overwrite, calls: 0 }
    }

    pub(super) fn load(&self, offset: usize) -> u64 {
        self.reader.word(offset).load(Ordering::Relaxed)
    }

    pub(super) fn store(&self, offset: usize, value: u64) {
        self.reader.word(offset).store(value, Ordering::Relaxed);
    }

    fn claim(&mut self, size: u64) -> Option<u64> {
        let head = self.load(HEAD);
        if head + size > self.load(HARD) {
            return None;
        }
        self.store(HEAD, head + size);
        let part = (SIZE / GRID) as u64;
        if self.overwrite && head / part != (head + size) / part {
            self.store(FIRST + 8 * ((head + size) / part % GRID as u64) as usize, head + size);
        }
        Some(head)
    }

    /// An attempt to log: a record to be committed later, or a loss.
    fn reserve(&mut self, id: u16) -> Option<Open> {
        self.time += 1;
        if self.overwrite {
            let at = ATTEMPTS + 8 * usize::from(id);
            self.store(at, self.load(at) + 1);
        }
        if self.load(HEAD) + record_size(id) > self.load(LIMIT)
            && self.load(LIMIT) < self.load(HARD)
        {
            self.store(LIMIT, self.load(HARD));
            self.calls += 1;
        }
        let missed = self.load(MISSED);
        if missed > 0 && self.load(HEAD) + 24 + record_size(id) <= self.load(HARD) {
            let since = self.load(MISSED_SINCE);
            self.store(MISSED, 0);
            let at = self.claim(24).unwrap();
            self.word_at(at, 1, missed);
            self.word_at(at, 2, since);
            self.commit(&Open { id: LOST_ID, at, time: self.time });
        }
        let claimed = if self.load(MISSED) > 0 { None } else { self.claim(record_size(id)) };
        match claimed {
            Some(at) => Some(Open { id, at, time: self.time }),
            None => {
                if self.load(MISSED) == 0 {
                    self.store(MISSED_SINCE, self.time);
                }
                self.store(MISSED, self.load(MISSED) + 1);
                let lost = LOST + 8 * usize::from(id);
                self.store(lost, self.load(lost) + 1);
                None
            }
        }
    }

    fn log(&mut self, ids: Vec<u16>) -> Vec<(u16, u64)> {
        let mut logged = Vec::new();
        for id in ids {
            let open = self.reserve(id).unwrap();
            self.commit(&open);
            logged.push((open.id, open.time));
        }
        logged
    }

    pub(super) fn word_at(&self, at: u64, n: usize, value: u64) {
        self.store(CONTROL + (at as usize & (SIZE - 1)) + 8 * n, value);
    }

    /// Every word of the payload repeats the time, so that a torn record shows.
    pub(super) fn commit(&self, open: &Open) {
        let words = record_size(open.id) as usize / 8;
        if open.id != LOST_ID {
            (1..words).for_each(|n| self.word_at(open.at, n, open.time));
        }
        self.word_at(open.at, 0, Header::new(open.time, open.id).0);
    }
}

/// A whole record as the reader returns it.
pub fn record(id: u16, time: u64) -> Vec<u8> {
    let words = record_size(id) as usize / 8;
    let payload = (1..words).flat_map(|_| time.to_le_bytes());
    Header::new(time, id).0.to_le_bytes().into_iter().chain(payload).collect()
}

/// (id, time) of each record, after a check that none is torn.
pub(super) fn records(bytes: &[u8]) -> Vec<(u16, u64)> {
    let kinds = kinds();
    let mut list = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = Header::read(rest).unwrap();
        let size = kinds.sizes.size(rest).unwrap();
        for word in rest[8..size].chunks_exact(8) {
            let value = u64::from_le_bytes(word.try_into().unwrap());
            assert!(header.id() == LOST_ID || value == header.time48(), "a torn record");
        }
        list.push((header.id(), header.time48()));
        rest = &rest[size..];
    }
    list
}

#[derive(Clone, Debug)]
enum Step {
    /// Reserve space; the record stays uncommitted.
    Reserve(u16),
    /// Commit the record that was reserved last, as the end of an interrupt does.
    Commit,
    /// The reader takes records.
    Take(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (9u16..12).prop_map(Step::Reserve),
        6 => Just(Step::Commit),
        1 => (1usize..20_000).prop_map(Step::Take),
    ];
    proptest::collection::vec(step, 0..600)
}

proptest! {
    #[test]
    fn everything_logged_comes_out_once_and_the_rest_is_counted(steps in steps()) {
        let mut writers = Writers::new(false);
        let (mut open, mut out, mut total) = (Vec::new(), Vec::new(), Taken::default());
        let (mut attempts, mut logged, mut lost) = (0u64, Vec::new(), 0u64);
        let end = (0..64).map(|_| Step::Commit).chain([Step::Take(usize::MAX)]);
        for step in steps.into_iter().chain(end) {
            match step {
                // No more than four contexts can nest: thread, softirq, interrupt, NMI.
                Step::Reserve(id) if open.len() < 4 => {
                    attempts += 1;
                    match writers.reserve(id) {
                        Some(o) => { logged.push((o.id, o.time)); open.push(o) }
                        None => lost += 1,
                    }
                }
                Step::Reserve(_) => {}
                Step::Commit => if let Some(o) = open.pop() { writers.commit(&o) },
                Step::Take(max) => {
                    let taken = writers.reader.take(&kinds(), &mut out, max);
                    prop_assert!(!taken.torn);
                    total.serials += taken.serials;
                    total.lost += taken.lost;
                }
            }
        }
        let seen: Vec<_> = records(&out).into_iter().filter(|r| r.0 != LOST_ID).collect();
        prop_assert_eq!(&seen, &logged);
        let (missed, _) = writers.reader.missed();
        prop_assert_eq!(total.lost + missed, lost);
        prop_assert_eq!(total.serials + missed, attempts);
        prop_assert_eq!((9..12).map(|id| writers.reader.lost(id)).sum::<u64>(), lost);
        // A writer that lost an event had woken the reader before.
        prop_assert!(lost == 0 || writers.calls > 0);
        // The reader zeroed all that it took.
        prop_assert!(writers.reader.bytes(0, SIZE + SLACK).iter().all(|b| *b == 0));
    }

    #[test]
    fn overwrite_keeps_the_newest(ids in proptest::collection::vec(9u16..12, 0..2000)) {
        let mut writers = Writers::new(true);
        let logged = writers.log(ids);
        let mut out = Vec::new();
        let taken = writers.reader.take_overwritten(&kinds(), &mut out);
        let seen = records(&out);
        prop_assert!(!taken.torn);
        prop_assert!(logged.ends_with(&seen));
        // What is missing is older than one ring, less one part of the grid and a record.
        let kept: u64 = seen.iter().map(|r| record_size(r.0)).sum();
        let written: u64 = logged.iter().map(|r| record_size(r.0)).sum();
        prop_assert!(kept == written || kept >= (SIZE - SIZE / GRID - 1024) as u64, "{} of {}",
            kept, written);
    }

    /// A hit in an interrupt may come at any moment of the copying: what is before `cut` was copied
    /// before it, the rest after it.
    #[test]
    fn what_is_overwritten_while_it_is_copied_is_left_out(
        before in proptest::collection::vec(9u16..12, 0..1500),
        meanwhile in proptest::collection::vec(9u16..12, 0..600),
        cut in 0..SIZE / 8,
        late in any::<bool>(),
    ) {
        let mut writers = Writers::new(true);
        let logged = writers.log(before);
        let head = writers.reader.head();
        let (start, end) = (8 * cut, SIZE + SLACK);
        let mut image = writers.reader.image(head).unwrap();
        let written = writers.log(meanwhile);
        // It is uncommitted when the copy is complete.
        let open = writers.reserve(11).unwrap();
        writers.word_at(open.at, 0, Header::new(1, 999).0);
        let later = writers.reader.image(head).unwrap();
        image.put(start, later.bytes(start, end - start));
        if late {
            later.put(start, image.bytes(start, end - start));
            image = later;
        }
        let oldest = writers.reader.head().saturating_sub(SIZE as u64);
        let mut out = Vec::new();
        let taken = image.take_round(&kinds(), &mut out, oldest, head);
        let seen = records(&out);
        prop_assert!(!taken.torn);
        prop_assert!(logged.ends_with(&seen));
        let bytes = |list: &[(u16, u64)]| list.iter().map(|r| record_size(r.0)).sum::<u64>();
        let gone = bytes(&written) + 512 + (SIZE / GRID) as u64 + 1024;
        prop_assert!(seen == logged || bytes(&seen) + gone >= SIZE as u64, "{} of {}", bytes(&seen),
            bytes(&logged));
    }
}

#[test]
fn invalid_contents_of_a_ring_are_skipped_and_reported() {
    let mut writers = Writers::new(false);
    let open = writers.reserve(10).unwrap();
    writers.store(CONTROL, Header::new(1, 999).0);
    let mut out = Vec::new();
    let taken = writers.reader.take(&kinds(), &mut out, usize::MAX);
    assert!(taken.torn && out.is_empty());
    assert_eq!(writers.reader.fill(), 0);
    assert_eq!(open.at, 0);
    let next = writers.reserve(9).unwrap();
    writers.commit(&next);
    assert_eq!(writers.reader.take(&kinds(), &mut out, usize::MAX).records, 1);
}
