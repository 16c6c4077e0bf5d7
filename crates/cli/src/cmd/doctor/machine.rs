// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Clocks, disks, and who else records.

use super::finding::Finding;
use klogger_engines::user;
use klogger_os::{files, machine};
use klogger_recorder::rescue::killed_recorders;
use klogger_recorder::socket::list;
use std::path::Path;

/// Bytes: a minute of a busy machine.
const ROOM: u64 = 1 << 30;
/// Rings of programs.
const SHARED: &str = "/dev/shm";
const SHARED_ROOM: u64 = 64 << 20;

pub fn look() -> Vec<Finding> {
    let here = room("free space here", Path::new("."), ROOM, "long recordings").help_if_lacking(
        "free space, write the log elsewhere (-o), or keep the newest: --segment, --keep",
    );
    let shared = room("free space in shm", Path::new(SHARED), SHARED_ROOM, "programs that log")
        .help_if_lacking("remove files from /dev/shm, or set KLOGGER_DIR to another tmpfs");
    let all = [clock(), here, shared, shared_folder(), recorders()];
    all.into_iter().chain(killed()).collect()
}

fn clock() -> Finding {
    const NAME: &str = "clock source";
    match machine::clock_source().as_deref() {
        Some(fast @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => {
            Finding::ok(NAME, fast)
        }
        Some(slow) => Finding::limited(NAME, slow, "each event is dear: reading it takes long")
            .help("see what the kernel says of the TSC: dmesg | grep -i tsc"),
        None => Finding::ok(NAME, "not known"),
    }
}

fn room(name: &'static str, path: &Path, least: u64, without: &'static str) -> Finding {
    match files::room(path) {
        Err(e) => Finding::limited(name, format!("{}: {e}", path.display()), without),
        Ok(u64::MAX) => Finding::ok(name, "no limit"),
        Ok(bytes) if bytes >= least => Finding::ok(name, format!("{} MB", bytes / 1_000_000)),
        Ok(bytes) => Finding::limited(name, format!("{} MB", bytes / 1_000_000), without),
    }
}

fn shared_folder() -> Finding {
    let found = (user::INFO.check)().map(|()| "programs can log events of their own");
    Finding::of("user engine", found, "events of programs: --engine user")
}

fn recorders() -> Finding {
    const NAME: &str = "other recorders";
    match list() {
        Err(e) => Finding::limited(NAME, e.message, "what 'klogger ps' shows"),
        Ok(found) if found.is_empty() => Finding::ok(NAME, "no recording is running"),
        Ok(found) => Finding::limited(
            NAME,
            format!("{} running: klogger ps", found.len()),
            "each of them makes events dearer",
        ),
    }
}

fn killed() -> Vec<Finding> {
    let without = "the memory of its rings, and the events in them";
    let found = |text| Finding::limited("killed recorders", text, without);
    killed_recorders().into_iter().map(found).collect()
}
