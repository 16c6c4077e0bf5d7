// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Puts threads in scope when a recording begins, and waits for their last events when it ends.

use crate::followed::Followed;
use crate::workload::{Held, Running};
use klogger_engines::request::Target;
use klogger_engines::scope::Scope;
use klogger_os::processes;
use std::thread;
use std::time::{Duration, Instant};

/// How long the kernel may take to free an ended thread, after its last event.
const LAST_EVENTS: Duration = Duration::from_millis(300);

/// Sets the scope bits. Returns (process, thread) of all that exist now.
pub fn put_in_scope(
    scope: &Scope,
    target: &Target,
    followed: &Followed,
    held: Option<&Held>,
) -> Vec<(u32, u32)> {
    match (target, held) {
        (Target::All, _) => {
            let all: Vec<_> = processes::all_processes().into_iter().flat_map(threads).collect();
            all.iter().for_each(|(_, tid)| scope.choose(*tid));
            all
        }
        (Target::Command, held) => {
            let pid = held.map(Held::pid).unwrap_or_default();
            scope.add(pid);
            vec![(pid, pid)]
        }
        (Target::Processes(_), _) => {
            followed.processes().for_each(|pid| add_threads(scope, pid));
            followed.threads().for_each(|(_, tid)| scope.add(tid));
            followed.processes().flat_map(threads).chain(followed.threads()).collect()
        }
    }
}

fn threads(pid: u32) -> impl Iterator<Item = (u32, u32)> {
    processes::threads_of(pid).into_iter().map(move |tid| (pid, tid))
}

/// The probes are attached already, and put a thread in scope if its parent is. So when a pass
/// finds no thread out of scope, all are in scope.
fn add_threads(scope: &Scope, pid: u32) {
    loop {
        let new: Vec<u32> =
            processes::threads_of(pid).into_iter().filter(|t| !scope.contains(*t)).collect();
        if new.is_empty() {
            return;
        }
        new.into_iter().for_each(|tid| scope.add(tid));
    }
}

/// Waits for the last events of threads, which come after their process is seen to have ended.
/// Threads that still run are not waited for.
pub fn wait_for_last_events(scope: &Scope, running: Option<&Running>, followed: &Followed) {
    let ids: Vec<u32> = match running {
        Some(running) => vec![running.pid()],
        None if followed.has_ended() => followed.ids().collect(),
        None => Vec::new(),
    };
    let deadline = Instant::now() + LAST_EVENTS;
    while ids.iter().any(|id| scope.contains(*id)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
}
