// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compiles the C runtime, which does everything that is not on the fast path.

use klogger_c_layout::Headers;
use std::env;
use std::fs;
use std::path::Path;

macro_rules! parts {
    ($($path:literal),* $(,)?) => { &[$($path),*] };
}

/// Paths below the folder `runtime`.
const HEADERS: &[&str] = include!("../../runtime/user/parts.in");

fn main() {
    let runtime = Path::new("../../runtime");
    let number = number(runtime);
    println!("cargo:rustc-env=KLOGGER_RUNTIME={number:016x}");
    let source = runtime.join("user/rust.c");
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-changed={}", runtime.join("user/parts.in").display());
    for header in HEADERS {
        println!("cargo:rerun-if-changed={}", runtime.join(header).display());
    }
    if env::var_os("CARGO_FEATURE_OFF").is_some() {
        return;
    }
    let text = format!("{number:#018x}ull");
    let headers = Headers {
        headers: &["user/klogger.user.h"],
        folders: &["../../runtime/include", "../../runtime"],
        defines: &[("KLOGGER_RUNTIME", &text)],
    };
    headers.fill("src/layout.rs.in");
    let mut c = cc::Build::new();
    c.define("KLOGGER_RUNTIME", text.as_str());
    c.file(source)
        .include(runtime.join("include"))
        .opt_level(2)
        .warnings(true)
        .compile("klogger_user");
}

/// Computes the same as klogger_codegen::user::runtime_number(): FNV-1a of the headers.
fn number(runtime: &Path) -> u64 {
    let texts = HEADERS
        .iter()
        .flat_map(|header| fs::read(runtime.join(header)).expect("a header of the runtime"));
    texts
        .fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
