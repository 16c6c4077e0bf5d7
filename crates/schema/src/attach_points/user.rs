// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe user PATH:NAME(...)` and `probe return user PATH:NAME(result)`: a function of a program
//! or a library is entered, or returns.

use super::program::{InProgram, Place, is_relative};
use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong};

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
    parameters: 1,
    phrase: false,
    wrong: |name| wrong(ProbeKind::ReturnUser, name),
};

fn wrong(kind: ProbeKind, name: &str) -> Option<Wrong> {
    match InProgram::of_function(name).map(|found| found.place) {
        _ if InProgram::of_function(name).is_some_and(|found| is_relative(found.program)) => {
            Some(("a relative path", format!("write the whole path, {}", kind.for_example())))
        }
        None => Some(("needs a program or library, and a function in it", kind.for_example())),
        Some(Place::Function { plus: 1.., .. } | Place::Address(_))
            if kind == ProbeKind::ReturnUser =>
        {
            Some(("a function returns as a whole", kind.for_example()))
        }
        Some(_) => None,
    }
}
