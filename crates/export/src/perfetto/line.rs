// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! One CPU of the trace: its state, and the events of its next packet.

use super::proto::FtraceEvent;
use crate::switches::Cpu;

/// One CPU.
pub struct Line {
    pub cpu: Cpu,
    pub events: Vec<FtraceEvent>,
    /// Events were lost before the first of `events`.
    pub lost: bool,
}

impl Line {
    pub fn new(number: u16, complete: bool) -> Line {
        Line { cpu: Cpu::new(number, complete), events: Vec::new(), lost: false }
    }
}
