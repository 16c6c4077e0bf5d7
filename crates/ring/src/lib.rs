// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The reader's side of the rings that writers share with a recorder, and the conversion of times.

pub mod block;
pub mod clock;
/// Numbers of the C headers in `runtime/`, taken from them by the build script.
pub mod layout {
    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}
mod pair;
mod reader;

pub use layout::ring::{CONTROL, EVENTS_MAX, GRID, LOST, MARK, MISSED, NESTED, SLACK, STAMP};
pub use pair::{CpuReader, Still, last_in_order, last_time};
pub use reader::*;
