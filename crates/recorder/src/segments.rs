// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A recording as a folder of segments, each a whole log.
//!
//! The writer thread changes files between two blocks ([`Seams`]), so that rings and drain threads
//! never wait. It puts the old segment on the [`Shelf`]; the thread of the session adds what only
//! engines know (stacks, code), and another thread completes it and deletes what is not kept.
//!
//! [`Seams`]: crate::taps::seams::Seams

mod closer;
mod shelf;
#[cfg(test)]
mod tests;
mod told;

pub use self::closer::{Closer, Job};
pub use self::shelf::{Closing, Shelf};
pub use self::told::Told;
use klogger_log::ledger::Entry;
use std::sync::Arc;
use std::time::Duration;

/// When a segment ends, and which are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub age: Option<Duration>,
    pub size: Option<u64>,
    pub keep: Keep,
}

/// Which complete segments are kept; all, if there is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    pub segments: Option<u32>,
    /// Of all segments together, that which is being written included.
    pub bytes: Option<u64>,
    /// Since a segment ended.
    pub age: Option<Duration>,
}

/// A segment that has ended.
pub struct SegmentEnd {
    pub number: u32,
    /// What was lost while it was written.
    pub losses: Vec<Entry>,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// Deletes old segments when the disk is full.
pub fn room(shelf: &Arc<Shelf>) -> Box<dyn FnMut() -> bool + Send> {
    let shelf = shelf.clone();
    Box::new(move || shelf.make_room())
}
