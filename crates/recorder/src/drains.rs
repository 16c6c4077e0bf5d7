// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The drain threads of all CPUs, and two threads that serve them: one passes on wake-ups of
//! writers, one makes larger rings.

use crate::drain::{Drain, Finished, Shared};
use klogger_engines::cpu_rings::{Growth, WakeUp, WakeUps};
use klogger_os as os;
use klogger_os::Error;
use klogger_ring::{CpuReader, RingReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long [`Drains::empty_all`] waits.
const EMPTYING: Duration = Duration::from_millis(500);

/// The drain threads. One is added when a CPU gets rings in the middle of a recording.
pub struct Drains {
    threads: Mutex<Vec<Drain>>,
    shared: Shared,
}

impl Drains {
    pub fn start(readers: Vec<(u16, CpuReader)>, shared: Shared) -> Result<Drains, Error> {
        let threads: Result<Vec<Drain>, Error> = readers
            .into_iter()
            .map(|(cpu, reader)| Drain::start(cpu, reader, shared.clone()))
            .collect();
        Ok(Drains { threads: Mutex::new(threads?), shared })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Drain>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn cpus(&self) -> Vec<u16> {
        self.lock().iter().map(|drain| drain.cpu).collect()
    }

    pub fn wake(&self) {
        self.lock().iter().for_each(Drain::wake);
    }

    pub fn notes(&self) -> Vec<String> {
        self.lock().iter_mut().flat_map(|d| std::mem::take(&mut d.notes)).collect()
    }

    fn hear(&self, wake_up: WakeUp) {
        match wake_up {
            WakeUp::Filling(cpu) => {
                self.lock().iter().filter(|d| u32::from(d.cpu) == cpu).for_each(Drain::wake)
            }
            WakeUp::NewRings(readers) => {
                readers.into_iter().for_each(|(cpu, reader)| self.replace(cpu, reader))
            }
        }
    }

    /// Switches to a larger ring as soon as no writer is left in the old one.
    fn grow(&self, cpu: u16, larger: RingReader, growth: &dyn Growth) {
        // A CPU has one drain thread for the whole recording. The lock is released, so that others
        // can be woken meanwhile.
        let retired = self.lock().iter().find(|d| d.cpu == cpu).map(Drain::retire);
        if retired.is_none_or(|answer| answer.recv().is_err()) {
            return;
        }
        growth.wait_for_writers();
        if let Some(drain) = self.lock().iter().find(|d| d.cpu == cpu) {
            drain.grow(larger);
        }
    }

    fn replace(&self, cpu: u16, reader: CpuReader) {
        let mut threads = self.lock();
        match threads.iter().find(|d| d.cpu == cpu) {
            Some(drain) => drain.replace(reader),
            None => match Drain::start(cpu, reader, self.shared.clone()) {
                Ok(drain) => threads.push(drain),
                // The recording ends: nobody would empty these rings.
                Err(e) => {
                    if let Ok(mut failure) = self.shared.outlet.status.failure.lock() {
                        let why = format!("CPU {cpu} has come: {}", e.message);
                        failure.get_or_insert(std::io::Error::other(why));
                    }
                }
            },
        }
    }

    /// Waits until all rings have been emptied once: between two turns of each thread. Not for
    /// long, if there is no room for their contents.
    pub fn empty_all(&self) {
        let deadline = Instant::now() + EMPTYING;
        for _ in 0..2 {
            let answers: Vec<_> = self.lock().iter().map(Drain::turn).collect();
            for answer in answers {
                let _ = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Called when no writer is left.
    pub fn stop(&self) -> Vec<Finished> {
        self.shared.stop.store(true, Ordering::Release);
        let threads = std::mem::take(&mut *self.lock());
        threads.iter().for_each(Drain::wake);
        threads.into_iter().filter_map(Drain::join).collect()
    }
}

/// The thread that receives wake-ups. It has the priority of the drain threads, so that a busy
/// system does not delay them.
pub struct Listener {
    thread: JoinHandle<Result<(), Error>>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    pub fn start(wake_ups: Box<dyn WakeUps>, drains: Arc<Drains>) -> Option<Listener> {
        let stop: Arc<AtomicBool> = Arc::default();
        let seen = stop.clone();
        let listen = move || {
            // An error is ignored here: the drain threads have reported it for themselves.
            let _ = os::become_fifo();
            wake_ups.listen(&|| !seen.load(Ordering::Acquire), &|wake_up| drains.hear(wake_up))
        };
        let thread = thread::Builder::new().name("klogger/calls".into()).spawn(listen).ok()?;
        Some(Listener { thread, stop })
    }

    /// The error with which it ended early, if it did.
    pub fn stop(self) -> Option<Error> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().ok()?.err()
    }
}

/// The thread that makes larger rings, which takes longer than a drain thread can wait.
pub struct Grower {
    thread: JoinHandle<Vec<String>>,
    stop: Arc<AtomicBool>,
}

/// How often it checks whether to end.
const LOOK: Duration = Duration::from_millis(50);

impl Grower {
    pub fn start(
        mut growth: Box<dyn Growth>,
        asked: Receiver<u16>,
        drains: Arc<Drains>,
    ) -> Option<Grower> {
        let stop: Arc<AtomicBool> = Arc::default();
        let seen = stop.clone();
        let grow = move || {
            let mut notes = Vec::new();
            // As in the thread for wake-ups.
            let _ = os::become_fifo();
            while !seen.load(Ordering::Acquire) {
                let Ok(cpu) = asked.recv_timeout(LOOK) else { continue };
                match growth.larger(cpu) {
                    Ok(Some(ring)) => drains.grow(cpu, ring, &*growth),
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

    /// Warnings about rings that did not grow.
    pub fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}
