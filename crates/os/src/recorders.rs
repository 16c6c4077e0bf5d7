// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The names under which recorders listen: abstract sockets, which disappear with their processes.

use std::fs;

const PREFIX: &str = "klogger-recording-";

/// The name of the recorder with this process id.
pub fn name(pid: u32) -> String {
    format!("{PREFIX}{pid}")
}

/// Process ids of the recorders on this machine. They are untrusted: any process can take such a
/// name.
pub fn recordings() -> Vec<u32> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names =
        text.lines().filter_map(|l| l.split_once('@')?.1.strip_prefix(PREFIX)?.trim().parse().ok());
    let mut pids: Vec<u32> = names.collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}
