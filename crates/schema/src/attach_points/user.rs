// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe user PATH:NAME(...)` and `probe return user PATH:NAME(result)`: a function of a program or
//! a library is entered, or returns.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong, is_symbol};

pub(super) static USER: Row = Row {
    word: "user",
    noun: "function of a program",
    example: "probe user /usr/bin/bash:readline(const char *prompt)",
    elsewhere: &["uprobe"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong: |name| wrong(ProbeKind::User, name),
};

pub(super) static RETURN_USER: Row = Row {
    word: "return user",
    noun: "function of a program",
    example: "probe return user /usr/bin/bash:readline(const char *result)",
    elsewhere: &["uretprobe"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong: |name| wrong(ProbeKind::ReturnUser, name),
};

fn wrong(kind: ProbeKind, name: &str) -> Option<Wrong> {
    let parts = name.rsplit_once(':');
    let good = parts.is_some_and(|(path, symbol)| !path.is_empty() && is_symbol(symbol));
    (!good).then(|| ("needs a program or library, and a function in it", kind.for_example()))
}
