// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The ledger at the end of a recording: every loss, from the counters in the rings and from the kernel.

use crate::drain::Finished;
use crate::probing::{MissedHits, Probing};
use klogger_log::ledger::{Entry, Key};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;

/// What the kernel's probes have lost, and how.
pub fn of_probes(engine: &dyn Probing, events: &[EventLayout], ends: &[Finished], span: (u64, u64)) -> Vec<Entry> {
    let mut entries = Vec::new();
    for end in ends {
        entries.extend(end.entries.iter().cloned());
        ring_full(&mut entries, end, events, span);
    }
    for e in events {
        let count = engine.ringless(e.id);
        if count > 0 {
            let entry = Entry::new(Key::CpuOffline).event(&e.name).count(count).between(span.0, span.1);
            entries.push(entry.detail("events on a CPU that came online after recording had begun"));
        }
    }
    for MissedHits { schema, place, count } in engine.missed_hits() {
        let entry = Entry::new(Key::ProbeMissed).count(count).between(span.0, span.1);
        entries.push(entry.detail(&format!("{count} hits of {place} (schema {schema})")));
    }
    not_attached(&mut entries, engine);
    stackless(&mut entries, engine, events, span);
    entries
}

fn stackless(entries: &mut Vec<Entry>, engine: &dyn Probing, events: &[EventLayout], span: (u64, u64)) {
    let (taken, failed) = engine.stackless();
    for (count, why) in [(taken, "no place was free"), (failed, "the kernel could not walk them")] {
        if count > 0 {
            let entry = Entry::new(Key::StackUnknown).count(count).between(span.0, span.1);
            entries.push(entry.detail(&format!("{count} stacks have no number: {why}")));
        }
    }
    let asks = |e: &&EventLayout| !engine.has_stacks() && e.fields.iter().any(|f| f.decode == Decode::Stack);
    for e in events.iter().filter(asks) {
        let entry = Entry::new(Key::StackUnknown).event(&e.name);
        entries.push(entry.detail(&format!("the {} engine keeps no stacks", engine.name())));
    }
}

/// Rings that were full because the writer was behind.
pub fn late(entries: &[Entry], late: u64, span: (u64, u64)) -> Option<Entry> {
    let lost = late > 0 && entries.iter().any(|e| e.key == Key::RingFull.about().name);
    let entry = || Entry::new(Key::DrainLate).between(span.0, span.1);
    lost.then(|| entry().detail(&format!("{late} times a drain thread found no free buffer")))
}

fn ring_full(entries: &mut Vec<Entry>, end: &Finished, events: &[EventLayout], span: (u64, u64)) {
    let (from, to) = end.lost_between.unwrap_or(span);
    for e in events {
        let count = end.counters.lost(e.id);
        if count > 0 {
            entries.push(Entry::new(Key::RingFull).event(&e.name).cpu(end.cpu).count(count).between(from, to));
        }
    }
}

fn not_attached(entries: &mut Vec<Entry>, engine: &dyn Probing) {
    for p in engine.probes().iter().filter(|p| !p.attached) {
        for event in &p.events {
            let entry = Entry::new(Key::ProbeNotAttached).event(event);
            entries.push(entry.detail(&format!("{} (schema {}): {}", p.target, p.schema, p.note)));
        }
    }
}

/// In overwrite mode: how many events gave way to newer ones. `logged` is what the log holds, by event id.
pub fn overwritten(
    events: &[EventLayout],
    ends: &[Finished],
    logged: &dyn Fn(u16) -> u64,
    span: (u64, u64),
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for e in events {
        let sum = |f: &dyn Fn(&Finished) -> u64| ends.iter().map(f).sum::<u64>();
        let attempts = sum(&|end| end.counters.attempts(e.id));
        let kept = sum(&|end| end.counters.lost(e.id)) + logged(e.id);
        if attempts > kept {
            entries.push(Entry::new(Key::Overwritten).event(&e.name).count(attempts - kept).between(span.0, span.1));
        }
    }
    entries
}
