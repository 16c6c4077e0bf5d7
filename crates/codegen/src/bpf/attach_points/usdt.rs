// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Static probes of programs (USDT), by uprobes. Where the arguments are differs from place to
//! place; the recorder tells the program in a map.

use super::user::{typed, unpassable};
use super::{Frame, Hit, Row};
use klogger_schema::model::ProbeKind;

pub(super) static ROW: Row = Row {
    kind: ProbeKind::Usdt,
    hit: Hit::Preempted,
    counted: false,
    needs: Some("KLOGGER_USDT"),
    refuse: |target, kernel| Ok(unpassable(target).or_else(|| kernel.refuse_in_program(target))),
    section: |_| "uprobe".into(),
    arguments: |target, types| Ok(typed(target, types, "klogger_usdt_argument")),
    frame: Frame::none,
    names: |_| Vec::new(),
    parameters: |_, _| Ok(Vec::new()),
};
