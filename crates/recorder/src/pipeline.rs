// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The pipeline: the threads that take records from the rings to the log file, and how they end.

mod ended;

pub use ended::Ended;

use super::dump::FlightRecorder;
use super::{Progress, ledger};
use crate::destination::Destination;
use crate::drain::{Finished, Shared};
use crate::drains::{Drains, Grower, Listener};
use crate::follower::{self, Feed, Follower};
use crate::snapshots::Sources;
use crate::taps::Consumers;
use crate::taps::seams::Seams;
use crate::watch::Watch;
use crate::writer::LogWriter;
use klogger_engines::cpu_rings::CpuRings;
use klogger_log::builder::RecordBuilder;
use klogger_log::preamble::Preamble;
use klogger_log::writer::Writer;
use klogger_os as os;
use klogger_os::threads;
use klogger_os::{Error, machine};
use klogger_ring::RecordKinds;
use klogger_ring::block::{Builtin, Followed, Outlet, Pool, Source, Status, ToWriter};
use klogger_schema::layout::EventLayout;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the names of threads may take at the end.
const NAMING: Duration = Duration::from_secs(1);

/// The threads between the rings and the file: drain threads or, in overwrite mode, the dumper; and
/// the writer thread.
pub struct Pipeline {
    outlet: Outlet,
    /// Hands the writer's thread its log. Dropped, if there will be none.
    log: Option<Sender<LogWriter>>,
    drains: Option<Arc<Drains>>,
    flight: Option<Arc<Mutex<FlightRecorder>>>,
    listener: Option<Listener>,
    grower: Option<Grower>,
    watch: Watch,
    /// What was switched on or off, and when.
    switched: Mutex<Vec<(String, bool, u64)>>,
    writer: JoinHandle<Option<LogWriter>>,
    /// The thread of whoever follows the recording.
    follower: Option<JoinHandle<()>>,
    pub notes: Vec<String>,
}

/// What a log begins with.
pub struct Log {
    pub writer: Writer<Destination>,
    pub start_ns: u64,
    /// If it consists of segments.
    pub seams: Option<Seams>,
    /// An engine drains rings of programs.
    pub programs: bool,
    /// Who else gets what comes.
    pub consumers: Consumers,
}

impl Pipeline {
    /// The recorder's own events.
    pub fn builtin(&self) -> &Builtin {
        &self.outlet.builtin
    }

    /// The progress.
    pub fn status(&self) -> &Status {
        &self.outlet.status
    }

    /// Messages wait until there is a file. `ring`: bytes of the largest ring at the beginning.
    ///
    /// # Errors
    /// There may be no more threads.
    pub fn new(layouts: &[EventLayout], ring: u64) -> Result<Pipeline, Error> {
        // As much as the rings may have themselves.
        let room = machine::memory_available().map_or(u64::MAX, |room| room / 4);
        let (to_writer, messages) = sync_channel(128);
        let (log, writer) = start_writer(messages)?;
        let outlet = Outlet {
            to_writer,
            pool: Arc::new(Pool::within(room, ring)),
            status: Arc::default(),
            builtin: Builtin(Arc::new(layouts.to_vec())),
            followed: Arc::default(),
        };
        Ok(Pipeline {
            outlet,
            log: Some(log),
            drains: None,
            flight: None,
            listener: None,
            grower: None,
            watch: Watch::start(),
            switched: Mutex::default(),
            writer,
            follower: None,
            notes: Vec::new(),
        })
    }

    /// Whether somebody follows the recording.
    pub fn followed(&self) -> &Followed {
        &self.outlet.followed
    }

    /// Somebody reads the log while it is written, or does not any more.
    pub fn be_followed(&self, yes: bool) {
        self.outlet.followed.in_log(yes);
        if yes {
            // They may be asleep for a second.
            self.drains.iter().for_each(|drains| drains.wake());
        }
    }

