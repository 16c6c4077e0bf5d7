// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Programs that klogger runs.

use super::finding::Finding;
use crate::external;
use klogger_os::confine::find_program;
use klogger_toolchain::clang;

pub fn look() -> Vec<Finding> {
    vec![compiler(), analyses(), guests(), remote()]
}

fn compiler() -> Finding {
    const NAME: &str = "clang";
    match clang::find() {
        Ok(path) => Finding::ok(NAME, path.display().to_string()),
        Err(e) => Finding::of_error(NAME, &e, "schemata of your own, and --where"),
    }
}

fn analyses() -> Finding {
    const NAME: &str = "analyses";
    let absent = || external::programs().map(|(name, _)| name).find(|name| !external::has(name));
    match absent() {
        None => Finding::ok(NAME, "klogger why, report, sql and the others"),
        Some(name) => Finding::missing(
            NAME,
            format!("there is no program klogger-{name} on the PATH"),
            "klogger why, report, sql and the other analyses",
        )
        .help(
            "install klogger's Python package: make install; or it is on another PATH than this \
             one, which sudo may have set",
        ),
    }
}

fn guests() -> Finding {
    const NAME: &str = "QEMU";
    let program = format!("qemu-system-{}", std::env::consts::ARCH);
    match find_program(&program) {
        Some(path) => Finding::ok(NAME, path.display().to_string()),
        None => Finding::missing(
            NAME,
            format!("there is no program {program} on the PATH"),
            "klogger guest: commands on other kernels",
        )
        .help(match std::env::consts::ARCH {
            "aarch64" => "apt-get install qemu-system-arm",
            _ => "apt-get install qemu-system-x86",
        }),
    }
}

fn remote() -> Finding {
    const NAME: &str = "ssh";
    match find_program("ssh") {
        Some(path) => Finding::ok(NAME, path.display().to_string()),
        None => Finding::missing(
            NAME,
            "there is no program ssh on the PATH",
            "klogger collect: recording on several machines",
        )
        .help("apt-get install openssh-client"),
    }
}
