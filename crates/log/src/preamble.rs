// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The JSON at the beginning of a log: what is known when recording starts, including all that is
//! needed to read the log.

use crate::builtin::Builtin;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Decoding, Parameter};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preamble {
    /// Version of the klogger that wrote the log.
    pub klogger: String,
    /// `bpf`, `kernel`, `user`, `bpf+user` or `kernel+user`.
    pub engine: String,
    pub host: Host,
    pub clock: Clock,
    /// The command line of `klogger record`, one element an argument.
    pub command_line: Vec<String>,
    /// The recorded command, if there is one.
    pub workload: Vec<String>,
    /// `all`; `processes`: those in `PROCESS_EXISTS` events and their descendants; or `threads`,
    /// chosen from all: see [`Recorder::threads`], which may also choose from those of processes.
    pub scope: String,
    pub recorder: Recorder,
    pub schemas: Vec<SchemaText>,
    pub events: Vec<EventLayout>,
    pub decodings: Vec<Decoding>,
    pub probes: Vec<ProbeState>,
    /// What logging costs on this machine, if it was measured before the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// This log is a part of a recording that has a log of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Which segment of a recording this log is, if the recording is more than one log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
}

impl Preamble {
    /// By event: whether it may come from a thread of a program. `LOST` and `MARK` may, where any
    /// event may.
    pub fn user_events(&self) -> Vec<bool> {
        let user: HashSet<&str> =
            self.schemas.iter().filter(|s| s.user).map(|s| s.name.as_str()).collect();
        let of_any = |e: &EventLayout| Builtin::of(e).is_some_and(Builtin::is_of_any_stream);
        let own = |e: &EventLayout| of_any(e) && !user.is_empty();
        let is_user = |e: &EventLayout| user.contains(e.schema.as_str()) || own(e);
        self.events.iter().map(is_user).collect()
    }
}

/// Which part of a recording a snapshot has. Times are full ns of the log clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// From 1 on in each recording.
    pub number: u64,
    /// The first reason for it.
    #[serde(flatten)]
    pub first: Hit,
    /// The others that it has as well, at most [`Snapshot::HITS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Hit>,
    /// How many reasons there are, listed or not.
    pub hits: u64,
    /// It has all events from this time on ...
    pub from_ns: u64,
    /// ... to this one, both inclusive.
    pub to_ns: u64,
    /// The log of the recording; its preamble has the same `clock.start_ns` as this member.
    pub log: String,
    pub recording_start_ns: u64,
    /// Events between others of the same stream that are outside of the time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

impl Snapshot {
    pub const HITS_MAX: usize = 1000;
}

/// Why a snapshot was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hit {
    /// In words: those of a trigger or of a user.
    pub why: String,
    /// The number of the trigger, from 1; 0: a user asked for it.
    pub trigger: u32,
    /// When.
    pub at_ns: u64,
}

/// Serial numbers of a stream that a snapshot leaves out: a nested hit may be in its time and the
/// one that it interrupted outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Of a CPU, or else of a thread.
    pub cpu: Option<u16>,
    pub stream: u32,
    /// The first one, and how many.
    pub serial: u64,
    pub count: u64,
}

/// One of the logs of a recording, which has the file name that [`crate::segments::file_name`]
/// says. All of a recording have the same clock, serial numbers of streams go on from one to the
/// next, and ids of events and numbers of stacks mean the same in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// 32 hexadecimal digits, the same in all segments of the recording.
    pub recording: String,
    /// From 1.
    pub number: u32,
    /// When this segment begins, by the clock of the log; [`Clock::start_ns`] is when the recording
    /// began.
    pub start_ns: u64,
    /// The threads that earlier segments named, as they were then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<KnownThread>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownThread {
    pub pid: i64,
    pub tgid: i64,
    pub parent: i64,
    pub comm: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    pub name: String,
    /// `uname -r`
    pub kernel: String,
    /// `uname -v`
    pub kernel_version: String,
    pub machine: String,
    pub cpu_model: String,
    /// CPUs that were online.
    pub cpus: Vec<u32>,
    /// (name of the vulnerability, what the kernel says of it)
    pub mitigations: Vec<(String, String)>,
    /// (major:minor, name) of the block devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<(String, String)>,
}

