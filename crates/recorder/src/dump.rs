// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Overwrite mode: nothing drains the rings, writers overwrite the oldest records, and a dump
//! writes what the rings hold to the log.

use crate::drain::Finished;
use klogger_engines::times::Times;
use klogger_log::ledger::{Entry, Key};
use klogger_log::origin::Origin;
use klogger_log::record::{Header, TIME_MASK, full_time};
use klogger_os as os;
use klogger_os::Error;
use klogger_os::threads;
use klogger_ring::block::{Block, Builtin, Status, ToWriter};
use klogger_ring::{Counters, RecordKinds, Taken};
use klogger_ring::{CpuReader, Still};
use klogger_schema::layout::EventLayout;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

/// How old a record may be, so that 48 bits of time suffice; records that come during the dump are
/// allowed for.
pub const TIME_REACH_NS: u64 = TIME_MASK - MARGIN_NS;
/// How long a dump may take.
const MARGIN_NS: u64 = 60_000_000_000;
/// How many positions of a ring's writers are kept within the reach of its times.
const MARKS: u64 = 64;

/// The rings of a CPU in overwrite mode.
struct Round {
    cpu: u16,
    reader: CpuReader,
    /// After the last dump: the next serial number, and the time.
    next_serial: u64,
    since_ns: u64,
    /// At most, from the first event that was overwritten before it was dumped to the last one.
    overwritten: Option<(u64, u64)>,
    /// Dumps that found a hit at work at every look: how many; when the first and the last was.
    busy: Option<(u64, u64, u64)>,
    marks: Marks,
}

/// Positions of a ring's writers, and their times. A record that has been in its ring for longer
/// than the reach of its 48 bits of time (78 hours; 26 with a TSC of 3 GHz) would look younger than
/// it is. So records from before that time are not read: they might as well have been overwritten.
struct Marks(VecDeque<(u64, (u64, u64))>);

impl Marks {
    fn new(now_ns: u64) -> Marks {
        Marks(VecDeque::from([(now_ns, (0, 0))]))
    }

    /// To be called regularly; returns where to begin to read from now on, if that has changed.
    /// What lies between the last position out of reach and the first one within reach is given up
    /// as well.
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
    /// Ids of events with serial numbers.
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
            let (overwritten, busy) = (None, None);
            Round { cpu, reader, next_serial: 0, since_ns: started_ns, overwritten, busy, marks }
        };
        let rounds = readers.into_iter().map(round).collect();
        FlightRecorder { rounds, kinds, times, ids, builtin, dumps: 0, started_ns }
    }

    /// Of all rings.
    pub fn bytes(&self) -> u64 {
        self.rounds.iter().map(|round| round.reader.size()).sum()
    }

    /// To be called several times a second, and before a dump.
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

    /// Reads what the rings hold, while writers go on. `last`: all writers have stopped.
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
            if still.busy {
                round.note_busy(begin_ns);
            }
            self.times.convert(&self.kinds, &mut records, &mut taken);
            if last && still.missed > 0 {
                // Losses that no later record has reported.
                records.extend(self.builtin.lost(
                    still.missed,
                    self.times.ns(still.since),
                    begin_ns,
                ));
                taken.serials += still.missed;
                taken.lost += still.missed;
            }
            // A recording may take weeks, but 48 bits of time reach back 78 hours: these are the
            // last ones.
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
            // Fails only if the writer thread has ended with an error, which it has reported.
            let _ = to_writer.send(ToWriter::Block(block));
        }
        self.dumps += 1;
        result
    }

    /// Called once, after the last dump.
    pub fn finish(&mut self) -> Vec<Finished> {
        let finished = |round: Round| {
            let mut counters = Counters::default();
            round.reader.count(&mut counters);
            Finished {
                counters,
                cpu: round.cpu,
                entries: round.busy.map(|busy| round.ring_busy(busy)).into_iter().collect(),
                lost_between: round.overwritten,
            }
        };
        self.rounds.drain(..).map(finished).collect()
    }
}

