// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Who gets the records of a recording, on the way from the rings to the log. Each is a [`Tap`], in
//! a file of its own; [`list`] has all of them.
//!
//! ```text
//! rings -> drain threads -> block --> taps --> file --> taps
//!                                     block()           logged()
//! the recorder's own events --> taps --> wait --> file --> taps
//!                               own()                      logged()
//! ```
//! The [`File`] is between them and in no list: it can fail, and what it has written is what the
//! others are told.

mod file;
mod follow;
mod history;
mod names;
pub mod seams;
#[cfg(test)]
mod tests;
pub mod triggers;

pub use self::file::{File, unwritten};
use self::follow::Follow;
use self::history::Keep;
use self::names::Naming;
use self::triggers::Finder;
use crate::follower::Feed;
use crate::names::ThreadNames;
use crate::snapshots::history::History;
use klogger_log::ledger::Entry;
use klogger_log::preamble::Addition;
use klogger_log::record::{Records, SizeTable};
use klogger_log::writer::{EventBlock, Extent};
use klogger_ring::block::{Builtin, Source};
use klogger_schema::layout::EventLayout;
use std::sync::Arc;

/// What gets the records of a recording. All calls come from the writer thread, so that whoever
/// takes long keeps rings waiting.
///
/// Most implement two or three of these. [`Tap::own`] is there because the recorder's own events
/// come one by one and are written together; [`Tap::logged`], because some need what the log has
/// and others what comes, whatever the disk does; [`Tap::turn`], because some find out something
/// themselves, which is logged.
pub trait Tap: Send {
    /// Later blocks may have these events as well.
    fn declared(&mut self, _addition: &Addition) {}

    /// A block has come from a ring. It is not in the log yet, because the disk may be slow.
    fn block(&mut self, _batch: &Batch, _arrived: Arrived) {}

    /// Events of the recorder itself. Those that are returned go on to the next tap, and after the
    /// last of them they wait to be written, together. `sizes`: of all records.
    fn own(&mut self, records: Vec<u8>, _sizes: &SizeTable) -> Vec<u8> {
        records
    }

    /// The log has these records, which came from a ring or are the recorder's own.
    fn logged(&mut self, _batch: &Batch, _written: &Written) {}

    /// This source has handed over everything before this time.
    fn until(&mut self, _source: Source, _time_ns: u64) {}

    /// Its turn to do what depends on no record.
    fn turn(&mut self, _moment: Moment) -> Found {
        Found::default()
    }

    /// What the ledger says of it, after the last turn. `span`: when the recording began and ended.
    fn end(&mut self, _span: (u64, u64)) -> Vec<Entry> {
        Vec::new()
    }
}

/// What taps are made of.
#[derive(Default)]
pub struct Consumers {
    /// In a recording of some threads.
    pub threads: Option<ThreadNames>,
    /// If there are triggers.
    pub finder: Option<Finder>,
    /// If somebody follows the recording.
    pub feed: Option<Feed>,
    /// If there may be snapshots.
    pub history: Option<Arc<History>>,
}

/// All taps, in the order in which they get records; what one of them finds goes to those after it.
/// `builtin`: all events that are known. `own_base`: not later than the recorder's own events.
pub fn list(of: Consumers, builtin: &Builtin, own_base: u64) -> Vec<Box<dyn Tap>> {
    let Consumers { threads, finder, feed, history } = of;
    let all = [
        threads.map(|threads| boxed(Naming::new(threads, builtin))),
        // Before those who follow, because it holds the recorder's own events back.
        finder.map(boxed),
        feed.map(|feed| boxed(Follow::new(feed, own_base))),
        history.map(|history| boxed(Keep(history))),
    ];
    all.into_iter().flatten().collect()
}

fn boxed(tap: impl Tap + 'static) -> Box<dyn Tap> {
    Box::new(tap)
}

