// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The reader's side of the rings that writers share with a recorder, and the times in them.

pub mod block;
pub mod clock;
mod pair;
mod reader;

pub use pair::{CpuReader, Still, last_in_order, last_time};
pub use reader::*;
