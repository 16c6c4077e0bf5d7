// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! `line EVENT "TEXT" with EVENT by FIELD`: how an event reads as one line. Reads the text, and
//! checks the declarations.

use crate::diagnostic::Diagnostic;
use crate::model::{Event, Field, Scalar, Shape};
use crate::names::shorten;
use crate::nearest::did_you_mean;
use crate::parse::{Draft, ERRORS_MAX, EventDraft, LineDraft, Name};

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// `{FIELD}`
    Field(String),
    /// `{FIELD!}`: within `[...]`, the field that decides.
    Deciding(String),
    /// `{FIELD?}`: the same, and its value is not printed.
    Condition(String),
    /// `[...]`: left out if the fields that decide are 0 or empty: if none is named, all in it. It
    /// contains no other.
    Optional(Vec<Part>),
}

impl Part {
    /// The field whose value it is.
    pub fn field(&self) -> Option<&str> {
        match self {
            Part::Field(name) | Part::Deciding(name) | Part::Condition(name) => Some(name),
            Part::Text(_) | Part::Optional(_) => None,
        }
    }

    /// Whether `[...]` with these parts is printed. `has`: whether a field is neither 0 nor empty.
    pub fn is_there(inner: &[Part], has: impl Fn(&str) -> bool) -> bool {
        let decides = |part: &&Part| matches!(part, Part::Deciding(_) | Part::Condition(_));
        let all = !inner.iter().any(|part| decides(&part));
        inner.iter().filter(|part| all || decides(part)).filter_map(Part::field).any(has)
    }
}

/// Reads the text of a line. The error says what is wrong with it.
pub fn parts(text: &str) -> Result<Vec<Part>, String> {
    let (mut all, mut optional) = (Vec::new(), None);
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '[', ']']) {
        let into = optional.as_mut().unwrap_or(&mut all);
        if at > 0 {
            into.push(Part::Text(rest[..at].into()));
        }
        let (sign, after) = rest[at..].split_at(1);
        rest = after;
        match sign {
            "{" => {
                let (name, after) = rest.split_once('}').ok_or("`{` is never closed")?;
                into.push(match (name.strip_suffix('!'), name.strip_suffix('?')) {
                    (Some(name), _) => Part::Deciding(name.into()),
                    (_, Some(name)) => Part::Condition(name.into()),
                    (None, None) => Part::Field(name.into()),
                });
                rest = after;
            }
            "[" if optional.is_none() => optional = Some(Vec::new()),
            "[" => return Err("`[` within `[...]`".into()),
            "]" => match optional.take() {
                Some(inner) if has_field(&inner) => all.push(Part::Optional(inner)),
                Some(_) => return Err("`[...]` without a field".into()),
                None => return Err("`]` without `[`".into()),
            },
            _ => return Err("`}` without `{`".into()),
        }
    }
    if optional.is_some() {
        return Err("`[` is never closed".into());
    }
    if !rest.is_empty() {
        all.push(Part::Text(rest.into()));
    }
    Ok(all)
}

fn has_field(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.field().is_some())
}

/// The fields that a line names.
fn fields(parts: &[Part]) -> Vec<&str> {
    let of = |part| match part {
        &Part::Text(_) => Vec::new(),
        Part::Field(name) | Part::Deciding(name) | Part::Condition(name) => vec![name.as_str()],
        Part::Optional(inner) => fields(inner),
    };
    parts.iter().flat_map(of).collect()
}

/// Completes the events of the draft with their lines.
pub fn check(draft: &mut Draft, found: &mut Vec<Diagnostic>) {
    for at in 0..draft.lines.len() {
        if found.len() >= ERRORS_MAX {
            return;
        }
        match wrong(&draft.lines[at], draft) {
            Ok(event) => draft.events[event].event.line = Some(draft.lines[at].line.clone()),
            // What is not declared may have been left out because of another error.
            Err(diagnostic) if !draft.incomplete => found.push(*diagnostic),
            Err(_) => {}
        }
    }
}

/// A diagnostic is large.
type Checked<T> = Result<T, Box<Diagnostic>>;

