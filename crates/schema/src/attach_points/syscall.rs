// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe syscall NAME(...)`: a system call is entered.

use super::{PARAMETERS_MAX, ProbeKind, Row, is_identifier};

pub(super) static SYSCALL: Row = Row {
    word: "syscall",
    noun: "system call",
    example: "probe syscall openat(int dfd, const char *filename)",
    elsewhere: &["ksyscall"],
    parameters: PARAMETERS_MAX,
    wrong: |name| {
        (!is_identifier(name))
            .then(|| ("not a system call's name", ProbeKind::Syscall.for_example()))
    },
};
