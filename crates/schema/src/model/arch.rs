// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What a schema's counters count.

use super::Span;
use crate::counted::Counted;

#[derive(Clone, Debug)]
pub struct Arch {
    pub name: String,
    pub counters: Vec<Counter>,
}

/// `counter0 cycles optional`
#[derive(Clone, Debug)]
pub struct Counter {
    pub number: u32,
    /// What it counts, as it was written.
    pub event: String,
    pub counted: Counted,
    /// It reads 0 on machines that do not count this.
    pub optional: bool,
    /// The position of what it counts.
    pub span: Span,
}

impl Counter {
    /// The word after `klogger_get_` in the function that reads it.
    pub fn word(&self) -> String {
        self.event.replace('-', "_")
    }
}
