// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One thread for each CPU moves records from its ring to the writer.
//!
//! A thread sleeps until a writer passes the ring's low-water mark and wakes it, or for a second.
//! So it disturbs the system only when there is something to do, and what is logged is never in
//! memory alone for much longer than a second.

mod worker;

use klogger_engines::times::Times;
use klogger_log::ledger::Entry;
use klogger_os as os;
use klogger_os::machine;
use klogger_ring::CpuReader;
use klogger_ring::block::Outlet;
use klogger_ring::{Counters, RecordKinds, RingReader};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use worker::Worker;

/// Clocks are read before space is reserved, so a record can be a little older than the last look
/// at the ring.
pub const CLOCK_MARGIN_NS: u64 = 60_000_000_000;

/// What all drain threads share.
#[derive(Clone)]
pub struct Shared {
    pub kinds: Arc<RecordKinds>,
    pub times: Times,
    pub outlet: Outlet,
    /// Where a larger ring is asked for, if there are any.
    pub grow: Option<Sender<u16>>,
    pub stop: Arc<AtomicBool>,
}

/// What a drain thread goes on with.
enum Next {
    /// Other rings, which no writer of those before uses any more.
    Rings(CpuReader),
    /// Writers are to be sent to a larger main ring, which is open. The answer is that this has
    /// been done.
    Retire(Sender<()>),
    /// That ring. No writer uses the one before any more.
    Larger(RingReader),
}

/// A running drain thread.
pub struct Drain {
    thread: JoinHandle<Finished>,
    next: Sender<Next>,
    pub cpu: u16,
    pub notes: Vec<String>,
}

/// What a drain thread leaves when it ends.
pub struct Finished {
    pub counters: Counters,
    pub cpu: u16,
    pub entries: Vec<Entry>,
    /// (first loss, last loss), if any.
    pub lost_between: Option<(u64, u64)>,
}

impl Drain {
    pub fn start(cpu: u16, reader: CpuReader, shared: Shared) -> Drain {
        let (hello, hear): (Sender<Vec<String>>, Receiver<_>) = channel();
        let (next, replacements) = channel();
        let thread = thread::Builder::new().name(format!("klogger/{cpu}")).spawn(move || {
            let mut notes = Vec::new();
            let bound = os::pin_to_cpu(u32::from(cpu));
            // One that is offline may come; until then there is nothing to do for its thread.
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
        });
        let thread = thread.expect("a thread can be made");
        let notes = hear.recv().unwrap_or_default();
        Drain { thread, next, cpu, notes }
    }

    /// Wakes the thread: its ring fills up, or it is to see `stop`.
    pub fn wake(&self) {
        self.thread.thread().unpark();
    }

    /// Writers use these rings from now on; no writer is left in those before.
    pub fn replace(&self, reader: CpuReader) {
        // Fails only if the thread has ended already.
        let _ = self.next.send(Next::Rings(reader));
        self.wake();
    }

    /// Sends writers to a larger main ring. From the answer on, writers that come find it; others
    /// may still be at work.
    pub fn retire(&self) -> Receiver<()> {
        let (done, hear) = channel();
        let _ = self.next.send(Next::Retire(done));
        self.wake();
        hear
    }

    /// The larger main ring: no writer is left in the one before.
    pub fn grow(&self, larger: RingReader) {
        let _ = self.next.send(Next::Larger(larger));
        self.wake();
    }

    pub fn join(self) -> Option<Finished> {
        self.thread.join().ok()
    }
}
