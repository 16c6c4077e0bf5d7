// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Memory images of synthetic machines: what is in them is found, and a damaged image does no harm.

mod machine;

use self::machine::{Machine, Pages, RECORD, RECORDING, SIZE, START_NS, elf, save_bytes};
use super::*;
use klogger_engines::anchor::format::{self, Moment, PAGE};
use klogger_os::memory;
use klogger_ring::{EVENTS_MAX, NESTED, Rings, STAMP};
use proptest::prelude::*;

fn keys(saved: &Salvaged) -> Vec<&str> {
    saved.ledger.entries.iter().map(|e| e.key.as_str()).collect()
}

fn one(rescued: (Result<Vec<Rescued>, Error>, tempfile::TempDir)) -> (Salvaged, Reader) {
    let mut all = rescued.0.unwrap();
    assert_eq!(all.len(), 1);
    let found = all.remove(0);
    assert_eq!(found.pid, 4711);
    let log = Reader::open(&found.output).unwrap();
    assert!(log.is_complete() && log.damage().is_empty());
    (found.salvaged, log)
}

#[test]
fn all_records_in_the_rings_are_found() {
    for counter in [false, true] {
        let machine = Machine::new(false, counter);
        machine.log(0..500);
        let (saved, log) = one(machine.rescued());
        assert_eq!((saved.rescued, keys(&saved)), (500, vec!["rescued"]));
        assert_eq!(log.times(), Some((START_NS, START_NS + 49_900)), "counter {counter}");
    }
}

#[test]
fn records_taken_out_before_are_counted() {
    let machine = Machine::new(false, false);
    machine.log(0..500);
    // The position that a reader had stored.
    let notes = 64 + 8 * klogger_ring::GRID + 8;
    machine.set(notes, 300 * RECORD as u64);
    machine.set(notes + 16, 300);
    let (saved, log) = one(machine.rescued());
    assert_eq!((saved.rescued, keys(&saved)), (200, vec!["rescued", "in_flight"]));
    assert_eq!((saved.summary.lost, log.times()), (300, Some((START_NS, START_NS + 49_900))));
    assert_eq!(saved.ledger.entries[1].count, 300);
}

#[test]
fn an_event_that_was_being_written_is_counted() {
    let machine = Machine::new(false, false);
    machine.log(0..100);
    machine.head().fetch_add(RECORD as u64, Ordering::Relaxed);
    let (saved, _) = one(machine.rescued());
    assert_eq!((saved.rescued, keys(&saved)), (100, vec!["rescued", "in_flight"]));
}

#[test]
fn a_flight_recorder_has_its_newest_events() {
    let machine = Machine::new(true, false);
    machine.log(0..3000);
    let per_ring = (SIZE / RECORD) as u64;
    // Where each part of the grid begins, as writers store it.
    for n in 0..klogger_ring::GRID as u64 {
        let part = SIZE as u64 / klogger_ring::GRID as u64;
        let newest = (3000 * RECORD as u64 - 1 - n * part) / part * part + part - part;
        machine.set(64 + 8 * (newest / part % klogger_ring::GRID as u64) as usize, newest);
    }
    machine.set(klogger_ring::LOST + 8 * EVENTS_MAX + 8 * 5, 3000);
    let (saved, log) = one(machine.rescued());
    assert!((per_ring - 64..=per_ring).contains(&saved.rescued), "{}", saved.rescued);
    assert_eq!(log.times().unwrap().1, START_NS + 100 * 2999);
    // The CPU was stopped while it wrote one more event over an older one.
    machine.head().fetch_add(RECORD as u64, Ordering::Relaxed);
    machine.set(40, 1);
    let (saved, log) = one(machine.rescued());
    assert_eq!(log.times().unwrap().1, START_NS + 100 * 2999);
    assert!(keys(&saved).contains(&"in_flight"));
}

/// They were replaced right before the crash.
#[test]
fn rings_before_those_in_use_are_read_first() {
    let (before, after) = (Machine::new(false, false), Machine::another());
    before.log(0..300);
    let notes = 64 + 8 * klogger_ring::GRID + 8;
    let rescued = |taken: u64| {
        before.set(notes, taken * RECORD as u64);
        before.set(notes + 16, taken);
        let mut pages = Pages::new();
        before.put_in(&mut pages, &before.text());
        after.put_in(&mut pages, &after.text());
        one(save_bytes(&elf(&pages)))
    };
    after.set(notes + 16, 300);
    after.log(300..500);
    let (saved, log) = rescued(100);
    assert_eq!((saved.rescued, saved.summary.lost), (400, 100));
    assert_eq!(log.times(), Some((START_NS, START_NS + 49_900)));
    // In most images these rings are empty.
    let (saved, _) = rescued(300);
    assert_eq!((saved.rescued, saved.summary.lost), (200, 300));
}

