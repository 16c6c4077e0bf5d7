// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe usdt PATH:PROVIDER:NAME(...)`: a program passes a static probe.

use super::program::{InProgram, is_relative};
use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong};

pub(super) static USDT: Row = Row {
    word: "usdt",
    noun: "static probe of a program",
    example: "probe usdt /usr/bin/python3:python:gc__start(int generation)",
    elsewhere: &[],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong,
};

fn wrong(name: &str) -> Option<Wrong> {
    let example = ProbeKind::Usdt.for_example();
    match InProgram::of_static(name) {
        None => Some(("needs a program or library, a provider and a name", example)),
        Some(found) if is_relative(found.program) => {
            Some(("a relative path", format!("write the whole path, {example}")))
        }
        Some(_) => None,
    }
}
