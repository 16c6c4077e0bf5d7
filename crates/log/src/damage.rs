// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Damage: what a reader found to be missing or wrong in a log.

use crate::format::{BlockHeader, Kind};
use crate::ledger::{Entry, Key};
use crate::origin::{Origin, Thread};
use serde::Serialize;
use std::fmt;

/// Further damages are counted, but not described: a file may consist of nothing else.
pub const DAMAGE_MAX: usize = 1000;

/// A range of bytes of the file that could not be read as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    #[serde(skip)]
    pub key: Key,
    /// The name of the file, if the log is a folder of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// First byte, and the one after the last.
    pub from: u64,
    pub to: u64,
    /// What is there, or should be.
    pub what: String,
    /// Number of missing events, if known.
    pub events: u64,
    /// Serial numbers that they took, and the counts of `LOST` records among them.
    #[serde(skip)]
    pub serials: u64,
    pub cpu: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// Earliest and latest time of the missing events, full ns of the log clock.
    pub times: Option<(u64, u64)>,
}

impl Damage {
    pub fn new(key: Key, from: u64, to: u64, what: impl Into<String>) -> Damage {
        Damage {
            key,
            file: None,
            from,
            to,
            what: what.into(),
            events: 0,
            serials: 0,
            cpu: None,
            thread: None,
            times: None,
        }
    }

    /// Sets the stream whose events they are.
    pub fn of(self, origin: Origin) -> Damage {
        Damage { cpu: origin.cpu(), thread: origin.thread(), ..self }
    }

    /// A block that could not be read, with the contents that its header describes.
    pub fn block(key: Key, from: u64, to: u64, header: &BlockHeader, why: &str) -> Damage {
        let damage = Damage::new(key, from, to, "");
        match header.kind {
            Kind::Events => Damage {
                what: format!("{} events of {}: {why}", header.events, header.origin),
                events: u64::from(header.events),
                serials: u64::from(header.events).saturating_add(header.lost),
                times: Some((header.first_time, header.last_time)),
                ..damage.of(header.origin)
            },
            Kind::Stacks => Damage { what: format!("the table of stacks: {why}"), ..damage },
            Kind::Code => Damage { what: format!("the table of user stacks: {why}"), ..damage },
            Kind::Symbols => Damage { what: format!("the symbol table: {why}"), ..damage },
            Kind::Ledger => Damage { what: format!("the ledger: {why}"), ..damage },
            Kind::Index => Damage { what: format!("the index: {why}"), ..damage },
            Kind::Schemata => Damage { what: format!("the schema of a program: {why}"), ..damage },
            Kind::Preamble => Damage { what: format!("the copy of the preamble: {why}"), ..damage },
            Kind::Progress => Damage { what: format!("a statement of progress: {why}"), ..damage },
            Kind::Other(_) => Damage { what: format!("a block of unknown kind: {why}"), ..damage },
        }
    }

    /// A damaged block of events, some of which were read, and `missing` of which were not.
    pub fn partial(from: u64, to: u64, header: &BlockHeader, missing: u32, why: &str) -> Damage {
        let read = header.events - missing;
        if missing == 0 {
            return Damage::new(
                Key::Mended,
                from,
                to,
                format!("a block of {}: {why}", header.origin),
            );
        }
        let what = format!(
            "{missing} events of {}: {why}; {read} others of the same block were read",
            header.origin
        );
        Damage {
            what,
            events: missing.into(),
            ..Damage::block(Key::BlockCorrupt, from, to, header, why)
        }
    }

    /// Where it is; empty if that is not a place in a file.
    fn place(&self) -> String {
        if self.key == Key::SegmentsMissing {
            return String::new();
        }
        let file = self.file.as_ref().map(|name| format!("{name}, ")).unwrap_or_default();
        format!("{file}bytes {} to {}", self.from, self.to)
    }

    /// Adds missing events of that time.
    pub(crate) fn add(&mut self, events: u64, from_ns: u64, to_ns: u64) {
        self.events = self.events.saturating_add(events);
        let (from, to) = self.times.unwrap_or((from_ns, to_ns));
        self.times = Some((from.min(from_ns), to.max(to_ns)));
    }

    /// The damage as a ledger entry.
    pub fn entry(&self) -> Entry {
        let place = match self.place() {
            place if place.is_empty() => self.what.clone(),
            place => format!("{place}, {}", self.what),
        };
        let entry = Entry {
            cpu: self.cpu,
            thread: self.thread,
            ..Entry::reading(self.key).count(self.events).detail(&place)
        };
        match self.times {
            Some((from, to)) => entry.between(from, to),
            None => entry,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (about, place) = (self.key.info(), self.place());
        let colon = if place.is_empty() { "" } else { ": " };
        write!(f, "{place}{colon}{} ({})", self.what, about.explanation)
    }
}

/// Adds to a list of limited length.
pub(crate) fn note(list: &mut Vec<Damage>, damage: Damage) {
    if list.len() < DAMAGE_MAX {
        list.push(damage);
    } else if let Some(last) = list.last_mut() {
        last.to = last.to.max(damage.to);
        last.events = last.events.saturating_add(damage.events);
        last.what = format!("more damage than can be listed; {} events", last.events);
        (last.cpu, last.thread, last.times, last.file) = (None, None, None, None);
    }
}
