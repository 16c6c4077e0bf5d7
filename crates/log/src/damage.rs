// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a reader found to be missing or wrong in a log.

use crate::format::{BlockHeader, Kind};
use crate::ledger::{Entry, Key};
use crate::origin::{Origin, Thread};
use serde::Serialize;
use std::fmt;

/// More than this many are counted, but not described: a file can be nothing but damage.
pub const DAMAGE_MAX: usize = 1000;

/// A range of bytes of the file that did not give what it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    #[serde(skip)]
    pub key: Key,
    /// First byte, and the one after the last.
    pub from: u64,
    pub to: u64,
    /// What is there, or was.
    pub what: String,
    /// Events that are missing, if that is known.
    pub events: u64,
    /// Serial numbers that they took, and what `LOST` records among them counted.
    #[serde(skip)]
    pub serials: u64,
    pub cpu: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// Earliest and latest time of the events that are missing, full ns of the log's clock.
    pub times: Option<(u64, u64)>,
}

impl Damage {
    pub fn new(key: Key, from: u64, to: u64, what: impl Into<String>) -> Damage {
        Damage {
            key,
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

    /// Whose events they are.
    pub fn of(self, origin: Origin) -> Damage {
        Damage { cpu: origin.cpu(), thread: origin.thread(), ..self }
    }

    /// A block that could not be read, and what its header says was in it.
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
            Kind::Symbols => Damage { what: format!("the symbol table: {why}"), ..damage },
            Kind::Ledger => Damage { what: format!("the ledger: {why}"), ..damage },
            Kind::Index => Damage { what: format!("the index: {why}"), ..damage },
            Kind::Schemata => Damage { what: format!("the schema of a program: {why}"), ..damage },
            Kind::Preamble => Damage { what: format!("the copy of the preamble: {why}"), ..damage },
            Kind::Other(_) => Damage { what: format!("a block of unknown kind: {why}"), ..damage },
        }
    }

    /// A damaged block of events of which some could be read, and `missing` could not.
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

    /// As it stands in the ledger.
    pub fn entry(&self) -> Entry {
        let place = format!("bytes {} to {}, {}", self.from, self.to, self.what);
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
        let about = self.key.about();
        write!(f, "bytes {} to {}: {} ({})", self.from, self.to, self.what, about.explanation)
    }
}

/// Adds to a list that cannot grow without bound.
pub(crate) fn note(list: &mut Vec<Damage>, damage: Damage) {
    if list.len() < DAMAGE_MAX {
        list.push(damage);
    } else if let Some(last) = list.last_mut() {
        last.to = last.to.max(damage.to);
        last.events = last.events.saturating_add(damage.events);
        last.what = format!("more damage than can be listed; {} events", last.events);
        (last.cpu, last.thread, last.times) = (None, None, None);
    }
}
