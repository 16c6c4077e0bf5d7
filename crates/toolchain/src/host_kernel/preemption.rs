// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whether threads can be preempted in the kernel, and in programs that run with preemption on.
//!
//! Most distributions' kernels have all kinds of preemption (PREEMPT_DYNAMIC), of which the command
//! line chooses one. With `none` and `voluntary`, a thread gives its CPU up only where it may
//! sleep, which is nowhere in the programs that klogger attaches.

use klogger_codegen::KernelTypes;
use klogger_os::{missed, uname};
use std::fs;

/// What a kernel allows programs to do that run with preemption on, on every kernel that preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// It never preempts.
    None,
    /// A program can disable it: since Linux 6.11.
    CanBeHeldOff,
    /// A program cannot.
    CannotBeHeldOff,
}

/// Of the running kernel, which has these types and this version string.
pub fn preemption(types: &KernelTypes, version: &str) -> Preemption {
    if !version.contains("PREEMPT") {
        return Preemption::None;
    }
    if types.has_function("bpf_preempt_disable") {
        // Also where it is off now: the price is small, and the mode may change.
        return Preemption::CanBeHeldOff;
    }
    match version.contains("PREEMPT_DYNAMIC") && gives_up(&Told::read()) {
        true => Preemption::None,
        false => Preemption::CannotBeHeldOff,
    }
}

/// What the machine tells of a kernel that has several kinds of preemption.
struct Told {
    /// `sched/preempt` of debugfs: the present one is in parentheses.
    debugfs: Option<String>,
    /// The kernel's command line.
    command_line: String,
    /// How it was configured.
    configuration: Option<String>,
}

impl Told {
    fn read() -> Told {
        let (release, ..) = uname();
        let read = |path: &str| missed::noting_unless_gone(path, fs::read_to_string(path));
        Told {
            debugfs: read("/sys/kernel/debug/sched/preempt"),
            command_line: read("/proc/cmdline").unwrap_or_default(),
            configuration: read(&format!("/boot/config-{release}")),
        }
    }
}

/// Whether threads are known to keep their CPU until they give it up.
fn gives_up(told: &Told) -> bool {
    let gives = |word: &str| ["none", "voluntary"].contains(&word);
    if let Some(text) = &told.debugfs {
        let present = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        return present.is_some_and(|(word, _)| gives(word));
    }
    // The last one counts.
    let mut words = told.command_line.split_whitespace().rev();
    if let Some(word) = words.find_map(|word| word.strip_prefix("preempt=")) {
        return gives(word);
    }
    let chosen = ["CONFIG_PREEMPT_NONE=y", "CONFIG_PREEMPT_VOLUNTARY=y"];
    let configured = told.configuration.as_deref().unwrap_or_default();
    configured.lines().any(|line| chosen.contains(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(debugfs: Option<&str>, command_line: &str, configuration: Option<&str>) -> bool {
        gives_up(&Told {
            debugfs: debugfs.map(String::from),
            command_line: command_line.into(),
            configuration: configuration.map(String::from),
        })
    }

    #[test]
    fn debugfs_knows_the_present_mode() {
        assert!(told(Some("none (voluntary) full \n"), "preempt=full", None));
        assert!(told(Some("(none) voluntary full\n"), "", Some("CONFIG_PREEMPT=y")));
        assert!(!told(Some("none voluntary (full)\n"), "preempt=none", None));
        assert!(!told(Some("full (lazy)\n"), "preempt=none", None));
        assert!(!told(Some("(undefined)"), "", Some("CONFIG_PREEMPT_NONE=y")));
    }

    #[test]
    fn the_command_line_goes_before_the_configuration() {
        let (none, full) = (Some("CONFIG_PREEMPT_VOLUNTARY=y\n"), Some("CONFIG_PREEMPT=y\n"));
        assert!(told(None, "ro preempt=none quiet", full));
        assert!(told(None, "preempt=full preempt=voluntary", full));
        assert!(!told(None, "preempt=none preempt=full", none));
        assert!(told(None, "ro quiet", none));
        assert!(!told(None, "ro quiet", full));
        assert!(!told(None, "ro quiet", None));
        assert!(!told(None, "", Some("# CONFIG_PREEMPT_NONE is not set\n")));
    }
}
