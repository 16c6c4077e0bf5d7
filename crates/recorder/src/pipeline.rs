// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From the rings to the file: who runs while it is recorded, and how they come to an end.

use super::dump::FlightRecorder;
use super::probes::Probes;
use super::{Progress, ledger};
use crate::drain::{Drain, Finished, Shared};
use crate::watch::Watch;
use crate::writer::{LogWriter, Names};
use klogger_engines::bpf::grace;
use klogger_engines::engine::{Call, Calls, Growth};
use klogger_engines::user::Output;
use klogger_log::builder::RecordBuilder;
use klogger_log::ledger::{Entry, Ledger};
use klogger_log::writer::{Summary, Writer};
use klogger_os as os;
use klogger_os::Error;
use klogger_ring::CpuReader;
use klogger_ring::block::{Builtin, Pool, Status, ToWriter};
use klogger_ring::{RecordKinds, RingReader};
use klogger_schema::layout::EventLayout;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// From the rings to the file: drain threads, or the flight recorder, and the writer.
pub struct Flow {
    pub builtin: Builtin,
    pub status: Arc<Status>,
    pool: Arc<Pool>,
    to_writer: SyncSender<ToWriter>,
    messages: Option<Receiver<ToWriter>>,
    drains: Option<Arc<Drains>>,
    flight: Option<FlightRecorder>,
    caller: Option<Caller>,
    grower: Option<Grower>,
    watch: Watch,
    /// What was switched on or off, and when.
    switched: Mutex<Vec<(String, bool, u64)>>,
    writer: Option<JoinHandle<LogWriter>>,
    pub notes: Vec<String>,
}

/// The drain threads. One is added when a CPU gets rings in the middle of a recording.
struct Drains {
    threads: Mutex<Vec<Drain>>,
    shared: Shared,
}

impl Drains {
    fn start(readers: Vec<(u16, CpuReader)>, shared: Shared) -> Drains {
        let threads = readers
            .into_iter()
            .map(|(cpu, reader)| Drain::start(cpu, reader, shared.clone()))
            .collect();
        Drains { threads: Mutex::new(threads), shared }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Drain>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes(&self) -> Vec<String> {
        self.lock().iter_mut().flat_map(|d| std::mem::take(&mut d.notes)).collect()
    }

    fn hear(&self, call: Call) {
        match call {
            Call::Filling(cpu) => {
                self.lock().iter().filter(|d| u32::from(d.cpu) == cpu).for_each(Drain::wake)
            }
            Call::NewRings(readers) => {
                readers.into_iter().for_each(|(cpu, reader)| self.replace(cpu, reader))
            }
        }
    }

    /// Goes on with a larger ring as soon as no writer is left in the one before.
    fn grow(&self, cpu: u16, larger: RingReader) {
        // One drain thread has a CPU, and it stays. Others are to be called meanwhile.
        let retired = self.lock().iter().find(|d| d.cpu == cpu).map(Drain::retire);
        if retired.is_none_or(|answer| answer.recv().is_err()) {
            return;
        }
        grace::wait();
        if let Some(drain) = self.lock().iter().find(|d| d.cpu == cpu) {
            drain.grow(larger);
        }
    }

    fn replace(&self, cpu: u16, reader: CpuReader) {
        let mut threads = self.lock();
        match threads.iter().find(|d| d.cpu == cpu) {
            Some(drain) => drain.replace(reader),
            None => threads.push(Drain::start(cpu, reader, self.shared.clone())),
        }
    }

    /// When no writer is left.
    fn stop(&self) -> Vec<Finished> {
        self.shared.stop.store(true, Ordering::Release);
        let threads = std::mem::take(&mut *self.lock());
        threads.iter().for_each(Drain::wake);
        threads.into_iter().filter_map(Drain::join).collect()
    }
}

/// The thread that hears when rings fill up. It has the drain threads' priority, or a busy system
/// would hold up the call.
struct Caller {
    thread: JoinHandle<Result<(), Error>>,
    stop: Arc<AtomicBool>,
}

impl Caller {
    fn start(calls: Box<dyn Calls>, drains: Arc<Drains>) -> Option<Caller> {
        let stop: Arc<AtomicBool> = Arc::default();
        let seen = stop.clone();
        let listen = move || {
            // Not to be had is not fatal: the drain threads said so already for themselves.
            let _ = os::become_fifo();
            calls.listen(&|| !seen.load(Ordering::Acquire), &|call| drains.hear(call))
        };
        let thread = thread::Builder::new().name("klogger/calls".into()).spawn(listen).ok()?;
        Some(Caller { thread, stop })
    }

