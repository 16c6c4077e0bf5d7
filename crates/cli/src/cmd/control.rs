// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger mark`, `enable` and `disable`: send a request to a running recording.

use super::Outcome;
use klogger_recorder::socket::{Request, send};
use std::process::ExitCode;

/// Write a MARK event (a number and a text) into a running recording
///
/// In the log, it is between the events before and after it, and so separates the phases of a
/// measurement.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  klogger mark 1 'caches are warm'\n  klogger mark 2 --recorder 4711"
)]
pub struct MarkArgs {
    /// Any number
    #[arg(allow_hyphen_values = true)]
    number: i64,
    /// Any text, cut at 255 bytes
    #[arg(default_value = "")]
    text: String,
    /// Process id of the recorder, if several are running
    #[arg(long, value_name = "PID")]
    recorder: Option<u32>,
}

/// Enable events in a running recording
#[derive(clap::Args)]
pub struct EnableArgs {
    #[command(flatten)]
    events: Events,
}

/// Disable events in a running recording
#[derive(clap::Args)]
pub struct DisableArgs {
    #[command(flatten)]
    events: Events,
}

#[derive(clap::Args)]
struct Events {
    /// Names of events
    #[arg(required = true, value_name = "EVENT")]
    events: Vec<String>,
    /// Process id of the recorder, if several are running
    #[arg(long, value_name = "PID")]
    recorder: Option<u32>,
}

pub fn mark(args: MarkArgs) -> Outcome {
    send(args.recorder, &Request::Mark { number: args.number, text: args.text })?;
    Ok(ExitCode::SUCCESS)
}

pub fn enable(args: EnableArgs) -> Outcome {
    switch(args.events, true)
}

pub fn disable(args: DisableArgs) -> Outcome {
    switch(args.events, false)
}

fn switch(events: Events, on: bool) -> Outcome {
    for event in events.events {
        send(events.recorder, &Request::Enable { event, on })?;
    }
    Ok(ExitCode::SUCCESS)
}
