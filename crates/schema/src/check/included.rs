// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Checks that texts that a schema includes have no events and probes.

use crate::Options;
use crate::diagnostic::Diagnostic;
use crate::parse::Draft;

/// Events and probes are the schema's own: what it includes only helps them.
pub fn check(draft: &Draft, options: &Options, found: &mut Vec<Diagnostic>) {
    let events = draft.events.iter().map(|e| (e.event.span, "an event"));
    let probes = draft.probes.iter().map(|p| (p.span, "a probe"));
    let slices = draft.slices.iter().map(|s| (s.span, "a slice"));
    let lines = draft.lines.iter().map(|l| (l.event.span, "a line"));
    let arch = draft.arch.iter().map(|(_, span)| (*span, "an arch"));
    let contexts = draft.contexts.iter().map(|(_, span)| (*span, "a context"));
    let names = draft.schema.iter().map(|name| (name.span, "a schema"));
    let all =
        events.chain(probes).chain(slices).chain(lines).chain(arch).chain(contexts).chain(names);
    for (span, what) in all.filter(|(span, _)| options.includes.is_included(span.start)) {
        let message = format!("{what} in a text that is included");
        found.push(Diagnostic::error(span, message).label("not here").help(
            "such a text has `code`, `enum`, `flags`, `parameter`, `state` and `include`; \
             move this to the schema",
        ));
    }
}
