// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Selects events by an expression over their fields.
//!
//! Besides fields there are `time` (ns since the log's start; write `1.5s`), `cpu` (-1: the
//! recorder), `serial` and `event`. Events of programs have no `cpu`, but `tid` and `tgid`, unless
//! a field has that name. A value that has a name (of a thread, of a flag) can be compared with a
//! string: `pid == "bash"`; a device is written with its two numbers: `device == 7:1`. A comparison
//! with a field that an event does not have is neither true nor false, so that `!(pid == 1)` does
//! not match events without a `pid`.

pub mod parse;

use crate::decode::Decoder;
use crate::event::{EventRef, Value};
use crate::names::Processes;
use crate::origin::Thread;
use crate::preamble::Preamble;
use klogger_schema::model::{Decode, Shape};
use klogger_schema::nearest::did_you_mean;
use parse::{Expr, Op, Operand};
use regex::bytes::Regex;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// Why a filter cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    pub message: String,
    pub help: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}

impl std::error::Error for FilterError {}

/// A filter whose names were looked up in a log.
pub struct Filter {
    node: Node,
    start_ns: u64,
}

enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Compare(Source, Op, Source),
    Matches(Source, Regex),
}

/// Where a value comes from.
enum Source {
    Time,
    Cpu,
    Serial,
    Event,
    /// For each event of the preamble: the index of its field, if it has it.
    Field(Vec<Option<usize>>),
    /// The field or, for an event without it, a number of the thread that logged it.
    Thread(fn(Thread) -> u32, Vec<Option<usize>>),
    Number(i128),
    Text(Vec<u8>),
}

/// An operand, evaluated for one event.
enum Side<'a> {
    Number(i128),
    Text(Cow<'a, [u8]>),
    /// A number that may have a name, and the field it is from.
    Field(i128, usize),
}

/// Names that are not fields.
pub const GENERAL: [&str; 4] = ["time", "cpu", "serial", "event"];
const EXAMPLE: &str = "for example: pid == 42 && (prio < 120 || comm =~ \"^k\")";

impl Filter {
    /// `start_ns` is the origin of `time`.
    pub fn new(text: &str, preamble: &Preamble, start_ns: u64) -> Result<Filter, FilterError> {
        Ok(Filter { node: bind(&parsed(text)?, preamble)?, start_ns })
    }

    /// Whether the event matches.
    pub fn matches(&self, event: &EventRef, decoder: &Decoder, processes: &Processes) -> bool {
        Context { event, decoder, processes, start_ns: self.start_ns }.holds(&self.node)
            == Some(true)
    }
}

/// Parses a filter; its names are not looked up.
pub fn parsed(text: &str) -> Result<Expr, FilterError> {
    parse::parse(text).map_err(|at| FilterError {
        message: match text.get(at..).unwrap_or_default() {
            "" => "the filter is not complete".into(),
            rest => format!("the filter cannot be parsed from here on: '{rest}'"),
        },
        help: format!(
            "compare fields with ==, !=, <, <=, >, >= or =~, and join with &&, || and !; {EXAMPLE}"
        ),
    })
}

fn bind(expr: &Expr, preamble: &Preamble) -> Result<Node, FilterError> {
    let all =
        |terms: &[Expr]| terms.iter().map(|t| bind(t, preamble)).collect::<Result<Vec<_>, _>>();
    Ok(match expr {
        Expr::Any(terms) => Node::Any(all(terms)?),
        Expr::All(terms) => Node::All(all(terms)?),
        Expr::Not(inner) => Node::Not(Box::new(bind(inner, preamble)?)),
        Expr::Compare(left, Op::Matches, Operand::Text(pattern)) => {
            let regex = Regex::new(pattern).map_err(|e| FilterError {
                message: format!("'{pattern}' is not a regular expression: {e}"),
                help:
                    "put a backslash before . * + ? ( ) [ ] { } | ^ $ to mean the character itself"
                        .into(),
            })?;
            Node::Matches(source(left, preamble)?, regex)
        }
        Expr::Compare(_, Op::Matches, _) => {
            return Err(FilterError {
                message: "=~ needs a text on its right".into(),
                help: EXAMPLE.into(),
            });
        }
        Expr::Compare(left, op, right) => {
            let (left, right) = match (left, right) {
                (Operand::Name(l), Operand::Name(r)) if l == "event" => {
                    (Source::Event, event(r, preamble)?)
                }
                (Operand::Name(l), Operand::Text(r)) if l == "event" => {
                    (Source::Event, event(r, preamble)?)
                }
                _ => (source(left, preamble)?, source(right, preamble)?),
            };
            check_kinds(&left, &right, preamble)?;
            Node::Compare(left, *op, right)
        }
    })
}

