// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe function NAME(...)` and `probe return NAME(result)`: a function of the kernel is entered,
//! or returns.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong, is_symbol};

pub(super) static FUNCTION: Row = Row {
    word: "function",
    noun: "function",
    example: "probe function vfs_read(struct file *file)",
    elsewhere: &["kprobe", "fentry", "kfunc"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong: |name| wrong(ProbeKind::Function, name),
};

pub(super) static RETURN: Row = Row {
    word: "return",
    noun: "function",
    example: "probe return vfs_read(long result)",
    elsewhere: &["kretprobe", "fexit"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong: |name| wrong(ProbeKind::Return, name),
};

fn wrong(kind: ProbeKind, name: &str) -> Option<Wrong> {
    if name.contains('/') && name.contains(':') {
        let user = if kind == ProbeKind::Return { ProbeKind::ReturnUser } else { ProbeKind::User };
        return Some(("a function of a program", format!("write `{}`", user.word())));
    }
    (!is_symbol(name)).then(|| ("not a function's name", kind.for_example()))
}
