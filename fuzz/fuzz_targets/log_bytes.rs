// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Any bytes as a log: no panic, no hang, no more memory than the bytes justify; whatever can be read is shown.

#![no_main]

use klogger_log::decode::Decoder;
use klogger_log::merge::Selection;
use klogger_log::process::Processes;
use klogger_log::reader::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::from_bytes(bytes.to_vec()) else { return };
    let decoder = Decoder::new(&reader);
    let mut processes = Processes::new(&reader);
    let mut merge = reader.merge(&Selection::default());
    let mut shown = Vec::new();
    while let Some(event) = merge.next() {
        shown.clear();
        processes.see(&event);
        for index in 0..event.layout.fields.len() {
            decoder.show(&event, index, &processes, &mut shown);
        }
    }
    reader.ledger(&reader.check_rest());
});