fn source(operand: &Operand, preamble: &Preamble) -> Result<Source, FilterError> {
    let name = match operand {
        Operand::Number(n) => return Ok(Source::Number(*n)),
        Operand::Text(t) => return Ok(Source::Text(t.clone().into_bytes())),
        Operand::Name(name) => name.as_str(),
    };
    match name {
        "time" => return Ok(Source::Time),
        "cpu" => return Ok(Source::Cpu),
        "serial" => return Ok(Source::Serial),
        "event" => return Ok(Source::Event),
        _ => {}
    }
    let find =
        |e: &klogger_schema::layout::EventLayout| e.fields.iter().position(|f| f.name == name);
    let places: Vec<_> = preamble.events.iter().map(find).collect();
    if let Some(number) = thread_number(name)
        && preamble.user_events().contains(&true)
    {
        return Ok(Source::Thread(number, places));
    }
    if places.iter().any(Option::is_some) {
        return Ok(Source::Field(places));
    }
    let fields = preamble.events.iter().flat_map(|e| &e.fields).map(|f| f.name.as_str());
    let help = did_you_mean(name, fields.chain(GENERAL));
    Err(FilterError {
        message: format!("no event of this log has a field '{name}'"),
        help: help.unwrap_or_else(|| {
            "'klogger info --fields FILE' lists the events and their fields".into()
        }),
    })
}

fn thread_number(name: &str) -> Option<fn(Thread) -> u32> {
    match name {
        "tid" => Some(|t| t.tid),
        "tgid" => Some(|t| t.tgid),
        _ => None,
    }
}

/// The name of an event, as a string.
fn event(name: &str, preamble: &Preamble) -> Result<Source, FilterError> {
    match preamble.events.iter().find(|e| e.name.eq_ignore_ascii_case(name)) {
        Some(layout) => Ok(Source::Text(layout.name.clone().into_bytes())),
        None => Err(unknown_event(name, preamble)),
    }
}

/// The message for an event that is not in the log.
pub fn unknown_event(name: &str, preamble: &Preamble) -> FilterError {
    let help = did_you_mean(name, preamble.events.iter().map(|e| e.name.as_str()));
    FilterError {
        message: format!("this log has no event '{name}'"),
        help: help.unwrap_or_else(|| "'klogger info FILE' lists the events of a log".into()),
    }
}

/// Rejects comparisons of a string with something that never is one.
fn check_kinds(left: &Source, right: &Source, preamble: &Preamble) -> Result<(), FilterError> {
    let number_only = |s: &Source| match s {
        Source::Time | Source::Cpu | Source::Serial | Source::Number(_) => true,
        Source::Event | Source::Text(_) => false,
        Source::Field(places) | Source::Thread(_, places) => {
            places.iter().zip(&preamble.events).all(|(place, event)| {
                let Some(field) = place.map(|i| &event.fields[i]) else { return true };
                match field.shape {
                    Shape::One | Shape::Array(_) => field.decode == Decode::Plain,
                    Shape::Text(_) | Shape::Tail(_) => false,
                }
            })
        }
    };
    let text = |s: &Source| matches!(s, Source::Text(_) | Source::Event);
    if (text(left) && number_only(right)) || (text(right) && number_only(left)) {
        let help = "leave out the quotes to compare with a number";
        return Err(FilterError {
            message: "a number is compared with a text".into(),
            help: help.into(),
        });
    }
    Ok(())
}

