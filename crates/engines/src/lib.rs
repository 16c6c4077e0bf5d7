// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Engines: each attaches the probes of schemata, or finds programs that log, and shares rings with
//! the recorder.

pub mod anchor;
pub mod bpf;
pub mod choice;
pub mod costs;
pub mod cpu_rings;
pub mod engine;
pub mod kernel;
pub mod left_names;
pub mod losses;
pub mod registry;
pub mod request;
pub mod scope;
pub mod stacks;
pub mod threads;
pub mod times;
pub mod user;
pub mod user_code;
