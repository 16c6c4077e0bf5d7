// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `probe start OBJECTS(...)` and `probe end OBJECTS(...)`: once for each object that exists when
//! the recording begins, or ends.

use super::{PARAMETERS_MAX, ProbeKind, Row, Wrong, is_identifier};

pub(super) static START: Row = Row {
    word: "start",
    noun: "kind of objects",
    example: "probe start files(struct task_struct *task, u32 fd, struct file *file)",
    elsewhere: &["iter", "BEGIN"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong: |name| wrong(ProbeKind::Start, name),
};

pub(super) static END: Row = Row {
    word: "end",
    noun: "kind of objects",
    example: "probe end tasks(struct task_struct *task)",
    elsewhere: &["END"],
    parameters: PARAMETERS_MAX,
    phrase: false,
    wrong: |name| wrong(ProbeKind::End, name),
};

fn wrong(kind: ProbeKind, name: &str) -> Option<Wrong> {
    (!is_identifier(name)).then(|| ("not a kind of objects", kind.for_example()))
}