/// What an expression is evaluated on.
struct Context<'a> {
    event: &'a EventRef<'a>,
    decoder: &'a Decoder,
    processes: &'a Processes,
    start_ns: u64,
}

impl<'a> Context<'a> {
    /// `None`: the event does not have the field.
    fn holds(&self, node: &'a Node) -> Option<bool> {
        match node {
            Node::Any(terms) => fold(terms.iter().map(|t| self.holds(t)), true),
            Node::All(terms) => fold(terms.iter().map(|t| self.holds(t)), false),
            Node::Not(inner) => self.holds(inner).map(|b| !b),
            Node::Compare(left, op, right) => {
                self.compare(self.side(left)?, *op, self.side(right)?)
            }
            Node::Matches(source, regex) => Some(regex.is_match(&self.text(self.side(source)?)?)),
        }
    }

    fn side(&self, source: &'a Source) -> Option<Side<'a>> {
        Some(match source {
            Source::Time => {
                Side::Number(i128::from(self.event.time_ns) - i128::from(self.start_ns))
            }
            Source::Cpu => Side::Number(self.event.origin.cpu_column()?.into()),
            Source::Serial => Side::Number(self.event.serial.into()),
            Source::Event => Side::Text(self.event.layout.name.as_bytes().into()),
            Source::Number(n) => Side::Number(*n),
            Source::Text(t) => Side::Text(t.as_slice().into()),
            Source::Field(places) => self.field(places[self.event.index]?)?,
            Source::Thread(number, places) => match places[self.event.index] {
                Some(index) => self.field(index)?,
                None => Side::Number(number(self.event.origin.thread()?).into()),
            },
        })
    }

    fn field(&self, index: usize) -> Option<Side<'a>> {
        match self.event.value(&self.event.layout.fields[index]) {
            Value::Int(n) => Some(Side::Field(n.into(), index)),
            Value::Uint(n) => Some(Side::Field(n.into(), index)),
            Value::Bool(b) => Some(Side::Field(b.into(), index)),
            Value::Text(t) => Some(Side::Text(t.into())),
            Value::Array(_) => None,
        }
    }

    fn compare(&self, left: Side<'a>, op: Op, right: Side<'a>) -> Option<bool> {
        let order = match (&left, &right) {
            (Side::Number(l) | Side::Field(l, _), Side::Number(r) | Side::Field(r, _)) => l.cmp(r),
            _ => self.text(left)?.cmp(&self.text(right)?),
        };
        Some(match op {
            Op::Equal => order == Ordering::Equal,
            Op::Different => order != Ordering::Equal,
            Op::Less => order == Ordering::Less,
            Op::LessOrEqual => order != Ordering::Greater,
            Op::Greater => order == Ordering::Greater,
            Op::GreaterOrEqual => order != Ordering::Less,
            Op::Matches => return None,
        })
    }

    /// A string, or the name of a number; `None` if it has none.
    fn text(&self, side: Side<'a>) -> Option<Cow<'a, [u8]>> {
        match side {
            Side::Text(text) => Some(text),
            Side::Number(_) => None,
            Side::Field(_, index) => {
                let mut name = Vec::new();
                self.decoder
                    .name(self.event, index, self.processes, &mut name)
                    .then_some(name.into())
            }
        }
    }
}

/// Combines terms: `decisive` if one of them is; otherwise unknown if one is; otherwise the
/// opposite.
fn fold(terms: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
    let mut result = Some(!decisive);
    for term in terms {
        match term {
            Some(b) if b == decisive => return term,
            Some(_) => {}
            None => result = None,
        }
    }
    result
}