/// Times of records are nanoseconds of this clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// `monotonic`
    pub name: String,
    /// What the kernel derives it from: `tsc`, `kvm-clock`, ...
    pub source: String,
    /// This clock when recording started; the origin of all times that are shown.
    pub start_ns: u64,
    /// The wall clock (ns since 1970, UTC) at `start_ns`.
    pub start_realtime_ns: u64,
    /// The uncertainty of the pair of the two readings.
    pub uncertainty_ns: u64,
    /// The clock that programs read, if they are recorded. The recorder converts their times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<EventClock>,
}

/// A clock that events carry until the recorder converts it to the log clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventClock {
    /// `tsc`, or `clock_gettime` for programs that read the kernel's clock.
    pub source: String,
    /// Ticks per millisecond; 0 if it counts ns.
    pub khz: u64,
    /// How far the converted time of an event may be from the kernel's clock.
    pub error_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    pub pid: u32,
    /// All threads of the recorder, for analyses that exclude it.
    pub tids: Vec<u32>,
    /// Their names, in the same order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Bytes of one CPU's ring.
    pub buffer_size: u64,
    /// The low-water mark in percent.
    pub lowwater: u32,
    /// Overwrite mode: new events overwrite old ones.
    pub overwrite: bool,
    /// Limits of events per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<RateLimit>,
    /// Events are of these CPUs only, except klogger's own; empty: of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Which threads were chosen.
    #[serde(skip_serializing_if = "Threads::are_all")]
    pub threads: Threads,
    /// Conditions of events. The others were not logged, nor counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Triggers as they were typed; their numbers begin at 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<String>,
}

/// Only events of these threads were logged: of those that match one of each list that is not
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Threads {
    /// Names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comms: Vec<String>,
    /// Users, by name or number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Paths of cgroups, which include their descendants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
}

impl Threads {
    pub fn are_all(&self) -> bool {
        *self == Threads::default()
    }

    /// What threads must match, for people: "named make or cc1, of user build".
    pub fn words(&self) -> String {
        let lists = [("named", &self.comms), ("of user", &self.users), ("in", &self.cgroups)];
        let given = lists.iter().filter(|(_, list)| !list.is_empty());
        given
            .map(|(how, list)| format!("{how} {}", list.join(" or ")))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Only those of an event that match were logged. `expression`: as of [`crate::filter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub event: String,
    pub expression: String,
}

/// The limit of an event per second, on all CPUs together. The ledger counts the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateLimit {
    pub event: String,
    pub per_second: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchemaText {
    pub name: String,
    pub doc: String,
    pub file: String,
    pub text: String,
    /// Its events may come from threads of programs.
    #[serde(skip_serializing_if = "is_false")]
    pub user: bool,
    /// With the values of the recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What is added to the preamble during a recording, when a program starts that brings its own
/// schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Addition {
    pub schemas: Vec<SchemaText>,
    pub events: Vec<EventLayout>,
    pub decodings: Vec<Decoding>,
}

/// The state of one probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeState {
    pub schema: String,
    /// The target as the schema has it: `tracepoint sched_switch`.
    pub target: String,
    pub attached: bool,
    /// Why it is not attached; or which of several alternatives was attached.
    pub note: String,
    /// The events that it logs.
    pub events: Vec<String>,
}

/// What logging adds to the running time of what is logged, in CPU time. A probe hit takes
/// [`Costs::hit`] until the time of its events is read; the rest of an event's [`EventCost::cost`]
/// comes after that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// The tracepoint that was hit for the measurement.
    pub place: String,
    /// Hits of each kind.
    pub hits: u64,
    /// A probe that logs nothing. This and the next: `None` if the measurements spread too far.
    pub probe: Option<Cost>,
    /// A probe up to the reading of the clock.
    pub hit: Option<Cost>,
    pub events: Vec<EventCost>,
    /// How long before the recording the oldest of them was measured, in seconds: costs are kept
    /// until the machine boots.
    pub age_s: u64,
    /// Why something could not be measured; otherwise empty.
    pub why: String,
}

/// The cost of an event that is the only one of its hit, with constant fields and strings of 7
/// letters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventCost {
    pub event: String,
    pub cost: Option<Cost>,
}

/// Nanoseconds: the median of some measurements, and their quartiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    pub ns: f64,
    pub low: f64,
    pub high: f64,
}