/// The main ring was replaced by a larger one, and the nested ring stayed.
#[test]
fn a_nested_ring_is_read_once() {
    let (before, after) =
        (Machine::new(false, false), Machine { nested_at: 100, ..Machine::another() });
    before.log(0..300);
    after.log(300..500);
    after.log_in(Rings::stride(SIZE), NESTED, 500..507);
    let notes = 64 + 8 * klogger_ring::GRID + 8;
    after.set(notes + 16, 300);
    for (taken, rescued) in [(100, 200 + 207), (300, 207)] {
        before.set(notes, taken * RECORD as u64);
        before.set(notes + 16, taken);
        let mut pages = Pages::new();
        before.put_in(&mut pages, &before.text());
        after.put_in(&mut pages, &after.text());
        let (saved, log) = one(save_bytes(&elf(&pages)));
        assert_eq!((saved.rescued, saved.summary.lost), (rescued, taken));
        assert_eq!(log.times().unwrap().1, START_NS + 50_600);
    }
}

#[test]
fn a_page_that_was_reused_is_not_a_ring() {
    let machine = Machine::new(false, false);
    machine.log(0..100);
    machine.set(STAMP, RECORDING + 1);
    let (saved, _) = one(machine.rescued());
    assert_eq!((saved.rescued, keys(&saved)), (0, vec!["rescued", "block_corrupt"]));
}

#[test]
fn a_wiped_anchor_is_ignored() {
    let anchor = memory::zeros(format::size(10_000)).unwrap();
    format::write(&anchor, 1, 1, &[7; 10_000]);
    let page = |n: usize| -> Vec<u8> {
        (0..PAGE / 8)
            .flat_map(|i| anchor.word(n * PAGE + 8 * i).load(Ordering::Relaxed).to_le_bytes())
            .collect()
    };
    assert_eq!(
        (0..4).map(|n| format::read_head(&page(n)).unwrap().1).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    format::wipe(&anchor);
    assert!((0..4).all(|n| format::read_head(&page(n)).is_none()));
}

#[test]
fn a_file_that_is_not_an_image_is_refused() {
    let machine = Machine::new(false, false);
    let image = machine.image(&machine.text());
    let says = |bytes: &[u8]| save_bytes(bytes).0.err().unwrap().message;
    assert!(says(b"").contains("is not a memory image"));
    assert!(says(b"KDUMP   rest").contains("compressed by kdump"));
    assert!(
        says(&elf(&BTreeMap::from([(1, vec![1; PAGE])]))).contains("holds no rings of klogger")
    );
    // The anchor is last.
    assert!(says(&image[..image.len() - PAGE]).contains("not all of its anchor"));
    let mut other = image.clone();
    other[4] = 1;
    assert!(says(&other).contains("of 64 bits"));
    let mut many = image.clone();
    many[32..40].copy_from_slice(&0u64.to_le_bytes());
    assert!(
        says(&many).contains("is not a memory image")
            || says(&many).contains("overlap")
            || says(&many).contains("holds")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_image_does_no_harm(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
        overwrite: bool, counter: bool,
    ) {
        let machine = Machine::new(overwrite, counter);
        machine.log(0..700);
        let mut image = machine.image(&machine.text());
        for (at, value) in flips {
            let at = at.index(image.len());
            image[at] = value;
        }
        if let Some(cut) = cut {
            image.truncate(cut.index(image.len()));
        }
        check(&image);
    }

    /// The checksums are correct, but the contents are invalid.
    #[test]
    fn a_lying_anchor_does_no_harm(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        numbers in prop::collection::vec((0usize..8, prop_oneof![any::<u64>(), 0u64..200]), 0..3),
        overwrite: bool, counter: bool,
    ) {
        let mut machine = Machine::new(overwrite, counter);
        machine.log(0..700);
        for (which, number) in numbers {
            let index = &mut machine.index;
            match which {
                0 => index.page = number,
                1 => index.rings[0].size = number as usize,
                2 => index.rings[0].main.at = number as usize,
                3 => index.rings[0].main.count = number as usize,
                4 => index.ringless.at = number as usize,
                5 => index.first.ticks = number,
                6 => machine.newest = Moment { ticks: number, ns: number },
                _ => machine.facts.preamble.clock.start_ns = number,
            }
        }
        let mut text = machine.text();
        for (at, value) in flips {
            let at = at.index(text.len());
            text[at] = value;
        }
        check(&machine.image(&text));
    }

    /// Random words in the rings.
    #[test]
    fn lying_rings_do_no_harm(
        words in prop::collection::vec((prop_oneof![0usize..90, 512usize..2560, 2560usize..3000],
            prop_oneof![any::<u64>(), 0u64..100_000]), 1..8),
        overwrite: bool, counter: bool,
    ) {
        let machine = Machine::new(overwrite, counter);
        machine.log(0..700);
        for (at, word) in words {
            if 8 * at != STAMP && 8 * at != STAMP + 8 {
                machine.set(8 * at, word);
            }
        }
        check(&machine.image(&machine.text()));
    }
}

/// A log that can be read, or one clear error; and no more bytes than were there.
fn check(image: &[u8]) {
    let (saved, _folder) = save_bytes(image);
    match saved {
        Ok(all) => {
            for r in all {
                let log = Reader::open(&r.output).unwrap();
                assert!(log.length() < 4 * image.len() as u64);
            }
        }
        Err(e) => assert!(!e.message.is_empty()),
    }
}
