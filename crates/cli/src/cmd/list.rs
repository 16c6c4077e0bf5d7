// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger list`

use super::Outcome;
use crate::failure::Failure;

/// List schemata
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("list: not built yet"))
}
