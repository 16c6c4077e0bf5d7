// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What runs probes in the kernel, as the recorder sees it. There are two: the bpf engine and the
//! kernel engine.

use crate::scope::Scope;
use klogger_log::preamble::{EventClock, ProbeState};
use klogger_log::record::{Header, TIME_MASK};
use klogger_os::Error;
use klogger_ring::CpuReader;
use klogger_ring::clock::{Converter, SharedClock};
use klogger_ring::{RecordKinds, RingReader, Taken};
use klogger_schema::model::Probe;
use klogger_toolchain::compiled_schema::CompiledSchema;

/// Programs or modules that are loaded, and the memory that they share with us.
pub trait Probing {
    /// `bpf` or `kernel`, for the log.
    fn name(&self) -> &'static str;

    /// Attaches every probe that can be. `units`: each with the id of its first event, the built-in
    /// one first, so that a new thread is in scope before the other units' probes see it.
    fn attach(&mut self, units: &[(&CompiledSchema, u16)]) -> Result<(), Error>;

    /// What became of each probe.
    fn probes(&self) -> &[ProbeState];

    /// The reader's end of the rings of every CPU that has some. To be had once.
    fn readers(&self) -> Result<Vec<(u16, CpuReader)>, Error>;

    /// Where writers call.
    fn calls(&self) -> Result<Box<dyn Calls>, Error>;

    /// Where larger rings come from, if those that there are can be replaced. To be had once.
    fn growth(&self) -> Option<Box<dyn Growth>> {
        None
    }

    fn times(&self) -> Times;

    /// Lets what is in the rings outlive this process, should it be killed, together with `about`:
    /// whatever one must know to read them. An engine whose rings cannot does nothing.
    fn keep(&mut self, _about: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    /// Detaches all probes. None runs any more when it returns.
    fn detach(&mut self);

    /// The state that schemata keep from hit to hit, as it was before the first one.
    fn forget(&self) -> Result<(), Error>;

    fn set_enabled(&self, id: u16, enabled: bool);

    /// From now on no more than `per_second` events of an id are logged in a second, on all CPUs
    /// together, and the rest is counted. Before events are switched on.
    fn limit(&mut self, _id: u16, _per_second: u64) -> Result<(), Error> {
        Err(Error::new(format!("the {} engine cannot limit the rate of events", self.name()))
            .help("record without --rate-limit, or with --engine bpf"))
    }

    /// What limits have left out, by event and CPU.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// The threads that are logged.
    fn scope(&self) -> &Scope;

    /// Events on CPUs without a ring, by id.
    fn ringless(&self, id: u16) -> u64;

    /// Texts and arrays of an event that could not be read, as far as they are counted.
    fn unread(&self, _id: u16) -> u64 {
        0
    }

    /// Several times in a second, while events are on: whether hits are skipped, and what can be
    /// done about it.
    fn look(&self) {}

    /// Hits of probes that the kernel skipped.
    fn missed_hits(&self) -> Vec<MissedHits>;

    /// Whether events have the numbers of kernel stacks.
    fn has_stacks(&self) -> bool;

    /// The kernel stacks that events have the numbers of, each with its addresses, the innermost
    /// first; `None` if there are none. Only after the probes are detached.
    fn stacks(&self) -> Option<Vec<(u32, Vec<u64>)>>;

    /// Events whose stacks found their places taken, and those whose stacks could not be taken at
    /// all.
    fn stackless(&self) -> (u64, u64);
}

/// The names of events that a probe logs.
pub fn events_of(probe: &Probe) -> Vec<String> {
    let mut events: Vec<String> = probe.calls.iter().map(|c| c.event.clone()).collect();
    events.dedup();
    events
}

/// Of one probe.
pub struct MissedHits {
    pub schema: String,
    pub place: String,
    pub count: u64,
    /// When they were, if that is known.
    pub spans: Vec<Span>,
    /// The likely reason, if one is known.
    pub why: String,
}

/// Of so many hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub count: u64,
}

/// Events of an id on a CPU that came too often; of the first and the last of them, the time in ns
/// of the log's clock.
pub struct LeftOut {
    pub id: u16,
    pub cpu: u16,
    pub count: u64,
    pub first: u64,
    pub last: u64,
}

/// Where writers call when their rings have passed the low-water mark.
pub trait Calls: Send {
    /// Passes on every call until `go_on` says no, which it is asked several times a second; after
    /// that, what has come already.
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(Call)) -> Result<(), Error>;
}

/// Makes larger rings for CPUs whose own are too small.
pub trait Growth: Send {
    /// The reader's end of an open one, which writers use as soon as that before is retired; `None`
    /// if all memory that may be used is.
    fn larger(&mut self, cpu: u16) -> Result<Option<RingReader>, Error>;
}

/// What the drain threads are called for.
pub enum Call {
    /// The ring of this CPU fills up.
    Filling(u32),
    /// Writers use other rings now. Those before are complete.
    NewRings(Vec<(u16, CpuReader)>),
}

/// What the times in rings are.
#[derive(Clone)]
pub enum Times {
    /// Those of the log.
    Ns,
    /// Those of the CPU's counter.
    Counter(SharedClock),
}

impl Times {
    pub fn about(&self) -> Option<EventClock> {
        match self {
            Times::Ns => None,
            Times::Counter(clock) => Some(clock.about()),
        }
    }

    /// To be called several times in a second where rings are emptied seldom.
    pub fn look(&self) {
        if let Times::Counter(clock) = self {
            clock.look();
        }
    }

    /// How far back a time can be told by its low 48 bits, ns.
    pub fn reach_ns(&self) -> u64 {
        match self {
            Times::Ns => TIME_MASK,
            Times::Counter(clock) => clock.reach_ns().min(TIME_MASK),
        }
    }

    /// Gives records that were taken out of a ring, and what was found among them, the log's times.
    pub fn convert(&self, kinds: &RecordKinds, records: &mut [u8], taken: &mut Taken) {
        let (Times::Counter(clock), Some(first)) = (self, Header::read(records)) else { return };
        let first = taken
            .lost_since
            .map_or(first.time48(), |since| earlier(first.time48(), since & TIME_MASK));
        let part = clock.part(first);
        let mut converter = Converter::of_counter(&part);
        converter.records(kinds, records);
        taken.lost_since = taken.lost_since.map(|since| converter.ns(since & TIME_MASK));
    }

    /// The same for a full time.
    pub fn ns(&self, time: u64) -> u64 {
        match self {
            Times::Ns => time,
            Times::Counter(clock) => {
                Converter::of_counter(&clock.part(time & TIME_MASK)).ns(time & TIME_MASK)
            }
        }
    }
}

/// The earlier one of two times of 48 bits.
fn earlier(a: u64, b: u64) -> u64 {
    if (a.wrapping_sub(b) << 16) as i64 > 0 { b } else { a }
}
