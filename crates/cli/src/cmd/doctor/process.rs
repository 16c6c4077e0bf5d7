// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What this process may do: capabilities, namespaces, filters of system calls, limits.

use super::finding::Finding;
use klogger_os::inotify::Inotify;
use klogger_os::mounts::Mounts;
use klogger_os::{cgroup_memory, clocks, files, machine};
use klogger_toolchain::host_kernel;
use std::fs;

pub fn look() -> Vec<Finding> {
    let all = [capabilities(), pid_namespace(), time_namespace(), seccomp(), memory()];
    all.into_iter().chain([descriptors(), notifications(), cgroups()]).collect()
}

fn capabilities() -> Finding {
    const NAME: &str = "capabilities";
    match host_kernel::check_privilege() {
        Ok(()) => Finding::ok(NAME, "CAP_BPF and CAP_PERFMON, or all"),
        Err(e) => Finding::refused(NAME, &e),
    }
}

fn pid_namespace() -> Finding {
    let found = host_kernel::check_pid_namespace().map(|()| "the first one");
    Finding::of("pid namespace", found, "recording a command, or processes with -p")
}

fn time_namespace() -> Finding {
    const NAME: &str = "time namespace";
    match clocks::time_namespace() {
        (0, 0) => Finding::ok(NAME, "clocks are those of the kernel"),
        _ => Finding::limited(
            NAME,
            "clocks of this process differ from the kernel's",
            "comparing times of a log with those of programs here",
        )
        .help("run klogger on the host"),
    }
}

fn seccomp() -> Finding {
    const NAME: &str = "seccomp";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
    match mode {
        Some("0") => Finding::ok(NAME, "no filter of system calls"),
        Some(_) => Finding::limited(
            NAME,
            "a filter of system calls, as containers have",
            "recording, if it refuses bpf(2) or perf_event_open(2)",
        )
        .help("docker, podman: --security-opt seccomp=unconfined"),
        None => Finding::ok(NAME, "this kernel does not say"),
    }
}

/// Bytes that rings and the recorder need on a machine with few CPUs.
const MEMORY: u64 = 256 << 20;

fn memory() -> Finding {
    const NAME: &str = "memory";
    let group = cgroup_memory::left();
    let Some(bytes) = machine::memory_available() else {
        return Finding::ok(NAME, "how much is free is not known");
    };
    let limit = match &group {
        Some(left) => format!(", in a control group with a limit of {} MB", left.limit / 1_000_000),
        None => String::new(),
    };
    let found = format!("{} MB can be used{limit}", bytes / 1_000_000);
    match bytes >= MEMORY {
        true => Finding::ok(NAME, found),
        false => Finding::limited(NAME, found, "rings are smaller, and may lose events")
            .help("free memory, or choose the size of the rings: --buffer 256K"),
    }
}

/// Descriptors that a recording of many programs may need.
const DESCRIPTORS: u64 = 4096;

fn descriptors() -> Finding {
    const NAME: &str = "open files";
    // As a recording begins.
    files::raise_limit();
    let limit = files::limit();
    let found = format!("at most {limit}");
    match limit >= DESCRIPTORS {
        true => Finding::ok(NAME, found),
        false => Finding::limited(NAME, found, "recording many programs that log themselves")
            .help(format!("ulimit -n {DESCRIPTORS}")),
    }
}

fn notifications() -> Finding {
    const NAME: &str = "inotify";
    match Inotify::new() {
        Ok(_) => Finding::ok(NAME, "new programs are found when they start"),
        Err(e) => Finding::missing(
            NAME,
            format!("no instance can be made: {e}"),
            "finding programs that log themselves (user engine)",
        )
        .help("raise the limit: sysctl fs.inotify.max_user_instances=512"),
    }
}

fn cgroups() -> Finding {
    const NAME: &str = "control groups";
    let without = "recording the processes of one: --cgroup";
    let mounts = Mounts::read();
    if mounts.is_empty() {
        return Finding::missing(NAME, "/proc/self/mountinfo cannot be read", without)
            .help("mount /proc: mount -t proc proc /proc");
    }
    match (mounts.have("cgroup2"), mounts.have("cgroup")) {
        (true, false) => Finding::ok(NAME, "version 2"),
        (true, true) => Finding::ok(NAME, "versions 1 and 2"),
        (false, true) => Finding::ok(NAME, "version 1"),
        (false, false) => Finding::missing(NAME, "none are mounted", without)
            .help("mount -t cgroup2 none /sys/fs/cgroup"),
    }
}
