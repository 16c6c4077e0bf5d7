// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which threads are recorded: `-a`, `-p`, or the command.

use super::Args;
use crate::failure::Failure;
use klogger_recorder::Target;

/// clap has refused `-a` together with `-p`.
pub fn target(args: &Args) -> Result<Target, Failure> {
    match (args.all, args.pids.is_empty(), args.command.is_empty()) {
        (true, ..) => Ok(Target::All),
        (false, false, _) => Ok(Target::Processes(distinct(&args.pids))),
        (false, true, false) => Ok(Target::Command),
        (false, true, true) => Err(Failure::new("nothing to record").help(
            "give a command (-- COMMAND), processes (-p PID,...), or -a for the whole system",
        )),
    }
}

/// Each id once, in their order.
fn distinct(ids: &[u32]) -> Vec<u32> {
    let mut all = Vec::new();
    for id in ids {
        if !all.contains(id) {
            all.push(*id);
        }
    }
    all
}
