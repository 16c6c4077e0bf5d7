// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compiles the C runtime, which does all that is not an event's straight path.

use std::env;
use std::path::Path;

const HEADERS: [&str; 5] = [
    "include/klogger/types.h",
    "include/klogger/ring.h",
    "include/klogger/record.h",
    "include/klogger/control.h",
    "user/klogger.user.h",
];

fn main() {
    let runtime = Path::new("../../runtime");
    let source = runtime.join("user/rust.c");
    println!("cargo:rerun-if-changed={}", source.display());
    for header in HEADERS {
        println!("cargo:rerun-if-changed={}", runtime.join(header).display());
    }
    if env::var_os("CARGO_FEATURE_OFF").is_some() {
        return;
    }
    cc::Build::new().file(source).include(runtime.join("include")).opt_level(2).warnings(true).compile("klogger_user");
}
