// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The ledger at the end of a recording: every loss, from the counters in the rings and from the
//! kernel.

use crate::drain::Finished;
use klogger_engines::engine::Engine;
use klogger_engines::losses::{LeftOut, MissedHits, Span};
use klogger_engines::stacks::Unnumbered;
use klogger_log::ledger::{Entry, Key};
use klogger_log::preamble::{Condition, ProbeState, Recorder};
use klogger_os::machine::cpu_list;
use klogger_os::missed::{self, Missed};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Decode;
use std::collections::BTreeMap;

/// The losses of the engines. `ends`: the results of all drain threads.
pub fn of_engines(
    engines: &[Box<dyn Engine>],
    events: &[EventLayout],
    ends: &[Finished],
    span: (u64, u64),
) -> Vec<Entry> {
    let ringless = |id| engines.iter().map(|e| e.ringless(id)).sum();
    let mut entries = of_rings(ends, &ringless, events, span);
    engines.iter().for_each(|e| entries.extend(of_engine(&**e, events, span)));
    entries
}

/// What the counters of an engine say, and what holds as long as it records.
pub fn of_engine(engine: &dyn Engine, events: &[EventLayout], span: (u64, u64)) -> Vec<Entry> {
    let mut entries = of_hits(engine.missed_hits(), span);
    entries.extend(rate_limited(engine.left_out(), events));
    entries.extend(not_attached(engine.probes()));
    entries.extend(unread(&|id| engine.unread(id), events, span));
    match engine.stacks() {
        Some(table) => entries.extend(unnumbered(table.unnumbered(), span)),
        None if engine.lacks_stacks() => entries.extend(no_stacks(engine.info().name, events)),
        None => {}
    }
    entries
}

/// Of events that ask for stacks, by an engine that keeps none.
fn no_stacks(engine: &str, events: &[EventLayout]) -> Vec<Entry> {
    let asks = |e: &&EventLayout| e.fields.iter().any(|f| f.decode == Decode::Stack);
    let entry = |e: &EventLayout| {
        let entry = Entry::new(Key::StackUnknown).event(&e.name);
        entry.detail(&format!("the {engine} engine keeps no stacks"))
    };
    events.iter().filter(asks).map(entry).collect()
}

/// Events for which rings had no space, and events without a ring. `ringless`: how many events of
/// an id.
pub fn of_rings(
    ends: &[Finished],
    ringless: &dyn Fn(u16) -> u64,
    events: &[EventLayout],
    span: (u64, u64),
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for end in ends {
        entries.extend(end.entries.iter().cloned());
        ring_full(&mut entries, end, events, span);
    }
    for e in events {
        let count = ringless(e.id);
        if count > 0 {
            entries.push(
                Entry::new(Key::CpuOffline).event(&e.name).count(count).between(span.0, span.1),
            );
        }
    }
    entries
}

/// Events without a ring happened on CPUs that came online during the recording: `came`, by CPU,
/// since when.
pub fn place_ringless(entries: &mut [Entry], came: &BTreeMap<u32, u64>) {
    let Some(since) = came.values().min() else { return };
    let only =
        came.keys().next().filter(|_| came.len() == 1).and_then(|cpu| u16::try_from(*cpu).ok());
    for entry in entries.iter_mut().filter(|e| e.key == Key::CpuOffline.info().name) {
        entry.from_ns = entry.from_ns.map(|from| from.max(*since));
        entry.cpu = only;
    }
}

/// The times during which events were off. `switched`: (event, on, when), in order; all events are
/// on before.
pub fn disabled(switched: &[(String, bool, u64)], end_ns: u64) -> Vec<Entry> {
    let mut off: BTreeMap<&str, u64> = BTreeMap::new();
    let mut entries = Vec::new();
    let entry = |name: &str, from: u64, to: u64| {
        Entry::new(Key::EventsDisabled).event(name).between(from, to)
    };
    for (name, on, at) in switched {
        if !on {
            off.entry(name).or_insert(*at);
        } else if let Some(from) = off.remove(name.as_str()) {
            entries.push(entry(name, from, *at));
        }
    }
    entries.extend(off.into_iter().map(|(name, from)| entry(name, from, end_ns.max(from))));
    entries
}

