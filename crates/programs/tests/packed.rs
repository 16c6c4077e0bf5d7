// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A stripped program with packed symbols (MiniDebugInfo), made as Fedora makes them.

use klogger_programs::{Of, Programs};
use klogger_schema::model::{ProbeKind, Target};
use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "static __attribute__((noinline)) int hidden(int n) { return 3 * n + 1; }\n\
                       int main(int argc, char **argv) { (void)argv; return hidden(argc); }\n";

fn run(folder: &Path, words: &str) {
    let mut words = words.split(' ');
    let program = words.next().unwrap();
    let status = Command::new(program).args(words).current_dir(folder).status().unwrap();
    assert!(status.success(), "{program}");
}

/// The offset of a function of the program in its file.
fn place(program: &Path, function: &str) -> Result<u64, String> {
    let name = format!("{}:{function}", program.display());
    let target = Target { name, ..Target::bare(ProbeKind::User, "") };
    let found = Programs { of: Of::All }.find(&target).map_err(|refusal| refusal.message)?;
    Ok(found[0].locations[0].offset)
}

#[test]
fn functions_of_a_stripped_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("p");
    fs::write(folder.path().join("p.c"), PROGRAM).unwrap();
    run(folder.path(), "cc -O1 -o p p.c");
    let whole = place(&program, "hidden").unwrap();
    run(folder.path(), "objcopy --keep-symbol=hidden --strip-debug p mini");
    run(folder.path(), "xz mini");
    run(folder.path(), "strip p");
    assert_eq!(
        place(&program, "hidden").unwrap_err(),
        format!("{} has no function 'hidden'", program.display())
    );
    run(folder.path(), "objcopy --add-section .gnu_debugdata=mini.xz p");
    assert_eq!(place(&program, "hidden").unwrap(), whole);
    // Damaged: as if there were none.
    let mut bytes = fs::read(folder.path().join("mini.xz")).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x55;
    fs::write(folder.path().join("mini.xz"), bytes).unwrap();
    run(folder.path(), "objcopy --update-section .gnu_debugdata=mini.xz p");
    assert!(place(&program, "hidden").is_err());
}
