// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Compiler messages for wrong calls, and what the feature `off` leaves of calls. The crate is
//! compiled with that feature, which needs neither C nor cargo, and so are programs that use it,
//! with the events of tests/golden/rust.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};
use tempfile::TempDir;

const BEGIN: &str =
    "#![deny(warnings)]\nuse klogger_user::klogger;\nklogger_user::schema!(\"words\");\n";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rustc(folder: &TempDir) -> Command {
    let mut command = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition=2024", "-L"]).arg(folder.path()).arg("--out-dir").arg(folder.path());
    command.env("OUT_DIR", here().join("../../tests/golden/rust"));
    command
}

fn library() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut command = rustc(&folder);
    command.args(["--crate-name=klogger_user", "--crate-type=rlib", "--cfg=feature=\"off\""]);
    let output = command.arg(here().join("src/lib.rs")).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    folder
}

fn compile(folder: &TempDir, body: &str) -> (Output, PathBuf) {
    let source = folder.path().join("program.rs");
    fs::write(&source, format!("{BEGIN}{body}")).unwrap();
    let output = rustc(folder).args(["--extern=klogger_user"]).arg(&source).output().unwrap();
    (output, folder.path().join("program"))
}

#[test]
fn off_removes_calls_and_evaluates_nothing() {
    let folder = library();
    let body = r#"
        fn never<T>() -> T { panic!("evaluated") }
        fn main() {
            klogger!(NOTHING);
            klogger!(PADDED, never(), 2, 3, 4, 5, 6);
            klogger!(TEXT, 1, never::<&String>(), 2);
            klogger!(MARK, never(), "text");
        }"#;
    let (output, program) = compile(&folder, body);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(Command::new(&program).status().unwrap().success());
    let bytes = fs::read(&program).unwrap();
    assert!(
        !bytes.windows(17).any(|w| w == b"one of each\" {\n  "),
        "the schema's text is in the program"
    );
}

/// The compiler's message names the field, or the event.
fn assert_refused(folder: &TempDir, call: &str, named: &str) {
    let (output, _) = compile(folder, &format!("fn main() {{ {call}; }}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{call} compiles");
    assert!(message.contains(named), "{call}: {message}");
}

#[test]
fn wrong_calls_do_not_compile() {
    let folder = library();
    assert_refused(&folder, "klogger!(PADDED, 1, \"two\", 3, 4, 5, 6)", "b: u64");
    assert_refused(&folder, "klogger!(PADDED, 1, 2, 3, 4, 5)", "f: u16");
    assert_refused(&folder, "klogger!(PADDED, 1, 2, 3, 4, 5, 6, 7)", "PADDED");
    assert_refused(&folder, "klogger!(PADDED, 1, 2, 300, 4, 5, 6)", "`u8`");
    assert_refused(
        &folder,
        "klogger!(SHAPES, true, &[1, 2], &[3, 4], \"\", \"\")",
        "triple: &[u16; 3]",
    );
    assert_refused(&folder, "klogger!(TEXT, 1, &2, 3)", "cannot be logged as a string");
    assert_refused(&folder, "klogger!(TEXT, 1, 2, 3)", "text: &");
    assert_refused(&folder, "klogger!(PADED, 1, 2, 3, 4, 5, 6)", "PADED");
}
