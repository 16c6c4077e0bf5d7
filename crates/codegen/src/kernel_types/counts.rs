// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the machine counts, which the types of its kernel do not tell.

use super::KernelTypes;
use klogger_schema::counted::Counted;

/// What a machine counts.
pub trait Counts: Send + Sync {
    fn counts(&self, counted: Counted) -> bool;
}

impl KernelTypes {
    /// The same, on a machine that can be asked what it counts.
    pub fn with_counts(self, counts: impl Counts + 'static) -> KernelTypes {
        KernelTypes { counts: Some(Box::new(counts)), ..self }
    }

    /// Whether the machine counts such an event. On another machine, that is not known: yes.
    pub fn counts(&self, counted: Counted) -> bool {
        self.counts.as_ref().is_none_or(|machine| machine.counts(counted))
    }
}
