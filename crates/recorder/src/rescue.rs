// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue of recordings that did not end normally: from files of programs, from pinned rings, and
//! from memory images of crashed kernels.

mod killed;
pub mod programs;
pub mod rings;
pub mod vmcore;

pub use killed::killed_recorders;

use klogger_log::writer::Summary;
use std::io;

/// Fails if events were left out to make room for the ledger: what is rescued must be whole before
/// its source goes.
fn check_whole(summary: &Summary, events: u64) -> io::Result<()> {
    match summary.events < events {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}
