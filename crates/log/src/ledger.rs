// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The ledger: what is missing from a log, and why.
//!
//! One table ([`Key::info`]) has every possible cause, with an explanation and a remedy. An
//! [`Entry`] reports one occurrence: for which event, on which CPU or thread, how often, when.

mod key;

pub use self::key::{Key, KeyInfo};
use crate::origin::{Origin, Thread};
use crate::preamble::EventClock;
use serde::{Deserialize, Serialize};

/// How severe it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The user requested it.
    Info,
    /// Nothing is missing that could have been recorded, but answers may differ from what is
    /// expected.
    Notice,
    /// Events happened that are not in the log.
    Loss,
    /// A part of klogger failed.
    Error,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Notice => "notice",
            Severity::Loss => "loss",
            Severity::Error => "error",
        }
    }
}

/// When it was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Recording,
    Reading,
}

impl Source {
    pub fn word(self) -> &'static str {
        match self {
            Source::Recording => "recording",
            Source::Reading => "reading",
        }
    }
}

/// All entries of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    pub entries: Vec<Entry>,
    /// The clock of programs as measured over the whole recording; more exact than the preamble's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_clock: Option<EventClock>,
    /// The TSC that the kernel engine reads, as measured over the whole recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_clock: Option<EventClock>,
    /// When recording ended, full ns of the log clock. Time spent on completing the log is not
    /// included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// The snapshots that were made of the recording, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<Taken>,
    /// What became of the hits of triggers, in the order of their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerCount>,
}

/// A snapshot of a recording. Times are full ns of the log clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taken {
    pub number: u64,
    /// Empty if it could not be written, or was removed to keep no more than was asked for.
    pub file: String,
    pub why: String,
    /// How many hits it has.
    pub hits: u64,
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: u64,
    pub bytes: u64,
    /// Why there is no file; otherwise empty.
    pub missing: String,
}

/// The hits of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TriggerCount {
    /// From 1.
    pub number: u16,
    /// As it was typed.
    pub trigger: String,
    pub hits: u64,
    /// Hits that are not in the log, because there was no room for their `TRIGGERED`.
    pub lost: u64,
    /// Hits that actions were taken for.
    pub acted: u64,
    /// Hits in the log for which none were, because they were above the limit, or came too late.
    pub suppressed: u64,
    /// Full ns of the log clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ns: Option<u64>,
}

/// One occurrence. Times are full ns of the log clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// [`KeyInfo::name`], or a key of a newer version.
    pub key: String,
    pub severity: Severity,
    pub source: Source,
    /// The event that is missing, if known; otherwise any event may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
    /// A thread of a program, if it lost the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// Number of missing events; 0 if unknown or not applicable.
    #[serde(default)]
    pub count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// What happened, and what one can do about it.
    pub text: String,
}

/// Stands between what happened and what one can do about it.
const REMEDY: &str = ". Remedy: ";

impl Entry {
    /// An entry made by the recorder.
    pub fn new(key: Key) -> Entry {
        let about = key.info();
        Entry {
            key: about.name.into(),
            severity: about.severity,
            source: Source::Recording,
            event: None,
            cpu: None,
            thread: None,
            count: 0,
            from_ns: None,
            to_ns: None,
            text: format!("{}{REMEDY}{}", about.explanation, about.remedy),
        }
    }

    /// An entry made by a reader.
    pub fn reading(key: Key) -> Entry {
        Entry { source: Source::Reading, ..Entry::new(key) }
    }

    pub fn event(mut self, name: &str) -> Entry {
        self.event = Some(name.into());
        self
    }

    pub fn cpu(mut self, cpu: u16) -> Entry {
        self.cpu = Some(cpu);
        self
    }

    pub fn thread(mut self, tid: u32, tgid: u32) -> Entry {
        self.thread = Some(Thread { tid, tgid });
        self
    }

    /// Sets the CPU or the thread.
    pub fn of(self, origin: Origin) -> Entry {
        Entry { cpu: origin.cpu(), thread: origin.thread(), ..self }
    }

    pub fn count(mut self, events: u64) -> Entry {
        self.count = events;
        self
    }

    /// Sets the time span, full ns of the log clock.
    pub fn between(mut self, from_ns: u64, to_ns: u64) -> Entry {
        self.from_ns = Some(from_ns);
        self.to_ns = Some(to_ns);
        self
    }

    /// What happened, and what one can do about it (empty in logs of format 1 and 2).
    pub fn parts(&self) -> (&str, &str) {
        self.text.split_once(REMEDY).unwrap_or((&self.text, ""))
    }

    /// What entries have in common that say the same: all but times and count. Whether there is a
    /// count counts.
    pub fn cause(&self) -> String {
        let count = format!("{} ", self.count);
        let text = self.text.strip_prefix(&count).unwrap_or(&self.text);
        let cause = Entry {
            count: u64::from(self.count > 0),
            from_ns: None,
            to_ns: None,
            text: text.into(),
            ..self.clone()
        };
        serde_json::to_string(&cause).unwrap_or_default()
    }

    /// The same with another count, which the text may begin with.
    pub fn recount(&mut self, count: u64) {
        let begin = format!("{} ", self.count);
        if let Some(rest) = self.text.strip_prefix(&begin) {
            self.text = format!("{count} {rest}");
        }
        self.count = count;
    }

    /// Adds details, which come first in the text.
    pub fn detail(mut self, detail: &str) -> Entry {
        self.text = format!("{detail}: {}", self.text);
        self
    }
}

impl Ledger {
    /// Number of events known to be missing.
    pub fn lost(&self) -> u64 {
        self.losses().fold(0, |sum, e| sum.saturating_add(e.count))
    }

    /// Whether an unknown number of events was lost.
    pub fn is_vague(&self) -> bool {
        self.losses().any(|e| e.count == 0)
    }

    fn losses(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|e| e.severity >= Severity::Loss)
    }
}
