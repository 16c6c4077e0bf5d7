// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Which threads are recorded, `-a`, `-p`, or the command; and on which CPUs.

use super::what::What;
use crate::failure::Failure;
use klogger_os::machine::{cpu_list, online_cpus};
use klogger_recorder::{Target, Threads};
use std::ops::RangeInclusive;

/// clap has refused `-a` together with `-p`. Threads are chosen from all, if nothing else is given.
pub fn target(args: &What, threads: &Threads) -> Result<Target, Failure> {
    let all = args.all || (!threads.are_all() && args.pids.is_empty() && args.command.is_empty());
    match (all, args.pids.is_empty(), args.command.is_empty()) {
        (true, ..) => Ok(Target::All),
        (false, false, _) => Ok(Target::Processes(distinct(&args.pids))),
        (false, true, false) => Ok(Target::Command),
        (false, true, true) => Err(Failure::new("nothing to record").help(
            "give a command (-- COMMAND), processes (-p PID,... or --comm NAME), or -a for the \
             whole system",
        )),
    }
}

/// The threads of `--comm`, `--uid` and `--cgroup`.
pub fn threads(args: &What) -> Threads {
    Threads { comms: args.comms.clone(), users: args.users.clone(), cgroups: args.cgroups.clone() }
}

/// The CPUs of `--cpu`, in ascending order; none if it was not given.
pub fn cpus(ranges: &[RangeInclusive<u32>]) -> Result<Vec<u32>, Failure> {
    let mut cpus: Vec<u32> = ranges.iter().cloned().flatten().collect();
    cpus.sort_unstable();
    cpus.dedup();
    let online = online_cpus()?;
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        Some(cpu) => Err(Failure::new(format!("--cpu: CPU {cpu} is not online"))
            .help(format!("online are: {}", cpu_list(&online)))),
        None => Ok(cpus),
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