    /// Opens the rings of all CPUs, and starts their drain threads.
    ///
    /// # Errors
    /// There may be no more threads.
    pub fn open_cpus(
        &mut self,
        rings: CpuRings,
        overwrite: bool,
        layouts: &[EventLayout],
    ) -> Result<(), Error> {
        let kinds = Arc::new(RecordKinds::new(layouts));
        let CpuRings { readers, times, wake_ups, growth } = rings;
        for (_, reader) in &readers {
            reader.open(overwrite);
        }
        if overwrite {
            let builtin = self.outlet.builtin.clone();
            let flight = FlightRecorder::new(readers, kinds, times, layouts, builtin);
            self.flight = Some(Arc::new(Mutex::new(flight)));
            return Ok(());
        }
        let (grow, asked) = channel();
        let shared = Shared {
            grow: growth.is_some().then_some(grow),
            kinds,
            times,
            outlet: self.outlet.clone(),
            stop: Arc::default(),
        };
        let drains = Arc::new(Drains::start(readers, shared)?);
        self.notes = drains.notes();
        self.listener = Listener::start(wake_ups, drains.clone());
        self.grower = growth.and_then(|g| Grower::start(g, asked, drains.clone()));
        self.drains = Some(drains);
        Ok(())
    }

    /// Where an engine that drains its own rings hands over blocks.
    pub fn outlet(&self) -> Outlet {
        self.outlet.clone()
    }

    /// What a snapshot takes records from. To be dropped before [`Pipeline::stop`].
    pub fn sources(&self) -> Sources {
        Sources {
            to_writer: self.outlet.to_writer.clone(),
            status: self.outlet.status.clone(),
            drains: self.drains.clone(),
            flight: self.flight.clone(),
        }
    }

    /// Bytes of a dump at most, in overwrite mode; otherwise 0.
    pub fn dump_bytes(&self) -> u64 {
        self.flight.as_ref().map_or(0, |flight| lock(flight).bytes())
    }

    /// Begins a thread that passes events on to whoever follows the recording. `alone`: there is no
    /// log, so that the recording fails with it.
    pub fn follow(
        &mut self,
        follower: Box<dyn Follower>,
        preamble: &Preamble,
        alone: bool,
    ) -> Result<Feed, Error> {
        let status = alone.then(|| self.outlet.status.clone());
        let cpus = self.drains.as_ref().map(|drains| drains.cpus()).unwrap_or_default();
        let (feed, thread) = follower::start(follower, preamble, &cpus, status)?;
        self.follower = Some(thread);
        Ok(feed)
    }

    /// From here on there is a file.
    pub fn write(&mut self, log: Log) {
        let Log { writer, start_ns, seams, programs, mut consumers } = log;
        let mut sources = self.handing_over(programs);
        if consumers.finder.as_mut().is_some_and(|finder| finder.await_all(&sources)) {
            sources.push(Source::Triggers);
            consumers.feed.iter().for_each(|feed| feed.until(Source::Triggers, 0));
        }
        let log = LogWriter::new(writer, seams, consumers, &self.outlet, start_ns)
            .followed(self.outlet.followed.clone(), sources);
        if let Some(to) = self.log.take() {
            // Fails only if the thread has died, which is seen when it is joined.
            let _ = to.send(log);
        }
    }

    /// Who hands over blocks of events.
    fn handing_over(&self, programs: bool) -> Vec<Source> {
        let cpus = self.drains.iter().flat_map(|drains| drains.cpus()).map(Source::Cpu);
        cpus.chain(programs.then_some(Source::Programs)).collect()
    }

    /// Logs an event of the recorder itself.
    pub fn own(&self, event: RecordBuilder, time_ns: u64) {
        let mut bytes = Vec::new();
        event.finish(time_ns, &mut bytes);
        // Fails only if the writer thread has ended with an error, which it has reported.
        let _ = self.outlet.to_writer.send(ToWriter::Own(bytes));
    }

    pub fn event_state(&self, layout: &EventLayout, on: bool, time_ns: u64) {
        let mut switched = self.switched.lock().unwrap_or_else(PoisonError::into_inner);
        switched.push((layout.name.clone(), on, time_ns));
        self.own(self.builtin().state(layout, on), time_ns);
    }

    /// Dumps the rings in overwrite mode, or returns why that is impossible. `last`: all writers
    /// have stopped.
    pub fn dump(&mut self, last: bool) -> Result<(), Error> {
        match &self.flight {
            Some(flight) => lock(flight).dump(last, &self.outlet.status, &self.outlet.to_writer),
            None => Err(Error::new(
                "SIGUSR1 requests a dump, which only a recording with --overwrite can make",
            )),
        }
    }

