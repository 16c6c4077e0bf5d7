// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Engines that run probes, and the recorder that drains their rings into a log.
//!
//! **Invariant:** the only crate with unsafe code, mmap, ioctl or bpf(2). It does not print and does not exit.

pub mod bpf;
pub mod bundled;
mod calibrate;
mod clock;
pub mod compile;
pub mod control;
mod cpu;
mod drain;
mod error;
pub mod host;
pub mod kbuild;
pub mod kernel;
pub mod module;
mod pins;
mod probing;
mod processes;
pub mod recorder;
mod ring;
mod scope;
mod stacks;
mod sys;
pub mod tree;
pub mod unit;
pub mod user;
pub mod vmcore;
mod watch;
mod workload;
mod writer;

pub use error::Error;
pub use sys::survive_file_limits;
