// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger manual`

use super::Outcome;
use crate::failure::Failure;

/// Write man pages and completions
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("manual: not built yet"))
}
