// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Writes a complete log from what a recorder had written, and from what its rings hold.

use super::Facts;
use super::earlier::Earlier;
use super::kept::KeptRings;
use crate::drain::{CLOCK_MARGIN_NS, Finished};
use crate::dump::TIME_REACH_NS;
use crate::hung::Watched;
use crate::ledger;
use crate::writer::Names;
use klogger_engines::bpf::hits::left_by;
use klogger_engines::bpf::pins::Left;
use klogger_engines::stacks::StackTable;
use klogger_log::ledger::{Entry, Key, Ledger};
use klogger_log::origin::Origin;
use klogger_log::preamble::Preamble;
use klogger_log::reader::Reader;
use klogger_log::record::{TIME_MASK, full_time};
use klogger_log::writer::{Compression, EventBlock, Summary, Writer};
use klogger_os as os;
use klogger_ring::block::Builtin;
use klogger_ring::clock::{Clock, Converter};
use klogger_ring::{Counters, CpuReader, RecordKinds, Taken, last_in_order, last_time};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The clocks when the writers stopped.
pub struct Still {
    /// CLOCK_MONOTONIC, ns.
    pub now_ns: u64,
    /// Converts times of the TSC to ns; `None`: times in the rings are ns.
    pub clock: Option<Clock>,
    /// All CPUs were stopped at once, perhaps in the middle of an event.
    pub crashed: bool,
}

impl Still {
    pub fn here() -> Still {
        Still { now_ns: os::monotonic_ns(), clock: None, crashed: false }
    }

    /// Converts records, and the times of first losses, to the log clock.
    fn convert(&self, kinds: &RecordKinds, records: &mut [u8], since: &mut u64) {
        if let Some(clock) = &self.clock {
            let mut converter = Converter::of_crash(clock);
            converter.records(kinds, records);
            *since = converter.ns(*since & TIME_MASK);
        }
    }
}

/// A log that is being written.
pub struct Salvage<'a> {
    preamble: &'a Preamble,
    old: Option<&'a Reader>,
    still: Still,
    kinds: RecordKinds,
    builtin: Builtin,
    writer: Writer<Watched<File>>,
    ends: Vec<Finished>,
    /// CPUs of which some rings are in the log: the next serial number, and the time of the last
    /// event.
    ended: BTreeMap<u16, (u64, u64)>,
    /// Time of the last event.
    last_ns: u64,
    /// If the log is the last segment of a recording.
    earlier: Option<Earlier>,
    /// By CPU: the counts in its `LOST` records.
    lost: BTreeMap<u16, u64>,
}

