// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The recorder's side of an anchor: written when the rings come into use, wiped when they are
//! empty.

pub mod format;
mod frames;

use crate::times::Times;
use format::{Index, Moment, Range, RingsAt};
use frames::PageMap;
use klogger_os as os;
use klogger_os::Error;
use klogger_os::Mapping;
use klogger_ring::{EVENTS_MAX, NESTED, Rings, STAMP};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// How often the time is noted. The times of later events are computed from the last note.
const NOTE_TIME: Duration = Duration::from_secs(1);

/// Both rings of a CPU: their mappings, and the offsets at which they begin.
pub struct RingLocation<'a> {
    pub cpu: u16,
    /// Size of the main ring in bytes.
    pub size: usize,
    pub main: (&'a Mapping, usize),
    pub nested: (&'a Mapping, usize),
}

/// While it exists, the rings can be found in an image of the machine's memory.
struct Anchor {
    recording: u64,
    mapping: Arc<Mapping>,
    clock: Option<Ticking>,
}

/// A thread that notes the time.
struct Ticking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Anchor {
    /// `recording`: number of the recording, if these rings replace others of it. `facts`: what a
    /// reader of the image needs to know besides the rings. `room`: allocates that many bytes of
    /// kernel memory for the anchor.
    fn new(
        recording: Option<u64>,
        facts: &[u8],
        times: &Times,
        rings: &[RingLocation],
        ringless: &Mapping,
        room: &dyn Fn(usize) -> Result<Mapping, Error>,
    ) -> Result<Anchor, Error> {
        let (made, wall, _) = os::clock_pair();
        let recording = recording.unwrap_or(wall ^ u64::from(std::process::id()) << 40);
        let (index, frames) = index(times, rings, ringless).map_err(cannot)?;
        let text = format::text(facts, &index, &frames);
        let mapping = Arc::new(room(format::size(text.len()))?);
        rings.iter().for_each(|p| stamp(p, recording));
        // Both time slots are filled, so that the first page is complete.
        (0..2).for_each(|_| format::put_time(&mapping, now(index.counter)));
        format::write(&mapping, recording, made, &text);
        let clock = Ticking::start(mapping.clone(), index.counter);
        Ok(Anchor { recording, mapping, clock: Some(clock.map_err(cannot)?) })
    }

    /// Stops the thread. The anchor stays for the records left in rings that writers no longer use.
    fn stop(&mut self) {
        if let Some(clock) = self.clock.take() {
            clock.stop();
        }
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.stop();
        format::wipe(&self.mapping);
    }
}

/// The anchors of a recording: one for the rings it began with, and one for each larger ring.
pub struct Anchors {
    times: Times,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// What a reader of the image needs to know besides the rings; empty until it is known.
    facts: Vec<u8>,
    /// The last anchor of a CPU describes the rings in use. Records of the replaced rings may not
    /// be in the log yet.
    anchors: Vec<Anchor>,
}

impl Anchors {
    pub fn new(times: Times) -> Anchors {
        Anchors { times, kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any anchor has been written.
    pub fn are_there(&self) -> bool {
        !self.lock().anchors.is_empty()
    }

    /// These rings are in use from now on. Without `facts`, those given before are written again.
    pub fn add(
        &self,
        facts: Option<&[u8]>,
        rings: &[RingLocation],
        ringless: &Mapping,
        room: &dyn Fn(usize) -> Result<Mapping, Error>,
    ) -> Result<(), Error> {
        let mut kept = self.lock();
        if let Some(facts) = facts {
            kept.facts = facts.to_vec();
        }
        let recording = kept.anchors.last().map(|a| a.recording);
        let anchor = Anchor::new(recording, &kept.facts, &self.times, rings, ringless, room)?;
        kept.anchors.iter_mut().for_each(Anchor::stop);
        kept.anchors.push(anchor);
        Ok(())
    }
}

fn cannot(error: io::Error) -> Error {
    Error::new(format!("the rings cannot be found in a dump of the kernel's memory: {error}"))
}

fn index(
    times: &Times,
    rings: &[RingLocation],
    ringless: &Mapping,
) -> io::Result<(Index, Vec<u64>)> {
    let map = PageMap::open()?;
    let mut frames = Vec::new();
    let mut range = |(mapping, offset): (&Mapping, usize), length: usize| {
        let frames_of = map.frames(mapping, offset, length)?;
        let range = Range { at: frames.len(), count: frames_of.len() };
        frames.extend(frames_of);
        io::Result::Ok(range)
    };
    let mut found = Vec::new();
    for p in rings {
        let main = range(p.main, Rings::stride(p.size))?;
        found.push(RingsAt {
            cpu: p.cpu,
            size: p.size,
            main,
            nested: range(p.nested, Rings::stride(NESTED))?,
        });
    }
    let ringless = range((ringless, 0), 8 * EVENTS_MAX)?;
    let (counter, first) = match times {
        Times::Ns => (false, now(false)),
        Times::Counter(clock) => {
            let (ticks, ns) = clock.first();
            (true, Moment { ticks, ns })
        }
    };
    Ok((Index { page: map.page as u64, counter, first, rings: found, ringless }, frames))
}

/// Stamps a ring, so that a page that was reused for something else is not taken for a ring.
fn stamp(ring: &RingLocation, recording: u64) {
    for (nested, (mapping, offset)) in [ring.main, ring.nested].into_iter().enumerate() {
        mapping.word(offset + STAMP).store(recording, Ordering::Relaxed);
        mapping.word(offset + STAMP + 8).store(ring_number(ring.cpu, nested), Ordering::Relaxed);
    }
}

/// The second word of a ring's stamp.
pub fn ring_number(cpu: u16, nested: usize) -> u64 {
    2 * u64::from(cpu) + nested as u64
}

fn now(counter: bool) -> Moment {
    match counter {
        true => {
            let (ticks, ns, _) = os::tsc::pair();
            Moment { ticks, ns }
        }
        false => {
            let ns = os::monotonic_ns();
            Moment { ticks: ns, ns }
        }
    }
}

impl Ticking {
    fn start(anchor: Arc<Mapping>, counter: bool) -> io::Result<Ticking> {
        let stop: Arc<AtomicBool> = Arc::default();
        let seen = stop.clone();
        let tick = move || {
            while !seen.load(Ordering::Acquire) {
                thread::park_timeout(NOTE_TIME);
                format::put_time(&anchor, now(counter));
            }
        };
        let thread = thread::Builder::new().name("klogger/time".into()).spawn(tick)?;
        Ok(Ticking { stop, thread })
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        Thread::unpark(self.thread.thread());
        // The thread does not panic.
        let _ = self.thread.join();
    }
}
