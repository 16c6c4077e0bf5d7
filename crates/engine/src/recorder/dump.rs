// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Overwrite mode: the rings run round and round until somebody wants to see them.

use crate::cpu::CpuReader;
use crate::drain::Finished;
use crate::probing::Times;
use crate::ring::{Counters, RecordKinds, Taken};
use crate::sys;
use crate::writer::{Block, Builtin, Status, ToWriter};
use klogger_log::origin::Origin;
use klogger_log::record::TIME_MASK;
use klogger_schema::layout::EventLayout;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

/// How far back a record may be dated; what may still come while the dump goes on is allowed for. 48 bits of a counter
/// that is quicker than 1 tick in a ns hold less: records older than that would look younger.
pub const TIME_REACH_NS: u64 = TIME_MASK - 60_000_000_000;

/// The readers of all rings, while nobody drains them.
pub struct FlightRecorder {
    readers: Vec<(u16, CpuReader)>,
    kinds: Arc<RecordKinds>,
    times: Times,
    /// Ids that count attempts.
    ids: Vec<u16>,
    builtin: Builtin,
    dumps: u32,
    started_ns: u64,
}

impl FlightRecorder {
    pub fn new(
        readers: Vec<(u16, CpuReader)>,
        kinds: Arc<RecordKinds>,
        times: Times,
        events: &[EventLayout],
        builtin: Builtin,
    ) -> FlightRecorder {
        let ids = events.iter().map(|e| e.id).collect();
        FlightRecorder { readers, kinds, times, ids, builtin, dumps: 0, started_ns: sys::monotonic_ns() }
    }

    /// Takes what the rings hold. While it does so, events are counted as lost. Afterwards they run on, if `resume`.
    pub fn dump(&mut self, resume: bool, status: &Status, to_writer: &SyncSender<ToWriter>) {
        for (_, reader) in &self.readers {
            reader.close();
        }
        sys::wait_for_running_programs();
        for (cpu, reader) in &mut self.readers {
            let begin_ns = sys::monotonic_ns();
            let (mut records, first_serial, mut taken) = on_cpu(*cpu, reader, &self.kinds, &self.ids);
            self.times.convert(&self.kinds, &mut records, &mut taken);
            let (missed, since) = reader.missed();
            if resume {
                reader.open(true);
            } else if missed > 0 {
                // What an earlier dump shut out, and no later event has told.
                records.extend(self.builtin.lost(missed, self.times.ns(since), begin_ns));
                taken.serials += missed;
                taken.lost += missed;
            }
            status.count(&taken);
            let dump = Some((self.dumps, begin_ns));
            let events = taken.serials - taken.lost;
            // A recorder may fly for weeks, and 48 bits of time hold 78 hours: these are the last ones.
            let time_base = self.started_ns.max(begin_ns.saturating_sub(TIME_REACH_NS));
            let block = Block { origin: Origin::Cpu(*cpu), first_serial, time_base, dump, events, records };
            // Fails only if the writer has given up, which it has reported itself.
            let _ = to_writer.send(ToWriter::Block(block));
        }
        self.dumps += 1;
    }

    pub fn finish(self) -> Vec<Finished> {
        let ends = self.readers.into_iter();
        let finished = |(cpu, reader): (u16, CpuReader)| {
            let mut counters = Counters::default();
            reader.count(&mut counters);
            Finished { counters, cpu, entries: Vec::new(), lost_between: None }
        };
        ends.map(finished).collect()
    }
}

/// Reads a closed ring from its own CPU, where no program can run at the same time: so the counters stand still
/// between two equal readings, and the serial number of the first record follows from them.
fn on_cpu(cpu: u16, reader: &mut CpuReader, kinds: &RecordKinds, ids: &[u16]) -> (Vec<u8>, u64, Taken) {
    thread::scope(|scope| {
        let work = scope.spawn(move || {
            // Not bound to the CPU the numbers can be off by an event that is being lost; no more than that.
            let _ = sys::pin_to_cpu(cpu.into());
            let mut records = Vec::new();
            let taken = reader.take_overwritten(kinds, &mut records);
            let (attempts, missed) = loop {
                let (before, _) = reader.missed();
                let attempts: u64 = ids.iter().map(|id| reader.attempts(*id)).sum();
                if before == reader.missed().0 {
                    break (attempts, before);
                }
            };
            (records, attempts.saturating_sub(missed + taken.serials), taken)
        });
        work.join().unwrap_or_default()
    })
}
