// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The `Engine` trait: what logs events, and shares rings with the recorder.
//!
//! The recorder calls the methods in the order in which they are declared. An engine either offers
//! the rings of CPUs, which the recorder drains ([`Engine::cpu_rings`]), or drains its own rings
//! and hands blocks of records to the recorder ([`Engine::start`]). A method that an engine does
//! not support has a default answer.

use crate::registry::EngineInfo;
use crate::request::Request;
use crate::scope::Scope;
use crate::times::Times;
use klogger_log::ledger::Ledger;
use klogger_log::preamble::{Costs, ProbeState};
use klogger_os::Error;
use klogger_ring::block::Outlet;
use klogger_ring::{CpuReader, RingReader};
use klogger_schema::layout::EventLayout;
use klogger_schema::model::Probe;

/// Made by [`EngineInfo::prepare`]: everything is loaded and checked, nothing is attached.
pub trait Engine {
    /// Its entry in the registry.
    fn info(&self) -> &'static EngineInfo;

    /// Limits events of an id to `per_second`, on all CPUs together; those above are counted.
    /// Called before [`Engine::attach`].
    fn limit(&mut self, _id: u16, _per_second: u64) -> Result<(), Error> {
        let name = self.info().name;
        Err(Error::new(format!("the {name} engine cannot limit the rate of events"))
            .help("record without --rate-limit, or with --engine bpf"))
    }

    /// What events cost, if it was measured.
    fn costs(&self) -> Option<Costs> {
        None
    }

    /// A variable for the environment of the recorded command.
    fn environment(&self, _request: &Request) -> Option<(&'static str, String)> {
        None
    }

    /// Bytes of one ring.
    fn ring_size(&self, request: &Request) -> u64;

    /// CPUs that have a ring: numbers below this.
    fn cpus(&self) -> usize {
        0
    }

    /// The rings of CPUs, for the recorder to drain; `None` if the engine drains its rings itself.
    /// Called once.
    fn cpu_rings(&self) -> Result<Option<CpuRings>, Error> {
        Ok(None)
    }

    /// Attaches every probe that can be. All events are off: [`Engine::disable`] was called before.
    fn attach(&mut self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    /// Whether each probe is attached, and if not, why.
    fn probes(&self) -> &[ProbeState] {
        &[]
    }

    /// Switches events on, except `disabled`. The variables that schemata keep between hits are
    /// reset.
    fn enable(&self, _disabled: &[u16]) -> Result<(), Error> {
        Ok(())
    }

    /// The threads that its probes log, if they follow processes.
    fn scope(&self) -> Option<&Scope> {
        None
    }

    /// Lets the rings outlive this process if it is killed, together with `facts`: what is needed
    /// to read them.
    fn keep(&mut self, _facts: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    /// Begins to drain its own rings. Returns warnings for the user.
    fn start(&mut self, _request: &Request, _start: Start) -> Vec<String> {
        Vec::new()
    }

    /// Events known by now: those it began with, and those that came while it records.
    fn events(&self) -> Vec<EventLayout> {
        Vec::new()
    }

    /// Switches an event on or off. Events of other engines are ignored.
    fn set_enabled(&self, event: &EventLayout, on: bool);

    /// Called several times a second while events are on: looks for skipped hits, and attaches
    /// copies where that helps.
    fn look(&self) {}

    /// Switches off all events of probes.
    fn disable(&self) {}

    /// Detaches all probes. When it returns, none runs any more.
    fn detach(&mut self) {}

    /// Ends what [`Engine::start`] began, after all remaining records were handed over. Returns
    /// warnings for the user.
    fn stop(&mut self, _request: &Request) -> Vec<String> {
        Vec::new()
    }

    /// Adds ledger entries that only the engine can make: its clock, and losses without a method
    /// here.
    fn account(&mut self, _ledger: &mut Ledger) {}

    /// What rate limits have left out, by event and CPU.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Events lost on CPUs without a ring, by id.
    fn ringless(&self, _id: u16) -> u64 {
        0
    }

    /// Strings and arrays of an event that could not be read, as far as they are counted.
    fn unread(&self, _id: u16) -> u64 {
        0
    }

    /// Hits of probes that the kernel skipped.
    fn missed_hits(&self) -> Vec<MissedHits> {
        Vec::new()
    }

    /// Whether its probes may ask for kernel stacks, but it does not record them.
    fn lacks_stacks(&self) -> bool {
        false
    }

    /// The recorded kernel stacks: number and addresses, the innermost first; `None` if it records
    /// none. Called after the probes are detached.
    fn stacks(&self) -> Option<Vec<(u32, Vec<u64>)>> {
        None
    }

    /// Events whose stack found no free slot, and those whose stack could not be walked.
    fn stackless(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Rings of CPUs, and what the recorder needs to drain them.
pub struct CpuRings {
    /// The reader's side of the rings of each CPU that has some.
    pub readers: Vec<(u16, CpuReader)>,
    /// The clock of the times in their records.
    pub times: Times,
    pub wake_ups: Box<dyn WakeUps>,
    /// Makes larger rings, if the rings can be replaced.
    pub growth: Option<Box<dyn Growth>>,
}

/// What an engine that drains its own rings is given.
pub struct Start<'a> {
    /// Where records are handed over.
    pub outlet: Outlet,
    /// The command that is recorded.
    pub command: Option<u32>,
    /// The threads that the probes of another engine log.
    pub scope: Option<&'a Scope>,
}

/// The names of events that a probe logs.
pub fn events_of(probe: &Probe) -> Vec<String> {
    let mut events: Vec<String> = probe.calls.iter().map(|c| c.event.clone()).collect();
    events.dedup();
    events
}

/// The skipped hits of one probe.
pub struct MissedHits {
    pub schema: String,
    pub place: String,
    pub count: u64,
    /// When they occurred, if known.
    pub spans: Vec<Span>,
    /// The likely reason, if one is known.
    pub why: String,
}

/// Skipped hits between two times, in ns of the log clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub count: u64,
}

/// Events of an id on a CPU that a rate limit left out, and the times of the first and the last of
/// them, in ns of the log clock.
pub struct LeftOut {
    pub id: u16,
    pub cpu: u16,
    pub count: u64,
    pub first: u64,
    pub last: u64,
}

/// Wake-ups from writers whose rings have passed the low-water mark.
pub trait WakeUps: Send {
    /// Passes on every wake-up until `go_on` returns false. It is called several times a second.
    /// Wake-ups that have arrived by then are still passed on.
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(WakeUp)) -> Result<(), Error>;
}

/// Makes larger rings for CPUs whose own are too small.
pub trait Growth: Send {
    /// Makes the reader's side of a larger ring, which writers use as soon as the old one is
    /// retired; `None` if no more memory may be used.
    fn larger(&mut self, cpu: u16) -> Result<Option<RingReader>, Error>;

    /// Returns when no writer uses a ring any more that was retired before the call.
    fn wait_for_writers(&self);
}

/// Why the drain threads are woken.
pub enum WakeUp {
    /// The ring of this CPU has passed its low-water mark.
    Filling(u32),
    /// Writers use other rings now. The old ones are complete.
    NewRings(Vec<(u16, CpuReader)>),
}
