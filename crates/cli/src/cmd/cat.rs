// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger cat`

use super::Outcome;
use crate::failure::Failure;

/// Print a log as text
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("cat: not built yet"))
}
