// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Passes on what comes to whoever follows the recording, also if the log cannot be written.

use super::{Arrived, Batch, Found, Moment, Tap};
use crate::follower::Feed;
use klogger_log::origin::Origin;
use klogger_log::preamble::Addition;
use klogger_log::record::SizeTable;
use klogger_log::writer::EventBlock;
use klogger_ring::block::Source;

pub struct Follow {
    /// Until the end.
    feed: Option<Feed>,
    /// Not later than any of the recorder's own events.
    own_base: u64,
    /// The serial number of the next one.
    own_serial: u64,
}

impl Follow {
    pub fn new(feed: Feed, own_base: u64) -> Follow {
        Follow { feed: Some(feed), own_base, own_serial: 0 }
    }
}

impl Tap for Follow {
    fn declared(&mut self, addition: &Addition) {
        self.feed.iter().for_each(|feed| feed.add(addition));
    }

    fn block(&mut self, batch: &Batch, arrived: Arrived) {
        self.feed.iter().for_each(|feed| feed.block(&batch.block, arrived.events));
    }

    /// At once: they do not wait until the log gets them.
    fn own(&mut self, records: Vec<u8>, sizes: &SizeTable) -> Vec<u8> {
        let events = sizes.records(&records).count() as u64;
        let (origin, time_base) = (Origin::Recorder, self.own_base);
        let block =
            EventBlock { origin, time_base, first_serial: self.own_serial, records: &records };
        self.feed.iter().for_each(|feed| feed.block(&block, events));
        self.own_serial += events;
        records
    }

    fn until(&mut self, source: Source, time_ns: u64) {
        self.feed.iter().for_each(|feed| feed.until(source, time_ns));
    }

    fn turn(&mut self, moment: Moment) -> Found {
        if moment == Moment::Ended(None) {
            // The thread of the follower ends when it has passed on everything.
            self.feed = None;
        }
        Found::default()
    }
}
