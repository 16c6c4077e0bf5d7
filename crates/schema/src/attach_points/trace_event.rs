// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe trace_event GROUP:NAME(...)`: an event as tracefs describes it, and as perf and trace-cmd
//! record it. The parameters are fields of its record, by name.

use super::{ProbeKind, Row, Wrong, is_identifier};

pub(super) static TRACE_EVENT: Row = Row {
    word: "trace_event",
    noun: "trace event",
    example: "probe trace_event sched:sched_switch(const char *prev_comm, pid_t prev_pid)",
    elsewhere: &["event", "traceevent"],
    // Records of the kernel have fewer fields.
    parameters: 64,
    phrase: false,
    wrong,
};

fn wrong(name: &str) -> Option<Wrong> {
    // Events of modules may have names such as `9p:9p_client_req`.
    let word = |word: &str| !word.is_empty() && is_identifier(&format!("_{word}"));
    let example = || ProbeKind::TraceEvent.for_example();
    match name.split_once(':') {
        Some((group, own)) if word(&group.replace('-', "_")) && word(own) => None,
        Some(_) => Some(("not a trace event's name", example())),
        None => Some(("without its group", format!("write `GROUP:{name}`, {}", example()))),
    }
}
