// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger record`

use super::Outcome;
use crate::failure::Failure;

/// Record a workload
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("record: not built yet"))
}
