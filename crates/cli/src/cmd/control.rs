// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger mark`, `enable` and `disable`: a word to a recording that is running.

use super::Outcome;
use crate::failure::Failure;

/// Write a MARK event into a running recording
#[derive(clap::Args)]
pub struct MarkArgs {}

/// Log an event again, in a running recording
#[derive(clap::Args)]
pub struct EnableArgs {}

/// Stop logging an event, in a running recording
#[derive(clap::Args)]
pub struct DisableArgs {}

pub fn mark(_args: MarkArgs) -> Outcome {
    Err(Failure::new("not built yet"))
}

pub fn enable(_args: EnableArgs) -> Outcome {
    Err(Failure::new("not built yet"))
}

pub fn disable(_args: DisableArgs) -> Outcome {
    Err(Failure::new("not built yet"))
}
