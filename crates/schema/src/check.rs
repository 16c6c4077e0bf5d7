// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks that need the whole schema: names are unique, what is named exists, records are not too
//! long. Also appends the fields of `context` to the events.

mod decode;
mod included;
mod probes;
mod rules;
mod states;

use crate::Options;
use crate::diagnostic::Diagnostic;
use crate::layout::{EventLayout, HEADER_SIZE, RECORD_MAX};
use crate::lines;
use crate::model::{
    Context, Decode, Decoding, Event, Field, Parameter, Scalar, Scope, Shape, Span,
};
use crate::names::shorten;
use crate::nearest::did_you_mean;
use crate::parse::{Draft, ERRORS_MAX, EventDraft};
use crate::roles;
use crate::system_calls;
use crate::vocabulary::PLACE;
use decode::check_decode;
use probes::{check_c, check_calls, check_places, check_switches, never_logged, unique_targets};
use std::collections::{HashMap, HashSet};

/// Events of one schema at most. Event ids are 16 bits, and several schemata share them in a log.
pub const EVENTS_MAX: usize = 1000;
/// Tables of one schema at most, and probes of one schema at most.
const OTHERS_MAX: usize = 1000;
/// Parameters of one schema at most.
const PARAMETERS_MAX: usize = 100;
/// States of one schema at most.
const STATES_MAX: usize = 50;

/// Rules of one schema at most.
const RULES_MAX: usize = 100;

/// Completes the draft in place, and reports what is wrong with it.
pub fn check(draft: &mut Draft, options: &Options) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    too_many(draft, &mut found);
    if !found.is_empty() {
        return found;
    }
    for event in &mut draft.events {
        add_contexts(event, &draft.contexts, &mut found);
    }
    add_tables(draft);
    add_system_calls(draft);
    unique_names(draft, &mut found);
    reserved_tables(draft, &mut found);
    roles::check(draft, &mut found);
    lines::check(draft, &mut found);
    for event in &draft.events {
        check_event(event, draft, &mut found);
    }
    for probe in &draft.probes {
        check_calls(probe, draft, &mut found);
    }
    check_c(draft, &mut found);
    check_places(draft, &mut found);
    check_switches(draft, &mut found);
    states::check(draft, &mut found);
    rules::check(draft, options, &mut found);
    included::check(draft, options, &mut found);
    unique_targets(&draft.probes, &mut found);
    if !options.builtin {
        never_logged(draft, &mut found);
    }
    found
}

/// The parameter that something names; or the message and the help if there is none, unless one
/// that could not be parsed may have that name. `declare`: the help if no other name is like it.
fn parameter_named<'a>(
    draft: &'a Draft,
    name: &str,
    declare: String,
) -> Result<&'a Parameter, Option<(String, String)>> {
    let named = draft.parameters.iter().find(|p| p.name == name);
    named.ok_or_else(|| {
        let names = draft.parameters.iter().map(|p| p.name.as_str());
        let help = did_you_mean(name, names).unwrap_or(declare);
        let message = format!("there is no parameter `{}`", shorten(name));
        (!draft.incomplete).then_some((message, help))
    })
}

/// Reports too many declarations. This also bounds the time of the following checks, which compare
/// all names.
fn too_many(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let event = draft.events.get(EVENTS_MAX).map(|e| (e.event.span, EVENTS_MAX, "events"));
    let table =
        draft.tables.get(OTHERS_MAX).map(|(_, span)| (*span, OTHERS_MAX, "enums and flags"));
    let probe = draft.probes.get(OTHERS_MAX).map(|p| (p.span, OTHERS_MAX, "probes"));
    let slice = draft.slices.get(OTHERS_MAX).map(|s| (s.span, OTHERS_MAX, "slices"));
    let line = draft.lines.get(OTHERS_MAX).map(|l| (l.event.span, OTHERS_MAX, "lines"));
    let parameter =
        draft.parameters.get(PARAMETERS_MAX).map(|p| (p.span, PARAMETERS_MAX, "parameters"));
    let state = draft.states.get(STATES_MAX).map(|(s, _)| (s.span, STATES_MAX, "states"));
    let rule = draft.rules.get(RULES_MAX).map(|r| (r.span, RULES_MAX, "rules"));
    for (span, most, what) in
        [event, table, probe, slice, line, parameter, state, rule].into_iter().flatten()
    {
        let message = format!("more than {most} {what}");
        found.push(
            Diagnostic::error(span, message)
                .label("one too many")
                .help("divide it into several schemata"),
        );
    }
}

