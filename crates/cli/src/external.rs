// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `klogger NAME ...` for a NAME that is not built in: the program `klogger-NAME`, as git and cargo
//! do it.

use crate::cmd::Outcome;
use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const HELP: &str = "\
Analyses (programs klogger-NAME on the PATH):
  sql        Ask a log in SQL
  report     The answers to a schema's questions: terminal, HTML, PNG
  compare    What differs between two recordings, and whether it is more than chance
  stopwatch  The time from one event to another, or from one point of the kernel to another
  study      An experiment of the KLogger paper, repeated on this machine
  bench      What each event of a schema costs on this machine, and what rate it can sustain

Elsewhere (also programs):
  guest      Run and record a command in a QEMU guest, with another kernel
  dkms       Write what DKMS needs to build a schema's module for each kernel";

/// Looks beside this program first, then on the PATH, and becomes the program found. Returns only
/// on failure.
pub fn run(words: Vec<OsString>) -> Outcome {
    let name = words[0].to_string_lossy().into_owned();
    let mut program = OsString::from("klogger-");
    program.push(&words[0]);
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(&program)));
    let path = match beside {
        Some(path) if path.exists() => path.into_os_string(),
        _ => program,
    };
    let mut command = Command::new(&path);
    command.args(&words[1..]);
    if let Ok(exe) = std::env::current_exe() {
        // The analyses call klogger in turn, for the tables.
        command.env("KLOGGER", exe);
    }
    let error = command.exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(format!(
            "'{name}' is not a klogger command, and there is no program klogger-{name} on the PATH"
        ))
        .help(
            "see 'klogger --help'; the analyses (sql, report) are installed by 'make \
                   install' or found in the PATH that 'make' prints",
        ),
        _ => Failure::new(format!("cannot run {}: {error}", path.to_string_lossy())),
    })
}
