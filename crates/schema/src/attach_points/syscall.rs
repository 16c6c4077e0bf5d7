// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe syscall NAME(...)` and `probe return syscall NAME(result, ...)`: a system call is
//! entered, or returns. `*` stands for all calls; the first of its parameters is the number.

use super::{ProbeKind, Row, Wrong, is_identifier};

/// The name that stands for all system calls.
pub const ALL_CALLS: &str = "*";
/// Arguments of a system call.
pub const ARGUMENTS: usize = 6;

pub(super) static SYSCALL: Row = Row {
    word: "syscall",
    noun: "system call",
    example: "probe syscall openat(int dfd, const char *filename)",
    elsewhere: &["ksyscall"],
    parameters: 1 + ARGUMENTS,
    phrase: false,
    wrong: |name| wrong(ProbeKind::Syscall, name),
};

pub(super) static RETURN_SYSCALL: Row = Row {
    word: "return syscall",
    noun: "system call",
    example: "probe return syscall openat(long result, int dfd, const char *filename)",
    elsewhere: &["kretsyscall"],
    parameters: 2 + ARGUMENTS,
    phrase: false,
    wrong: |name| wrong(ProbeKind::ReturnSyscall, name),
};

fn wrong(kind: ProbeKind, name: &str) -> Option<Wrong> {
    (name != ALL_CALLS && !is_identifier(name))
        .then(|| ("not a system call's name", kind.for_example()))
}