    /// Why it ended early, if it did.
    fn stop(self) -> Option<Error> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().ok()?.err()
    }
}

/// The thread that makes larger rings, which takes longer than a drain thread can wait.
struct Grower {
    thread: JoinHandle<Vec<String>>,
    stop: Arc<AtomicBool>,
}

/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

impl Grower {
    fn start(
        mut growth: Box<dyn Growth>,
        asked: Receiver<u16>,
        drains: Arc<Drains>,
    ) -> Option<Grower> {
        let stop: Arc<AtomicBool> = Arc::default();
        let seen = stop.clone();
        let grow = move || {
            let mut notes = Vec::new();
            // As for calls.
            let _ = os::become_fifo();
            while !seen.load(Ordering::Acquire) {
                let Ok(cpu) = asked.recv_timeout(LOOK) else { continue };
                match growth.larger(cpu) {
                    Ok(Some(ring)) => drains.grow(cpu, ring),
                    Ok(None) => notes.push(format!(
                        "the ring of CPU {cpu} did not grow: --max-memory is used up"
                    )),
                    Err(e) => notes.push(e.message),
                }
            }
            notes
        };
        let thread = thread::Builder::new().name("klogger/rings".into()).spawn(grow).ok()?;
        Some(Grower { thread, stop })
    }

    /// What it could not do.
    fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}

/// A writer whose input has ended.
pub struct Ended {
    writer: Option<LogWriter>,
    status: Arc<Status>,
    /// Why calls of rings were not heard to the end, if so.
    pub deaf: Option<String>,
    /// For people.
    pub notes: Vec<String>,
    /// What happened to clocks and CPUs.
    pub seen: Vec<Entry>,
    /// CPUs that were not there at the beginning, and the last time that they were not.
    pub came: BTreeMap<u32, u64>,
}

impl Flow {
    /// What comes waits until there is a file.
    pub fn new(layouts: &[EventLayout]) -> Flow {
        let (to_writer, messages) = sync_channel(128);
        Flow {
            builtin: Builtin(Arc::new(layouts.to_vec())),
            status: Arc::default(),
            pool: Arc::default(),
            to_writer,
            messages: Some(messages),
            drains: None,
            flight: None,
            caller: None,
            grower: None,
            watch: Watch::start(),
            switched: Mutex::default(),
            writer: None,
            notes: Vec::new(),
        }
    }

    /// Opens the rings of all CPUs, and starts their drain threads.
    pub fn open_cpus(
        &mut self,
        probes: &Probes,
        overwrite: bool,
        layouts: &[EventLayout],
    ) -> Result<(), Error> {
        let kinds = Arc::new(RecordKinds::new(layouts));
        let times = probes.engine.times();
        let readers = probes.engine.readers()?;
        for (_, reader) in &readers {
            reader.open(overwrite);
        }
        if overwrite {
            self.flight =
                Some(FlightRecorder::new(readers, kinds, times, layouts, self.builtin.clone()));
            return Ok(());
        }
        let (grow, asked) = channel();
        let growth = probes.engine.growth();
        let shared = Shared {
            grow: growth.is_some().then_some(grow),
            kinds,
            times,
            to_writer: self.to_writer.clone(),
            pool: self.pool.clone(),
            status: self.status.clone(),
            builtin: self.builtin.clone(),
            stop: Arc::default(),
        };
        let drains = Arc::new(Drains::start(readers, shared));
        self.notes = drains.notes();
        self.caller = Caller::start(probes.engine.calls()?, drains.clone());
        self.grower = growth.and_then(|g| Grower::start(g, asked, drains.clone()));
        self.drains = Some(drains);
        Ok(())
    }

    /// For events of programs.
    pub fn output(&self, tells_processes: bool) -> Output {
        let (to_writer, pool, status) =
            (self.to_writer.clone(), self.pool.clone(), self.status.clone());
        Output::new(to_writer, pool, status, self.builtin.clone(), tells_processes)
    }

