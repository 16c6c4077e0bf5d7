// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe tracepoint NAME(...)`: the kernel passes a tracepoint.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong, is_identifier};

pub(super) static TRACEPOINT: Row = Row {
    word: "tracepoint",
    noun: "tracepoint",
    example: "probe tracepoint sched_switch(bool preempt, struct task_struct *prev)",
    elsewhere: &["tp", "tp_btf", "raw_tp", "rawtracepoint", "raw_tracepoint"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong,
};

fn wrong(name: &str) -> Option<Wrong> {
    match name.rsplit_once(':') {
        Some((_, own)) => Some(("with its group", format!("omit the group: `{own}`"))),
        None => (!is_identifier(name))
            .then(|| ("not a tracepoint's name", ProbeKind::Tracepoint.for_example())),
    }
}