/// Skipped hits of probes.
pub fn of_hits(missed: impl IntoIterator<Item = MissedHits>, span: (u64, u64)) -> Vec<Entry> {
    missed.into_iter().flat_map(|missed| of_probe(missed, span)).collect()
}

fn of_probe(missed: MissedHits, span: (u64, u64)) -> Vec<Entry> {
    let MissedHits { schema, place, count, mut spans, why, sampled } = missed;
    if spans.is_empty() {
        spans.push(Span { from: span.0, to: span.1, count });
    }
    let key = if sampled { Key::SampleMissed } else { Key::ProbeMissed };
    let why = if why.is_empty() { why } else { format!(", because {why}") };
    let entry = |s: Span| {
        let from = s.from.clamp(span.0, span.1);
        let entry = Entry::new(key).count(s.count).between(from, s.to.clamp(from, span.1));
        entry.detail(&format!("{} hits of {place} (schema {schema}){why}", s.count))
    };
    spans.into_iter().map(entry).collect()
}

/// Events that a rate limit left out.
fn rate_limited(left: Vec<LeftOut>, events: &[EventLayout]) -> Vec<Entry> {
    let entry = |l: LeftOut| {
        let name = &events.iter().find(|e| e.id == l.id)?.name;
        Some(
            Entry::new(Key::RateLimited)
                .event(name)
                .cpu(l.cpu)
                .count(l.count)
                .between(l.first, l.last),
        )
    };
    left.into_iter().filter_map(entry).collect()
}

/// What was not logged because of `--cpu`, `--where`, and options that choose threads.
pub fn excluded(recorder: &Recorder, span: (u64, u64)) -> Vec<Entry> {
    let entry = || Entry::new(Key::Excluded).between(span.0, span.1);
    let of_condition = |c: &Condition| {
        entry().event(&c.event).detail(&format!("only {} with: {}", c.event, c.expression))
    };
    let cpus = (!recorder.cpus.is_empty())
        .then(|| entry().detail(&format!("only events of CPU {}", cpu_list(&recorder.cpus))));
    let threads = &recorder.threads;
    let threads = (!threads.are_all())
        .then(|| entry().detail(&format!("only events of threads {}", threads.words())));
    cpus.into_iter().chain(threads).chain(recorder.conditions.iter().map(of_condition)).collect()
}

/// Threads out of scope whose names were not found.
pub fn unnamed(count: u64, span: (u64, u64)) -> Option<Entry> {
    let entry = || Entry::new(Key::ThreadsUnnamed).count(count).between(span.0, span.1);
    (count > 0).then(entry)
}

/// What could not be looked at since this was asked last.
pub fn missed() -> Vec<Entry> {
    let entry = |Missed { what, count, between }| {
        let entry = Entry::new(Key::LookFailed).count(count).between(between.0, between.1);
        entry.detail(&format!("{count} looks failed: {what}"))
    };
    missed::take().into_iter().map(entry).collect()
}

/// Stacks that have no number.
pub fn unnumbered(stacks: Unnumbered, span: (u64, u64)) -> Vec<Entry> {
    let why = [
        (stacks.no_slot, "no slot was free"),
        (stacks.not_walked, "the kernel could not walk them"),
    ];
    let entry = |(count, why): (u64, &str)| {
        let entry = Entry::new(Key::StackUnknown).count(count).between(span.0, span.1);
        entry.detail(&format!("{count} stacks have no number: {why}"))
    };
    why.into_iter().filter(|(count, _)| *count > 0).map(entry).collect()
}

