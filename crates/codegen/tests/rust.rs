// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `tests/golden/rust/NAME.klogger` and the Rust generated from it, in `NAME.klogger.rs`; and
//! klogger's own events for programs, which are part of the crate klogger-user. KLOGGER_BLESS=1
//! writes the expected text.
//!
//! klogger-user-example tests that it compiles without a warning, and writes what the layouts say.

use klogger_codegen::BUILTIN_SCHEMA;
use klogger_codegen::user::rust;
use klogger_schema::model::Schema;
use klogger_schema::{Options, parse};
use std::path::{Path, PathBuf};
use std::{env, fs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(name: &str, text: &str, builtin: bool) -> Schema {
    let options = Options { builtin, ..Options::default() };
    parse(name, text, &options).unwrap_or_else(|e| panic!("{name}: {e:?}")).schema
}

fn compare(path: &Path, text: &str) {
    if env::var_os("KLOGGER_BLESS").is_some() {
        fs::write(path, text).unwrap();
    }
    let wanted = fs::read_to_string(path).unwrap_or_default();
    assert!(
        !wanted.is_empty(),
        "{} is empty or missing; write it with KLOGGER_BLESS=1",
        path.display()
    );
    assert_eq!(text, wanted, "{} differs", path.display());
}

#[test]
fn generated_rust_is_as_expected() {
    let folder = root().join("tests/golden/rust");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "klogger"));
    assert!(!files.is_empty(), "no golden schemata in {}", folder.display());
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let schema = load(&name, &fs::read_to_string(&path).unwrap(), false);
        compare(&path.with_extension("klogger.rs"), &rust::source(&schema).unwrap().text);
    }
}

/// It is part of the crate, and so formatted by rustfmt: run `cargo fmt` after KLOGGER_BLESS=1.
#[test]
fn own_events_are_as_in_klogger_user() {
    let builtin = load("klogger.klogger", BUILTIN_SCHEMA, true);
    let file = root().join("crates/user/src/own.rs");
    let text = rust::own(&builtin).text;
    if std::env::var_os("KLOGGER_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let squeezed = |text: &str| text.split_whitespace().collect::<String>().replace(",)", ")");
    assert_eq!(squeezed(&text), squeezed(&std::fs::read_to_string(&file).unwrap()));
}

#[test]
fn a_context_that_only_the_kernel_has_is_refused() {
    let refused = rust::source(&load("a", "event A { context prio }", false)).unwrap_err();
    assert_eq!(refused.message, "event A: a program cannot log `context prio`");
}
