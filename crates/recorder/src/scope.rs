// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The threads that the kernel's probes log: put in scope when a recording begins, and waited for
//! when it ends.

use crate::workload::{Held, Running};
use klogger_engines::request::Target;
use klogger_engines::scope::Scope;
use klogger_os as os;
use klogger_os::processes;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// How long an ended thread may take until the kernel frees it, after its last event.
const LAST_EVENTS: Duration = Duration::from_millis(300);

/// Sets the scope bits. Returns (process, thread) of all that exist now.
pub fn put_in_scope(scope: &Scope, target: &Target, held: Option<&Held>) -> Vec<(u32, u32)> {
    match (target, held) {
        (Target::All, _) => processes::all_processes().into_iter().flat_map(threads).collect(),
        (Target::Command(_), held) => {
            let pid = held.map(Held::pid).unwrap_or_default();
            scope.add(pid);
            vec![(pid, pid)]
        }
        (Target::Processes(pids), _) => {
            pids.iter().for_each(|pid| add_threads(scope, *pid));
            pids.iter().flat_map(|pid| threads(*pid)).collect()
        }
    }
}

fn threads(pid: u32) -> impl Iterator<Item = (u32, u32)> {
    processes::threads_of(pid).into_iter().map(move |tid| (pid, tid))
}

/// The probes are attached already: a thread made by one in scope is in scope. So once no new ones
/// show up that are not, all are.
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

/// A thread's last event comes after its process is seen to have ended. None is waited for that
/// still runs.
pub fn wait_for_last_events(
    scope: &Scope,
    target: &Target,
    running: Option<&Running>,
    followed: &[OwnedFd],
) {
    let followed: Vec<_> = followed.iter().map(AsFd::as_fd).collect();
    let ended = os::poll_readable(&followed, Duration::ZERO)
        .is_ok_and(|ready| ready.iter().all(|ended| *ended));
    let pids: Vec<u32> = match (target, running) {
        (Target::Processes(pids), _) if ended => pids.clone(),
        (Target::All | Target::Processes(_) | Target::Command(_), running) => {
            running.map(Running::pid).into_iter().collect()
        }
    };
    let deadline = Instant::now() + LAST_EVENTS;
    while pids.iter().any(|pid| scope.contains(*pid)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
}
