// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger show`

use super::Outcome;
use crate::failure::Failure;

/// Show a schema as it takes effect here
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Outcome {
    Err(Failure::new("show: not built yet"))
}
