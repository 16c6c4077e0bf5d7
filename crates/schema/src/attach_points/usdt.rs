// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe usdt PATH:PROVIDER:NAME(...)`: a program passes a static probe.

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
    let parts: Vec<&str> = name.rsplitn(3, ':').collect();
    let good = parts.len() == 3 && parts.iter().all(|part| !part.is_empty());
    (!good).then(|| {
        ("needs a program or library, a provider and a name", ProbeKind::Usdt.for_example())
    })
}
