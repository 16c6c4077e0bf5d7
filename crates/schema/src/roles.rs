// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks roles and slices, and adds each slice to its two events.

use crate::diagnostic::Diagnostic;
use crate::model::{Event, Scalar, Shape, Span};
use crate::names::shorten;
use crate::nearest::did_you_mean;
use crate::parse::{Draft, ERRORS_MAX, EventDraft, Name, SliceDraft};

/// Completes the events of the draft with the slices that they begin and end.
pub fn check(draft: &mut Draft, found: &mut Vec<Diagnostic>) {
    draft.events.iter().for_each(|event| check_role(event, found));
    for slice in &draft.slices {
        if found.len() >= ERRORS_MAX {
            return;
        }
        let [from, to] = [&slice.from, &slice.to].map(|name| place_of(name, &draft.events));
        let (Some(from), Some(to)) = (from, to) else {
            if !draft.incomplete {
                let missing = if from.is_none() { &slice.from } else { &slice.to };
                found.push(unknown_event(missing, &draft.events));
            }
            continue;
        };
        let wrong = [from, to].into_iter().find_map(|at| unfit(slice, &draft.events[at]));
        match wrong {
            Some(wrong) => found.push(wrong),
            None if from == to => found.push(
                Diagnostic::error(slice.to.span, "a slice begins and ends with the same event")
                    .label("begins with it, too")
                    .help("name the event that ends it behind `to`"),
            ),
            None => {
                draft.events[from].event.begins.push(slice.slice.clone());
                draft.events[to].event.ends.push(slice.slice.clone());
            }
        }
    }
}

fn place_of(name: &Name, events: &[EventDraft]) -> Option<usize> {
    events.iter().position(|e| e.event.name == name.text)
}

fn unknown_event(name: &Name, events: &[EventDraft]) -> Diagnostic {
    let help = did_you_mean(&name.text, events.iter().map(|e| e.event.name.as_str()))
        .unwrap_or_else(|| "a slice begins and ends with events of this schema".into());
    let message = format!("there is no event `{}`", shorten(&name.text));
    Diagnostic::error(name.span, message).label("not declared").help(help)
}

fn check_role(draft: &EventDraft, found: &mut Vec<Diagnostic>) {
    if draft.event.role.is_none() || draft.incomplete || thread_field(&draft.event) {
        return;
    }
    let message = format!("event {} has a role, but no thread", draft.event.name);
    found.push(
        Diagnostic::error(draft.role_span, message)
            .label("needs a field `pid`")
            .help("add the field `int pid as thread`, or remove the role"),
    );
}

fn thread_field(event: &Event) -> bool {
    let is_thread =
        |f: &&crate::model::Field| f.name == "pid" && f.shape == Shape::One && f.scalar.size() == 4;
    event.fields.iter().any(|f| is_thread(&f))
}

/// Why an event cannot begin or end a slice.
fn unfit(slice: &SliceDraft, draft: &EventDraft) -> Option<Diagnostic> {
    let wrong = |span: Span, name: &str, why: &str, help: String| {
        Diagnostic::error(span, format!("event {} has {why} `{}`", draft.event.name, shorten(name)))
            .label("of both events")
            .related(draft.event.span, "declared here")
            .help(help)
    };
    for (name, &span) in slice.slice.by.iter().zip(&slice.by_spans) {
        let fields = &draft.event.fields;
        match fields.iter().find(|f| f.name == *name) {
            None if draft.incomplete => {}
            None => {
                let help = did_you_mean(name, fields.iter().map(|f| f.name.as_str()))
                    .unwrap_or_else(|| "name fields that both events have".into());
                return Some(wrong(span, name, "no field", help));
            }
            Some(f) if f.shape != Shape::One || f.scalar == Scalar::Bool => {
                return Some(wrong(
                    span,
                    name,
                    "no integer",
                    "name fields that hold integers".into(),
                ));
            }
            Some(_) => {}
        }
    }
    None
}
