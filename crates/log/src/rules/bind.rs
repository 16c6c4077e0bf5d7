// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Looks up the names of a rule in a log, and checks conditions in a schema.

use super::key::From;
use super::tally::Tally;
use super::{Bound, Matcher, Source, form};
use crate::filter::{Filter, FilterError, parsed, unknown_event};
use crate::preamble::Preamble;
use crate::rules::gaps::{Gaps, Missing};
use klogger_schema::Diagnostic;
use klogger_schema::layout::EventLayout;
use klogger_schema::model::{Form, Schema, Shape, Term};
use klogger_schema::nearest::did_you_mean;

/// Of a whole log.
pub struct Log<'a> {
    pub preamble: &'a Preamble,
    /// The begin of the log, ns.
    pub start: u64,
    pub missing: &'a [Missing],
}

impl Log<'_> {
    /// Whether it begins with its recording, so that `from the start` can be decided.
    pub(super) fn begins(&self) -> bool {
        let first = self.preamble.segment.as_ref().is_none_or(|segment| segment.number == 1);
        self.preamble.snapshot.is_none() && first
    }

    /// Whether it ends with its recording, so that `by the end` can be decided. Nothing tells that
    /// a segment is the last one.
    pub(super) fn ends(&self) -> bool {
        self.preamble.snapshot.is_none() && self.preamble.segment.is_none()
    }
}

/// A rule, ready for a log. `most`: how many violations are kept.
pub fn bind(
    source: &Source,
    log: &Log,
    most: usize,
    limits: super::Limits,
) -> Result<Bound, FilterError> {
    let rule = source.rule;
    let named = |e: FilterError| FilterError {
        message: format!("rule {}: {}", rule.name, e.message),
        help: e.help,
    };
    let mut matchers: Vec<(usize, Matcher)> = Vec::new();
    let terms = rule.form.terms();
    for &role in order(&rule.form, terms.len()).iter() {
        let term = terms[role];
        let found = matcher(term, 1 << role, source, log).map_err(named)?;
        add(&mut matchers, found, matches!(rule.form, Form::Path(_) | Form::Alternate { .. }));
    }
    let spans = log.missing.iter().filter(|m| {
        m.event.as_ref().is_none_or(|name| terms.iter().any(|term| term.event == *name))
    });
    let gaps = Gaps::new(spans.map(|m| m.span).collect());
    let tally = Tally { most, gaps, ..Tally::default() };
    Ok(Bound { form: form(rule, log, limits), matchers, holds: holds(&rule.form), tally })
}

/// Whether the last field of a term is what the others hold.
fn holds(form: &Form) -> bool {
    matches!(form, Form::Nest { .. } | Form::Order { .. })
}

/// The order in which an event that is several terms is looked at: what ends something comes before
/// what begins something.
fn order(form: &Form, terms: usize) -> Vec<usize> {
    match form {
        Form::Followed { .. } => (1..terms).chain([0]).collect(),
        Form::Between { .. } => vec![2, 0, 1],
        Form::Nest { .. } | Form::Order { .. } => vec![1, 0],
        Form::Preceded { .. } | Form::Alternate { .. } | Form::Path(_) => (0..terms).collect(),
    }
}

/// Steps of a path about the same thing are one step that can be several.
fn add(matchers: &mut Vec<(usize, Matcher)>, (event, new): (usize, Matcher), join: bool) {
    let same = |(other, m): &&mut (usize, Matcher)| *other == event && m.fields == new.fields;
    match matchers.iter_mut().find(same).filter(|_| join) {
        Some((_, matcher)) => matcher.roles.extend(new.roles),
        None => matchers.push((event, new)),
    }
}

fn matcher(
    term: &Term,
    role: u64,
    source: &Source,
    log: &Log,
) -> Result<(usize, Matcher), FilterError> {
    let events = &log.preamble.events;
    let of_schema = |e: &&EventLayout| source.schema.is_none_or(|name| name == e.schema);
    let index = events.iter().position(|e| of_schema(&e) && e.name == term.event);
    let index = index.ok_or_else(|| unknown_event(&term.event, log.preamble))?;
    let fields = term.by.iter().map(|name| field(&events[index], name));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let condition = term.condition.as_ref();
    let filter = condition.map(|c| Filter::new(&c.text, log.preamble, log.start)).transpose()?;
    Ok((index, Matcher { fields, roles: vec![(role, filter)] }))
}

/// Where a value of an event is.
pub(crate) fn field(event: &EventLayout, name: &str) -> Result<From, FilterError> {
    match event.fields.iter().position(|f| f.name == name) {
        Some(index) if matches!(event.fields[index].shape, Shape::Array(_)) => Err(FilterError {
            message: format!("'{name}' of {} is an array", event.name),
            help: "name a number or a text".into(),
        }),
        Some(index) => Ok(From::Field(index)),
        None => match name {
            "cpu" => Ok(From::Cpu),
            "tid" => Ok(From::Thread),
            "tgid" => Ok(From::Process),
            _ => Err(FilterError {
                message: format!("event {} has no field '{name}'", event.name),
                help: did_you_mean(name, event.fields.iter().map(|f| f.name.as_str()))
                    .unwrap_or_else(|| {
                        "'klogger info --fields FILE' lists the events and their fields".into()
                    }),
            }),
        },
    }
}

/// What is wrong with the conditions of a schema's rules. The parser of schemata takes them as they
/// are.
pub fn faults(schema: &Schema) -> Vec<Diagnostic> {
    let layouts = schema.events.iter().map(|e| EventLayout::new(&schema.name, e, 1)).collect();
    let preamble = Preamble { events: layouts, ..Preamble::default() };
    let terms = schema.rules.iter().flat_map(|rule| rule.form.terms());
    let conditions = terms.filter_map(|term| Some((term, term.condition.as_ref()?)));
    let wrong = conditions.filter_map(|(term, condition)| {
        // The events of a file of rules are in a log.
        let known = preamble.events.iter().find(|e| e.name == term.event);
        let checked = match known {
            Some(event) => of_event(&condition.text, event),
            None => parsed(&condition.text).map(|_| ()),
        };
        let error = checked.err()?;
        Some(Diagnostic::error(condition.span, error.message).label("here").help(error.help))
    });
    wrong.collect()
}

/// A condition may name fields of its own event only: others never match.
fn of_event(text: &str, event: &EventLayout) -> Result<(), FilterError> {
    let preamble = Preamble { events: vec![event.clone()], ..Preamble::default() };
    Filter::new(text, &preamble, 0).map(|_| ()).map_err(|error| FilterError {
        message: error.message.replace("no event of this log has", "this event does not have"),
        help: error.help.replace(
            "'klogger info --fields FILE' lists the events and their fields",
            "name fields of the event",
        ),
    })
}
