// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! An engine, as the recorder sees it: what logs events, and the memory that it shares with us.
//!
//! The recorder goes through the methods in the order in which they stand here. An engine either
//! offers rings of CPUs, which the recorder empties ([`Engine::cpu_rings`]), or empties rings of
//! its own, and hands blocks of records on ([`Engine::start`]). What an engine cannot do has a
//! default answer.

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

    /// From now on no more than `per_second` events of an id are logged in a second, on all CPUs
    /// together, and the rest is counted. Before [`Engine::attach`].
    fn limit(&mut self, _id: u16, _per_second: u64) -> Result<(), Error> {
        let name = self.info().name;
        Err(Error::new(format!("the {name} engine cannot limit the rate of events"))
            .help("record without --rate-limit, or with --engine bpf"))
    }

    /// What events cost, if it has been measured.
    fn costs(&self) -> Option<Costs> {
        None
    }

    /// A variable for the environment of the command that is recorded.
    fn environment(&self, _request: &Request) -> Option<(&'static str, String)> {
        None
    }

    /// Bytes of one of its rings.
    fn ring_size(&self, request: &Request) -> u64;

    /// CPUs that have a ring: numbers below this.
    fn cpus(&self) -> usize {
        0
    }

    /// The rings of CPUs, for the recorder to empty; `None` if it empties its rings itself. Once.
    fn cpu_rings(&self) -> Result<Option<CpuRings>, Error> {
        Ok(None)
    }

    /// Attaches every probe that can be. No event is on: [`Engine::disable`] came before.
    fn attach(&mut self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    /// What became of each probe.
    fn probes(&self) -> &[ProbeState] {
        &[]
    }

    /// From here on events are logged, but for `disabled`. The state that schemata keep from hit
    /// to hit is as it was before the first one.
    fn enable(&self, _disabled: &[u16]) -> Result<(), Error> {
        Ok(())
    }

    /// The threads that its probes log, if they follow processes.
    fn scope(&self) -> Option<&Scope> {
        None
    }

    /// Lets what is in the rings outlive this process, should it be killed, together with `facts`:
    /// whatever one must know to read them.
    fn keep(&mut self, _facts: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    /// Begins to empty its own rings. The strings are for people: what is amiss.
    fn start(&mut self, _request: &Request, _start: Start) -> Vec<String> {
        Vec::new()
    }

    /// Events that have become known while it records, and those that it began with.
    fn events(&self) -> Vec<EventLayout> {
        Vec::new()
    }

    /// Switches an event on or off. One that is not this engine's is none of its concern.
    fn set_enabled(&self, event: &EventLayout, on: bool);

    /// Several times in a second, while events are on: whether hits are skipped, and what can be
    /// done about it.
    fn look(&self) {}

    /// The kernel's probes log no more events.
    fn disable(&self) {}

    /// Detaches all probes. None runs any more when it returns.
    fn detach(&mut self) {}

    /// Ends what [`Engine::start`] began, after all that is left has been handed on. The strings
    /// are for people.
    fn stop(&mut self, _request: &Request) -> Vec<String> {
        Vec::new()
    }

    /// Puts into the ledger what it alone knows: its clock, and losses that have no method here.
    fn account(&mut self, _ledger: &mut Ledger) {}

    /// What limits have left out, by event and CPU.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Events on CPUs without a ring, by id.
    fn ringless(&self, _id: u16) -> u64 {
        0
    }

    /// Texts and arrays of an event that could not be read, as far as they are counted.
    fn unread(&self, _id: u16) -> u64 {
        0
    }

    /// Hits of probes that the kernel skipped.
    fn missed_hits(&self) -> Vec<MissedHits> {
        Vec::new()
    }

    /// Whether events of its probes may ask for kernel stacks, and it keeps none.
    fn lacks_stacks(&self) -> bool {
        false
    }

    /// The kernel stacks that events have the numbers of, each with its addresses, the innermost
    /// first; `None` if there are none. Only after the probes are detached.
    fn stacks(&self) -> Option<Vec<(u32, Vec<u64>)>> {
        None
    }

    /// Events whose stacks found no free slot, and those whose stacks could not be walked.
    fn stackless(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Rings of CPUs, and what it takes to empty them.
pub struct CpuRings {
    /// The reader's end of the rings of every CPU that has some.
    pub readers: Vec<(u16, CpuReader)>,
    /// What the times of their records are.
    pub times: Times,
    pub wake_ups: Box<dyn WakeUps>,
    /// Where larger rings come from, if those that there are can be replaced.
    pub growth: Option<Box<dyn Growth>>,
}

/// What an engine that empties its own rings is given.
pub struct Start<'a> {
    /// Where records go.
    pub outlet: Outlet,
    /// The command that is recorded.
    pub command: Option<u32>,
    /// The threads that another engine's probes log.
    pub scope: Option<&'a Scope>,
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

/// Of so many hits: between two times, in ns of the log's clock.
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

/// Wake-ups from writers whose rings have passed the low-water mark.
pub trait WakeUps: Send {
    /// Passes on every wake-up until `go_on` says no, which it is asked several times a second;
    /// after that, what has come already.
    fn listen(&self, go_on: &dyn Fn() -> bool, heard: &dyn Fn(WakeUp)) -> Result<(), Error>;
}

/// Makes larger rings for CPUs whose own are too small.
pub trait Growth: Send {
    /// The reader's end of an open one, which writers use as soon as that before is retired;
    /// `None` if all memory that may be used is.
    fn larger(&mut self, cpu: u16) -> Result<Option<RingReader>, Error>;

    /// Returns when no writer uses a ring any more that was retired before the call.
    fn wait_for_writers(&self);
}

/// Why the drain threads are woken.
pub enum WakeUp {
    /// The ring of this CPU fills up.
    Filling(u32),
    /// Writers use other rings now. Those before are complete.
    NewRings(Vec<(u16, CpuReader)>),
}
