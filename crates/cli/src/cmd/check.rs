// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger check`

use super::Outcome;
use crate::failure::Failure;

/// Check schema files
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("check: not built yet"))
}
