// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe user PATH:NAME(...)`: a function of a program or a library is entered.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong, is_symbol};

pub(super) static USER: Row = Row {
    word: "user",
    noun: "function of a program",
    example: "probe user /usr/bin/bash:readline(const char *prompt)",
    elsewhere: &["uprobe"],
    parameters: PARAMETERS_MAX,
    wrong,
};

fn wrong(name: &str) -> Option<Wrong> {
    let parts = name.rsplit_once(':');
    let good = parts.is_some_and(|(path, symbol)| !path.is_empty() && is_symbol(symbol));
    (!good).then(|| {
        ("needs a program or library, and a function in it", ProbeKind::User.for_example())
    })
}
