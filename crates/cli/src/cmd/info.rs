// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger info`

use super::Outcome;
use crate::failure::Failure;

/// Say what is in a log
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("info: not built yet"))
}
