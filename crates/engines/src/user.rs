// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The user engine, from the recorder's side: programs that include a generated header share a file
//! of rings with us (`runtime/include/klogger/program_shm.h`), and we find it, arm it, and empty
//! it.
//!
//! Whatever stands in such a file may have been written by an enemy. It is checked, copied, and
//! checked again; it may cost that program's own events, and nothing else.

mod catalogue;
mod drain;
mod engine;
mod facts;
mod file;
mod folder;
pub mod layout;
pub mod map;
mod output;
mod process;
mod program;
mod shares;
mod slot;
mod translate;

#[cfg(any(test, feature = "doubles"))]
pub mod double;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "doubles"))]
pub mod trial;

pub use catalogue::Catalogue;
pub use drain::{Settings, is_recorder};
pub use engine::INFO;
pub use facts::Unusable;
pub use file::ProgramFile;
pub use folder::{Folder, Places};
pub use layout::{RING_MAX, RING_MIN, SLOTS_MAX, slot_memory};
pub use output::Output;
pub use process::{Owner, Scope, owner};
pub use program::{Program, title};

use drain::{Shared, Worker};
use folder::{Found, Watch};
use klogger_log::ledger::{Entry, Key};
use klogger_log::preamble::EventClock;
use klogger_os as os;
use klogger_ring::clock::Source;
use klogger_schema::layout::EventLayout;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Files that are found and not yet looked at; more have to wait.
const FOUND_MAX: usize = 1024;
/// How long the programs that are there from the beginning may take to be looked at.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// How long the watch may take to see that it is over.
const WATCH_WAIT: Duration = Duration::from_millis(50);

/// Programs that are being recorded.
pub struct Programs {
    shared: Arc<Shared>,
    worker: JoinHandle<Worker>,
    watch: JoinHandle<()>,
    source: Source,
    began_ns: u64,
}

/// What came of it.
pub struct Recorded {
    pub entries: Vec<Entry>,
    pub clock: EventClock,
    /// Programs that were recorded.
    pub programs: u64,
}

impl Programs {
    /// Begins to look for programs. Those there are already are found before this returns. The
    /// strings say what is amiss.
    pub fn start(
        settings: Settings,
        catalogue: Catalogue,
        out: Output,
        places: Places,
    ) -> (Programs, Vec<String>) {
        // Each program takes two descriptors.
        os::files::raise_limit();
        let shared = Arc::new(Shared {
            catalogue: Mutex::new(catalogue),
            switched: AtomicBool::new(false),
            stop_watch: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            looked_at: AtomicUsize::new(0),
            bell: AtomicU32::new(0),
        });
        let (sender, found) = sync_channel(FOUND_MAX);
        let (watch, mut there, notes) = Watch::new(places);
        if let Scope::Processes(pids) = &settings.scope {
            there.extend(pids.iter().flat_map(|pid| process::files_of(*pid)));
        }
        let source = settings.source;
        let first = there.len();
        let worker = start_worker(settings, shared.clone(), found, out);
        let watch = start_watch(watch, there, sender, shared.clone());
        wait_for_first(&shared, &worker, first);
        (Programs { shared, worker, watch, source, began_ns: os::monotonic_ns() }, notes)
    }

    /// Switches an event on or off, in programs that come later as well; `None` if there is none of
    /// this name.
    pub fn switch(&self, event: &str, on: bool) -> Option<EventLayout> {
        let layout = self.shared.catalogue.lock().ok()?.switch(event, on)?;
        self.shared.switched.store(true, Ordering::Release);
        self.shared.ring();
        Some(layout)
    }

    /// Names of all events that there are by now.
    pub fn events(&self) -> Vec<EventLayout> {
        self.shared.catalogue.lock().map(|c| c.events().to_vec()).unwrap_or_default()
    }

    /// Disarms all programs and takes what is left.
    pub fn stop(self) -> Recorded {
        // The watch first: what it has found is still taken in.
        self.shared.stop_watch.store(true, Ordering::Release);
        let _ = self.watch.join();
        self.shared.stop.store(true, Ordering::Release);
        self.shared.ring();
        let span = (self.began_ns, os::monotonic_ns());
        match self.worker.join() {
            Ok(worker) => Recorded {
                programs: worker.recorded,
                clock: worker.out.clock.about(self.source),
                entries: worker.out.complaints.finish(span),
            },
            Err(_) => {
                let entry = Entry::new(Key::UserRefused)
                    .detail("the thread that records programs has died");
                Recorded { entries: vec![entry], clock: EventClock::default(), programs: 0 }
            }
        }
    }
}

/// Until the programs that were there from the beginning are recorded: whoever is told that the
/// recording has started may count on it.
fn wait_for_first(shared: &Shared, worker: &JoinHandle<Worker>, first: usize) {
    let until = Instant::now() + FIRST_WAIT;
    while shared.looked_at.load(Ordering::Acquire) < first
        && !worker.is_finished()
        && Instant::now() < until
    {
        thread::sleep(Duration::from_millis(1));
    }
}

fn start_worker(
    settings: Settings,
    shared: Arc<Shared>,
    found: Receiver<Found>,
    out: Output,
) -> JoinHandle<Worker> {
    let worker = Worker::new(settings, shared, found, out);
    let thread = thread::Builder::new().name("klogger/user".into());
    let run = move || {
        // Not SCHED_FIFO: it would let a program that floods us take the CPU from all others.
        // Refused to ordinary users.
        let _ = os::become_important();
        worker.run()
    };
    thread.spawn(run).expect("a thread can be made")
}

fn start_watch(
    mut watch: Watch,
    there: Vec<Found>,
    sender: SyncSender<Found>,
    shared: Arc<Shared>,
) -> JoinHandle<()> {
    let run = move || {
        let mut found = there;
        loop {
            let stop = shared.stop_watch.load(Ordering::Acquire);
            if !found.is_empty() {
                // Fails only when nobody is there any more.
                found.drain(..).for_each(|f| drop(sender.send(f)));
                shared.ring();
            }
            if stop {
                return;
            }
            watch.wait(WATCH_WAIT);
            found = watch.news();
        }
    };
    thread::Builder::new().name("klogger/watch".into()).spawn(run).expect("a thread can be made")
}