/// The table of `as syscall`, unless the schema declares one of this name.
fn add_system_calls(draft: &mut Draft) {
    let names = |decode: &Decode| matches!(decode, Decode::Table(t) if t == system_calls::TABLE);
    let mut fields = draft.events.iter().flat_map(|e| &e.event.fields);
    if let Some(span) = fields.find(|f| names(&f.decode)).map(|f| f.span)
        && !draft.tables.iter().any(|(t, _)| t.name == system_calls::TABLE)
    {
        draft.tables.push((system_calls::table(), span));
    }
}

fn add_contexts(draft: &mut EventDraft, schema: &[(Context, Span)], found: &mut Vec<Diagnostic>) {
    let mut wanted = draft.contexts.clone();
    if draft.event.poll.is_some() {
        // Those of the schema are of its other events.
        found.extend(wanted.first().map(|(_, span)| {
            Diagnostic::error(*span, "a polled event has no context")
                .label("of no thread")
                .help("remove it: the recorder reads the file, and no probe is hit")
        }));
        return;
    }
    for (context, span) in schema {
        if !wanted.iter().any(|(c, _)| c == context) {
            wanted.push((*context, *span));
        }
    }
    let mut twice = HashSet::new();
    for (context, span) in wanted {
        let row = context.row();
        let name = row.word;
        if !twice.insert(name) {
            continue;
        }
        if let Some(own) = draft.event.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)) {
            let message = format!("event {} has a field `{name}` already", draft.event.name);
            let help = format!("rename the field, or remove `{name}` from `context`");
            found.push(
                Diagnostic::error(own.span, message)
                    .label("declared here")
                    .related(span, "added here")
                    .help(help),
            );
            continue;
        }
        draft.event.fields.push(Field {
            name: name.into(),
            type_name: row.type_name.into(),
            scalar: row.scalar,
            shape: row.shape,
            unit: None,
            decode: row.decode(),
            doc: None,
            context: Some(context),
            span,
        });
    }
}

/// The tables of the contexts that some event has.
fn add_tables(draft: &mut Draft) {
    let fields = draft.events.iter().flat_map(|e| &e.event.fields);
    let used = fields.filter_map(|f| Some((f.context?.row().table()?, f.span)));
    let mut tables: Vec<(Decoding, Span)> = used.collect();
    tables.dedup_by(|a, b| a.0.name == b.0.name);
    draft.tables.extend(tables);
}

/// Reports names that are used twice. Case is ignored, because SQL ignores it.
fn unique<'a>(
    what: &str,
    names: impl Iterator<Item = (&'a str, Span)>,
    found: &mut Vec<Diagnostic>,
) {
    let mut seen: HashMap<String, (&str, Span)> = HashMap::new();
    for (name, span) in names {
        let Some((first, at)) = seen.insert(name.to_lowercase(), (name, span)) else { continue };
        let same = if first == name {
            "choose another name"
        } else {
            "choose another name: case does not count, as in SQL"
        };
        let message = format!("there is {what} `{}` already", shorten(name));
        found.push(
            Diagnostic::error(span, message)
                .label("declared again")
                .related(at, "first declared here")
                .help(same),
        );
    }
}

/// The recorder makes the table of places.
fn reserved_tables(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for (_, span) in draft.tables.iter().filter(|(t, _)| t.name.eq_ignore_ascii_case(PLACE)) {
        found.push(
            Diagnostic::error(*span, format!("`{PLACE}` is the decoding of places of probes"))
                .label("taken")
                .help("choose another name"),
        );
    }
}

fn unique_names(draft: &Draft, found: &mut Vec<Diagnostic>) {
    unique("an event", draft.events.iter().map(|e| (e.event.name.as_str(), e.event.span)), found);
    unique(
        "an enum or flags",
        draft.tables.iter().map(|(t, span)| (t.name.as_str(), *span)),
        found,
    );
    unique("a slice", draft.slices.iter().map(|s| (s.slice.name.as_str(), s.span)), found);
    unique("a parameter", draft.parameters.iter().map(|p| (p.name.as_str(), p.span)), found);
    unique("a module", draft.modules.iter().map(|m| (m.name.as_str(), m.span)), found);
    unique("an arch", draft.arch.iter().map(|(a, span)| (a.name.as_str(), *span)), found);
    for event in &draft.events {
        let own = event.event.fields.iter().filter(|f| f.context.is_none());
        unique("a field", own.map(|f| (f.name.as_str(), f.span)), found);
    }
}

