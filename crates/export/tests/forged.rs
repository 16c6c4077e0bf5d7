// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Logs with valid checksums and numbers that no recorder writes: every format is made of them.

use klogger_export::{EXPORTERS, Exporter};
use klogger_log::reader::Reader;
use std::fs;
use std::path::Path;

const HEADER: usize = 72;
/// Offsets in the header of a block (`crates/log/src/format.rs`).
const CRC: usize = 4;
const KIND: usize = 10;
const STORED: usize = 12;
const EARLIEST: usize = 24;
const LATEST: usize = 32;
const FIRST_SERIAL: usize = 40;
const EVENTS: u8 = 1;

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
}

/// The log without its index, so that the blocks are read, with `value` at an offset of the header
/// of each block of events.
fn forged(log: &[u8], offset: usize, value: u64) -> Vec<u8> {
    let mut log = log.to_vec();
    let mut at = (16 + number(&log, 8)).next_multiple_of(8);
    let mut forged = 0;
    while log.get(at..at + 4) == Some(b"\xb5KLB") {
        let header = usize::from(u16::from_le_bytes([log[at + 8], log[at + 9]]));
        let end = at + header + number(&log, at + STORED);
        match log[at + KIND] {
            EVENTS => {
                log[at + offset..][..8].copy_from_slice(&value.to_le_bytes());
                if offset == EARLIEST {
                    log[at + LATEST..][..8].copy_from_slice(&value.to_le_bytes());
                }
                let crc = crc32c::crc32c(&log[at + 8..end]);
                log[at + CRC..][..4].copy_from_slice(&crc.to_le_bytes());
                forged += 1;
            }
            // The index.
            4 => break,
            _ => {}
        }
        at = end.next_multiple_of(8);
    }
    assert!(forged > 0 && HEADER > offset);
    log.truncate(at);
    log
}

#[test]
fn every_format_is_made_of_any_numbers() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs");
    for name in ["v1.klog", "v2.klog", "v4.klog"] {
        let bytes = fs::read(logs.join(name)).unwrap();
        for (offset, value) in [
            (FIRST_SERIAL, u64::MAX),
            (FIRST_SERIAL, i64::MAX as u64),
            (EARLIEST, u64::MAX),
            (EARLIEST, i64::MAX as u64),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().join("x.klog");
            fs::write(&log, forged(&bytes, offset, value)).unwrap();
            let reader = Reader::open(&log).unwrap();
            for exporter in EXPORTERS {
                // Whether the format can be made of such a log or not: it ends.
                match exporter {
                    Exporter::File(made) => {
                        let events = &reader.preamble().events;
                        let named = events.iter().map(|event| Some(event.name.as_str()));
                        for event in named.chain([None]) {
                            if made.check(&reader, event).is_ok() {
                                let _ = made.write(&reader, event, &mut Vec::new(), &mut |_, _| {});
                            }
                        }
                    }
                    Exporter::Directory(made) => {
                        let to = folder.path().join(made.name());
                        let _ = made.export(&log, &reader, Some(&to), false, &mut |_, _| {});
                    }
                }
            }
            // The events are read, not skipped as damaged.
            assert!(reader.totals().0 > 0, "{name} {offset} {:?}", reader.damage());
        }
    }
}