impl Round {
    /// Reads the rings from their own CPU, with a priority above everything that can be preempted
    /// there, so that little is overwritten during the copy. If that CPU is offline, reading from
    /// another one gives the same result, but takes longer.
    fn take(&mut self, kinds: &RecordKinds, ids: &[u16]) -> io::Result<(Vec<u8>, Taken, Still)> {
        let (cpu, reader) = (self.cpu, &mut self.reader);
        let copied = thread::scope(|scope| {
            let reader = &mut *reader;
            let work = threads::start_in(scope, move || {
                let _ = os::pin_to_cpu(cpu.into());
                let _ = os::become_fifo();
                copy(reader, kinds, ids)
            });
            work.ok().map(|work| {
                work.join().unwrap_or_else(|_| {
                    Err(io::Error::other("the thread that copies the ring has panicked"))
                })
            })
        });
        // Without a thread of its own, more may be overwritten meanwhile, which is counted.
        copied.unwrap_or_else(|| copy(reader, kinds, ids))
    }

    fn note_busy(&mut self, now_ns: u64) {
        let (dumps, first_ns, _) = self.busy.unwrap_or((0, now_ns, now_ns));
        self.busy = Some((dumps + 1, first_ns, now_ns));
    }

    fn ring_busy(&self, (dumps, first_ns, last_ns): (u64, u64, u64)) -> Entry {
        Entry::new(Key::RingBusy)
            .cpu(self.cpu)
            .between(first_ns, last_ns)
            .detail(&format!("{dumps} dumps"))
    }

    /// Notes that a dump began with this serial number at this time, and ended before
    /// `next_serial`.
    fn note(&mut self, first_serial: u64, first_ns: u64, next_serial: u64, now_ns: u64) {
        if first_serial > self.next_serial {
            let from = self.overwritten.map_or(self.since_ns, |(from, _)| from);
            self.overwritten = Some((from, first_ns));
        }
        (self.next_serial, self.since_ns) = (next_serial, now_ns);
    }
}

/// Copies what a ring holds.
fn copy(
    reader: &mut CpuReader,
    kinds: &RecordKinds,
    ids: &[u16],
) -> io::Result<(Vec<u8>, Taken, Still)> {
    let mut records = Vec::new();
    let (taken, still) = reader.take_running(kinds, ids, &mut records)?;
    Ok((records, taken, still))
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_os::Mapping;
    use klogger_ring::Rings;
    use klogger_ring::layout::ring::NEST;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::sync_channel;

    const HOUR: u64 = 3_600_000_000_000;

    /// What the flight recorder of a ring says after two dumps. `nest`: hits at work meanwhile.
    fn dumped_twice(nest: u64) -> Vec<Entry> {
        const SIZE: usize = 1 << 14;
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(Rings::stride(SIZE) as u64).unwrap();
        let mapping = || Mapping::new(memory.as_fd(), Rings::stride(SIZE)).unwrap();
        mapping().word(NEST).store(nest, Ordering::Relaxed);
        let reader = CpuReader::new(Rings::new(mapping(), SIZE, 1, 10).reader(0), None);
        let builtin = Builtin(Arc::default());
        let kinds = Arc::new(RecordKinds::new(&[]));
        let mut recorder = FlightRecorder::new(vec![(3, reader)], kinds, Times::Ns, &[], builtin);
        let (to_writer, blocks) = sync_channel(2);
        for _ in 0..2 {
            recorder.dump(false, &Status::default(), &to_writer).unwrap();
        }
        assert_eq!(blocks.try_iter().count(), 2);
        recorder.finish().remove(0).entries
    }

    #[test]
    fn a_ring_that_is_never_still_is_in_the_ledger() {
        assert_eq!(dumped_twice(0), []);
        let [entry] = &dumped_twice(1)[..] else { panic!("one entry for each ring") };
        assert_eq!((&*entry.key, entry.cpu, entry.count), ("ring_busy", Some(3), 0));
        assert!(entry.text.starts_with("2 dumps: "), "{}", entry.text);
        assert!(entry.from_ns < entry.to_ns);
    }

    #[test]
    fn records_older_than_their_time_reaches_are_not_read() {
        let (mut marks, reach, mut from) = (Marks::new(0), 26 * HOUR, 0);
        for minute in 1..=6000 {
            let now = minute * HOUR / 60;
            // The writer writes a byte each minute.
            if let Some((main, nested)) = marks.look(now, reach, (minute, minute / 2)) {
                assert!(main > from && nested <= main / 2);
                from = main;
            }
            let oldest = minute.saturating_sub(26 * 60);
            assert!(from >= oldest, "in minute {minute} reading begins at minute {from}");
            assert!(from <= oldest + 26 * 60 / MARKS + 2, "in minute {minute} {from} is too late");
            assert!(marks.0.len() as u64 <= MARKS + 2);
        }
        assert!(from > 70 * 60);
    }
}
