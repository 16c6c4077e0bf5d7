// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Writes a snapshot: a whole log, with the events of a span of time.

use super::history::{Kept, Part};
use super::{Made, RawStacks};
use crate::ledger;
use crate::writer::Names;
use klogger_log::cut::Cutter;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::origin::Origin;
use klogger_log::preamble::{Preamble, Snapshot};
use klogger_log::writer::{Compression, EventBlock, Extent, Sink, Writer};
use klogger_ring::block::Builtin;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;
use std::io;
use std::sync::Arc;

/// What the log is to have.
pub struct Contents<'a> {
    pub snapshot: Snapshot,
    /// From when on it was asked for.
    pub asked_ns: u64,
    pub builtin: &'a Builtin,
}

impl Contents<'_> {
    fn span(&self) -> (u64, u64) {
        (self.snapshot.from_ns, self.snapshot.to_ns)
    }
}

/// Whether an event may have the number of a stack.
pub fn needs_stacks(events: &[EventLayout]) -> bool {
    events.iter().flat_map(|e| &e.fields).any(|f| f.decode == Decode::Stack)
}

/// Writes the log into a new file.
pub fn write(
    file: impl Sink,
    contents: Contents,
    part: &Part,
    stacks: RawStacks,
    compression: Compression,
) -> io::Result<Made> {
    let (from_ns, to_ns) = contents.span();
    let blocks: Vec<(EventBlock, Extent)> = part
        .blocks
        .iter()
        .filter(|b| b.extent.last_ns >= from_ns && b.extent.first_ns <= to_ns)
        .map(|b| (b.block(), b.extent))
        .collect();
    let events = &part.preamble.events;
    let mut cutter = Cutter::new(events, from_ns, to_ns);
    let is_own = |b: &&(EventBlock, Extent)| b.0.origin == Origin::Recorder;
    let others = blocks.iter().filter(|b| !is_own(b));
    let cut: Vec<EventBlock> = others.flat_map(|(b, extent)| cutter.cut(b, *extent)).collect();
    let own = own_events(&contents, part, blocks.iter().filter(is_own));
    let mut ledger = ledger_of(&contents, part, &cutter);
    let names = names(stacks, &cut, events, &mut ledger);
    let snapshot = Snapshot { left_out: cutter.left_out(), ..contents.snapshot };
    let mut writer = Writer::new(file, &preamble(&part.preamble, snapshot), compression)?;
    let (origin, time_base) = (Origin::Recorder, from_ns);
    writer.block(&EventBlock { origin, time_base, first_serial: 0, records: &own })?;
    for block in &cut {
        writer.block(block)?;
    }
    writer.stacks(&names.stacks)?;
    names.code.as_ref().map_or(Ok(()), |code| writer.code(code))?;
    writer.symbols(&names.symbols)?;
    let cut = writer.summary().events;
    let summary = writer.finish(&ledger)?;
    if summary.events < cut {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let (events, bytes, short) = (summary.events, summary.bytes, contents.asked_ns < from_ns);
    Ok(Made { events, bytes, from_ns, to_ns, short, ..Made::default() })
}

/// That of the recording, whose clock begins with the snapshot.
fn preamble(recording: &Preamble, snapshot: Snapshot) -> Preamble {
    let mut preamble = recording.clone();
    let clock = &mut preamble.clock;
    clock.start_realtime_ns += snapshot.from_ns.saturating_sub(clock.start_ns);
    clock.start_ns = snapshot.from_ns;
    preamble.snapshot = Some(snapshot);
    preamble.segment = None;
    preamble
}

/// The recorder's own events: what was known at the beginning, and those of the span.
fn own_events<'a>(
    contents: &Contents,
    part: &Part,
    blocks: impl Iterator<Item = &'a (EventBlock<'a>, Extent)>,
) -> Vec<u8> {
    let (from_ns, to_ns) = contents.span();
    let (preamble, builtin) = (&part.preamble, contents.builtin);
    let mut own = Vec::new();
    // Otherwise the span has the first events of the recording.
    if from_ns > preamble.clock.start_ns {
        let mut known = part.known.clone();
        let early = |b: &&Arc<Kept>| b.origin == Origin::Recorder || b.extent.first_ns < from_ns;
        for block in part.blocks.iter().filter(early) {
            known.see(&block.block(), Some((from_ns, to_ns)));
        }
        let start = builtin.event("KLOGGER_START");
        let start = start.int("buffer_size", preamble.recorder.buffer_size as i64);
        start.text("kernel", preamble.host.kernel.as_bytes()).finish(from_ns, &mut own);
        known.events(builtin, from_ns, &mut own);
    }
    let mut cutter = Cutter::new(&preamble.events, from_ns, to_ns);
    for part in blocks.flat_map(|(block, extent)| cutter.cut(block, *extent)) {
        own.extend_from_slice(part.records);
    }
    builtin.event("KLOGGER_FINISH").finish(to_ns, &mut own);
    own
}

/// What is missing in the span, as far as it is known.
fn ledger_of(contents: &Contents, part: &Part, cutter: &Cutter) -> Ledger {
    let (from_ns, to_ns) = contents.span();
    let snapshot = &contents.snapshot;
    let which = format!("number {} of {}", snapshot.number, snapshot.log);
    let mut entries = vec![Entry::new(Key::Snapshot).between(from_ns, to_ns).detail(&which)];
    if contents.asked_ns < from_ns {
        let missing = (from_ns - contents.asked_ns) / 1_000_000;
        let entry = Entry::new(Key::SnapshotShort).between(contents.asked_ns, from_ns);
        entries.push(entry.detail(&format!("the first {missing} ms")));
    }
    entries.extend(cutter.losses());
    entries.extend(ledger::excluded(&part.preamble.recorder, (from_ns, to_ns)));
    entries.extend(ledger::not_attached(&part.preamble.probes));
    Ledger { entries, end_ns: Some(to_ns), ..Ledger::default() }
}

/// The names for the addresses and stacks in the events of `cut`.
fn names(
    stacks: RawStacks,
    cut: &[EventBlock],
    events: &[EventLayout],
    ledger: &mut Ledger,
) -> Names {
    let used = super::used::stacks(cut, events);
    let kernel = stacks.kernel.map(|all| {
        all.into_iter().filter(|(number, _)| used.contains(&u64::from(*number))).collect()
    });
    let names = Names::of(events, kernel, ledger);
    let data = super::used::data(cut, events);
    let names = match stacks.user {
        Some(mut found) => {
            found.code.stacks.retain(|stack| used.contains(&stack.number));
            names.with_code(found, &data, ledger, None)
        }
        None => names,
    };
    names.with_kernel_data(&data, ledger)
}
