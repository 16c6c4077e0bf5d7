// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Reads the files of polled events at their intervals, into the recorder's own stream. One thread
//! reads them all, so that a file whose reading takes long cannot stop the recording.

mod values;

use klogger_engines::request::Request;
use klogger_log::ledger::{Entry, Key};
use klogger_os as os;
use klogger_os::{Error, files};
use klogger_ring::block::{Outlet, ToWriter};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Poll;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a file at most; what follows is not read.
const BYTES_MAX: usize = 1 << 20;
/// How long the readings at the start and at the end may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The polled events of a recording.
pub struct Poller {
    shared: Arc<Shared>,
    /// Asks for a reading of all files at once. Dropped: the thread ends.
    now: Option<Sender<Sender<()>>>,
}

struct Shared {
    files: Vec<Polled>,
    /// Where events go to. Taken away at the end, even if the thread is stuck in a reading.
    outlet: Mutex<Option<Outlet>>,
}

/// One polled event.
struct Polled {
    layout: EventLayout,
    poll: Poll,
    file: File,
    on: AtomicBool,
    /// Readings that came too late, or failed.
    missed: AtomicU64,
    /// Why one failed.
    failure: Mutex<Option<String>>,
    /// Fields that the file has no value for.
    missing: Mutex<BTreeSet<String>>,
}

impl Poller {
    /// Opens the files of all polled events.
    ///
    /// # Errors
    ///
    /// If there is no such file here, or it is none that may be read.
    pub fn prepare(request: &Request) -> Result<Poller, Error> {
        let mut files = Vec::new();
        for (unit, base) in request.numbered() {
            for (event, layout) in unit.schema.events.iter().zip(unit.layouts(base)) {
                let Some(poll) = &event.poll else { continue };
                let on = !request.disabled.contains(&event.name);
                files.push(Polled::open(layout, poll, on)?);
            }
        }
        Ok(Poller { shared: Arc::new(Shared { files, outlet: Mutex::new(None) }), now: None })
    }

    /// Begins with a first reading of all files.
    pub fn start(&mut self, outlet: Outlet) {
        if self.shared.files.is_empty() {
            return;
        }
        *self.shared.outlet() = Some(outlet);
        let (now, asked) = channel();
        let shared = self.shared.clone();
        let run = move || shared.run(&asked);
        let started = thread::Builder::new().name("klogger/poll".into()).spawn(run);
        if let Err(e) = started {
            let count = |p: &Polled| p.fail(format!("cannot make a thread: {e}"));
            self.shared.files.iter().for_each(count);
            return;
        }
        self.now = Some(now);
        self.read_all();
    }

    /// Reads all files once more; waits, but not for long.
    pub fn read_all(&self) {
        let Some(now) = &self.now else { return };
        let (done, hear) = channel();
        if now.send(done).is_ok() && hear.recv_timeout(PATIENCE).is_err() {
            let stuck = |p: &Polled| p.fail("reading takes more than a second".into());
            self.shared.files.iter().for_each(stuck);
        }
    }

    /// Switches an event on or off, if it is polled.
    pub fn set_enabled(&self, event: &EventLayout, on: bool) {
        let polled = self.shared.files.iter().filter(|p| p.layout.id == event.id);
        polled.for_each(|p| p.on.store(on, Ordering::Relaxed));
    }

    /// No event comes after this. What is missing, for the ledger.
    pub fn stop(&mut self, span: (u64, u64)) -> Vec<Entry> {
        self.now = None;
        *self.shared.outlet() = None;
        self.shared.files.iter().flat_map(|p| p.entries(span)).collect()
    }
}

impl Shared {
    fn outlet(&self) -> std::sync::MutexGuard<'_, Option<Outlet>> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, asked: &Receiver<Sender<()>>) {
        let began = Instant::now();
        let mut due: Vec<Instant> = vec![began; self.files.len()];
        loop {
            let wait = due.iter().min().map(|d| d.saturating_duration_since(Instant::now()));
            // The first reading is asked for.
            let first = due.iter().all(|d| *d == began);
            let wait = wait.filter(|_| !first).unwrap_or(PATIENCE);
            match asked.recv_timeout(wait) {
                Ok(done) => {
                    self.files.iter().for_each(|p| p.read(self));
                    if first {
                        due.iter_mut().zip(&self.files).for_each(|(d, p)| *d += p.every());
                    }
                    // Fails only if nobody waits any more.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) if first => {}
                Err(RecvTimeoutError::Timeout) => self.read_due(&mut due),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reads the files whose time has come. Readings that are a whole interval late are left out.
    fn read_due(&self, due: &mut [Instant]) {
        for (due, polled) in due.iter_mut().zip(&self.files) {
            let now = Instant::now();
            if *due > now {
                continue;
            }
            polled.read(self);
            *due += polled.every();
            while *due <= now {
                *due += polled.every();
                polled.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Polled {
    fn open(layout: EventLayout, poll: &Poll, on: bool) -> Result<Polled, Error> {
        let file = files::open_kernel_text(&poll.path).map_err(|e| {
            let (name, path) = (&layout.name, &poll.path);
            Error::new(format!("poll {name}: cannot read '{path}': {e}"))
                .help("another kernel or another user may have it: leave the poll out here")
        })?;
        Ok(Polled {
            layout,
            poll: poll.clone(),
            file,
            on: AtomicBool::new(on),
            missed: AtomicU64::new(0),
            failure: Mutex::default(),
            missing: Mutex::default(),
        })
    }

    fn every(&self) -> Duration {
        Duration::from_nanos(self.poll.every_ns)
    }

    fn read(&self, shared: &Shared) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let text = match self.text() {
            Ok(text) => text,
            Err(e) => return self.fail(e.to_string()),
        };
        let time_ns = os::monotonic_ns();
        let reading = values::records(&self.layout, &self.poll, &text, time_ns);
        if !reading.missing.is_empty() {
            let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.extend(reading.missing);
        }
        if let Some(outlet) = &*shared.outlet() {
            // Fails only if the writer thread has ended with an error, which it has reported.
            let _ = outlet.to_writer.send(ToWriter::Own(reading.records));
        }
    }

    fn text(&self) -> io::Result<String> {
        let mut bytes = vec![0; 64 << 10];
        let mut length = 0;
        loop {
            match self.file.read_at(&mut bytes[length..], length as u64)? {
                0 => break,
                n => length += n,
            }
            if length == bytes.len() {
                if length >= BYTES_MAX {
                    break;
                }
                bytes.resize(2 * length, 0);
            }
        }
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn fail(&self, why: String) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(why);
    }

    fn entries(&self, span: (u64, u64)) -> Vec<Entry> {
        let (name, path) = (&self.layout.name, &self.poll.path);
        let mut entries = Vec::new();
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            let entry = Entry::new(Key::PollMissed).event(name).count(missed);
            let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            let why = failure.clone().unwrap_or_else(|| "the reader was late".into());
            entries.push(entry.between(span.0, span.1).detail(&format!("{path}: {why}")));
        }
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.is_empty() {
            let fields: Vec<&str> = missing.iter().map(String::as_str).collect();
            let what = format!("{path}: {}", fields.join(", "));
            let entry = Entry::new(Key::PollIncomplete).event(name).between(span.0, span.1);
            entries.push(entry.detail(&what));
        }
        entries
    }
}