    pub fn write(&mut self, writer: Writer<File>, start_ns: u64) {
        let Some(messages) = self.messages.take() else { return };
        let log = LogWriter::new(
            writer,
            self.builtin.clone(),
            self.status.clone(),
            self.pool.clone(),
            start_ns,
        );
        let thread = thread::Builder::new().name("klogger/log".into());
        self.writer = Some(thread.spawn(move || log.run(messages)).expect("a thread can be made"));
    }

    /// Logs an event of the recorder's own.
    pub fn own(&self, event: RecordBuilder, time_ns: u64) {
        let mut bytes = Vec::new();
        event.finish(time_ns, &mut bytes);
        // Fails only if the writer has given up, which it has reported itself.
        let _ = self.to_writer.send(ToWriter::Own(bytes));
    }

    pub fn event_state(&self, layout: &EventLayout, on: bool, time_ns: u64) {
        let mut switched = self.switched.lock().unwrap_or_else(PoisonError::into_inner);
        switched.push((layout.name.clone(), on, time_ns));
        self.own(self.builtin.state(layout, on), time_ns);
    }

    /// What a flight recorder holds, while it goes on; why not, if this is none. `last`: nobody
    /// logs any more.
    pub fn dump(&mut self, last: bool) -> Result<(), Error> {
        match &mut self.flight {
            Some(flight) => flight.dump(last, &self.status, &self.to_writer),
            None => Err(Error::new(
                "SIGUSR1 asks a flight recorder for a dump; this recording is none (--overwrite)",
            )),
        }
    }

    /// Whether the machine's clocks and CPUs are what they were.
    pub fn look(&mut self) {
        self.watch.look();
        self.flight.iter_mut().for_each(FlightRecorder::look);
    }

    pub fn progress(&self, elapsed: Duration) -> Progress {
        let s = &self.status;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Progress { elapsed, events: get(&s.events), lost: get(&s.lost), bytes: get(&s.bytes) }
    }

    /// After the programs are detached: the rest of the rings, and then the writer's end.
    pub fn stop(mut self) -> (Vec<Finished>, Ended) {
        // If there is no writer, nobody waits for one.
        self.messages = None;
        let mut notes = Vec::new();
        if self.flight.is_some() {
            notes.extend(self.dump(true).err().map(|e| e.message));
        }
        // The last call may bring new rings, which the drain threads empty as well.
        let deaf = self.caller.take().and_then(Caller::stop).map(|e| e.message);
        notes.extend(self.grower.take().map(Grower::stop).unwrap_or_default());
        let mut ends = self.drains.take().map(|drains| drains.stop()).unwrap_or_default();
        ends.extend(self.flight.into_iter().flat_map(FlightRecorder::finish));
        self.watch.look();
        let end_ns = os::monotonic_ns();
        let (mut seen, came) = self.watch.finish(end_ns);
        seen.extend(ledger::disabled(
            &self.switched.into_inner().unwrap_or_else(PoisonError::into_inner),
            end_ns,
        ));
        drop(self.to_writer);
        let writer = self.writer.and_then(|w| w.join().ok());
        (ends, Ended { writer, status: self.status, deaf, notes, seen, came })
    }
}

impl Ended {
    pub fn summary(&self) -> Summary {
        self.writer.as_ref().map(LogWriter::summary).unwrap_or_default()
    }

    /// What could not be written, for the ledger.
    pub fn discarded(&self, why: &str) -> Vec<Entry> {
        self.writer.as_ref().map(|w| w.discarded(why)).unwrap_or_default()
    }

    /// Why writing failed, if it did.
    pub fn why_failed(&self) -> Option<String> {
        self.status.failure.lock().ok()?.as_ref().map(io::Error::to_string)
    }

    pub fn failure(&self) -> Option<io::Error> {
        self.status.failure.lock().ok().and_then(|mut f| f.take())
    }

    pub fn finish(self, names: &Names, ledger: &Ledger, end_ns: u64) -> io::Result<Summary> {
        match self.writer {
            Some(writer) => writer.finish(names, ledger, end_ns),
            None => Err(io::Error::other("the writer's thread has died")),
        }
    }
}
