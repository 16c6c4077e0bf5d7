// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Rules of the order of events, which `klogger check-log` compares with a log.

use super::Span;

/// `rule NAME: FORM within T from the start by the end`
#[derive(Clone, Debug)]
pub struct Rule {
    pub name: String,
    pub doc: Option<String>,
    pub form: Form,
    /// `within T`, in ns.
    pub within: Option<u64>,
    /// `from the start`: nothing that it is about had begun before the log did.
    pub from_start: bool,
    /// `by the end`: what is open when the log ends is a violation.
    pub by_end: bool,
    /// What follows the colon, with single spaces.
    pub text: String,
    /// The position of the name.
    pub span: Span,
}

/// The forms of rules. The fields of all terms of a rule correspond by their place.
#[derive(Clone, Debug)]
pub enum Form {
    /// `every A(x) is followed by B(x) unless C(x)`
    Followed { first: Term, then: Term, unless: Option<Term> },
    /// `every B(x) is preceded by A(x)`
    Preceded { last: Term, before: Term },
    /// `A(x) and B(x) alternate`
    Alternate { first: Term, second: Term },
    /// `no C(x) between A(x) and B(x)`
    Between { banned: Term, from: Term, to: Term },
    /// `A(t, x) to B(t, x) nest`
    Nest { from: Term, to: Term },
    /// `A(t, x) to B(t, x) keep one order`
    Order { from: Term, to: Term },
    /// `A(x) -> B(x)* -> (C(x) | D(x))`
    Path(Path),
}

/// An event, what it is about, and which of them: `EVENT(FIELD, FIELD) where (CONDITION)`.
#[derive(Clone, Debug)]
pub struct Term {
    pub event: String,
    pub by: Vec<String>,
    pub condition: Option<Condition>,
    /// The position of the event's name.
    pub span: Span,
    /// The position of each field of `by`.
    pub by_spans: Vec<Span>,
}

/// An expression over the fields of an event, as `klogger cat --where` has it.
#[derive(Clone, Debug)]
pub struct Condition {
    pub text: String,
    pub span: Span,
}

/// The steps of something, from its begin to its end.
#[derive(Clone, Debug)]
pub enum Path {
    Step(Term),
    /// One after the other.
    Sequence(Vec<Path>),
    /// One of them.
    Either(Vec<Path>),
    /// `?`, `*` or `+`.
    Repeated {
        what: Box<Path>,
        none: bool,
        many: bool,
    },
}

impl Form {
    /// All terms, in the order of the text.
    pub fn terms(&self) -> Vec<&Term> {
        match self {
            Form::Followed { first, then, unless } => {
                [first, then].into_iter().chain(unless).collect()
            }
            Form::Preceded { last, before } => vec![last, before],
            Form::Alternate { first, second } => vec![first, second],
            Form::Between { banned, from, to } => vec![banned, from, to],
            Form::Nest { from, to } | Form::Order { from, to } => vec![from, to],
            Form::Path(path) => path.steps(),
        }
    }
}

impl Path {
    /// All steps, in the order of the text.
    pub fn steps(&self) -> Vec<&Term> {
        match self {
            Path::Step(term) => vec![term],
            Path::Sequence(parts) | Path::Either(parts) => {
                parts.iter().flat_map(Path::steps).collect()
            }
            Path::Repeated { what, .. } => what.steps(),
        }
    }

    /// Whether nothing at all is such a path.
    pub fn may_be_empty(&self) -> bool {
        match self {
            Path::Step(_) => false,
            Path::Sequence(parts) => parts.iter().all(Path::may_be_empty),
            Path::Either(parts) => parts.iter().any(Path::may_be_empty),
            Path::Repeated { what, none, .. } => *none || what.may_be_empty(),
        }
    }
}
