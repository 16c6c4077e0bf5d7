// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Forged logs: the cost of reading one is in proportion to its bytes, and its memory is limited.
//! It is measured in allocated bytes, so that no test depends on time.

mod common;

use common::{cpu, preamble, record};
use klogger_log::format::{BlockHeader, Kind, Packing};
use klogger_log::ledger::Key;
use klogger_log::merge::Selection;
use klogger_log::origin::Origin;
use klogger_log::reader::Reader;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALL: AtomicUsize = AtomicUsize::new(0);
/// Tests that count allocations run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: every call is handed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALL.fetch_add(layout.size(), Ordering::Relaxed);
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A log with a preamble and no blocks.
fn head() -> Vec<u8> {
    let json = serde_json::to_vec(&preamble()).unwrap();
    let mut bytes = klogger_log::format::encode_file_header(&json).to_vec();
    bytes.extend_from_slice(&json);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Appends a block of events whose header claims that they begin at time 0.
fn forge(
    bytes: &mut Vec<u8>,
    origin: Origin,
    first_serial: u64,
    records: &[u8],
    events: u32,
    pack: bool,
) {
    let packed = if pack { zstd::bulk::compress(records, 1).unwrap() } else { records.to_vec() };
    let header = BlockHeader {
        origin,
        packing: if pack { Packing::Zstd } else { Packing::None },
        stored: packed.len() as u32,
        raw: records.len() as u32,
        last_time: u64::MAX >> 16,
        first_serial,
        events,
        ..BlockHeader::plain(Kind::Events)
    };
    bytes.extend_from_slice(&header.encode(&packed));
    bytes.extend_from_slice(&packed);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// (events, events reported missing, bytes allocated in total, and at once)
fn walk(reader: &Reader) -> (u64, u64, usize, usize) {
    let (all, now) = (ALL.load(Ordering::Relaxed), NOW.load(Ordering::Relaxed));
    PEAK.store(now, Ordering::Relaxed);
    let mut merge = reader.merge(&Selection::default());
    let mut events = 0;
    while merge.next().is_some() {
        events += 1;
    }
    let missing = merge.damage().iter().map(|d| d.events).sum();
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(now);
    (events, missing, ALL.load(Ordering::Relaxed) - all, peak)
}

const EACH: u32 = 100;

/// Blocks of one CPU, all of which claim to begin at time 0.
fn all_at_zero(blocks: u64) -> Reader {
    let (mut bytes, preamble) = (head(), preamble());
    for block in 0..blocks {
        let mut records = Vec::new();
        for n in 0..u64::from(EACH) {
            record(&preamble, "TICK").int("n", 1).finish(1000 + block * 1000 + n, &mut records);
        }
        forge(&mut bytes, cpu(0), block * u64::from(EACH), &records, EACH, false);
    }
    Reader::from_bytes(bytes).unwrap()
}

#[test]
fn blocks_that_all_begin_at_time_0_are_read_in_linear_time() {
    let _alone = ALONE.lock();
    let (few, many) = (all_at_zero(200), all_at_zero(1600));
    let (events, missing, few_bytes, _) = walk(&few);
    assert_eq!((events, missing), (200 * u64::from(EACH), 0));
    let (events, missing, many_bytes, many_peak) = walk(&many);
    assert_eq!((events, missing), (1600 * u64::from(EACH), 0));
    assert!(many_bytes < 10 * few_bytes, "8 times the blocks: {few_bytes} and {many_bytes} bytes");
    assert!(many_peak < 2 << 20, "{many_peak} bytes at once");
}

/// 8 GiB of events in some 800 kB.
#[test]
fn a_small_file_does_not_take_gigabytes() {
    let _alone = ALONE.lock();
    let (mut bytes, preamble) = (head(), preamble());
    let mut records = Vec::new();
    // A record of a single word would take most memory; the shortest one here has two.
    record(&preamble, "TICK").int("n", 1).finish(1000, &mut records);
    let records = records.repeat((16 << 20) / records.len());
    let events = (records.len() / 16) as u32;
    for stream in 0..512 {
        forge(&mut bytes, cpu(stream), 0, &records, events, true);
    }
    assert!(bytes.len() < 2 << 20);
    let reader = Reader::from_bytes(bytes).unwrap();
    let (all, now) = (ALL.load(Ordering::Relaxed), NOW.load(Ordering::Relaxed));
    PEAK.store(now, Ordering::Relaxed);
    let mut merge = reader.merge(&Selection::default());
    // The first event of all streams needs a block of each.
    assert!(merge.next().is_some());
    assert!(
        merge.damage().iter().any(|d| d.key == Key::BlockCorrupt && d.events == u64::from(events))
    );
    let peak = PEAK.load(Ordering::Relaxed) - now;
    assert!(peak < 512 << 20, "{peak} bytes at once, of {}", ALL.load(Ordering::Relaxed) - all);
}
