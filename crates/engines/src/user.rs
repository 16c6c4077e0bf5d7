// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The user engine: programs that include a generated header share a file of rings with the
//! recorder (`runtime/include/klogger/program_shm.h`). The engine finds these files, arms them, and
//! drains their rings.
//!
//! Programs are untrusted: they may write anything into their file at any time. Each value is
//! copied, then checked before use. A bad value costs that program's own events, and nothing else.

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
use folder::{Found, Full, Watch};
use klogger_log::ledger::{Entry, Key};
use klogger_log::preamble::EventClock;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::threads;
use klogger_ring::clock::Source;
use klogger_schema::layout::EventLayout;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Files that were found and not yet examined; further ones wait.
const FOUND_MAX: usize = 1024;
/// How long to wait for the programs that run when the recording begins.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// How long the watch may take to notice that the recording is over.
const WATCH_WAIT: Duration = Duration::from_millis(50);

/// Programs that are being recorded.
pub struct Programs {
    shared: Arc<Shared>,
    worker: JoinHandle<Worker>,
    watch: JoinHandle<Option<Full>>,
    source: Source,
    began_ns: u64,
}

/// The result of recording programs.
pub struct Recorded {
    pub entries: Vec<Entry>,
    pub clock: EventClock,
    /// Number of programs that were recorded.
    pub programs: u64,
}

impl Programs {
    /// Starts to look for programs. Those already running are found before it returns. The strings
    /// are warnings.
    pub fn start(
        settings: Settings,
        catalogue: Catalogue,
        out: Output,
        places: Places,
    ) -> Result<(Programs, Vec<String>), Error> {
        // Each program takes two file descriptors.
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
        let worker = start_worker(settings, shared.clone(), found, out)?;
        let watch = match start_watch(watch, there, sender, shared.clone()) {
            Ok(watch) => watch,
            Err(e) => {
                shared.stop.store(true, Ordering::Release);
                shared.ring();
                let _ = worker.join();
                return Err(e);
            }
        };
        wait_for_first(&shared, &worker, first);
        Ok((Programs { shared, worker, watch, source, began_ns: os::monotonic_ns() }, notes))
    }

    /// Switches an event on or off, also in programs that start later; `None` if there is none of
    /// this name.
    pub fn switch(&self, event: &str, on: bool) -> Option<EventLayout> {
        let layout = self.shared.catalogue.lock().ok()?.switch(event, on)?;
        self.shared.switched.store(true, Ordering::Release);
        self.shared.ring();
        Some(layout)
    }

    /// The events known by now.
    pub fn events(&self) -> Vec<EventLayout> {
        self.shared.catalogue.lock().map(|c| c.events().to_vec()).unwrap_or_default()
    }

    /// Disarms all programs and takes the remaining records.
    pub fn stop(self) -> Recorded {
        // The watch ends first: the worker still takes in what it has found.
        self.shared.stop_watch.store(true, Ordering::Release);
        let full = self.watch.join().ok().flatten().map(without_room);
        self.shared.stop.store(true, Ordering::Release);
        self.shared.ring();
        let span = (self.began_ns, os::monotonic_ns());
        match self.worker.join() {
            Ok(worker) => Recorded {
                programs: worker.recorded,
                clock: worker.out.clock.event_clock(self.source),
                entries: worker.out.complaints.finish(span).into_iter().chain(full).collect(),
            },
            Err(_) => {
                let entry = Entry::new(Key::UserRefused)
                    .detail("the thread that records programs has died");
                Recorded { entries: vec![entry], clock: EventClock::default(), programs: 0 }
            }
        }
    }
}

/// What programs that start then log is lost, and nobody can count it.
fn without_room(full: Full) -> Entry {
    let Full { path, bytes, between } = full;
    let (path, kib) = (path.display(), bytes >> 10);
    let entry = Entry::new(Key::UserRefused).between(between.0, between.1);
    entry.detail(&format!(
        "{path} is full ({kib} KiB left): programs that started then, and their new threads, may \
         have been unable to log; make room there, or set KLOGGER_DIR to a larger tmpfs"
    ))
}

/// Waits until the programs that ran at the beginning are recorded, so that "started" is reported
/// only then.
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
) -> Result<JoinHandle<Worker>, Error> {
    let worker = Worker::new(settings, shared, found, out);
    let run = move || {
        // Not SCHED_FIFO: it would let a program with a flood of events take the CPU from all
        // others. Ordinary users may not raise it; that is no error.
        let _ = os::become_important();
        worker.run()
    };
    threads::start("klogger/user", run)
}

fn start_watch(
    mut watch: Watch,
    there: Vec<Found>,
    sender: SyncSender<Found>,
    shared: Arc<Shared>,
) -> Result<JoinHandle<Option<Full>>, Error> {
    let run = move || {
        let send = |found: Vec<Found>| {
            if !found.is_empty() {
                // Fails only when the worker has ended.
                found.into_iter().for_each(|f| drop(sender.send(f)));
                shared.ring();
            }
        };
        send(there);
        pass_on(&mut watch, &shared.stop_watch, send);
        watch.full()
    };
    threads::start("klogger/watch", run)
}

/// Where new files are reported.
trait News {
    fn news(&mut self) -> Vec<Found>;
    fn wait(&self);
}

impl News for Watch {
    fn news(&mut self) -> Vec<Found> {
        Watch::news(self)
    }

    fn wait(&self) {
        Watch::wait(self, WATCH_WAIT);
    }
}

/// Passes on all files that appear before `stop`. The flag is read before the news: what a program
/// has created before the flag was set is then among them.
fn pass_on(watch: &mut impl News, stop: &AtomicBool, mut send: impl FnMut(Vec<Found>)) {
    loop {
        let last = stop.load(Ordering::Acquire);
        send(watch.news());
        if last {
            return;
        }
        watch.wait();
    }
}
