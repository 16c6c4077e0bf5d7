// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Triggers: what has to happen in a recording, and what is done then. Their text is an option of
//! `klogger record`, and stands in the preamble of a log.
//!
//! ```text
//! SCHEDIN where waited > 20ms: snapshot, mark "late"
//! REQUEST -> ANSWER within 10ms by id: run "logger slow"
//! no HEARTBEAT within 5s: stop
//! REQUEST -> no ANSWER within 1s by id: snapshot, at most 5 per minute
//! ```

pub mod matcher;
mod parse;
mod state;
#[cfg(test)]
mod tests;

use crate::filter::FilterError;
use std::fmt;

/// A parsed trigger. Names of events and fields are not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// As it was typed, without white space around it.
    pub text: String,
    pub pattern: Pattern,
    /// At least one, in the order of the text.
    pub actions: Vec<Action>,
    pub limit: Limit,
}

/// What has to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `EVENT where EXPR`
    Event(Step),
    /// `A where E -> B where E within T by FIELD`: B at most T after A.
    Sequence { first: Step, then: Step, within_ns: u64, by: Option<Key> },
    /// `no EVENT where E within T by FIELD`: T has passed without it, and again after the next one;
    /// of each value of the field, from its first event on.
    Silence { of: Step, within_ns: u64, by: Option<String> },
    /// `A where E -> no B where E within T by FIELD`: T has passed after A without B.
    Unanswered { first: Step, missing: Step, within_ns: u64, by: Option<Key> },
}

impl Pattern {
    /// The events that it is about, in the order of the text.
    pub fn steps(&self) -> Vec<&Step> {
        match self {
            Pattern::Event(step) | Pattern::Silence { of: step, .. } => vec![step],
            Pattern::Sequence { first, then: second, .. }
            | Pattern::Unanswered { first, missing: second, .. } => vec![first, second],
        }
    }
}

/// An event, perhaps with a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Of a trace event without its group.
    pub event: String,
    /// An expression of [`crate::filter`].
    pub condition: Option<String>,
}

/// Fields that must be equal in both events of a sequence: `by FIELD`, or `by FIELD = FIELD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub first: String,
    pub then: String,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The last seconds, into a log of their own.
    Snapshot,
    /// A `MARK` event with this text.
    Mark(String),
    /// These events are logged from now on.
    Enable(Vec<String>),
    /// These events are not logged any more.
    Disable(Vec<String>),
    /// The recording ends.
    Stop,
    /// A command for `/bin/sh -c`.
    Run(String),
}

impl Action {
    /// The word that it begins with.
    pub fn word(&self) -> &'static str {
        match self {
            Action::Snapshot => "snapshot",
            Action::Mark(_) => "mark",
            Action::Enable(_) => "enable",
            Action::Disable(_) => "disable",
            Action::Stop => "stop",
            Action::Run(_) => "run",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Snapshot | Action::Stop => write!(f, "{}", self.word()),
            Action::Mark(text) | Action::Run(text) => write!(f, "{} \"{text}\"", self.word()),
            Action::Enable(events) | Action::Disable(events) => {
                write!(f, "{} {}", self.word(), events.join(", "))
            }
        }
    }
}

/// How often actions are taken: for at most so many hits in so long a time. All hits are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub hits: u32,
    pub per_ns: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { hits: 1, per_ns: 1_000_000_000 }
    }
}

/// Parses the text of a trigger.
///
/// # Errors
///
/// What is wrong with it, and where.
pub fn parse(text: &str) -> Result<Trigger, FilterError> {
    parse::trigger(text)
}
