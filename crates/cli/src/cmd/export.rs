// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger export`

use super::Outcome;
use crate::failure::Failure;

/// Convert a log
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("export: not built yet"))
}
