// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks probes, their `klogger()` calls and their C.

use super::parameter_named;
use crate::c::reach::{BEYOND_HELP, beyond, beyond_message};
use crate::c::{self, Token};
use crate::diagnostic::Diagnostic;
use crate::model::{Probe, Scalar, Span, Target};
use crate::names::shorten;
use crate::nearest::did_you_mean;
use crate::parse::{Draft, ERRORS_MAX};
use std::collections::{HashMap, HashSet};

/// Checks the C in a schema, which is untrusted, and which root compiles.
pub fn check_c(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for block in draft.code.iter().chain(draft.probes.iter().map(|p| &p.body)) {
        for at in beyond(&block.text) {
            let message = beyond_message(&block.text[at.start..at.end]);
            let span = Span { start: block.span.start + at.start, end: block.span.start + at.end };
            found.push(Diagnostic::error(span, message).label("not in a schema").help(BEYOND_HELP));
        }
    }
}

/// What switches probes on and off is a parameter, and true or false.
pub fn check_switches(draft: &Draft, found: &mut Vec<Diagnostic>) {
    for (probe, switch) in draft.probes.iter().filter_map(|p| Some((p, p.switch.as_ref()?))) {
        let name = shorten(&switch.parameter);
        let hides = |target: &&Target| target.params.iter().any(|p| p.name == switch.parameter);
        if let Some(target) = probe.targets.iter().find(hides) {
            let what = format!("`{name}` is a parameter of the probe as well");
            found.push(
                Diagnostic::error(switch.span, what)
                    .label("which of them?")
                    .related(target.span, "declared here")
                    .help("choose another name for one of them"),
            );
            continue;
        }
        let declare = format!("declare it: `parameter bool {name} = true`");
        let fault = match parameter_named(draft, &switch.parameter, declare) {
            Ok(p) if p.scalar == Scalar::Bool => continue,
            Ok(p) => Diagnostic::error(switch.span, format!("`{name}` is not a `bool`"))
                .label("neither true nor false")
                .related(p.span, "declared here")
                .help("a probe is attached where a parameter of type `bool` is true"),
            Err(None) => continue,
            Err(Some((message, help))) => {
                Diagnostic::error(switch.span, message).label("not declared").help(help)
            }
        };
        found.push(fault);
    }
}

/// The program of a probe of these kinds finds out at a hit where it is, and passes that to the
/// body only.
pub fn check_places(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let mut targets = draft.probes.iter().flat_map(|p| &p.targets);
    let Some(target) = targets.find(|t| t.kind.finds_place()) else { return };
    for block in &draft.code {
        let all = Span { start: 0, end: block.text.len() };
        let is_one = |(token, at): &(Token, Span)| {
            *token == Token::Word && &block.text[at.start..at.end] == FUNCTION
        };
        for (_, at) in c::tokens(&block.text, all).filter(is_one) {
            let span = Span { start: block.span.start + at.start, end: block.span.start + at.end };
            let what = format!("{FUNCTION}() has no number here for a {}", target.kind.noun());
            found.push(
                Diagnostic::error(span, what)
                    .label("not in a probe")
                    .related(target.span, "at this place")
                    .help("call it in the probe's own body, and pass on the number"),
            );
        }
    }
}

/// The function that gives the number of a place.
const FUNCTION: &str = "klogger_place";

pub fn check_calls(probe: &Probe, all: &Draft, found: &mut Vec<Diagnostic>) {
    for call in &probe.calls {
        if found.len() >= ERRORS_MAX {
            return;
        }
        let Some(draft) = all.events.iter().find(|e| e.event.name == call.event) else {
            if !all.incomplete {
                let help =
                    did_you_mean(&call.event, all.events.iter().map(|e| e.event.name.as_str()))
                        .unwrap_or_else(|| {
                            format!("declare it: `event {} {{ ... }}`", shorten(&call.event))
                        });
                let message = format!(
                    "klogger() names an event `{}` that is not declared",
                    shorten(&call.event)
                );
                found.push(Diagnostic::error(call.span, message).label("unknown event").help(help));
            }
            continue;
        };
        if draft.event.poll.is_some() {
            let message = format!("{} is read from a file, not logged by a probe", call.event);
            let help = format!("declare another event, or `event {}` without a file", call.event);
            found.push(
                Diagnostic::error(call.span, message)
                    .label("a polled event")
                    .related(draft.event.span, "declared here")
                    .help(help),
            );
            continue;
        }
        let own: Vec<&str> = draft
            .event
            .fields
            .iter()
            .filter(|f| f.context.is_none())
            .map(|f| f.name.as_str())
            .collect();
        if own.len() != call.arguments && !draft.incomplete {
            let message =
                format!("event {} takes {}, not {}", call.event, values(own.len()), call.arguments);
            let names =
                if own.is_empty() { String::new() } else { format!(", {}", own.join(", ")) };
            let help = format!("write `klogger({}{names})`", call.event);
            found.push(
                Diagnostic::error(call.span, message)
                    .label(format!("{} given", values(call.arguments)))
                    .related(draft.event.span, "declared here")
                    .help(help),
            );
        }
    }
}

fn values(n: usize) -> String {
    match n {
        0 => "no values".into(),
        1 => "1 value".into(),
        n => format!("{n} values"),
    }
}

/// One probe per attach point: it is hit once, and reads the clock once. Prototypes may differ,
/// because kernels do.
pub fn unique_targets(probes: &[Probe], found: &mut Vec<Diagnostic>) {
    let mut seen = HashMap::new();
    for (number, probe) in probes.iter().enumerate() {
        for target in &probe.targets {
            let types: Vec<&str> = target.params.iter().map(|p| p.ty.as_str()).collect();
            let Some((first, span)) =
                seen.insert((target.kind, target.name.as_str(), types), (number, target.span))
            else {
                continue;
            };
            let help = if first == number {
                "remove one of the two"
            } else {
                "put both bodies into one probe: it is hit once, and reads the clock once"
            };
            let message = format!(
                "there is a probe at {} `{}` already",
                target.kind.word(),
                shorten(&target.name)
            );
            found.push(
                Diagnostic::error(target.span, message)
                    .label("again")
                    .related(span, "first here")
                    .help(help),
            );
        }
    }
}

pub fn never_logged(draft: &Draft, found: &mut Vec<Diagnostic>) {
    if draft.probes.is_empty() || draft.incomplete {
        return;
    }
    let logged: HashSet<&str> =
        draft.probes.iter().flat_map(|p| &p.calls).map(|c| c.event.as_str()).collect();
    let events = draft.events.iter().map(|e| &e.event).filter(|e| e.poll.is_none());
    for event in events.filter(|e| !logged.contains(e.name.as_str())) {
        let message = format!("no probe logs event {}", event.name);
        let help = format!("call `klogger({}, ...)` in a probe, or remove the event", event.name);
        found.push(Diagnostic::warning(event.span, message).label("never logged").help(help));
    }
}
