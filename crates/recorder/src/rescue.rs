// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What recordings leave behind that did not end in order: files of programs, pinned rings, images
//! of crashed kernels.

mod killed;
pub mod programs;
pub mod rings;
pub mod vmcore;

pub use killed::killed_recorders;