/// Which event has the line, or what is wrong with it.
fn wrong(line: &LineDraft, draft: &Draft) -> Checked<usize> {
    let event = find(&line.event, &draft.events)?;
    let with = line.with.iter().map(|name| find(name, &draft.events));
    let with = with.collect::<Result<Vec<_>, _>>()?;
    let all: Vec<&EventDraft> = [event].iter().chain(&with).map(|at| &draft.events[*at]).collect();
    if let Some(again) = with.iter().position(|at| *at == event) {
        let wrong = Diagnostic::error(line.with[again].span, "an event is joined with itself")
            .label("has this line")
            .help("name the event that has the other fields");
        return Err(wrong.into());
    }
    if draft.events[event].event.line.is_some() {
        let wrong = Diagnostic::error(line.event.span, "an event has one line")
            .label("has one already")
            .help("remove it");
        return Err(wrong.into());
    }
    for name in &line.by {
        all.iter().try_for_each(|one| has_number(one, name))?;
    }
    let parts = parts(&line.line.text).map_err(|why| {
        let wrong = Diagnostic::error(line.text_span, why).label("in this text");
        wrong.help(
            "`{FIELD}` is the value of a field; what is in `[...]` is left out if its fields are 0",
        )
    });
    let parts = parts.map_err(Box::new)?;
    let known = || all.iter().flat_map(|one| &one.event.fields).map(|f| f.name.as_str());
    match fields(&parts).into_iter().find(|name| !known().any(|field| field == *name)) {
        None => Ok(event),
        Some(name) => {
            let help = did_you_mean(name, known())
                .unwrap_or_else(|| "name fields of the event, or of those after `with`".into());
            let what = format!("there is no field `{}`", shorten(name));
            Err(Diagnostic::error(line.text_span, what).label("in this text").help(help).into())
        }
    }
}

fn find(name: &Name, events: &[EventDraft]) -> Checked<usize> {
    events.iter().position(|e| e.event.name == name.text).ok_or_else(|| {
        let help = did_you_mean(&name.text, events.iter().map(|e| e.event.name.as_str()))
            .unwrap_or_else(|| "a line is of an event of this schema".into());
        let message = format!("there is no event `{}`", shorten(&name.text));
        Diagnostic::error(name.span, message).label("not declared").help(help).into()
    })
}

fn has_number(draft: &EventDraft, name: &Name) -> Checked<()> {
    let Event { fields, name: event, .. } = &draft.event;
    let is_number = |f: &Field| f.shape == Shape::One && f.scalar != Scalar::Bool;
    let what = match fields.iter().find(|f| f.name == name.text) {
        Some(field) if is_number(field) => return Ok(()),
        Some(_) => "no integer",
        None => "no field",
    };
    let numbers = fields.iter().filter(|f| is_number(f)).map(|f| f.name.as_str());
    let help = did_you_mean(&name.text, numbers)
        .unwrap_or_else(|| "name integers that all these events have".into());
    let message = format!("event {event} has {what} `{}`", shorten(&name.text));
    let wrong = Diagnostic::error(name.span, message)
        .label("of all these events")
        .related(draft.event.span, "declared here")
        .help(help);
    Err(wrong.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_may_decide_whether_a_part_is_there() {
        let is_there = |text: &str, has: &[&str]| {
            let all = parts(text).unwrap();
            let [Part::Optional(inner)] = &all[..] else { panic!("{all:?}") };
            Part::is_there(inner, |name| has.contains(&name))
        };
        assert!(is_there("[{fd} {events!}]", &["events"]));
        assert!(!is_there("[{fd} {events!}]", &["fd"]));
        assert!(is_there("[{fd} {events}]", &["fd"]));
        assert!(is_there("[{clock?}{name}, ]", &["clock"]));
        assert!(!is_there("[{clock?}{name}, ]", &["name"]));
        assert!(!is_there("[{fd} {events}]", &["other"]));
    }

    #[test]
    fn fields_and_optional_parts() {
        let field = |name: &str| Part::Field(name.into());
        let text = |text: &str| Part::Text(text.into());
        let optional = Part::Optional(vec![text(", "), field("mode")]);
        let all = vec![field("call"), text("("), field("path"), optional, text(")")];
        assert_eq!(parts("{call}({path}[, {mode}])"), Ok(all));
        assert_eq!(parts(""), Ok(Vec::new()));
        for wrong in ["{a", "a}", "[a]", "[{a}", "{a}]", "[[{a}]]"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}