    /// Checks whether the machine's clocks and CPUs have changed.
    pub fn look(&mut self) {
        self.watch.look();
        self.flight.iter().for_each(|flight| lock(flight).look());
    }

    pub fn progress(&self, elapsed: Duration) -> Progress {
        let s = self.status();
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Progress { elapsed, events: get(&s.events), lost: get(&s.lost), bytes: get(&s.bytes) }
    }

    /// Waits until what is in the rings has been taken out. Nothing in overwrite mode.
    pub fn empty_rings(&self) {
        self.drains.iter().for_each(|drains| drains.empty_all());
    }

    /// Looks up the names of threads in all events that were logged, while the probes still keep
    /// the names of threads that end.
    pub fn name_threads(&self) {
        if self.drains.is_none() {
            return;
        }
        self.empty_rings();
        let (done, hear) = channel();
        // Fails only if the writer thread has ended with an error, which it has reported.
        if self.outlet.to_writer.send(ToWriter::NameThreads(done)).is_ok() {
            let _ = hear.recv_timeout(NAMING);
        }
    }

    /// Waits until what is in the rings has passed the writer thread. The recording ended at this
    /// time, and all engines have handed over their events.
    pub fn settle(&self, end_ns: u64) {
        self.empty_rings();
        let (done, hear) = channel();
        let _ = self.outlet.to_writer.send(ToWriter::Ended(end_ns));
        // Fails only if the writer thread has ended with an error, which it has reported.
        if self.outlet.to_writer.send(ToWriter::Settle(done)).is_ok() {
            let _ = hear.recv();
        }
    }

    /// Called after the probes are detached: takes the rest of the rings, and ends the writer
    /// thread.
    pub fn stop(mut self) -> (Vec<Finished>, Ended) {
        // Without a file, the writer thread ends, and no thread receives these messages.
        self.log = None;
        let mut notes = Vec::new();
        if self.flight.is_some() {
            notes.extend(self.dump(true).err().map(|e| e.message));
        }
        // The last wake-up may bring new rings, which the drain threads drain as well.
        let listener_error = self.listener.take().and_then(Listener::stop).map(|e| e.message);
        notes.extend(self.grower.take().map(Grower::stop).unwrap_or_default());
        let mut ends = self.drains.take().map(|drains| drains.stop()).unwrap_or_default();
        ends.extend(self.flight.iter().flat_map(|flight| lock(flight).finish()));
        self.watch.look();
        let end_ns = os::monotonic_ns();
        let (mut seen, came) = self.watch.finish(end_ns);
        seen.extend(ledger::disabled(
            &self.switched.into_inner().unwrap_or_else(PoisonError::into_inner),
            end_ns,
        ));
        let status = self.outlet.status.clone();
        // The writer thread ends when all senders are dropped.
        drop(self.outlet);
        let writer = self.writer.join().ok().flatten();
        // It has passed on everything when it ends.
        self.follower.into_iter().for_each(|thread| drop(thread.join()));
        (ends, Ended { writer, status, listener_error, notes, seen, came })
    }
}

fn lock(flight: &Mutex<FlightRecorder>) -> MutexGuard<'_, FlightRecorder> {
    flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer's thread, which waits for its log. It is there before the log begins, whose preamble
/// has the names of the recorder's threads.
fn start_writer(
    messages: Receiver<ToWriter>,
) -> Result<(Sender<LogWriter>, JoinHandle<Option<LogWriter>>), Error> {
    let (log, begin): (Sender<LogWriter>, _) = channel();
    let (named, has_name) = channel();
    let run = move || {
        let _ = named.send(());
        Some(begin.recv().ok()?.run(messages))
    };
    let thread = threads::start("klogger/log", run)?;
    let _ = has_name.recv();
    Ok((log, thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use klogger_os::processes;

    fn writers() -> usize {
        let tids = processes::threads_of(std::process::id());
        tids.into_iter().filter(|tid| processes::own_name(*tid) == "klogger/log").count()
    }

    #[test]
    fn the_writer_has_its_name_before_there_is_a_log_and_ends_without_one() {
        let pipeline = Pipeline::new(&[], 4096).unwrap();
        assert_eq!(writers(), 1);
        let (_, ended) = pipeline.stop();
        assert_eq!(ended.summary().events, 0);
    }
}