impl<'a> Salvage<'a> {
    pub fn new(
        facts: &'a Facts,
        old: Option<&'a Reader>,
        log: Watched<File>,
        compression: Compression,
        still: Still,
    ) -> std::io::Result<Salvage<'a>> {
        let preamble = &facts.preamble;
        let mut writer = Writer::new(log, preamble, compression)?;
        if let Some(old) = old {
            old.copy_to(&mut writer)?;
        }
        Ok(Salvage {
            preamble,
            old,
            still,
            kinds: RecordKinds::new(&preamble.events),
            builtin: Builtin(Arc::new(preamble.events.clone())),
            writer,
            ends: Vec::new(),
            ended: BTreeMap::new(),
            last_ns: old.and_then(Reader::times).map_or(preamble.clock.start_ns, |t| t.1),
            earlier: None,
            lost: old.map(lost_by_cpu).unwrap_or_default(),
        })
    }

    /// The log is the last segment of a recording.
    pub fn after(self, earlier: Option<Earlier>) -> Salvage<'a> {
        let last_ns = earlier.as_ref().map_or(0, |earlier| earlier.since_ns).max(self.last_ns);
        Salvage { earlier, last_ns, ..self }
    }

    /// Number of events in the log so far.
    pub fn events(&self) -> u64 {
        self.writer.summary().events
    }

    pub fn rings(&mut self, rings: &KeptRings) -> std::io::Result<()> {
        let of = |cpu: usize| {
            let readers = rings.readers(cpu);
            let last = readers.len() - 1;
            readers.into_iter().enumerate().map(move |(n, reader)| (cpu, n == last, reader))
        };
        let all: Vec<_> = (0..rings.count).flat_map(of).collect();
        for (cpu, is_last, reader) in all {
            // Records of a ring that has ended are in the log, followed by those of the next.
            if is_last || !reader.has_ended() {
                self.ring(cpu as u16, reader)?;
            } else {
                let mut end = finished(cpu as u16);
                reader.count(&mut end.counters);
                self.ends.push(end);
            }
        }
        Ok(())
    }

    /// Adds what the rings of a CPU hold.
    pub fn ring(&mut self, cpu: u16, mut reader: CpuReader) -> std::io::Result<()> {
        let mut end = finished(cpu);
        reader.count(&mut end.counters);
        let mut records = Vec::new();
        let (missed, mut since) = reader.missed();
        let (next_serial, last_ns) = self.end_of(cpu);
        let first_serial = if self.preamble.recorder.overwrite {
            let taken = self.newest(&mut reader, &mut records, &mut end);
            self.still.convert(&self.kinds, &mut records, &mut since);
            let attempts = end.counters.attempts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
            attempts.saturating_sub(missed.saturating_add(taken.serials))
        } else {
            let first = self.rest(&mut reader, &mut records, &mut end);
            self.still.convert(&self.kinds, &mut records, &mut since);
            let gap = first.saturating_sub(next_serial);
            if gap > 0 {
                // A LOST record takes the serial numbers of the events that were being moved.
                records.splice(0..0, self.builtin.lost(gap, last_ns, last_ns));
                end.entries
                    .push(Entry::new(Key::InFlight).cpu(cpu).count(gap).between(last_ns, last_ns));
            }
            // A ring that its reader had not begun with has no number. The serial numbers before it
            // were used all the same.
            next_serial
        };
        if missed > 0 {
            records.extend(self.builtin.lost(missed, since, since));
            let lost = self.lost.entry(cpu).or_insert(0);
            *lost = lost.saturating_add(missed);
        }
        self.ends.push(end);
        let time_base = last_ns.saturating_sub(CLOCK_MARGIN_NS);
        let end_ns =
            last_time(&self.kinds, &records).map_or(last_ns, |time| full_time(time_base, time));
        self.last_ns = self.last_ns.max(end_ns);
        let block =
            EventBlock { origin: Origin::Cpu(cpu), time_base, first_serial, records: &records };
        let next_serial = self.writer.block(&block)?;
        self.ended.insert(cpu, (next_serial, end_ns));
        Ok(())
    }

    /// Adds what had not been taken out of the rings; returns the first serial number.
    fn rest(&self, reader: &mut CpuReader, records: &mut Vec<u8>, end: &mut Finished) -> u64 {
        let first = reader.resume();
        let sound = reader.is_plausible();
        if !sound || reader.copy_all(&self.kinds, records).torn {
            end.entries.push(torn(end.cpu));
        } else if self.still.crashed && reader.fill() > 0 {
            end.entries.push(cut(
                end.cpu,
                &format!("{} bytes of its rings were being written", reader.fill()),
            ));
        }
        first
    }

    /// Adds what rings in overwrite mode hold.
    fn newest(&self, reader: &mut CpuReader, records: &mut Vec<u8>, end: &mut Finished) -> Taken {
        let busy = self.still.crashed && reader.is_busy();
        let mut taken = Taken { torn: true, ..Taken::default() };
        if reader.is_plausible_round() {
            taken = reader.take_overwritten(&self.kinds, records);
        }
        if busy && let Some(whole) = last_in_order(&self.kinds, records) {
            // In place of an event that was being written there are bytes of an earlier round.
            records.truncate(whole);
            taken = Taken::of(&self.kinds, records);
            taken.serials = taken.serials.saturating_add(1);
            end.entries.push(cut(end.cpu, "it was being written"));
        } else if taken.torn {
            end.entries.push(torn(end.cpu));
        }
        taken
    }

    /// The next serial number of a CPU, and the time of its last event, as far as they were
    /// written.
    fn end_of(&self, cpu: u16) -> (u64, u64) {
        if let Some(end) = self.ended.get(&cpu) {
            return *end;
        }
        let blocks = self.old.map(|old| old.blocks_of(Origin::Cpu(cpu))).unwrap_or_default();
        if let Some(earlier) = self.earlier.as_ref().filter(|_| blocks.is_empty())
            && let Some(end) = earlier.ends.get(&cpu)
        {
            return *end;
        }
        let last = blocks.iter().map(|b| b.header.last_time).max();
        // If nothing was written, 48 bits of time reach back from now.
        let reach = self.still.now_ns.checked_sub(TIME_REACH_NS).map_or(0, |t| t + CLOCK_MARGIN_NS);
        let time = last.unwrap_or(self.preamble.clock.start_ns.max(reach));
        (blocks.last().map_or(0, |b| b.header.next_serial()), time)
    }

    pub fn finish_here(self, rings: &KeptRings, left: &Left) -> std::io::Result<(Summary, Ledger)> {
        let span = self.span();
        let ringless = |id: u16| rings.ringless.word(8 * usize::from(id)).load(Ordering::Relaxed);
        let programs = left.programs();
        let missed = programs.iter().filter_map(|(schema, name, program)| {
            left_by(
                program.as_fd(),
                schema,
                name,
                rings.caught(&self.preamble.probes, schema, name),
            )
        });
        let mut ledger = Ledger { entries: vec![Entry::new(Key::Rescued)], ..Ledger::default() };
        ledger.entries.extend(ledger::of_hits(missed, span));
        ledger.entries.extend(ledger::missed());
        if let Some(stacks) = &rings.stacks {
            ledger.entries.extend(ledger::unnumbered(stacks.unnumbered(), span));
        }
        if let Some(counts) = &rings.unread {
            let unread = |id: u16| counts.word(8 * usize::from(id)).load(Ordering::Relaxed);
            ledger.entries.extend(ledger::unread(&unread, &self.preamble.events, span));
        }
        let stacks = rings.stacks.as_ref().map(StackTable::read);
        let names = Names::of(&self.preamble.events, stacks, &mut ledger);
        self.finish(ledger, &ringless, &names)
    }

    fn span(&self) -> (u64, u64) {
        (self.preamble.clock.start_ns, self.last_ns)
    }

    /// Completes the log. `ledger`: entries that are known besides what the rings contain;
    /// `ringless`: events without a ring, by id.
    pub fn finish(
        mut self,
        mut ledger: Ledger,
        ringless: &dyn Fn(u16) -> u64,
        names: &Names,
    ) -> std::io::Result<(Summary, Ledger)> {
        let (events, span) = (&self.preamble.events, self.span());
        ledger.entries.extend(ledger::of_rings(&self.ends, ringless, events, span));
        ledger.entries.extend(ledger::not_attached(&self.preamble.probes));
        if self.preamble.recorder.overwrite {
            let summary = self.writer.summary();
            let logged = |id: u16| summary.counts.iter().find(|c| c.0 == id).map_or(0, |c| c.1);
            ledger.entries.extend(ledger::overwritten(events, &self.ends, &logged, span));
        }
        if let Some(earlier) = self.earlier.take() {
            ledger.entries = earlier.rest(ledger.entries, &self.lost, span.1);
        }
        self.writer.stacks(&names.stacks)?;
        self.writer.symbols(&names.symbols)?;
        let summary = self.writer.finish(&ledger)?;
        Ok((summary, ledger))
    }
}

fn lost_by_cpu(log: &Reader) -> BTreeMap<u16, u64> {
    let mut lost: BTreeMap<u16, u64> = BTreeMap::new();
    for block in log.blocks().iter().filter(|b| b.header.lost > 0) {
        if let Origin::Cpu(cpu) = block.header.origin {
            let sum = lost.entry(cpu).or_insert(0);
            *sum = sum.saturating_add(block.header.lost);
        }
    }
    lost
}

fn finished(cpu: u16) -> Finished {
    Finished { counters: Counters::default(), cpu, entries: Vec::new(), lost_between: None }
}

fn torn(cpu: u16) -> Entry {
    let entry = Entry::new(Key::BlockCorrupt).cpu(cpu);
    entry.detail("a ring held an invalid record; what followed it is lost")
}

/// The ledger entry of a CPU that was stopped while it logged.
fn cut(cpu: u16, why: &str) -> Entry {
    Entry::new(Key::InFlight)
        .cpu(cpu)
        .count(1)
        .detail(&format!("the last event of CPU {cpu} is incomplete: {why}"))
}
