// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What was found about one rule.

use super::gaps::Gaps;
use crate::event::EventRef;
use crate::origin::Origin;

/// Which event of a log it is, to find it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub time: u64,
    pub origin: Origin,
    pub serial: u64,
}

impl Id {
    pub fn of(event: &EventRef) -> Id {
        Id { time: event.time_ns, origin: event.origin, serial: event.serial }
    }
}

/// How a rule was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// What should have come did not come in time.
    NotFollowed,
    /// What should have been before was not.
    NotPreceded,
    /// It came between two events where it must not be.
    Between,
    /// A step that cannot come after the one before it.
    WrongStep,
    /// A first step that is none.
    WrongFirst,
    /// The log ended before the last step.
    Incomplete,
    /// It ended before something that had begun later.
    Crossed,
    /// It ended, but had not begun.
    NotBegun,
    /// Things were taken in a circle of orders.
    Circle,
}

/// A violation: its events, in the order of time but for [`Why::Circle`], which has two for each
/// pair of things, in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub why: Why,
    /// When it was certain, ns.
    pub time: u64,
    pub events: Vec<Id>,
}

/// Why something cannot be decided, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undecided {
    /// It may have begun before the log.
    pub start: u64,
    /// The log ended before it was certain.
    pub end: u64,
    /// Events may be missing.
    pub lost: u64,
    /// There were too many at a time to remember all.
    pub given_up: u64,
    /// The event has no value in one of the fields: a thread of a program, or a CPU.
    pub no_value: u64,
}

impl Undecided {
    pub fn total(&self) -> u64 {
        self.start + self.end + self.lost + self.given_up + self.no_value
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How often it was decided.
    pub checked: u64,
    pub violations: u64,
    pub undecided: Undecided,
    /// The first violations.
    pub first: Vec<Violation>,
    /// How many of them are kept.
    pub most: usize,
    pub(super) gaps: Gaps,
}

impl Tally {
    pub(super) fn kept(&mut self) {
        self.checked += 1;
    }

    /// A violation, unless events are missing between these times, which it depends on.
    pub(super) fn judge(&mut self, why: Why, span: (u64, u64), events: Vec<Id>) {
        if self.gaps.are_in(span.0, span.1) {
            self.undecided.lost += 1;
            return;
        }
        self.checked += 1;
        self.violations += 1;
        if self.first.len() < self.most {
            self.first.push(Violation { why, time: span.1, events });
        }
    }
}
