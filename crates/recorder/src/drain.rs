// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The drain threads: one for each CPU, which moves records from its rings to the writer thread.
//!
//! A drain thread sleeps until a writer passes the low-water mark of the ring and wakes it, or for
//! a second. So it disturbs the system only when there is something to do, and no event is in
//! memory alone for much longer than a second.

mod late;
mod room;
mod worker;

use klogger_engines::times::Times;
use klogger_log::ledger::Entry;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::machine;
use klogger_os::threads;
use klogger_ring::CpuReader;
use klogger_ring::block::Outlet;
use klogger_ring::{Counters, RecordKinds, RingReader};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use worker::Worker;

/// A writer reads the clock before it reserves space, so a record can be a little older than the
/// last look at the ring.
pub const CLOCK_MARGIN_NS: u64 = 60_000_000_000;

/// What all drain threads share.
#[derive(Clone)]
pub struct Shared {
    pub kinds: Arc<RecordKinds>,
    pub times: Times,
    pub outlet: Outlet,
    /// Where a drain thread asks for a larger ring, if rings can grow.
    pub grow: Option<Sender<u16>>,
    pub stop: Arc<AtomicBool>,
}

/// A change of the rings, for the drain thread.
enum Next {
    /// Other rings; no writer uses the old ones any more.
    Rings(CpuReader),
    /// Direct writers to a larger main ring, which is open. The drain thread answers when this is
    /// done.
    Retire(Sender<()>),
    /// The larger ring; no writer uses the old one any more.
    Larger(RingReader),
    /// Nothing: the drain thread answers, and then empties its rings.
    Turn(Sender<()>),
}

/// A running drain thread.
pub struct Drain {
    thread: JoinHandle<Finished>,
    next: Sender<Next>,
    pub cpu: u16,
    pub notes: Vec<String>,
}

/// The result of a drain thread.
pub struct Finished {
    pub counters: Counters,
    pub cpu: u16,
    pub entries: Vec<Entry>,
    /// (first loss, last loss), if any.
    pub lost_between: Option<(u64, u64)>,
}

impl Drain {
    pub fn start(cpu: u16, reader: CpuReader, shared: Shared) -> Result<Drain, Error> {
        let (hello, hear): (Sender<Vec<String>>, Receiver<_>) = channel();
        let (next, replacements) = channel();
        let thread = threads::start(&format!("klogger/{cpu}"), move || {
            let mut notes = Vec::new();
            let bound = os::pin_to_cpu(u32::from(cpu));
            // A CPU that is offline may come back; until then its thread has nothing to do.
            let online = machine::online_cpus().is_ok_and(|cpus| cpus.contains(&u32::from(cpu)));
            if let (Err(e), true) = (&bound, online) {
                notes.push(format!("the drain thread of CPU {cpu} is not bound to it: {e}"));
            }
            if let Err(e) = os::become_fifo() {
                notes.push(format!("the drain thread of CPU {cpu} has no real-time priority: {e}"));
            }
            // The other end is waiting for this.
            let _ = hello.send(notes);
            Worker::new(cpu, reader, replacements, shared).run()
        })?;
        let notes = hear.recv().unwrap_or_default();
        Ok(Drain { thread, next, cpu, notes })
    }

    /// Wakes the thread: its ring has passed the low-water mark, or `stop` is set.
    pub fn wake(&self) {
        self.thread.thread().unpark();
    }

    /// Writers use these rings from now on; none is left in the old ones.
    pub fn replace(&self, reader: CpuReader) {
        // Fails only if the thread has ended already.
        let _ = self.next.send(Next::Rings(reader));
        self.wake();
    }

    /// Directs writers to a larger main ring. After the answer, new writers use it; others may
    /// still be in the old one.
    pub fn retire(&self) -> Receiver<()> {
        let (done, hear) = channel();
        let _ = self.next.send(Next::Retire(done));
        self.wake();
        hear
    }

    /// Wakes the thread. It answers before it empties its rings.
    pub fn turn(&self) -> Receiver<()> {
        let (done, hear) = channel();
        let _ = self.next.send(Next::Turn(done));
        self.wake();
        hear
    }

    /// The larger main ring: no writer is left in the old one.
    pub fn grow(&self, larger: RingReader) {
        let _ = self.next.send(Next::Larger(larger));
        self.wake();
    }

    pub fn join(self) -> Option<Finished> {
        self.thread.join().ok()
    }
}
