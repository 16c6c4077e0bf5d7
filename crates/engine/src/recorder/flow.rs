// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! From the rings to the file: who runs while it is recorded, and how they come to an end.

use super::Progress;
use super::dump::FlightRecorder;
use super::probes::Probes;
use crate::bpf::Calls;
use crate::drain::{Drain, Finished, Shared};
use crate::error::Error;
use crate::ring::RecordKinds;
use crate::sys;
use crate::user::Output;
use crate::writer::{Builtin, LogWriter, Names, Pool, Status, ToWriter};
use klogger_log::builder::RecordBuilder;
use klogger_log::ledger::Ledger;
use klogger_log::writer::{Summary, Writer};
use klogger_schema::layout::EventLayout;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// From the rings to the file: drain threads, or the flight recorder, and the writer.
pub struct Flow {
    pub builtin: Builtin,
    pub status: Arc<Status>,
    pool: Arc<Pool>,
    to_writer: SyncSender<ToWriter>,
    messages: Option<Receiver<ToWriter>>,
    drains: Vec<Drain>,
    flight: Option<FlightRecorder>,
    stop: Arc<AtomicBool>,
    /// Passes the calls of full rings on to drain threads.
    caller: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<LogWriter>>,
    pub notes: Vec<String>,
}

/// The thread that wakes drain threads when their rings fill up. It has their priority, or a busy system would hold up
/// the call.
fn pass_on_calls(calls: Calls, drains: &[Drain], stop: Arc<AtomicBool>) -> Option<JoinHandle<()>> {
    let wakers: HashMap<u32, Thread> = drains.iter().map(|d| (u32::from(d.cpu), d.waker())).collect();
    let listen = move || {
        // Not to be had is not fatal: the drain threads said so already for themselves.
        let _ = sys::become_fifo();
        let go_on = || !stop.load(Ordering::Acquire);
        let call = |cpu: u32| wakers.get(&cpu).into_iter().for_each(Thread::unpark);
        // Without calls rings are still emptied each second, and losses are counted.
        let _ = calls.listen(&go_on, &call);
    };
    let builder = thread::Builder::new().name("klogger/calls".into());
    if drains.is_empty() { None } else { builder.spawn(listen).ok() }
}

/// A writer whose input has ended.
pub struct Ended {
    writer: Option<LogWriter>,
    status: Arc<Status>,
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
            drains: Vec::new(),
            flight: None,
            stop: Arc::default(),
            caller: None,
            writer: None,
            notes: Vec::new(),
        }
    }

    /// Opens the rings of all CPUs, and starts their drain threads.
    pub fn open_cpus(&mut self, probes: &Probes, overwrite: bool, layouts: &[EventLayout]) -> Result<(), Error> {
        let kinds = Arc::new(RecordKinds::new(layouts));
        let readers = probes.readers();
        for (_, reader) in &readers {
            reader.open(overwrite);
        }
        if overwrite {
            self.flight = Some(FlightRecorder::new(readers, kinds, layouts, self.builtin.clone()));
        } else {
            let shared = Shared {
                kinds,
                to_writer: self.to_writer.clone(),
                pool: self.pool.clone(),
                status: self.status.clone(),
                builtin: self.builtin.clone(),
                stop: self.stop.clone(),
            };
            self.drains = readers.into_iter().map(|(cpu, reader)| Drain::start(cpu, reader, shared.clone())).collect();
        }
        self.notes = self.drains.iter_mut().flat_map(|d| std::mem::take(&mut d.notes)).collect();
        self.caller = pass_on_calls(probes.engine.calls()?, &self.drains, self.stop.clone());
        Ok(())
    }

    /// For events of programs.
    pub fn output(&self, tells_processes: bool) -> Output {
        let (to_writer, pool, status) = (self.to_writer.clone(), self.pool.clone(), self.status.clone());
        Output::new(to_writer, pool, status, self.builtin.clone(), tells_processes)
    }

    pub fn write(&mut self, writer: Writer<File>, start_ns: u64) {
        let Some(messages) = self.messages.take() else { return };
        let log = LogWriter::new(writer, self.builtin.clone(), self.status.clone(), self.pool.clone(), start_ns);
        self.writer = Some(thread::spawn(move || log.run(messages)));
    }

    /// Logs an event of the recorder's own.
    pub fn own(&self, event: RecordBuilder, time_ns: u64) {
        let mut bytes = Vec::new();
        event.finish(time_ns, &mut bytes);
        // Fails only if the writer has given up, which it has reported itself.
        let _ = self.to_writer.send(ToWriter::Own(bytes));
    }

    pub fn event_state(&self, layout: &EventLayout, on: bool, time_ns: u64) {
        self.own(self.builtin.state(layout, on), time_ns);
    }

    pub fn dump(&mut self, resume: bool) {
        if let Some(flight) = &mut self.flight {
            flight.dump(resume, &self.status, &self.to_writer);
        }
    }

    pub fn progress(&self, elapsed: Duration) -> Progress {
        let s = &self.status;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Progress { elapsed, events: get(&s.events), lost: get(&s.lost), bytes: get(&s.bytes) }
    }

    /// After the programs are detached: the rest of the rings, and then the writer's end.
    pub fn stop(mut self) -> (Vec<Finished>, Ended) {
        self.dump(false);
        self.stop.store(true, Ordering::Release);
        self.drains.iter().for_each(|d| d.waker().unpark());
        if let Some(caller) = self.caller.take() {
            let _ = caller.join();
        }
        let mut ends: Vec<Finished> = self.drains.into_iter().filter_map(Drain::join).collect();
        ends.extend(self.flight.into_iter().flat_map(FlightRecorder::finish));
        drop(self.to_writer);
        let writer = self.writer.and_then(|w| w.join().ok());
        (ends, Ended { writer, status: self.status })
    }
}

impl Ended {
    pub fn summary(&self) -> Summary {
        self.writer.as_ref().map(LogWriter::summary).unwrap_or_default()
    }

    pub fn discarded(&self) -> u64 {
        self.writer.as_ref().map_or(0, LogWriter::discarded)
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
