// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Cutting blocks to a span: exactly the events of the span, whatever the blocks and the span are,
//! and no gap is reported where something was cut.

mod common;

use common::{START, events, preamble, record};
use klogger_log::cut::Cutter;
use klogger_log::ledger::Ledger;
use klogger_log::origin::{Origin, Thread};
use klogger_log::preamble::{Preamble, Snapshot};
use klogger_log::reader::Reader;
use klogger_log::writer::{Compression, EventBlock, Extent, Writer};
use proptest::prelude::*;

/// A record: how much later than the one before it, how much earlier it is than that because it was
/// interrupted, and the count of a `LOST` record before it.
type Step = (u64, u64, u64);

struct Stored {
    origin: Origin,
    first_serial: u64,
    records: Vec<u8>,
    extent: Extent,
}

fn origins() -> [Origin; 3] {
    let thread = Thread { tid: 51, tgid: 50 };
    [Origin::Cpu(0), Origin::Cpu(7), Origin::Thread { stream: 3, thread }]
}

/// A log of all blocks, and the blocks with what the writer knows of them.
fn whole(blocks: &[(usize, Vec<Step>)]) -> (Vec<u8>, Vec<Stored>) {
    let (preamble, mut bytes, mut stored) = (of_programs(), Vec::new(), Vec::new());
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    let (mut serials, mut times) = ([0; 3], [START; 3]);
    for (which, steps) in blocks {
        let (origin, mut records) = (origins()[*which], Vec::new());
        for (later, earlier, lost) in steps {
            times[*which] += later;
            let time = times[*which];
            if *lost > 0 {
                record(&preamble, "LOST").int("count", *lost as i64).finish(time, &mut records);
            }
            let time = time.saturating_sub(*earlier).max(START);
            record(&preamble, "TICK").int("n", time as i64).finish(time, &mut records);
        }
        let first_serial = serials[*which];
        let block = EventBlock { origin, time_base: START, first_serial, records: &records };
        serials[*which] = writer.block(&block).unwrap();
        let extent = writer.last();
        stored.push(Stored { origin, first_serial, records, extent });
    }
    writer.finish(&Ledger::default()).unwrap();
    (bytes, stored)
}

fn of_programs() -> Preamble {
    let mut preamble = preamble();
    preamble.schemas.push(klogger_log::preamble::SchemaText {
        name: "test".into(),
        user: true,
        ..Default::default()
    });
    preamble
}

fn snapshot(stored: &[Stored], from_ns: u64, to_ns: u64) -> (Vec<u8>, u64) {
    let mut cutter = Cutter::new(&of_programs().events, from_ns, to_ns);
    let mut parts = Vec::new();
    for Stored { origin, first_serial, records, extent } in stored {
        let (origin, first_serial) = (*origin, *first_serial);
        let block = EventBlock { origin, time_base: START, first_serial, records };
        parts.extend(cutter.cut(&block, *extent));
    }
    let (count, mut bytes) = (cutter.events, Vec::new());
    let snapshot =
        Some(Snapshot { from_ns, to_ns, left_out: cutter.left_out(), ..Snapshot::default() });
    let preamble = Preamble { snapshot, ..of_programs() };
    let mut writer = Writer::new(&mut bytes, &preamble, Compression::None).unwrap();
    for part in parts {
        writer.block(&part).unwrap();
    }
    writer.finish(&Ledger::default()).unwrap();
    (bytes, count)
}

fn check(blocks: &[(usize, Vec<Step>)], from_ns: u64, to_ns: u64) {
    let (all, stored) = whole(blocks);
    let (bytes, count) = snapshot(&stored, from_ns, to_ns);
    let (all, cut) = (Reader::from_bytes(all).unwrap(), Reader::from_bytes(bytes).unwrap());
    assert!(all.damage().is_empty());
    let wanted: Vec<_> =
        events(&all).into_iter().filter(|e| (from_ns..=to_ns).contains(&e.0)).collect();
    let found = events(&cut);
    assert_eq!(wanted, found);
    assert_eq!(count, wanted.iter().filter(|e| e.3 != "LOST").count() as u64);
    assert!(cut.damage().is_empty(), "{:?}", cut.damage());
}

#[test]
fn the_interrupted_hit_of_an_edge_is_left_out_alone() {
    // The second record was interrupted by the first, which is later.
    let steps = vec![(10, 0, 0), (0, 5, 0), (10, 0, 0)];
    check(&[(0, steps)], START + 8, START + 100);
}

#[test]
fn a_block_that_is_missing_is_still_a_gap() {
    let steps = || vec![(10, 0, 0), (10, 0, 0)];
    let (_, mut stored) = whole(&[(0, steps()), (0, steps()), (0, steps())]);
    stored.remove(1);
    let (bytes, _) = snapshot(&stored, START, START + 1000);
    assert_eq!(Reader::from_bytes(bytes).unwrap().damage()[0].events, 2);
}

proptest! {
    #[test]
    fn exactly_the_events_of_the_span(
        blocks in proptest::collection::vec(
            (0usize..3, proptest::collection::vec((0u64..20, 0u64..30, prop_oneof![
                9 => Just(0u64), 1 => 1u64..1000
            ]), 1..40)),
            0..12,
        ),
        from in 0u64..600,
        length in 0u64..600,
    ) {
        check(&blocks, START + from, START + from + length);
    }
}
