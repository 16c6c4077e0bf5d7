// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The last seconds of what the log has, for snapshots.

use super::{Batch, Found, Moment, Tap, Written};
use crate::snapshots::history::History;
use klogger_log::preamble::Addition;
use klogger_ring::block::Source;
use std::sync::Arc;

/// Keeps them where the thread that makes snapshots takes them from.
pub struct Keep(pub Arc<History>);

impl Tap for Keep {
    fn declared(&mut self, addition: &Addition) {
        self.0.add(addition);
    }

    fn logged(&mut self, batch: &Batch, written: &Written) {
        self.0.keep(&batch.block, written.extent, written.next_serial);
    }

    fn until(&mut self, source: Source, time_ns: u64) {
        self.0.until(source, time_ns);
    }

    fn turn(&mut self, moment: Moment) -> Found {
        if let Moment::Ended(Some(_)) = moment {
            self.0.until(Source::Programs, u64::MAX);
        }
        Found::default()
    }
}
