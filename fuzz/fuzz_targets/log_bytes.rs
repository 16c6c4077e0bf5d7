// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Any bytes as a log: no panic, no hang, no memory that the file does not justify, and time never
//! runs backwards. Checksums are not compared when fuzzing, or else nothing would get past them.
//! `tests/logs` is a corpus to begin with.

#![no_main]

use klogger_log::decode::Decoder;
use klogger_log::filter::Filter;
use klogger_log::merge::Selection;
use klogger_log::names::Processes;
use klogger_log::reader::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::from_bytes(bytes.to_vec()) else { return };
    let filter = Filter::new("tid == 1 || cpu == 1", reader.preamble(), 0).ok();
    let decoder = Decoder::new(&reader);
    let mut processes = Processes::with_history(&reader);
    let mut merge = reader.merge(&Selection::default());
    let mut text = Vec::new();
    let mut last = 0;
    while let Some(event) = merge.next() {
        assert!(last <= event.time_ns);
        last = event.time_ns;
        processes.apply(&event);
        text.clear();
        let _ = filter.as_ref().is_some_and(|f| f.matches(&event, &decoder, &processes));
        assert_eq!(event.origin.cpu().is_none(), event.origin.thread().is_some());
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
