// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Standard output, to which commands print by [`say!`] and [`say_part!`], not by `println!`: that
//! panics if nobody reads it, or if it is a file on a full disk.

use crate::failure::Failure;
use crate::messages;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// Prints a line.
macro_rules! say {
    ($($what:tt)*) => { $crate::out::line(format_args!($($what)*)) };
}

/// Prints text without an end of line.
macro_rules! say_part {
    ($($what:tt)*) => { $crate::out::part(format_args!($($what)*)) };
}

pub fn line(text: fmt::Arguments) {
    let mut out = io::stdout().lock();
    check(out.write_fmt(text).and_then(|()| out.write_all(b"\n")));
}

pub fn part(text: fmt::Arguments) {
    check(io::stdout().lock().write_fmt(text));
}

/// To be called when a command has ended: what is left is written.
pub fn finish() {
    check(io::stdout().flush());
}

/// The exit code of a program that SIGPIPE has ended, as shells say it.
const ENDED_BY_PIPE: i32 = 128 + libc::SIGPIPE;

/// Ends the process if standard output takes no more: without a word if its reader has seen enough.
fn check(written: io::Result<()>) {
    let Err(e) = written else { return };
    if e.kind() == ErrorKind::BrokenPipe {
        process::exit(ENDED_BY_PIPE);
    }
    let failure = Failure::new(format!("cannot write the output: {e}"));
    messages::error(&failure.help("make space, or write it to another place"));
    process::exit(2);
}
