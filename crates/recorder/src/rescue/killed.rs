// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Finds recorders that were killed, for a note to the user.

use klogger_engines::bpf::pins;
use klogger_os::files;

/// Recorders that were killed and whose rings still use memory. Only root can see and rescue them.
pub fn killed_recorders() -> Vec<String> {
    if files::effective_uid() != 0 {
        return Vec::new();
    }
    let killed: Vec<u32> = pins::left().into_iter().filter(|l| !l.alive).map(|l| l.pid).collect();
    match killed[..] {
        [] => Vec::new(),
        [pid] => vec![format!(
            "recorder {pid} was killed, and its rings are still in memory: klogger rescue {pid}"
        )],
        _ => {
            vec![format!(
                "{} recorders were killed, and their rings are still in memory: klogger rescue",
                killed.len()
            )]
        }
    }
}
