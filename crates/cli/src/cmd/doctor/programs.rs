// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Programs that klogger runs.

use super::finding::Finding;
use crate::external;
use klogger_toolchain::clang;

pub fn look() -> Vec<Finding> {
    vec![compiler(), analyses(), guests(), remote()]
}

fn compiler() -> Finding {
    let found = clang::find().map(|path| path.display().to_string());
    Finding::of("clang", found, "schemata of your own, and --where")
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
    let program = format!("qemu-system-{}", std::env::consts::ARCH);
    let package = match std::env::consts::ARCH {
        "aarch64" => "qemu-system-arm",
        _ => "qemu-system-x86",
    };
    Finding::of_program("QEMU", &program, "klogger guest: commands on other kernels", package)
}

fn remote() -> Finding {
    const WITHOUT: &str = "klogger collect: recording on several machines";
    Finding::of_program("ssh", "ssh", WITHOUT, "openssh-client")
}
