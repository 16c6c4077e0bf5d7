// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Any bytes as a log that comes through a pipe, in pieces of any size: no panic, no hang, no
//! memory that the stream does not justify. Checksums are not compared when fuzzing. `tests/logs`
//! is a corpus to begin with.

#![no_main]

use klogger_log::arriving::{Arriving, Piece};
use klogger_log::decode::Decoder;
use klogger_log::ledger::Key;
use klogger_log::live::LiveMerge;
use klogger_log::names::Processes;
use klogger_log::symbols::Symbols;
use libfuzzer_sys::fuzz_target;

/// Whoever prints the events.
struct Reader {
    merge: LiveMerge<()>,
    decoder: Option<Decoder>,
    processes: Processes,
}

fuzz_target!(|bytes: &[u8]| {
    let Some(size) = bytes.last() else { return };
    let mut log = Arriving::new();
    let mut reader: Option<Reader> = None;
    for part in bytes.chunks(1 + usize::from(*size) * 61) {
        log.push(part);
        while let Ok(Some(piece)) = log.next_piece() {
            take(&mut log, &mut reader, piece);
        }
    }
    let _ = log.finish(Key::FileCut);
    print(&mut reader, true);
    log.restart();
    log.push(bytes);
    while let Ok(Some(piece)) = log.next_piece() {
        take(&mut log, &mut reader, piece);
    }
    print(&mut reader, true);
});

fn take(log: &mut Arriving, reader: &mut Option<Reader>, piece: Piece) {
    let Some(preamble) = log.preamble() else { return };
    match (piece, &mut *reader) {
        (Piece::Begin, _) => {
            *reader = Some(Reader {
                merge: LiveMerge::new(&preamble.events),
                decoder: Some(Decoder::live(preamble, Symbols::default())),
                processes: Processes::live(preamble),
            });
        }
        (Piece::Events { origin, time_base, first_serial, records, .. }, Some(reader)) => {
            let read = reader.merge.block(origin, time_base, first_serial, &records, &mut |_| {});
            if read < records.len() {
                log.note_malformed(origin, read);
            }
        }
        (Piece::Addition(addition), Some(reader)) => {
            reader.merge.add(&addition.events);
            reader.processes.learn(&preamble.events);
            reader.decoder = reader.decoder.take().map(|decoder| decoder.extend(preamble));
        }
        (Piece::Progress(until), Some(reader)) => reader.merge.until((), until),
        (Piece::End, _) | (_, None) => {}
    }
    print(reader, false);
}

fn print(reader: &mut Option<Reader>, all: bool) {
    let Some(Reader { merge, decoder: Some(decoder), processes }) = reader else { return };
    let mut text = Vec::new();
    let mut pass = |event: &klogger_log::event::EventRef, _| {
        processes.apply(event);
        text.clear();
        for index in 0..event.layout.fields.len() {
            decoder.show(event, index, processes, &mut text);
        }
    };
    if all { merge.finish(&mut pass) } else { merge.release(0, &mut pass) }
}
