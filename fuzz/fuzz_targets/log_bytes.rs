// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Any bytes as a log: no panic, no hang, no memory that the file does not justify, and time never runs backwards.
//! Checksums are not compared when fuzzing, or else nothing would get past them.

#![no_main]

use klogger_log::decode::Decoder;
use klogger_log::merge::Selection;
use klogger_log::process::Processes;
use klogger_log::reader::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::from_bytes(bytes.to_vec()) else { return };
    let decoder = Decoder::new(&reader);
    let mut processes = Processes::with_history(&reader);
    let mut merge = reader.merge(&Selection::default());
    let mut text = Vec::new();
    let mut last = 0;
    while let Some(event) = merge.next() {
        assert!(last <= event.time_ns);
        last = event.time_ns;
        processes.see(&event);
        text.clear();
        for index in 0..event.layout.fields.len() {
            decoder.show(&event, index, &processes, &mut text);
            decoder.name(&event, index, &processes, &mut text);
        }
    }
    let damage = merge.damage().to_vec();
    reader.ledger(&damage);
    reader.check_rest();
    processes.into_rows(last);
});
