// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Overwrite mode: the rings run round and round until somebody wants to see them.

use crate::drain::Finished;
use klogger_engines::times::Times;
use klogger_log::origin::Origin;
use klogger_log::record::{Header, TIME_MASK, full_time};
use klogger_os as os;
use klogger_os::Error;
use klogger_ring::block::{Block, Builtin, Status, ToWriter};
use klogger_ring::{Counters, RecordKinds, Taken};
use klogger_ring::{CpuReader, Still};
use klogger_schema::layout::EventLayout;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

/// How far back a record may be dated; what may still come while the dump goes on is allowed for.
pub const TIME_REACH_NS: u64 = TIME_MASK - MARGIN_NS;
/// What may still come while a dump goes on.
const MARGIN_NS: u64 = 60_000_000_000;
/// So many times in its reach a ring's writers' positions are remembered.
const MARKS: u64 = 64;

/// A CPU's rings, while nobody drains them.
struct Round {
    cpu: u16,
    reader: CpuReader,
    /// After the last dump: the serial number that comes next, and when it was.
    next_serial: u64,
    since_ns: u64,
    /// From the first event that was overwritten before it was dumped to the last one, at most.
    overwritten: Option<(u64, u64)>,
    marks: Marks,
}

/// Where a ring's writers were, and when. A record that has waited in its ring for longer than the
/// 48 bits of its time reach (78 hours; of a counter of 3 GHz 26) would look younger than it is. So
/// what was written before a time that far back is not read any more: by then it may as well have
/// been overwritten.
struct Marks(VecDeque<(u64, (u64, u64))>);

impl Marks {
    fn new(now_ns: u64) -> Marks {
        Marks(VecDeque::from([(now_ns, (0, 0))]))
    }

    /// To be called from time to time; where to begin from now on, if that has changed. What lies
    /// between the last position out of reach and the first one within is given up as well.
    fn look(&mut self, now_ns: u64, reach_ns: u64, heads: (u64, u64)) -> Option<(u64, u64)> {
        let marks = &mut self.0;
        if marks.back().is_none_or(|(last, _)| now_ns.saturating_sub(*last) >= reach_ns / MARKS) {
            marks.push_back((now_ns, heads));
        }
        let oldest = now_ns.saturating_sub(reach_ns);
        let gone = marks.iter().take_while(|(ns, _)| *ns < oldest).count();
        marks.drain(..gone);
        marks.front().filter(|_| gone > 0).map(|(_, heads)| *heads)
    }
}