/// When it is a tap's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After each message to the writer thread.
    Message,
    /// A source has said how far it is, or nothing has come for a while.
    Time,
    /// All events have been handed over; the probes are still there.
    AllCame,
    /// No more events will come. The recording ended at this time, if it is known.
    Ended(Option<u64>),
}

/// What a tap has found out by itself.
#[derive(Default)]
pub struct Found {
    /// Events that the recorder logs because of it.
    pub own: Vec<u8>,
    /// It is a source of events itself, which has handed over everything before this time.
    pub until: Option<(Source, u64)>,
}

/// A block on its way to the log.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub block: EventBlock<'a>,
    sizes: &'a SizeTable,
}

impl<'a> Batch<'a> {
    /// Its records, for a walk over all of them. Whoever wants none of a block should not walk: it
    /// is as dear as the rest of what is done with a block.
    pub fn records(&self) -> Records<'a, 'a> {
        self.sizes.records(self.block.records)
    }
}

/// What is known of a block that has come from a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// `LOST` records not counted.
    pub events: u64,
    /// Nothing can be written any more.
    pub unwritable: bool,
}

/// What the log has of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub extent: Extent,
    /// The serial number at which the stream goes on.
    pub next_serial: u64,
}

/// The taps of a recording.
pub struct Taps {
    list: Vec<Box<dyn Tap>>,
    sizes: SizeTable,
}

impl Taps {
    /// `events`: all that are known.
    pub fn new(list: Vec<Box<dyn Tap>>, events: &[EventLayout]) -> Taps {
        Taps { list, sizes: SizeTable::new(events) }
    }

    /// Later blocks may have these events as well.
    pub fn declared(&mut self, addition: &Addition) {
        self.sizes.add(&addition.events);
        self.list.iter_mut().for_each(|tap| tap.declared(addition));
    }

    /// For those who walk over a block.
    pub fn batch<'a>(&'a self, block: EventBlock<'a>) -> Batch<'a> {
        Batch { block, sizes: &self.sizes }
    }

    /// A block has come from a ring.
    pub fn block(&mut self, block: EventBlock, arrived: Arrived) {
        let Taps { list, sizes } = self;
        list.iter_mut().for_each(|tap| tap.block(&Batch { block, sizes }, arrived));
    }

    /// Events of the recorder itself. Returns those that may be written.
    pub fn own(&mut self, records: Vec<u8>) -> Vec<u8> {
        self.own_after(0, records)
    }

    /// The same, of those that the taps before this one have found.
    fn own_after(&mut self, first: usize, mut records: Vec<u8>) -> Vec<u8> {
        for tap in &mut self.list[first..] {
            if records.is_empty() {
                break;
            }
            records = tap.own(records, &self.sizes);
        }
        records
    }

    /// The log has this block.
    pub fn logged(&mut self, block: EventBlock, written: &Written) {
        let Taps { list, sizes } = self;
        list.iter_mut().for_each(|tap| tap.logged(&Batch { block, sizes }, written));
    }

    /// A source has handed over everything before this time.
    pub fn until(&mut self, source: Source, time_ns: u64) {
        self.list.iter_mut().for_each(|tap| tap.until(source, time_ns));
    }

    /// Gives all of them their turn. Appends the recorder's own events that may be written to
    /// `own`; returns how far taps are that are sources themselves.
    pub fn turn(&mut self, moment: Moment, own: &mut Vec<u8>) -> Vec<(Source, u64)> {
        let mut reached = Vec::new();
        for at in 0..self.list.len() {
            let found = self.list[at].turn(moment);
            own.extend(self.own_after(at + 1, found.own));
            if let Some((source, time_ns)) = found.until {
                self.until(source, time_ns);
                reached.push((source, time_ns));
            }
        }
        reached
    }

    /// What the ledger says of all of them.
    pub fn end(&mut self, span: (u64, u64)) -> Vec<Entry> {
        self.list.iter_mut().flat_map(|tap| tap.end(span)).collect()
    }
}