fn check_event(draft: &EventDraft, all: &Draft, found: &mut Vec<Diagnostic>) {
    let event = &draft.event;
    check_scope(draft, found);
    check_size(event, found);
    check_symbols(event, found);
    check_polled(event, found);
    for (field, span) in event.fields.iter().zip(&draft.decode_spans) {
        if let Some(span) = span
            && found.len() < ERRORS_MAX
        {
            check_decode(field, *span, all, found);
        }
    }
}

/// What is read from a file is single numbers and texts.
fn check_polled(event: &Event, found: &mut Vec<Diagnostic>) {
    if event.poll.is_none() {
        return;
    }
    if event.fields.is_empty() {
        let message = format!("poll {} has no fields", event.name);
        let help = "name what to read of the file: `u64 pgfault`";
        found.push(Diagnostic::error(event.span, message).label("reads nothing").help(help));
    }
    for field in event.fields.iter().filter(|f| matches!(f.shape, Shape::Array(_))) {
        let message = format!("`{}` cannot be polled", shorten(&field.name));
        let help = "give each value its own field: `u64 user from \"cpu\" 1`";
        found.push(Diagnostic::error(field.span, message).label("an array").help(help));
    }
}

fn check_scope(draft: &EventDraft, found: &mut Vec<Diagnostic>) {
    let Scope::Fields(names) = &draft.event.scope else { return };
    let fields = &draft.event.fields;
    for (name, &span) in names.iter().zip(&draft.scope_spans) {
        match fields.iter().find(|f| f.name == *name) {
            None if draft.incomplete => {}
            None => {
                let message =
                    format!("event {} has no field `{}`", draft.event.name, shorten(name));
                let help = did_you_mean(name, fields.iter().map(|f| f.name.as_str()))
                    .unwrap_or_else(|| {
                        "name a field that holds a thread id, or write `scope all` or `scope \
                     current`"
                            .into()
                    });
                found.push(Diagnostic::error(span, message).label("not a field").help(help));
            }
            Some(field) if field.context.is_some() => {
                let message =
                    format!("`{name}` is the running thread's, as every event's scope is");
                found.push(
                    Diagnostic::error(span, message)
                        .label("added by `context`")
                        .help("write `scope current`, or omit the scope"),
                );
            }
            Some(field) if field.shape != Shape::One || field.scalar == Scalar::Bool => {
                let message = format!("`{name}` is not an integer, so it cannot be a thread id");
                let help = "a scope names fields that hold thread ids: `int pid as thread`";
                found.push(
                    Diagnostic::error(span, message)
                        .label("not an integer")
                        .related(field.span, "declared here")
                        .help(help),
                );
            }
            Some(_) => {}
        }
    }
}

fn check_size(event: &Event, found: &mut Vec<Diagnostic>) {
    let layout = EventLayout::new("", event, 1);
    let size = layout.max_size();
    if size <= RECORD_MAX {
        return;
    }
    let mut sizes: Vec<(u32, &str)> = layout
        .fields
        .iter()
        .map(|f| {
            (f.shape.align_and_size(f.scalar).1 + f.shape.tail_max().unwrap_or(0), f.name.as_str())
        })
        .collect();
    sizes.sort_by_key(|&(size, _)| std::cmp::Reverse(size));
    let shown: Vec<String> =
        sizes.iter().take(8).map(|(size, name)| format!("{name} {size}")).collect();
    let rest = if sizes.len() > shown.len() {
        format!(", and {} smaller ones", sizes.len() - shown.len())
    } else {
        String::new()
    };
    let message = format!("a record of event {} would take {size} bytes", event.name);
    let help = format!(
        "shorten or remove fields; in bytes: {}{rest}; header {HEADER_SIZE}; all of it aligned",
        shown.join(", ")
    );
    found.push(
        Diagnostic::error(event.span, message)
            .label(format!("a record has at most {RECORD_MAX}"))
            .help(help),
    );
}

/// When a log is exported, a field `as code` gets a second column, `NAME_symbol`.
fn check_symbols(event: &Event, found: &mut Vec<Diagnostic>) {
    for code in event.fields.iter().filter(|f| f.decode == Decode::Code) {
        let column = format!("{}_symbol", code.name);
        if let Some(other) = event.fields.iter().find(|f| f.name.eq_ignore_ascii_case(&column)) {
            let message =
                format!("`{}` is the column that names the code at `{}`", other.name, code.name);
            found.push(
                Diagnostic::error(other.span, message)
                    .label("taken")
                    .related(code.span, "by this field")
                    .help("choose another name"),
            );
        }
    }
}