pub struct FlightRecorder {
    rounds: Vec<Round>,
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
        let started_ns = os::monotonic_ns();
        let round = |(cpu, reader)| {
            let marks = Marks::new(started_ns);
            Round { cpu, reader, next_serial: 0, since_ns: started_ns, overwritten: None, marks }
        };
        let rounds = readers.into_iter().map(round).collect();
        FlightRecorder { rounds, kinds, times, ids, builtin, dumps: 0, started_ns }
    }

    /// To be called several times in a second, and before a dump.
    pub fn look(&mut self) {
        self.times.look();
        let (now_ns, reach_ns) =
            (os::monotonic_ns(), self.times.reach_ns().saturating_sub(MARGIN_NS));
        for Round { reader, marks, .. } in &mut self.rounds {
            if let Some(heads) = marks.look(now_ns, reach_ns, reader.heads()) {
                reader.skip_to(heads);
            }
        }
    }

    /// Takes what the rings hold, while events go on. `last`: nobody logs any more.
    pub fn dump(
        &mut self,
        last: bool,
        status: &Status,
        to_writer: &SyncSender<ToWriter>,
    ) -> Result<(), Error> {
        self.look();
        let mut result = Ok(());
        for round in &mut self.rounds {
            let begin_ns = os::monotonic_ns();
            let (mut records, mut taken, still) = match round.take(&self.kinds, &self.ids) {
                Ok(found) => found,
                Err(e) => {
                    result = Err(Error::new(format!(
                        "a dump lacks CPU {}: no memory for a copy: {e}",
                        round.cpu
                    )));
                    continue;
                }
            };
            self.times.convert(&self.kinds, &mut records, &mut taken);
            if last && still.missed > 0 {
                // What no later event has told.
                records.extend(self.builtin.lost(
                    still.missed,
                    self.times.ns(still.since),
                    begin_ns,
                ));
                taken.serials += still.missed;
                taken.lost += still.missed;
            }
            // A recorder may fly for weeks, and 48 bits of time hold 78 hours: these are the last
            // ones.
            let time_base = self.started_ns.max(begin_ns.saturating_sub(TIME_REACH_NS));
            let told =
                if last { still.attempts } else { still.attempts.saturating_sub(still.missed) };
            let first_serial = told.saturating_sub(taken.serials);
            let first_ns =
                Header::read(&records).map_or(begin_ns, |h| full_time(time_base, h.time48()));
            round.note(first_serial, first_ns, told, begin_ns);
            status.count(&taken);
            let events = taken.serials - taken.lost;
            let (origin, dump) = (Origin::Cpu(round.cpu), Some((self.dumps, begin_ns)));
            let block = Block { origin, first_serial, time_base, dump, events, records };
            // Fails only if the writer has given up, which it has reported itself.
            let _ = to_writer.send(ToWriter::Block(block));
        }
        self.dumps += 1;
        result
    }

    pub fn finish(self) -> Vec<Finished> {
        let finished = |round: Round| {
            let mut counters = Counters::default();
            round.reader.count(&mut counters);
            Finished {
                counters,
                cpu: round.cpu,
                entries: Vec::new(),
                lost_between: round.overwritten,
            }
        };
        self.rounds.into_iter().map(finished).collect()
    }
}

impl Round {
    /// Reads the rings from their own CPU, and ahead of whatever may be preempted there: so little
    /// is overwritten while they are copied. From another CPU, if that one is offline, say, it is
    /// the same, and takes longer.
    fn take(&mut self, kinds: &RecordKinds, ids: &[u16]) -> io::Result<(Vec<u8>, Taken, Still)> {
        let (cpu, reader) = (self.cpu, &mut self.reader);
        thread::scope(|scope| {
            let work = scope.spawn(move || {
                let _ = os::pin_to_cpu(cpu.into());
                let _ = os::become_fifo();
                let mut records = Vec::new();
                let (taken, still) = reader.take_running(kinds, ids, &mut records)?;
                Ok((records, taken, still))
            });
            work.join().unwrap_or_else(|_| Err(io::Error::other("the thread that copies has died")))
        })
    }

    /// A dump began with this serial number, at this time, and ended before `next_serial`.
    fn note(&mut self, first_serial: u64, first_ns: u64, next_serial: u64, now_ns: u64) {
        if first_serial > self.next_serial {
            let from = self.overwritten.map_or(self.since_ns, |(from, _)| from);
            self.overwritten = Some((from, first_ns));
        }
        (self.next_serial, self.since_ns) = (next_serial, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn what_is_older_than_its_time_can_tell_is_not_read() {
        let (mut marks, reach, mut from) = (Marks::new(0), 26 * HOUR, 0);
        for minute in 1..=6000 {
            let now = minute * HOUR / 60;
            // A byte is written in each minute.
            if let Some((main, nested)) = marks.look(now, reach, (minute, minute / 2)) {
                assert!(main > from && nested <= main / 2);
                from = main;
            }
            let oldest = minute.saturating_sub(26 * 60);
            assert!(from >= oldest, "in minute {minute} what is read begins with minute {from}");
            assert!(from <= oldest + 26 * 60 / MARKS + 2, "in minute {minute} {from} is too late");
            assert!(marks.0.len() as u64 <= MARKS + 2);
        }
        assert!(from > 70 * 60);
    }
}