/// Strings and arrays that could not be read. `count`: how many, of an event.
pub fn unread(count: &dyn Fn(u16) -> u64, events: &[EventLayout], span: (u64, u64)) -> Vec<Entry> {
    let entry = |e: &EventLayout| {
        Entry::new(Key::TextUnread).event(&e.name).count(count(e.id)).between(span.0, span.1)
    };
    events.iter().map(entry).filter(|e| e.count > 0).collect()
}

/// Losses after the disk was full: `discarded` is what the rings still held; if the recorder had
/// `given up`, recording ended there.
pub fn unwritten(
    discarded: Vec<Entry>,
    why: &str,
    given_up: Option<u64>,
    span: (u64, u64),
) -> Vec<Entry> {
    let mut entries = discarded;
    let entry = |from: u64| Entry::new(Key::DiskFull).between(from, span.1.max(from));
    if let Some(from) = given_up {
        entries.push(entry(from).detail(&format!("{why}; from then on nothing was recorded")));
    } else if entries.is_empty() {
        entries.push(entry(span.0).detail(why));
    }
    entries
}

/// Rings of programs that were full because the writer thread was behind. Drain threads of CPUs add
/// such entries themselves.
pub fn late(entries: &[Entry], late: u64, span: (u64, u64)) -> Option<Entry> {
    let lost = late > 0 && entries.iter().any(|e| e.key == Key::RingFull.info().name);
    let entry = || Entry::new(Key::DrainLate).between(span.0, span.1);
    lost.then(|| entry().detail(&format!("{late} times no buffer was free for rings of programs")))
}

fn ring_full(entries: &mut Vec<Entry>, end: &Finished, events: &[EventLayout], span: (u64, u64)) {
    let (from, to) = end.lost_between.unwrap_or(span);
    for e in events {
        let count = end.counters.lost(e.id);
        if count > 0 {
            entries.push(
                Entry::new(Key::RingFull)
                    .event(&e.name)
                    .cpu(end.cpu)
                    .count(count)
                    .between(from, to),
            );
        }
    }
}

pub fn not_attached(probes: &[ProbeState]) -> Vec<Entry> {
    let entry = |p: &ProbeState, event: &str| {
        let entry = Entry::new(Key::ProbeNotAttached).event(event);
        entry.detail(&format!("{} (schema {}): {}", p.target, p.schema, p.note))
    };
    let missing = probes.iter().filter(|p| !p.attached);
    missing.flat_map(|p| p.events.iter().map(move |event| entry(p, event))).collect()
}

/// In overwrite mode: how many events were overwritten. `logged`: events in the log, by id.
pub fn overwritten(
    events: &[EventLayout],
    ends: &[Finished],
    logged: &dyn Fn(u16) -> u64,
    span: (u64, u64),
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let gaps = || ends.iter().filter_map(|end| end.lost_between);
    // Rings are in use before the log begins.
    let from = gaps().map(|gap| gap.0).min().map_or(span.0, |from| from.max(span.0));
    let to = gaps().map(|gap| gap.1).max().unwrap_or(span.1);
    for e in events {
        let sum = |f: &dyn Fn(&Finished) -> u64| ends.iter().map(f).sum::<u64>();
        let attempts = sum(&|end| end.counters.attempts(e.id));
        let kept = sum(&|end| end.counters.lost(e.id)) + logged(e.id);
        if attempts > kept {
            entries.push(
                Entry::new(Key::Overwritten)
                    .event(&e.name)
                    .count(attempts - kept)
                    .between(from, to),
            );
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_off_until_they_are_switched_on_again() {
        let at = |name: &str, on: bool, ns: u64| (name.to_string(), on, ns);
        let switched = [
            at("A", true, 1),
            at("B", false, 1),
            at("A", false, 5),
            at("A", false, 6),
            at("A", true, 9),
            at("A", true, 10),
        ];
        let spans = |e: Entry| (e.event.unwrap(), e.from_ns.unwrap(), e.to_ns.unwrap());
        let found: Vec<_> = disabled(&switched, 20).into_iter().map(spans).collect();
        assert_eq!(found, [("A".into(), 5, 9), ("B".into(), 1, 20)]);
    }
}
