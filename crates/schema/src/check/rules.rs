// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks rules: the events and fields that they name, and that these can be compared. What is
//! after `where` is checked where conditions are understood, in the crate of logs.

use super::unique;
use crate::Options;
use crate::diagnostic::Diagnostic;
use crate::model::{Rule, Shape, Span, Term};
use crate::names::shorten;
use crate::nearest::did_you_mean;
use crate::parse::{Draft, EventDraft};

/// Fields that are not declared: the CPU that logged an event, of events of programs the thread.
const CPU: &str = "cpu";
const THREAD: [&str; 2] = ["tid", "tgid"];
/// Fields of a term at most.
const FIELDS_MAX: usize = 8;

/// Reports what is wrong with them.
pub fn check(draft: &Draft, options: &Options, found: &mut Vec<Diagnostic>) {
    unique("a rule", draft.rules.iter().map(|r| (r.name.as_str(), r.span)), found);
    for rule in &draft.rules {
        if let Err(wrong) = same_number(rule) {
            found.push(*wrong);
            continue;
        }
        if options.rules_apart {
            continue;
        }
        // What is not declared may have been left out because of another error.
        match check_rule(rule, draft) {
            Err(wrong) if !draft.incomplete => found.push(*wrong),
            Ok(()) | Err(_) => {}
        }
    }
}

/// A diagnostic is large.
type Checked<T> = Result<T, Box<Diagnostic>>;

/// What the values of a field are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Numbers,
    Texts,
}

impl Values {
    fn noun(self) -> &'static str {
        match self {
            Values::Numbers => "a number",
            Values::Texts => "a text",
        }
    }
}

/// The terms of a rule have as many fields, so that they can correspond.
fn same_number(rule: &Rule) -> Checked<()> {
    let terms = rule.form.terms();
    let Some(first) = terms.first() else { return Ok(()) };
    if let Some(other) = terms.iter().find(|term| term.by.len() != first.by.len()) {
        let message = format!(
            "the events of rule {} have different numbers of fields: {} and {}",
            rule.name,
            first.by.len(),
            other.by.len()
        );
        let wrong = Diagnostic::error(other.span, message)
            .label("does not correspond")
            .related(first.span, "to this one")
            .help("fields correspond by their place: `A(pid, vector)` to `B(tid, irq)`");
        return Err(wrong.into());
    }
    if first.by.len() > FIELDS_MAX {
        let message = format!("more than {FIELDS_MAX} fields");
        let wrong = Diagnostic::error(first.by_spans[FIELDS_MAX], message);
        return Err(wrong.label("one too many").help("remove it").into());
    }
    let holds =
        matches!(rule.form, crate::model::Form::Nest { .. } | crate::model::Form::Order { .. });
    if holds && first.by.len() < 2 {
        let message = format!("rule {} does not say who holds what", rule.name);
        let wrong = Diagnostic::error(first.span, message)
            .label("has too few fields")
            .help("name the holder first, and what it holds last: `TAKEN(tid, lock)`");
        return Err(wrong.into());
    }
    Ok(())
}

fn check_rule(rule: &Rule, draft: &Draft) -> Checked<()> {
    let mut known: Vec<Option<(Values, Span)>> = Vec::new();
    for term in rule.form.terms() {
        let event = find(term, &draft.events)?;
        known.resize(term.by.len(), None);
        for ((name, span), before) in term.by.iter().zip(&term.by_spans).zip(&mut known) {
            let values = values(event, name, *span, draft)?;
            if let Some((other, at)) = before.filter(|(other, _)| *other != values) {
                let message = format!("`{name}` is {}, and not {}", values.noun(), other.noun());
                let wrong = Diagnostic::error(*span, message)
                    .label("cannot be compared")
                    .related(at, "with this one")
                    .help("name fields whose values can be equal");
                return Err(wrong.into());
            }
            *before = Some((values, *span));
        }
    }
    Ok(())
}

fn find<'d>(term: &Term, events: &'d [EventDraft]) -> Checked<&'d EventDraft> {
    events.iter().find(|e| e.event.name == term.event).ok_or_else(|| {
        let help = did_you_mean(&term.event, events.iter().map(|e| e.event.name.as_str()))
            .unwrap_or_else(|| {
                "a rule is about events of its schema; others are in a file of rules for \
                 'klogger check-log --rules'"
                    .into()
            });
        let message = format!("there is no event `{}`", shorten(&term.event));
        Diagnostic::error(term.span, message).label("not declared").help(help).into()
    })
}

fn values(draft: &EventDraft, name: &str, span: Span, all: &Draft) -> Checked<Values> {
    let event = &draft.event;
    if let Some(field) = event.fields.iter().find(|f| f.name == name) {
        return match field.shape {
            Shape::One => Ok(Values::Numbers),
            Shape::Text(_) | Shape::Tail(_) => Ok(Values::Texts),
            Shape::Array(_) => {
                let wrong = Diagnostic::error(span, format!("`{name}` is an array"));
                let wrong = wrong.label("cannot be compared").related(field.span, "declared here");
                Err(wrong.help("name a number or a text").into())
            }
        };
    }
    // Threads are known of events of programs, and only those have no probes.
    if name == CPU || (THREAD.contains(&name) && all.probes.is_empty()) {
        return Ok(Values::Numbers);
    }
    let fields = event.fields.iter().map(|f| f.name.as_str());
    let help = did_you_mean(name, fields.chain([CPU]))
        .unwrap_or_else(|| "name fields of the event, or `cpu` for the CPU that logged it".into());
    let message = format!("event {} has no field `{}`", event.name, shorten(name));
    let wrong = Diagnostic::error(span, message).label("not a field");
    Err(wrong.related(event.span, "declared here").help(help).into())
}
