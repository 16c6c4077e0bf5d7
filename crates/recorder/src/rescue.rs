// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rescue of recordings that did not end normally: from files of programs, from pinned rings, and
//! from memory images of crashed kernels.

mod killed;
pub mod programs;
pub mod rings;
pub mod vmcore;

pub use killed::killed_recorders;
